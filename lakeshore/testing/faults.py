"""A store and a link that go wrong on command. Both are driven by hand, without a loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from lakeshore.core.ports import Store
from lakeshore.core.rows import Batch, Committed, Query


class FaultyStore:
    """Wraps a store; each commit and read can be held back, fail, or lose its answer.

    Args:
        inner: the store that keeps what is let through. One that answers at once, such as
            `MemoryStore`, keeps a test without a loop.

    Attributes:
        hold: commits wait in `held` until `release` lets them through.
        hold_reads: the same for reads.
        failures: errors for the next commits, first in first out; such a commit stores nothing.
        refuse: an error for every commit until it is None again (a full disk, say).
        commits: how many batches were stored.
        watch: called with each batch that is stored.
        stored: called with each batch and what the store said of it, before anybody is told.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.hold = self.hold_reads = False
        self.failures: deque[BaseException] = deque()
        self.refuse: BaseException | None = None
        self.held: deque[tuple[Batch, Callable[[Committed | BaseException], None]]] = deque()
        self.held_reads: deque[tuple[Query, Callable[[Any], None]]] = deque()
        self.commits = 0
        self.watch: Callable[[Batch], None] = lambda batch: None
        self.stored: Callable[[Batch, Committed], None] = lambda batch, committed: None

    @property
    def full(self) -> str:
        """As the inner store says."""
        return self.inner.full

    async def open(self) -> None:
        """Open the inner store."""
        await self.inner.open()

    async def aclose(self) -> None:
        """Close the inner store; what is held was never stored."""
        self.held.clear()
        self.held_reads.clear()
        await self.inner.aclose()

    def commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        """Store, hold or fail."""
        if self.hold:
            self.held.append((batch, done))
        else:
            self._commit(batch, done)

    def read(self, query: Query, done: Callable[[Any], None]) -> None:
        """Answer or hold."""
        if self.hold_reads:
            self.held_reads.append((query, done))
        else:
            self.inner.read(query, done)

    def release(self, count: int | None = None) -> int:
        """Let held commits through, in order; how many."""
        released = 0
        while self.held and released != count:
            released += 1
            self._commit(*self.held.popleft())
        return released

    def release_reads(self, count: int | None = None) -> int:
        """Answer held reads, in order; how many."""
        released = 0
        while self.held_reads and released != count:
            released += 1
            self.inner.read(*self.held_reads.popleft())
        return released

    def lose_answer(self) -> None:
        """Store the oldest held commit, but never say so: as when power goes just after it."""
        batch, _ = self.held.popleft()
        self._store(batch, lambda result: None)

    def drop(self) -> None:
        """Forget everything held: it was never stored."""
        self.held.clear()
        self.held_reads.clear()

    def _commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        if self.failures:
            done(self.failures.popleft())
        elif self.refuse is not None:
            done(self.refuse)
        else:
            self._store(batch, done)

    def _store(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        self.commits += 1
        self.watch(batch)

        def stored(result: Committed | BaseException) -> None:
            if isinstance(result, Committed):
                self.stored(batch, result)
            done(result)

        self.inner.commit(batch, stored)


class FaultyLink:
    """One end of a link whose messages wait until they are let through, or are lost with a cut.

    Attributes:
        hold: what this end sends waits until `deliver`.
        receive, closed: set by whoever listens at this end.
        watch: called with everything this end sends, when it is sent.
    """

    def __init__(self) -> None:
        self.hold = False
        self.watch: Callable[[Any], None] = lambda message: None
        self.receive: Callable[[Any], None] = lambda message: None
        self.closed: Callable[[], None] = lambda: None
        self.sent: deque[Any] = deque()
        self._open = True
        self._other: FaultyLink

    def send(self, message: Any, /) -> None:
        """Hand over, or hold."""
        if not self._open:
            return
        self.watch(message)
        self.sent.append(message)
        if not self.hold:
            self.deliver()

    def deliver(self, count: int | None = None) -> int:
        """Let held messages arrive, in order; how many."""
        delivered = 0
        while self._open and self.sent and delivered != count:
            delivered += 1
            self._other.receive(self.sent.popleft())
        return delivered

    def close(self) -> None:
        """An orderly end: what was sent arrives first, then the other end is told."""
        self.deliver()
        if self._open:
            other = self._other
            self._open = other._open = False
            other.closed()

    def cut(self) -> None:
        """Break the link: held messages of both directions are lost, both ends are told."""
        if self._open:
            other = self._other
            self._open = other._open = False
            self.sent.clear()
            other.sent.clear()
            other.closed()
            self.closed()


def faulty_pair() -> tuple[FaultyLink, FaultyLink]:
    """Two ends of one such link."""
    a, b = FaultyLink(), FaultyLink()
    a._other, b._other = b, a  # pyright: ignore[reportPrivateUsage]
    return a, b
