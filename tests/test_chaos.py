"""Head and daemons are killed at random while jobs run over TCP, and nothing that was acknowledged is lost.

A short form in CI; `LAKESHORE_LONG=1` makes it a minute and 5,000 jobs. `LAKESHORE_SEED` repeats a run's
draws, though not its timing.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import chaos_jobs
import pytest
from anyio.to_thread import run_sync
from chaos import Chaos

import lakeshore as dls

pytestmark = pytest.mark.anyio

LONG = "LAKESHORE_LONG" in os.environ
SECONDS, JOBS, PAUSE = (60.0, 5000, 2.0) if LONG else (7.0, 1000, 1.0)
PATIENCE = 120.0
MEMORY = 256 << 20  # bytes that no head may come to

BODIES = (chaos_jobs.plain, chaos_jobs.awaits, chaos_jobs.streams, chaos_jobs.astreams)
STREAMS = (chaos_jobs.streams, chaos_jobs.astreams)


class Told:
    """What a program was told by its plane, as it came."""

    def __init__(self, chaos: Chaos, q: Any, waiter: Any, log: Path, seed: int) -> None:
        self._chaos, self._q, self._waiter, self._log = chaos, q, waiter, str(log)
        self._random = random.Random(seed + 1)
        self.expected: dict[str, Any] = {}
        self.ends: dict[str, list[str]] = {}
        self.read: dict[str, list[tuple[int, int]]] = {}  # attempts and values of streams

    async def submit(self, tasks: Any) -> None:
        """Submit all, spread over the time; the ends are awaited by tasks."""
        first = 0
        while first < JOBS:
            count = min(JOBS - first, self._random.choice((1, 1, 1, 20, 60)))
            body = self._random.choice(BODIES)
            calls = [(self._log, n, self._random.uniform(0.0, 0.08)) for n in range(first, first + count)]
            if count == 1:
                inv = await self._q.submit(body, *calls[0], _key=f"key {first}")
                assert inv == await self._q.submit(body, *calls[0], _key=f"key {first}")
                ids = [inv]
            else:
                ids = await self._q.submit_many(body, calls)
            for inv, (_, n, _) in zip(ids, calls, strict=True):
                assert inv not in self.expected
                self.expected[inv] = None if body is chaos_jobs.astreams else n * n
                tasks.start_soon(self._wait, inv)
                if body in STREAMS:
                    tasks.start_soon(self._read, inv)
            first += count
            with anyio.move_on_after(SECONDS * count / JOBS * self._random.uniform(0.0, 1.6)):
                await self._chaos.about.wait()  # so that something is always on its way then

    async def _wait(self, inv: str) -> None:
        self.ends.setdefault(inv, []).append(await self.end(self._waiter, inv))

    async def end(self, q: Any, inv: str) -> str:
        """What an invocation has ended as."""
        try:
            assert await q.result(inv) == self.expected[inv]
        except dls.InvocationFailed as error:
            only_losses(error)
            return "failed"
        return "succeeded"

    async def _read(self, inv: str) -> None:
        seen = self.read.setdefault(inv, [])
        try:
            async for frame in self._waiter.stream(inv):
                assert frame.seq == len(seen), inv
                seen.append((frame.attempt, frame.value))
        except dls.InvocationFailed as error:
            only_losses(error)


def only_losses(error: dls.InvocationFailed) -> None:
    """Bodies of this test fail by nothing else."""
    assert error.type == "lakeshore.WorkerLost", error


@asynccontextmanager
async def raging(tmp_path: Path, backend: str, seed: int) -> AsyncIterator[Chaos]:
    chaos = await run_sync(Chaos, tmp_path / "home", tmp_path / "plane.db", backend, seed)
    try:
        yield chaos
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(chaos.close)


async def records(q: Any, ids: list[str]) -> dict[str, Any]:
    """The records of many."""
    found: dict[str, Any] = {}

    async def some(part: list[str]) -> None:
        for inv in part:
            found[inv] = await q.get(inv)

    async with anyio.create_task_group() as tasks:
        for first in range(20):
            tasks.start_soon(some, ids[first::20])
    return found


def check_record(job: Any, begun: set[int]) -> None:
    """One end, told by the record, which explains every start of the body."""
    outcomes = {attempt.number: str(attempt.outcome) for attempt in job.attempts}
    *before, last = [outcomes[number] for number in sorted(outcomes)]
    assert set(before) <= {"lost", "returned"}, job
    assert begun <= set(outcomes), job
    if job.state == "succeeded":
        assert last == "succeeded", job
        assert max(outcomes) in begun, job
        assert before.count("lost") < 3, job
    else:
        assert (job.state, [*before, last].count("lost")) == ("failed", 3), job
    assert job.attempt == max(outcomes), job


def check_stream(seen: list[tuple[int, int]], *, whole: bool) -> None:
    """The values of each attempt from the first on; the last attempt gave all."""
    attempts = sorted({attempt for attempt, _ in seen})
    assert seen == [(a, v) for a in attempts for v in range(sum(each == a for each, _ in seen))]
    if whole:
        assert [value for attempt, value in seen if attempt == attempts[-1]] == list(range(20))


async def test_a_storm(tmp_path: Path, anyio_backend_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LAKESHORE_") and name != "LAKESHORE_SEED"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "home"))
    seed = int(os.environ.get("LAKESHORE_SEED", random.randrange(1 << 32)))
    print(f"LAKESHORE_SEED={seed}")
    log = tmp_path / "starts"
    async with (
        raging(tmp_path, anyio_backend_name, seed) as chaos,
        dls.AsyncDispatch(chaos.url) as q,
        dls.AsyncDispatch(chaos.url) as waiter,
    ):
        told = Told(chaos, q, waiter, log, seed)
        with anyio.fail_after(SECONDS + PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(chaos.rage, SECONDS, PAUSE)
                await told.submit(tasks)
        ids = list(told.expected)
        found = await records(q, ids)
        await chaos.kill_head()  # and what the next one reads is the same
        status = await q.status()
        assert (status.queued, status.running) == (0, 0)
        assert await records(waiter, ids) == found
        for inv in ids[::10]:
            assert [await told.end(waiter, inv)] == told.ends[inv]
        every = [job async for job in pages(q)]
    print(f"{Counter(chaos.kills)}, a head took at most {chaos.memory >> 20} MiB")
    starts = Counter(log.read_text().splitlines())
    assert set(starts.values()) == {1}, "no attempt is begun twice"
    begun: dict[str, set[int]] = {inv: set() for inv in ids}
    for line in starts:
        inv, attempt = line.split()
        begun[inv].add(int(attempt))
    assert sorted(every) == sorted(ids), "none was doubled, and none is missing"
    assert told.ends == {inv: [job.state] for inv, job in found.items()}
    for inv, job in found.items():
        check_record(job, begun[inv])
    for inv, seen in told.read.items():
        check_stream(seen, whole=found[inv].state == "succeeded")
    assert {"head", "child"} <= set(chaos.kills)
    assert chaos.memory < MEMORY


async def pages(q: Any) -> AsyncIterator[str]:
    """The ids of all invocations."""
    before = None
    while jobs := await q.jobs.list(limit=200, before=before):
        for job in jobs:
            yield job.id
        before = jobs[-1].id
