"""Invocation ids: ULIDs, 16 bytes inside and 26 characters at the edges.

The layout and the alphabet are those of the ULID specification (github.com/ulid/spec): 48 bits of
milliseconds, then 80 random bits, incremented within one millisecond so that ids of one maker
always rise. `python-ulid` reads and writes the same text; here it is done by table, because an id
is made and shown for every job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # what `int` reads in base 32
_BY_LETTER = dict(zip(_ALPHABET, _DIGITS, strict=True))
_TO_INT = "".join(_BY_LETTER.get(chr(code).upper(), "!") for code in range(256)).encode()
_HEADS = 1024  # texts of first halves that are kept
_RANDOM_BITS = 80


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
        self._ms, self._lock = -1, lock()
        self._next: Callable[[], int]  # of this millisecond; one step of `count` is safe without a lock

    def __call__(self) -> bytes:
        """The next id, 16 bytes, greater than any before."""
        value = self._next() if self._clock_ms() <= self._ms else self._later()
        return value.to_bytes(16, "big")

    def forked(self) -> None:
        """This is a forked child: go on above all ids so far, where its parent does not go."""
        self._lock = self._make_lock()  # another thread may have held it
        self._draw(self._ms + 1)

    def _later(self) -> int:
        with self._lock:
            ms = self._clock_ms()
            if ms > self._ms:
                self._draw(ms)
            return self._next()

    def _draw(self, ms: int) -> None:
        # the top random bit stays clear, so counting up within one millisecond can't overflow
        random = int.from_bytes(self._entropy(10), "big") & ~(1 << (_RANDOM_BITS - 1))
        self._next = count((ms << _RANDOM_BITS) | random).__next__
        self._ms = ms  # after it: whoever sees the new time has to find its numbers


_heads: dict[bytes, str] = {}  # ids of one time share most of their text


def text_of(raw: bytes) -> str:
    """The 26 characters of a 16-byte id."""
    head = _heads.get(raw[:11]) or _head(raw[:11])
    tail, pairs = int.from_bytes(raw[11:], "big"), _PAIRS
    return (
        f"{head}{pairs[tail >> 30]}{pairs[tail >> 20 & 1023]}{pairs[tail >> 10 & 1023]}{pairs[tail & 1023]}"
    )


def _head(raw: bytes) -> str:
    value = int.from_bytes(raw, "big")
    text = "".join(_PAIRS[value >> shift & 1023] for shift in range(80, -1, -10))
    if len(_heads) >= _HEADS:
        _heads.clear()
    _heads[raw] = text
    return text


def parse(text: str) -> bytes:
    """The 16 bytes of an id's text.

    Raises: ValueError for what is not a ULID, TypeError for what is not a string.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"an invocation id is a string, not {type(text).__name__}: pass what submit returned")
    try:
        if len(text) == 26:
            return int(text.encode().translate(_TO_INT), 32).to_bytes(16, "big")
    except (ValueError, OverflowError):  # other characters, or above the largest ULID
        pass
    raise ValueError(f"{text!r} is not an invocation id: an id is the 26-character ULID that submit returned")


def milliseconds(raw: bytes) -> int:
    """When an id was made, in milliseconds since 1970."""
    return int.from_bytes(raw[:6], "big")


def floor(seconds: float) -> bytes:
    """What is below every id made at that time (seconds since 1970), and above those made before."""
    return int(min(max(seconds, 0.0) * 1000, (1 << 48) - 1)).to_bytes(6, "big") + bytes(10)
