"""Frames on their way out of a body: gathered, so that many leave as one chunk."""

from __future__ import annotations

from typing import Any

from lakeshore.core.bodies import Job, check_size
from lakeshore.core.values import pack_prepared_frames, prepare, prepared_size

CHUNK_FRAMES, CHUNK_BYTES = 64, 256 * 1024


class FrameBuffer:
    """Values that were yielded and not sent yet. `size` is about how many bytes they take."""

    __slots__ = ("away", "size", "times", "values")

    def __init__(self) -> None:
        self.times: list[float] = []
        self.values: list[Any] = []
        self.size = 0
        self.away: list[bytes] = []

    def add(self, at: float, value: Any, size: int, away: bytes = b"") -> bool:
        """Take what `prepared` made of a value, or the reference to it; whether the chunk is full."""
        if away:
            self.away.append(away)
        self.times.append(at)
        self.values.append(value)
        self.size += size
        return len(self.times) >= CHUNK_FRAMES or self.size >= CHUNK_BYTES

    def take(self) -> tuple[int, bytes, tuple[bytes, ...]]:
        """Everything gathered, as one chunk: how many, packed, and the references in it."""
        count, data, away = len(self.times), pack_prepared_frames(self.times, self.values), tuple(self.away)
        self.times, self.values, self.size, self.away = [], [], 0, []
        return count, data, away


def prepared(job: Job, value: object, number: int) -> tuple[Any, int]:
    """Frame `number` of a job ready to be packed, and about how many bytes it takes.

    Raises: TypeError for what can't travel, PayloadTooLarge; `job.refused` is the error then.
    """
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        return value, 9
    try:
        ready = prepare(value, f"yield[{number}]")
        size = prepared_size(ready)
        if size > job.limit and not job.running.storage:
            check_size(pack_prepared_frames([0.0], [ready]), job.limit, f"yield[{number}]")
    except BaseException as error:
        job.refused = error
        raise
    return ready, size
