"""Whether the worker of a member is there: its lease, and how it comes back after a broken link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from .actor import NEVER
from .leases import AWAY, TICK, Leases
from .line import Line
from .messages import Anew, Hello, PleaseDrain, Registered, Serving, Stop
from .notes import Attach, Attached, Dead, Overdue, Parted, Resumed, Returned
from .ports import Outlet

if TYPE_CHECKING:
    from .member import Member

_SOON = 1e-6  # seconds that are no time at all


class Presence:
    """The part of a member whose worker is in another process; runs in its turns.

    Without a link the worker keeps what it was granted and is granted nothing more. It comes back with
    the attempts that it holds, or is lost.
    """

    def __init__(self, member: Member, leases: Leases, wire: Outlet | None) -> None:
        self.member, self.engine, self.leases = member, member.engine, leases
        self.line = Line(member.grants)
        self.line.turn_to(wire)
        self._unconfirmed = wire is None  # what it holds is known only from the store
        self._parted_at = self._died_at = NEVER
        self._death = ""
        member.away = wire is None
        member.handlers |= {
            Attach: self.on_attach,
            Attached: self.on_attached,
            Parted: self.on_parted,
            Overdue: self.on_overdue,
            Dead: self.on_dead,
        }

    def begin(self) -> None:
        """It is bound to its queues."""
        self.engine.tell(self.member, Overdue() if self._unconfirmed else Attached())

    def beat(self) -> None:
        """The worker's process lives, whether or not it has a link just now."""
        self.member.heard = self.engine.monotonic()
        self._parted_at = NEVER

    # coming back

    def on_attach(self, message: Attach, sender: Any) -> None:
        """It has registered again, perhaps before the end of its old link was seen."""
        member = self.member
        if member.gone:
            self.engine.emit(message.wire, Anew("it left, or was lost, just when it came back"))
            return
        member.heard, self._parted_at = self.engine.now, NEVER
        member.away = False
        self.line.turn_to(message.wire)
        member.forget_bodies()  # one that came with a grant may be lost
        self._reconcile(message.hello)
        self._greet(message.hello)
        self.engine.touch(member)
        self.engine.tell(member, Attached())

    def _reconcile(self, hello: Hello) -> None:
        """What it holds goes on, what it has lost goes back, what is not its own it has to stop."""
        member, held = self.member, {(each.id, each.attempt) for each in hello.held}
        for id, (queue, attempt) in list(member.grants.items()):
            if (id, attempt) in held:
                held.discard((id, attempt))
                self.engine.tell(queue, Resumed(id, attempt), member)
            elif self.line.has_sent(id, attempt):
                member.take_back(id)
                reason = "its worker came back without it"
                self.engine.tell(queue, Returned(id, attempt, reason), member)
        for each in hello.held:
            if (each.id, each.attempt) in held:
                self.engine.emit(member.wire, Stop(each.id, each.attempt, "stale"))

    def _greet(self, hello: Hello) -> None:
        """Take up what it says of itself; which queues it serves is known better here."""
        member, known = self.member, self.member.hello
        limit = known.limit
        if self._unconfirmed:
            self._unconfirmed, limit = False, hello.limit
            member.count_taken()
        if hello.queues != known.queues:
            self.engine.emit(member.wire, Serving(known.queues))
        member.hello = msgspec.structs.replace(
            hello, queues=known.queues, follow_all=known.follow_all, limit=limit, held=()
        )

    def on_attached(self, message: Attached, sender: Any) -> None:
        """Its queues have answered: it may go on."""
        member = self.member
        if member.gone or member.away:
            return
        missing = tuple(name for name in member.hello.queues if name not in member.space.queues)
        self.engine.emit(member.wire, Registered(self.leases.lease, missing))
        if member.draining:
            self.engine.emit(member.wire, PleaseDrain())
        self._look()
        member.go_on()

    # going

    def on_parted(self, message: Parted, sender: Any) -> None:
        """A link is closed. That of an earlier attachment means nothing."""
        member = self.member
        if member.gone or message.wire is not self.line.wire:
            return
        self.line.turn_to(None)
        member.away, self._parted_at = True, self.engine.now
        member.take_back_unsent()
        if self._death:
            member.leave(self._death, lost=True)
        else:
            self._look()

    def on_dead(self, message: Dead, sender: Any) -> None:
        """Its process has ended; what it sent before that is read first."""
        self._death, self._died_at = message.reason, self.engine.now
        if self.member.away:
            self.member.leave(self._death, lost=True)
        else:
            self._look()

    def on_overdue(self, message: Overdue, sender: Any) -> None:
        """Its time may be over."""
        self._look()

    def _look(self) -> None:
        if self.member.gone:
            return
        left, reason = min(self._ends())
        if left <= _SOON:
            self.member.leave(reason, lost=True)
        elif left != NEVER:
            self.leases.watch(self.member, left)

    def _ends(self) -> list[tuple[float, str]]:
        """In how many seconds it is lost, and why. One that is in this very process may be silent."""
        silence, lease = self.leases.silence, self.leases.lease
        ends = [(NEVER, "")]
        if not self.member.hello.near:
            ends.append((lease + TICK - silence(self.member.heard), f"it was not heard of for {lease:g} s"))
        if self.member.hello.near and not self.member.away:
            ends = [(NEVER, "")]
        if self._parted_at != NEVER:
            reason = f"its connection closed and it did not come back within {AWAY:g} s"
            ends.append((AWAY + TICK - silence(self._parted_at), reason))
        if self._death:
            ends.append((TICK - silence(self._died_at), self._death))
        return ends
