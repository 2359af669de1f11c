"""How a body is named when it travels."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import threading
from typing import Any

from lakeshore.core.fresh import new_id
from lakeshore.core.ids import text_of
from lakeshore.core.rows import FunctionRow

from . import forks

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"  # what can read the pickles of this process

_lock = threading.Lock()
_count = 0
_mark = text_of(new_id())
_mark_forks = forks.count


def process_mark() -> str:
    """What begins the `local` names of this process's bodies, and of no other's."""
    global _mark, _mark_forks
    if forks.count != _mark_forks:
        _mark, _mark_forks = text_of(new_id()), forks.count
    return _mark


def local_name() -> str:
    """A fresh name for a body object of this process."""
    global _count
    with _lock:
        _count += 1
        return f"{process_mark()}:{_count}"


def reference(udf: Any) -> str:
    """`module:qualname` where that leads to this very body in any process, else empty."""
    fn = udf.fn
    module, qualname = getattr(fn, "__module__", None), getattr(fn, "__qualname__", None)
    if not module or not qualname or module == "__main__" or "<" in qualname:
        return ""
    try:
        found = walk(sys.modules[module], qualname)
    except (KeyError, AttributeError):
        return ""
    return f"{module}:{qualname}" if found is udf else ""


def source_hash(fn: Any) -> bytes:
    """A digest of a function's source text, empty where there is none."""
    try:
        text = inspect.getsource(fn)
    except (OSError, TypeError):
        return b""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def pickled(udf: Any) -> FunctionRow:
    """A body by value.

    Raises: TypeError where it holds what can't be pickled.
    """
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs]  # which few programs need

    try:
        data: bytes = cloudpickle.dumps(udf)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:
        raise TypeError(
            f"{udf.name} can't be stored with its plane: {error}; define it at the top of a module "
            "that workers can import, or take what can't be pickled out of its closure"
        ) from error
    return FunctionRow(hashlib.blake2b(data, digest_size=16).digest(), data)


def walk(module: Any, qualname: str) -> Any:
    """The object that a qualified name leads to inside a module."""
    found = module
    for name in qualname.split("."):
        found = getattr(found, name)
    return found


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
