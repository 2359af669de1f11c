"""The prefix that travels with an invocation."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from lakeshore.core.running import CURRENT, Running

from .checks import sound

# the prefix, the root, and the body that the scope was opened in: a scope around a worker is not its bodies'
_PREFIX: ContextVar[tuple[str, str | None, Running | None] | None] = ContextVar(
    "lakeshore_scope", default=None
)


@contextmanager
def scope(prefix: str, *, root: str | os.PathLike[str] | None = None) -> Generator[str]:
    """Set the prefix of what is submitted inside; nested scopes join.

    Args:
        prefix: a relative POSIX path, such as "scenes/0007"; `..` climbs to a parent scope.
        root: anchors it: the scopes around it don't count.

    Yields: the whole prefix.
    Raises: ValueError for an absolute path, a backslash, NUL, an empty part, or one that climbs
        out of the root.
    """
    around = "" if root is not None else current_prefix()
    whole = _join(around, prefix)
    anchor = os.fspath(root) if root is not None else current_root()
    token = _PREFIX.set((whole, anchor, CURRENT.get()))
    try:
        yield whole
    finally:
        _PREFIX.reset(token)


def current_prefix() -> str:
    """The prefix in force here: the innermost scope's, else that of the body this runs in."""
    return prefix_in(CURRENT.get())


def prefix_in(running: Running | None) -> str:
    """The same, inside the body that runs here, if any."""
    scoped = _PREFIX.get()
    if scoped is not None and scoped[2] is running:
        return scoped[0]
    return running.prefix if running is not None else ""


def current_root() -> str | None:
    """The root in force here, or None for the default."""
    scoped, running = _PREFIX.get(), CURRENT.get()
    if scoped is not None and scoped[2] is running:
        return scoped[1]
    return running.root if running is not None else None


def _join(around: str, prefix: str) -> str:
    if not isinstance(prefix, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a scope's prefix is a string, not {type(prefix).__name__}")
    if prefix.startswith("/") or "\\" in prefix or "\0" in prefix:
        raise ValueError(f"{prefix!r} is not a prefix: use a relative path with forward slashes")
    sound("a scope's prefix", prefix)
    parts = around.split("/") if around else []
    for part in prefix.split("/"):
        if part == "":
            raise ValueError(f"{prefix!r} is not a prefix: it has an empty part")
        if part == "..":
            if not parts:
                raise ValueError(f"{prefix!r} climbs out of the root")
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
