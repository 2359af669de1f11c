"""Trying again, the same for every storage: exponential, with full jitter and a cap."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from lakeshore.core.errors import StorageFailed

T = TypeVar("T")
log = logging.getLogger("lakeshore")


class Passing(Exception):
    """What may pass by itself. `failure` is what to raise if it does not."""

    def __init__(self, failure: StorageFailed) -> None:
        super().__init__(failure)
        self.failure = failure


class Retrying(Struct, frozen=True):
    """How often, and how long between.

    Args:
        tries: calls in all, >= 1.
        base: longest wait before the second, seconds; it doubles each time.
        cap: longest wait ever, seconds.
        sleep: waits so many seconds.
        draw: a number from 0 to 1.
    """

    tries: int = 5
    base: float = 0.2
    cap: float = 5.0
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def run(self, work: Callable[[], T]) -> T:
        """What `work` returns, called again while it raises `Passing`.

        Raises: the `failure` of the last `Passing`; whatever else `work` raises, at once.
        """
        number = 1
        while True:
            try:
                return work()
            except Passing as passing:
                if number >= self.tries:
                    raise passing.failure from None
                wait = self.draw() * min(self.cap, self.base * 2.0 ** (number - 1))
                log.debug("%s; try %d of %d in %.2f s", passing.failure, number + 1, self.tries, wait)
            self.sleep(wait)
            number += 1
