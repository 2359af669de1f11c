"""What is next in a queue. Pure: randomness is passed in.

A *place* is a number in [0, 2**64), given at admission, rising, unique in its queue. An invocation
that comes back is pushed with its old place and so keeps its place. After a restart, push in rising
order: it is correct in any order, and fastest in this one.

Discarding is lazy: an entry stays where it is, marked dead, until it comes up or is swept. When the
dead outnumber the living each discard sweeps a few entries, so no single call walks the queue. (Two
things are rebuilt at once, rarely: the heap of priorities, and places pushed out of order.)
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush
from math import exp, isfinite, log, log1p
from typing import Protocol, TypeVar

KINDS = ("fifo", "filo", "priority", "boltzmann")

_SLACK = 64  # dead entries that are never worth a sweep
_SWEEP = 4  # entries looked at per discard while sweeping: more than one, so a sweep ends
_FEW = 16  # places of one priority that a plain list holds better than a `Fifo`

_PLACE_BITS = 64
_PLACE_MASK = (1 << _PLACE_BITS) - 1
_UNIT = 2.0**64  # clocks are fixed point: integers never swallow a small step
_BAND = 16  # width of a band of weights, in nats: weights of one differ by at most e**16
_REACH = 3  # bands this far below the heaviest still count; a place further down wins once in e**48 draws
_EXTREME = 1e15  # beyond this, priority / temperature has no fraction left


class Order(Protocol):
    """The places of one queue, and which is next.

    The caller keeps the membership: it pushes only what is not in, and discards only what is in,
    with the priority it was pushed with. Priorities are finite.
    """

    def push(self, place: int, priority: float) -> None:
        """Put a place in, new or come back."""
        ...

    def pop(self) -> int | None:
        """Remove the next place and return it; None when empty."""
        ...

    def discard(self, place: int, priority: float) -> None:
        """Take a place out wherever it is. It may be pushed again."""
        ...

    def __len__(self) -> int:
        """How many places are in, exactly."""
        ...


def make_order(kind: str, *, temperature: float = 1.0, uniform: Callable[[], float] | None = None) -> Order:
    """An empty order.

    Args:
        kind: `fifo` (lowest place first), `filo` (highest place first), `priority` (highest
            priority first, lowest place among equals) or `boltzmann` (each pop is a draw over
            everything in, with weight exp(priority / temperature)).
        temperature: of `boltzmann`, in units of priority, >= 0; 0 is the same as `priority`.
        uniform: gives uniform numbers in [0, 1); `boltzmann` above temperature 0 needs it.

    Raises: ValueError for another kind, a temperature that is negative or not finite, and
        `boltzmann` without `uniform`.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: choose one of {', '.join(KINDS)}")
    if not (isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature={temperature}: choose 0 (highest priority first) or a number above it")
    if kind == "fifo":
        return Fifo()
    if kind == "filo":
        return Filo()
    if kind == "priority" or temperature == 0:
        return Priority()
    if uniform is None:
        raise ValueError("a boltzmann order draws: pass uniform=, for example random.Random(seed).random")
    return Boltzmann(temperature, uniform)


class _Line:
    """Places in order of admission, in `_swept` and then `_line`, and those out of order in `_back`.

    `_line` is empty only where `_swept` is. A place in `_dead` is still stored, once.
    """

    __slots__ = ("_back", "_dead", "_line", "_swept")
    _sign = 1  # `_back` is a heap of sign * place

    def __init__(self) -> None:
        self._line: deque[int] = deque()
        self._swept: deque[int] = deque()
        self._back: list[int] = []
        self._dead: set[int] = set()

    def __len__(self) -> int:
        return len(self._line) + len(self._swept) + len(self._back) - len(self._dead)

    def push(self, place: int, priority: float = 0.0) -> None:
        if self._dead and place in self._dead:
            self._dead.remove(place)  # it lives again where it always was
        elif not self._line or place > self._line[-1]:
            self._line.append(place)
        else:
            heappush(self._back, self._sign * place)

    def discard(self, place: int, priority: float = 0.0) -> None:
        self._dead.add(place)
        if (living := len(self)) == 0:
            self._clear()
        elif len(self._dead) > living + _SLACK:
            self._sweep()

    def _clear(self) -> None:
        """Nothing lives: let go of the dead."""
        for store in (self._line, self._swept, self._back, self._dead):
            store.clear()

    def _sweep(self) -> None:
        line, dead = self._line, self._dead
        for _ in range(min(_SWEEP, len(line))):
            place = line.popleft()
            if place in dead:
                dead.remove(place)
            else:
                self._swept.append(place)
        if not line:  # once a round; few places are ever out of order
            self._turn()
            alive = [entry for entry in self._back if self._sign * entry not in dead]
            dead.difference_update(self._sign * entry for entry in self._back)
            self._back = alive
            heapify(alive)

    def _turn(self) -> None:
        self._line, self._swept = self._swept, self._line


class Fifo(_Line):
    """Lowest place first."""

    __slots__ = ()

    def pop(self) -> int | None:
        if not (self._dead or self._back or self._swept):
            return self._line.popleft() if self._line else None
        while True:
            line, back = self._swept or self._line, self._back
            first = line and not (back and back[0] < line[0])
            place = line.popleft() if first else heappop(back)  # one lives: the last takes the dead along
            if place not in self._dead:
                if self._dead and not len(self):
                    self._clear()
                return place
            self._dead.remove(place)


class Filo(_Line):
    """Highest place first."""

    __slots__ = ()
    _sign = -1

    def pop(self) -> int | None:
        while True:
            line, back = self._line, self._back
            if line and not (back and -back[0] > line[-1]):
                place = line.pop()
                if not line:
                    self._turn()
            elif back:
                place = -heappop(back)
            else:
                return None
            if place not in self._dead:
                if self._dead and not len(self):
                    self._clear()
                return place
            self._dead.remove(place)


class Priority:
    """Highest priority first, lowest place among equals.

    One level a priority, under minus the priority: a sorted list while small, a `Fifo` from then
    on. A million places of few priorities pop in O(1), of distinct ones in O(log n).
    """

    __slots__ = ("_heap", "_levels", "_size")

    def __init__(self) -> None:
        self._levels: dict[float, list[int] | Fifo] = {}
        self._heap: list[float] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, place: int, priority: float) -> None:
        level = self._levels.get(-priority)
        if level is None:
            self._levels[-priority] = [place]
            _enter(self._heap, -priority, self._levels)
        elif not isinstance(level, list):
            level.push(place)
        elif len(level) < _FEW:
            insort(level, place)
        else:
            self._levels[-priority] = fifo = Fifo()
            for earlier in level:
                fifo.push(earlier)
            fifo.push(place)
        self._size += 1

    def pop(self) -> int | None:
        key = _lowest(self._heap, self._levels)
        if key is None:
            return None
        level = self._levels[key]
        place = level.pop(0) if isinstance(level, list) else level.pop()
        if not level:
            del self._levels[key]
        self._size -= 1
        return place

    def discard(self, place: int, priority: float) -> None:
        level = self._levels[-priority]
        if isinstance(level, list):
            level.remove(place)
        else:
            level.discard(place)
        if not level:
            del self._levels[-priority]
        self._size -= 1


