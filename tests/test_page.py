"""Every line of the page "Task queue", as a user runs it."""

import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import ulid
from planes import PATIENCE, elsewhere, python, working

import dreamlake.lakeshore as dls


class Gate:
    """Where a body says that it began, and waits for leave to go on."""

    began, go = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.began, Gate.go = threading.Event(), threading.Event()


@dls.udf
def f(x: int) -> int:
    return x + 1


@dls.udf
def held() -> str:
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    return "done"


@dls.udf(timeout=0.05)
async def too_slow() -> None:
    await anyio.sleep(60)


@dls.udf
def steps():
    yield "a"
    yield "b"
    Gate.go.wait(PATIENCE)
    yield "c"


@dls.udf
def where() -> list[str]:
    with dls.scope("inner"):
        child = here.submit()
    return [dls.run.prefix, child]


@dls.udf
def here() -> str:
    return dls.run.prefix


@dls.udf
def fails() -> None:
    raise LookupError("nothing there")


@dls.udf
def count(n: int):
    yield from range(n)


@dls.udf
async def slowly(x: int) -> int:
    await anyio.lowlevel.checkpoint()
    return x


@dls.udf
async def acount(n: int):
    for i in range(n):
        yield i


def test_submit_returns_a_ulid_string(q: dls.Dispatch) -> None:
    inv = f.submit(x=1)
    assert type(inv) is str
    assert str(ulid.ULID.from_str(inv)) == inv
    dls.run_worker(q, once=True)
    assert q.result(inv) == 2


