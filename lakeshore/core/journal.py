"""The ordered frames of one invocation or topic, and who reads along.

Frames come in chunks, packed once where they were made; here they only get their numbers. A chunk
is shown to followers after its commit. A follower that lags is fed from the store at its own credit
and joins the tail when it meets it, so no reader slows a writer.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec import Struct

from .actor import Actor
from .engine import store_failed
from .messages import (
    Chunk,
    Credit,
    Drop,
    Follow,
    FollowTopic,
    Outcome,
    Refusal,
    StreamEnd,
    StreamGap,
)
from .ports import Outlet
from .rows import ChunkRow, GetChunks, Trim

_TAIL_BYTES, _TAIL_CHUNKS = 256 * 1024, 64


class Stored(Struct, gc=False):
    """A chunk (or with `row` None, the end) of `journal` is on disk."""

    journal: Journal
    row: ChunkRow | None


class Follower:
    """One open stream: the next frame it wants and how many it may still be sent."""

    __slots__ = ("credit", "cursor", "peer", "reading", "req")

    def __init__(self, peer: Outlet, req: int, cursor: int, credit: int) -> None:
        self.peer, self.req, self.cursor, self.credit = peer, req, cursor, credit
        self.reading = False


class Journal:
    """Frames of `owner`. All of it runs in turns of `host`, which passes on `Stored`.

    Args:
        first_seq, next_seq: what is stored already.
        attempt: the attempt of the newest stored frame.
        limit: bytes kept; older chunks go and become a `Gap`.
    """

    __slots__ = (
        "_sizes",
        "attempt",
        "base",
        "bytes",
        "committed",
        "end",
        "ended",
        "first_seq",
        "followers",
        "host",
        "index",
        "limit",
        "namespace",
        "next_seq",
        "owner",
        "queue",
        "tail",
        "tail_bytes",
    )

    def __init__(
        self,
        host: Actor,
        namespace: str,
        owner: bytes,
        queue: bytes,
        *,
        first_seq: int = 0,
        next_seq: int = 0,
        attempt: int = 0,
        limit: int = 1 << 30,
    ) -> None:
        self.host, self.namespace, self.owner, self.queue = host, namespace, owner, queue
        self.first_seq, self.next_seq, self.committed = first_seq, next_seq, next_seq
        self.attempt, self.base, self.index = attempt, next_seq, 0
        self.limit, self.bytes = limit, 0
        self.index: int
        self._sizes: deque[tuple[int, int]] = deque()  # (end, bytes) of chunks written by this process
        self.end: Outcome | None = None
        self.ended = False
        self.followers: dict[tuple[int, int], Follower] = {}
        self.tail: deque[ChunkRow] = deque()
        self.tail_bytes = 0

    def append(self, attempt: int, index: int, count: int, data: bytes) -> bool:
        """Number and store frames `index …` of `attempt`; False for frames that don't come next."""
        if attempt != self.attempt:
            self.attempt, self.base, self.index = attempt, self.next_seq, 0
        if index != self.index:
            return False
        row = ChunkRow(self.namespace, self.owner, self.queue, self.next_seq, count, attempt, data)
        self.host.engine.batch.put(row)
        self.index += count
        self.next_seq += count
        self.bytes += len(data)
        self._sizes.append((self.next_seq, len(data)))
        if self.bytes > self.limit:
            self._trim()
        self.host.engine.emit(self, row)
        return True

    def resume(self, attempt: int) -> None:
        """A new attempt begins: its frames count from 0 again, after all that is there."""
        self.attempt, self.base, self.index = attempt, self.next_seq, 0

    def finish(self, outcome: Outcome | None) -> None:
        """Nothing follows. `outcome` is what an invocation's followers are told; None for a topic."""
        self.end = outcome
        self.host.engine.emit(self, None)

    def deliver(self, message: Any) -> None:
        """As an outlet: what was emitted is stored now."""
        self.host.engine.tell(self.host, Stored(self, message))

    def stored(self, row: ChunkRow | None) -> None:
        """Show a stored chunk, or the end, to those who wait for it."""
        if row is None:
            self.ended = True
        else:
            self.committed = row.seq + row.count
            self._keep(row)
        for follower in tuple(self.followers.values()):
            self._feed(follower)

    def follow(self, peer: Outlet, req: int, since: int, credit: int) -> None:
        """Open a stream from frame `since` on."""
        since = max(since, 0)
        if since < self.first_seq or since > self.committed:
            first = max(self.first_seq, min(since, self.committed))
            self.host.engine.emit(peer, StreamGap(req, first))
            return
        follower = Follower(peer, req, since, credit)
        self.followers[id(peer), req] = follower
        self._feed(follower)

    def credit(self, peer: Outlet, req: int, frames: int) -> None:
        """A follower has consumed `frames`."""
        follower = self.followers.get((id(peer), req))
        if follower is not None:
            follower.credit += frames
            self._feed(follower)

    def drop(self, peer: Outlet, req: int) -> None:
        """A follower has gone."""
        self.followers.pop((id(peer), req), None)

    def _feed(self, follower: Follower) -> None:
        while follower.credit > 0 and follower.cursor < self.committed and not follower.reading:
            if not self.tail or follower.cursor < self.tail[0].seq:
                self._read(follower)
                return
            for row in self.tail:
                if row.seq + row.count > follower.cursor:
                    self._show(follower, row)
                    if follower.credit <= 0:
                        return
        if self.ended and follower.cursor >= self.committed and not follower.reading:
            self.followers.pop((id(follower.peer), follower.req), None)
            self.host.engine.send(follower.peer, StreamEnd(follower.req, self.committed, self.end))

    def _show(self, follower: Follower, row: ChunkRow) -> None:
        fresh = row.seq + row.count - follower.cursor
        follower.cursor += fresh
        follower.credit -= fresh
        self.host.engine.send(follower.peer, Chunk(follower.req, row.seq, row.count, row.attempt, row.data))

    def _read(self, follower: Follower) -> None:
        follower.reading = True
        query = GetChunks(self.namespace, self.owner, follower.cursor, min(follower.credit, 1024))
        self.host.engine.read(self.host, query, lambda rows: self._shown(follower, rows))

    def _shown(self, follower: Follower, rows: list[ChunkRow] | BaseException) -> None:
        follower.reading = False
        key = (id(follower.peer), follower.req)
        if self.followers.get(key) is not follower:
            return
        if isinstance(rows, BaseException):
            del self.followers[key]
            error = store_failed(rows)
            self.host.engine.send(follower.peer, Refusal(follower.req, "StoreFailed", str(error)))
            return
        if not rows or rows[0].seq > follower.cursor:  # trimmed while it lagged
            del self.followers[key]
            first = rows[0].seq if rows else self.committed
            self.host.engine.send(follower.peer, StreamGap(follower.req, first))
            return
        for row in rows:
            if row.seq + row.count > follower.cursor:
                self._show(follower, row)
        self._feed(follower)

    def _keep(self, row: ChunkRow) -> None:
        self.tail.append(row)
        self.tail_bytes += len(row.data)
        while self.tail_bytes > _TAIL_BYTES or len(self.tail) > _TAIL_CHUNKS:
            self.tail_bytes -= len(self.tail.popleft().data)

    def _trim(self) -> None:
        while self.bytes > self.limit and len(self._sizes) > 1:
            end, size = self._sizes.popleft()
            self.bytes -= size
            self.first_seq = end
        self.host.engine.batch.trim(Trim(self.namespace, self.owner, self.first_seq))


class Streams:
    """The open streams of one actor's journals, by who reads them; runs in the actor's turns."""

    def __init__(self, host: Actor) -> None:
        self.open: dict[tuple[int, int], Journal] = {}
        host.handlers |= {Credit: self.credit, Stored: self.stored}

    def follow(self, journal: Journal, message: Follow | FollowTopic, peer: Outlet) -> None:
        """A peer opens a stream."""
        self.open[id(peer), message.req] = journal
        journal.follow(peer, message.req, message.since, message.credit)

    def credit(self, message: Credit, peer: Outlet) -> None:
        """It has read some."""
        journal = self.open.get((id(peer), message.req))
        if journal is not None:
            journal.credit(peer, message.req, message.frames)

    def drop(self, message: Drop, peer: Outlet) -> bool:
        """It has enough; whether there was such a stream."""
        journal = self.open.pop((id(peer), message.req), None)
        if journal is not None:
            journal.drop(peer, message.req)
        return journal is not None

    def stored(self, message: Stored, sender: object) -> None:
        """A chunk or an end is on disk."""
        message.journal.stored(message.row)
