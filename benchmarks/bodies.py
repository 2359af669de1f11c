"""The bodies that are run."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator

import anyio

import lakeshore as dls


@dls.udf
async def nothing() -> None:
    """An asynchronous body that does nothing."""


@dls.udf
def nothing_sync() -> None:
    """A synchronous body that does nothing."""


@dls.udf
def here() -> int:
    """Which process it runs in."""
    return os.getpid()


@dls.udf
async def count(n: int) -> AsyncIterator[int]:
    """An asynchronous generator of n small frames."""
    for number in range(n):
        yield number


@dls.udf
async def nap(seconds: float) -> None:
    """A body that waits."""
    await anyio.sleep(seconds)


class Tally:
    """Counts bodies in this process, and knows when the first and the last began."""

    def __init__(self, wanted: int) -> None:
        self.wanted, self.count, self.first, self.last = wanted, 0, 0.0, 0.0
        self.done = anyio.Event()

    def mark(self) -> None:
        """One more."""
        self.count += 1
        if self.count == 1:
            self.first = time.perf_counter()
        elif self.count == self.wanted:
            self.last = time.perf_counter()
            self.done.set()

    @property
    def rate(self) -> float:
        """Bodies per second between the first and the last wanted."""
        return (self.wanted - 1) / (self.last - self.first)


tallies: list[Tally] = []


@dls.udf
async def counted() -> None:
    """A body that does nothing but say so to the newest tally."""
    tallies[-1].mark()
