"""What processes of bodies may take, when they are replaced, and which GPU is whose."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import process_jobs as jobs
import pytest
from planes import PATIENCE
from processes import processes

import lakeshore as dls
from lakeshore.core.messages import Ended
from lakeshore.runners.processes import deaths
from lakeshore.runners.processes.kernel import how, members, memory_kills, proportional, resident
from lakeshore.sdk.processes.options import dealt
from lakeshore.sdk.worker_options import WorkerOptions

MB = 1 << 20


def test_a_memory_limit() -> None:
    with dls.Dispatch(":memory:") as q, processes(q, memory=150 * MB):
        inv = q.submit(jobs.eats, 250 * MB)
        with pytest.raises(dls.InvocationFailed) as found:
            q.result(inv, timeout=PATIENCE)
        assert found.value.type == "lakeshore.OutOfMemory"
        assert found.value.message.startswith("memory limit: used ")
        assert found.value.message.endswith(f" of {150 * MB:,} bytes")
        inv = q.submit(jobs.asks, 8 << 30)  # more than can be noticed in time
        with pytest.raises(dls.InvocationFailed, match="MemoryError") as found:
            q.result(inv, timeout=PATIENCE)
        assert str(150 * MB) in found.value.notes[0]
        assert q.result(q.submit(jobs.double, 2), timeout=PATIENCE) == 4


def test_each_job_has_a_process_of_its_own() -> None:
    with dls.Dispatch(":memory:") as q, processes(q, recycle_jobs=1):
        invs = [q.submit(jobs.pid) for _ in range(3)]
        assert len({q.result(inv, timeout=PATIENCE) for inv in invs}) == 3


@pytest.mark.parametrize("limit", [{"recycle_age": 0.01}, {"recycle_memory": 16 * MB}])
def test_old_and_large_ones_are_replaced_once_another_is_there(limit: dict[str, Any]) -> None:
    with dls.Dispatch(":memory:") as q, processes(q, **limit):
        first = q.result(q.submit(jobs.pid), timeout=PATIENCE)
        while q.result(q.submit(jobs.pid), timeout=PATIENCE) == first:
            pass


def test_one_gpu_for_each_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-7")
    with dls.Dispatch(":memory:") as q, processes(q, gpus=2, recycle_jobs=2):
        for turn in ("1", "2"):
            folder = tmp_path / turn
            folder.mkdir()
            invs = [q.submit(jobs.device, str(folder), *pair) for pair in ("ab", "ba")]
            assert {q.result(inv, timeout=PATIENCE) for inv in invs} == {"5", "GPU-7"}


def test_what_names_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    assert dealt(2) == ("CUDA_VISIBLE_DEVICES", ("0", "1"))
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3, 1")
    assert dealt(2) == ("ROCR_VISIBLE_DEVICES", ("3", "1"))
    with pytest.raises(ValueError, match="names 2: name more, or use less"):
        dealt(3)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"memory": 1}, "memory=1: choose 16777216"),
        ({"recycle_jobs": 0}, "recycle_jobs=0: choose 1"),
        ({"recycle_age": -1}, "recycle_age=-1: choose seconds above 0"),
        ({"recycle_memory": 5}, "recycle_memory=5"),
        ({"gpus": -1}, "gpus=-1"),
    ],
)
def test_what_makes_no_sense(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        dls.Processes(**wrong)


def test_what_a_worker_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    rest: Any = (None, None, True, (), False, None, 30.0, None)

    def options(slots: int | None, runner: Any) -> WorkerOptions:
        return WorkerOptions((), False, False, slots, runner, *rest)

    assert options(None, dls.Processes(gpus=3)).slots == 3
    assert options(None, "process").slots == 1
    with pytest.raises(ValueError, match="slots=2 and gpus=3: each slot has one GPU, so leave slots out"):
        options(2, dls.Processes(gpus=3))
    with pytest.raises(ValueError, match="choose inline or process"):
        options(1, "threads")


def test_how_a_process_ended() -> None:
    assert how(3) == "ended with exit code 3"
    assert how(-6) == "was killed by SIGABRT (aborted)"
    assert how(-99) == "was killed by signal 99"


def test_who_was_killed_for_memory(tmp_path: Path) -> None:
    """As both kinds of control groups tell it."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("12:cpu,memory:/one\n0::/two/three\n1:name=systemd:/\n")
    assert memory_kills(tmp_path, tmp_path) == 0
    for name, text in (
        ("memory/one/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ("two/three/memory.events", "low 0\noom 5\noom_kill 4\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert memory_kills(tmp_path, tmp_path) == 6
    assert memory_kills(tmp_path / "none", tmp_path) == 0


@pytest.mark.parametrize(
    ("state", "out_of_memory", "move", "said"),
    [
        ({"status": -9}, True, "fail", "out of memory: its process 7 was killed by SIGKILL"),
        ({"status": -9}, False, "kill", "its process 7 was ended by SIGKILL from outside"),
        ({"status": -15}, True, "kill", "its process 7 was ended by SIGTERM from outside"),
        ({"status": -2}, False, "kill", "its process 7 was ended by SIGINT from outside"),
        ({"status": -1}, False, "kill", "its process 7 was ended by SIGHUP from outside"),
        ({"status": -9, "used": 200}, False, "fail", "memory limit: used 200 of 100 bytes"),
        ({"status": -9, "fault": "its fault"}, False, "fail", "its fault"),
        ({"status": -10}, False, "fail", "the process of the body was killed by SIGUSR1"),
        ({"status": 0}, False, "fail", "the process of the body ended with exit code 0"),
    ],
)
def test_what_a_death_means(state: dict[str, Any], out_of_memory: bool, move: str, said: str) -> None:
    process: Any = SimpleNamespace(**{"pid": 7, "used": 0, "fault": "", "retries": 0, **state})

    def stopped(move: str, seconds: float, reason: str) -> Ended:
        return Ended(b"i", 1, move, seconds=seconds, reason=reason)

    job: Any = SimpleNamespace(why="", id=b"i", attempt=1, stopped=stopped)
    report = deaths.report(job, process, 1.5, out_of_memory, 100)
    assert type(report) is Ended
    assert (report.move, report.reason or (report.error and report.error.message)) == (move, said)


def test_what_processes_take() -> None:
    found = members([os.getpgrp()])[os.getpgrp()]
    assert os.getpid() in found
    assert resident([os.getpid()]) > MB
    assert proportional([os.getpid()]) > MB
    assert resident([1 << 30]) == proportional([1 << 30]) == 0
