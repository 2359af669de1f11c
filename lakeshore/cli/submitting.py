"""A call named by `module:function`, for a shell: the module need not be importable here."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from lakeshore import UDF
from lakeshore.core.rows import Function
from lakeshore.sdk.functions import source_hash, walk

from .errors import UsageError
from .printing import note

_NAMED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


class Named(UDF[..., Any]):
    """A body that travels by its name alone; its signature is known where it could be imported."""

    def __init__(self, name: str, found: Any, queue: str | None) -> None:
        self._ref = name
        if isinstance(found, UDF):
            super().__init__(
                found.fn,  # pyright: ignore[reportUnknownMemberType]
                queue=queue or found.queue,
                timeout=found.timeout,
                retries=found.retries,
                retry_delay=found.retry_delay,
                retry_cap=found.retry_cap,
                priority=found.priority,
                name=found.name,
            )
        else:
            super().__init__(_anything if found is None else found, queue=queue)
            self.name = name.replace(":", ".")

    def _function(self, durable: bool) -> Function:
        source = b"" if self.fn is _anything else source_hash(self.fn)
        return Function(self.name, "", self._ref, b"", source)


def _anything(**kwargs: Any) -> None:
    """Stands for a function of which nothing is known here."""


def body(name: str, queue: str | None) -> UDF[..., Any]:
    """The body called `module:function`, to be run by workers that can import it."""
    if not _NAMED.fullmatch(name):
        raise UsageError(f'"{name}" does not name a function: write module:function')
    module, _, qualname = name.partition(":")
    found = _imported(module)
    if found is not None:
        try:
            found = walk(found, qualname)
        except AttributeError:
            raise UsageError(f"the module {module} has no {qualname}") from None
        if not isinstance(found, UDF):
            note(f"{name} is not a @udf: only a worker that trusts {module} will run it")
    return Named(name, found, queue)


def arguments(given: Iterable[str]) -> dict[str, Any]:
    """`x=1` as a keyword argument: JSON where it parses, else text."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f'--arg "{text}": write NAME=VALUE')
        if name.startswith("_"):
            raise UsageError(f"--arg {name}: a function that can be submitted has no such parameter")
        if name in found:
            raise UsageError(f"--arg {name} is given twice")
        try:
            found[name] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[name] = value
    return found


def _imported(module: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does
    try:
        return importlib.import_module(module)
    except Exception as error:
        note(
            f"{module} can't be imported here ({type(error).__name__}: {error}): the arguments are not "
            "checked, and only a worker that can import it will run this"
        )
        return None
