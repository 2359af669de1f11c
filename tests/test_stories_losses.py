"""A job that takes its worker down: how often it is tried, and what those beside it pay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandPlane, HandWorker

DEATHS = ["link", "head"]  # the worker goes; or it goes with its whole process, which is also the head


class Town:
    """A plane with one client and one worker, both made anew after each death."""

    def __init__(self, **hello: Any) -> None:
        self.plane, self.hello = HandPlane(), hello
        self.client, self.worker = self.plane.client(), self.plane.worker(**hello)
        self.plane.settle()

    def runs_ahead(self) -> None:
        """Let it be known for short bodies: it is granted more than it has slots for."""
        for _ in range(8):
            self.worker.finish(self.client.submit(), 0)

    def dies(self, how: str) -> None:
        """The worker ends at once and another comes."""
        if how == "head":
            self.plane.crash()
            self.client = self.plane.client()
        else:
            self.worker.link.cut()
        self.worker = self.plane.worker(**self.hello)
        self.plane.settle()

    def drain_all(self) -> None:
        """Finish whatever is begun until nothing is."""
        while self.worker.jobs:
            self.worker.finish(next(iter(self.worker.jobs)), "ok")


@pytest.mark.parametrize("kind", ["fifo", "filo", "priority"])
@pytest.mark.parametrize("death", DEATHS)
def test_a_killer_before_twenty_harmless_ones(kind: str, death: str) -> None:
    town = Town(queues=("q",))
    town.client.answer(town.client.ask(m.AddQueue, "q", declare({"kind": kind})))
    killer = town.client.submit(queue="q", retries=5, priority=1.0)
    harmless = [town.client.submit(queue="q") for _ in range(20)]
    workers: list[bytes] = []
    while killer in town.worker.jobs:
        workers.append(town.worker.worker.hello.worker)
        assert len(workers) < 10
        town.dies(death)
    assert len(workers) == 3
    outcome = town.client.outcome(killer)
    assert (outcome.state, outcome.error.type) == ("failed", "lakeshore.WorkerLost")
    assert "lost 3 times" in outcome.error.message
    record = town.client.record(killer)
    assert [attempt.worker for attempt in record.attempts] == workers
    assert [(a.number, a.outcome) for a in record.attempts] == [(1, "lost"), (2, "lost"), (3, "lost")]
    assert all(a.reason and a.ended_at >= a.started_at for a in record.attempts)
    assert (record.losses, record.retries) == (3, 0)
    town.drain_all()
    assert [town.client.result(id) for id in harmless] == ["ok"] * 20
    assert [town.client.record(id).attempt for id in harmless] == [1] * 20


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize("death", DEATHS)
def test_those_that_wait_behind_a_killer_in_its_worker_pay_nothing(death: str, slots: int) -> None:
    """What a worker was granted ahead goes down with it, and was never begun."""
    town = Town(slots=slots)
    town.runs_ahead()
    killers = [town.client.submit("killer", retries=1) for _ in range(slots)]
    waiting = [town.client.submit() for _ in range(12)]
    assert town.worker.worker.held > slots, "nothing was granted ahead"
    for _ in range(3):
        assert set(town.worker.jobs) == set(killers)
        town.dies(death)
    assert [town.client.state(id) for id in killers] == ["failed"] * slots
    assert [town.client.record(id).retries for id in killers] == [0] * slots
    town.drain_all()
    for id in waiting:
        record = town.client.record(id)
        assert (record.losses, record.retries) == (0, 0)
        assert {a.outcome for a in record.attempts} <= {"returned", "succeeded"}
        assert town.client.result(id) == "ok"


@pytest.mark.parametrize("death", DEATHS)
def test_one_that_runs_beside_a_killer_is_charged_once_for_each_death_it_was_in(death: str) -> None:
    town = Town(slots=2)
    beside = town.client.submit(retries=2, retry_delay=0.0)
    killer = town.client.submit()
    for _ in range(2):
        assert {beside, killer} == set(town.worker.jobs)
        town.dies(death)
    town.worker.fail(beside, ValueError("a retry of its own"))
    town.plane.settle()
    record = town.client.record(beside)
    assert (record.losses, record.retries) == (2, 1)
    town.worker.finish(beside, "ok")
    town.dies(death)
    assert town.client.state(killer) == "failed"
    assert town.client.result(beside) == "ok"
    outcomes = [a.outcome for a in town.client.record(beside).attempts]
    assert outcomes == ["lost", "lost", "failed", "succeeded"]


@pytest.mark.parametrize("when", ["between", "last"])
def test_a_retry_of_the_users_does_not_wipe_out_losses(when: str) -> None:
    """Two budgets: neither fills the other up again."""
    town = Town()
    id = town.client.submit(retries=3, retry_delay=0.0)
    deaths = 0
    while id in town.worker.jobs:
        if when == "between" or deaths == 2:
            for _ in range(1 if when == "between" else 3):
                town.worker.fail(id, ValueError("user"))
                town.plane.settle()
        assert id in town.worker.jobs
        town.dies("link")
        deaths += 1
    record = town.client.record(id)
    assert (deaths, record.losses, record.retries) == (3, 3, 3)
    assert len(record.attempts) == 6
    assert town.client.outcome(id).error.type == "lakeshore.WorkerLost"


def _hungry(plane: HandPlane, count: int) -> list[HandWorker]:
    workers = [plane.worker() for _ in range(count)]
    plane.settle()
    return workers


def _starts(workers: list[HandWorker], id: bytes) -> int:
    return sum(worker.started.count(id) for worker in workers)


@pytest.mark.parametrize("timeout", [None, 3 * 86400.0])
def test_a_long_body_is_begun_once_however_hungry_others_are(timeout: float | None) -> None:
    plane = HandPlane()
    client, workers = plane.client(), _hungry(plane, 5)
    id = client.submit(timeout=timeout)
    for _ in range(20):
        plane.clock.wall += 10_000.0  # clocks of machines are set, too
        plane.advance(3600.0)
    workers += _hungry(plane, 2)
    assert _starts(workers, id) == 1
    (holder,) = [worker for worker in workers if id in worker.jobs]
    holder.link.cut()
    plane.settle()
    assert _starts(workers, id) == 2
    plane.advance(3600.0)
    assert _starts(workers, id) == 2
    holder.finish(id, "from beyond")  # the lost one ends after all: nobody hears it
    (holder,) = [worker for worker in workers if id in worker.jobs and worker is not holder]
    holder.finish(id, "second")
    assert client.result(id) == "second"


KILLS = """
import os, signal, sys
import lakeshore as dls

