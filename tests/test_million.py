"""A million: queued and drained in each order, and ended in one file.

Where a million would take minutes these run with fewer; `LAKESHORE_LONG=1` makes them all a million.
"""

import os
import random
from collections.abc import Callable
from math import exp, sqrt
from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.orders import KINDS, make_order
from lakeshore.core.settings import declare
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.faults import faulty_pair
from lakeshore.testing.hand import HandClient, HandPlane, call_of

LONG = "LAKESHORE_LONG" in os.environ
MILLION = 1_000_000
TEMPERATURE = 2.0
LEVELS = 8  # priorities, 0 to 7

Sort = Callable[[list[int], list[float]], list[int]]
EXPECTED: dict[str, Sort] = {
    "fifo": lambda places, priorities: places,
    "filo": lambda places, priorities: places[::-1],
    "priority": lambda places, priorities: sorted(places, key=lambda place: -priorities[place]),
}


def priorities_of(count: int) -> list[float]:
    rng = random.Random(7)
    return [float(rng.randrange(LEVELS)) for _ in range(count)]


def check(kind: str, drained: list[int], priorities: list[float]) -> None:
    """`drained` are the numbers of what was queued, in the order they came out."""
    places = list(range(len(priorities)))
    if kind in EXPECTED:
        assert drained == EXPECTED[kind](places, priorities)
        return
    assert sorted(drained) == places  # each once
    for level, deviation in enumerate(deviations(drained, priorities)):
        assert abs(deviation) < 5, f"priority {level} came {deviation:+.1f} standard deviations too often"
    assert abs(lateness(drained, priorities)) < 5


def deviations(drained: list[int], priorities: list[float]) -> list[float]:
    """How much more often than the law says each priority was drawn, in standard deviations.

    Each draw has an exact probability, given what is in; so the sum of what happened minus what was
    to be expected is a martingale, whose variance is the sum of theirs.
    """
    weights = [exp(level / TEMPERATURE) for level in range(LEVELS)]
    inside = [0] * LEVELS
    for priority in priorities:
        inside[int(priority)] += 1
    excess, variance = [0.0] * LEVELS, [0.0] * LEVELS
    total = sum(n * weight for n, weight in zip(inside, weights, strict=True))
    for place in drained:
        drawn = int(priorities[place])
        for level in range(LEVELS):
            chance = inside[level] * weights[level] / total
            excess[level] -= chance
            variance[level] += chance * (1 - chance)
        excess[drawn] += 1
        inside[drawn] -= 1
        total -= weights[drawn]
    return [over / sqrt(spread) for over, spread in zip(excess, variance, strict=True)]


def lateness(drained: list[int], priorities: list[float]) -> float:
    """Whether, among equals, the place has a say: the correlation of place and turn of the middle
    priority, in standard deviations."""
    turns = [place for place in drained if priorities[place] == LEVELS // 2]
    n = len(turns)
    mean = sum(turns) / n
    spread = sqrt(sum((place - mean) ** 2 for place in turns) * (n**3 - n) / 12)
    together = sum((turn - (n - 1) / 2) * (place - mean) for turn, place in enumerate(turns))
    return together / spread * sqrt(n)


@pytest.mark.parametrize("kind", KINDS)
def test_a_million_places_leave_an_order_as_they_should(kind: str) -> None:
    priorities = priorities_of(MILLION)
    order = make_order(kind, temperature=TEMPERATURE, uniform=random.Random(3).random)
    for place, priority in enumerate(priorities):
        order.push(place, priority)
    assert len(order) == MILLION
    drained = [place for _ in range(MILLION) if (place := order.pop()) is not None]
    assert order.pop() is None
    check(kind, drained, priorities)


# ---- through the queue


class Swallower:
    """A worker that has done everything at once, on a link of its own: what it was granted, in order."""

    def __init__(self, plane: HandPlane, slots: int) -> None:
        self.plane = plane
        self.granted: list[bytes] = []
        self._ended: list[m.Ended] = []
        ours, self._link = faulty_pair()
        peer = plane.head.connect(ours, "default")
        ours.receive, ours.closed = peer.receive, peer.closed
        self._link.receive = self._receive
        self._link.send(m.Hello(plane.new_id(), "all", "here", 1, ("q",), False, slots))

    def drain(self) -> None:
        """Until nothing more comes."""
        self.plane.settle()
        while self._ended:
            ended, self._ended = self._ended, []
            for report in ended:
                self._link.send(report)
            self.plane.settle()

    def _receive(self, message: Any) -> None:
        if isinstance(message, m.Grant):
            self.granted.append(message.id)
            self._ended.append(m.Ended(message.id, message.attempt, "succeed", b"\xc0", seconds=1.0))


def queued(client: HandClient, priorities: list[float]) -> list[bytes]:
    """Submit one call of each priority; their ids."""
    req = client.client.number()
    call = call_of("f", {})
    items = tuple(m.Submit(req, client.plane.new_id(), "q", call, priority) for priority in priorities)
    client.answers[req] = []
    client.client.ask(m.SubmitMany(req, items), client.answers[req].append)
    results = client.answer(req).results
    del client.answers[req]
    assert all(isinstance(result, m.Accepted) for result in results)
    return [item.id for item in items]


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_queue_is_drained_in_its_order(kind: str) -> None:
    count = MILLION if LONG else 200_000 if kind == "priority" else 50_000
    priorities = priorities_of(count)
    plane = HandPlane(seed=3, store=MemoryStore(1 << 40))
    client = plane.client()
    settings = {"kind": kind, "temperature": TEMPERATURE}
    client.answer(client.ask(m.AddQueue, "q", declare(settings)))
    ids: list[bytes] = []
    for start in range(0, count, 1000):
        ids += queued(client, priorities[start : start + 1000])
    stats = client.answer(client.ask(m.QueueStats, "q")).value
    assert stats["pending"] == count
    worker = Swallower(plane, slots=1000)
    worker.drain()
    numbers = {id: number for number, id in enumerate(ids)}
    check(kind, [numbers[id] for id in worker.granted], priorities)
    stats = client.answer(client.ask(m.QueueStats, "q")).value
    assert (stats["pending"], stats["running"]) == (0, 0)
