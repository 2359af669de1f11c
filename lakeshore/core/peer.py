"""A head's end of one link: it knows where each request belongs and what is still open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .actor import Actor
from .engine import Engine
from .errors import BadRequest
from .member import Member
from .messages import (
    AddQueue,
    Beat,
    Beaten,
    Began,
    BulkCancel,
    Bye,
    CloseTopic,
    Credit,
    Died,
    Drain,
    DrainWorker,
    Drop,
    Ended,
    Exec,
    Exited,
    Follow,
    FollowLogs,
    FollowTopic,
    Frames,
    GaveBack,
    Get,
    Hello,
    Kept,
    Kill,
    ListJobs,
    ListQueues,
    ListTopics,
    ListWorkers,
    Logged,
    Minding,
    Output,
    PatchQueue,
    Post,
    Progressed,
    PruneJobs,
    Publish,
    QueueEvents,
    QueueStats,
    RemoveQueue,
    RemoveTopic,
    RemoveWorker,
    Retry,
    SetStorage,
    ShiftQueue,
    ShowQueue,
    ShowStorage,
    ShowWorker,
    Submit,
    SubmitMany,
    Wait,
    Why,
)
from .notes import Gone, Parked, Parted
from .office import REQUESTS as TO_OFFICE
from .ports import Link
from .space import Space


class Wire:
    """The outlet of a link: what it delivers it sends."""

    __slots__ = ("deliver",)

    def __init__(self, link: Link) -> None:
        self.deliver = link.send


class Peer:
    """Routes what one client or worker sends to the actor that owns the matter.

    Args:
        space: the namespace this peer may see; no other can be reached through it.
    """

    def __init__(self, engine: Engine, space: Space, link: Link) -> None:
        self.engine, self.space, self.link = engine, space, link
        self._send = link.send
        self.open: dict[int, Actor] = {}
        self.member: Member | None = None
        self.who = "a program in the head's own process"  # for the record
        self._minds = False
        self._wire: Wire
        to = self._to
        self._routes: dict[type, Callable[[Any], None]] = {
            Submit: self._submit,
            SubmitMany: self._submit_many,
            Wait: self._by_id,
            Follow: self._by_id,
            FollowLogs: self._by_id,
            Get: self._by_id,
            Why: self._by_id,
            Kill: self._by_id,
            Retry: self._by_id,
            Credit: self._to_open,
            Drop: self._drop,
            Hello: self._hello,
            **dict.fromkeys((ListJobs, PruneJobs), to(space.archive)),
            **dict.fromkeys((Post, CloseTopic, ListTopics, RemoveTopic), to(space.topics)),
            FollowTopic: self._follow_topic,
            **dict.fromkeys((AddQueue, ListQueues, ShowQueue, PatchQueue, ShiftQueue), to(space)),
            **dict.fromkeys((RemoveQueue, QueueStats, QueueEvents, BulkCancel), to(space)),
            **dict.fromkeys((ListWorkers, ShowWorker, DrainWorker, RemoveWorker), to(space)),
            **dict.fromkeys((ShowStorage, SetStorage), to(space.depot)),
            **dict.fromkeys(TO_OFFICE, to(space.office)),
            **dict.fromkeys((Ended, Frames, Began, Publish, Kept, GaveBack, Drain, Bye), self._to_member),
            **dict.fromkeys((Logged, Progressed), self._to_member),
            Beat: self._beat,
            Died: self._died,
            Exec: self._exec,
            Minding: self._minding,
            **dict.fromkeys((Output, Exited), to(space.parents)),
        }

    @property
    def wire(self) -> Wire:
        """The outlet for what answers nothing."""
        return Wire(self.link)

    def receive(self, message: Any) -> None:
        """Take one message off the link."""
        self._routes[type(message)](message)

    def deliver(self, message: Any) -> None:
        """As an outlet: answer the peer."""
        if not message.more:
            self.open.pop(message.req, None)
        self._send(message)

    def pass_on(self, message: Any, to: Actor) -> None:
        """A request belongs to another actor after all; what was dropped meanwhile goes nowhere."""
        if message.req in self.open:
            self.open[message.req] = to
            self.engine.tell(to, message, self)

    def closed(self) -> None:
        """The link is gone, and with it whatever waited here."""
        for req, actor in list(self.open.items()):
            self.engine.tell(actor, Drop(req, b""), self)
        self.open.clear()
        if self._minds:
            self.engine.tell(self.space.parents, Gone(), self)
        if self.member is not None:
            self.engine.tell(self.member, Parted(self._wire) if self.member.hello.leased else Gone())

    def _to(self, actor: Actor) -> Callable[[Any], None]:
        return lambda message: self.engine.tell(actor, message, self)

    def _submit(self, message: Submit) -> None:
        self._to_queue(message, message.queue)

    def _submit_many(self, message: SubmitMany) -> None:
        self._to_queue(message, message.items[0].queue)

    def _to_queue(self, message: Submit | SubmitMany, name: str) -> None:
        queue = self.space.queues.get(name)
        if queue is None:
            self.open[message.req] = self.space
            self.engine.tell(self.space, Parked(message), self)
        else:
            self.open[message.req] = queue
            self.engine.tell(queue, message, self)

    def _by_id(self, message: Wait | Follow | FollowLogs | Get | Why | Kill | Retry) -> None:
        entry = self.space.live.get(message.id)
        owner: Actor = self.space.archive if entry is None else entry.queue
        self.open[message.req] = owner
        self.engine.tell(owner, message, self)

    def _follow_topic(self, message: FollowTopic) -> None:
        self.open[message.req] = self.space.topics
        self.engine.tell(self.space.topics, message, self)

    def _to_open(self, message: Credit) -> None:
        owner = self.open.get(message.req)
        if owner is not None:
            self.engine.tell(owner, message, self)

    def _drop(self, message: Drop) -> None:
        owner = self.open.pop(message.req, None)
        if owner is not None:
            self.engine.tell(owner, message, self)

    def _hello(self, message: Hello) -> None:
        member, wire = self.member, Wire(self.link)
        if member is not None and not member.gone and member.hello.worker != message.worker:
            raise BadRequest("a worker has registered on this link already: another needs its own")
        self.member = self.space.register(message, wire)
        self._wire = wire

    def _beat(self, message: Beat) -> None:
        self._send(Beaten(message.worker, self.space.beat(message.worker)))

    def _died(self, message: Died) -> None:
        self.space.died(message.worker, message.reason)

    def _exec(self, message: Exec) -> None:
        self.open[message.req] = self.space.parents
        self.engine.tell(self.space, message, self)

    def _minding(self, message: Minding) -> None:
        self._minds = True
        self.engine.tell(self.space.parents, message, self)

    def _to_member(self, message: Any) -> None:
        if self.member is not None:
            self.engine.tell(self.member, message)
