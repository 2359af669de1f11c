"""One measurement in a process of its own: `python benchmarks/measure.py NAME LOOP STORE`.

Prints one JSON object. `benchmarks/run.py` starts these and prints the table.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio

import lakeshore as dls

Measurement = Callable[[dls.AsyncDispatch, int], Awaitable[dict[str, float]]]
CLIENTS, SLOTS = 500, 64


@dls.udf
async def nothing() -> None:
    """An asynchronous body that does nothing."""


@dls.udf
def nothing_sync() -> None:
    """A synchronous body that does nothing."""


@dls.udf
async def count(n: int) -> Any:
    """An asynchronous generator of n small frames."""
    for number in range(n):
        yield number


@dls.udf
async def nap(seconds: float) -> None:
    """A body that waits."""
    await anyio.sleep(seconds)


async def jobs(q: dls.AsyncDispatch, n: int, body: Any = nothing) -> dict[str, float]:
    """Each job with its own submit and its own result, from 500 tasks."""

    async def client() -> None:
        for _ in range(n // CLIENTS):
            await q.result(await q.submit(body))

    async def all_clients() -> float:
        start = time.perf_counter()
        async with anyio.create_task_group() as tasks:
            for _ in range(CLIENTS):
                tasks.start_soon(client)
        return time.perf_counter() - start

    return {"jobs/s": n // CLIENTS * CLIENTS / await all_clients()}


async def sync_jobs(q: dls.AsyncDispatch, n: int) -> dict[str, float]:
    """The same with synchronous bodies."""
    return await jobs(q, n, nothing_sync)


async def submits(q: dls.AsyncDispatch, n: int) -> dict[str, float]:
    """Bulk submits alone, nobody working."""
    await q.queues.add("bulk")
    await q.queues.pause("bulk")
    bulk = dls.udf(nothing.fn, queue="bulk")
    start = time.perf_counter()
    await q.submit_many(bulk, [{}] * n)
    return {"submits/s": n / (time.perf_counter() - start)}


async def many(q: dls.AsyncDispatch, n: int) -> dict[str, float]:
    """submit_many(100) and the results of all hundred, from 20 tasks."""

    async def client() -> None:
        for _ in range(n // 20 // 100):
            for inv in await q.submit_many(nothing, [{}] * 100):
                await q.result(inv)

    start = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(client)
    return {"jobs/s": n // 20 // 100 * 2000 / (time.perf_counter() - start)}


async def serial(q: dls.AsyncDispatch, n: int) -> dict[str, float]:
    """One job after another: submit, wait for the result."""
    times: list[float] = []
    for _ in range(n):
        start = time.perf_counter()
        await q.result(await q.submit(nothing))
        times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    return {"p50 us": statistics.median(times), "p99 us": times[int(len(times) * 0.99)]}


async def frames(q: dls.AsyncDispatch, n: int) -> dict[str, float]:
    """Frames of one asynchronous generator to one reader."""
    start = time.perf_counter()
    inv = await q.submit(count, n)
    got = 0
    async for _ in q.stream(inv):
        got += 1
    assert got == n, (got, n)
    return {"frames/s": n / (time.perf_counter() - start)}


async def first_frame(q: dls.AsyncDispatch, n: int) -> dict[str, float]:
    """From submit to the first frame."""
    times: list[float] = []
    for _ in range(n):
        start = time.perf_counter()
        async with q.stream(await q.submit(count, 1)) as stream:
            await anext(aiter(stream))
        times.append((time.perf_counter() - start) * 1e6)
    return {"p50 us": statistics.median(times)}


async def naps(q: dls.AsyncDispatch, n: int) -> dict[str, float]:
    """n bodies of 100 ms each over 64 slots, against the shortest possible time."""
    start = time.perf_counter()
    for inv in await q.submit_many(nap, [(0.1,)] * n):
        await q.result(inv)
    return {"x ideal": (time.perf_counter() - start) / (-(-n // SLOTS) * 0.1)}


MEASUREMENTS: dict[str, tuple[Measurement, int]] = {
    "jobs": (jobs, 20_000),
    "sync_jobs": (sync_jobs, 20_000),
    "submits": (submits, 50_000),
    "many": (many, 20_000),
    "serial": (serial, 2_000),
    "frames": (frames, 200_000),
    "first_frame": (first_frame, 300),
    "naps": (naps, 640),
}


async def measure(name: str, address: str, sync: Any, n: int | None) -> dict[str, float]:
    """Run one measurement on a fresh plane with one worker."""
    measurement, usual = MEASUREMENTS[name]
    async with dls.AsyncDispatch(address, sync=sync) as q, anyio.create_task_group() as tasks:
        await tasks.start(worker, q)
        for inv in await q.submit_many(nothing, [{}] * 200):  # warm up
            await q.result(inv)
        result = await measurement(q, n or usual)
        tasks.cancel_scope.cancel()
    return result


async def worker(q: dls.AsyncDispatch, *, task_status: Any) -> None:
    """The one worker."""
    await dls.arun_worker(q, slots=SLOTS, task_status=task_status)


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MEASUREMENTS)
    parser.add_argument("loop", choices=["asyncio", "trio"])
    parser.add_argument("store", choices=["memory", "normal", "full"])
    parser.add_argument("-n", type=int, default=None, help="how many jobs or frames")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="lakeshore-bench-"))
    try:
        address = ":memory:" if options.store == "memory" else str(folder / "plane.db")
        sync = "normal" if options.store == "memory" else options.store
        result = anyio.run(measure, options.name, address, sync, options.n, backend=options.loop)
        print(json.dumps(result))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