@dls.udf(retries=5)
def dies():
    os.kill(os.getpid(), signal.SIGKILL)

@dls.udf
def fine(n):
    return n

if __name__ == "__main__":
    q = dls.Dispatch(sys.argv[1], backend=sys.argv[2])
    if len(sys.argv) > 3:
        print(dies.submit(_dispatch=q), *fine.submit_many(range(20), _dispatch=q), flush=True)
    ran = dls.run_worker(q, drain=True)
    print(ran, flush=True)
"""


def _one_life(folder: Path, *args: str) -> tuple[int, str]:
    command = [sys.executable, str(folder / "kills.py"), str(folder / "plane.db"), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout.strip()


def test_a_process_that_a_job_kills_is_started_again_and_ends_with_the_rest(tmp_path: Path) -> None:
    (tmp_path / "kills.py").write_text(KILLS)
    code, out = _one_life(tmp_path, "trio", "submit")
    killer, *harmless = out.split()
    lives = [code]
    while lives[-1] == -signal.SIGKILL and len(lives) < 6:
        code, out = _one_life(tmp_path, "trio" if len(lives) % 2 else "asyncio")
        lives.append(code)
    assert lives == [-signal.SIGKILL] * 3 + [0]
    assert out == "20"
    with dls.Dispatch(tmp_path / "plane.db") as q:
        with pytest.raises(dls.InvocationFailed, match="lost 3 times"):
            q.result(killer)
        record = q.get(killer)
        assert [a.outcome for a in record.attempts] == ["lost"] * 3  # five retries were left
        assert len({a.worker_pid for a in record.attempts} - {os.getpid()}) == 3
        assert all(a.reason and a.ended_at for a in record.attempts)
        assert [q.result(id) for id in harmless] == list(range(20))
        assert {len(q.get(id).attempts) for id in harmless} == {1}
