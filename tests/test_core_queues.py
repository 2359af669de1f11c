"""Moves of invocations and queues: the table, kill, pause and the rest, removal, pruning, namespaces."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.backlog import Backlog
from lakeshore.core.errors import IllegalMove
from lakeshore.core.rows import ListInvocations
from lakeshore.core.settings import check_patch, declare
from lakeshore.core.states import TRANSITIONS, Move, QueueMove, QueueState, State, step, step_queue
from lakeshore.testing.hand import HandPlane


def rows_in(plane: HandPlane) -> list[Any]:
    """Every stored invocation."""
    found: list[Any] = []
    plane.engine.store.read(ListInvocations("default", limit=1_000_000), found.extend)
    return found


def add(client, name: str = "q", **settings):
    answer = client.answer(client.ask(m.AddQueue, name, declare(settings)))
    assert isinstance(answer, m.Answer), answer


def shift(client, name: str, move: str):
    return client.answer(client.ask(m.ShiftQueue, name, move))


# The tables


LEGAL = {
    "queued": {"claim": "running", "kill": "killed", "expire": "timeout"},
    "running": {
        "succeed": "succeeded",
        "retry": "queued",
        "fail": "failed",
        "expire": "timeout",
        "kill": "killed",
        "lose": "queued",
        "release": "queued",
    },
}


@pytest.mark.parametrize(("state", "move"), list(itertools.product(State, Move)))
def test_every_state_and_move(state: State, move: Move) -> None:
    expected = LEGAL.get(state, {}).get(move)
    if expected is None:
        with pytest.raises(IllegalMove, match=str(state)):
            step(state, move)
        assert (state, move) not in TRANSITIONS
    else:
        assert step(state, move) == expected
        assert not state.terminal


MATRIX = {  # what each move makes of each state; None: Conflict
    "drain": {"active": "draining", "paused": "draining", "draining": "draining", "archived": None},
    "pause": {"active": "paused", "paused": "paused", "draining": None, "archived": None},
    "resume": {"active": "active", "paused": "active", "draining": None, "archived": None},
    "archive": dict.fromkeys(("active", "paused", "draining", "archived"), "archived"),
    "unarchive": {"active": "active", "paused": None, "draining": "active", "archived": "active"},
}
TO = {"active": (), "paused": ("pause",), "draining": ("drain",), "archived": ("archive",)}


@pytest.mark.parametrize(("state", "move"), list(itertools.product(QueueState, QueueMove)))
def test_every_queue_state_and_move(state: QueueState, move: QueueMove) -> None:
    plane = HandPlane()
    client = plane.client()
    add(client)
    for step_ in TO[state]:
        shift(client, "q", step_)
    expected = MATRIX[move][state]
    answer = shift(client, "q", move)
    if expected is None:
        assert answer.kind == "Conflict"
        with pytest.raises(IllegalMove):
            step_queue(state, move)
    else:
        assert answer.value["state"] == expected
    plane.crash()
    client = plane.client()
    assert client.answer(client.ask(m.ShowQueue, "q")).value["state"] == (expected or state)


@pytest.mark.parametrize("state", QueueState)
def test_what_a_queue_admits_and_hands_out(state: QueueState) -> None:
    plane = HandPlane()
    client = plane.client()
    add(client)
    before = [client.submit(queue="q", retries=1, retry_delay=0.0) for _ in range(2)]
    runner = plane.worker(queues=("q",))
    plane.settle()
    for move in TO[state]:
        shift(client, "q", move)
    answer = client.answer(client.start(queue="q")[1])
    assert isinstance(answer, m.Accepted) == (state in ("active", "paused"))
    if not isinstance(answer, m.Accepted):
        assert answer.kind == "QueueClosed"
    other = plane.worker(queues=("q",))
    plane.settle()
    hands_out = state in ("active", "draining")
    assert (before[1] in other.jobs) == hands_out
    runner.fail(before[0], ValueError())  # running ones finish or return, whatever the state
    plane.settle()
    assert (client.state(before[0]) == "running") == hands_out
    names = [row["name"] for row in client.answer(client.ask(m.ListQueues)).value]
    assert ("q" in names) == (state != "archived")
    back = {"paused": "resume", "archived": "unarchive"}.get(state)
    if back:
        shift(client, "q", back)
        plane.settle()
        assert {client.state(id) for id in before} == {"running"}


# Kill


def test_kill_of_every_state() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    running = client.submit()
    queued, delayed = client.submit(), client.submit(delay=5.0)
    waits = [client.ask(m.Wait, id) for id in (queued, delayed)]
    for id in (queued, delayed):
        assert client.answer(client.kill(id)).value is None
        assert client.answer(client.kill(id)).value is None  # again: done
        assert client.answer(client.kill(id, running=True)).value is None
    assert [client.answer(wait).state for wait in waits] == ["killed"] * 2
    refusal = client.answer(client.kill(running))
    assert refusal.kind == "Conflict"
    assert "running" in refusal.message
    assert worker.cancelled == []
    worker.finish(running, 1)
    assert client.answer(client.kill(running)).kind == "Conflict"
    assert client.answer(client.kill(running, running=True)).kind == "Conflict"
    assert client.result(running) == 1
    plane.advance(10)
    assert worker.started == [running]
    unknown = client.kill(plane.new_id())
    assert client.answer(unknown).kind == "NotFound"


def test_a_grant_that_has_not_begun_is_reclaimed() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    ids = [client.submit() for _ in range(30)]
    for id in ids[:8]:
        worker.finish(id)
    granted = ids[20]
    assert client.state(granted) == "running"
    asked = [client.kill(granted), client.kill(granted)]
    begun = client.kill(ids[8])
    assert [client.answer(req) for req in asked] == [m.Answer(req) for req in asked]
    assert client.answer(begun).kind == "Conflict"
    record = client.record(granted)
    assert (record.attempts[-1].outcome, record.reason) == ("killed", "killed")
    for id in ids[8:]:
        if id != granted:
            worker.finish(id)
    assert granted not in worker.started
    assert client.state(granted) == "killed"


@pytest.mark.parametrize("running", [False, True])
def test_a_grant_whose_arguments_are_still_read_is_killed_at_once(running: bool) -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(args=("x" * 5000,))
    plane.store.hold_reads = True
    worker = plane.worker()
    plane.settle()
    assert plane.stored(id).state == "running"
    kill = client.kill(id, running=running)
    assert client.answer(kill) == m.Answer(kill)
    plane.store.hold_reads = False
    plane.store.release_reads()
    plane.settle()
    assert worker.received == []
    assert client.state(id) == "killed"
    assert client.submit() in worker.jobs


def test_success_outranks_a_kill_and_the_verb_waits_for_the_end() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    for outcome in ("succeeded", "failed", "killed"):
        id = client.submit(retries=5)
        first, second = client.kill(id, running=True), client.kill(id)
        plane.settle()
        assert worker.cancelled[-1] == (id, "kill")
        assert plane.stored(id).record.killing
        assert [client.answer(req) for req in (first, second)] == [None, None]
        if outcome == "succeeded":
            worker.finish(id, 1)
        elif outcome == "failed":
            worker.fail(id, ValueError())  # no retry: it is to end
        else:
            worker.stop(id)
        assert client.state(id) == outcome
        kinds = [type(client.answer(req)) for req in (first, second)]
        assert kinds == [m.Answer if outcome == "killed" else m.Refusal] * 2


@pytest.mark.parametrize("reported", [True, False])
def test_a_kill_outranks_a_timeout(reported: bool) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(timeout=5.0)
    plane.advance(5.0)
    assert worker.cancelled == [(id, "timeout")]
    kill = client.kill(id, running=True)
    plane.settle()
    if reported:
        assert worker.jobs[id].why == "timeout"
        worker.stop(id)
    else:
        plane.advance(20.0)  # the backstop
    assert client.state(id) == "killed"
    assert client.answer(kill) == m.Answer(kill)
    assert client.record(id).attempts[-1].outcome == "killed"


@pytest.mark.parametrize("how", ["lost", "drained", "crash", "returned"])
def test_what_is_being_killed_and_returns_is_killed(how: str) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(retries=5)
    kill = client.kill(id, running=True)
    plane.settle()
    if how == "lost":
        worker.link.cut()
    elif how == "drained":
        worker.worker.interrupt()
        worker.stop(id)
    elif how == "returned":
        worker.link.send(m.GaveBack(id, 1, "why not", unresolved=True))
    else:
        plane.crash()
        client = plane.client()
    plane.settle()
    assert client.state(id) == "killed"
    if how != "crash":
        assert client.answer(kill) == m.Answer(kill)


@pytest.mark.parametrize("how", ["fails", "lost"])
def test_a_kill_that_crosses_a_return_kills_what_is_queued_then(how: str) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(retries=5)
    worker.head_link.hold = True  # the Reclaim is on its way ...
    kill = client.kill(id)
    plane.settle()
    if how == "fails":
        worker.fail(id, ValueError())  # ... when the body fails and would be retried
    else:
        worker.link.cut()
    plane.settle()
    assert client.answers[kill] == [m.Answer(kill)]
    assert client.state(id) == "killed"


# Large numbers go in steps


def many(client, count: int, **options) -> list[bytes]:
    ids: list[bytes] = []
    for _ in range(count // 500):
        some, _ = client.submit_many(500, **options)
        ids += some
    client.plane.settle()
    return ids


@pytest.mark.parametrize("how", ["bulk", "expiry", "removal"])
def test_five_thousand_go_in_steps_and_others_are_served_in_between(how: str) -> None:
    plane = HandPlane()
    client, other = plane.client(), plane.client()
    add(client)
    ids = many(client, 5000, queue="q", deadline=60.0)
    waits = [client.ask(m.Wait, id) for id in ids[::500]]
    plane.settle()
    queue = plane.head.spaces["default"].queues["q"]
    req, left, served = 0, [len(queue.backlog)], []
    if how == "expiry":
        plane.clock.now += 60.0
        plane.clock.wall += 60.0
    elif how == "bulk":
        req = client.ask(m.BulkCancel, "q")
    else:
        req = client.ask(m.RemoveQueue, "q")
    while left[-1]:
        ask = other.ask(m.QueueStats, "default")
        for _ in range(20):
            plane.engine.pump(1)
            left.append(len(queue.backlog))
        served.append(bool(other.answers[ask]))
        assert len(left) < 2000
    steps = [a - b for a, b in itertools.pairwise(left) if a != b]
    assert steps == [1000] * 5
    plane.settle()
    state = "timeout" if how == "expiry" else "killed"
    assert {client.answer(wait).state for wait in waits} == {state}
    assert {plane.stored(id).state for id in ids} == {state}
    if how == "bulk":
        assert client.answer(req).value == 5000
    assert any(served)


def test_bulk_cancel_does_not_walk_over_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = HandPlane()
    client = plane.client()
    add(client)
    plane.worker(queues=("q",), unknown=["g"])
    for options in ({"function": "g"}, {}, {"delay": 9.0}):
        many(client, 1500, queue="q", **options)
    backlog = plane.head.spaces["default"].queues["q"].backlog
    assert (len(backlog), len(backlog.apart)) == (4499, 1)
    monkeypatch.setattr(Backlog, "__iter__", lambda self: pytest.fail("walked"))
    assert client.answer(client.ask(m.BulkCancel, "q")).value == 4499
    assert (len(backlog), backlog.bytes, backlog.in_order, len(backlog.apart)) == (0, 0, 0, 0)
    assert backlog.oldest() is None


def test_the_oldest_wait_is_that_of_the_first_submitted() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client)
    first = client.submit(queue="q")
    worker = plane.worker(queues=("q",))
    plane.advance(100.0)
    for _ in range(2):
        client.submit_many(1500, queue="q")
    plane.advance(5.0)
    assert client.answer(client.ask(m.QueueStats, "q")).value["oldestWaitS"] == pytest.approx(5.0)
    worker.link.cut()
    plane.settle()
    assert client.state(first) == "queued"
    assert client.answer(client.ask(m.QueueStats, "q")).value["oldestWaitS"] == pytest.approx(105.0)
    client.answer(client.kill(first))
    assert client.answer(client.ask(m.QueueStats, "q")).value["oldestWaitS"] == pytest.approx(5.0)


BAD_SETTINGS: list[dict[str, Any]] = [
    {"template": [1]},
    {"template": {1: 2}},
    {"template": {"a": object()}},
    {"provider": 5},
    {"temperature": 10**400},
    {"temperature": 1e300},
    {"temperature": "x" * 10_000},
    {"retention": 1e12},
    {"seed": 2**70},
    {"max_depth": 2**70},
    {"description": 3},
    {"elasticity": [1]},
    {"min": -5},
    {"min": True},
    {"max": "many"},
    {"max": 2**70},
    {"threshold": 7},
    {"threshold": float("nan")},
    {"min": 3, "max": 2},
]


@pytest.mark.parametrize("wrong", BAD_SETTINGS, ids=lambda wrong: str(wrong)[:30])
def test_settings_that_cannot_be_are_refused_before_they_are_sent(wrong: dict[str, Any]) -> None:
    for check in (declare, check_patch):
        given = wrong if check is check_patch or "elasticity" in wrong else {"elasticity": "fixed", **wrong}
        with pytest.raises((TypeError, ValueError)) as error:
            check(given)
        assert len(str(error.value)) < 200


def test_a_bound_that_does_not_fit_those_of_the_queue_is_a_conflict() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client, elasticity="fully_elastic", min=1, max=3)
    assert client.answer(client.ask(m.PatchQueue, "q", check_patch({"min": 4}))).kind == "Conflict"
    row = client.answer(client.ask(m.PatchQueue, "q", check_patch({"min": 4, "max": None}))).value
    assert row["elasticity"] == {"kind": "fully_elastic", "min": 4}
    for settings in ({"template": [1]}, {"kind": 5}):
        assert client.answer(client.ask(m.AddQueue, "r", settings)).kind == "BadRequest"
    assert plane.failure is None


@pytest.mark.parametrize("name", ["", "\ud800", "x" * 26, "\x00" * 26, "ß" * 26, 5, None, b"q"])
def test_looking_for_any_name_raises_nothing(name: Any) -> None:
    plane = HandPlane()
    plane.client()
    assert plane.head.spaces["default"].find(name) is None


def test_bulk_cancel_leaves_what_runs_and_covers_all_queues() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    running = client.submit()
    queued = [client.submit(), client.submit(delay=5.0)]
    add(client)
    shift(client, "q", "pause")
    queued.append(client.submit(queue="q"))
    foreign = plane.client("other")
    theirs = foreign.submit()
    assert client.answer(client.ask(m.BulkCancel)).value == 3
    assert {client.state(id) for id in queued} == {"killed"}
    assert client.record(queued[0]).reason == "killed by bulk-cancel"
    assert (client.state(running), foreign.state(theirs)) == ("running", "queued")
    assert client.answer(client.ask(m.BulkCancel)).value == 0
    assert client.answer(client.ask(m.BulkCancel, "nope")).kind == "NotFound"
    worker.finish(running)


# Removal


@pytest.mark.parametrize("then", ["finish", "fail", "retry", "lost", "unresolved", "crash"])
def test_a_removed_queue_kills_what_is_queued_and_lets_what_runs_finish(then: str) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    add(client)
    running = client.submit(queue="q", retries=1, key="k")
    queued, later = client.submit(queue="q"), client.submit(queue="q", delay=9.0)
    wait = client.ask(m.Wait, running)
    assert client.answer(client.ask(m.RemoveQueue, "q")).value["name"] == "q"
    assert [client.state(id) for id in (queued, later, running)] == ["killed", "killed", "running"]
    assert client.record(queued).reason == "its queue was removed"
    assert client.answer(client.ask(m.ShowQueue, "q")).kind == "NotFound"
    if then == "finish":
        worker.finish(running, 7)
    elif then == "fail":
        worker.worker.ended(worker.jobs[running], m.Ended(running, 1, "fail"))
    elif then == "retry":
        worker.fail(running, ValueError())
    elif then == "lost":
        worker.link.cut()
    elif then == "unresolved":
        worker.link.send(m.GaveBack(running, 1, "can't", unresolved=True))
    else:
        plane.crash()
        client = plane.client()
    plane.settle()
    expected = {"finish": "succeeded", "fail": "failed"}.get(then, "killed")
    assert client.state(running) == expected
    if then != "crash":
        assert client.answer(wait).state == expected
    space = plane.head.spaces["default"]
    assert list(space.by_id.values()) == list(space.queues.values())
    assert space.live == {}
    row = plane.stored(running)
    name = client.answer(client.ask(m.Get, running)).rows[0][1]
    assert (name == "q") == (then != "crash")
    assert row is not None
    fresh = client.submit(queue="q", key="k")  # made anew: its keys are its own
    assert fresh != running
    retry = client.answer(client.ask(m.Retry, running, plane.new_id()))
    assert retry.kind == "NotFound"


def test_a_queue_with_bound_workers_is_removed_by_force_only() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client)
    bound = plane.worker(queues=("q",), name="bound")
    plane.settle()
    refusal = client.answer(client.ask(m.RemoveQueue, "q"))
    assert refusal.kind == "Conflict"
    assert "bound" in refusal.message
    answer = client.answer(client.ask(m.RemoveQueue, "q", True))
    assert answer.value["nowServingDefault"] == ["bound"]
    assert client.submit() in bound.jobs
    assert client.answer(client.ask(m.RemoveQueue, "default", True)).kind == "Conflict"
    assert client.answer(client.ask(m.RemoveQueue, "q")).kind == "NotFound"


def test_names_near_a_missing_queue_are_told() -> None:
    plane = HandPlane(local=False)
    client = plane.client()
    add(client, "training")
    refusal = client.answer(client.start(queue="trainin")[1])
    assert refusal.kind == "NotFound"
    assert "'training'" in refusal.message
    _, req = client.submit_many(2, queue="nope")
    assert client.answer(req).kind == "NotFound"
    twice = client.ask(m.AddQueue, "training", declare({}))
    assert client.answer(twice).kind == "Conflict"


def test_a_patched_temperature_counts_at_once() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client, kind="boltzmann", temperature=1e9, seed=3)
    patch = client.ask(m.PatchQueue, "q", check_patch({"temperature": 0.0}))
    assert client.answer(patch).value["temperature"] == 0.0
    ids = [client.submit(queue="q", priority=float(n)) for n in range(20)]
    refused = client.ask(m.PatchQueue, "q", check_patch({"temperature": 1.0}))
    assert client.answer(refused).kind == "Conflict"
    worker = plane.worker(queues=("q",), slots=20)
    plane.settle()
    assert worker.started == ids[::-1]


# Pruning


def test_pruning_takes_keys_frames_and_blobs_along_in_steps() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=500)
    add(client, "short", retention=5.0)
    old = [client.submit(key="k", kind="generator", args=("x" * 3000,)), *many(client, 2500)]
    worker.give(old[0], 1)
    while worker.jobs:
        for id in list(worker.jobs):
            worker.finish(id, "y" * (3000 if id == old[0] else 1))
    live = client.submit(delay=1e9)
    brief = client.submit(queue="short")
    worker.finish(brief)
    plane.advance(20.0)
    recent = client.submit()
    worker.finish(recent)
    prunes = []
    plane.store.watch = lambda batch: prunes.extend(batch.prunes)
    count = client.ask(m.PruneJobs, 10.0)
    assert client.answer(count).value == 2502
    assert len(prunes) == 3
    assert all(prune.limit <= 1000 for prune in prunes)
    inner: Any = plane.store.inner
    assert (inner._chunks, inner._blobs, inner._keys) == ({}, {}, {})
    assert [client.state(id) for id in (old[0], old[-1], brief)] == ["Expired"] * 3
    assert [client.state(id) for id in (live, recent)] == ["queued", "succeeded"]
    assert client.state(plane.new_id()) == "NotFound"
    assert client.answer(client.follow(old[0])).kind == "Expired"
    assert client.answer(client.kill(old[0])).kind == "Expired"


def test_each_queue_has_its_retention() -> None:
    plane = HandPlane(retention=1000.0)
    client, worker = plane.client(), plane.worker(slots=3)
    add(client, "short", retention=100.0)
    add(client, "long", retention=5000.0)
    ids = [client.submit(queue=name) for name in ("short", "default", "long")]
    for id in ids:
        worker.finish(id)
    for after, gone in ((90, 0), (80, 1), (800, 1), (100, 2), (3800, 2), (200, 3)):
        plane.advance(after)
        states = [client.state(id) for id in ids]
        assert states == ["Expired"] * gone + ["succeeded"] * (3 - gone), after


def test_a_prune_by_hand_during_a_periodic_round_is_a_round_of_its_own() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    worker.finish(id)
    plane.advance(59.0)
    plane.store.hold = True
    plane.advance(2.0)
    assert plane.store.held[0][0].prunes
    asked = [client.ask(m.PruneJobs, 1.0), client.ask(m.PruneJobs, 1.0)]
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    assert [client.answer(req).value for req in asked] == [1, 0]
    assert client.state(id) == "Expired"


# Namespaces


def test_a_namespace_neither_sees_nor_touches_another() -> None:
    plane = HandPlane()
    ann, bob = plane.client("ann"), plane.client("bob")
    anns, bobs = plane.worker(namespace="ann"), plane.worker(namespace="bob")
    plane.settle()
    id = ann.submit(kind="generator", key="k")
    assert id in anns.jobs
    assert not bobs.jobs
    for _ in range(2):  # live, then ended
        for kind in (m.Wait, m.Get, m.Why):
            assert bob.answer(bob.ask(kind, id)).kind == "NotFound"
        assert bob.answer(bob.kill(id, running=True)).kind == "NotFound"
        assert bob.answer(bob.ask(m.Retry, id, plane.new_id())).kind == "NotFound"
        assert bob.end(bob.follow(id)).kind == "NotFound"
        if id in anns.jobs:
            bobs.link.send(m.Ended(id, 1, "succeed", b"\xc0"))
            bobs.link.send(m.Frames(id, 1, 0, 1, b""))
            plane.settle()
            assert ann.state(id) == "running"
            anns.finish(id, 1)
    assert bob.submit(key="k") != id
    ann.answer(ann.post("t", 1))
    topic = bob.follow_topic("t")
    assert bob.frames(topic) == []
    add(ann, "q")
    assert bob.answer(bob.ask(m.ShowQueue, "q")).kind == "NotFound"
    assert bob.answer(bob.ask(m.ListJobs)).rows[0][0].id != id
    assert len(bob.answer(bob.ask(m.ListJobs)).rows) == 1
    assert len(bob.answer(bob.ask(m.ListWorkers)).value) == 1
    same_id = bob.submit(id=id)  # an id belongs to its namespace
    assert same_id == id
    assert ann.result(id) == 1


def test_lists_are_newest_first_and_filtered() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=2)
    ids = []
    for n in range(6):
        ids.append(client.submit(queue=("default", "other")[n % 2]))
        plane.advance(0.01)
    worker.finish(ids[0])
    plane.settle()

    def listed(**options) -> list[bytes]:
        return [row.id for row, _ in client.answer(client.ask(m.ListJobs, **options)).rows]

    assert listed() == ids[::-1]
    assert listed(queue="other") == [ids[5], ids[3], ids[1]]
    assert listed(states=("succeeded",)) == [ids[0]]
    assert listed(limit=2, offset=1) == [ids[4], ids[3]]
    assert set(listed(worker=worker.worker.hello.worker, states=("running",))) == set(worker.jobs)
    assert client.answer(client.ask(m.ListJobs, queue="nope")).kind == "NotFound"


# Order


@pytest.mark.parametrize("kind", ["fifo", "filo", "priority"])
def test_an_order_survives_clock_steps_returns_and_crashes(kind: str) -> None:
    plane = HandPlane()
    client = plane.client()
    add(client, kind=kind)
    ids = []
    for n in range(9):
        plane.clock.wall -= 1000.0  # the wall clock steps back at every submit
        ids.append(client.submit(queue="q", priority=float(n % 3)))
    worker = plane.worker(queues=("q",), slots=3)
    plane.settle()
    expected = {
        "fifo": ids,
        "filo": ids[::-1],
        "priority": [*ids[2::3], *ids[1::3], *ids[0::3]],
    }[kind]
    assert worker.started == expected[:3]
    worker.link.cut()  # what returns keeps its place
    plane.settle()
    plane.crash()
    client = plane.client()
    worker = plane.worker(queues=("q",), slots=1)
    order = []
    plane.settle()
    while worker.jobs:
        (id,) = worker.jobs
        order.append(id)
        plane.advance(0.1)
        worker.finish(id)
    assert order == expected


def test_a_high_priority_job_is_next_when_a_slot_comes_free() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client, kind="priority")
    low = [client.submit(queue="q") for _ in range(50)]
    worker = plane.worker(queues=("q",), slots=2)
    for n in range(20):
        plane.advance(0.001)
        worker.finish(low[n])
    assert len(worker.jobs) == 2
    worker.link.hold = True
    high = client.submit(queue="q", priority=1.0)
    plane.settle()
    started = len(worker.started)
    worker.link.hold = False
    worker.finish(low[20])
    assert worker.started[started:] == [high]


# Pruning that does not look in vain


def prunes_of(plane: HandPlane) -> list[Any]:
    found: list[Any] = []
    plane.store.watch = lambda batch: found.extend(batch.prunes)
    return found


def test_an_idle_plane_commits_nothing() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=10)
    add(client, "short", retention=90.0)
    ids = [client.submit(queue=queue) for queue in ("default", "short")]
    for id in ids:
        worker.finish(id)
    plane.advance(400.0)
    assert [client.state(id) for id in ids] == ["succeeded", "Expired"]
    batches = []
    plane.store.watch = batches.append
    plane.advance(3000.0)
    assert batches == []
    plane.advance(5 * 86400.0)
    assert len(batches) < 200
    plane.advance(3 * 86400.0)
    assert client.state(ids[0]) == "Expired"


def test_a_short_retention_does_not_walk_what_others_keep() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=500)
    add(client, "short", retention=60.0)

    def run(count: int, queue: str) -> list[bytes]:
        ids, _ = client.submit_many(count, queue=queue)
        plane.settle()
        while worker.jobs:
            for id in list(worker.jobs):
                worker.finish(id)
        return ids

    kept = [id for _ in range(10) for id in run(500, "default")]
    brief = run(20, "short")
    plane.advance(300.0)
    assert {client.state(id) for id in brief} == {"Expired"}
    prunes = prunes_of(plane)
    for _ in range(20):
        brief = run(20, "short")
        plane.advance(200.0)
        assert {client.state(id) for id in brief} == {"Expired"}
    assert len(prunes) <= 20 * 6
    first = run(1500, "short")
    plane.advance(1000.0)
    assert {client.state(first[at]) for at in (0, 700, -1)} == {"Expired"}
    assert {client.state(kept[at]) for at in (0, 2500, -1)} == {"succeeded"}
    answer = client.answer(client.ask(m.PatchQueue, "default", {"retention": 30.0}))
    assert isinstance(answer, m.Answer), answer
    plane.advance(130.0)
    assert {client.state(id) for id in kept[::100]} == {"Expired"}
    assert not rows_in(plane)


def test_what_comes_with_an_older_id_is_pruned_too() -> None:
    plane = HandPlane(retention=7200.0)
    client, worker = plane.client(), plane.worker(slots=10)
    old = plane.new_id()
    plane.advance(100.0)
    worker.finish(client.submit())
    plane.advance(100.0)
    worker.finish(client.submit(id=old))
    plane.advance(3 * 7200.0)
    assert not rows_in(plane)


@pytest.mark.parametrize("retention", [1e306, float("inf"), 0.0])
def test_any_retention(retention: float) -> None:
    plane = HandPlane(retention=retention)
    client, worker = plane.client(), plane.worker()
    worker.finish(client.submit())
    client.answer(client.post("t", 1))
    plane.advance(200.0)
    assert len(rows_in(plane)) == (retention > 0)
    for older_than in (1e306, -1e306, None):
        assert isinstance(client.answer(client.ask(m.PruneJobs, older_than)), m.Answer)


def test_a_record_keeps_the_first_and_the_last_attempts() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(retries=1000, retry_delay=0.0)
    for _ in range(200):
        worker.fail(id, ValueError())
        plane.advance(0.001)
    worker.finish(id)
    record = client.record(id)
    assert record.attempt == 201
    assert [attempt.number for attempt in record.attempts] == [*range(1, 11), *range(152, 202)]
    assert record.attempts[-1].outcome == "succeeded"


def test_the_names_of_removed_queues_go_with_their_invocations() -> None:
    plane = HandPlane(retention=60.0)
    client, worker = plane.client(), plane.worker(follow_all=True)
    for name in ("one", "two"):
        client.answer(client.ask(m.AddQueue, name, declare({})))
        worker.finish(client.submit(queue=name))
        client.answer(client.ask(m.RemoveQueue, name))
    (space,) = plane.head.spaces.values()
    listed = client.answer(client.ask(m.ListJobs))
    assert [name for _, name in listed.rows] == ["two", "one"]
    plane.advance(2 * 3600 + 200.0)
    assert not rows_in(plane)
    assert not space._names  # pyright: ignore[reportPrivateUsage]


def test_the_oldest_is_found_also_where_it_came_back_to_an_early_place() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    first = client.submit()
    plane.settle()
    plane.advance(1000.0)
    client.submit_many(500)
    plane.settle()
    (queue,) = plane.head.spaces["default"].queues.values()
    assert queue.oldest_wait() == pytest.approx(0.0, abs=1.0)
    assert worker.started == [first]
    worker.worker.leave()
    plane.settle()
    assert queue.oldest_wait() == pytest.approx(1000.0, abs=1.0)
