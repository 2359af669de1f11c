"""`get`, `kill`, `retry` and the administration of jobs and workers."""

import dataclasses
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from planes import PATIENCE, python, working

import lakeshore as dls


class Gate:
    go, began = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.go, Gate.began = threading.Event(), threading.Event()


@dls.udf
def f(x: int = 1) -> int:
    return x


@dls.udf
def held() -> str:
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    return "done"


@dls.udf
async def aheld() -> str:
    Gate.began.set()
    await anyio.sleep_forever()
    return "never"


@dls.udf(retries=1, retry_delay=0.001, name="shown", priority=2)
def second_time(x: int) -> str:
    if dls.run.attempt == 1:
        raise ValueError(f"attempt {dls.run.attempt}")
    return f"{dls.run.id} {dls.run.queue} {dls.run.namespace} {x}"


def test_the_record(q: dls.Dispatch) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    inv = second_time.submit(5, _key="k", _priority=3)
    job = q.get(inv)
    assert (job.id, job.queue, job.namespace, job.state) == (inv, "default", "default", "queued")
    assert (job.function, job.key, job.priority, job.attempt) == ("shown", "k", 3.0, 0)
    assert (job.worker, job.worker_pid, job.started_at, job.ended_at, job.error) == (None,) * 5
    assert before <= job.submitted_at <= datetime.now(UTC)
    dls.run_worker(q, once=True, name="me")
    assert q.result(inv) == f"{inv} default default 5"
    job = q.get(inv)
    assert [(a.number, a.outcome) for a in job.attempts] == [(1, "failed"), (2, "succeeded")]
    assert {type(attempt.outcome) for attempt in job.attempts} == {str}
    assert job.attempts[0].reason == "builtins.ValueError: attempt 1"
    assert job.worker == job.attempts[1].worker
    assert job.worker_pid == os.getpid()
    assert job.attempts[0].started_at <= job.attempts[1].started_at <= job.ended_at  # type: ignore[operator]
    assert q.jobs.show(inv) == job


def test_a_failed_one_says_its_error(q: dls.Dispatch) -> None:
    inv = q.submit(divide, 1, 0)
    dls.run_worker(q, once=True)
    assert q.get(inv).error == "builtins.ZeroDivisionError: division by zero"
    assert q.jobs.why(inv)[0] == "it is failed: builtins.ZeroDivisionError: division by zero"


def divide(a: int, b: int) -> float:
    return a / b


# kill


def test_a_queued_one_is_killed(q: dls.Dispatch) -> None:
    inv = f.submit()
    q.kill(inv)
    q.kill(inv)  # again is fine
    with pytest.raises(dls.InvocationKilled):
        q.result(inv)
    assert dls.run_worker(q, once=True) == 0


def test_an_ended_one_is_a_conflict(q: dls.Dispatch) -> None:
    inv = f.submit()
    dls.run_worker(q, once=True)
    for running in (False, True):
        with pytest.raises(dls.Conflict, match="succeeded already"):
            q.kill(inv, running=running)
    assert q.result(inv) == 1


@pytest.mark.parametrize("body", [held, aheld], ids=["sync", "async"])
def test_a_running_one_is_killed_only_when_asked_for(q: dls.Dispatch, body: dls.UDF[[], str]) -> None:
    inv = body.submit()
    with working(q):
        assert Gate.began.wait(PATIENCE)
        with pytest.raises(dls.Conflict, match="running=True"):
            q.kill(inv)
        assert q.get(inv).state == "running"
        if body is held:
            Gate.go.set()
            assert q.result(inv, timeout=PATIENCE) == "done"
        else:
            q.jobs.kill(inv, running=True)
            assert q.get(inv).state == "killed"
            with pytest.raises(dls.InvocationKilled):
                q.result(inv)


# retry


def test_a_retry_is_a_new_invocation(q: dls.Dispatch) -> None:
    with dls.scope("a/b"):
        old = q.submit(prefixed, {"x": b"y" * 5000})
    with pytest.raises(dls.Conflict, match="queued"):
        q.retry(old)
    dls.run_worker(q, once=True)
    new = q.jobs.retry(old)
    assert new != old
    job = q.get(new)
    assert (job.retry_of, job.state, job.attempts) == (old, "queued", ())
    dls.run_worker(q, once=True)
    assert q.result(new) == q.result(old) == ["a/b", {"x": b"y" * 5000}]


def prefixed(value: Any) -> list[Any]:
    return [dls.run.prefix, value]


def test_a_retry_into_a_removed_queue_is_not_found(q: dls.Dispatch) -> None:
    inv = dls.udf(f.fn, queue="gone").submit()
    dls.run_worker(q, once=True)
    q.queues.rm("gone")
    assert q.get(inv).queue == "gone"
    with pytest.raises(dls.NotFound, match="removed"):
        q.retry(inv)


# lists


