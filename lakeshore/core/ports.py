"""What the core needs from outside, as Protocols. Each has one conformance suite in
`lakeshore.testing` that every implementation passes, other people's too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .rows import Batch, Committed, Query


class Store(Protocol):
    """Keeps rows. One batch is in flight at a time; reads may overlap it.

    `done` is called once, on the loop that opened the store (or at once, inside the call), with
    the answer or with the exception. A failed commit stored nothing.
    """

    @property
    def full(self) -> str:
        """Why new submits must be refused (a memory limit, say); empty while there is room."""
        ...

    async def open(self) -> None:
        """Make ready: create, migrate, check. Raises `StoreError`."""
        ...

    def commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        """Store a batch, whole or not at all."""
        ...

    def read(self, query: Query, done: Callable[[Any], None]) -> None:
        """Answer one query from what is committed."""
        ...

    async def aclose(self) -> None:
        """Let go of everything. What was committed stays."""
        ...


class Link(Protocol):
    """One end of an ordered two-way connection of messages. Never waits and never fails:
    what is sent after the other end closed goes nowhere."""

    def send(self, message: Any, /) -> None:
        """Hand over one message, in order."""
        ...

    def close(self) -> None:
        """No more messages, either way. The other end is told, once."""
        ...


class LinkEnd(Link, Protocol):
    """A link's end that also hears: who listens sets both attributes before anything is sent.

    `receive` is called with each message, on this end's loop; `closed` once, when the other end has
    closed, after every message it had sent. An end that closes itself hears nothing more.
    """

    receive: Callable[[Any], None]
    closed: Callable[[], None]


class Outlet(Protocol):
    """Where an effect goes once its commit is done."""

    def deliver(self, message: Any, /) -> None:
        """Take one message that may leave now."""
        ...
