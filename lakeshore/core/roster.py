"""Who works for a namespace: workers come, come back, are lost, and serve queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .engine import Engine
from .errors import BadRequest
from .ids import text_of
from .leases import Leases
from .member import Member
from .messages import Dismiss, Hello, Stop
from .notes import Attach, Bound, Dead, Dismissed, Gone, Join, Leave, Unbound
from .ports import Outlet
from .queue import Queue
from .rows import WorkerRow
from .settings import DEFAULT, QueueSettings

if TYPE_CHECKING:
    from .space import Space

_DISMISSED = 10_000  # removed workers that are remembered, should they come back


class Roster:
    """The workers of one namespace; runs in its space's turns, and where a link is read."""

    def __init__(self, engine: Engine, space: Space, lease: float) -> None:
        self.engine, self.space = engine, space
        self.leases = Leases(engine, lease)
        self.members: dict[bytes, Member] = {}
        self._dismissed: dict[bytes, str] = {}
        space.handlers |= {Gone: self.on_gone}

    def register(self, hello: Hello, wire: Outlet) -> Member | None:
        """A worker has said hello on a link; None for one that was removed, and is told so."""
        member = self.members.get(hello.worker)
        dismissed = self.dismissal(hello.worker)
        if dismissed:
            self.engine.emit(wire, Dismiss(dismissed))
            return None
        if member is not None and not member.gone:
            if member.presence is None or not hello.leased:
                raise BadRequest(f"worker {text_of(hello.worker)} is registered already")
            self.engine.tell(member, Attach(hello, wire))
            return member
        member = Member(self.engine, self.space, hello, wire, self.leases)
        for held in hello.held:  # it was lost meanwhile, and what it has is another's
            self.engine.emit(member.wire, Stop(held.id, held.attempt, "stale"))
        self._join(member)
        return member

    def dismissal(self, worker: bytes) -> str:
        """Why a worker was removed; empty where it was not."""
        member = self.members.get(worker)
        return self._dismissed.get(worker, "" if member is None else member.dismissal)

    def adopt(self, row: WorkerRow) -> Member:
        """A worker in another process, that an earlier process of the head knew: it has one lease to
        come back."""
        info = row.info
        hello = Hello(
            row.id,
            info["name"],
            info["host"],
            info["pid"],
            () if info["followAll"] else tuple(info["queues"]),
            info["followAll"],
            info["slots"],
            labels=info["labels"],
            versions=info["versions"],
            leased=True,
            provider=info.get("provider"),
            daemon=info.get("daemon", False),
        )
        member = Member(self.engine, self.space, hello, None, self.leases)
        member.started = info["startedAt"]
        member.draining = info["state"] == "draining"
        member.commands = tuple(info.get("commands", ()))
        self._join(member)
        return member

    def _join(self, member: Member) -> None:
        self.members[member.hello.worker] = member
        self._bind_all(member)
        if member.presence is not None:
            member.presence.begin()

    def _bind_all(self, member: Member) -> None:
        if member.hello.follow_all:
            for queue in list(self.space.queues.values()):
                self.bind(member, queue)
            return
        for name in member.hello.queues or (DEFAULT,):
            queue = self.space.queues.get(name)
            if queue is not None:
                self.bind(member, queue)
            elif self.space.local:
                self.space.make(name, QueueSettings())  # which binds whoever names it

    def made(self, queue: Queue) -> None:
        """A queue is new: some may have waited for it."""
        for member in self.members.values():
            if member.hello.follow_all or queue.name in member.hello.queues:
                self.bind(member, queue)

    def bind(self, member: Member, queue: Queue) -> None:
        """A worker serves a queue from now on."""
        if queue not in member.queues:
            member.queues[queue] = None
            self.engine.tell(queue, Join(member))
            self.engine.tell(member, Bound(queue))

    def unbind(self, member: Member, queue: Queue) -> None:
        """It serves it no more."""
        member.queues.pop(queue, None)
        self.engine.tell(queue, Leave(member))
        self.engine.tell(member, Unbound(queue))

    # what is heard beside a worker's own link

    def beat(self, worker: bytes) -> bool:
        """The process of a worker lives; whether it is known here."""
        member = self.members.get(worker)
        if member is None or member.gone or member.presence is None:
            return False
        member.presence.beat()
        return True

    def died(self, worker: bytes, reason: str) -> None:
        """The process of a worker has ended without a goodbye."""
        member = self.members.get(worker)
        if member is not None and member.presence is not None:
            self.engine.tell(member, Dead(reason))

    def on_gone(self, message: Gone, member: Member) -> None:
        """One has left; another process under its id may have come meanwhile."""
        worker = member.hello.worker
        if self.members.get(worker) is member:
            del self.members[worker]
        self.leases.forget(member)
        if member.dismissal:
            self._dismissed[worker] = member.dismissal
            self.engine.tell(self.space.parents, Dismissed(worker, member.dismissal))
            if len(self._dismissed) > _DISMISSED:
                del self._dismissed[next(iter(self._dismissed))]
        for queue in list(member.queues):
            self.engine.tell(queue, Leave(member))
