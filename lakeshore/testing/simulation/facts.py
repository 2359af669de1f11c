"""What a simulated plane breaks, and the chance it runs on."""

from __future__ import annotations

import random

from lakeshore.core.ids import text_of
from lakeshore.core.rows import InvocationRow

TERMINAL = frozenset({"succeeded", "failed", "killed", "timeout"})
NEVER = float("inf")
SLACK = 1e-6  # seconds by which sums of floats may differ


class Broken(AssertionError):
    """A promise that did not hold.

    Attributes:
        promise: which, in a few words; the same for every way to break it.
        what: how it was broken.
    """

    def __init__(self, promise: str, what: str = "") -> None:
        super().__init__(promise, what)
        self.promise, self.what = promise, what

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}" if self.what else self.promise


def name_of(row: InvocationRow) -> str:
    """An invocation, for a sentence."""
    return f"{text_of(row.id)[-6:]} ({row.state}, attempt {row.record.attempt})"


class Chance(random.Random):
    """Chance that belongs to one operation, so that it stays when others are left out."""

    def belongs_to(self, seed: int, number: int) -> None:
        """What is drawn from now on comes from this operation of this seed."""
        self._state = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9 + 1) & _MASK

    def _next(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def random(self) -> float:
        """A number in [0, 1)."""
        return (self._next() >> 11) * 2.0**-53

    def randbytes(self, n: int) -> bytes:
        """So many random bytes."""
        return b"".join(self._next().to_bytes(8, "big") for _ in range(-(-n // 8)))[:n]


_MASK = (1 << 64) - 1