def test_listing_is_newest_first_and_filtered(q: dls.Dispatch) -> None:
    other = dls.udf(f.fn, queue="other")
    ids = [f.submit(n) for n in range(5)] + [other.submit(n) for n in range(2)]
    q.kill(ids[0])
    dls.run_worker(q, queues=["other"], drain=True)
    assert [job.id for job in q.jobs.list()] == ids[::-1]
    assert [job.id for job in q.jobs.list(queue="other")] == ids[:4:-1]
    assert [job.id for job in q.jobs.list(queue=q.queues.show("other").id)] == ids[:4:-1]
    assert [job.id for job in q.jobs.list(state="killed")] == ids[:1]
    assert {job.id for job in q.jobs.list(state=["killed", dls.State.SUCCEEDED])} == {ids[0], *ids[5:]}
    assert [job.id for job in q.jobs.list(limit=2, offset=1)] == ids[::-1][1:3]
    worker = q.get(ids[6]).worker
    assert {job.id for job in q.jobs.list(worker=worker)} == set(ids[5:])
    assert [job.id for job in q.jobs.list(before=ids[3])] == ids[2::-1]
    assert [job.id for job in q.jobs.list(before=ids[6], queue="other")] == [ids[5]]
    assert [job.id for job in q.jobs.list(before=ids[6], limit=2, offset=1)] == ids[4:2:-1]
    assert [job.id for job in q.jobs.list(before=ids[6], worker=worker, state="succeeded")] == [ids[5]]
    with pytest.raises(dls.NotFound, match="did you mean 'other'"):
        q.jobs.list(queue="othre")


def test_bulk_cancel_leaves_what_runs(q: dls.Dispatch) -> None:
    running = held.submit()
    with working(q):
        assert Gate.began.wait(PATIENCE)
        here = f.submit_many(range(1500))
        there = dls.udf(f.fn, queue="other").submit_many(range(3))
        assert q.jobs.bulk_cancel("other") == 3
        assert q.jobs.bulk_cancel() == 1500
        assert {q.get(inv).state for inv in (here[0], here[-1], *there)} == {"killed"}
        Gate.go.set()
        assert q.result(running, timeout=PATIENCE) == "done"
    with pytest.raises(dls.NotFound):
        q.jobs.bulk_cancel("nowhere")


def test_pruning_takes_what_has_ended(q: dls.Dispatch) -> None:
    done = f.submit_many(range(30))
    dls.run_worker(q, drain=True)
    kept = f.submit()
    assert q.jobs.prune() == 0
    assert q.jobs.prune(timedelta(hours=1)) == 0
    assert q.jobs.prune(0) == 30
    assert [job.id for job in q.jobs.list()] == [kept]
    with pytest.raises(dls.Expired):
        q.result(done[-1])


def test_a_queue_s_own_retention(tmp_path: Path, backend: Any) -> None:
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q:
        q.queues.add("short", retention=0)
        short, long = dls.udf(f.fn, queue="short").submit(), f.submit()
        dls.run_worker(q, drain=True)
        assert q.jobs.prune() == 1
        assert q.get(long).state == "succeeded"
        with pytest.raises(dls.NotFound):
            q.get(short)


# workers


def test_workers(q: dls.Dispatch) -> None:
    assert q.workers.list() == []
    inv = held.submit()
    with working(q, name="w", slots=3, labels={"a": "b"}):
        assert Gate.began.wait(PATIENCE)
        (worker,) = q.workers.list()
        assert (worker.name, worker.slots, worker.busy, worker.state) == ("w", 3, 1, "ready")
        assert (worker.pid, worker.labels, worker.queues) == (os.getpid(), {"a": "b"}, ("default",))
        assert q.get(inv).worker == worker.id
        stats = q.queues.stats("default")
        assert (stats.daemons, stats.running, stats.utilization) == (1, 1, pytest.approx(1 / 3))
        Gate.go.set()
        q.result(inv, timeout=PATIENCE)
    assert q.workers.list() == []
    (ended,) = q.workers.list(ended=True)
    assert (ended.id, ended.state) == (worker.id, "ended")


# values by type


def test_result_builds_what_it_is_told(tmp_path: Path) -> None:
    inv = python(
        """
        import dataclasses, sys
        import lakeshore as dls

        @dataclasses.dataclass
        class Point:
            x: int

        @dls.udf
        def f():
            return [Point(3)]

        q = dls.Dispatch(sys.argv[1])
        inv = f.submit()
        dls.run_worker(q, once=True)
        assert q.result(inv) == [Point(3)]
        print(inv)
        """,
        tmp_path,
        tmp_path / "plane.db",
    )
    with dls.Dispatch(tmp_path / "plane.db") as q:
        (found,) = q.result(inv)
        assert isinstance(found, dls.Record)
        assert found.x == 3
        Point = dataclasses.make_dataclass("Point", ["x"], namespace={"__module__": "__main__"})
        assert q.result(inv, type=list[Point]) == [Point(3)]
