"""Processes of bodies where nobody lets them end: their worker is gone, or they can't even begin."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import process_jobs as jobs
import pytest
from daemons import Daemon, wait_gone
from heads import served
from planes import PATIENCE
from processes import hurried, processes

import lakeshore as dls
from lakeshore.runners.processes import pool, process, spawning
from lakeshore.runners.processes.spawning import Spawned

HERE = Path(__file__).parent

_WORKS = """
import sys; sys.path.insert(0, {here!r})
import json, threading, lakeshore as dls, process_jobs as jobs
with dls.Dispatch(":memory:") as q:
    invs = [q.submit(jobs.stubborn), q.submit(jobs.holds_the_lock)]
    def say():
        said = json.dumps([pid for inv in invs for pid in next(iter(q.stream(inv))).value])
        print(said, flush=True)
    threading.Thread(target=say).start()
    dls.run_worker(q, runner="process", slots=2)
"""


def test_a_worker_that_is_killed_leaves_nothing_behind() -> None:
    code = _WORKS.format(here=str(HERE))
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pids = json.loads(worker.stdout.readline())
        worker.kill()
        for pid in pids:
            wait_gone(pid)


def test_a_fork_of_a_worker_keeps_no_process_alive(tmp_path: Path) -> None:
    code = _WORKS.format(here=str(HERE)).replace("print(", "os.fork() or time.sleep(1000); print(")
    code = code.replace("import json", "import json, os, time")
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pids = json.loads(worker.stdout.readline())
        forks = children(worker.pid)
        worker.kill()
        for pid in pids:
            wait_gone(pid)
        for pid in set(forks) - set(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def children(pid: int) -> list[int]:
    return [
        int(each)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for each in (task / "children").read_text().split()
    ]


def test_a_worker_that_ends_leaves_nothing_behind(backend: Any) -> None:
    stop = threading.Event()
    with dls.Dispatch(":memory:", backend=backend) as q, hurried():
        inv = q.submit(jobs.stubborn)
        work = threading.Thread(
            target=dls.run_worker, args=(q,), kwargs={"runner": "process", "grace": 0, "stop": stop}
        )
        work.start()
        pids = next(iter(q.stream(inv))).value
        stop.set()
        work.join(PATIENCE)
        assert not work.is_alive()
        for pid in pids:
            wait_gone(pid)
        shown = q.get(inv)
        assert (shown.state, shown.attempts[0].outcome) == ("queued", "returned")


@pytest.mark.anyio
async def test_a_worker_that_is_cancelled_leaves_nothing_behind() -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        inv = await q.submit(jobs.stubborn)
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                await dls.arun_worker(q, runner="process")

            tasks.start_soon(work)
            async for frame in q.stream(inv):
                pids = frame.value
                break
            tasks.cancel_scope.cancel()
        for pid in pids:
            await anyio.to_thread.run_sync(wait_gone, pid)
        assert (await q.get(inv)).attempts[0].outcome == "returned"


def test_processes_that_do_not_load_are_not_started_in_a_hurry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    started: list[int] = []
    spawn = pool.spawn

    def started_wrong(title: str, environ: Any, program: str, **options: Any) -> Spawned:
        started.append(1)
        if len(started) <= 4:
            return spawn(title, {**environ, "PYTHONHOME": "/nowhere"}, program, **options)
        return spawn(title, environ, program, **options)

    monkeypatch.setattr(pool, "spawn", started_wrong)
    monkeypatch.setattr(pool, "_FIRST", 0.001)
    with caplog.at_level(logging.ERROR), dls.Dispatch(":memory:") as q, processes(q):
        inv = q.submit(jobs.double, 1)
        assert q.result(inv, timeout=PATIENCE) == 2
        first = q.get(inv).attempts[0]
    assert first.outcome == "returned"
    assert "a process for bodies ended with exit code 1 while it loaded" in (first.reason or "")
    assert "trying again in 0.0 s" in caplog.text


@pytest.mark.parametrize(
    ("where", "name"), [(pool, "spawn"), (process, "PipeReader"), (process, "_watch_exit")]
)
def test_no_more_processes_are_to_be_had(monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
    real, refusals = getattr(where, name), [OSError("no more"), RuntimeError("can't start new thread")]
    children: list[int] = []

    def refusing(*args: Any, **options: Any) -> Any:
        if refusals:
            children.extend(args[:1] if name == "_watch_exit" else ())
            raise refusals.pop()
        return real(*args, **options)

    monkeypatch.setattr(where, name, refusing)
    monkeypatch.setattr(pool, "_FIRST", 0.001)
    before = descriptors()
    with dls.Dispatch(":memory:") as q, processes(q, gpus=1):
        assert q.result(q.submit(jobs.double, 1), timeout=PATIENCE) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    assert descriptors() == before


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", ["pipe", "dup", "posix_spawn"])
def test_a_process_that_can_not_be_had_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real, calls = getattr(os, name), [name] if name != "posix_spawn" else []

    def refusing(*args: Any, **options: Any) -> Any:
        if calls:  # the second one fails
            calls.pop()
            return real(*args)
        raise OSError(24, "Too many open files")

    before = descriptors()
    monkeypatch.setattr(os, name, refusing)
    with pytest.raises(OSError, match="Too many"):
        spawning.spawn("test", {}, "nothing", capture=True)
    assert descriptors() == before


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_kill_of_what_is_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool) -> None:
    """Its body never begins, so that needs no `running`."""
    name = f"loads_{goes_on}"
    (tmp_path / f"{name}.py").write_text(
        "import lakeshore, pathlib, sys, time\n"
        f"here = pathlib.Path({str(tmp_path)!r})\n"
        "if sys.argv == ['lakeshore body']:\n"
        "    (here / 'there').touch()\n"
        "    while not (here / 'go').exists(): time.sleep(0.001)\n"
        "@lakeshore.udf\n"
        "def body(): (here / 'ran').touch()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    stop = process.Process.stop

    def stopping(*args: Any) -> None:
        stop(*args)
        if goes_on:
            (tmp_path / "go").touch()

    monkeypatch.setattr(process.Process, "stop", stopping)
    with dls.Dispatch(":memory:") as q, processes(q):
        inv = q.submit(importlib.import_module(name).body)
        while not (tmp_path / "there").exists():
            time.sleep(0.001)
        q.kill(inv)
        assert q.get(inv).state == "killed"
        assert q.result(q.submit(jobs.double, 1), timeout=PATIENCE) == 2
    assert not (tmp_path / "ran").exists()


def test_a_kill_of_what_waits_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def spawning(*args: Any, **options: Any) -> Spawned:
        raise OSError("no more")

    monkeypatch.setattr(pool, "spawn", spawning)
    with dls.Dispatch(":memory:") as q, processes(q):
        inv = q.submit(jobs.double, 1)
        while q.get(inv).state == "queued":
            time.sleep(0.001)
        q.kill(inv)
        assert q.get(inv).state == "killed"


def test_what_bodies_have_written_is_shown_though_the_program_ends_at_once() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
        "import os, lakeshore as dls, process_jobs as jobs\n"
        "q = dls.Dispatch(':memory:')\n"
        "for _ in range(3): q.submit(jobs.writes, 60_000)\n"
        "dls.run_worker(q, drain=True, runner='process')\n"
        "os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.read() == 3 * (b"y" * 60_000 + b"\nLAST\n")


def test_a_module_that_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends_it.py").write_text(
        "import os, sys, lakeshore\n"
        "if sys.argv == ['lakeshore body']: os._exit(5)\n"
        "@lakeshore.udf(retries=3)\n"
        "def body(): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import ends_it  # type: ignore[import-not-found]

    with dls.Dispatch(":memory:") as q, processes(q):
        inv = q.submit(ends_it.body)
        with pytest.raises(dls.InvocationFailed) as found:
            q.result(inv, timeout=PATIENCE)
    assert (found.value.type, found.value.attempt) == ("lakeshore.ProcessDied", 1)
    assert found.value.message == "the process ended with exit code 5 while it loaded ends_it.body"


def test_what_is_told_to_a_daemon_of_a_job(tmp_path: Path, home: Path) -> None:
    """The advice of the page: a running job is stopped by killing its process."""
    options = ["--name", "d", "--runner", "process", "--hooks", "process_jobs:hooks"]
    with (
        served(tmp_path / "plane.db", "asyncio") as head,
        dls.Dispatch(head.url) as q,
        Daemon(home, head.url, *options) as daemon,
    ):
        from cli import process as command

        inv = q.submit(jobs.sees_it)
        pid = next(iter(q.stream(inv))).value
        shown = command(home, "--url", head.url, "jobs", "show", inv, "--json").json
        assert shown["workerPid"] == pid != daemon.pid
        assert command(home, "--url", head.url, "daemon", "exec", "d", "--", "kill", str(pid)).status == 0
        with pytest.raises(dls.InvocationKilled):
            q.result(inv, timeout=PATIENCE)
        assert q.get(inv).reason == f"its process {pid} was ended by SIGTERM from outside"
        inv = q.submit(jobs.environ, "SET_UP")
        assert q.result(inv, timeout=PATIENCE) == inv  # it goes on, and its hooks are called there
        child = q.result(q.submit(jobs.submits, 5), timeout=PATIENCE)  # with what the daemon may do
        assert q.result(child, timeout=PATIENCE) == 10
        assert daemon.end() == 0


def test_a_hook_of_this_process(tmp_path: Path) -> None:
    said = "from here"
    hooks = dls.Hooks(on_run_setup=lambda run: os.environ.__setitem__("SAID", said))
    with dls.Dispatch(":memory:") as q:
        inv = q.submit(jobs.environ, "SAID")
        assert dls.run_worker(q, once=True, runner="process", hooks=hooks) == 1
        assert q.result(inv) == said
        lock = threading.Lock()
        hooks = dls.Hooks(on_run_setup=lambda run: lock.locked())
        with pytest.raises(TypeError, match="on_run_setup can't be sent"):
            dls.run_worker(q, runner="process", hooks=hooks)
