"""Links between processes: they are slow, they break anywhere, and either end may see that late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


class Wire:
    """One end of such a link, as a head's reception and a session at the other end know it.

    Attributes:
        hold: what this end sends waits until `deliver`.
        over: called once when this end is closed, by whomever.
        watch: called with everything this end sends, whether or not it arrives.
        passing: called with everything that arrives from this end, before it is received.
        sent: what is on its way from this end.
    """

    def __init__(self) -> None:
        self.limit = 1 << 30
        self.lost_reason, self.peer = "", "far:1"
        self.pending = 0
        self.on_full: Callable[[], None] = lambda: None
        self.on_drained: Callable[[], None] = lambda: None
        self.receive: Callable[[Any], None] = lambda message: None
        self.closed: Callable[[], None] = lambda: None
        self.over: Callable[[], None] = lambda: None
        self.watch: Callable[[Any], None] = lambda message: None
        self.passing: Callable[[Any], None] = lambda message: None
        self.hold = False
        self.sent: deque[Any] = deque()
        self.open = True
        self.broken = False
        self.other: Wire

    def send(self, message: Any, /) -> None:
        """Hand over, or hold; on a link that is broken, lose."""
        if not self.open:
            return
        self.watch(message)
        if not self.broken:
            self.sent.append(message)
            if not self.hold:
                self.deliver()

    def deliver(self, count: int | None = None) -> int:
        """Let messages arrive, in order; how many. Whoever has closed is heard to its last one."""
        delivered = 0
        while self.sent and self.other.open and delivered != count:
            delivered += 1
            message = self.sent.popleft()
            self.passing(message)
            self.other.receive(message)
        if not (self.open or self.sent or self.broken):
            self.other.end()
        return delivered

    def close(self) -> None:
        """Send no more, and read no more; the other end is told behind what was sent."""
        if self.open:
            self._shut()
            self.other.sent.clear()
            if not self.hold:
                self.deliver()

    def abort(self, reason: str) -> None:
        """End at once, without sending what waits."""
        if self.open:
            self.lost_reason = reason
            self._shut()
            self.sent.clear()
            self.deliver()

    def end(self) -> None:
        """This end sees that the link is over."""
        if self.open:
            self._shut()
            self.sent.clear()
            self.closed()

    def _shut(self) -> None:
        self.open = False
        self.over()

    def snap(self) -> None:
        """The link breaks: nothing more sets out from either end, and nobody has seen it yet."""
        self.broken = self.other.broken = True
        self.hold = self.other.hold = True

    def cut(self) -> None:
        """What is on its way is lost, and the other end sees that the link is over."""
        self.snap()
        self.sent.clear()
        self.other.end()
        self.end()


def wires() -> tuple[Wire, Wire]:
    """The far end, and the head's."""
    far, near = Wire(), Wire()
    far.other, near.other = near, far
    return far, near
