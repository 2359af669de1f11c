"""Programs and workers that reach their plane over TCP."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
import shared_path
from heads import ServedHead, served
from planes import working

import lakeshore as dls


@pytest.fixture
def head(home: Path, tmp_path: Path, backend: Any) -> Iterator[ServedHead]:
    with served(tmp_path / "plane.db", backend) as running:
        yield running


@pytest.fixture
def q(head: ServedHead, backend: Any) -> Iterator[dls.Dispatch]:
    with dls.Dispatch(head.url, backend=backend) as dispatch:
        yield dispatch


def test_every_verb_over_tcp(q: dls.Dispatch) -> None:
    with working(q, slots=3):
        inv = q.submit(shared_path.double, 21)
        assert q.result(inv) == 42
        ids = shared_path.double.submit_many(range(50))
        assert [q.result(each) for each in ids] == [2 * number for number in range(50)]
        assert [frame.value for frame in q.stream(q.submit(shared_path.count, 5000))] == list(range(5000))
        assert q.get(inv).worker_pid
        failing = q.submit(shared_path.double, "x", _key="k")
        assert q.submit(shared_path.double, "x", _key="k") == failing
        assert q.result(failing) == "xx"
        assert q.result(q.retry(inv)) == 42
    q.queues.add("other", kind="priority")
    assert [queue.name for queue in q.queues.ls()] == ["default", "other"]
    waiting = q.submit(shared_path.double, 1)
    q.kill(waiting)
    with pytest.raises(dls.InvocationKilled):
        q.result(waiting)
    with pytest.raises(dls.NotFound):
        q.queues.show("nothing")
    topic = q.topic("t")
    assert [topic.post(number) for number in range(100)] == list(range(100))
    topic.close()
    assert [frame.value for frame in topic.stream()] == list(range(100))
    assert q.workers.list() == []


def test_a_worker_whose_functions_are_found_by_reference(q: dls.Dispatch) -> None:
    inv = q.submit(shared_path.double, 4)
    assert dls.run_worker(q, once=True, allow_pickle=False) == 1
    assert q.result(inv) == 8


def test_once_and_drain_work_from_afar(q: dls.Dispatch) -> None:
    assert dls.run_worker(q, once=True) == 0
    ids = shared_path.double.submit_many(range(20))
    assert dls.run_worker(q, once=True) == 1
    assert dls.run_worker(q, drain=True, slots=4) == 19
    assert [q.result(inv) for inv in ids] == [2 * number for number in range(20)]


def test_waits_and_streams_go_on_across_a_restart(head: ServedHead, q: dls.Dispatch) -> None:
    inv = q.submit(shared_path.count, 2000)
    stream = iter(q.stream(inv))
    result: list[Any] = []
    waiting = threading.Thread(target=lambda: result.append(q.result(inv)))
    waiting.start()
    with working(q):
        seen = [next(stream).value]
        head.restart()
        seen += [frame.value for frame in stream]
        waiting.join()
    assert seen == list(range(2000))
    assert result == [None]
    assert q.get(inv).attempt == 1


def test_a_body_submits_to_the_plane_it_came_from(q: dls.Dispatch) -> None:
    inv = q.submit(shared_path.parent, 3)
    with working(q):
        child = q.result(inv)
        assert q.result(child) == 6
        assert q.get(child).parent == inv


@pytest.mark.anyio
async def test_the_asynchronous_face(home: Path, tmp_path: Path, anyio_backend_name: str) -> None:
    head = await anyio.to_thread.run_sync(ServedHead, tmp_path / "plane.db", anyio_backend_name)
    try:
        async with dls.AsyncDispatch(head.url) as q, anyio.create_task_group() as tasks:
            await tasks.start(dls.arun_worker, q)
            inv = await q.submit(shared_path.double, 21)
            assert await q.result(inv) == 42
            await anyio.to_thread.run_sync(head.restart)
            more = await q.submit(shared_path.count, 100)
            assert [frame.value async for frame in q.stream(more)] == list(range(100))
            assert (await q.status()).clients == 1
            tasks.cancel_scope.cancel()
    finally:
        await anyio.to_thread.run_sync(head.stop)


def test_nobody_there(tmp_path: Path, backend: Any, head: ServedHead) -> None:
    head.stop()
    q = dls.Dispatch(head.url, backend=backend, connect_timeout=0)
    with pytest.raises(dls.LakeshoreError, match=r"nothing listens at .*`lakeshore serve`"):
        q.queues.ls()
    head.start()
    assert [queue.name for queue in q.queues.ls()] == ["default"]  # the next call looks again
    q.close()


def test_a_restart_while_nobody_asks(head: ServedHead, q: dls.Dispatch) -> None:
    q.queues.ls()
    head.restart()
    inv = q.submit(shared_path.double, 1)
    assert q.get(inv).state == "queued"


def test_a_worker_that_is_drained_from_afar_ends(q: dls.Dispatch) -> None:
    ran: list[int] = []
    thread = threading.Thread(target=lambda: ran.append(dls.run_worker(q)))
    thread.start()
    assert q.result(q.submit(shared_path.double, 1)) == 2
    (worker,) = q.workers.list()
    q.workers.drain(worker.id)
    thread.join()
    assert ran == [1]


def test_a_worker_that_is_removed_ends_and_its_work_is_killed(q: dls.Dispatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "one.gate")
    ran: list[int] = []
    thread = threading.Thread(target=lambda: ran.append(dls.run_worker(q)), daemon=True)
    thread.start()
    inv = q.submit(shared_path.meet, str(tmp_path), "one")
    while not (tmp_path / "one.began").exists():
        os.sched_yield()
    (worker,) = q.workers.list()
    q.workers.remove(worker.id)
    with pytest.raises(dls.InvocationKilled, match="removed"):
        q.result(inv)
    (tmp_path / "one.gate").write_text("go")
    thread.join()
    assert q.workers.list() == []


def test_a_head_that_ends_on_a_bug_loses_nothing(head: ServedHead, q: dls.Dispatch, tmp_path: Path) -> None:
    """Who waits is told of the bug; a worker and its body go on with the next head."""
    os.mkfifo(tmp_path / "one.gate")
    with working(q):
        inv = q.submit(shared_path.meet, str(tmp_path), "one")
        while not (tmp_path / "one.began").exists():
            os.sched_yield()
        plane = head.host.plane
        head.host.backend.post(lambda: plane.engine.fail(RuntimeError("planted")))
        with pytest.raises(dls.PlaneFailed, match="planted"):
            q.result(inv)
        with pytest.raises(dls.PlaneFailed, match="planted"):
            head.join()
        head.start()
        assert q.get(inv).state == "running"
        (tmp_path / "one.gate").write_text("go")
        assert q.result(inv, timeout=60) == "go"
        assert q.get(inv).attempt == 1
