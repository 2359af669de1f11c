"""What is on a simulated disk, in the simplest form: kept apart from every store, fed by its commits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from lakeshore.core.rows import Batch, ChunkRow, Committed, InvocationRow, QueueRow, TopicRow
from lakeshore.core.values import unpack_frames

from .facts import TERMINAL


class Frames:
    """The journal of one owner: chunks by their first number."""

    __slots__ = ("attempts", "chunks", "first", "next")

    def __init__(self) -> None:
        self.chunks: dict[int, ChunkRow] = {}
        self.first = self.next = 0
        self.attempts: defaultdict[int, int] = defaultdict(int)  # how many frames of each

    def add(self, chunk: ChunkRow) -> None:
        """One more chunk is stored."""
        self.chunks[chunk.seq] = chunk
        self.next = chunk.seq + chunk.count
        self.attempts[chunk.attempt] += chunk.count

    def trim(self, below: int) -> None:
        """Chunks that end at or before a number go."""
        gone = [seq for seq, chunk in self.chunks.items() if seq + chunk.count <= below]
        for seq in gone:
            del self.chunks[seq]
        self.first = min(self.chunks, default=self.next)


class Disk:
    """Everything that was committed."""

    def __init__(self) -> None:
        self.rows: dict[bytes, InvocationRow] = {}
        self.live: dict[bytes, None] = {}
        self.frames: defaultdict[bytes, Frames] = defaultdict(Frames)
        self.queues: dict[bytes, QueueRow] = {}
        self.names: dict[str, bytes] = {}
        self.topics: dict[bytes, TopicRow] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.keys: dict[tuple[bytes, str], tuple[bytes, bytes]] = {}  # by queue: id and digest
        self.queued: defaultdict[bytes, dict[bytes, InvocationRow]] = defaultdict(dict)  # by queue
        self.running: defaultdict[bytes, dict[bytes, InvocationRow]] = defaultdict(dict)
        self.removed: set[bytes] = set()  # queues
        self.newest_pruned = b""
        self.commits = 0

    def apply(self, batch: Batch, committed: Committed) -> None:
        """One more commit."""
        self.commits += 1
        lost = set(committed.lost)
        for key, row in (*batch.inserts.items(), *batch.updates.items()):
            if key not in lost:
                self._put(row)
        for key_row in batch.keys.values():
            if (key_row.namespace, key_row.id) not in lost:
                self.keys[key_row.queue, key_row.key] = (key_row.id, key_row.digest)
        for chunk in batch.chunks:
            self.frames[chunk.owner].add(chunk)
        for trim in batch.trims:
            self.frames[trim.owner].trim(trim.below)
        for queue in batch.queues.values():
            self._put_queue(queue)
        for topic in batch.topics.values():
            self._put_topic(topic)
        for pruned in committed.pruned:
            self._prune(pruned.ids)

    def value(self, owner: bytes, seq: int) -> Any:
        """What a frame holds."""
        for chunk in self.frames[owner].chunks.values():
            if chunk.seq <= seq < chunk.seq + chunk.count:
                return unpack_frames(chunk.data)[1][seq - chunk.seq]
        return None

    def _put(self, row: InvocationRow) -> None:
        old = self.rows.get(row.id)
        if old is not None:
            self.queued[old.queue].pop(row.id, None)
            self.running[old.queue].pop(row.id, None)
        self.rows[row.id] = row
        if row.state in TERMINAL:
            self.live.pop(row.id, None)
            return
        self.live[row.id] = None
        (self.queued if row.state == "queued" else self.running)[row.queue][row.id] = row

    def _put_queue(self, row: QueueRow) -> None:
        if row.removed:
            self.removed.add(row.id)
            self.queues.pop(row.id, None)
            if self.names.get(row.name) == row.id:
                del self.names[row.name]
            for key in [key for key in self.keys if key[0] == row.id]:
                del self.keys[key]
        else:
            self.queues[row.id] = row
            self.names[row.name] = row.id

    def _put_topic(self, row: TopicRow) -> None:
        if row.removed:
            self.topics.pop(row.id, None)
            if self.topic_ids.get(row.name) == row.id:
                del self.topic_ids[row.name]
            self.frames.pop(row.id, None)
        else:
            self.topics[row.id] = row
            self.topic_ids[row.name] = row.id

    def _prune(self, ids: Iterable[bytes]) -> None:
        for id in ids:
            row = self.rows.pop(id)
            self.frames.pop(id, None)
            self.newest_pruned = max(self.newest_pruned, id)
            if row.call.key and self.keys.get((row.queue, row.call.key), (b"",))[0] == id:
                del self.keys[row.queue, row.call.key]
