"""How those in other processes reach the simulated head: over wires, through its reception and its door."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from lakeshore.core import messages as m
from lakeshore.core.credit import Limits
from lakeshore.core.door import Door, hash_of
from lakeshore.core.guest import Nowhere
from lakeshore.core.reception import Reception

from .facts import Broken
from .wires import Wire, wires

if TYPE_CHECKING:
    from .world import World

TOKEN = "lks_machine"
_BACK = 1.0  # seconds until a party looks for another link, unless a step says otherwise
_BLAMED = ("Unauthorized", "Forbidden", "VersionMismatch", "BadRequest", "InternalError")


class Party(Protocol):
    """What a way links to the head. `revoked`: it has been shut out."""

    revoked: bool

    def linked(self, wire: Wire, welcome: m.Welcome) -> None:
        """There is a link."""
        ...

    def unlinked(self) -> None:
        """It is over."""
        ...

    def receive(self, message: Any) -> None:
        """Take one message."""
        ...

    def shut_out(self, why: m.Sorry) -> None:
        """There will be no other link."""
        ...

    def leaves(self, message: Any) -> None:
        """The head sends this."""
        ...

    def arrives(self, message: Any, near: Wire) -> None:
        """This is about to reach the head."""
        ...

    def parted(self, near: Wire) -> None:
        """The head sees the end of a link."""
        ...

    def misses(self, message: Any) -> None:
        """The head says this where nobody hears it."""
        ...

    def stale(self, message: Any) -> None:
        """A head that was superseded refuses this: it knows no better yet."""
        ...


class Gate:
    """The entrance of the head that there is now.

    Args:
        limits: what each guest may have unanswered.
    """

    def __init__(self, world: World, limits: Limits | None) -> None:
        self.world, self.limits = world, limits
        self.opened = 0  # how often: names the run of the head
        self.ways: list[Way] = []
        self.door: Door
        self.reception: Reception

    def open(self) -> None:
        """A head has started."""
        plane = self.world.plane
        self.opened += 1
        self.door = Door(
            plane.head,
            version="1",
            identity=self.opened.to_bytes(16, "big"),
            payload_limit=1 << 24,
            machine=hash_of(TOKEN),
            limits=self.limits,
        )
        office = plane.head.office
        office.on_removed = lambda token: self._revoke(self.door, token)
        self.reception = Reception(self.door, cast(Any, plane.clock))

    def _revoke(self, door: Door, token: bytes) -> None:
        for way in self.ways:
            if getattr(way.party, "token_id", b"") == token:
                way.party.shut = True  # type: ignore[attr-defined]
        door.revoke(token)

    def crash(self) -> None:
        """The head's process ends: every wire to it is cut."""
        for way in self.ways:
            nears, way.nears = way.nears, []
            for near in nears:
                near.closed = lambda: None
                near.other.cut()


