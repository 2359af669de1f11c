"""Programs and workers in other processes than the head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lakeshore.core import messages as m
from lakeshore.core.client import Client
from lakeshore.core.credit import Limits
from lakeshore.core.worker import Lacking
from lakeshore.testing.faults import FaultyLink
from lakeshore.testing.hand import HandBody, HandClient, HandPlane

from .asked import Asked, SimClient
from .facts import Broken
from .gate import TOKEN, Way
from .local import SimWorker
from .truth import Hand
from .wires import Wire, wires

if TYPE_CHECKING:
    from .world import World

BEAT = 10.0  # seconds between two beats: a third of a lease
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

    def __init__(self, world: World, number: int, token: str = TOKEN, token_id: bytes = b"") -> None:
        self.world = world
        session = world.plane.new_id()
        hand = FarHand(world.plane, session)
        super().__init__(number, hand)
        self.far, self.revoked, self.shut = True, False, False
        self.token_id = token_id
        knock = m.Knock(m.PROTOCOL, "1", session, token=token)
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
            self.world.leaving.done(asked, message.kind)

    # what it asks

    def _heard(self, asked: Asked, message: Any) -> None:
        asked.heard += 1
        if isinstance(message, m.SubmitMany):
            asked.got = len(asked.message.items) - len(message.items)
        ticket = message.ticket if isinstance(message, m.Submit) else False
        if isinstance(message, m.SubmitMany):
            ticket = message.items[0].ticket
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
        lines = self.core._waits_unsent  # pyright: ignore[reportPrivateUsage]
        return asked.message.req in lines and self.starved


class Beats:
    """The thread or process that beats for a worker; no body can stop it.

    Attributes:
        mute: it is stopped.
        late: seconds that each beat takes to arrive.
    """

    revoked = False

    def __init__(self, world: World, worker: FarWorker) -> None:
        self.world, self.worker = world, worker
        self.mute = self.over = False
        self.late = 0.0
        session = world.plane.new_id()
        knock = m.Knock(m.PROTOCOL, "1", session, "beat", token=TOKEN, worker=worker.id)
        self.way = Way(world.gate, self, lambda: knock)
        self.way.dial()
        world.plane.clock.later(BEAT, self._turn)

    def _turn(self) -> None:
        if self.over:
            return
        self.world.plane.clock.later(BEAT, self._turn)
        if not self.mute:
            if self.late:
                self.world.plane.clock.later(self.late, self.beat)
            else:
                self.beat()

    def beat(self) -> None:
        """Say that the process lives."""
        if self.way.seated and self.way.wire is not None and not self.over:
            self.way.wire.send(m.Beat(self.worker.id))

    def end(self, reason: str) -> None:
        """The process has ended; with a reason, somebody says so."""
        self.over = True
        wire = self.way.wire
        self.way.leave()
        if wire is not None:
            if reason and self.way.seated:
                wire.send(m.Died(self.worker.id, reason))
            wire.close()

    def linked(self, wire: Wire, welcome: m.Welcome) -> None:
        """There is a link."""

    def unlinked(self) -> None:
        """It is over."""

    def receive(self, message: Any) -> None:
        """Nothing that matters."""

    def shut_out(self, why: m.Sorry) -> None:
        """There will be no other."""

    def leaves(self, message: Any) -> None:
        """The head answers a beat."""

    def arrives(self, message: Any, near: Wire) -> None:
        """The head hears it."""
        if isinstance(message, m.Beat):
            self.world.model.beaten(self.worker.model_hand)

    def parted(self, near: Wire) -> None:
        """The head sees the end of a link."""

    def misses(self, message: Any) -> None:
        """The head says this where nobody hears it."""

    stale = misses


class FarWorker(SimWorker):
    """A worker in another process, with a lease; `near` begins in the head's own.

    Attributes:
        frozen: its process is stopped, beats and all.
    """

    def __init__(self, world: World, hand: Hand, hello: dict[str, Any]) -> None:
        self.sim, self.model_hand = world, hand
        self.id = hand.hello.worker
        self.far, self.revoked, self.frozen = True, False, False
        self._registered = self._inside = False
        self.pickles: set[bytes] = set()
        far, near = wires()
        super().__init__(world.plane, far, near, hello)  # type: ignore[arg-type]
        knock = m.Knock(m.PROTOCOL, "1", world.plane.new_id(), "worker", token=TOKEN, worker=self.id)
        self.way = Way(world.gate, self, lambda: knock)
        self.beats: Beats | None = None
        if not hand.near:
            self.moved_out()

    def moves_in(self, far: FaultyLink, near: FaultyLink) -> None:
        """It is in the head's own process for now."""
        self._registered, self._inside = True, True
        self.link, self.head_link = far, near
        far.receive = self.receive
        self.worker.link = far
        self.worker.register()

    def moved_out(self) -> None:
        """It reaches its head from outside, now or from now on."""
        if self._inside:
            self._inside = False
            self.link.receive = lambda message: None
            self.worker.unlinked()
            self.worker.hello = msgspec.structs.replace(self.worker.hello, near=False)
        self.beats = Beats(self.sim, self)
        self.way.dial()

    @property
    def linked_now(self) -> bool:
        """Whether the head has it, and it knows."""
        bond = self.worker._bond  # pyright: ignore[reportPrivateUsage]
        if self._inside:
            return True
        return self.way.seated and not self.frozen and bond is not None and bond.linked

    def linked(self, wire: Wire, welcome: m.Welcome) -> None:
        """Register, for the first time or again."""
        self.link, self.head_link = wire, wire.other  # type: ignore[assignment]
        if self._registered:
            self.worker.relinked(wire)
        else:
            self._registered = True
            self.worker.link = wire
            self.worker.register()

    def unlinked(self) -> None:
        """Bodies go on."""
        self.worker.unlinked()

    def receive(self, message: Any) -> None:
        """Take one message."""
        if isinstance(message, m.Grant) and message.function is not None:
            self.pickles.add(message.call.options.function.value)
        self._receive(message)

    def _resolve(self, grant: m.Grant) -> HandBody:
        value = grant.call.options.function.value
        if value and value not in self.pickles and not self._inside:
            raise Lacking("its pickle is not here")
        return super()._resolve(grant)

    def shut_out(self, why: m.Sorry) -> None:
        """There will be no other link."""

    def leaves(self, message: Any) -> None:
        """The head sends this."""
        self.sim.leaving.to_worker(self.model_hand, message)

    def arrives(self, message: Any, near: Wire) -> None:
        """The head hears this."""
        self.sim.worker_heard(self.model_hand, message)
        if isinstance(message, m.Hello):
            self.model_hand.wire = near

    def parted(self, near: Wire) -> None:
        """The head sees the end of a link."""
        if self.model_hand.wire is near:
            self.sim.model.parted(self.model_hand)

    def misses(self, message: Any) -> None:
        """The head says this where nobody hears it."""

    stale = misses

    def vanish(self, *, told: bool, noticed: bool) -> None:
        """Its process dies. `told`: somebody says so; `noticed`: the head sees the end of its link."""
        if self._inside:
            self.link.cut()
            return
        wire = self.way.wire
        self.way.leave()
        self.worker.unlinked()
        if wire is not None:
            self.way.sever(len(wire.sent), 0)
            if noticed:
                wire.cut()
            else:
                self.sim.ghosts.append((self, wire))
        if self.beats is not None:
            self.beats.end("killed by signal 9" if told else "")
