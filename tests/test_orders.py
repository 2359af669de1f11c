"""Every order against an obviously right model, and the law of the draws against the exact one."""

import random
from collections import Counter
from collections.abc import Callable
from math import exp, inf, log, sqrt
from statistics import NormalDist
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakeshore.core import orders
from lakeshore.core.orders import KINDS, Order, make_order

BEST: dict[str, Callable[[tuple[int, float]], Any]] = {
    "fifo": lambda entry: entry[0],
    "filo": lambda entry: -entry[0],
    "priority": lambda entry: (-entry[1], entry[0]),
}


def fresh(kind: str, seed: int = 1) -> Order:
    return make_order(kind, temperature=2.0, uniform=random.Random(seed).random)


def drained(order: Order) -> list[int]:
    return list(iter(order.pop, None))  # type: ignore[arg-type]


def stored(order: Any) -> int:
    """Entries anywhere inside, dead ones too."""
    match order:
        case orders.Priority():
            return len(order._heap) + sum(map(stored, order._levels.values()))
        case orders.Boltzmann():
            return len(order._heap) + sum(len(r._heap) + len(r._swept) for r in order._races.values())
        case list():
            return len(order)
        case _:
            return len(order._line) + len(order._swept) + len(order._back)


# ---- which one is next


class Twin:
    """An order beside a plain dict of what is in it; every pop is checked."""

    def __init__(self, kind: str) -> None:
        self.kind, self.order = kind, fresh(kind)
        self.model: dict[int, float] = {}
        self.out: dict[int, float] = {}

    def push(self, place: int, priority: float) -> None:
        assert place not in self.model
        self.out.pop(place, None)
        self.model[place] = priority
        self.order.push(place, priority)

    def pop(self) -> None:
        place = self.order.pop()
        if place is None:
            assert not self.model
            return
        if self.kind in BEST:
            assert place == min(self.model.items(), key=BEST[self.kind])[0]
        self.out[place] = self.model.pop(place)

    def discard(self, place: int) -> None:
        self.out[place] = self.model.pop(place)
        self.order.discard(place, self.out[place])


class Machine(RuleBasedStateMachine):
    kind = ""

    def __init__(self) -> None:
        super().__init__()
        self.twin, self.next = Twin(self.kind), 0

    @rule(priority=st.sampled_from([0.0, -0.0, 1.0, 2.5, -3.0, 40.0, 41.0]), gap=st.integers(1, 3))
    def admit(self, priority: float, gap: int) -> None:
        self.next += gap
        self.twin.push(self.next, priority)

    @rule()
    def pop(self) -> None:
        self.twin.pop()

    @precondition(lambda self: self.twin.model)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        self.twin.discard(data.draw(st.sampled_from(sorted(self.twin.model))))

    @precondition(lambda self: self.twin.out)
    @rule(data=st.data(), other=st.sampled_from([None, None, None, 1.0]))
    def come_back(self, data: st.DataObject, other: float | None) -> None:
        place = data.draw(st.sampled_from(sorted(self.twin.out)))
        self.twin.push(place, self.twin.out[place] if other is None else other)

    @invariant()
    def the_length_is_exact(self) -> None:
        assert len(self.twin.order) == len(self.twin.model)

    def teardown(self) -> None:
        for _ in range(len(self.twin.model) + 1):
            self.twin.pop()


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_pops_what_the_model_pops(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_SLACK", 0)  # sweep at once
    monkeypatch.setattr(orders, "_SWEEP", 1)
    monkeypatch.setattr(orders, "_FEW", 2)
    machine = type("Machine", (Machine,), {"kind": kind})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=25, stateful_step_count=40, deadline=None, derandomize=True, database=None
        ),
    )


