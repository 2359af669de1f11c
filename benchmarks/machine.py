"""What this machine does at the moment: figures of two runs compare only where these agree."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

import anyio
from setting import Figures, Setting


def machine(setting: Setting) -> Figures:
    """A checkpoint on the loop, a loop of pure Python, one fsync where the files are."""
    return {
        "checkpoint us": setting.run(checkpoint, setting.n),
        "python loop ms": python_loop(setting.n),
        "fsync us": fsync(setting.folder, min(50, setting.n)),
    }


async def checkpoint(n: int) -> float:
    """Microseconds of one `anyio.lowlevel.checkpoint()`."""
    start = time.perf_counter()
    for _ in range(n):
        await anyio.lowlevel.checkpoint()
    return (time.perf_counter() - start) / n * 1e6


def python_loop(n: int) -> float:
    """Milliseconds of adding up a million numbers, one after another."""
    total, start = 0, time.perf_counter()
    for number in range(n * 100):
        total += number
    return (time.perf_counter() - start) * 1e3 / (n * 100) * 1e6


def fsync(folder: Path, n: int) -> float:
    """Microseconds to write one page and have it on the disk."""
    times: list[float] = []
    with open(folder / "page", "wb") as file:
        for _ in range(n):
            start = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)
