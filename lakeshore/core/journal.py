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
    FollowLogs,
    FollowTopic,
    Outcome,
    Refusal,
    StreamEnd,
    StreamGap,
)
from .ports import Outlet
from .rows import ChunkRow, GetChunks, GetMarks, Trim

_TAIL_BYTES, _TAIL_CHUNKS = 256 * 1024, 64
_READ_FRAMES, _READ_BYTES = 1024, 1 << 20
_MARKS = 64  # about how many places a journal remembers where it may be cut


class Stored(Struct, gc=False):
    """A chunk (or with `row` None, the end) of `journal` is on disk."""

    journal: Journal
    row: ChunkRow | None


class Follower:
    """One open stream: the next frame it wants, and how many frames and bytes it may still be sent.

    It ends at frame `until`, or at the end of the journal."""

    __slots__ = ("credit", "cursor", "peer", "reading", "req", "room", "until")

    def __init__(
        self, peer: Outlet, req: int, cursor: int, credit: int, room: int, until: int | None = None
    ) -> None:
        self.peer, self.req, self.cursor, self.credit, self.room = peer, req, cursor, credit, room
        self.until = until
        self.reading = False

    @property
    def ready(self) -> bool:
        """Whether it may be sent another chunk."""
        return self.credit > 0 and self.room > 0 and not self.reading


