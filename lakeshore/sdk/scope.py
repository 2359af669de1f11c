"""The prefix that travels with an invocation."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from lakeshore.core.keys import join
from lakeshore.core.running import CURRENT, PLACE


class Scope(NamedTuple):
    """One that is open. `anchored`: it, or one around it, was given a root. `body` is the one that it was
    opened in: a scope around a worker is not its bodies'."""

    prefix: str
    root: str | None
    anchored: bool
    body: Any


_SCOPE: ContextVar[Scope | None] = ContextVar("lakeshore_scope", default=None)
_NONE = Scope("", None, False, None)


@contextmanager
def scope(prefix: str, *, root: str | os.PathLike[str] | None = None) -> Generator[str]:
    """Set the prefix of what is submitted inside, and of keys; nested scopes join.

    Args:
        prefix: a relative POSIX path, such as "scenes/0007"; `..` climbs to a parent scope.
        root: anchors it: the scopes around it don't count, and keys are in this folder, or in the object
            store with this URL. The prefix travels with what is submitted inside, the root does not.

    Yields: the whole prefix.
    Raises: ValueError for an absolute path, a backslash, NUL, an empty part, or one that climbs
        out of the root.
    """
    around = scope_here()
    whole = join("" if root is not None else around.prefix, prefix, "prefix")
    anchor = os.fspath(root) if root is not None else around.root
    before = _SCOPE.get()
    _SCOPE.set(Scope(whole, anchor, root is not None or around.anchored, body_here()))
    try:
        yield whole
    finally:
        _SCOPE.set(before)  # not by a token: a generator may be closed in another context


@contextmanager
def apart(place: Any) -> Generator[None]:
    """Inside, the call in place runs, with the scope that it has left open at its last step."""
    outer, body = _SCOPE.get(), PLACE.get()
    _SCOPE.set(place.scope)
    PLACE.set(place)
    try:
        yield
    finally:
        place.scope = _SCOPE.get()
        _SCOPE.set(outer)
        PLACE.set(body)


def body_here() -> Any:
    """The attempt, or the call in place, whose body runs here; None outside of bodies."""
    return CURRENT.get() or PLACE.get()


def scope_here() -> Scope:
    """The innermost scope, else that of the body this runs in."""
    scoped, body = _SCOPE.get(), body_here()
    if scoped is not None and scoped.body is body:
        return scoped
    return _NONE if body is None else Scope(body.prefix, body.root, False, body)