@pytest.mark.parametrize("spread", [1, 5, 10**6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_walk_stays_right_and_small(kind: str, spread: int) -> None:
    rng, twin, top = random.Random(spread), Twin(kind), 0
    for step in range(3000):
        pushing = 0.6 if step % 1000 < 500 else 0.2
        if rng.random() < pushing:
            if twin.out and rng.random() < 0.5:
                place = rng.choice(list(twin.out)[-20:])
                twin.push(place, twin.out[place])
            else:
                top += 1
                twin.push(top, float(rng.randrange(spread)))
        elif rng.random() < 0.2:
            twin.pop()
        elif twin.model:
            twin.discard(rng.choice(list(twin.model)))
        assert len(twin.order) == len(twin.model)
        assert stored(twin.order) <= 6 * len(twin.model) + 4 * orders._SLACK + 8 * min(spread, 50)
    for _ in range(len(twin.model) + 1):
        twin.pop()


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_discarded_and_pushed_for_ever_takes_no_room(kind: str) -> None:
    order = fresh(kind)
    for place in range(10):
        order.push(place, 0.0)
    for turn in range(5000):
        order.discard(5, float(turn % 3) if turn else 0.0)
        order.push(5, float((turn + 1) % 3))
    assert stored(order) < 4 * orders._SLACK + 40
    assert sorted(drained(order)) == list(range(10))


@pytest.mark.parametrize("step", [1, -1], ids=["rising", "falling"])
@pytest.mark.parametrize("kind", KINDS)
def test_when_few_are_left_little_is_stored(kind: str, step: int) -> None:
    twin = Twin(kind)
    for place in range(5000)[::step]:
        twin.push(place, 1.0)
    for left, place in zip(range(4999, 49, -1), random.Random(5).sample(range(5000), 4950), strict=True):
        twin.discard(place)
        assert stored(twin.order) <= 4 * left + 4 * orders._SLACK
    for _ in range(51):
        twin.pop()


@pytest.mark.parametrize("kind", KINDS)
def test_all_discarded_is_empty(kind: str) -> None:
    order = fresh(kind)
    for place in range(1000):
        order.push(place, float(place % 7))
    for place in random.Random(3).sample(range(1000), 1000):
        order.discard(place, float(place % 7))
    assert (len(order), stored(order) <= orders._SLACK, order.pop()) == (0, True, None)


class Counted(int):
    """A place that counts how often an order looks at it."""

    looks = 0

    def _look(self, name: str, other: int) -> Any:
        Counted.looks += 1
        return getattr(int, name)(self, other)

    def __lt__(self, other: int) -> bool:
        return self._look("__lt__", other)

    def __gt__(self, other: int) -> bool:
        return self._look("__gt__", other)

    def __eq__(self, other: object) -> bool:
        return self._look("__eq__", other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        Counted.looks += 1
        return int.__hash__(self)


@pytest.mark.parametrize(("kind", "n"), [("fifo", 100_000), ("filo", 20_000), ("priority", 20_000)])
def test_no_call_walks_the_queue(kind: str, n: int) -> None:
    order, most, total, start = fresh(kind), 0, 0, Counted.looks
    places = [Counted(place) for place in range(n)]
    shuffled = random.Random(4).sample(places, n)
    calls: list[tuple[Callable[..., Any], list[Counted]]] = [
        (lambda place: order.push(place, 1.0), places),
        (lambda place: order.discard(place, 1.0), shuffled[: n * 3 // 4]),
        (lambda place: order.pop(), shuffled[n * 3 // 4 :]),
    ]
    for call, arguments in calls:
        for place in arguments:
            before = Counted.looks
            call(place)
            most = max(most, Counted.looks - before)
        total += len(arguments)
    assert (len(order), total) == (0, 2 * n)
    assert most <= 64  # a run of dead ones before the next living
    assert Counted.looks - start <= 8 * total


# ---- the law of the draws

Step = tuple[Any, ...]  # ("push", name) | ("pop",) | ("drop", name) | ("back",): the last popped returns
Outcome = tuple[int, ...]


def law(script: list[Step], nats: list[float]) -> dict[Outcome, float]:
    """The exact probability of every sequence of pops."""
    found: dict[Outcome, float] = {}

    def go(at: int, inside: frozenset[int], popped: Outcome, chance: float) -> None:
        if at == len(script):
            found[popped] = found.get(popped, 0.0) + chance
            return
        match script[at]:
            case ("push", name):
                go(at + 1, inside | {name}, popped, chance)
            case ("drop", name):
                go(at + 1, inside - {name}, popped, chance)
            case ("back",):
                go(at + 1, inside | {popped[-1]}, popped, chance)
            case _:
                top = max(nats[name] for name in inside)
                total = sum(exp(nats[name] - top) for name in inside)
                for name in inside:
                    share = exp(nats[name] - top) / total
                    go(at + 1, inside - {name}, (*popped, name), chance * share)

    go(0, frozenset(), (), 1.0)
    return found


def play(order: Order, script: list[Step], priorities: list[float]) -> Outcome:
    inside: set[int] = set()
    popped: list[int] = []
    for step in script:
        match step:
            case ("push", name):
                order.push(name, priorities[name])
                inside.add(name)
            case ("drop", name):
                if name in inside:
                    order.discard(name, priorities[name])
                    inside.remove(name)
            case ("back",):
                order.push(popped[-1], priorities[popped[-1]])
                inside.add(popped[-1])
            case _:
                place = order.pop()
                assert place is not None
                popped.append(place)
                inside.remove(place)
    assert len(order) == len(inside)
    return tuple(popped)


def tail(statistic: float, freedom: int) -> float:
    """Chance that chi-square is at least `statistic`, by the Wilson-Hilferty approximation."""
    spread = 2 / (9 * freedom)
    z = ((statistic / freedom) ** (1 / 3) - 1 + spread) / sqrt(spread)
    return NormalDist().cdf(-z)


def fit(make: Callable[[], Order], script: list[Step], nats: list[float], *, scale: float = 1.0) -> float:
    """How well `n` plays fit the law: a chance, small where they do not. Rare outcomes are one cell."""
    n, expected = 6_000, law(script, nats)
    assert abs(sum(expected.values()) - 1) < 1e-9
    priorities = [scale * each for each in nats]
    seen = Counter(play(make(), script, priorities) for _ in range(n))
    assert seen.keys() <= expected.keys()
    common = {outcome for outcome, chance in expected.items() if chance * n >= 5}
    statistic = sum(
        (seen[outcome] - expected[outcome] * n) ** 2 / (expected[outcome] * n) for outcome in common
    )
    rare = n * (1 - sum(expected[outcome] for outcome in common))
    if rare >= 5:
        statistic += (n - sum(seen[outcome] for outcome in common) - rare) ** 2 / rare
    return tail(statistic, len(common) - (rare < 5))


PUSHES: list[Step] = [("push", name) for name in range(5)]
POP: Step = ("pop",)
BACK: Step = ("back",)

QUIET = [*PUSHES, POP, POP, POP]
ARRIVALS = [*PUSHES[:3], POP, ("push", 3), POP, ("push", 4), POP, POP]
RETURNS = [
    *PUSHES[:3],
    POP,
    ("push", 3),
    BACK,
    ("drop", 1),
    POP,
    ("drop", 0),
    ("push", 4),
    BACK,
    POP,
    BACK,
    POP,
]
AGAIN: list[Step] = [("drop", 3), ("push", 3)]
CHURN = [*PUSHES[:4], ("drop", 2), ("push", 2), POP, BACK, *AGAIN, *AGAIN, POP, POP]


def boltzmann(seed: int, temperature: float = 1.0) -> Callable[[], Order]:
    uniform = random.Random(seed).random
    return lambda: make_order("boltzmann", temperature=temperature, uniform=uniform)


@pytest.mark.parametrize(
    ("script", "middle"),
    [(QUIET, 0.0), (ARRIVALS, 0.0), (ARRIVALS, 8.0), (RETURNS, 0.0), (RETURNS, 8.0), (CHURN, 5000.0)],
    ids=["quiet", "arrivals", "arrivals, two bands", "returns", "returns, two bands", "churn, far out"],
)
def test_boltzmann_draws_by_the_exact_law(script: list[Step], middle: float) -> None:
    nats = [middle + each for each in (0.9, -0.7, 0.3, 1.4, -1.2)]
    assert fit(boltzmann(11, temperature=0.25), script, nats, scale=0.25) > 0.001


class NoiseKey:
    """The tempting wrong order: one Gumbel key a submit, highest first."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self.uniform, self.keys = uniform, dict[int, float]()

    def push(self, place: int, priority: float) -> None:
        self.keys[place] = priority - log(-log(1 - self.uniform() or 5e-324) or 5e-324)

    def pop(self) -> int | None:
        best = max(self.keys, key=self.keys.__getitem__, default=None)
        if best is not None:
            del self.keys[best]
        return best

    def discard(self, place: int, priority: float) -> None:
        del self.keys[place]

    def __len__(self) -> int:
        return len(self.keys)


def test_the_test_has_power() -> None:
    uniform = random.Random(12).random
    nats = [0.9, -0.7, 0.3, 1.4, -1.2]
    assert fit(lambda: NoiseKey(uniform), QUIET, nats) > 0.001  # right as long as nothing arrives
    assert fit(lambda: NoiseKey(uniform), ARRIVALS, nats) < 1e-9
    wrong = [each * 1.2 for each in nats]
    assert fit(boltzmann(13), QUIET, nats, scale=1.2) < 1e-6  # a temperature 20 % off is seen too
    assert fit(boltzmann(13), QUIET, wrong) > 0.001


def test_the_tail_is_that_of_the_tables() -> None:
    for freedom, critical in [(10, 18.307), (60, 79.082), (120, 146.567)]:
        assert tail(critical, freedom) == pytest.approx(0.05, rel=0.01)


def test_light_places_that_wait_do_not_blur_heavy_ones() -> None:
    """With one clock for all, heavy newcomers would be popped in order of place: their steps vanish."""
    uniform, wins, n = random.Random(14).random, Counter[int | None](), 2000
    order = make_order("boltzmann", uniform=uniform)
    for place in range(50):
        order.push(place, 0.0)
    for place in range(25):  # the clock runs
        assert order.pop() is not None
        order.push(100 + place, 0.0)
    for turn in range(n):
        first, second = 1000 + 2 * turn, 1001 + 2 * turn
        order.push(first, 60.0)
        order.push(second, 60.0 + log(3))
        wins[(winner := order.pop()) and winner % 2] += 1
        other = order.pop()
        assert {winner, other} == {first, second}
    assert len(order) == 50
    assert tail((wins[1] - 0.75 * n) ** 2 / (0.75 * n) + (wins[0] - 0.25 * n) ** 2 / (0.25 * n), 1) > 0.001


def test_light_places_win_their_share_beside_heavy_ones() -> None:
    """A heavy place that always comes back must not starve a light one in another band."""
    uniform, waits = random.Random(15).random, list[int]()
    for _ in range(300):
        order = make_order("boltzmann", uniform=uniform)
        order.push(0, 5.0)
        order.push(1, 9.0)  # the next band begins at 8
        waits.append(0)
        while order.pop() != 0:
            order.push(1, 9.0)
            waits[-1] += 1
    assert sum(waits) / len(waits) == pytest.approx(exp(4.0), rel=4 / sqrt(300))


def test_boltzmann_bears_any_finite_numbers() -> None:
    order = make_order("boltzmann", temperature=1e-300, uniform=random.Random(16).random)
    extremes = [1e308, -1e308, 5e-324, 0.0, 1e-300, -1e-290, 1.0]
    for place, priority in enumerate(extremes):
        order.push(place, priority)
    assert [order.pop() for _ in range(2)] in ([0, 6], [6, 0])
    order.discard(1, -1e308)
    assert sorted(drained(order)) == [2, 3, 4, 5]
    for worst in (0.0, 1 - 2**-53):
        order = make_order("boltzmann", uniform=lambda worst=worst: worst)
        for place in range(200):
            order.push(place, float(place))
        assert sorted(drained(order)) == list(range(200))


def test_steps_of_2_000_nats_are_strict() -> None:
    order = make_order("boltzmann", uniform=random.Random(17).random)
    for place in range(100):
        order.push(place, 2000.0 * (place * 37 % 100))
    assert [order.pop() for _ in range(100)] == sorted(range(100), key=lambda place: -(place * 37 % 100))


def test_a_seed_replays() -> None:
    def run(seed: int) -> list[int | None]:
        order = fresh("boltzmann", seed)
        for place in range(50):
            order.push(place, float(place % 5))
        return [order.pop() for _ in range(50)]

    assert run(1) == run(1) != run(2)


def test_temperature_zero_is_priority() -> None:
    order = make_order("boltzmann", temperature=0)
    for place, priority in enumerate([1.0, 3.0, 3.0, 2.0]):
        order.push(place, priority)
    assert [order.pop() for _ in range(5)] == [1, 2, 3, 0, None]


def test_what_cannot_be_made_says_what_can() -> None:
    with pytest.raises(ValueError, match="'lifo': choose one of fifo, filo, priority, boltzmann"):
        make_order("lifo")
    with pytest.raises(ValueError, match="uniform="):
        make_order("boltzmann")
    for temperature in (-1.0, inf, float("nan")):
        with pytest.raises(ValueError, match="temperature="):
            make_order("boltzmann", temperature=temperature, uniform=random.Random(0).random)


@pytest.mark.parametrize("kind", ["fifo", "filo"])
def test_an_empty_line_holds_no_dead(kind: str) -> None:
    for dead in range(5):
        order = fresh(kind)
        for place in (2, 1, 3, 4, 0):
            order.push(place, 1.0)
        order.discard(dead, 1.0)
        assert None not in [order.pop() for _ in range(4)]
        assert stored(order) == 0
