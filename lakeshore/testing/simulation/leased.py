"""Workers in other processes than the head, and what beats for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lakeshore.core import messages as m
from lakeshore.core.worker import Lacking
from lakeshore.testing.faults import FaultyLink
from lakeshore.testing.hand import HandBody

from .gate import TOKEN, Way
from .local import SimWorker
from .truth import Hand
from .wires import Wire, wires

if TYPE_CHECKING:
    from .world import World

BEAT = 10.0  # seconds between two beats: a third of a lease


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
