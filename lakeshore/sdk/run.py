"""`dls.run`: what a body can ask about the call that runs it, and its files by key."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, overload

import anyio

from lakeshore.core.ids import text_of
from lakeshore.core.logbook import LEVELS

from . import bulk
from .scope import body_here, scope_here

K = TypeVar("K")

_PROGRESS_TEXT = 300  # characters, as heads take them

Level = Literal["debug", "info", "warning", "error", "critical"]


class Run:
    """The invocation that runs here. In a body that runs in place `id` is one that no plane knows, and
    `attempt` is 1. Outside of bodies `read`, `read_all`, `prefix` and `root` work, by the scope that is
    open; all else raises RuntimeError."""

    __slots__ = ()

    def _body(self) -> Any:
        body = body_here()
        if body is None:
            raise RuntimeError(
                "dls.run is about the invocation whose body runs, and no body runs here: use it inside a udf"
            )
        return body

    @property
    def id(self) -> str:
        """The invocation's id."""
        return text_of(self._body().id)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._body().attempt

    @property
    def queue(self) -> str:
        """The name of the queue it came from."""
        return self._body().queue

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""
        return self._body().namespace

    @property
    def prefix(self) -> str:
        """The prefix that keys have here: that of the scope it was submitted under, or of a scope in the
        body itself; empty for none."""
        return scope_here().prefix

    @property
    def root(self) -> Path:
        """The folder that scopes are under: the worker's root, `LAKESHORE_ROOT`, or the current one."""
        return Path(bulk.default_root(scope_here()))

    @property
    def cancelled(self) -> bool:
        """Whether this body was asked to stop: by a timeout, a kill, or its worker's end."""
        return self._body().cancelled

    def log(self, *values: object, level: Level = "info", **fields: object) -> None:
        """Write a line to the invocation's log, as `print` would; `q.logs(inv)` reads it.

        Args:
            values: joined by a space.
            level: debug, info, warning, error or critical.
            fields: follow as name=value.

        In a body that no worker runs, the line goes to stderr. Raises: ValueError for another level,
        RuntimeError outside of a body.
        """
        running = self._body()
        if level not in LEVELS:
            raise ValueError(f"level={level!r}: choose from {', '.join(LEVELS)}")
        text = " ".join([*map(str, values), *(f"{name}={value}" for name, value in fields.items())])
        if running.notes is None:
            print(text, file=sys.stderr)
        else:
            running.notes.line(running, "log", level, text)

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Say how far the body is. The last word is kept, and shown by `lakeshore jobs show`; call it as
        often as you like, as what is said in between is left out.

        Args:
            done, total: finite numbers, 0 or more; of anything.
            text: what it is at; only its first 300 characters are kept.

        Raises: TypeError, ValueError, RuntimeError outside of a body.
        """
        running = self._body()
        done = _amount("done", done)
        total = None if total is None else _amount("total", total)
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"text={text!r}: pass a string")
        if running.notes is not None:
            text = " ".join(text.encode("utf-8", "backslashreplace").decode().split())[:_PROGRESS_TEXT]
            running.notes.progress(running, done, total, text)

    def __bool__(self) -> bool:
        """Whether a body runs here."""
        return body_here() is not None

    def read(self, key: str) -> Path:
        """A local path of the file or folder under a key, for reading only; what is not on this machine is
        fetched first. A body sees what it has written itself.

        Args:
            key: a relative POSIX path under the scope; `..` climbs to a parent scope.

        Raises: KeyNotFound, ValueError for what is no key, StorageFailed.
        """
        return bulk.read(key)

    @overload
    def read_all(self, keys: list[str]) -> list[Path]: ...
    @overload
    def read_all(self, keys: tuple[str, ...]) -> tuple[Path, ...]: ...
    @overload
    def read_all(self, keys: dict[K, str]) -> dict[K, Path]: ...
    @overload
    def read_all(self, keys: Any) -> Any: ...
    def read_all(self, keys: Any) -> Any:
        """The same for all keys of a list, tuple or dict: paths, in the same shape."""
        return _mirrored(keys, bulk.read_many(_leaves(keys)))

    async def aread(self, key: str) -> Path:
        """`read` for asynchronous bodies: nothing else waits while it fetches."""
        return await anyio.to_thread.run_sync(bulk.read, key, abandon_on_cancel=True)

    @overload
    async def aread_all(self, keys: list[str]) -> list[Path]: ...
    @overload
    async def aread_all(self, keys: tuple[str, ...]) -> tuple[Path, ...]: ...
    @overload
    async def aread_all(self, keys: dict[K, str]) -> dict[K, Path]: ...
    @overload
    async def aread_all(self, keys: Any) -> Any: ...
    async def aread_all(self, keys: Any) -> Any:
        """`read_all` for asynchronous bodies."""
        paths = await anyio.to_thread.run_sync(bulk.read_many, _leaves(keys), abandon_on_cancel=True)
        return _mirrored(keys, paths)

    def write(self, key: str, *, dir: bool = False) -> Path:
        """A local path to write a file to, or with `dir` a folder that is there and empty. It is in the
        storage under its key, whole, once the body has ended well, or has yielded the key. Every key that
        was written must be in what the body returns or yields: in a str, list, tuple or dict.

        Raises: ValueError for what is no key, or one that clashes with another.
        """
        self._body()
        return bulk.write(key, dir=dir)

    @overload
    def write_all(self, keys: list[str]) -> list[Path]: ...
    @overload
    def write_all(self, keys: tuple[str, ...]) -> tuple[Path, ...]: ...
    @overload
    def write_all(self, keys: dict[K, str]) -> dict[K, Path]: ...
    @overload
    def write_all(self, keys: Any) -> Any: ...
    def write_all(self, keys: Any) -> Any:
        """The same for all keys of a list, tuple or dict: paths, in the same shape."""
        return _mirrored(keys, [self.write(key) for key in _leaves(keys)])


def _leaves(keys: Any) -> list[str]:
    if isinstance(keys, str):
        return [keys]
    if isinstance(keys, Mapping):
        return [leaf for each in cast("Mapping[Any, Any]", keys).values() for leaf in _leaves(each)]
    if isinstance(keys, list | tuple):
        return [leaf for each in cast("list[Any]", keys) for leaf in _leaves(each)]
    raise TypeError(f"keys are strings, in lists, tuples or dicts, not {type(keys).__name__}")


def _mirrored(keys: Any, paths: list[Path]) -> Any:
    """`paths`, in order, where the keys are."""
    left = iter(paths)

    def shape(each: Any) -> Any:
        if isinstance(each, str):
            return next(left)
        if isinstance(each, Mapping):
            return {name: shape(inner) for name, inner in cast("Mapping[Any, Any]", each).items()}
        return tuple(map(shape, each)) if isinstance(each, tuple) else [shape(inner) for inner in each]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]

    return shape(keys)


def _amount(name: str, value: float) -> float:
    """A number as it travels."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}={value!r}: pass a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{name}={value!r}: pass a finite number, 0 or more")
    return int(value) if hasattr(value, "__index__") and number < 1 << 63 else number


run: Run = Run()
