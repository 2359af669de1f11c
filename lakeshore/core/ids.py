"""Invocation ids: ULIDs, 16 bytes inside and 26 characters at the edges.

The layout and the alphabet are those of the ULID specification (github.com/ulid/spec): 48 bits of
milliseconds, then 80 random bits, incremented within one millisecond so that ids of one maker
always rise. `python-ulid` reads and writes the same text; here it is done by table, because an id
is made and shown for every job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_TO_INT = str.maketrans(
    _ALPHABET + _ALPHABET.lower(), "0123456789abcdefghijklmnopqrstuv" + "0123456789abcdefghijklmnopqrstuv"
)
_VALID = frozenset(_ALPHABET + _ALPHABET.lower())
_RANDOM_BITS = 80
_LIMIT = 1 << 128


class IdMaker:
    """Makes rising ids.

    Args:
        clock_ms: milliseconds since 1970; may jump back, ids still rise.
        entropy: gives n random bytes.
        lock: makes a lock, where several threads share this maker.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int],
        entropy: Callable[[int], bytes],
        lock: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._clock_ms, self._entropy, self._make_lock = clock_ms, entropy, lock
        self._ms, self._value, self._lock = -1, 0, lock()

    def __call__(self) -> bytes:
        """The next id, 16 bytes, greater than any before."""
        with self._lock:
            ms = self._clock_ms()
            if ms > self._ms:
                self._draw(ms)
            else:
                self._value += 1
            return self._value.to_bytes(16, "big")

    def forked(self) -> None:
        """This is a forked child: go on above all ids so far, where its parent does not go."""
        self._lock = self._make_lock()  # another thread may have held it
        self._draw(self._ms + 1)

    def _draw(self, ms: int) -> None:
        self._ms = ms
        # the top random bit stays clear, so counting up within one millisecond can't overflow
        random = int.from_bytes(self._entropy(10), "big") & ~(1 << (_RANDOM_BITS - 1))
        self._value = (ms << _RANDOM_BITS) | random


def text_of(raw: bytes) -> str:
    """The 26 characters of a 16-byte id."""
    value, pairs = int.from_bytes(raw, "big"), _PAIRS
    return (
        pairs[value >> 120]
        + pairs[value >> 110 & 1023]
        + pairs[value >> 100 & 1023]
        + pairs[value >> 90 & 1023]
        + pairs[value >> 80 & 1023]
        + pairs[value >> 70 & 1023]
        + pairs[value >> 60 & 1023]
        + pairs[value >> 50 & 1023]
        + pairs[value >> 40 & 1023]
        + pairs[value >> 30 & 1023]
        + pairs[value >> 20 & 1023]
        + pairs[value >> 10 & 1023]
        + pairs[value & 1023]
    )


def parse(text: str) -> bytes:
    """The 16 bytes of an id's text.

    Raises: ValueError for what is not a ULID, TypeError for what is not a string.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"an invocation id is a string, not {type(text).__name__}: pass what submit returned")
    if len(text) == 26 and _VALID.issuperset(text):
        value = int(text.translate(_TO_INT), 32)
        if value < _LIMIT:
            return value.to_bytes(16, "big")
    raise ValueError(f"{text!r} is not an invocation id: an id is the 26-character ULID that submit returned")


def milliseconds(raw: bytes) -> int:
    """When an id was made, in milliseconds since 1970."""
    return int.from_bytes(raw[:6], "big")


def first_at(ms: int) -> bytes:
    """The smallest id of a millisecond."""
    return (max(ms, 0) << _RANDOM_BITS).to_bytes(16, "big")
