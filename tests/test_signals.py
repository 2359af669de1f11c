"""SIGINT and SIGTERM belong to a blocking worker on the main thread while it runs, and to nobody else."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import lakeshore as dls

SCRIPT = """
import sys, time, signal
import lakeshore as dls

@dls.udf
async def slow():
    import anyio
    print("begun", flush=True)
    try:
        await anyio.sleep(float(sys.argv[3]))
    except BaseException:
        print("cancelled", flush=True)
        raise
    return "done"

@dls.udf
def thread_slow():
    print("begun", flush=True)
    time.sleep(float(sys.argv[3]))
    return "done"

def own(*args): pass
signal.signal(signal.SIGTERM, own)
with dls.Dispatch(sys.argv[1], backend=sys.argv[2]) as q:
    inv = (slow if sys.argv[4] == "async" else thread_slow).submit(_dispatch=q)
    later = slow.submit(_dispatch=q)
    ran = dls.run_worker(q, grace=60)
    while (record := q.get(inv)).state == "running":  # what went back is on its way
        pass
    outcomes = [str(attempt.outcome) for attempt in record.attempts]
    print(ran, record.state, outcomes, q.get(later).state, flush=True)
    assert signal.getsignal(signal.SIGTERM) is own
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""


def _start(tmp_path: Path, backend: Any, seconds: float, kind: str) -> subprocess.Popen[str]:
    script = tmp_path / "worker.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), ":memory:", backend, str(seconds), kind]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_drains(tmp_path: Path, backend: Any, number: signal.Signals) -> None:
    process = _start(tmp_path, backend, 0.3, "async")
    process.send_signal(number)
    out, _ = process.communicate(timeout=30)
    assert out.splitlines()[-1] == "1 succeeded ['succeeded'] queued"
    assert process.returncode == 0


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_the_second_signal_ends_at_once(tmp_path: Path, backend: Any, kind: str) -> None:
    process = _start(tmp_path, backend, 600, kind)
    while process.poll() is None:
        process.send_signal(signal.SIGINT if kind == "async" else signal.SIGTERM)
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            continue
    out, _ = process.communicate(timeout=30)
    assert "0 queued ['returned'] queued" in out
    assert ("cancelled" in out) is (kind == "async")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_elsewhere_signals_are_left_alone(backend: Any) -> None:
    hits: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda *_: hits.append(1))
    ours, sigint = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        with dls.Dispatch(":memory:", backend=backend) as q:
            begun, release, ran = threading.Event(), threading.Event(), []

            def body() -> None:
                begun.set()
                release.wait()

            q.submit(body)
            worker = threading.Thread(target=lambda: ran.append(dls.run_worker(q, once=True)))
            worker.start()
            begun.wait()
            assert signal.getsignal(signal.SIGTERM) is ours
            assert signal.getsignal(signal.SIGINT) is sigint
            os.kill(os.getpid(), signal.SIGTERM)
            assert hits == [1]
            release.set()
            worker.join(10)
            assert ran == [1]
            q.submit(release.is_set)
            assert dls.run_worker(q, once=True) == 1
        assert signal.getsignal(signal.SIGTERM) is ours
        assert signal.getsignal(signal.SIGINT) is sigint
    finally:
        signal.signal(signal.SIGTERM, before)
