"""Frames on their way out of a body: gathered, so that many leave as one chunk."""

from __future__ import annotations

from typing import Any

from lakeshore.core.bodies import check_size
from lakeshore.core.values import pack_prepared_frames, prepare, prepared_size

CHUNK_FRAMES, CHUNK_BYTES = 64, 256 * 1024


class FrameBuffer:
    """Values that were yielded and not sent yet.

    Args:
        limit: bytes one value may take.
    """

    __slots__ = ("_limit", "_size", "times", "total", "values")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.times: list[float] = []
        self.values: list[Any] = []
        self._size = 0
        self.total = 0  # of all values ever added

    def add(self, at: float, value: object) -> bool:
        """Take one value; whether the chunk is full.

        Raises: TypeError for what can't travel, PayloadTooLarge.
        """
        return self.add_prepared(at, *prepared(value, self.total, self._limit))

    def add_prepared(self, at: float, value: Any, size: int) -> bool:
        """Take what `prepared` made of a value."""
        self.times.append(at)
        self.values.append(value)
        self.total += 1
        self._size += size
        return len(self.times) >= CHUNK_FRAMES or self._size >= CHUNK_BYTES

    def take(self) -> tuple[int, bytes]:
        """Everything gathered, as one chunk: how many, and packed."""
        count, data = len(self.times), pack_prepared_frames(self.times, self.values)
        self.times, self.values, self._size = [], [], 0
        return count, data


def prepared(value: object, number: int, limit: int) -> tuple[Any, int]:
    """One yielded value ready to be packed, and about how many bytes it takes."""
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        return value, 9
    ready = prepare(value, f"yield[{number}]")
    size = prepared_size(ready)
    if size > limit:
        check_size(pack_prepared_frames([0.0], [ready]), limit, f"yield[{number}]")
    return ready, size
