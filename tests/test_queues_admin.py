"""Queues: admission, states, settings, removal, through the public layer."""

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from planes import PATIENCE, elsewhere, working

import lakeshore as dls


class Gate:
    go, began = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.go, Gate.began = threading.Event(), threading.Event()


def f(x: int = 1) -> int:
    return x


def held(x: int = 0) -> int:
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    return x


body = dls.udf(f, queue="q1")
blocker = dls.udf(held, queue="q1")
SETTINGS = {
    "kind": "priority",
    "description": "prod",
    "max_depth": 10,
    "on_full": "block",
    "rate_limit": "30/m",
    "deadline_cutoff_s": 60,
    "max_running": 3,
    "max_bytes": 1000,
    "retention": 5,
}


def blocked(q: dls.Dispatch, n: int) -> None:
    """Wait until `n` submitters wait for room: they are told so in order."""
    for _ in range(100_000):
        if q.queues.stats("q1").blocked == n:
            return
    raise AssertionError(f"{q.queues.stats('q1').blocked} are blocked, not {n}")


def test_settings_are_kept(tmp_path: Path, backend: Any) -> None:
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q:
        added = q.queues.add("q1", **SETTINGS)  # type: ignore[arg-type]
        assert added == q.queues.show("q1")
        assert (added.kind, added.description, added.state, added.members) == (
            "priority",
            "prod",
            "active",
            0,
        )
        q.queues.patch("q1", max_depth=20, description="changed")
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q:
        again = q.queues.show("q1")
        assert again.id == added.id
        assert again.description == "changed"
        assert again.retention == 5
        assert again.admission == {
            "max_depth": 20,
            "on_full": "block",
            "rate_limit": 0.5,
            "deadline_cutoff_s": 60.0,
            "max_running": 3,
            "max_bytes": 1000,
        }


def test_adding_and_finding(q: dls.Dispatch) -> None:
    q.queues.add("q1")
    for name in ("q1", "default"):
        with pytest.raises(dls.Conflict):
            q.queues.add(name)
    with pytest.raises(dls.NotFound, match="provider"):
        q.queues.add("elastic", provider="slurm")
    with pytest.raises(dls.NotFound, match=r"did you mean 'default'.*queues\.add"):
        q.queues.show("defualt")
    for verb in (q.queues.pause, q.queues.rm, q.queues.stats, q.queues.drain):
        with pytest.raises(dls.NotFound):
            verb("nowhere")
    assert [queue.name for queue in q.queues.ls()] == ["default", "q1"]
    assert q.queues.show(q.queues.show("q1").id).name == "q1"