class Boltzmann:
    """Each pop draws from everything in, with weight exp(priority / temperature).

    An exponential race with a virtual clock: a place comes in with the key clock + Exp(1) / weight,
    the smallest key is popped and the clock becomes that key. Exponentials have no memory, so what
    is left of each key stays Exp(1) / weight whatever came, went or came back in between, and each
    pop is an exact draw. Keys drawn once a submit, without a clock, favour whoever came late.

    Weights may differ by more than a float can add. So places race in bands of similar weight, each
    with its own clock and unit of time: e**(-16 * band). Of the bands' leaders the first in common
    time wins, and the other clocks move on by the same time.

    Source: the superposition and memorylessness of Poisson processes; as a sampler, P. Efraimidis
    and P. Spirakis, "Weighted random sampling with a reservoir", Inf. Proc. Letters 97(5), 2006.
    """

    __slots__ = ("_heap", "_races", "_size", "_temperature", "_uniform")

    def __init__(self, temperature: float, uniform: Callable[[], float]) -> None:
        self._temperature, self._uniform = temperature, uniform
        self._races: dict[int, _Race] = {}  # by minus the band
        self._heap: list[int] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, place: int, priority: float) -> None:
        key, scale = self._locate(priority)
        race = self._races.get(key)
        if race is None:
            race = self._races[key] = _Race()
            _enter(self._heap, key, self._races)
        race.push(place, int(-log1p(-self._uniform()) * scale * _UNIT))
        self._size += 1

    def pop(self) -> int | None:
        best = _lowest(self._heap, self._races)
        if best is None:
            return None
        races = self._races
        if len(races) > 1:
            best = self._run(best)
        place = races[best].pop()
        if not len(races[best]):
            del races[best]
        self._size -= 1
        return place

    def discard(self, place: int, priority: float) -> None:
        key, _ = self._locate(priority)
        race = self._races[key]
        race.discard(place)
        if not len(race):
            del self._races[key]
        self._size -= 1

    def _locate(self, priority: float) -> tuple[int, float]:
        """Minus the band, and the mean time to win in the band's unit, e**-8 to e**8."""
        nats = max(-_EXTREME, min(_EXTREME, priority / self._temperature))
        band = round(nats / _BAND)
        return -band, exp(_BAND * band - nats)

    def _run(self, first: int) -> int:
        """Let the bands race: minus the band that wins, the clocks of the others moved on.

        Times are compared as logarithms, in which the units of all bands fit.
        """
        near = [(key, race) for key in range(first, first + _REACH + 1) if (race := self._races.get(key))]
        if len(near) == 1:
            return first
        time, best = min((log(race.left()) + _BAND * key, key) for key, race in near)
        for key, race in near:
            if key != best:
                race.clock += int(exp(time - _BAND * key))
        return best