class Journal:
    """Frames of `owner`. All of it runs in turns of `host`, which passes on `Stored`.

    Args:
        first_seq, next_seq: what is stored already.
        attempt: the attempt of the newest stored frame.
        limit: bytes kept; older chunks go and become a `Gap`.
    """

    __slots__ = (
        "_marks",
        "_measured",
        "attempt",
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
        self.attempt = attempt
        self.index: int = 0
        self.limit, self.bytes = limit, 0
        self._marks: deque[tuple[int, int]] = deque()  # (end, bytes) of neighbouring chunks
        self._measured = False  # `_marks` and `bytes` have what earlier processes wrote, or are about to
        self.end: Outcome | None = None
        self.ended = False
        self.followers: dict[tuple[int, int], Follower] = {}
        self.tail: deque[ChunkRow] = deque()
        self.tail_bytes = 0

    def append(self, attempt: int, index: int, count: int, data: bytes) -> bool:
        """Number and store frames `index …` of `attempt`; False for frames that don't come next."""
        if attempt != self.attempt:
            self.attempt, self.index = attempt, 0
        if index != self.index:
            return False
        row = ChunkRow(self.namespace, self.owner, self.queue, self.next_seq, count, attempt, data)
        if not self._measured:
            self._measured = True
            if self.next_seq > self.first_seq:
                self._measure(self.first_seq, self.next_seq, [])
        self.host.engine.batch.put(row)
        self.index += count
        self.next_seq += count
        size = len(data)
        self.bytes += size
        if self._marks and self._marks[-1][1] + size <= self.limit // _MARKS:
            size += self._marks.pop()[1]
        self._marks.append((self.next_seq, size))
        self._shrink()
        self.host.engine.emit(self, row)
        return True

    def skip_to(self, attempt: int, index: int) -> None:
        """Frames before this one are lost, and were once stored: their writer does not have them any more."""
        if index > self.index_of(attempt):
            self.attempt, self.index = attempt, index

    def index_of(self, attempt: int) -> int:
        """How many frames of an attempt are stored, or about to be: the index of its next one."""
        return self.index if attempt == self.attempt else 0

    def trim(self, below: int) -> None:
        """Drop the chunks that end at or before frame `below`."""
        marks = self._marks
        while marks and marks[0][0] <= below:
            self.bytes -= marks.popleft()[1]
        self.first_seq = below
        self.host.engine.batch.trim(Trim(self.namespace, self.owner, below))

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
            if self.followers:
                self._keep(row)
        for follower in tuple(self.followers.values()):
            self._feed(follower)

    def follow(self, peer: Outlet, req: int, since: int, credit: int, room: int, *, on: bool = True) -> None:
        """Open a stream from frame `since` on; without `on` it ends with what is stored now."""
        since = max(since, 0)
        if since < self.first_seq or since > self.committed:
            first = max(self.first_seq, min(since, self.committed))
            self.host.engine.emit(peer, StreamGap(req, first))
            return
        follower = Follower(peer, req, since, credit, room, None if on else self.committed)
        self.followers[id(peer), req] = follower
        self._feed(follower)

    def credit(self, peer: Outlet, req: int, frames: int, size: int) -> None:
        """A follower has consumed `frames`, of `size` bytes."""
        follower = self.followers.get((id(peer), req))
        if follower is not None:
            follower.credit += frames
            follower.room += size
            self._feed(follower)

    def drop(self, peer: Outlet, req: int) -> None:
        """A follower has gone; with the last one goes what was kept for them in memory."""
        self.followers.pop((id(peer), req), None)
        if not self.followers:
            self.tail.clear()
            self.tail_bytes = 0

    def _feed(self, follower: Follower) -> None:
        while follower.ready and follower.cursor < self.committed:
            if not self.tail or follower.cursor < self.tail[0].seq:
                self._read(follower)
                return
            for row in self._rest(follower.cursor):
                self._show(follower, row)
                if not follower.ready:
                    return
        until = follower.until if follower.until is not None else self.committed if self.ended else None
        if until is not None and follower.cursor >= until and not follower.reading:
            self.drop(follower.peer, follower.req)
            self.host.engine.send(follower.peer, StreamEnd(follower.req, self.committed, self.end))

    def _rest(self, cursor: int) -> list[ChunkRow]:
        """The chunks of the tail from a frame on; looked for from the end, where most readers are."""
        rest: list[ChunkRow] = []
        for row in reversed(self.tail):
            if row.seq + row.count <= cursor:
                break
            rest.append(row)
        rest.reverse()
        return rest

    def _show(self, follower: Follower, row: ChunkRow) -> None:
        fresh = row.seq + row.count - follower.cursor
        follower.cursor += fresh
        follower.credit -= fresh
        follower.room -= len(row.data)
        self.host.engine.send(follower.peer, Chunk(follower.req, row.seq, row.count, row.attempt, row.data))

    def _read(self, follower: Follower) -> None:
        follower.reading = True
        frames, size = min(follower.credit, _READ_FRAMES), min(follower.room, _READ_BYTES)
        query = GetChunks(self.namespace, self.owner, follower.cursor, frames, size)
        self.host.engine.read(self.host, query, lambda rows: self._shown(follower, rows))

    def _shown(self, follower: Follower, rows: list[ChunkRow] | BaseException) -> None:
        follower.reading = False
        key = (id(follower.peer), follower.req)
        if self.followers.get(key) is not follower:
            return
        if isinstance(rows, BaseException):
            self.drop(follower.peer, follower.req)
            error = store_failed(rows)
            self.host.engine.send(follower.peer, Refusal(follower.req, "StoreFailed", str(error)))
            return
        if not rows or rows[0].seq > follower.cursor:  # trimmed while it lagged
            self.drop(follower.peer, follower.req)
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

    def _shrink(self) -> None:
        excess, below = self.bytes - self.limit, 0
        for end, size in self._marks:
            if excess <= 0 or end == self.next_seq:
                break
            excess, below = excess - size, end
        if below:
            self.trim(below)

    def _measure(self, since: int, until: int, marks: list[tuple[int, int]]) -> None:
        """Learn how large the chunks are that are stored already, some thousands at a time."""

        def measured(found: list[tuple[int, int]] | BaseException) -> None:
            if isinstance(found, BaseException):
                self._measured = False
                return
            marks.extend(found)
            if found and found[-1][0] < until:
                self._measure(found[-1][0], until, marks)
                return
            kept = [mark for mark in marks if mark[0] > self.first_seq]
            self._marks.extendleft(reversed(kept))
            self.bytes += sum(size for _, size in kept)
            self._shrink()

        query = GetMarks(self.namespace, self.owner, since, until, self.limit // _MARKS)
        self.host.engine.read(self.host, query, measured)


class Streams:
    """The open streams of one actor's journals, by who reads them; runs in the actor's turns."""

    def __init__(self, host: Actor) -> None:
        self.open: dict[tuple[int, int], Journal] = {}
        host.handlers |= {Credit: self.credit, Stored: self.stored}

    def follow(self, journal: Journal, message: Follow | FollowLogs | FollowTopic, peer: Outlet) -> None:
        """A peer opens a stream."""
        self.open[id(peer), message.req] = journal
        on = type(message) is not FollowLogs or message.follow
        journal.follow(peer, message.req, message.since, message.credit, message.room, on=on)

    def credit(self, message: Credit, peer: Outlet) -> None:
        """It has read some."""
        journal = self.open.get((id(peer), message.req))
        if journal is not None:
            journal.credit(peer, message.req, message.frames, message.size)

    def drop(self, message: Drop, peer: Outlet) -> Journal | None:
        """It has enough; the journal that it read, if it had such a stream."""
        journal = self.open.pop((id(peer), message.req), None)
        if journal is not None:
            journal.drop(peer, message.req)
        return journal

    def stored(self, message: Stored, sender: object) -> None:
        """A chunk or an end is on disk."""
        message.journal.stored(message.row)
