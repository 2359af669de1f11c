"""What a large backlog costs: memory, draining, opening, listing."""

from __future__ import annotations

import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
from bodies import Tally, counted, nothing, tallies
from setting import Figures, Setting, resident, worker

import lakeshore as dls

PART = 20_000  # submits at a time, so that what a list of calls and ids takes stays small
SMALL, ROUNDS, DRAINED = 1_000, 20, 20_000
ENDED = 1_000  # older ones in a file of queued ones, for a filter to find
LISTED, LISTINGS = 50, 31


async def fill(q: dls.AsyncDispatch, body: Any, n: int, item: Callable[[], dict[str, Any]] = dict) -> None:
    """Submit n calls."""
    for done in range(0, n, PART):
        await q.submit_many(body, [item() for _ in range(min(PART, n - done))])


async def paused(q: dls.AsyncDispatch, **settings: Any) -> None:
    """Make the queue that holds the backlog."""
    await q.queues.add("bulk", **settings)
    await q.queues.pause("bulk")


def drain(kind: str) -> Callable[[Setting], Figures]:
    """How fast one worker drains a queue of this kind: n queued, 1,000 queued, the first by the second."""

    async def drained(q: dls.AsyncDispatch, queued: int, wanted: int) -> float:
        draw, body = random.Random(7), dls.udf(counted.fn, queue="bulk")
        await fill(q, body, queued, lambda: {"_priority": draw.random() * 8})
        tallies.append(Tally(wanted))
        await q.queues.resume("bulk")
        await tallies[-1].done.wait()
        await q.queues.pause("bulk")
        return tallies[-1].rate

    async def measure(setting: Setting) -> Figures:
        async with setting.plane() as q, anyio.create_task_group() as tasks:
            await paused(q, kind=kind)
            await tasks.start(worker, q)
            rounds = min(ROUNDS, max(1, setting.n // SMALL))
            few = [await drained(q, min(SMALL, setting.n), min(SMALL, setting.n)) for _ in range(rounds)]
            large = await drained(q, setting.n, min(DRAINED, setting.n // 2))
            tasks.cancel_scope.cancel()
        small = statistics.median(few)
        return {"ratio": large / small, "large jobs/s": large, "small jobs/s": small}

    return lambda setting: setting.run(measure, setting)


def bytes_per_job(setting: Setting) -> Figures:
    """Resident memory per queued job: in memory as submitted, of a file as opened again."""

    async def fresh() -> Figures:
        async with setting.plane() as q:
            await paused(q)
            body = dls.udf(nothing.fn, queue="bulk")
            await fill(q, body, min(SMALL, setting.n))  # whatever the first ones need
            gc.collect()
            before = resident()
            await fill(q, body, setting.n)
            gc.collect()
            return {"bytes": (resident() - before) / setting.n}

    return setting.run(fresh) if setting.store == "memory" else reopen(setting)


def reopen(setting: Setting) -> Figures:
    """Open a file with n queued, until it has answered a first question."""

    async def opened(path: Path) -> float:
        start = time.perf_counter()
        async with dls.AsyncDispatch(str(path), sync=setting.sync) as q:
            queued = (await q.queues.show("bulk")).queued
            elapsed = time.perf_counter() - start
            if queued != expected:
                raise AssertionError(f"{queued} queued, not {expected}")
            gc.collect()
            held.append(resident())
        return elapsed

    held: list[int] = []
    expected = 1
    setting.run(opened, queued_file(setting, 1))  # imports, and what any plane takes
    expected = setting.n
    elapsed = setting.run(opened, queued_file(setting, setting.n))
    return {"s": elapsed, "bytes": (held[1] - held[0]) / setting.n}


def listing(setting: Setting) -> Figures:
    """The newest 50 of n and 1,000 older ones, by filters that match many, few and none."""

    async def measure() -> Figures:
        async with dls.AsyncDispatch(str(queued_file(setting, setting.n)), sync=setting.sync) as q:
            return {
                "queued ms": await listed(q, min(LISTED, setting.n), state="queued", queue="bulk"),
                "rare state ms": await listed(q, LISTED, state="succeeded"),
                "rare queue ms": await listed(q, LISTED, queue="default"),
                "none ms": await listed(q, 0, state="failed"),
            }

    async def listed(q: dls.AsyncDispatch, expected: int, **filters: Any) -> float:
        times: list[float] = []
        for _ in range(LISTINGS):
            start = time.perf_counter()
            found = await q.jobs.list(limit=LISTED, **filters)
            times.append((time.perf_counter() - start) * 1e3)
            if len(found) != expected:
                raise AssertionError(f"{len(found)} found by {filters}, not {expected}")
        return statistics.median(times)

    figures = setting.run(measure)
    return {"worst ms": max(figures.values()), **figures}


def queued_file(setting: Setting, n: int) -> Path:
    """A file with 1,000 ended and n queued ones, made once in a run by a process of its own."""
    folder = setting.cache / f"queued-{n}"
    if not folder.exists():
        made = setting.cache / f"queued-{n}.part"
        made.mkdir(parents=True)
        subprocess.run([sys.executable, __file__, str(made / "plane.db"), str(n)], check=True)
        made.rename(folder)
    return folder / "plane.db"


async def make_file(path: str, n: int) -> None:
    """Write such a file."""
    async with dls.AsyncDispatch(path) as q:
        await fill(q, nothing, ENDED)
        await dls.arun_worker(q, drain=True, slots=8)
        await paused(q)
        await fill(q, dls.udf(nothing.fn, queue="bulk"), n)


if __name__ == "__main__":
    anyio.run(make_file, sys.argv[1], int(sys.argv[2]))