class _Race:
    """An exponential race of one band. An entry is key << 64 | place, a key is clock + draw.

    `_dead` has, for each place with stale entries, its live entry if it has one, and their number.
    """

    __slots__ = ("_dead", "_heap", "_stale", "_swept", "clock")

    def __init__(self) -> None:
        self.clock = 0
        self._heap: list[int] = []
        self._swept: list[int] = []  # a heap too
        self._dead: dict[int, tuple[int | None, int]] = {}
        self._stale = 0

    def __len__(self) -> int:
        return len(self._heap) + len(self._swept) - self._stale

    def push(self, place: int, draw: int) -> None:
        entry = (self.clock + draw) << _PLACE_BITS | place
        heappush(self._heap, entry)
        if self._dead and place in self._dead:
            self._dead[place] = (entry, self._dead[place][1])

    def left(self) -> int:
        """How long the leader still runs, at least 1. Only where one is in."""
        return max(1, (self._leader()[0] >> _PLACE_BITS) - self.clock)

    def pop(self) -> int:
        """The leader, whose key the clock becomes. Only where one is in."""
        entry = heappop(self._leader())
        self.clock = entry >> _PLACE_BITS
        place = entry & _PLACE_MASK
        if self._dead and place in self._dead:
            self._dead[place] = (None, self._dead[place][1])
        return place

    def discard(self, place: int) -> None:
        _, stale = self._dead.get(place, (None, 0))
        self._dead[place] = (None, stale + 1)
        self._stale += 1
        if self._stale > len(self) + _SLACK:
            self._sweep()

    def _leader(self) -> list[int]:
        """The heap whose top is the live entry with the smallest key."""
        heap, swept = self._heap, self._swept
        if self._dead:
            for some in (heap, swept):
                while some and self._drop(some[0]):
                    heappop(some)
        return swept if swept and not (heap and heap[0] < swept[0]) else heap

    def _drop(self, entry: int) -> bool:
        """Whether an entry is stale; if so it is counted out, and the caller removes it."""
        place = entry & _PLACE_MASK
        found = self._dead.get(place)
        if found is None or found[0] == entry:
            return False
        live, stale = found
        if stale > 1:
            self._dead[place] = (live, stale - 1)
        else:
            del self._dead[place]
        self._stale -= 1
        return True

    def _sweep(self) -> None:
        heap = self._heap
        for _ in range(min(_SWEEP, len(heap))):
            entry = heap.pop()  # the last leaf: what is left is a heap still
            if not self._drop(entry):
                heappush(self._swept, entry)
        if not heap:
            self._heap, self._swept = self._swept, heap


_K = TypeVar("_K", int, float)


def _enter(heap: list[_K], key: _K, groups: Collection[_K]) -> None:
    """Push the key of a new group. Keys of groups that are gone stay until `_lowest` meets them,
    or until they outnumber the groups."""
    heappush(heap, key)
    if len(heap) > 2 * len(groups) + _SLACK:
        heap[:] = groups
        heapify(heap)


def _lowest(heap: list[_K], groups: Collection[_K]) -> _K | None:
    """The lowest key that has a group, left on top of the heap."""
    while heap and heap[0] not in groups:
        heappop(heap)
    return heap[0] if heap else None
