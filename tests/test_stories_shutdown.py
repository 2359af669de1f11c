"""A worker is told to stop: what begins no more, what goes back, what still arrives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandPlane


def test_nothing_begins_after_the_stop_and_results_on_their_way_arrive() -> None:
    """By hand: four run, more wait in the worker, three results are in its send buffer."""
    plane = HandPlane()
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "a", declare({})))
    client.answer(client.ask(m.AddQueue, "b", declare({})))
    worker, queues = plane.worker(queues=("a", "b"), slots=4), ("a", "b")
    for n in range(8):
        worker.finish(client.submit(queue=queues[n % 2]))
    ids = [client.submit(queue=queues[n % 2]) for n in range(20)]
    assert worker.worker.held == 16, "nothing was granted ahead"
    waits = {id: client.ask(m.Wait, id) for id in ids}
    plane.settle()
    worker.link.hold = True
    done = list(worker.jobs)[:3]
    for n, id in enumerate(done):
        worker.finish(id, n)
    begun = list(worker.started)
    worker.worker.drain()
    for id in list(worker.jobs)[:1]:
        worker.finish(id, "ended in time")
        done.append(id)
    plane.settle()
    assert worker.started == begun
    assert all(client.answers[waits[id]] == [] for id in done)
    worker.link.hold = False
    worker.link.deliver()
    plane.settle()
    assert [client.result(id) for id in done] == [0, 1, 2, "ended in time"]
    assert [len(client.answers[waits[id]]) for id in done] == [1] * 4
    late = [client.submit(queue=name) for name in queues]
    running = list(worker.jobs)
    assert len(running) == 3
    back = [id for id in ids if id not in done + running]
    for id in [*back, *late]:
        record = client.record(id)
        assert client.state(id) == "queued"
        assert (record.losses, record.retries) == (0, 0)
        assert {a.outcome for a in record.attempts} <= {"returned"}
    client.kill(running[0], running=True)
    plane.settle()
    assert worker.cancelled == [(running[0], "kill")]  # kills are still served
    worker.stop(running[0])
    worker.worker.interrupt()
    assert worker.cancelled[1:] == [(id, "drain") for id in running[1:]]
    for id in running[1:]:
        worker.stop(id)
    assert [client.state(id) for id in running] == ["killed", "queued", "queued"]
    assert worker.worker.held == 0
    assert worker.started == begun
    second = plane.worker(queues=queues, slots=30)
    plane.settle()
    assert set(second.started) == {*back, *late, *running[1:]}


SCRIPT = """
import os, signal, sys, threading
import anyio
import lakeshore as dls

told, began = threading.Event(), threading.Semaphore(0)

def says(what):
    print(what, flush=True)

async def until_told():
    while not told.is_set():
        await anyio.sleep(0.005)

@dls.udf(queue="a")
async def quick():
    began.release()
    await until_told()
    return "in time"

@dls.udf(queue="b")
async def killed():
    began.release()
    await anyio.sleep_forever()

@dls.udf(queue="a")
async def stubborn():
    began.release()
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        return "ended by itself, a little late"

@dls.udf(queue="b")
async def endless():
    began.release()
    try:
        await anyio.sleep_forever()
    finally:
        says("endless is cancelled")

@dls.udf(queue="a")
async def later_a():
    says("begun too late")

@dls.udf(queue="b")
async def later_b():
    says("begun too late")

@dls.udf(queue="a")
async def warm():
    pass

def stopper(q, how, stop):
    for _ in range(12):  # bodies known to be short: more is granted than there are slots
        q.result(warm.submit(_dispatch=q))
    ids = [f.submit(_dispatch=q) for f in (quick, killed, stubborn, endless)]
    for _ in ids:
        began.acquire()
    rest = [f.submit(_dispatch=q) for f in (later_a, later_b) * 3]
    says(" ".join(ids + rest))
    if how == "close":
        q.close()
        return
    if how == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        stop.set()
    while [worker.state for worker in q.workers.list()] != ["draining"]:
        pass
    later_a.submit(_dispatch=q)
    q.kill(ids[1], running=True)
    told.set()

def main(path, backend, how):
    q, stop = dls.Dispatch(path, backend=backend), threading.Event()
    threading.Thread(target=stopper, args=(q, how, stop)).start()
    says(dls.run_worker(q, queues=["a", "b"], slots=4, grace=0.5, stop=stop))
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("how", ["event", "signal", "close"])
def test_every_way_to_stop_a_process_is_the_same_stop(tmp_path: Path, backend: Any, how: str) -> None:
    """Two queues share one worker and one grace."""
    (tmp_path / "stops.py").write_text(SCRIPT)
    call = f"import stops; stops.main({str(tmp_path / 'plane.db')!r}, {backend!r}, {how!r})"
    done = subprocess.run(
        [sys.executable, "-c", call],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([".", *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    ids, *said = done.stdout.splitlines()
    quick, killed, stubborn, endless, *rest = ids.split()
    closed = how == "close"  # then nobody can tell bodies anything: the grace ends all four
    assert said == ["endless is cancelled", "13" if closed else "15"]
    with dls.Dispatch(tmp_path / "plane.db") as q:

        def ends(inv: str) -> tuple[str, list[str | None]]:
            return str(q.get(inv).state), [a.outcome for a in q.get(inv).attempts]

        assert q.result(stubborn, timeout=0) == "ended by itself, a little late"
        assert ends(endless) == ("queued", ["returned"])
        assert "grace" in str(q.get(endless).attempts[0].reason)
        if closed:
            assert ends(quick) == ends(killed) == ends(endless)
        else:
            assert q.result(quick, timeout=0) == "in time"
            assert ends(killed) == ("killed", ["killed"])
        assert {ends(inv)[0] for inv in rest} == {"queued"}
        assert {outcome for inv in rest for outcome in ends(inv)[1]} <= {"returned"}
        assert len(q.jobs.list(state="queued")) == 6 + (3 if closed else 2)
