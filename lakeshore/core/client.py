"""The other side of a peer: what a program has asked and not been answered yet. No loop, no waiting."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import msgspec

from .messages import (
    Accepted,
    Blocked,
    Chunk,
    Credit,
    Drop,
    Outcome,
    Refusal,
    StreamEnd,
    StreamGap,
    Submit,
    SubmitMany,
    SubmittedMany,
    Turn,
)
from .ports import Link

Reply = Callable[[Any], None]


class Client:
    """Numbers requests, matches answers, and takes turns at a full queue.

    Args:
        link: the way to the head.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.number = itertools.count(1).__next__  # of the next request; from any thread
        self._waiting: dict[int, Reply] = {}
        self._parked: dict[int, Submit | SubmitMany] = {}  # payloads that may have to be sent again
        self._gathered: dict[int, list[Accepted | Refusal]] = {}
        self._streams: dict[int, Reply] = {}
        self._closed: Refusal | None = None
        self._handlers: dict[type, Callable[[Any], None]] = {
            Blocked: lambda message: None,
            Turn: self._turn,
            Accepted: self._accepted,
            Outcome: self._answer,
            Refusal: self._refused,
            SubmittedMany: self._many,
            Chunk: self._stream,
            StreamEnd: self._stream,
            StreamGap: self._stream,
        }

    def ask(self, message: Any, reply: Reply) -> None:
        """Send a request; `reply` is called once with the answer (a `Refusal` too)."""
        if self._closed is not None:
            reply(msgspec.structs.replace(self._closed, req=message.req))
            return
        self._waiting[message.req] = reply
        kind = message.__class__
        if kind is Submit or kind is SubmitMany:
            self._parked[message.req] = message
        self.link.send(message)

    def drop(self, req: int, id: bytes = b"") -> None:
        """Nobody waits for an answer any more."""
        if self._waiting.pop(req, None) is not None:
            self._parked.pop(req, None)
            self._gathered.pop(req, None)
            self.link.send(Drop(req, id))

    def open(self, message: Any, sink: Reply) -> None:
        """Open a stream; `sink` is called with its chunks, then its end, gap or refusal."""
        if self._closed is not None:
            sink(msgspec.structs.replace(self._closed, req=message.req))
            return
        self._streams[message.req] = sink
        self.link.send(message)

    def consumed(self, req: int, frames: int, size: int = 0) -> None:
        """Give a stream's credit back, in frames and in bytes."""
        if req in self._streams:
            self.link.send(Credit(req, frames, size))

    def close_stream(self, req: int, id: bytes = b"") -> None:
        """Done with a stream, at its end or before."""
        if self._streams.pop(req, None) is not None:
            self.link.send(Drop(req, id))

    def receive(self, message: Any) -> None:
        """Take one message off the link."""
        self._handlers.get(message.__class__, self._answer)(message)

    def closed(self, why: Refusal) -> None:
        """The link is gone: everyone who waits, and who comes later, is told why."""
        self._closed = why = self._closed or why  # the first reason is the real one
        waiting, self._waiting = self._waiting, {}
        streams, self._streams = self._streams, {}
        self._parked.clear()
        self._gathered.clear()
        for req, reply in (*waiting.items(), *streams.items()):
            reply(msgspec.structs.replace(why, req=req))

    def _answer(self, message: Any) -> None:
        reply = self._waiting.pop(message.req, None)
        if reply is not None:
            reply(message)

    def _accepted(self, message: Accepted) -> None:
        self._parked.pop(message.req, None)
        reply = self._waiting.pop(message.req, None)
        if reply is not None:
            reply(message)

    def _refused(self, message: Refusal) -> None:
        if message.req in self._streams:
            self._streams[message.req](message)
            return
        self._parked.pop(message.req, None)
        gathered = self._gathered.pop(message.req, None)
        if gathered is not None:  # the queue closed while the rest of a submit_many waited
            message_many = SubmittedMany(message.req, (*gathered, message))
            self._answer(message_many)
        else:
            self._answer(message)

    def _turn(self, message: Turn) -> None:
        parked = self._parked.get(message.req)
        if parked is None:
            self.link.send(Drop(message.req))  # it was cancelled: free the place
        elif isinstance(parked, Submit):
            self.link.send(msgspec.structs.replace(parked, ticket=True))
        else:
            gathered = self._gathered.get(message.req)
            done = len(gathered) if gathered else 0
            first, *rest = parked.items[done:]
            items = (msgspec.structs.replace(first, ticket=True), *rest)
            self.link.send(SubmitMany(message.req, items))

    def _many(self, message: SubmittedMany) -> None:
        if message.req not in self._waiting:
            return
        gathered = self._gathered.setdefault(message.req, [])
        gathered.extend(message.results)
        if not message.blocked:
            del self._gathered[message.req]
            del self._parked[message.req]
            self._answer(SubmittedMany(message.req, tuple(gathered)))

    def _stream(self, message: Chunk | StreamEnd | StreamGap) -> None:
        sink = self._streams.get(message.req)
        if sink is not None:
            sink(message)
