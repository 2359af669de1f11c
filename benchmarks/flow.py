"""What flows through one plane with one worker, all in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
from bodies import count, nap, nothing, nothing_sync
from setting import Figures, Setting, Watch, worker

import lakeshore as dls

CLIENTS, CROWDS = 500, 20
NAP, NAP_SLOTS = 0.1, 100


async def crowd(clients: int, client: Callable[[], Coroutine[Any, Any, None]]) -> Watch:
    """Many tasks of one kind, until all have ended."""
    watch = Watch()
    async with anyio.create_task_group() as tasks:
        for _ in range(clients):
            tasks.start_soon(client)
    return watch


async def jobs(q: dls.AsyncDispatch, n: int, body: Any = nothing) -> Figures:
    """Each job with its own submit and its own result, from 500 tasks."""
    clients = min(CLIENTS, n)

    async def client() -> None:
        for _ in range(n // clients):
            await q.result(await q.submit(body))

    watch = await crowd(clients, client)
    return watch.figures(n // clients * clients, "jobs/s")


async def sync_jobs(q: dls.AsyncDispatch, n: int) -> Figures:
    """The same with synchronous bodies."""
    return await jobs(q, n, nothing_sync)


async def many(q: dls.AsyncDispatch, n: int) -> Figures:
    """submit_many(100) and the results of all hundred, from 20 tasks."""
    rounds = max(1, n // (CROWDS * 100))

    async def client() -> None:
        for _ in range(rounds):
            for inv in await q.submit_many(nothing, [{}] * 100):
                await q.result(inv)

    watch = await crowd(CROWDS, client)
    return watch.figures(rounds * CROWDS * 100, "jobs/s")


async def submits(q: dls.AsyncDispatch, n: int) -> Figures:
    """Bulk submits alone, nobody working."""
    await q.queues.add("bulk")
    await q.queues.pause("bulk")
    bulk = dls.udf(nothing.fn, queue="bulk")
    watch = Watch()
    await q.submit_many(bulk, [{}] * n)
    return watch.figures(n, "submits/s")


async def serial(q: dls.AsyncDispatch, n: int) -> Figures:
    """One job after another: submit, wait for the result."""
    times: list[float] = []
    for _ in range(n):
        start = time.perf_counter()
        await q.result(await q.submit(nothing))
        times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    return {"p50 us": statistics.median(times), "p99 us": times[int(len(times) * 0.99)]}


async def frames(q: dls.AsyncDispatch, n: int) -> Figures:
    """Frames of one asynchronous generator to one reader."""
    got, watch = 0, Watch()
    async for _ in q.stream(await q.submit(count, n)):
        got += 1
    figures = watch.figures(n, "frames/s")
    if got != n:
        raise AssertionError(f"{got} frames of {n}")
    return figures


async def first_frame(q: dls.AsyncDispatch, n: int) -> Figures:
    """From submit to the first frame, one stream after another."""
    times: list[float] = []
    for _ in range(n):
        start = time.perf_counter()
        async with q.stream(await q.submit(count, 1)) as stream:
            await anext(aiter(stream))
            times.append((time.perf_counter() - start) * 1e6)
    return {"p50 us": statistics.median(times)}


def on_plane(measurement: Callable[[dls.AsyncDispatch, int], Awaitable[Figures]]) -> Callable[..., Figures]:
    """Run it on a fresh plane with one worker that is warm."""

    async def measure(setting: Setting) -> Figures:
        async with setting.plane() as q, anyio.create_task_group() as tasks:
            await tasks.start(worker, q)
            for inv in await q.submit_many(nothing, [{}] * 200):
                await q.result(inv)
            figures = await measurement(q, setting.n)
            tasks.cancel_scope.cancel()
        return figures

    return lambda setting: setting.run(measure, setting)


def naps(setting: Setting) -> Figures:
    """n bodies of 100 ms each over 100 slots: 1,000 of them could be done in 1 s."""

    async def measure() -> Figures:
        async with setting.plane() as q, anyio.create_task_group() as tasks:
            await tasks.start(rested, q)
            for inv in await q.submit_many(nothing, [{}] * 200):
                await q.result(inv)
            start = time.perf_counter()
            for inv in await q.submit_many(nap, [(NAP,)] * setting.n):
                await q.result(inv)
            elapsed = time.perf_counter() - start
            tasks.cancel_scope.cancel()
        return {"s": elapsed, "x ideal": elapsed / (-(-setting.n // NAP_SLOTS) * NAP)}

    async def rested(q: dls.AsyncDispatch, *, task_status: Any) -> None:
        await dls.arun_worker(q, slots=NAP_SLOTS, task_status=task_status)

    return setting.run(measure)
