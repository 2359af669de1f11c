"""Whether a commit may follow from what has happened.

Written from the promises, not from the actors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakeshore.core.ids import text_of
from lakeshore.core.rows import Batch, ChunkRow, Committed, InvocationRow, QueueRow
from lakeshore.core.values import unpack_frames

from .facts import NEVER, SLACK, TERMINAL, Broken, name_of
from .lives import Lives
from .truth import Hand


class Model(Lives):
    """The truth, and the disk beside it: looks at each commit before that is on the disk."""

    # what is stored

    def storing(self, batch: Batch, committed: Committed) -> None:
        """A commit is about to be on the disk: may it be?"""
        lost = set(committed.lost)
        rows = [row for key, row in (*batch.inserts.items(), *batch.updates.items()) if key not in lost]
        for row in rows:
            old = self.disk.rows.get(row.id)
            self.check_row(old, row)
        self._check_keys(batch, rows)
        claims = [row for row in rows if row.record.attempt > self.attempt_of(row.id)]
        before = {id: (row.state, self.admission(id)) for id, row in self.disk.queues.items()}
        if claims:
            self._check_order(claims, {row.id for row in rows})
        for chunk in batch.chunks:
            self._check_chunk(chunk, batch)
        for row in rows:
            if row.state == "succeeded":
                self._check_all_frames(row, batch)
        stored = {row.id: row for row in rows}
        for pruned in committed.pruned:
            for id in pruned.ids:
                self._check_pruned(stored.get(id) or self.disk.rows.get(id), id)
        for row in claims:
            self.claimed.setdefault((row.id, row.record.attempt), self.now())
        running = {id: len(rows) for id, rows in self.disk.running.items()}
        fresh = [row for row in rows if row.id not in self.disk.rows]
        removed = set(self.disk.removed)
        for queue in batch.queues.values():
            limit = self.admission(queue.id).get("max_depth") or NEVER
            self.loosest[queue.id] = max(limit, self.loosest.get(queue.id, 0.0))
        self.disk.apply(batch, committed)
        for queue in batch.queues.values():
            if queue.removed:
                self.queue_removed(queue.name)
        self._check_queues(rows, fresh, claims, before, running, removed)
        for row in fresh:
            self.stored_at.setdefault(row.id, self.now())

    # keys

    def _check_keys(self, batch: Batch, rows: list[InvocationRow]) -> None:
        for row in rows:
            key = (row.queue, row.call.key)
            if not row.call.key or row.id in self.disk.rows:
                continue
            stored = batch.keys.get((row.namespace, *key))
            if stored is None or stored.id not in {r.id for r in rows if (r.queue, r.call.key) == key}:
                raise Broken("a key is stored with its invocation", name_of(row))
            holder = self.disk.keys.get(key)
            if holder is not None and row.call.retry_of is None:
                raise Broken(
                    "one key, one invocation", f"{row.call.key!r}: {text_of(holder[0])} and {name_of(row)}"
                )
            if holder is not None and self.disk.rows[holder[0]].state not in TERMINAL:
                raise Broken("one key, one invocation", f"{row.call.key!r} was taken from one that lives")
        fresh = [(r.queue, r.call.key) for r in rows if r.call.key and r.id not in self.disk.rows]
        firsts = [r for r in rows if r.call.key and r.id not in self.disk.rows and r.call.retry_of is None]
        if len({(r.queue, r.call.key) for r in firsts}) != len(firsts):
            raise Broken("one key, one invocation", f"two in one commit: {fresh}")

    # queues

    def _check_order(self, claims: list[InvocationRow], changed: set[bytes]) -> None:
        for row in claims:
            queue = self.disk.queues.get(row.queue)
            rank = None if queue is None else _rank(queue)
            hand = self.hands[row.record.attempts[-1].worker]
            following = hand.hello.limit is not None and row.record.attempt > 1
            if rank is None or following:  # a worker for one invocation sees that through to its end
                continue
            for other in self.disk.queued[row.queue].values():
                if rank(other) < rank(row) and other.id not in changed and self._could_go(other, hand):
                    raise Broken("the order of a queue", f"{name_of(row)} before {name_of(other)}")

    def _could_go(self, row: InvocationRow, hand: Hand) -> bool:
        """Whether a queued invocation could have been given to a worker all the time since the commit
        before."""
        ready = row.record.ready_at
        return row.call.options.function.name not in hand.unknown and (
            ready is None or self.latest(ready) < self.flushed_before
        )

    def _check_queues(
        self,
        rows: list[InvocationRow],
        fresh: list[InvocationRow],
        claims: list[InvocationRow],
        before: dict[bytes, tuple[str, dict[str, Any]]],
        running: dict[bytes, int],
        removed: set[bytes],
    ) -> None:
        for id in {row.queue for row in rows}:
            queue = self.disk.queues.get(id)
            if queue is None:
                if id in removed and any(row.queue == id for row in (*fresh, *claims)):
                    raise Broken("a removed queue takes and gives nothing", text_of(id))
                continue
            state, rule = before.get(id, ("active", {}))
            same = state == queue.state and queue.name not in self.shifted
            if same and state in ("draining", "archived") and any(row.queue == id for row in fresh):
                raise Broken("a draining or archived queue admits nothing", queue.name)
            if same and state in ("paused", "archived") and any(row.queue == id for row in claims):
                raise Broken("a paused or archived queue hands out nothing", queue.name)
            now = self.admission(id)
            limit = max(rule.get("max_running") or NEVER, now.get("max_running") or NEVER)
            count = len(self.disk.running[id])
            if count > limit and count > running.get(id, 0):
                raise Broken("max_running", f"{queue.name}: {count} run, {limit} may")
            limit = max(rule.get("max_depth") or NEVER, now.get("max_depth") or NEVER)
            limit = self.loosest[id] = max(limit, self.loosest.get(id, 0.0))
            if limit < NEVER:
                count = self._depth(id)
                if count > limit and count > self.depth_before[id]:
                    raise Broken("max_depth", f"{queue.name}: {count} are queued, {limit} may be")
                self.depth_before[id] = count
            else:
                self.depth_before[id] = self._depth(id)

    def _depth(self, queue: bytes) -> int:
        """How many submits are queued; what came back, or was asked for again, is never refused."""
        return sum(
            not row.record.attempt and row.call.retry_of is None for row in self.disk.queued[queue].values()
        )

    # journals

    def _check_chunk(self, chunk: ChunkRow, batch: Batch) -> None:
        row, frames = self.disk.rows.get(chunk.owner), self.disk.frames[chunk.owner]
        mine = [c for c in batch.chunks if c.owner == chunk.owner and c.seq < chunk.seq]
        at = mine[-1].seq + mine[-1].count if mine else frames.next
        what = f"frame {chunk.seq} of {text_of(chunk.owner)}"
        if chunk.seq != at:
            raise Broken("frames are consecutive", f"{what} comes where {at} was due")
        if chunk.owner in self.disk.topics or any(t.id == chunk.owner for t in batch.topics.values()):
            topic = self.disk.topics.get(chunk.owner)
            if topic is not None and topic.closed:
                raise Broken("nothing follows an end", what)
            self._check_posts(chunk)
            return
        if row is not None and row.state in TERMINAL:
            raise Broken("nothing follows an end", what)
        index = frames.attempts[chunk.attempt] + sum(c.count for c in mine if c.attempt == chunk.attempt)
        values = self.yielded[chunk.owner, chunk.attempt][index : index + chunk.count]
        if values != unpack_frames(chunk.data)[1]:
            raise Broken(
                "frames are what the body gave, each once", f"{what}: {unpack_frames(chunk.data)[1]}"
            )

    def _check_posts(self, chunk: ChunkRow) -> None:
        """Whatever is posted in a simulation is posted once."""
        posts = self.posted[chunk.owner]
        for value in unpack_frames(chunk.data)[1]:
            if value in posts:
                raise Broken("a post is stored once", f"{value} of {text_of(chunk.owner)}")
            posts.add(value)

    def _check_all_frames(self, row: InvocationRow, batch: Batch) -> None:
        attempt = row.record.attempt
        stored = self.disk.frames[row.id].attempts[attempt] if row.id in self.disk.frames else 0
        stored += sum(c.count for c in batch.chunks if c.owner == row.id and c.attempt == attempt)
        if stored != len(self.yielded.get((row.id, attempt), ())):
            raise Broken("every frame comes before the end", f"{name_of(row)} has {stored} of its frames")

    # retention

    def _check_pruned(self, row: InvocationRow | None, id: bytes) -> None:
        if row is None or row.state not in TERMINAL or row.record.ended_at is None:
            raise Broken("only what has ended is pruned", text_of(id))
        kept = self.now() + max(self.offsets) - row.record.ended_at
        if kept < min(self.keeps(row), *self._by_hand(), NEVER) - SLACK:
            raise Broken("nothing is pruned before its retention", name_of(row))

    def _by_hand(self) -> list[float]:
        return [NEVER] + [seconds for seconds in self.prune_by_hand if seconds is not None]


def _rank(queue: QueueRow) -> Callable[[InvocationRow], Any] | None:
    """What orders a queue; None for one that draws."""
    kind = str(queue.settings["kind"])
    if kind == "boltzmann" and not queue.settings["temperature"]:
        kind = "priority"
    return _RANKS.get(kind)


_RANKS: dict[str, Callable[[InvocationRow], Any]] = {
    "fifo": lambda row: row.place,
    "filo": lambda row: -row.place,
    "priority": lambda row: (-row.record.priority, row.place),
}
