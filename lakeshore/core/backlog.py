"""What is queued in one queue, and when each becomes claimable or expires. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import chain

from .actor import NEVER
from .entry import Entry
from .orders import Order

_SLACK = 1024  # what a heap may hold beside what lives


class Backlog:
    """Queued entries by place: in the order, waiting for a time, or stuck without a worker."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._claimable: dict[int, Entry] = {}
        self._delayed: dict[int, Entry] = {}
        self._stuck: dict[int, Entry] = {}
        self._ready_heap: list[tuple[float, int]] = []
        self._expiry_heap: list[tuple[float, int]] = []
        self.bytes = 0
        self.retrying = 0

    def __len__(self) -> int:
        return len(self._claimable) + len(self._delayed) + len(self._stuck)

    def __iter__(self) -> Iterator[Entry]:
        return chain(self._claimable.values(), self._delayed.values(), self._stuck.values())

    @property
    def claimable(self) -> int:
        """How many could be handed out now."""
        return len(self._claimable)

    @property
    def due(self) -> float:
        """When `tick` has something to do."""
        ready = self._ready_heap[0][0] if self._ready_heap else NEVER
        expiry = self._expiry_heap[0][0] if self._expiry_heap else NEVER
        return min(ready, expiry)

    def add(self, entry: Entry, now: float) -> None:
        """Queue an entry: claimable at `entry.ready_at`, gone at `entry.expires_at`."""
        self.bytes += entry.args_size
        self._expire(entry)
        if entry.ready_at > now:
            self._delayed[entry.place] = entry
            self.retrying += entry.retrying
            heapq.heappush(self._ready_heap, (entry.ready_at, entry.place))
            if len(self._ready_heap) > 2 * len(self._delayed) + _SLACK:
                self._ready_heap = [(e.ready_at, e.place) for e in self._delayed.values()]
                heapq.heapify(self._ready_heap)
        else:
            self._claimable[entry.place] = entry
            self._order.push(entry.place, entry.priority)

    def pop(self) -> Entry | None:
        """The next one, removed."""
        place = self._order.pop()
        if place is None:
            return None
        entry = self._claimable.pop(place)
        self.bytes -= entry.args_size
        return entry

    def remove(self, entry: Entry) -> None:
        """Take out an entry wherever it is."""
        place = entry.place
        if self._claimable.pop(place, None) is not None:
            self._order.discard(place, entry.priority)
        elif self._delayed.pop(place, None) is not None:
            self.retrying -= entry.retrying
        else:
            del self._stuck[place]
        self.bytes -= entry.args_size

    def is_claimable(self, entry: Entry) -> bool:
        """Whether it could be handed out now."""
        return entry.place in self._claimable

    def is_stuck(self, entry: Entry) -> bool:
        """Whether no worker can find its function."""
        return entry.place in self._stuck

    def set_aside(self, entry: Entry) -> None:
        """Keep a popped entry out of the order: no worker that is here can run it."""
        self.bytes += entry.args_size
        self._expire(entry)
        self._stuck[entry.place] = entry

    def unstick(self, limit: int = 1000) -> int:
        """Put up to `limit` stuck entries back into the order; how many remain stuck."""
        for place in [place for place, _ in zip(self._stuck, range(limit), strict=False)]:
            entry = self._stuck.pop(place)
            self._claimable[place] = entry
            self._order.push(place, entry.priority)
        return len(self._stuck)

    def tick(self, now: float, limit: int = 1000) -> tuple[list[Entry], list[Entry]]:
        """Entries that became claimable, and entries that expired (taken out), at most `limit` each."""
        ready: list[Entry] = []
        while self._ready_heap and self._ready_heap[0][0] <= now and len(ready) < limit:
            when, place = heapq.heappop(self._ready_heap)
            entry = self._delayed.get(place)
            if entry is None or entry.ready_at != when:
                continue
            del self._delayed[place]
            self.retrying -= entry.retrying
            entry.retrying = False
            self._claimable[place] = entry
            self._order.push(place, entry.priority)
            ready.append(entry)
        expired: list[Entry] = []
        while self._expiry_heap and self._expiry_heap[0][0] <= now and len(expired) < limit:
            when, place = heapq.heappop(self._expiry_heap)
            entry = self._claimable.get(place) or self._delayed.get(place) or self._stuck.get(place)
            if entry is not None and entry.expires_at == when:
                self.remove(entry)
                expired.append(entry)
        return ready, expired

    def _expire(self, entry: Entry) -> None:
        if entry.expires_at == NEVER:
            return
        heapq.heappush(self._expiry_heap, (entry.expires_at, entry.place))
        if len(self._expiry_heap) > 2 * len(self) + _SLACK:  # most have left before their time
            live = {(e.expires_at, e.place) for e in self if e.expires_at != NEVER}
            self._expiry_heap = sorted(live | {(entry.expires_at, entry.place)})
