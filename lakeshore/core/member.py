"""A worker as the head sees it: its credit, which has this one owner, and its grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .actor import Actor
from .bodies import PICKLES
from .engine import Engine
from .messages import (
    Began,
    Bye,
    Drain,
    Ended,
    Frames,
    GaveBack,
    Hello,
    Kept,
    Quiet,
    Reclaim,
    Stop,
)
from .notes import Bound, Gone, Late, Offer, Ready, Returned, Settled, Take, Took, Unbound, Unpinned
from .ports import Outlet
from .rows import WorkerRow

if TYPE_CHECKING:
    from .queue import Queue
    from .space import Space

SHORT_BODY, MEASURED_BODIES = 0.010, 8  # below which, and after how many, a worker may run ahead


class Member(Actor):
    """Takes work for one worker, round robin from the queues that are ready.

    Args:
        hello: what the worker said of itself.
        wire: where messages to the worker go.
    """

    def __init__(self, engine: Engine, space: Space, hello: Hello, wire: Outlet) -> None:
        super().__init__(engine)
        self.space, self.hello, self.wire = space, hello, wire
        self.queues: dict[Queue, None] = {}
        self.grants: dict[bytes, tuple[Queue, int]] = {}
        self._known: dict[bytes, None] = {}  # hashes of pickled bodies it was sent, newest last
        self.draining = self.gone = False
        self.started = self.seen = engine.wall()
        self.stale = 0
        self._ready: dict[Queue, None] = {}
        self._retrying: set[Queue] = set()
        self._asking: Queue | None = None
        self._settling: set[bytes] = set()
        self._pending: set[bytes] = set()  # grants whose arguments are still being read
        self._following: bytes | None = None
        self._taken = 0
        self._bodies = 0
        self._mean = 0.0
        self._only_fifo = True
        self._stored = False
        self.handlers |= {
            Ready: self._on_ready,
            Took: self._on_took,
            Late: self._on_late,
            Ended: self._on_ended,
            Frames: self._on_report,
            Began: self._on_report,
            Kept: self._on_report,
            GaveBack: self._on_gave_back,
            Settled: self._on_settled,
            Offer: self._on_offer,
            Unpinned: self._on_unpinned,
            Bound: self._on_bound,
            Unbound: self._on_unbound,
            Drain: self._on_drain,
            Bye: self._on_bye,
            Gone: self._on_gone,
            Stop: self._on_stop,
            Reclaim: self._on_stop,
        }
        engine.touch(self)

    def flush(self) -> None:
        """Store what is known of the worker: when it came, and when it went."""
        self.engine.batch.put(
            WorkerRow(
                self.space.name,
                self.hello.worker,
                self.info(),
                self.engine.wall() if self.gone else None,
            )
        )

    def info(self) -> dict[str, Any]:
        """The worker's row as plain data."""
        hello = self.hello
        return {
            "name": hello.name,
            "host": hello.host,
            "pid": hello.pid,
            "queues": [queue.name for queue in self.queues] if hello.follow_all else list(hello.queues),
            "slots": hello.slots,
            "busy": min(len(self.grants), hello.slots),  # what it was granted ahead waits there
            "state": "ended" if self.gone else "draining" if self.draining else "ready",
            "startedAt": self.started,
            "lastSeenAt": self.seen,
            "labels": hello.labels,
            "versions": hello.versions,
        }

    @property
    def credit(self) -> int:
        """How many more it may be granted now."""
        if self.draining or self.gone:
            return 0
        hello = self.hello
        if hello.limit is not None:
            return min(hello.slots - len(self.grants), hello.limit - self._taken)
        room = hello.slots
        if self._bodies >= MEASURED_BODIES and self._mean < SHORT_BODY and self._only_fifo:
            room = max(16, 4 * room)
        return room - len(self.grants)

    def knows(self, hash: bytes) -> bool:
        """Whether the worker has a pickled body still."""
        if hash not in self._known:
            return False
        self.learns(hash)
        return True

    def learns(self, hash: bytes) -> None:
        """It is sent a pickled body, or uses one that it has."""
        self._known.pop(hash, None)
        self._known[hash] = None
        if len(self._known) > PICKLES:
            del self._known[next(iter(self._known))]

    def forgets(self, hash: bytes) -> None:
        """A grant that would have brought a pickled body was not sent."""
        self._known.pop(hash, None)

    def _fill(self) -> None:
        if self._asking is not None or not self._ready:
            return
        credit = self.credit
        if credit > 0:
            queue = next(iter(self._ready))
            self._asking = queue
            share = credit if len(self._ready) == 1 else -(-credit // len(self._ready))
            self.engine.tell(queue, Take(share), self)

    def _on_ready(self, message: Ready, queue: Queue) -> None:
        if queue not in self.queues:
            return
        self._ready[queue] = None
        self._fill()
        if self._asking is not queue:  # the queue may call another meanwhile
            self.engine.tell(queue, Take(0), self)

    def _on_took(self, message: Took, queue: Queue) -> None:
        if self.gone:  # it left while this was in the mail
            taken = (*message.pending, *((grant.id, grant.attempt) for grant in message.grants))
            for id, attempt in taken:
                self.engine.tell(queue, Returned(id, attempt, "its worker left before it had it"), self)
            return
        if message.only is None:
            self._asking = None
            self._ready.pop(queue, None)
            count = len(message.grants) + len(message.pending)
            self._taken += count
            if count == message.asked and queue in self.queues:
                self._ready[queue] = None  # to the end: the others come first
            (self._retrying.add if message.retrying else self._retrying.discard)(queue)
        else:
            self._following = None
        for grant in message.grants:
            self.grants[grant.id] = (queue, grant.attempt)
            self.engine.emit(self.wire, grant)
        for id, attempt in message.pending:
            self.grants[id] = (queue, attempt)
            self._pending.add(id)
        self._fill()
        self._maybe_quiet()

    def _on_late(self, message: Late, queue: Queue) -> None:
        self._pending.discard(message.id)
        if message.id not in self.grants:
            if message.grant is not None:  # it is not sent, nor is what it brings along
                self.forgets(message.grant.call.options.function.value)
            return
        if message.grant is None:
            del self.grants[message.id]
            self._fill()
            self._maybe_quiet()
        else:
            self.engine.emit(self.wire, message.grant)

    def _on_ended(self, message: Ended, sender: Any) -> None:
        self.seen = self.engine.at
        held = self.grants.get(message.id)
        if held is None or held[1] != message.attempt:
            self._refuse(message.id, message.attempt)
            return
        del self.grants[message.id]
        self._bodies += 1
        self._mean += (message.seconds - self._mean) / min(self._bodies, 32)
        if self.hello.quiet:
            self._settling.add(message.id)
        self.engine.tell(held[0], message, self)
        if self._ready:
            self._fill()

    def _on_report(self, message: Frames | Began | Kept, sender: Any) -> None:
        self.seen = self.engine.at
        held = self.grants.get(message.id)
        if held is None or held[1] != message.attempt:
            self._refuse(message.id, message.attempt)
        else:
            self.engine.tell(held[0], message, self)

    def _on_gave_back(self, message: GaveBack, sender: Any) -> None:
        self.seen = self.engine.at
        held = self.grants.get(message.id)
        if held is None or held[1] != message.attempt:
            self._refuse(message.id, message.attempt)
            return
        del self.grants[message.id]
        if not message.begun:
            self._taken -= 1
            self._bodies, self._mean = 0, 0.0  # it ran ahead of long bodies: measure anew
        self.engine.tell(held[0], message, self)
        self._fill()

    def _refuse(self, id: bytes, attempt: int) -> None:
        self.stale += 1
        self.engine.emit(self.wire, Stop(id, attempt, "stale"))

    def _on_settled(self, message: Settled, queue: Queue) -> None:
        self._settling.discard(message.id)
        if message.following and self.hello.limit is not None:
            self._following = message.id
        elif message.following and queue in self.queues:
            self._ready[queue] = None  # ask it again: what it said of retries is out of date
            self._fill()
        self._maybe_quiet()

    def _on_offer(self, message: Offer, queue: Queue) -> None:
        if self._following != message.id or self.draining or self.gone:
            return
        self.engine.tell(queue, Take(1, message.id), self)

    def _on_unpinned(self, message: Unpinned, queue: Queue) -> None:
        if self._following == message.id:
            self._following = None
            self._maybe_quiet()

    def _maybe_quiet(self) -> None:
        if not self.hello.quiet or self.grants or self._asking or self._settling or self._following:
            return
        spent = self.hello.limit is not None and self._taken >= self.hello.limit
        waiting = self._retrying and self.hello.limit is None
        if spent or not (self._ready or waiting):
            self.engine.emit(self.wire, Quiet())

    def _on_bound(self, message: Bound, sender: Any) -> None:
        self.queues[message.queue] = None
        self._ready[message.queue] = None
        self._only_fifo = all(queue.settings.kind == "fifo" for queue in self.queues)
        self._fill()

    def _on_unbound(self, message: Unbound, sender: Any) -> None:
        self.queues.pop(message.queue, None)
        rest = tuple(name for name in self.hello.queues if name != message.queue.name)
        self.hello = msgspec.structs.replace(self.hello, queues=rest)
        self.engine.touch(self)
        self._ready.pop(message.queue, None)
        self._retrying.discard(message.queue)
        self._only_fifo = all(queue.settings.kind == "fifo" for queue in self.queues)
        self._maybe_quiet()

    def _on_stop(self, message: Stop | Reclaim, queue: Queue) -> None:
        held = self.grants.get(message.id)
        if held is None or held[1] != message.attempt:
            return
        if message.id not in self._pending:
            self.engine.emit(self.wire, message)
            return
        self._pending.discard(message.id)  # the worker has not seen it: there is nothing to stop
        del self.grants[message.id]
        self._taken -= 1
        self.engine.tell(queue, Returned(message.id, message.attempt, "killed before it began"), self)
        self._fill()
        self._maybe_quiet()

    def _on_drain(self, message: Drain, sender: Any) -> None:
        self.seen = self.engine.at
        self.draining = True
        self._following = None
        self.engine.touch(self)

    def _on_bye(self, message: Bye, sender: Any) -> None:
        self.seen = self.engine.at
        self._leave("the worker ended", lost=False)

    def _on_gone(self, message: Gone, sender: Any) -> None:
        self._leave("the worker's connection broke", lost=True)

    def _leave(self, reason: str, *, lost: bool) -> None:
        if self.gone:
            return
        self.gone = True
        for number, (id, (queue, attempt)) in enumerate(self.grants.items()):
            charged = lost and number < self.hello.slots
            self.engine.tell(queue, Returned(id, attempt, reason, charged), self)
        self.grants.clear()
        self._pending.clear()
        self.engine.touch(self)
        self.engine.tell(self.space, Gone(), self)