class Way:
    """How one party comes to the head: over one wire after another.

    Attributes:
        wire: the far end of the newest, or None.
        seated: whether it was let in, and goes on.
        nears: the head's ends that are open.
        back: seconds until it looks for another link.
        slowly: what comes with a welcome is read before the party is told of it.
    """

    def __init__(self, gate: Gate, party: Party, knock: Callable[[], m.Knock]) -> None:
        self.gate, self.party, self.knock = gate, party, knock
        self.wire: Wire | None = None
        self.nears: list[Wire] = []
        self.seated = self.over = self.slowly = False
        self.back = _BACK
        self._welcome: tuple[Wire, m.Welcome] | None = None

    @property
    def settled(self) -> bool:
        """Whether it has a link, or needs none any more."""
        whole = self.wire is not None and not self.wire.broken
        return self.over or (self.seated and whole and len(self.nears) == 1)

    def dial(self) -> None:
        """Look for a link, unless there is one."""
        if self.wire is not None or self.over:
            return
        far, near = wires()
        self.wire = far
        if self not in self.gate.ways:
            self.gate.ways.append(self)
        self.nears.append(near)
        self.gate.world.links += [far, near]
        door = self.gate.door
        near.watch = lambda message: self._leaves(message, door)
        far.passing = lambda message: self._arrives(message, near, door)
        near.over = lambda: self._parted(near)
        far.receive = lambda message: self._first(far, message)
        far.closed = lambda: self._lost(far)
        self.gate.reception.came(cast(Any, near), trusted=False)
        far.send(self.knock())

    def leave(self) -> None:
        """No other link is looked for."""
        self.over = True
        if self in self.gate.ways:
            self.gate.ways.remove(self)

    def _leaves(self, message: Any, door: Door) -> None:
        if door.engine.ended:
            if not isinstance(message, m.Sorry):
                self._break(Broken("nothing leaves a head that was superseded", repr(message)))
        elif isinstance(message, m.Sorry):
            if message.kind in _BLAMED and not self.party.revoked:
                self._break(Broken("who does no harm is not cut", f"{message.kind}: {message.message}"))
        elif isinstance(message, m.Welcome):
            self._spy(door)
        else:
            try:
                if door is self.gate.door or not isinstance(message, m.Refusal | m.StreamGap):
                    self.party.leaves(message)
                else:
                    self.party.stale(message)
            except Broken as broken:
                self._break(broken)

    def _spy(self, door: Door) -> None:
        """Hear what its guest is told while it has no link."""
        session, near = self.knock().session, self.nears[-1]
        left = near.closed

        def closed() -> None:
            left()
            guest = door._sessions.get(session)  # pyright: ignore[reportPrivateUsage]
            if guest is not None and isinstance(guest.link, Nowhere):
                guest._send = self.party.misses  # pyright: ignore[reportPrivateUsage]

        near.closed = closed

    def _break(self, broken: Broken) -> None:
        """Keep it until the step is over: the reception would take it for a bug, and go on."""
        self.gate.world.broken = self.gate.world.broken or broken

    def _arrives(self, message: Any, near: Wire, door: Door) -> None:
        if door is self.gate.door and not isinstance(message, m.Knock):
            try:
                self.party.arrives(message, near)
            except Broken as broken:
                self._break(broken)

    def _parted(self, near: Wire) -> None:
        if near in self.nears:
            self.nears.remove(near)
        if not near.sent:
            self.gate.world.let_go(near)
        self.party.parted(near)

    def _first(self, wire: Wire, message: Any) -> None:
        if isinstance(message, m.Welcome):
            wire.receive = self._received
            self._welcome = (wire, message)
            if self.slowly:
                self.slowly = False
                self.gate.world.plane.clock.later(0.0, self.sit)
            else:
                self.sit()
        else:
            self._received(message)

    def sit(self) -> None:
        """Go on over the wire that it was let in by."""
        welcome, self._welcome = self._welcome, None
        if welcome is not None and welcome[0] is self.wire:
            self.seated = True
            self.party.linked(*welcome)

    def _received(self, message: Any) -> None:
        if not isinstance(message, m.Sorry):
            self.party.receive(message)
        elif message.retry_after is None:
            self.leave()
            self.party.shut_out(message)

    def _lost(self, wire: Wire) -> None:
        self.gate.world.let_go(wire)
        self.gate.world.let_go(wire.other)
        if wire is not self.wire:
            return
        self.wire = self._welcome = None
        seated, self.seated = self.seated, False
        if seated:
            self.party.unlinked()
        back, self.back = self.back, _BACK
        self.gate.world.plane.clock.later(back, self.dial)

    def sever(self, up: int, down: int) -> Wire | None:
        """The wire breaks, and this end sees it: so many messages on their way still arrive in each
        direction, those to the head perhaps later. The far end, whose other end has seen nothing."""
        wire = self.wire
        if wire is None:
            return None
        wire.other.deliver(down)
        if not wire.open:
            return None
        wire.snap()
        wire.other.sent.clear()
        late = list(wire.sent)[:up]
        wire.end()
        wire.sent.extend(late)
        return wire
