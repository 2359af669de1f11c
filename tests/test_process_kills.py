"""Kills at the very moment a body ends: they reach no neighbour in the next job of its process."""

from __future__ import annotations

import random
import signal
import socket
from collections.abc import Callable
from typing import Any

import anyio
import process_jobs as jobs
import pytest
from planes import PATIENCE

import lakeshore as dls
from lakeshore.core.messages import Ended
from lakeshore.runners.processes import process
from lakeshore.runners.processes.spawning import Spawned


@pytest.mark.anyio
async def test_a_kill_reaches_no_neighbour() -> None:
    """A thousand of them on both loops, while the process goes from job to job."""
    chance = random.Random(7)
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:

        async def work() -> None:
            await dls.arun_worker(q, runner="process")

        tasks.start_soon(work)
        pid = await q.result(await q.submit(jobs.pid), timeout=PATIENCE)
        killed = 0
        for _ in range(125):
            victims = [await q.submit(chance.choice([jobs.nothing, jobs.anothing])) for _ in range(4)]
            neighbour = await q.submit(jobs.apid)
            async with anyio.create_task_group() as kills:
                for victim in victims:
                    kills.start_soon(_kill, q, victim, chance.random() * 0.004)
            assert await q.result(neighbour, timeout=PATIENCE) == pid
            for victim in victims:
                shown = await q.get(victim)
                killed += shown.state == "killed"
                assert shown.state in ("killed", "succeeded")
        assert 0 < killed < 500
        tasks.cancel_scope.cancel()


async def _kill(q: Any, inv: str, after: float) -> None:
    await anyio.sleep(after)
    try:
        await q.kill(inv, running=True)
    except dls.Conflict:  # it has ended
        return


class _Loop:
    """Time that a test moves."""

    name = "by hand"

    def __init__(self) -> None:
        self.time = 0.0
        self.timers: list[tuple[float, Callable[[], None], list[bool]]] = []

    def now(self) -> float:
        return self.time

    def soon(self, call: Callable[[], None]) -> None:
        call()

    def later(self, seconds: float, call: Callable[[], None]) -> Any:
        on = [True]
        self.timers.append((self.time + seconds, call, on))
        return type("Timed", (), {"cancel": lambda self: on.clear()})()

    def readable(self, sock: Any, call: Callable[[], None]) -> Any:
        return type("Timed", (), {"cancel": lambda self: None})()

    writable = readable

    def move(self, seconds: float) -> None:
        self.time += seconds
        due = [timer for timer in self.timers if timer[0] <= self.time]
        self.timers = [timer for timer in self.timers if timer[0] > self.time]
        for _, call, on in due:
            if on:
                call()


def test_a_signal_is_for_one_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order of what is asked, said and due, a process is signalled for the job it has at that time,
    and never has another one after that."""
    chance = random.Random(11)
    monkeypatch.setattr(process, "_watch_exit", lambda *args: lambda: None)
    sent: list[tuple[int, bool, str]] = []  # number, whether its job had not ended, why that was stopped
    over: list[Any] = []
    now: list[Any] = []
    owner: Any = type("Owner", (), {"ended": lambda self, process, job, report: over.append(job)})()

    def signalled(pid: int, number: int) -> None:
        child, job = now
        sent.append((number, child.job is job, job.why))

    monkeypatch.setattr(process, "signal_group", signalled)
    ended_by_force = 0
    for _ in range(1000):
        loop: Any = _Loop()
        pairs = [socket.socketpair() for _ in range(2)]
        child = process.Process(Spawned(0, *[pair[0] for pair in pairs], pipes={}), b"", owner, loop)
        for number in range(3):
            job: Any = type("Job", (), {"id": bytes([number]) * 16, "attempt": 1, "why": "", "state": None})()
            now[:] = [child, job]
            child.give(job, b"")  # type: ignore[arg-type]
            sent.clear()
            steps = ["stop", "end", "time", "time"]
            chance.shuffle(steps)
            for step in steps:
                if step == "stop" and child.job is job:
                    job.why = "kill"
                    child.stop(job, chance.choice([0.0, 0.5]))
                elif step == "end":
                    child._receive(Ended(job.id, 1, "succeed", b""))
                else:
                    loop.move(chance.choice([0.0, 0.3, 1.0]))
            assert over[-1] is job
            if child.doomed:
                assert sent[0] == (signal.SIGTERM, True, "kill")
                assert not set(sent[1:]) - {(signal.SIGKILL, True, "kill"), (signal.SIGKILL, False, "kill")}
                ended_by_force += 1
                break
            assert not sent
        child._close()
        for pair in pairs:
            pair[1].close()
    assert 100 < ended_by_force < 900
