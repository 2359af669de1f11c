"""`_key`: the same key is the same invocation, whatever happens around it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from planes import python

import lakeshore as dls


@dls.udf
def f(x: int, y: int = 0) -> int:
    return x + y


@dls.udf
def g(x: int) -> int:
    return -x


@dls.udf
def fails(x: int) -> None:
    raise ValueError(x)


def test_the_same_call_in_another_spelling_is_the_same(
    q: dls.Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    inv = f.submit(1, 2, _key="k", _strict_key=True)
    assert f.submit(1, y=2, _key="k", _strict_key=True) == inv
    assert f.submit(y=2, x=1, _key="k", _strict_key=True) == inv
    assert not caplog.records


def test_other_arguments_give_the_same_id_and_a_warning(
    q: dls.Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    inv = f.submit(1, _key="k")
    assert f.submit(2, _key="k") == inv
    assert g.submit(1, _key="k") == inv
    assert [inv in record.getMessage() for record in caplog.records] == [True, True]
    dls.run_worker(q, drain=True)
    assert q.result(inv) == 1


def test_many_with_held_keys_give_one_warning_a_part(
    q: dls.Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = f.submit_many([{"x": n, "_key": str(n)} for n in range(1500)])
    again = f.submit_many([{"x": n + n % 2, "_key": str(n)} for n in range(1500)])
    assert again == held
    first, second = [record.getMessage() for record in caplog.records]
    assert "500 of these 1000" in first
    assert "key '1' is held by" in first
    assert held[1] in first
    assert "250 of these 500" in second


@pytest.mark.parametrize("ended", [False, True])
def test_strict_raises_instead_and_names_the_holder(q: dls.Dispatch, ended: bool) -> None:
    inv = f.submit(1, _key="k")
    if ended:
        dls.run_worker(q, drain=True)
    with pytest.raises(dls.KeyConflict, match="another key") as conflict:
        f.submit(2, _key="k", _strict_key=True)
    assert conflict.value.id == inv
    assert conflict.value.code == 409
    assert len(q.jobs.list()) == 1


def test_the_key_holds_in_every_state(q: dls.Dispatch) -> None:
    done, failed, killed = f.submit(1, _key="a"), fails.submit(1, _key="b"), f.submit(1, _key="c")
    q.kill(killed)
    dls.run_worker(q, drain=True)
    assert [q.get(inv).state for inv in (done, failed, killed)] == ["succeeded", "failed", "killed"]
    again = [f.submit(1, _key="a"), fails.submit(1, _key="b"), f.submit(1, _key="c")]
    assert again == [done, failed, killed]
    assert q.get(done).key == "a"


def test_the_key_holds_where_nothing_new_is_admitted(q: dls.Dispatch) -> None:
    q.queues.add("narrow", max_depth=1)
    body = dls.udf(f.fn, queue="narrow")
    inv = body.submit(1, _key="k")
    assert body.submit(1, _key="k") == inv
    with pytest.raises(dls.QueueFull):
        body.submit(1, _key="other")
    q.queues.drain("narrow")
    assert body.submit(1, _key="k") == inv
    q.queues.archive("narrow")
    assert body.submit(1, _key="k") == inv
    with pytest.raises(dls.QueueClosed):
        body.submit(1, _key="other")


def test_a_race_makes_one(q: dls.Dispatch) -> None:
    with ThreadPoolExecutor(16) as pool:
        ids = set(pool.map(lambda _: f.submit(1, _key="k"), range(64)))
    assert len(ids) == 1
    assert len(q.jobs.list()) == 1


@pytest.mark.anyio
async def test_a_race_of_coroutines_makes_one(address: str, anyio_backend: Any) -> None:
    ids: set[str] = set()

    async def submit() -> None:
        ids.add(await f.asubmit(1, _key="k"))

    async with dls.AsyncDispatch(address) as q:
        async with anyio.create_task_group() as tasks:
            for _ in range(32):
                tasks.start_soon(submit)
        assert len(ids) == 1
        assert len(await q.jobs.list()) == 1


def test_a_restart_keeps_keys(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        queued, done = f.submit(1, _key="queued"), f.submit(1, _key="done", _priority=1)
        q.kill(done)
    with dls.Dispatch(path, backend=backend):
        assert f.submit(1, _key="queued", _strict_key=True) == queued
        assert f.submit(1, _key="done", _strict_key=True) == done
        with pytest.raises(dls.KeyConflict):
            f.submit(9, _key="queued", _strict_key=True)


def test_equal_arguments_are_the_same_in_every_process(tmp_path: Path) -> None:
    code = """
        import sys, lakeshore as dls

        @dls.udf(name="f")
        def f(x):
            pass

        dls.Dispatch(sys.argv[1])
        names = {"alpha", "beta", "gamma", "delta"}
        one = f.submit({"names": names, "all": (frozenset(names), 1)}, _key="k", _strict_key=True)
        two = f.submit({"all": (frozenset(names), 1), "names": names}, _key="k", _strict_key=True)
        assert one == two
        try:
            f.submit({"names": names, "all": [frozenset(names), 1]}, _key="k", _strict_key=True)
        except dls.KeyConflict:
            print(one)
        """
    ids = {python(code, tmp_path, tmp_path / "plane.db", PYTHONHASHSEED=seed) for seed in "123"}
    assert len(ids) == 1
    assert ids != {""}


def test_a_pruned_invocation_frees_its_key(q: dls.Dispatch) -> None:
    inv = f.submit(1, _key="k")
    dls.run_worker(q, once=True)
    assert q.jobs.prune(0) == 1
    assert f.submit(1, _key="k") != inv


def test_a_removed_queue_s_keys_go_with_it(q: dls.Dispatch) -> None:
    body = dls.udf(f.fn, queue="gone")
    inv = body.submit(1, _key="k")
    q.queues.rm("gone")
    assert body.submit(1, _key="k") != inv  # a new queue of that name


def test_a_retry_takes_over_the_key(q: dls.Dispatch, caplog: pytest.LogCaptureFixture) -> None:
    old = fails.submit(1, _key="k")
    dls.run_worker(q, once=True)
    new = q.retry(old)
    assert fails.submit(1, _key="k", _strict_key=True) == new
    dls.run_worker(q, once=True)
    assert fails.submit(1, _key="k", _strict_key=True) == new
    assert [q.get(inv).key for inv in (old, new)] == ["k", "k"]
    assert "is held by" not in caplog.text


def test_keys_are_per_namespace(address: str, backend: Any) -> None:
    with dls.Dispatch(address, backend=backend) as one:
        inv = f.submit(1, _key="k")
        if address != ":memory:":
            with dls.Dispatch(address, namespace="other") as two:
                assert f.submit(1, _key="k", _dispatch=two) != inv
        assert f.submit(1, _key="k", _dispatch=one) == inv
