"""Draws of a boltzmann queue, through the queue itself: what its law says, and that a wrong one is seen."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from test_orders import NoiseKey, tail
from test_stories_orders import queue, serve

from lakeshore.core import orders
from lakeshore.core.errors import Retry

PRIORITIES = (0.0, 0.5, 1.0, 1.5)
EACH, PARTS = 20, 4  # entries of each priority in the backlog; parts of it, from the oldest to the newest


class Draws:
    """A backlog that is always the same but for its ages: what is drawn is submitted anew, or comes
    back. So each draw has the same law: by weight over priorities, evenly over ages."""

    def __init__(self, seed: int, coming_back: float) -> None:
        self.rng, self.coming_back = random.Random(seed), coming_back
        self.plane, self.client = queue("boltzmann", seed, temperature=0.7)
        self.waiting: list[list[bytes]] = [[] for _ in PRIORITIES]  # the oldest first
        for _ in range(EACH):
            for level in range(len(PRIORITIES)):
                self.submit(level)
        self.worker = serve(self.plane)
        self.counts = [[0] * PARTS for _ in PRIORITIES]
        self.level_of(next(iter(self.worker.jobs)))

    def submit(self, level: int) -> None:
        """One more of a priority."""
        id = self.client.submit(queue="q", priority=PRIORITIES[level], retries=10_000)
        self.waiting[level].append(id)

    def level_of(self, id: bytes) -> int:
        return next(level for level, ids in enumerate(self.waiting) if id in ids)

    def draw(self) -> None:
        """Replace the one that runs, and note which comes next."""
        (id,) = self.worker.jobs
        level = self.level_of(id)
        stays = self.rng.random() < self.coming_back
        if not stays:
            self.waiting[level].remove(id)
            self.submit(level)
        self.worker.head_link.hold = True
        self.worker.fail(id, Retry(after=0.0)) if stays else self.worker.finish(id)
        self.plane.settle()
        self.worker.head_link.hold = False
        self.worker.head_link.deliver()
        self.plane.settle()
        (drawn,) = self.worker.jobs
        level = self.level_of(drawn)
        age = self.waiting[level].index(drawn)
        self.counts[level][age * PARTS // EACH] += 1

    def fit(self, draws: int) -> float:
        """How likely it is to be this far off, or further, by the exact law (chi-square)."""
        for _ in range(draws):
            self.draw()
        weights = [math.exp(p / 0.7) for p in PRIORITIES]
        square = 0.0
        for weight, parts in zip(weights, self.counts, strict=True):
            expected = draws * weight / sum(weights) / PARTS
            square += sum((count - expected) ** 2 / expected for count in parts)
        return tail(square, len(PRIORITIES) * PARTS - 1)


@pytest.mark.parametrize("coming_back", [0.0, 0.5])
def test_each_draw_is_over_the_whole_backlog_with_arrivals_and_returns_in_between(coming_back: float) -> None:
    assert Draws(21, coming_back).fit(3000) > 0.001


class Partial:
    """A wrong order: it draws, but only among the oldest."""

    def __init__(self, temperature: float, uniform: Callable[[], float]) -> None:
        self._inside: dict[int, float] = {}
        self._temperature, self._uniform = temperature, uniform

    def push(self, place: int, priority: float) -> None:
        self._inside[place] = priority

    def pop(self) -> int | None:
        some = sorted(self._inside)[:32]
        if not some:
            return None
        weights = [math.exp(self._inside[place] / self._temperature) for place in some]
        left = self._uniform() * sum(weights)
        place = some[-1]
        for place, weight in zip(some, weights, strict=True):  # noqa: B007
            left -= weight
            if left < 0:
                break
        del self._inside[place]
        return place

    def discard(self, place: int, priority: float) -> None:
        del self._inside[place]

    def __len__(self) -> int:
        return len(self._inside)


class Tempered(NoiseKey):
    """Another: a key drawn once a submit, which favours whoever came last."""

    def __init__(self, temperature: float, uniform: Callable[[], float]) -> None:
        super().__init__(uniform)
        self._temperature = temperature

    def push(self, place: int, priority: float) -> None:
        super().push(place, priority / self._temperature)


@pytest.mark.parametrize("wrong", [Partial, Tempered])
def test_a_wrong_order_is_seen(wrong: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "Boltzmann", wrong)
    assert Draws(21, 0.0).fit(1000) < 1e-6
