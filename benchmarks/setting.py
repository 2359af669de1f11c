"""Where and how large one measurement is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio

import lakeshore as dls

SLOTS = 64
Figures: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Setting:
    """One measurement: its loop, its store, how many, a folder of its own and one to share."""

    loop: Any  # "asyncio" or "trio"
    store: Any  # "memory", "normal" or "full": the last two are `sync` of a file
    n: int
    folder: Path
    cache: Path

    @property
    def address(self) -> str:
        """What to open."""
        return ":memory:" if self.store == "memory" else str(self.folder / "plane.db")

    @property
    def sync(self) -> Any:
        """How a file is synced."""
        return "normal" if self.store == "memory" else self.store

    def plane(self) -> dls.AsyncDispatch:
        """A plane, not yet open."""
        return dls.AsyncDispatch(self.address, sync=self.sync)

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """A coroutine function on this loop."""
        return anyio.run(function, *args, backend=self.loop)


async def worker(q: dls.AsyncDispatch, *, task_status: Any) -> None:
    """The one worker of a plane."""
    await dls.arun_worker(q, slots=SLOTS, task_status=task_status)


class Watch:
    """Starts now. `CPU us` is what one took of all threads: it moves less than the rate on a busy machine."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def figures(self, n: int, rate: str) -> Figures:
        """What n of them, done since the start, came to."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {rate: n / wall, "CPU us": cpu / n * 1e6}


def resident() -> int:
    """Bytes of memory that this process holds now: its resident set."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
