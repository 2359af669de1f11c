"""The other side of a peer: what a program has asked and not been answered yet. No loop, no waiting.

A client outlives its links. What was asked is kept until it is answered, and sent again on the next
link where that does no harm; streams are taken up where they stopped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from .credit import Limits, Meter
from .messages import (
    Accepted,
    Blocked,
    Chunk,
    Credit,
    Drop,
    Outcome,
    Post,
    Refusal,
    Retry,
    StreamEnd,
    StreamGap,
    Submit,
    SubmitMany,
    SubmittedMany,
    Turn,
)
from .ports import Link

Reply = Callable[[Any], None]

_UNKNOWN = (
    "the connection broke before the answer came: it may have been done or not; look, and ask again if it "
    "was not"
)
_UNREACHED = "the plane could not be reached {for_how_long}: nothing was sent; see whether its head runs"


class _Nowhere:
    """The link of a client that has none just now."""

    def send(self, message: Any, /) -> None:
        """It is kept by who sends it."""

    def close(self) -> None:
        """There is nothing to close."""


class _Following:
    """An open stream: where it is to be taken up, and what the head may still send."""

    __slots__ = ("ahead", "bytes", "cursor", "ended", "message", "sink")

    def __init__(self, message: Any, sink: Reply) -> None:
        self.message, self.sink = message, sink
        self.cursor: int = message.since
        self.ahead = self.bytes = 0  # what has come and was not consumed
        self.ended = False

    def came(self, chunk: Chunk) -> None:
        """Count frames that have arrived."""
        fresh = chunk.seq + chunk.count - self.cursor
        self.cursor += fresh
        self.ahead += fresh
        self.bytes += len(chunk.data)

    def again(self) -> Any:
        """The request that goes on where this one stopped."""
        message = self.message
        credit, room = max(0, message.credit - self.ahead), max(0, message.room - self.bytes)
        return msgspec.structs.replace(message, since=self.cursor, credit=credit, room=room)


class Client:
    """Numbers requests, matches answers, and takes turns at a full queue.

    Args:
        link: the way to the head, where there is one already.
        now: a clock, for how long outages may last.
        publisher: names this client in its posts, where they may have to be sent again.
    """

    def __init__(
        self, link: Link | None = None, *, now: Callable[[], float] = lambda: 0.0, publisher: bytes = b""
    ) -> None:
        self.link: Link = link or _Nowhere()
        self.number = itertools.count(1).__next__  # of the next request; from any thread
        self._now, self._publisher = now, publisher
        self._linked = self._direct = link is not None  # direct: nothing is ever held back
        self._waiting: dict[int, Reply] = {}
        self._asked: dict[int, Any] = {}  # what waits for an answer, in order: it may have to be sent again
        self._unsent: dict[int, float] = {}  # of these, what has not left, and since when it waits
        self._waits_unsent: dict[int, float] = {}  # the same of waits, which have a credit of their own
        self._sent_twice: set[int] = set()
        self._blocked: set[int] = set()
        self._gathered: dict[int, list[Accepted | Refusal]] = {}
        self._streams: dict[int, _Following] = {}
        self._posts: dict[int, int] = {}  # unanswered posts by request: their numbers
        self._post_number = itertools.count(1).__next__  # of the next one
        self._meter: Meter | None = None
        self._since: dict[int, float] = {}  # of what was asked before a link broke: since when nothing came
        self._heard = True  # something came on this link
        self._closed: Refusal | None = None
        self.wanted: Callable[[], None] = lambda: None  # called when something waits for a link
        self._handlers: dict[type, Callable[[Any], None]] = {
            Blocked: self._wait_for_turn,
            Turn: self._turn,
            Accepted: self._answer,
            Outcome: self._answer,
            Refusal: self._refused,
            SubmittedMany: self._many,
            Chunk: self._chunk,
            StreamEnd: self._stream_end,
            StreamGap: self._stream_end,
        }

    def ask(self, message: Any, reply: Reply) -> None:
        """Send a request; `reply` is called once with the answer (a `Refusal` too)."""
        if self._closed is not None:
            reply(msgspec.structs.replace(self._closed, req=message.req))
            return
        if self._publisher and type(message) is Post:
            message = self._numbered(message)
        req = message.req
        self._waiting[req] = reply
        self._asked[req] = message
        if self._direct:
            self.link.send(message)
        else:
            self._queue(message)

    def drop(self, req: int, id: bytes = b"") -> None:
        """Nobody waits for an answer any more."""
        if self._waiting.pop(req, None) is not None:
            unsent = req in self._unsent or req in self._waits_unsent
            if not unsent:  # before anything that takes its place
                self.link.send(Drop(req, id))
            self._forget(req)

    def open(self, message: Any, sink: Reply) -> None:
        """Open a stream; `sink` is called with its chunks, then its end, gap or refusal."""
        if self._closed is not None:
            sink(msgspec.structs.replace(self._closed, req=message.req))
            return
        self._streams[message.req] = _Following(message, sink)
        if self._direct:
            self.link.send(message)
        else:
            self._queue(message)

    def consumed(self, req: int, frames: int, size: int = 0) -> None:
        """Give a stream's credit back, in frames and in bytes."""
        stream = self._streams.get(req)
        if stream is not None:
            stream.ahead -= frames
            stream.bytes -= size
            self.link.send(Credit(req, frames, size))

    def close_stream(self, req: int, id: bytes = b"") -> None:
        """Done with a stream, at its end or before."""
        if self._streams.pop(req, None) is None:
            return
        self._since.pop(req, None)
        if self._waits_unsent.pop(req, None) is None:
            self.link.send(Drop(req, id))
        if self._meter is not None:
            self._meter.give(req)
            self._pump()

    def receive(self, message: Any) -> None:
        """Take one message off the link."""
        self._heard = True
        self._handlers.get(message.__class__, self._answer)(message)

    # links come and go

    @property
    def linked(self) -> bool:
        """Whether there is a way to the head now."""
        return self._linked

    @property
    def wants(self) -> bool:
        """Whether anybody waits for an answer or reads a stream."""
        return bool(self._waiting or self._streams)

    def unlinked(self) -> None:
        """The link broke. What was asked stays asked, unless it has left and may not be sent twice."""
        self.link, self._linked, self._direct, self._meter = _Nowhere(), False, False, None
        if self._heard:  # of a head that lets us in and then says nothing, the silence counts on
            self._since.clear()
        now = self._now()
        for req, message in list(self._asked.items()):
            if message.resent or req in self._line(message):
                self._since.setdefault(req, now)
            else:
                self._refused(Refusal(req, "OutcomeUnknown", _UNKNOWN))

    def relinked(self, link: Link, limits: Limits | None) -> None:
        """There is a new link, within whose limits everything goes on that was not answered."""
        self.link, self._linked = link, True
        self._meter = None if limits is None else Meter(limits)
        self._direct, self._heard = limits is None, False
        for line in (self._unsent, self._waits_unsent):
            for req, since in line.items():
                self._since.setdefault(req, since)
        for req, message in self._asked.items():
            line = self._line(message)
            if req not in line:
                self._sent_twice.add(req)
                line[req] = self._since.setdefault(req, self._now())
        waiting = sorted((*self._unsent, *self._waits_unsent))
        self._unsent, self._waits_unsent = {}, {}
        for req in waiting:  # by number is in order
            if req in self._asked:
                self._queue(self._asked[req])
        for stream in list(self._streams.values()):
            if not stream.ended:
                self._queue(stream.again())

    def expire(self, before: float, for_how_long: str) -> None:
        """There is no link: refuse what may not wait for ever, and has since that time."""
        if self._linked:
            return
        for req, message in list(self._asked.items()):
            since = self._since[req] if req in self._since else self._unsent.get(req, before)
            if message.waits or req in self._blocked or since > before:
                continue
            if req in self._unsent and req not in self._sent_twice:
                self._refused(Refusal(req, "Unreachable", _UNREACHED.format(for_how_long=for_how_long)))
            else:
                self._refused(Refusal(req, "OutcomeUnknown", _UNKNOWN))

    def closed(self, why: Refusal) -> None:
        """There will be no link any more: everyone who waits, and who comes later, is told why."""
        self._closed = why = self._closed or why  # the first reason is the real one
        self.refuse(why)

    def refuse(self, why: Refusal) -> None:
        """Everyone who waits is told why; who comes later may be luckier."""
        waiting, self._waiting = self._waiting, {}
        streams, self._streams = self._streams, {}
        lines = (self._unsent, self._waits_unsent, self._since)
        for held in (self._asked, *lines, self._gathered, self._posts):
            held.clear()
        self._sent_twice.clear()
        self._blocked.clear()
        for req, reply in waiting.items():
            reply(msgspec.structs.replace(why, req=req))
        for req, stream in streams.items():
            if not stream.ended:
                stream.sink(msgspec.structs.replace(why, req=req))

    # sending

    def _queue(self, message: Any) -> None:
        """Send as soon as there is a link with room, behind what waits already."""
        meter, line = self._meter, self._line(message)
        if self._linked and (meter is None or (not line and meter.fits(message))):
            self._send(message)
        else:
            line[message.req] = self._now()
            if not self._linked:
                self.wanted()

    def _send(self, message: Any) -> None:
        if self._meter is not None:
            self._meter.take(message)
        if message.req in self._sent_twice:
            message = self._again(message)
        self.link.send(message)

    def _line(self, message: Any) -> dict[int, float]:
        """Where a request waits for credit: each of the two has its own."""
        return self._waits_unsent if message.waits else self._unsent

    def _pump(self) -> None:
        meter = self._meter
        for line in (self._unsent, self._waits_unsent):
            while line and meter is not None:
                req = next(iter(line))
                message = self._streams[req].again() if req in self._streams else self._asked[req]
                if not meter.fits(message):
                    break
                del line[req]
                self._send(message)

    def _again(self, message: Any, *, ticket: bool = False) -> Any:
        """A request as it is sent a second time."""
        kind = message.__class__
        if kind is Submit:
            return msgspec.structs.replace(message, again=True, ticket=ticket)
        if kind is SubmitMany:
            again = message.req in self._sent_twice
            first, *rest = message.items[len(self._gathered.get(message.req, ())) :]
            items = (
                msgspec.structs.replace(first, again=again, ticket=ticket),
                *(msgspec.structs.replace(item, again=True) if again else item for item in rest),
            )
            return SubmitMany(message.req, items)
        if kind is Retry:
            return msgspec.structs.replace(message, again=True)
        return message

    def _numbered(self, message: Post) -> Post:
        number = self._posts[message.req] = self._post_number()
        settled = next(iter(self._posts.values()))
        return msgspec.structs.replace(message, publisher=self._publisher, number=number, settled=settled)

    def _forget(self, req: int) -> None:
        """A request is over."""
        self._asked.pop(req, None)
        held = self._unsent or self._waits_unsent
        if held or self._gathered or self._posts or self._blocked or self._sent_twice or self._since:
            self._forget_rest(req)
        if self._meter is not None:
            self._meter.give(req)
            if held:
                self._pump()

    def _forget_rest(self, req: int) -> None:
        """What few requests have."""
        for rest in (self._gathered, self._posts, self._unsent, self._waits_unsent, self._since):
            rest.pop(req, None)
        self._blocked.discard(req)
        self._sent_twice.discard(req)

    # answers

    def _answer(self, message: Any) -> None:
        req = message.req
        reply = self._waiting.pop(req, None)
        if reply is not None:
            self._forget(req)
            reply(message)

    def _refused(self, message: Refusal) -> None:
        if message.req in self._streams:
            stream = self._streams[message.req]
            stream.ended = True
            stream.sink(message)
            return
        gathered = self._gathered.pop(message.req, None)
        if gathered is not None:  # the queue closed while the rest of a submit_many waited
            self._answer(SubmittedMany(message.req, (*gathered, message)))
        else:
            self._answer(message)

    def _wait_for_turn(self, message: Any) -> None:
        """It is the head's turn to speak: that takes no credit."""
        if message.req in self._asked:
            self._blocked.add(message.req)
            if self._meter is not None:
                self._meter.park(message.req)
                self._pump()

    def _turn(self, message: Turn) -> None:
        parked = self._asked.get(message.req)
        self._blocked.discard(message.req)
        if parked is None:
            self.link.send(Drop(message.req))  # it was cancelled: free the place
            return
        if self._meter is not None:
            self._meter.give(message.req)
            self._meter.take(parked)
        if type(parked) is Submit and message.req not in self._sent_twice:
            self.link.send(msgspec.structs.replace(parked, ticket=True))
        else:
            self.link.send(self._again(parked, ticket=True))

    def _many(self, message: SubmittedMany) -> None:
        if message.req not in self._waiting:
            return
        gathered = self._gathered.setdefault(message.req, [])
        here = len(gathered) - self._first(message, len(gathered))
        gathered.extend(message.results[here:])
        if message.blocked:
            if here <= len(message.results):
                self._wait_for_turn(message)
        else:
            del self._gathered[message.req]
            self._answer(SubmittedMany(message.req, tuple(gathered)))

    def _first(self, message: SubmittedMany, due: int) -> int:
        """Which item the answer to a submit_many begins with: sent on two links, it is answered twice."""
        items = self._asked[message.req].items
        if not message.first or (due < len(items) and items[due].id == message.first):
            return due
        return next((n for n, item in enumerate(items) if item.id == message.first), due)

    def _chunk(self, message: Chunk) -> None:
        stream = self._streams.get(message.req)
        if stream is None or stream.ended or not message.seq <= stream.cursor < message.seq + message.count:
            return  # what was asked on an earlier link may be answered too
        stream.came(message)
        stream.sink(message)

    def _stream_end(self, message: StreamEnd | StreamGap) -> None:
        stream = self._streams.get(message.req)
        if stream is None or stream.ended:
            return
        if isinstance(message, StreamEnd) and message.next_seq != stream.cursor:
            return  # it answers what was asked on an earlier link: frames before it were lost with that
        stream.ended = True
        stream.sink(message)
