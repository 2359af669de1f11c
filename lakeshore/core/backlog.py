"""What is queued in one queue, and when each becomes claimable or expires. Pure."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from .actor import NEVER
from .entry import Entry
from .orders import Order

_SLACK = 1024  # what a heap may hold beside what lives
_BLOCK = 10  # places are counted in blocks of 2**10


class Backlog:
    """Queued entries by place: claimable, or waiting for a time.

    What is claimable is in the order, or apart: in the line of its function, an order too, because
    a worker that is here can't find that function. So that worker does not pass it over each time.

    Args:
        make: makes an empty order.
    """

    def __init__(self, make: Callable[[], Order]) -> None:
        self._make = make
        self._order = make()
        self._lines: dict[str, Order] = {}
        self._apart: dict[int, str] = {}  # whose line an entry is in
        self._claimable: dict[int, Entry] = {}  # in the order or apart
        self._delayed: dict[int, Entry] = {}
        self._blocks: defaultdict[int, int] = defaultdict(int)  # how many of each block of places are here
        self._ready_heap: list[tuple[float, int]] = []
        self._expiry_heap: list[tuple[float, int]] = []
        self.bytes = 0
        self.retrying = 0

    def __len__(self) -> int:
        return len(self._claimable) + len(self._delayed)

    def __iter__(self) -> Iterator[Entry]:
        return chain(self._claimable.values(), self._delayed.values())

    @property
    def claimable(self) -> int:
        """How many could be handed out now, by a worker that finds their functions."""
        return len(self._claimable)

    @property
    def in_order(self) -> int:
        """How many of them are in the order."""
        return len(self._order)

    @property
    def apart(self) -> Collection[str]:
        """The functions some of whose entries are apart."""
        return self._lines.keys()

    @property
    def due(self) -> float:
        """When `tick` has something to do."""
        ready = self._ready_heap[0][0] if self._ready_heap else NEVER
        expiry = self._expiry_heap[0][0] if self._expiry_heap else NEVER
        return min(ready, expiry)

    def add(self, entry: Entry, now: float, apart: str = "") -> None:
        """Queue an entry: claimable at `entry.ready_at`, gone at `entry.expires_at`. `apart`: in the
        line of that function."""
        self.bytes += entry.args_size
        self._blocks[entry.place >> _BLOCK] += 1
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
            if apart:
                self._push_apart(entry, apart)
            else:
                self._order.push(entry.place, entry.priority)

    def pop(self) -> Entry | None:
        """The next one of the order, removed."""
        place = self._order.pop()
        if place is None:
            return None
        entry = self._claimable.pop(place)
        self._left(entry)
        return entry

    def pop_any(self) -> Entry | None:
        """Any one, removed; fast also where all are taken out this way."""
        if len(self._order):
            return self.pop()
        if self._lines:
            self.bring((next(reversed(self._lines)),), 1)
            return self.pop()
        if not self._delayed:
            return None
        _, entry = self._delayed.popitem()
        self.retrying -= entry.retrying
        self._left(entry)
        return entry

    def remove(self, entry: Entry) -> None:
        """Take out an entry wherever it is."""
        place = entry.place
        if self._claimable.pop(place, None) is None:
            del self._delayed[place]
            self.retrying -= entry.retrying
        elif (key := self._apart.pop(place, "")) == "":
            self._order.discard(place, entry.priority)
        else:
            self._lines[key].discard(place, entry.priority)
            self._close_line(key)
        self._left(entry)

    def _left(self, entry: Entry) -> None:
        self.bytes -= entry.args_size
        block = entry.place >> _BLOCK
        if (left := self._blocks[block] - 1) > 0:
            self._blocks[block] = left
        else:
            del self._blocks[block]

    def oldest(self) -> Entry | None:
        """The one that was admitted first."""
        if not self._blocks:
            return None
        first = min(self._blocks) << _BLOCK  # one block for each thousand or so that were admitted
        for place in range(first, first + (1 << _BLOCK)):
            entry = self._claimable.get(place) or self._delayed.get(place)
            if entry is not None:
                return entry
        return None

    def is_claimable(self, entry: Entry) -> bool:
        """Whether it could be handed out now."""
        return entry.place in self._claimable

    def set_apart(self, entry: Entry, key: str) -> None:
        """Put an entry that was just popped into the line of its function."""
        self.bytes += entry.args_size
        self._blocks[entry.place >> _BLOCK] += 1
        self._claimable[entry.place] = entry
        self._push_apart(entry, key)

    def bring(self, keys: Iterable[str], limit: int) -> None:
        """Put the first `limit` of each of these lines back into the order, so that the next `limit`
        to be popped are those that come first in all.

        (Where the order draws, an entry is drawn in its line first. A long line counts for less then.)
        """
        for key in keys:
            line = self._lines[key]
            for _ in range(min(limit, len(line))):
                place = line.pop()
                if place is not None:
                    del self._apart[place]
                    self._order.push(place, self._claimable[place].priority)
            self._close_line(key)

    def _push_apart(self, entry: Entry, key: str) -> None:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._make()
        line.push(entry.place, entry.priority)
        self._apart[entry.place] = key

    def _close_line(self, key: str) -> None:
        if not len(self._lines[key]):
            del self._lines[key]

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
            entry = self._claimable.get(place) or self._delayed.get(place)
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