def test_ids_rise_in_the_order_of_submits(q: dls.Dispatch) -> None:
    ids = [f.submit(x) for x in range(20)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 20


def test_a_later_process_reads_the_result(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    inv = python(
        """
        import sys
        import dreamlake.lakeshore as dls

        @dls.udf
        def f(x):
            return x * 10

        q = dls.Dispatch(sys.argv[1])
        inv = f.submit(x=4)
        dls.run_worker(q, once=True)
        print(inv)
        """,
        tmp_path,
        path,
    )
    later = (
        "import sys, lakeshore as dls; print(dls.Dispatch(sys.argv[1], backend='trio').result(sys.argv[2]))"
    )
    assert python(later, tmp_path, path, inv) == "40"
    with dls.Dispatch(path) as q:
        assert q.result(inv) == 40


def test_the_submitting_process_may_exit_before_the_work_is_done(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    inv = python(
        """
        import sys
        import lakeshore as dls

        @dls.udf
        def later(x):
            return [x, __name__]

        dls.Dispatch(sys.argv[1])
        print(later.submit(x=4))
        """,
        tmp_path,
        path,
    )
    with dls.Dispatch(path) as q:
        assert q.get(inv).state == "queued"
        assert dls.run_worker(q, once=True) == 1
        assert q.result(inv) == [4, "__main__"]


def test_there_is_no_future_type_no_gather_no_as_completed() -> None:
    names = {name.lower() for name in dir(dls)}
    assert not names & {"future", "gather", "as_completed", "wait"}


def test_the_six_states(q: dls.Dispatch) -> None:
    assert {state.value for state in dls.State} == {
        "queued",
        "running",
        "succeeded",
        "failed",
        "killed",
        "timeout",
    }
    assert {state.value for state in dls.State if not state.terminal} == {"queued", "running"}

    killed = f.submit(1)
    assert q.get(killed).state == "queued"
    q.kill(killed)
    running = held.submit()
    with elsewhere(dls.run_worker, q, once=True):
        assert Gate.began.wait(PATIENCE)
        assert q.get(running).state == "running"
        Gate.go.set()
    failed, late = fails.submit(), too_slow.submit()
    dls.run_worker(q, drain=True)
    states = [q.get(inv).state for inv in (killed, running, failed, late)]
    assert states == ["killed", "succeeded", "failed", "timeout"]


def test_a_failed_invocation_carries_its_error(q: dls.Dispatch) -> None:
    inv = fails.submit()
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match="nothing there") as failed:
        q.result(inv)
    assert failed.value.type == "builtins.LookupError"
    assert "in fails" in failed.value.traceback
    assert (failed.value.id, failed.value.attempt) == (inv, 1)


def test_resubmitting_a_key_returns_the_existing_id(q: dls.Dispatch) -> None:
    inv = f.submit(x=1, _key="nightly-2026-08-06")
    assert f.submit(x=1, _key="nightly-2026-08-06") == inv
    dls.run_worker(q, drain=True)
    assert f.submit(x=1, _key="nightly-2026-08-06") == inv
    assert len(q.jobs.list()) == 1


def test_a_key_is_unique_per_queue(q: dls.Dispatch) -> None:
    here = f.submit(x=1, _key="k")
    there = dls.udf(f.fn, queue="other").submit(x=1, _key="k")
    assert here != there


def test_a_generator_is_read_while_it_runs_and_by_one_who_comes_back(q: dls.Dispatch) -> None:
    inv = steps.submit()
    with working(q):
        cursor = 0
        for frame in q.stream(inv):  # gets values while the body waits
            cursor = frame.seq + 1
            if frame.value == "b":
                break
        assert q.get(inv).state == "running"
        Gate.go.set()
        assert [(frame.seq, frame.value) for frame in q.stream(inv, since=cursor)] == [(2, "c")]
        assert [frame.value for frame in q.stream(inv, since=1)] == ["b", "c"]
        assert [frame.value for frame in q.stream(inv, since=-1)] == ["a", "b", "c"]


def test_a_topic_is_the_same_journal(q: dls.Dispatch) -> None:
    topic = q.topic("news")
    assert [topic.post(value) for value in ("x", "y")] == [0, 1]
    topic.close()
    assert [(frame.seq, frame.value) for frame in q.topic("news").stream(since=1)] == [(1, "y")]


def test_the_four_admission_fields_are_declared_on_the_queue(q: dls.Dispatch) -> None:
    q.queues.add("narrow", max_depth=2, on_full="reject", rate_limit="100/s", deadline_cutoff_s=30)
    admission = q.queues.show("narrow").admission
    assert admission["max_depth"] == 2
    assert admission["on_full"] == "reject"
    assert admission["rate_limit"] == 100
    assert admission["deadline_cutoff_s"] == 30


def test_once_drains_exactly_one(q: dls.Dispatch) -> None:
    first, second = f.submit(1), f.submit(2)
    assert dls.run_worker(q, once=True) == 1
    assert [q.get(inv).state for inv in (first, second)] == ["succeeded", "queued"]
    assert dls.run_worker(q, once=True) == 1
    assert dls.run_worker(q, once=True) == 0


def test_without_once_it_keeps_pulling(q: dls.Dispatch) -> None:
    with working(q) as worker:
        assert [q.result(f.submit(x), timeout=PATIENCE) for x in range(5)] == [1, 2, 3, 4, 5]
    assert worker.result() == 5


def test_one_decorator_for_four_kinds(q: dls.Dispatch) -> None:
    kinds = {body.kind: body for body in (f, count, slowly, acount)}
    assert set(kinds) == {"sync", "generator", "async", "async_generator"}
    values = [f.submit(1), slowly.submit(7)]
    streams = [count.submit(3), acount.submit(3)]
    dls.run_worker(q, drain=True)
    assert [q.result(inv) for inv in values] == [2, 7]
    assert [[frame.value for frame in q.stream(inv)] for inv in streams] == [[0, 1, 2]] * 2
    assert [q.result(inv) for inv in streams] == [None, None]
    assert "mode" not in inspect.signature(dls.udf).parameters


@pytest.mark.anyio
async def test_the_page_in_an_async_program(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q:
        inv = await q.submit(f, x=1)
        other = await f.asubmit(x=2)
        stream = await acount.asubmit(3)
        assert await dls.arun_worker(q, drain=True) == 3
        assert (await q.result(inv), await q.result(other)) == (2, 3)
        assert [frame.value async for frame in q.stream(stream, since=1)] == [1, 2]
        topic = q.topic("news")
        assert await topic.post({"a": 1}) == 0
        await topic.close()
        assert [frame.value async for frame in topic.stream()] == [{"a": 1}]


@dls.udf
def reads_and_writes(key: str) -> list[str]:
    dls.run.write("out.bin").write_bytes(dls.run.read(key).read_bytes()[::-1])
    return ["out.bin"]


@dls.udf
def gives_keys(key: str) -> Iterator[str]:
    yield from reads_and_writes(key)


@dls.udf
async def reads_later(key: str) -> list[str]:
    return reads_and_writes(key)


@dls.udf
async def gives_keys_later(key: str) -> AsyncIterator[str]:
    yield reads_and_writes(key)[0]


@pytest.mark.parametrize("body", [reads_and_writes, gives_keys, reads_later, gives_keys_later])
def test_bodies_read_and_write_by_key_and_file_bytes_never_ride_the_wire(
    tmp_path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    """Large files, and a plane that would refuse them as payloads."""
    store, bytes_ = tmp_path / "store", bytes(range(256)) * 4096
    (store / "scenes/0007").mkdir(parents=True)
    (store / "scenes/0007/in.bin").write_bytes(bytes_)
    monkeypatch.setenv("LAKESHORE_ROOT", str(store))
    with dls.Dispatch(tmp_path / "plane.db", backend=backend, payload_limit=1000) as q:
        with dls.scope("scenes/0007"):
            inv = body.submit("in.bin", _dispatch=q)
        dls.run_worker(q, once=True)
        assert q.result(inv) == ["out.bin"]
    assert (store / "scenes/0007/out.bin").read_bytes() == bytes_[::-1]
    assert (tmp_path / "plane.db").stat().st_size < len(bytes_)


def test_a_scope_carries_its_prefix(q: dls.Dispatch) -> None:
    with dls.scope("scenes"), dls.scope("0007") as whole:
        inv = where.submit()
    assert whole == "scenes/0007"
    with dls.scope("the-workers-own"):  # is not that of the bodies it runs
        dls.run_worker(q, drain=True)
    prefix, child = q.result(inv)
    assert prefix == "scenes/0007"
    assert q.result(child) == "scenes/0007/inner"
