"""What may happen between processes in one step: links, leases, and heads that follow each other."""

from __future__ import annotations

from lakeshore.core import messages as m
from lakeshore.core.ids import text_of

from .far import FarClient
from .gate import Way
from .leased import FarWorker
from .working import Working


class Distance(Working):
    """Steps of links, leases and takeovers."""

    # programs in other processes

    def _far_client(self, client: int) -> FarClient | None:
        found = [each for each in self.world.clients if isinstance(each, FarClient)]
        return found[client % len(found)] if found else None

    def sever(
        self,
        client: int = 0,
        up: int = 0,
        down: int = 0,
        noticed: bool = True,
        back: float = 0.0,
        slowly: bool = False,
    ) -> None:
        """The link of a program breaks; it looks for another after so many seconds."""
        found = self._far_client(client)
        if found is not None:
            found.way.slowly = slowly
            self._sever(found.way, up, down, noticed, back)

    def _sever(self, way: Way, up: int, down: int, noticed: bool, back: float) -> None:
        way.back = back
        self.world.sever(way, up, down, noticed=noticed)

    def half(self, client: int = 0) -> None:
        """The link of a program carries nothing any more, and neither end has seen it."""
        found = self._far_client(client)
        if found is not None and found.way.wire is not None and not found.way.wire.broken:
            self._half(found.way)

    def _half(self, way: Way) -> None:
        wire = way.wire
        if wire is not None and not wire.broken:
            wire.snap()
            wire.sent.clear()
            wire.other.sent.clear()
            self.world.plane.clock.later(15.0, wire.other.end)
            self.world.plane.clock.later(20.0, wire.end)

    def dial(self, way: int = 0) -> None:
        """Some party that has no link looks for one now."""
        without = [each for each in self.world.gate.ways if each.wire is None]
        if without:
            without[way % len(without)].dial()

    def revoke(self, client: int = 0) -> None:
        """The token of a program is removed."""
        found = self._far_client(client)
        if found is not None and found.token_id:
            found.revoked = True
            self.world.owner(m.RemoveToken(1, text_of(found.token_id)))

    # workers in other processes

    def hire_far(self, slots: int = 1, queues: str = "", unknown: str = "", late: float = 0.0) -> None:
        """A worker comes, in a process of its own."""
        if len(self.world.workers) < 4:
            worker = self.world.hire(
                slots=slots, queues=tuple(queues.split()), unknown=unknown, leased=True, daemon=True
            )
            assert isinstance(worker, FarWorker)
            if worker.beats is not None:
                worker.beats.late = late

    def hire_near(self, slots: int = 1) -> None:
        """A worker comes that outlives its head, in the same process."""
        if len(self.world.workers) < 4:
            self.world.hire(slots=slots, leased=True, near=True)

    def _far_worker(self, which: int) -> FarWorker | None:
        found = [each for each in self.world.workers if isinstance(each, FarWorker)]
        return found[which % len(found)] if found else None

    def sever_worker(
        self, which: int = 0, up: int = 0, down: int = 0, noticed: bool = True, back: float = 0.0
    ) -> None:
        """The link of a worker breaks."""
        found = self._far_worker(which)
        if found is not None:
            self._sever(found.way, up, down, noticed, back)

    def half_worker(self, which: int = 0) -> None:
        """The link of a worker carries nothing any more, and neither end has seen it."""
        found = self._far_worker(which)
        if found is not None:
            self._half(found.way)

    def sever_beats(self, which: int = 0, back: float = 0.0) -> None:
        """The link breaks that a worker's beats come by."""
        found = self._far_worker(which)
        if found is not None and found.beats is not None:
            self._sever(found.beats.way, 0, 0, True, back)

    def mute(self, which: int = 0, beats: bool = False) -> None:
        """A worker is not heard of for a while, or is again."""
        found = self._far_worker(which)
        if found is not None and found.beats is not None:
            found.beats.mute = not beats

    def freeze(self, which: int = 0) -> None:
        """The machine of a worker is stopped: what it was about to say waits."""
        found = self._far_worker(which)
        if found is not None and found.beats is not None:
            found.frozen = found.beats.mute = True
            if found.way.wire is not None:
                found.way.wire.hold = found.way.wire.other.hold = True

    def thaw(self, which: int = 0) -> None:
        """It goes on as if nothing had happened."""
        frozen = [each for each in self.world.workers if isinstance(each, FarWorker) and each.frozen]
        if frozen:
            self.world.thaw(frozen[which % len(frozen)])

    def die(self, which: int = 0, told: bool = False, noticed: bool = True) -> None:
        """The process of a worker dies."""
        found = self._far_worker(which)
        if found is not None:
            self.world.ended(found, lost=True, told=told, noticed=noticed)

    def drain_far(self, client: int = 0, which: int = 0) -> None:
        """An operator asks a worker to take nothing more."""
        found = self._far_worker(which)
        if found is not None:
            program = self.world.client(client)
            self.ask(program, "admin", m.DrainWorker(program.hand.client.number(), text_of(found.id)))

    def remove_far(self, client: int = 0, which: int = 0) -> None:
        """An operator ends a worker."""
        found = self._far_worker(which)
        if found is not None:
            program = self.world.client(client)
            self.ask(program, "admin", m.RemoveWorker(program.hand.client.number(), text_of(found.id)))

    # heads

    def deaf(self, seconds: float = 40.0) -> None:
        """The head's process is stopped for a while."""
        self.world.stalled = False
        self.world.deaf(seconds)

    def takeover(self) -> None:
        """Another process opens the store."""
        self.world.takeover()

    def see(self) -> None:
        """A head that was superseded finds out."""
        for former in list(self.world.former):
            former.see()
