"""What leaves the head must be on the disk, and true."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakeshore.core import messages as m
from lakeshore.core.ids import text_of

from .answers import Answers
from .asked import Asked, SimClient
from .commits import Model
from .disk import Frames
from .facts import TERMINAL, Broken
from .truth import Hand


class Leaving(Answers):
    """Looks at every message when it leaves the head."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._to_client: dict[type, Callable[[Asked, Any], None]] = {
            m.Accepted: self.accepted,
            m.Refusal: self.refused,
            m.SubmittedMany: self.many,
            m.Blocked: self.blocked,
            m.Turn: self.turn,
            m.Outcome: self.outcome,
            m.Described: self.described,
            m.Answer: self.answer,
            m.Chunk: self._chunk,
            m.StreamEnd: self._end,
            m.StreamGap: self._gap,
        }

    def to_client(self, client: SimClient, message: Any) -> None:
        """The head sends this to a client."""
        asked = client.asked.get(message.req)
        if asked is None:
            raise Broken("an answer has a question", repr(message))
        if asked.state == "done" and client.far and asked.given < asked.heard:
            asked.state = "open"  # it was asked again
        if asked.state == "done":
            raise Broken("a question has one answer", f"{asked.kind}: {message!r}")
        self._to_client[type(message)](asked, message)

    # streams

    def _chunk(self, asked: Asked, message: m.Chunk) -> None:
        frames = self._frames(asked)
        stored = None if frames is None else frames.chunks.get(message.seq)
        what = f"{message.seq} of {asked.message!r}"
        if frames is not None and message.seq >= frames.first:
            if stored is None or (stored.count, stored.attempt) != (message.count, message.attempt):
                raise Broken("a frame waits for its commit", what)
            if stored.data != message.data:
                raise Broken("frames are what the body gave, each once", what)
        if asked.heard > 1 and message.seq + message.count <= asked.cursor:
            return  # it was asked on an earlier link, too: the client passes over that
        if not message.seq <= asked.cursor < message.seq + message.count:
            raise Broken("no frame is missed or doubled", f"{what}, {asked.cursor} was next")
        if asked.credit <= 0:
            raise Broken("a reader is sent no more than it has room for", what)
        asked.credit -= message.seq + message.count - asked.cursor
        asked.cursor = message.seq + message.count

    def _frames(self, asked: Asked) -> Frames | None:
        disk = self.model.disk
        id = asked.id
        if asked.kind == "topic":
            if asked.number != self.model.removals[asked.message.name]:
                return None
            id = disk.topic_ids.get(asked.message.name, b"")
        return disk.frames.get(id)

    def _end(self, asked: Asked, message: m.StreamEnd) -> None:
        self.done(asked, "end")
        frames = self._frames(asked)
        if asked.cursor != message.next_seq or (frames is not None and frames.next != message.next_seq):
            raise Broken("every frame comes before the end", f"{asked.cursor} of {message.next_seq}")
        if asked.kind == "topic":
            topic = self.model.disk.topics.get(self.model.disk.topic_ids.get(asked.message.name, b""))
            if frames is not None and topic is not None and not topic.closed:
                raise Broken("an end waits for its commit", asked.message.name)
        elif message.outcome is None:
            raise Broken("an end says how it ended", text_of(asked.id))
        else:
            self.ended(asked.id, message.outcome)

    def _gap(self, asked: Asked, message: m.StreamGap) -> None:
        self.done(asked, "gap")
        frames = self._frames(asked)
        first, next_ = (0, 0) if frames is None else (frames.first, frames.next)
        if first <= asked.cursor <= next_ and asked.there is not None and asked.there[2:] == (first, next_):
            raise Broken("a gap is only where frames are gone", f"{asked.cursor} in {first}…{next_}")

    # workers

    def to_worker(self, hand: Hand, message: Any) -> None:
        """The head sends this to a worker."""
        model = self.model
        if isinstance(message, m.Grant):
            self._grant(hand, message)
        elif isinstance(message, m.Quiet):
            self._quiet(hand)
        elif isinstance(message, m.EndedAck):
            row = model.disk.rows.get(message.id)
            if row is None:
                return
            if row.record.attempt < message.attempt or (
                message.state in TERMINAL and row.state != message.state
            ):
                raise Broken("an acknowledgement waits for its commit", f"end of {text_of(message.id)}")
            mine = [a for a in row.record.attempts if a.number == message.attempt]
            if mine and mine[0].outcome is None:
                raise Broken("an acknowledgement waits for its commit", f"end of {text_of(message.id)}")
        elif isinstance(message, m.FramesAck):
            frames = model.disk.frames.get(message.id)
            if message.id in model.disk.rows and message.index > (
                frames.attempts[message.attempt] if frames else 0
            ):
                raise Broken("an acknowledgement waits for its commit", f"frames of {text_of(message.id)}")
        elif isinstance(message, m.Stop) and message.why == "stale":
            hand.holds.discard((message.id, message.attempt))
        elif isinstance(message, m.Stop) and message.why == "kill":
            row = model.disk.rows.get(message.id)
            if row is not None and not (row.record.killing or row.state in TERMINAL):
                raise Broken("a kill waits for its commit", text_of(message.id))

    def _quiet(self, hand: Hand) -> None:
        """It was told that nothing is left for it."""
        if hand.holds:
            raise Broken("a worker is told that nothing is left when nothing is", "it holds some")
        row = self.model.disk.rows.get(hand.first)
        if hand.hello.limit is None or row is None or row.state in TERMINAL or self.model.ever_shifted:
            return
        last = row.record.attempts[-1] if row.record.attempts else None
        mine = last is not None and (last.worker, last.outcome) == (hand.hello.worker, "failed")
        if mine and not hand.draining:
            raise Broken("a worker for one invocation sees it through", text_of(row.id))

    def _grant(self, hand: Hand, message: m.Grant) -> None:
        model, worker = self.model, hand.hello.worker
        row, what = model.disk.rows.get(message.id), text_of(message.id)
        key = (message.id, message.attempt)
        if key in model.granted:
            raise Broken("an attempt is granted once", what)
        mine = [a.worker for a in row.record.attempts if a.number == message.attempt] if row else []
        if mine != [worker]:
            raise Broken("a claim is stored before its grant", what)
        model.granted[key] = worker
        hand.holds.add(key)
        hand.first = hand.first or message.id
        call = model.calls.get(message.id)
        if call is not None and message.args != (call.call.args or b""):
            raise Broken("a body gets its own arguments", what)
        value = message.call.options.function.value
        if value:
            if message.function is not None:
                hand.functions.add(value)
            elif value not in hand.functions and not hand.leased:  # one in another process asks for it
                raise Broken("a pickled body comes with its first grant", what)
