"""What is queued in one queue, and when each becomes claimable or expires. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain
from typing import Any

from .actor import NEVER
from .entry import Entry
from .orders import Order

_SLACK = 1024  # what a heap may hold beside what lives
_BITS, _SIZE, _MASK = 6, 64, 63  # of a block of places
_EMPTY: list[Any] = [None] * _SIZE


class Blocks:
    """Entries by place, in lists of 64 neighbours: a tenth of what a dict takes, as places are dense."""

    __slots__ = ("_blocks", "_count")

    def __init__(self) -> None:
        self._blocks: dict[int, list[Any]] = {}  # 64 entries or None, then how many are not None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, place: int) -> bool:
        return self.get(place) is not None

    def __iter__(self) -> Iterator[Entry]:
        for block in self._blocks.values():
            yield from [entry for entry in block[:_SIZE] if entry is not None]

    def get(self, place: int) -> Entry | None:
        """The entry at a place."""
        block = self._blocks.get(place >> _BITS)
        return None if block is None else block[place & _MASK]

    def put(self, entry: Entry) -> None:
        """An entry, at its place, where none is."""
        number = entry.place >> _BITS
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = [*_EMPTY, 0]
        block[entry.place & _MASK] = entry
        block[_SIZE] += 1
        self._count += 1

    def take(self, place: int) -> Entry | None:
        """Remove the entry at a place, if one is there."""
        number = place >> _BITS
        block = self._blocks.get(number)
        if block is None:
            return None
        entry = block[place & _MASK]
        if entry is not None:
            block[place & _MASK] = None
            block[_SIZE] -= 1
            self._count -= 1
            if not block[_SIZE]:
                del self._blocks[number]
        return entry

    def below(self, place: int) -> int:
        """How many are at lower places. Looks at a number for each 64 entries."""
        number = place >> _BITS
        count = sum(block[_SIZE] for key, block in self._blocks.items() if key < number)
        own = self._blocks.get(number, _EMPTY)
        return count + sum(entry is not None for entry in own[: place & _MASK])

    def first(self) -> Entry | None:
        """The entry with the lowest place. Looks at one place for each 64 entries, at the least."""
        if not self._blocks:
            return None
        return next(entry for entry in self._blocks[min(self._blocks)] if entry is not None)


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
        self._claimable = Blocks()  # in the order or apart
        self._delayed: dict[int, Entry] = {}
        self._ready_heap: list[tuple[float, int]] = []
        self._expiry_heap: list[tuple[float, int]] = []
        self.bytes = 0
        self.retrying = 0

    def __len__(self) -> int:
        return len(self._claimable) + len(self._delayed)

    def __iter__(self) -> Iterator[Entry]:
        return chain(self._claimable, self._delayed.values())

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
        self._expire(entry)
        if entry.ready_at <= now and not apart:
            self.push(entry)
            return
        self.bytes += entry.args_size
        if entry.ready_at > now:
            self._delayed[entry.place] = entry
            self.retrying += entry.retrying
            heapq.heappush(self._ready_heap, (entry.ready_at, entry.place))
            if len(self._ready_heap) > 2 * len(self._delayed) + _SLACK:
                self._ready_heap = [(e.ready_at, e.place) for e in self._delayed.values()]
                heapq.heapify(self._ready_heap)
        else:
            self._claimable.put(entry)
            self._push_apart(entry, apart)

    def push(self, entry: Entry) -> None:
        """Queue an entry that is claimable now and never expires."""
        self.bytes += entry.args_size
        self._claimable.put(entry)
        self._order.push(entry.place, entry.priority)

    def pop(self) -> Entry | None:
        """The next one of the order, removed."""
        place = self._order.pop()
        if place is None:
            return None
        entry = self._claimable.take(place)
        assert entry is not None
        self.bytes -= entry.args_size
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
        self.bytes -= entry.args_size
        return entry

    def remove(self, entry: Entry) -> None:
        """Take out an entry wherever it is."""
        place = entry.place
        self.bytes -= entry.args_size
        if self._claimable.take(place) is None:
            del self._delayed[place]
            self.retrying -= entry.retrying
        elif (key := self._apart.pop(place, "")) == "":
            self._order.discard(place, entry.priority)
        else:
            self._lines[key].discard(place, entry.priority)
            self._close_line(key)

    def oldest(self) -> Entry | None:
        """The one that was admitted first, of those that are claimable, else of those that are not."""
        return self._claimable.first() or self._delayed_first()

    def _delayed_first(self) -> Entry | None:
        return next(iter(self._delayed.values()), None)

    def is_claimable(self, entry: Entry) -> bool:
        """Whether it could be handed out now."""
        return entry.place in self._claimable

    def before(self, entry: Entry, kind: str, limit: int) -> int | None:
        """How many come before a claimable entry in an order that does not draw, but for those apart
        where it is not itself. None where more than `limit` would have to be looked at one by one."""
        place = entry.place
        apart = () if place in self._apart else self._apart
        if kind == "priority":
            if len(self._claimable) > limit:
                return None
            ahead = (-entry.priority, place)
            return sum((-e.priority, e.place) < ahead and e.place not in apart for e in self._claimable)
        lower = self._claimable.below(place)
        if kind == "filo":
            passed = sum(other > place for other in apart) if len(apart) <= limit else 0
            return len(self._claimable) - lower - 1 - passed
        return lower - (sum(other < place for other in apart) if len(apart) <= limit else 0)

    def set_apart(self, entry: Entry, key: str) -> None:
        """Put an entry that was just popped into the line of its function."""
        self.bytes += entry.args_size
        self._claimable.put(entry)
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
                    entry = self._claimable.get(place)
                    assert entry is not None
                    self._order.push(place, entry.priority)
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
            self._claimable.put(entry)
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
