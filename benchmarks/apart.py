"""What a process of its own costs a body: beside the same body in its worker's process."""

from __future__ import annotations

import os
import statistics
import time
from typing import Any

import anyio
from bodies import here, nothing, nothing_sync
from cast import proportional
from setting import Figures, Setting, Watch

import lakeshore as dls

MB = 1e6
WARM = 50
KINDS = {"async": nothing, "sync": nothing_sync}


def processes(setting: Setting) -> Figures:
    """One job after another, and all in one line, with one slot of either runner; what a child takes."""
    figures: Figures = {}
    for runner in ("inline", "process"):
        figures |= setting.run(_with, setting, runner)
    for kind in KINDS:
        more = figures[f"process {kind} p50 us"] - figures[f"inline {kind} p50 us"]
        figures[f"{kind} more us"] = more
    return figures


async def _with(setting: Setting, runner: Any) -> Figures:
    figures: Figures = {}
    async with setting.plane() as q, anyio.create_task_group() as tasks:
        inv = await q.submit(here)
        start = time.perf_counter()

        async def work() -> None:
            await dls.arun_worker(q, runner=runner)

        tasks.start_soon(work)
        pid = await q.result(inv)
        if pid != os.getpid():
            figures["start s"] = time.perf_counter() - start
            figures["child MB"] = proportional(pid) / MB
        for kind, body in KINDS.items():
            for warm in await q.submit_many(body, [{}] * WARM):
                await q.result(warm)
            figures[f"{runner} {kind} p50 us"] = await _serial(q, body, setting.n)
            figures[f"{runner} {kind} jobs/s"] = await _line(q, body, setting.n)
        tasks.cancel_scope.cancel()
    return figures


async def _serial(q: dls.AsyncDispatch, body: Any, n: int) -> float:
    times: list[float] = []
    for _ in range(n):
        start = time.perf_counter()
        await q.result(await q.submit(body))
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


async def _line(q: dls.AsyncDispatch, body: Any, n: int) -> float:
    watch = Watch()
    for inv in await q.submit_many(body, [{}] * n):
        await q.result(inv)
    return watch.figures(n, "jobs/s")["jobs/s"]