@pytest.mark.parametrize("changes", [{"kind": "filo"}, {"elasticity": "fixed"}, {"colour": "red"}, {}])
def test_patch_refuses_what_stays(q: dls.Dispatch, changes: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        q.queues.patch("default", **changes)


def test_patch_of_bounds_without_an_elasticity_is_a_conflict(q: dls.Dispatch) -> None:
    with pytest.raises(dls.Conflict, match="elasticity"):
        q.queues.patch("default", max=3)


# states


MOVES = ["drain", "pause", "resume", "archive", "unarchive"]
LEGAL = {
    "active": {
        "drain": "draining",
        "pause": "paused",
        "resume": "active",
        "archive": "archived",
        "unarchive": "active",
    },
    "draining": {"drain": "draining", "archive": "archived", "unarchive": "active"},
    "paused": {"drain": "draining", "pause": "paused", "resume": "active", "archive": "archived"},
    "archived": {"archive": "archived", "unarchive": "active"},
}
REACH = {"active": [], "draining": ["drain"], "paused": ["pause"], "archived": ["archive"]}


@pytest.mark.parametrize("state", LEGAL)
@pytest.mark.parametrize("move", MOVES)
def test_moves(backend: Any, state: str, move: str) -> None:
    with dls.Dispatch(":memory:", backend=backend) as q:
        q.queues.add("q1")
        for step in REACH[state]:
            getattr(q.queues, step)("q1")
        wanted = LEGAL[state].get(move)
        if wanted is None:
            with pytest.raises(dls.Conflict, match=state):
                getattr(q.queues, move)("q1")
        else:
            assert getattr(q.queues, move)("q1").state == wanted
        assert q.queues.show("q1").state == (wanted or state)


@pytest.mark.parametrize(
    ("move", "admits", "hands_out"),
    [("pause", True, False), ("drain", False, True), ("archive", False, False)],
)
def test_what_each_state_does(q: dls.Dispatch, move: str, admits: bool, hands_out: bool) -> None:
    inv = body.submit(1)
    getattr(q.queues, move)("q1")
    if admits:
        body.submit(2)
    else:
        with pytest.raises(dls.QueueClosed, match="submit to another"):
            body.submit(2)
    assert dls.run_worker(q, once=True) == int(hands_out)
    assert q.get(inv).state == ("succeeded" if hands_out else "queued")
    assert ("q1" in [queue.name for queue in q.queues.ls()]) is (move != "archive")
    assert [queue.name for queue in q.queues.ls(state="archived")] == ["q1"] * (move == "archive")


def test_a_state_outlives_a_restart(tmp_path: Path, backend: Any) -> None:
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q:
        inv = body.submit(1)
        q.queues.archive("q1")
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q:
        assert q.queues.show("q1").state == "archived"
        assert dls.run_worker(q, once=True) == 0
        q.queues.unarchive("q1")
        assert dls.run_worker(q, once=True) == 1
        assert q.result(inv) == 1


# admission


def test_a_full_queue_rejects_and_says_so(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_depth=2)
    ids = [body.submit(1), body.submit(2, _delay=100)]  # delayed ones count
    with pytest.raises(dls.QueueFull, match="max_depth 2, 2 queued") as full:
        body.submit(3)
    assert full.value.code == 429
    q.queues.patch("q1", max_depth=1)  # evicts nothing
    assert [q.get(inv).state for inv in ids] == ["queued", "queued"]
    q.queues.patch("q1", max_depth=None)
    body.submit(4)


def test_bytes_are_limited(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_bytes=1000, on_full="block")
    sized = dls.udf(len, queue="q1")
    with pytest.raises(dls.QueueFull, match="max_bytes"):
        sized.submit("x" * 1001)  # would wait for ever
    first = sized.submit("x" * 900)
    with elsewhere(sized.submit, "y" * 900, _dispatch=q) as waiting:
        blocked(q, 1)
        dls.run_worker(q, once=True)
        second = waiting.result(PATIENCE)
    dls.run_worker(q, once=True)
    assert [q.result(inv) for inv in (first, second)] == [900, 900]


def test_blocked_submitters_enter_in_order(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_depth=1, on_full="block")
    ids = [body.submit(0)]
    results: dict[int, str] = {}

    def submit(n: int) -> None:
        results[n] = body.submit(n, _dispatch=q)

    threads = []
    for n in range(1, 5):
        threads.append(threading.Thread(target=submit, args=(n,)))
        threads[-1].start()
        blocked(q, n)
    with working(q):
        for thread in threads:
            thread.join(PATIENCE)
        ids += [results[n] for n in range(1, 5)]
        assert [q.result(inv, timeout=PATIENCE) for inv in ids] == [0, 1, 2, 3, 4]
    started = [q.get(inv).started_at for inv in ids]
    assert started == sorted(started)  # type: ignore[type-var]


def test_blocked_submitters_of_a_priority_queue_enter_by_priority(q: dls.Dispatch) -> None:
    q.queues.add("q1", kind="priority", max_depth=1, on_full="block")
    body.submit(0)
    results: dict[int, str] = {}

    def submit(n: int) -> None:
        results[n] = body.submit(n, _priority=n, _dispatch=q)

    threads = []
    for n in (1, 3, 2):
        threads.append(threading.Thread(target=submit, args=(n,)))
        threads[-1].start()
        blocked(q, len(threads))
    for left in (2, 1, 0):
        dls.run_worker(q, once=True)
        blocked(q, left)
    for thread in threads:
        thread.join(PATIENCE)
    dls.run_worker(q, once=True)
    started = [q.get(results[n]).started_at for n in (3, 2, 1)]
    assert started == sorted(started)  # type: ignore[type-var]


@pytest.mark.parametrize("move", ["drain", "archive", "rm"])
def test_blocked_submitters_are_woken_with_the_reason(q: dls.Dispatch, move: str) -> None:
    q.queues.add("q1", max_depth=1, on_full="block")
    body.submit(0)
    with elsewhere(body.submit, 1, _dispatch=q) as waiting:
        blocked(q, 1)
        getattr(q.queues, move)("q1")
        with pytest.raises(dls.QueueClosed, match="submit to another"):
            waiting.result(PATIENCE)


def test_a_pause_wakes_nobody_and_a_patch_lets_in(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_depth=1, on_full="block")
    body.submit(0)
    with elsewhere(body.submit, 1, _dispatch=q) as waiting:
        blocked(q, 1)
        q.queues.pause("q1")
        assert q.queues.stats("q1").blocked == 1
        q.queues.patch("q1", max_depth=2)
        assert q.get(waiting.result(PATIENCE)).state == "queued"


def test_a_kill_makes_room(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_depth=1, on_full="block")
    inv = body.submit(0)
    with elsewhere(body.submit, 1, _dispatch=q) as waiting:
        blocked(q, 1)
        q.kill(inv)
        assert q.get(waiting.result(PATIENCE)).state == "queued"


def test_many_wait_for_room_in_order(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_depth=3, on_full="block")
    with working(q, queues=["q1"]):
        ids = body.submit_many(range(40))
        assert [q.result(inv, timeout=PATIENCE) for inv in ids] == list(range(40))
    places = [q.get(inv).submitted_at for inv in ids]
    assert places == sorted(places)


def test_a_queue_that_closes_refuses_the_rest_of_many(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_depth=3, on_full="block")
    with elsewhere(body.submit_many, range(10), _dispatch=q) as waiting:
        blocked(q, 1)
        q.queues.drain("q1")
        with pytest.raises(dls.SubmitErrors) as refused:
            waiting.result(PATIENCE)
    assert [id is None for id in refused.value.ids] == [False] * 3 + [True] * 7
    assert {type(error) for error in refused.value.errors.values()} == {dls.QueueClosed}


@pytest.mark.anyio
async def test_a_cancelled_submitter_frees_its_ticket(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q:
        await q.queues.add("q1", max_depth=1, on_full="block")
        await body.asubmit(0)
        for _ in range(3):
            with anyio.move_on_after(0.005) as scope:
                await body.asubmit(1)
            assert scope.cancelled_caught
        assert (await q.queues.stats("q1")).blocked == 0
        with anyio.move_on_after(0.005):
            await body.asubmit_many(range(5))
        assert (await q.queues.stats("q1")).blocked == 0
        assert await dls.arun_worker(q, once=True) == 1
        inv = await body.asubmit(2)
        assert await dls.arun_worker(q, drain=True) == 1
        assert await q.result(inv) == 2
        assert len(await q.jobs.list()) == 2


def test_a_rate(q: dls.Dispatch) -> None:
    q.queues.add("q1", rate_limit=3)
    ids = [body.submit(n) for n in range(3)]
    with pytest.raises(dls.QueueFull, match="3 submits a second") as full:
        body.submit(4)
    assert full.value.retry_after is not None
    assert 0 < full.value.retry_after <= 1 / 3
    assert len(ids) == 3


def test_max_running(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_running=2)
    ids = blocker.submit_many(range(5))
    with working(q, slots=5):
        other = dls.udf(f).submit(9)
        assert q.result(other, timeout=PATIENCE) == 9
        assert Gate.began.wait(PATIENCE)
        show = q.queues.show("q1")
        assert show.running <= 2
        assert show.running + show.queued == 5
        Gate.go.set()
        assert [q.result(inv, timeout=PATIENCE) for inv in ids] == list(range(5))


# orders


def test_orders(q: dls.Dispatch) -> None:
    orders: Any = (("fifo", [1, 3, 2]), ("filo", [2, 3, 1]), ("priority", [3, 2, 1]))
    for kind, wanted in orders:
        q.queues.add(kind, kind=kind)
        ids = {n: dls.udf(f, queue=kind).submit(n, _priority=n) for n in (1, 3, 2)}
        dls.run_worker(q, queues=[kind], drain=True)
        got = sorted(ids, key=lambda n: q.get(ids[n]).attempts[0].started_at)
        assert got == wanted


def test_boltzmann_is_seeded_and_zero_is_highest_first(q: dls.Dispatch) -> None:
    orders = []
    for name in ("b1", "b2"):
        q.queues.add(name, kind="boltzmann", seed=7, temperature=5)
        ids = [dls.udf(f, queue=name).submit(n, _priority=n) for n in range(8)]
        for _ in ids:
            dls.run_worker(q, queues=[name], once=True)
        orders.append(sorted(range(8), key=lambda n: q.get(ids[n]).attempts[0].started_at))
    assert orders[0] == orders[1] != list(range(8))
    q.queues.add("b0", kind="boltzmann", temperature=0)
    ids = [dls.udf(f, queue="b0").submit(n, _priority=n) for n in range(5)]
    dls.run_worker(q, queues=["b0"], drain=True)
    assert sorted(range(5), key=lambda n: q.get(ids[n]).attempts[0].started_at) == [4, 3, 2, 1, 0]


# removing


def test_removing_kills_what_is_queued_and_lets_running_finish(q: dls.Dispatch) -> None:
    running = blocker.submit(5)
    with working(q):  # follows every queue: not bound
        assert Gate.began.wait(PATIENCE)
        queued = body.submit(1)
        assert q.queues.show("q1").members == 0
        removed = q.queues.rm("q1")
        assert (removed.name, removed.now_serving_default) == ("q1", ())
        with pytest.raises(dls.InvocationKilled, match="removed"):
            q.result(queued)
        with pytest.raises(dls.NotFound):
            q.queues.show("q1")
        Gate.go.set()
        assert q.result(running, timeout=PATIENCE) == 5
    assert q.get(queued).queue == "q1"


def test_removing_with_bound_workers_needs_force(q: dls.Dispatch) -> None:
    blocked_one = dls.udf(held, queue="q2").submit()
    with working(q, queues=["q1", "q2"], name="both"), working(q, queues=["q1"], name="one"):
        assert Gate.began.wait(PATIENCE)
        for _ in range(100_000):
            if q.queues.show("q1").members == 2:
                break
        with pytest.raises(dls.Conflict, match=r"2 workers are bound.*force"):
            q.queues.rm("q1")
        assert q.queues.rm("q1", force=True).now_serving_default == ("one",)
        bound = {worker.name: worker.queues for worker in q.workers.list()}
        assert bound == {"both": ("q2",), "one": ()}
        inv = dls.udf(f).submit(3)  # served by `one` now
        assert q.result(inv, timeout=PATIENCE) == 3
        Gate.go.set()
        q.result(blocked_one, timeout=PATIENCE)


def test_the_default_queue_stays(q: dls.Dispatch) -> None:
    with pytest.raises(dls.Conflict, match="default"):
        q.queues.rm("default")
    q.queues.archive("default")
    with pytest.raises(dls.QueueClosed):
        dls.udf(f).submit()


def test_a_removed_queue_is_gone_after_a_restart(tmp_path: Path, backend: Any) -> None:
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q:
        inv = body.submit(1)
        old = q.queues.show("q1").id
        q.queues.rm("q1")
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q:
        assert [queue.name for queue in q.queues.ls()] == ["default"]
        assert q.get(inv).state == "killed"
        body.submit(2)
        assert q.queues.show("q1").id != old


def test_stats(q: dls.Dispatch) -> None:
    body.submit(1)
    stats = q.queues.stats("q1")
    assert (stats.pending, stats.running, stats.daemons, stats.utilization, stats.blocked) == (
        1,
        0,
        0,
        0.0,
        0,
    )
    assert stats.oldest_wait_s is not None
    assert 0 <= stats.oldest_wait_s < PATIENCE
