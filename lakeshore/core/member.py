"""A worker as the head sees it: its credit, which has this one owner, and its grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .actor import Actor
from .bodies import PICKLES
from .engine import Engine
from .leases import Leases
from .messages import (
    Anew,
    Began,
    Bye,
    Dismiss,
    Drain,
    Ended,
    Frames,
    GaveBack,
    Hello,
    Kept,
    Logged,
    PleaseDrain,
    Progressed,
    Publish,
    Quiet,
    Reclaim,
    Serving,
    Stop,
)
from .notes import (
    Bound,
    Farewell,
    Gone,
    Late,
    Offer,
    Ready,
    Removal,
    Returned,
    Revoked,
    Settled,
    Take,
    Took,
    Unbound,
    Unpinned,
)
from .ports import Outlet
from .presence import Presence
from .rows import WorkerRow

if TYPE_CHECKING:
    from .queue import Queue
    from .space import Space

_LEFT = "its worker left before it had it"
SHORT_BODY, MEASURED_BODIES = 0.010, 8  # below which, and after how many, a worker may run ahead


class Member(Actor):
    """Takes work for one worker, round robin from the queues that are ready.

    Args:
        hello: what the worker said of itself.
        wire: where messages to the worker go; None for one of an earlier process of the head, that
            has to come back.
        leases: the clock of those in other processes.
    """

    def __init__(
        self, engine: Engine, space: Space, hello: Hello, wire: Outlet | None, leases: Leases
    ) -> None:
        super().__init__(engine)
        self.space, self.hello = space, hello
        self.queues: dict[Queue, None] = {}
        self.grants: dict[bytes, tuple[Queue, int]] = {}
        self._known: dict[bytes, None] = {}  # hashes of pickled bodies it was sent, newest last
        self._lacked: set[bytes] = set()  # of those, what did not arrive
        self.draining = self.gone = self.away = False
        self.dismissal = ""  # why an operator has removed it
        self.owner: bytes | None = None  # the token that its worker came in with, where one is known
        self.commands: tuple[dict[str, Any], ...] = ()  # that operators had run where it is
        self.started, self.heard = engine.wall(), engine.monotonic()
        self.stale = 0
        self._ready: dict[Queue, None] = {}
        self._retrying: set[Queue] = set()
        self._asking: Queue | None = None
        self._settling: set[bytes] = set()
        self._pending: set[bytes] = set()  # grants whose arguments are still being read
        self._following: bytes | None = None
        self._following_in: Queue | None = None
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
            Logged: self._on_report,
            Progressed: self._on_report,
            Began: self._on_report,
            Publish: self._on_report,
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
            PleaseDrain: self._on_please_drain,
            Removal: self._on_removal,
            Farewell: self._on_farewell,
        }
        self.presence: Presence | None = None
        self.wire: Outlet
        if hello.leased or wire is None:
            self.presence = Presence(self, leases, wire)
            self.wire = self.presence.line
        else:
            self.wire = wire
        engine.touch(self)

    def flush(self) -> None:
        """Store what is known of the worker: when it came, and when it went."""
        if self.gone and self.space.members.get(self.hello.worker, self) is not self:
            return  # its successor has been stored
        info = self.info() | {"commands": list(self.commands)}
        if self.presence is not None and not self.hello.near:  # a near one dies with its head
            info |= {"leased": True, "followAll": self.hello.follow_all}
        ended = self.engine.wall() if self.gone else None
        self.engine.batch.put(WorkerRow(self.space.name, self.hello.worker, info, ended))

    def info(self) -> dict[str, Any]:
        """The worker's row as plain data."""
        hello, engine = self.hello, self.engine
        return {
            "name": hello.name,
            "host": hello.host,
            "pid": hello.pid,
            "queues": [queue.name for queue in self.queues] if hello.follow_all else list(hello.queues),
            "slots": hello.slots,
            "busy": min(len(self.grants), hello.slots),  # what it was granted ahead waits there
            "state": self.state,
            "startedAt": self.started,
            "lastSeenAt": round(engine.wall() - max(engine.monotonic() - self.heard, 0.0), 1),
            "labels": hello.labels,
            "versions": hello.versions,
            "provider": hello.provider,
            "daemon": hello.daemon,
        }

    @property
    def state(self) -> str:
        """ready, draining, away (it has no connection just now) or ended."""
        if self.gone:
            return "ended"
        return "away" if self.away else "draining" if self.draining else "ready"

    @property
    def credit(self) -> int:
        """How many more it may be granted now."""
        if self.draining or self.away or self.gone:
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

    def forget_bodies(self) -> None:
        """None is known to have arrived."""
        self._known.clear()
        self._lacked.clear()

    def lacks(self, hash: bytes) -> bool:
        """A pickled body did not arrive: whether it is worth sending again."""
        self.forgets(hash)
        again = hash not in self._lacked
        self._lacked.add(hash)
        return again

    def adopt(self, queue: Queue, id: bytes, attempt: int) -> None:
        """It was granted this by an earlier process of the head, and may have it still."""
        self.grants[id] = (queue, attempt)
        if self.presence is not None:
            self.presence.line.assume_sent(id, attempt)

    def take_back(self, id: bytes) -> None:
        """A grant that its worker has not begun is none any more."""
        del self.grants[id]
        self._pending.discard(id)
        self._taken -= 1

    def take_back_unsent(self) -> None:
        """What has not left for its worker yet is another's."""
        for id, (queue, attempt) in list(self.grants.items()):
            if not self._has_it(id, attempt):
                self.take_back(id)
                self.engine.tell(queue, Returned(id, attempt, _LEFT), self)

    def count_taken(self) -> None:
        """Of its limit it has used what it holds."""
        self._taken = len(self.grants)

    def go_on(self) -> None:
        """It may have room, or nothing left to do."""
        if self._following is not None and self._following_in is not None:
            self.engine.tell(self._following_in, Take(1, self._following), self)
        self._fill()
        self._maybe_quiet()

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
        if self.gone or self.away:  # it left while this was in the mail
            taken = (*message.pending, *((grant.id, grant.attempt) for grant in message.grants))
            for id, attempt in taken:
                self.engine.tell(queue, Returned(id, attempt, _LEFT), self)
            if message.only is None:
                self._asking = None
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
        self.heard = self.engine.now
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

    def _on_report(self, message: Frames | Logged | Progressed | Began | Publish | Kept, sender: Any) -> None:
        self.heard = self.engine.now
        held = self.grants.get(message.id)
        if held is None or held[1] != message.attempt:
            self._refuse(message.id, message.attempt)
        else:
            self.engine.tell(held[0], message, self)

    def _on_gave_back(self, message: GaveBack, sender: Any) -> None:
        self.heard = self.engine.now
        held = self.grants.get(message.id)
        if held is None or held[1] != message.attempt:
            self._refuse(message.id, message.attempt)
            return
        if message.begun:
            del self.grants[message.id]
        else:
            self.take_back(message.id)
            self._bodies, self._mean = 0, 0.0  # it ran ahead of long bodies: measure anew
        self.engine.tell(held[0], message, self)
        self._fill()

    def _refuse(self, id: bytes, attempt: int) -> None:
        self.stale += 1
        self.engine.emit(self.wire, Stop(id, attempt, "stale"))

    def _on_settled(self, message: Settled, queue: Queue) -> None:
        self._settling.discard(message.id)
        if message.following and self.hello.limit is not None:
            self._following, self._following_in = message.id, queue
        elif message.following and queue in self.queues:
            self._ready[queue] = None  # ask it again: what it said of retries is out of date
            self._fill()
        self._maybe_quiet()

    def _on_offer(self, message: Offer, queue: Queue) -> None:
        if self._following != message.id or self.draining or self.gone or self.away:
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
        if self.presence is not None:
            self.engine.emit(self.wire, Serving(rest))
        self._ready.pop(message.queue, None)
        self._retrying.discard(message.queue)
        self._only_fifo = all(queue.settings.kind == "fifo" for queue in self.queues)
        self._maybe_quiet()

    def _on_stop(self, message: Stop | Reclaim, queue: Queue) -> None:
        held = self.grants.get(message.id)
        if held is None or held[1] != message.attempt:
            return
        if self._has_it(message.id, message.attempt):
            self.engine.emit(self.wire, message)
            return
        self.take_back(message.id)  # there is nothing to stop
        self.engine.tell(queue, Returned(message.id, message.attempt, "killed before it began"), self)
        self.go_on()

    def _has_it(self, id: bytes, attempt: int) -> bool:
        """Whether the worker may have seen a grant, or will before anything else that is told now."""
        if id in self._pending:
            return False
        return self.presence is None or self.presence.line.has_sent(id, attempt)

    def _on_please_drain(self, message: PleaseDrain, sender: Any) -> None:
        """An operator, or whoever launched it, wants it to end when it is done."""
        self.draining = True
        self._following = None
        self.engine.touch(self)
        self.engine.emit(self.wire, message)

    def _on_removal(self, message: Removal, sender: Any) -> None:
        if self.gone or self.dismissal:
            return
        self.draining, self.dismissal = True, message.reason
        for id, (queue, attempt) in self.grants.items():
            self.engine.tell(queue, Revoked(id, attempt, message.reason), self)
        self.grants.clear()
        self._pending.clear()
        self.engine.tell(self, Farewell(message.reason))

    def _on_farewell(self, message: Farewell, sender: Any) -> None:
        """What it ran is killed; it is told with the commit that says so."""
        self.engine.emit(self.wire, Dismiss(message.reason))
        self.leave(message.reason, lost=False)

    def _on_drain(self, message: Drain, sender: Any) -> None:
        self.heard = self.engine.now
        self.draining = True
        self._following = None
        self.engine.touch(self)

    def _on_bye(self, message: Bye, sender: Any) -> None:
        self.heard = self.engine.now
        self.leave("the worker ended", lost=False)

    def _on_gone(self, message: Gone, sender: Any) -> None:
        self.leave("the worker's connection broke", lost=True)

    def leave(self, reason: str, *, lost: bool) -> None:
        """It is gone, and what it was granted goes back. One `lost` may have begun as many bodies as it
        has slots; no more are charged to it."""
        if self.gone:
            return
        self.gone = True
        room = self.hello.slots if lost else 0
        for id, (queue, attempt) in self.grants.items():
            charged = room > 0 and self._has_it(id, attempt)
            room -= charged
            self.engine.tell(queue, Returned(id, attempt, reason, charged), self)
        self.grants.clear()
        self._pending.clear()
        self.engine.touch(self)
        if lost and self.presence is not None:
            self.engine.emit(self.wire, Anew(reason))
        self.engine.tell(self.space, Gone(), self)
