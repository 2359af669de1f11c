"""Programs in other processes than the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeshore.core import messages as m
from lakeshore.core.client import Client
from lakeshore.core.credit import Limits
from lakeshore.testing.hand import HandClient, HandPlane

from .asked import Asked, SimClient
from .facts import Broken
from .gate import TOKEN, Way
from .wires import Wire, wires

if TYPE_CHECKING:
    from .world import World

_TWICE = (m.Submit, m.SubmitMany, m.Wait, m.Kill, m.Retry, m.Post, m.Get)  # asked again by itself
_LOCAL = ("OutcomeUnknown", "Unreachable")


class FarHand(HandClient):
    """The client of a program in another process."""

    def __init__(self, plane: HandPlane, publisher: bytes) -> None:
        far, near = wires()
        self.plane, self.link, self.head_link = plane, far, near  # type: ignore[assignment]
        self.client = Client(None, now=lambda: plane.clock.now, publisher=publisher)
        self.answers: dict[int, list[Any]] = {}
        self._since: dict[int, int] = {}


class FarClient(SimClient):
    """A program in another process, and its way to the head.

    Attributes:
        revoked: somebody has asked to remove its token; `shut`: it is removed.
    """

    def __init__(self, world: World, number: int, token: tuple[str, bytes] | None = None) -> None:
        self.world = world
        session = world.plane.new_id()
        hand = FarHand(world.plane, session)
        super().__init__(number, hand)
        self.far, self.revoked, self.shut = True, False, False
        text, self.token_id = token or (TOKEN, b"")
        knock = m.Knock(m.PROTOCOL, "1", session, token=text)
        self.way = Way(world.gate, self, lambda: knock)
        self.way.dial()

    @property
    def away(self) -> bool:  # type: ignore[override]
        """Whether it has no link just now."""
        return not self.way.seated

    @property
    def core(self) -> Client:
        """The client itself."""
        return self.hand.client

    # as a party

    def linked(self, wire: Wire, welcome: m.Welcome) -> None:
        """Go on."""
        if not welcome.resumed:
            for asked in self.asked.values():
                asked.unsure |= asked.state in ("blocked", "turn")
        self.core.relinked(wire, Limits(welcome.requests, welcome.room, welcome.waits))

    def unlinked(self) -> None:
        """Wait for another link."""
        self.core.unlinked()

    def receive(self, message: Any) -> None:
        """Take one message."""
        self.core.receive(message)

    def shut_out(self, why: m.Sorry) -> None:
        """It may not come in any more."""
        self.world.abandon(self)
        self.gone = True
        if self in self.world.clients:
            self.world.clients.remove(self)
        self.core.closed(m.Refusal(0, why.kind, why.message))

    def leaves(self, message: Any) -> None:
        """The head sends this."""
        if self.shut:
            raise Broken("who was shut out is told nothing", repr(message))
        self.world.leaving.to_client(self, message)

    def arrives(self, message: Any, near: Wire) -> None:
        """The head hears this."""
        self.world.model.heard(message, None)
        asked = self.asked.get(message.req)
        if asked is not None and not isinstance(message, m.Drop | m.Credit):
            self._heard(asked, message)

    def parted(self, near: Wire) -> None:
        """The head sees the end of a link."""

    def misses(self, message: Any) -> None:
        """The head says this where nobody hears it."""
        asked = self.asked.get(message.req)
        if asked is not None and isinstance(message, m.Blocked | m.Turn | m.SubmittedMany):
            asked.unsure = True

    def stale(self, message: Any) -> None:
        """A head that was superseded refuses this: it knows no better yet."""
        asked = self.asked.get(message.req)
        if asked is not None:
            asked.expected = None
            self.world.leaving.done(asked, "stale")

    # what it asks

    def _heard(self, asked: Asked, message: Any) -> None:
        asked.heard += 1
        ticket = _has_ticket(message)
        if asked.heard == 1 or ticket or asked.state == "gone":
            return
        asked.again, asked.expected = True, None
        if asked.kind in ("follow", "topic"):
            asked.state, asked.cursor, asked.credit = "open", message.since, message.credit
        elif asked.state != "blocked":
            asked.state, asked.unsure = "open", True

    def replied(self, asked: Asked, answer: Any) -> None:
        """The program has its answer."""
        if asked.answered:
            raise Broken("a question has one answer", f"{asked.message!r}: {answer!r}")
        if isinstance(answer, m.Chunk):
            if not answer.seq <= asked.seen < answer.seq + answer.count:
                raise Broken("no frame is missed or doubled", f"{answer.seq} came, {asked.seen} was next")
            asked.seen = answer.seq + answer.count
            return
        if isinstance(answer, m.StreamEnd) and answer.next_seq != asked.seen:
            raise Broken("every frame comes before the end", f"{asked.seen} of {answer.next_seq}")
        asked.answered = True
        if asked.kind in ("follow", "topic"):
            self.core.close_stream(asked.message.req, asked.id)
        if isinstance(answer, m.Refusal) and answer.kind in _LOCAL:
            if isinstance(asked.message, _TWICE):
                raise Broken("what does no harm twice is asked again", f"{asked.message!r}: {answer.kind}")
            self.world.leaving.give_up(asked)
        elif isinstance(answer, m.SubmittedMany):
            self._check_many(asked, answer)

    def _check_many(self, asked: Asked, answer: m.SubmittedMany) -> None:
        results = answer.results
        last = isinstance(results[-1], m.Refusal) if results else False
        if len(results) != len(asked.message.items) and not last:
            raise Broken("each item of a submit_many is answered", f"{len(results)} answers")
        for item, result in zip(asked.message.items, results, strict=False):
            if isinstance(result, m.Accepted) and not result.known and result.id != item.id:
                raise Broken("a submit is answered with its own id", f"{asked.message!r}")

    @property
    def starved(self) -> bool:
        """Whether its waits wait for credit, rightly."""
        meter = self.core._meter  # pyright: ignore[reportPrivateUsage]
        return meter is not None and len(meter._waits) >= meter.limits.waits  # pyright: ignore[reportPrivateUsage]

    def unsent(self, asked: Asked) -> bool:
        """Whether a wait has not left for want of credit."""
        req, core = asked.message.req, self.core
        if req in core._unsent:  # pyright: ignore[reportPrivateUsage]
            kills = [other for other in self.asked.values() if other.kind == "kill"]
            return any(other.heard and not other.answered for other in kills)  # one may take long
        return req in core._waits_unsent and self.starved  # pyright: ignore[reportPrivateUsage]


def _has_ticket(message: Any) -> bool:
    """Whether it is the answer to a turn."""
    if isinstance(message, m.SubmitMany):
        return message.items[0].ticket
    return isinstance(message, m.Submit) and message.ticket
