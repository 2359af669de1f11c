"""Which plane a command talks to: the options that every command has."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeshore import Dispatch


@dataclass(frozen=True)
class Named:
    """What the command line says; None is the environment's, or a login's."""

    url: str | None = None
    namespace: str | None = None
    token: str | None = None
    ca: str | None = None


_named: ContextVar[Named] = ContextVar("lakeshore_cli_plane")


def named() -> Named:
    """What the command line says."""
    return _named.get(Named())


@contextmanager
def naming(what: Named) -> Generator[None]:
    """Commands inside talk to this plane."""
    before = _named.set(what)
    try:
        yield
    finally:
        _named.reset(before)


@contextmanager
def opened() -> Generator[Dispatch]:
    """The plane that was named, or the default one. A head that can't be reached is told at once."""
    from lakeshore import Dispatch

    what = named()
    with Dispatch(what.url, namespace=what.namespace, token=what.token, ca=what.ca, connect_timeout=0) as q:
        yield q
