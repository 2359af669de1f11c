"""A head's end of a link to another process: a peer that is held to its role and its credit, and that
outlives its links for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .credit import Limits, Meter
from .engine import Engine
from .errors import BadRequest, Forbidden, Refused
from .intake import refusal
from .messages import (
    Answer,
    Beat,
    Blocked,
    Chunk,
    Credit,
    Described,
    Died,
    Drop,
    Exec,
    Follow,
    FollowTopic,
    Hello,
    Kill,
    Minding,
    Outcome,
    Request,
    Submit,
    SubmitMany,
    SubmittedMany,
    Turn,
    Wait,
)
from .peer import Peer
from .ports import Link
from .roles import allows, denial
from .space import Space
from .states import State
from .vetting import vet

_SMALL = 1024  # bytes of a result that are sent even to a peer that reads too slowly
_STREAMS = (Follow, FollowTopic, Exec)
_SUBMITS = (Submit, SubmitMany)
_ENDING = (Wait, Kill)  # what waits at an invocation for its end


class Nowhere:
    """The link of a guest that has none just now: what it misses it asks for again."""

    def send(self, message: Any, /) -> None:
        """Nobody hears it."""

    def close(self) -> None:
        """There is nothing to close."""


class _Stream:
    """An open stream of frames: how far it was sent, and what may still be sent."""

    __slots__ = ("credit", "cursor", "message", "paused", "room")

    def __init__(self, message: Follow | FollowTopic) -> None:
        self.message = message
        self.cursor, self.credit, self.room = max(0, message.since), message.credit, message.room
        self.paused = False

    def sent(self, chunk: Chunk) -> None:
        """Count what leaves."""
        fresh = chunk.seq + chunk.count - self.cursor
        self.cursor += fresh
        self.credit -= fresh
        self.room -= len(chunk.data)

    def again(self) -> Follow | FollowTopic:
        """The request that goes on from here."""
        credit, room = max(0, self.credit), max(0, self.room)
        return msgspec.structs.replace(self.message, since=self.cursor, credit=credit, room=room)


class Guest(Peer):
    """A peer from outside.

    Args:
        role: what its token allows.
        limits: what it may have unanswered.
        payload_limit: bytes of one packed value.
        cut: ends its link with a reason, for one that does what no peer does.
    """

    def __init__(
        self,
        engine: Engine,
        space: Space,
        link: Link,
        *,
        role: str,
        limits: Limits,
        payload_limit: int,
        cut: Callable[[Guest, str], None],
    ) -> None:
        super().__init__(engine, space, link)
        self.role, self.payload_limit = role, payload_limit
        self.session = b""  # names it across its links
        self.token = b""  # which one it came in with; none for the plane's owner
        self._meter, self._cut = Meter(limits), cut
        self._full = False
        self._held: dict[int, Any] = {}  # by number, what is not looked at while its link is full
        self._credits: dict[int, Credit] = {}
        self._streams: dict[int, _Stream] = {}  # of frames, by number
        self._executing: set[int] = set()  # the numbers of commands whose output it reads
        self._asked: dict[int, Any] = {}  # open requests that only read, and kills
        self._turns: set[int] = set()  # the numbers of submits whose turn it is

    def receive(self, message: Any) -> None:
        """Take one message off the link, if it may send it."""
        request = isinstance(message, Request)
        complaint = vet(message, self.payload_limit)
        if complaint:
            self._refuse(message, BadRequest(complaint))
        elif not (allows(self.role, message) and self._has_parent(message)):
            self._refuse(message, Forbidden(denial(self.role, message)))
        elif request:
            self._request(message)
        elif not self._full or message.__class__ is not Beat:  # which is answered
            self._route(message)

    def _refuse(self, message: Any, error: Refused) -> None:
        """Say no: by an answer where one is asked for and may be read, else by hanging up."""
        if not isinstance(message, Request):
            self._cut(self, str(error))
        elif self._full:
            self._cut(self, f"it does not read what it is told, which is: {error}")
        else:
            self._send(refusal(message.req, error))

    def _has_parent(self, message: Any) -> bool:
        """Whether who only works submits for a body that runs."""
        if self.role != "work" or not isinstance(message, Submit | SubmitMany):
            return True
        items = (message,) if isinstance(message, Submit) else message.items
        running = (self.space.live.get(item.call.parent or b"") for item in items)
        return all(parent is not None and parent.state is State.RUNNING for parent in running)

    def deliver(self, message: Any) -> None:
        """As an outlet: answer the peer."""
        req = message.req
        if self._streams and req in self._streams and not self._passes(self._streams[req], message):
            return
        if not message.more:
            self.open.pop(req, None)
            asked = self._asked.pop(req, None)
            if self._full and asked is not None and asked.role == "read" and _large(message):
                self._held[req] = asked  # it asks again, as it were, once there is room
                return
            self._meter.give(req)
            self._turns.discard(req)
        elif type(message) is Blocked or type(message) is SubmittedMany:
            self._meter.park(req)
        elif type(message) is Turn:
            self._turns.add(req)
        self._send(message)

    def _passes(self, stream: _Stream, message: Any) -> bool:
        """Whether a stream goes on: while its link is full it does not, however much credit it has."""
        if stream.paused:
            return False  # it was on its way
        if type(message) is Chunk:
            if self._full:
                stream.paused = True
                self._route(Drop(message.req))
                return False
            stream.sent(message)
        return True

    # requests

    def _request(self, message: Any) -> None:
        kind = message.__class__
        req = message.req
        if kind is Drop:
            self._meter.give(req)
            self._credits.pop(req, None)
            self._streams.pop(req, None)
            self._executing.discard(req)
            self._asked.pop(req, None)
            self._turns.discard(req)
            if self._held.pop(req, None) is None:
                self._route(message)
        elif kind is Credit:
            self._credit(message)
        elif self._full:
            if self._admit(message):
                self._held[req] = message
        else:
            self._ask(message)

    def _credit(self, message: Credit) -> None:
        if not self._full:
            stream = self._streams.get(message.req)
            if stream is not None:
                stream.credit += message.frames
                stream.room += message.size
            self._route(message)
            return
        before = self._credits.get(message.req, Credit(message.req, 0))
        frames, size = before.frames + message.frames, before.size + message.size
        self._credits[message.req] = Credit(message.req, frames, size)

    def _ask(self, message: Any) -> None:
        if message.req in self.open:  # it asks again, as its link broke
            if isinstance(message, _STREAMS):
                self._route(Drop(message.req))
            elif not isinstance(message, _SUBMITS):
                return  # it is answered as if it had not
        if self._admit(message):
            if isinstance(message, Exec):
                self._executing.add(message.req)
            elif isinstance(message, Follow | FollowTopic):
                self._streams[message.req] = _Stream(message)
            elif message.role == "read" or isinstance(message, Kill):
                self._asked[message.req] = message
            self._route(message)

    def _admit(self, message: Any) -> bool:
        """Count a request; whether it was within the credit."""
        meter = self._meter
        kind = message.__class__
        ticket = message.ticket if kind is Submit else kind is SubmitMany and message.items[0].ticket
        if ticket and message.req in self._turns:
            self._turns.discard(message.req)
            meter.give(message.req)
        elif not (message.req in meter or meter.fits(message)):
            self._cut(self, "it asked for more than it has credit for")
            return False
        meter.take(message)
        return True

    def _hello(self, message: Hello) -> None:
        if not self._owns(message.worker):
            self._cut(self, "this worker came in with another token")
            return
        super()._hello(message)
        if self.member is not None:
            self.member.owner = self.token

    def _beat(self, message: Beat) -> None:
        if self._owns(message.worker):
            super()._beat(message)

    def _died(self, message: Died) -> None:
        if self._owns(message.worker):
            super()._died(message)

    def _minding(self, message: Minding) -> None:
        if self._owns(message.worker):
            super()._minding(message)
        else:
            self._cut(self, "this worker came in with another token")

    def _owns(self, worker: bytes) -> bool:
        """Whether a worker is nobody else's."""
        member = self.space.members.get(worker)
        return member is None or member.gone or member.owner in (None, self.token)

    def _route(self, message: Any) -> None:
        route = self._routes.get(message.__class__)
        if route is None:
            self._cut(self, f"{type(message).__name__} is nothing that a peer sends")
            return
        try:
            route(message)
        except Refused as error:  # a worker that can't register
            self._cut(self, str(error))

    def closed(self) -> None:
        """It is gone for good, and with it whatever waited here."""
        for drop in self._endings():
            owner = self.open.pop(drop.req, None)
            if owner is not None:
                self.engine.tell(owner, drop, self)
        self._asked.clear()
        super().closed()

    # its links come and go

    def unlinked(self) -> None:
        """Its link broke. Where it comes back it asks again for what it missed."""
        self.relink(Nowhere())

    def relink(self, link: Link) -> None:
        """It has another link. Streams are opened anew by who knows how far it has read."""
        self.link, self._send = link, link.send
        self._full = False
        self._credits.clear()
        for req in self._held:
            self._meter.give(req)  # it asks for these again
        self._held.clear()
        for req in (*self._streams, *self._executing):
            self._request(Drop(req))
        for drop in self._endings():
            self._request(drop)  # it asks again, if it still wants to know
        self._meter = Meter(self._meter.limits)  # the other end counts from nought, too

    def _endings(self) -> list[Drop]:
        """What takes back its waits for the ends of invocations."""
        asked = self._asked.items()
        return [Drop(req, message.id) for req, message in asked if isinstance(message, _ENDING)]

    def hold(self) -> None:
        """Its link is full: what would make it fuller waits."""
        self._full = True

    def go_on(self) -> None:
        """Its link has room again."""
        self._full = False
        credits, self._credits = self._credits, {}
        for credit in credits.values():
            self._credit(credit)
        for stream in self._streams.values():
            if stream.paused:
                stream.paused = False
                self._route(stream.again())
        held, self._held = self._held, {}
        for message in held.values():
            self._request(message)


def _large(message: Any) -> bool:
    """Whether an answer may take much memory while its link is full."""
    if isinstance(message, Outcome):
        return len(message.result or b"") > _SMALL
    return isinstance(message, Answer | Described)
