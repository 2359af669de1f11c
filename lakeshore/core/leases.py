"""How long workers in other processes may be silent. Only time counts in which the head could listen.

The lease of a worker begins anew with whatever is heard of it. What its end means is the member's
matter; here is only the clock: one timer a namespace, for as many workers as there are.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any

from .actor import NEVER, Actor, Wake
from .engine import Engine
from .notes import Overdue

if TYPE_CHECKING:
    from .member import Member

TICK = 1.0  # seconds at most between two looks, and how long a worker is waited for beyond its lease
AWAY = 10.0  # seconds a worker may take to come back after its connection has closed
_LATE = 0.01  # seconds a look may be late without being called an absence
_ABSENCES = 256  # that are remembered: more than fit into a lease


class Leases(Actor):
    """Looks at each leased member when its time is over.

    A head that was stopped, asleep, or busy heard nobody meanwhile: the next look is late by as much,
    and that is taken off everybody's silence.

    Args:
        lease: seconds that a worker may be silent.
    """

    def __init__(self, engine: Engine, lease: float) -> None:
        super().__init__(engine)
        self.lease = lease
        self._heap: list[tuple[float, int, Member]] = []
        self._next: dict[Member, float] = {}  # when each is looked at; other entries of the heap are void
        self._count = 0
        self._expected = NEVER
        self._absences: deque[tuple[float, float]] = deque(maxlen=_ABSENCES)  # until when, and how long
        self.handlers |= {Wake: self._on_wake}

    def watch(self, member: Member, seconds: float) -> None:
        """Look at a member in so many seconds, if it is not to be looked at before."""
        when = self.engine.now + max(seconds, 0.0)
        if when < self._next.get(member, NEVER):
            self._next[member] = when
            self._count += 1
            heapq.heappush(self._heap, (when, self._count, member))
            self._arm()

    def forget(self, member: Member) -> None:
        """It is gone."""
        self._next.pop(member, None)

    def silence(self, since: float) -> float:
        """Seconds since then in which the head could listen."""
        silent = self.engine.now - since
        late = self.engine.now - self._expected
        if late > _LATE:  # it has just come back, and has not looked yet
            silent -= late
        for until, seconds in reversed(self._absences):
            if until <= since:
                break
            silent -= seconds
        return max(silent, 0.0)

    def _on_wake(self, message: Wake, sender: Any) -> None:
        now = self.engine.now
        if now - self._expected > _LATE:
            self._absences.append((now, now - self._expected))
        self._expected = NEVER
        heap = self._heap
        while heap and heap[0][0] <= now:
            when, _, member = heapq.heappop(heap)
            if self._next.get(member) == when:
                del self._next[member]
                self.engine.tell(member, Overdue())  # behind what was read before: that is heard first
        self._arm()

    def _arm(self) -> None:
        while self._heap and self._next.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        when = min(self._heap[0][0], self.engine.now + TICK)
        if when < self._expected:
            self._expected = when
            self.call_at(when)
