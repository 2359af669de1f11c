"""Credit, round robin, the end of work, and functions that a worker can't find."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.backlog import Backlog
from lakeshore.core.errors import Retry
from lakeshore.core.ids import text_of
from lakeshore.core.member import PICKLES
from lakeshore.core.rows import Call, Function, FunctionRow, Options
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandPlane


def add_queue(client, name: str, **settings):
    answer = client.answer(client.ask(m.AddQueue, name, declare(settings)))
    assert isinstance(answer, m.Answer), answer
    return answer.value


def granted(worker) -> int:
    return sum(isinstance(message, m.Grant) for message in worker.received)


def member_of(plane, worker):
    return plane.head.spaces["default"].members[worker.worker.hello.worker]


# Credit


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_never_more_grants_than_slots(slots: int) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=slots)
    ids = [client.submit() for _ in range(20)]
    assert worker.started == ids[:slots]
    for n in range(20):
        plane.advance(0.02)
        worker.finish(ids[n])
        assert granted(worker) <= n + 1 + slots
        assert len(member_of(plane, worker).grants) <= slots
    assert worker.started == ids


@pytest.mark.parametrize(("slots", "ahead"), [(1, 16), (3, 16), (5, 20)])
def test_a_worker_of_short_fifo_bodies_runs_ahead_after_eight(slots: int, ahead: int) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=slots)
    ids = [client.submit() for _ in range(100)]
    for n in range(8):
        assert len(member_of(plane, worker).grants) == slots
        worker.finish(ids[n])
    assert len(member_of(plane, worker).grants) == ahead
    assert len(worker.jobs) == slots


def test_long_bodies_other_orders_and_once_never_run_ahead() -> None:
    plane = HandPlane()
    client = plane.client()
    add_queue(client, "urgent", kind="priority")
    long, mixed = plane.worker(), plane.worker(queues=("default", "urgent"))
    for worker in (long, mixed):
        mine = []
        while len(mine) < 9:
            client.submit()
            for id in list(worker.jobs):
                if worker is long:
                    plane.advance(0.02)
                mine.append(id)
                worker.finish(id)
            for other in (long, mixed):
                if other is not worker:
                    for id in list(other.jobs):
                        other.finish(id)
    for _ in range(50):
        client.submit()
    assert len(member_of(plane, mixed).grants) == 1
    assert len(member_of(plane, long).grants) == 1


def test_what_has_not_begun_goes_back_free_after_a_tenth_of_a_second() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    ids = [client.submit() for _ in range(40)]
    for n in range(8):
        worker.finish(ids[n])
    assert len(member_of(plane, worker).grants) == 16
    other = plane.worker(name="other")
    plane.settle()
    for _ in range(1):
        plane.advance(0.1)
    assert ids[8] in worker.jobs
    assert other.started  # what came back was somebody else's at once
    back = client.record(ids[20])
    assert (back.retries, back.losses) == (0, 0)
    assert {attempt.outcome for attempt in back.attempts} <= {"returned", None}


def test_queues_take_turns() -> None:
    plane = HandPlane()
    client = plane.client()
    for name in ("a", "b", "c"):
        add_queue(client, name)
    of = {client.submit(queue=name): name for name in ("a", "b", "c") for _ in range(6)}
    worker = plane.worker(queues=("a", "b", "c"))
    plane.settle()
    order = []
    while worker.jobs:
        (id,) = worker.jobs
        order.append(of[id])
        plane.advance(0.02)
        worker.finish(id)
    assert sorted(order) == ["a"] * 6 + ["b"] * 6 + ["c"] * 6
    for n in range(0, 18, 3):
        assert set(order[n : n + 3]) == {"a", "b", "c"}


def test_forty_waits_do_not_starve_a_claim() -> None:
    plane = HandPlane()
    clients = [plane.client() for _ in range(40)]
    id = clients[0].submit()
    waits = [client.ask(m.Wait, id) for client in clients]
    worker = plane.worker()
    plane.settle()
    assert worker.started == [id]
    worker.finish(id, "x")
    assert [client.answers[req][0].state for client, req in zip(clients, waits, strict=True)] == (
        ["succeeded"] * 40
    )


def test_a_draining_worker_gets_nothing() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=2)
    first = client.submit()
    worker.worker.drain()
    second = client.submit()
    assert client.state(second) == "queued"
    worker.finish(first)
    plane.settle()
    assert client.state(second) == "queued"
    other = plane.worker()
    plane.settle()
    assert other.started == [second]


def test_a_grant_that_meets_a_draining_worker_comes_back() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    plane.settle()
    worker.head_link.hold = True
    id = client.submit()
    worker.worker.drain()
    worker.head_link.deliver()
    worker.head_link.hold = False
    plane.settle()
    assert client.state(id) == "queued"
    assert client.record(id).attempts[0].outcome == "returned"


@pytest.mark.parametrize("lost_in", ["mail", "commit"])
def test_a_worker_that_leaves_while_it_is_given_work_keeps_nothing(lost_in: str) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    plane.settle()
    plane.store.hold = lost_in == "commit"
    id, _ = client.start()
    if lost_in == "commit":
        plane.settle()
        worker.head_link.cut()
    else:
        for _ in range(20):  # the link breaks with every message of the claim still in the mail
            plane.engine.pump(1)
            member = plane.head.spaces["default"].members.get(worker.worker.hello.worker)
            if member is not None and member._asking is not None:
                worker.head_link.cut()
                break
        else:
            pytest.fail("the claim was never under way")
    plane.store.hold = False
    plane.store.release()
    plane.settle()
    assert client.state(id) == "queued"
    other = plane.worker()
    plane.settle()
    assert other.started == [id]
    other.finish(id, 1)
    assert client.result(id) == 1


def test_one_lost_worker_charges_its_first_slots_grants() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=2)
    ids = [client.submit() for _ in range(40)]
    for n in range(8):
        worker.finish(ids[n])
    assert len(member_of(plane, worker).grants) == 16
    worker.link.cut()
    plane.settle()
    losses = [client.record(id).losses for id in ids[8:24]]
    assert losses == [1, 1] + [0] * 14
    assert {client.state(id) for id in ids[8:]} == {"queued"}


def test_the_third_loss_fails_it_and_retries_are_counted_apart() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(retries=1, retry_delay=0.0)
    wait = client.ask(m.Wait, id)
    for n in range(3):
        worker = plane.worker()
        plane.settle()
        if n == 1:
            worker.fail(id, ValueError("user"))
            plane.settle()
        assert id in worker.jobs
        worker.link.cut()
        plane.settle()
    outcome = client.answer(wait)
    assert (outcome.state, outcome.error.type, outcome.attempt) == ("failed", "lakeshore.WorkerLost", 4)
    assert "connection broke" in outcome.error.message
    record = client.record(id)
    assert [a.outcome for a in record.attempts] == ["lost", "failed", "lost", "lost"]
    assert (record.losses, record.retries) == (3, 1)
    assert [a.number for a in record.attempts] == [1, 2, 3, 4]


# Nobody idles while work waits


def test_what_a_lost_worker_had_goes_to_one_that_is_idle() -> None:
    plane = HandPlane()
    client = plane.client()
    first, second = plane.worker(slots=2), plane.worker(slots=2)
    plane.settle()
    ids = [client.submit(), client.submit()]
    queue = plane.head.spaces["default"].queues["default"]
    assert [id in w.jobs for w, id in zip((first, second), ids, strict=True)] == [True, True]
    assert next(iter(queue.handout.hungry)) is member_of(plane, first)  # it is called first, and has left
    first.link.cut()
    plane.settle()
    assert set(second.jobs) == set(ids)


def test_a_worker_that_cannot_is_not_the_only_one_called() -> None:
    plane = HandPlane()
    client = plane.client()
    able, blind = plane.worker(slots=2), plane.worker(slots=2, unknown=["f"])
    queue = plane.head.spaces["default"].queues["default"]
    for _ in range(8):  # until the one that can't is called first, and is known not to
        id = client.submit("f")
        assert id in able.jobs
        able.finish(id)
        if queue.handout.unresolved and next(iter(queue.handout.hungry)) is member_of(plane, blind):
            break
    else:
        pytest.fail("the order of calls never came about")
    assert client.submit("f") in able.jobs


def test_a_worker_with_less_room_than_was_thought_leaves_the_rest_to_others() -> None:
    plane = HandPlane()
    client = plane.client()
    both = plane.worker(queues=("p", "q"), slots=4)
    plane.settle()  # it is the first to be called
    other = plane.worker(queues=("q",))
    plane.settle()
    client.answer(client.ask(m.ShiftQueue, "q", "pause"))
    client.submit_many(4, queue="q")
    plane.settle()
    member = member_of(plane, both)
    client.submit_many(3, queue="p")
    while member._asking is None:
        plane.engine.pump(1)
    client.ask(m.ShiftQueue, "q", "resume")  # calls `both`, which has room for 4 and soon for 1
    plane.settle()
    assert len(both.jobs) == 4
    assert len(other.jobs) == 1


@pytest.mark.parametrize("why", ["unknown", "max_running"])
def test_workers_that_can_take_nothing_are_not_called_round_and_round(why: str) -> None:
    plane = HandPlane()
    client = plane.client()
    names = ("p", "q")
    for name in names:
        add_queue(client, name, max_running=1 if why == "max_running" else None)
    able = plane.worker(queues=names, slots=2)
    plane.settle()
    busy = [client.submit(queue=name) for name in names]
    assert set(able.jobs) == set(busy)
    unknown = ["g"] if why == "unknown" else []
    others = [plane.worker(queues=names, unknown=unknown) for _ in range(3)]
    plane.settle()
    waiting = [client.start("g", queue=name)[0] for _ in range(2) for name in names]
    plane.settle(500)
    for move in ("pause", "resume"):
        for name in names:
            client.ask(m.ShiftQueue, name, move)
        plane.settle(500)
    assert not any(worker.jobs for worker in others)
    able.finish(busy[0])
    plane.settle(500)
    running = [id for worker in (able, *others) for id in worker.jobs if id in waiting]
    assert len(running) == 1


# once and drain


def test_quiet_is_sent_when_nothing_is_left_and_not_before() -> None:
    plane = HandPlane()
    client = plane.client()
    ids = [client.submit(), client.submit(retries=1, retry_delay=10.0)]
    delayed = client.submit(delay=100.0)
    worker = plane.worker(quiet=True)
    plane.settle()
    worker.finish(ids[0])
    assert worker.quiet == 0
    worker.fail(ids[1], ValueError())
    assert worker.quiet == 0  # it waits for the retry
    plane.advance(10.0)
    assert worker.quiet == 0
    worker.finish(ids[1])
    assert worker.quiet == 1  # not for the delayed one
    plane.advance(100.0)
    assert delayed in worker.jobs


def test_quiet_at_once_where_nothing_can_be_claimed() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.client().submit(queue="other")
    client.answer(client.ask(m.ShiftQueue, "other", "pause"))
    worker = plane.worker(quiet=True)
    plane.settle()
    assert worker.quiet == 1
    assert not worker.started


@pytest.mark.parametrize("what", ["kill", "bulk", "elsewhere", "expiry", "remove"])
def test_a_draining_worker_is_told_when_the_retry_it_waited_for_is_gone(what: str) -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(queue="q", retries=1, retry_delay=50.0, deadline=60.0)
    worker = plane.worker(quiet=True)
    other = plane.worker(queues=("default",))
    plane.settle()
    worker.fail(id, ValueError())
    assert worker.quiet == 0
    if what == "kill":
        client.kill(id)
    elif what == "bulk":
        client.ask(m.BulkCancel)
    elif what == "remove":
        client.ask(m.RemoveQueue, "q")
    elif what == "expiry":
        client.ask(m.ShiftQueue, "q", "pause")
        plane.advance(61)
    else:
        hungry = plane.worker(queues=("q",))
        plane.settle()
        worker.link.hold = True
        member = member_of(plane, worker)
        queue = plane.head.spaces["default"].queues["q"]
        queue.handout.hungry = {member_of(plane, hungry): None, member: None}
        plane.advance(50)
        assert id in hungry.jobs
    plane.settle()
    assert worker.quiet == 1
    assert not other.jobs


def test_once_follows_its_invocation_through_its_retries() -> None:
    plane = HandPlane()
    client = plane.client()
    first = client.submit(retries=2, retry_delay=5.0)
    second = client.submit()
    once = plane.worker(quiet=True, limit=1)
    plane.settle()
    assert once.started == [first]
    once.fail(first, ValueError("1"))
    plane.advance(10)
    once.fail(first, ValueError("2"))
    assert once.quiet == 0
    plane.advance(20)
    assert once.started == [first] * 3
    once.finish(first, 1)
    assert once.quiet == 1
    assert client.state(second) == "queued"


@pytest.mark.parametrize("after", [0.0, None])
def test_once_follows_a_retry_without_a_delay(after: float | None) -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(retries=1, retry_delay=0.0)
    once = plane.worker(quiet=True, limit=1)
    plane.settle()
    once.fail(id, Retry(after=after) if after is not None else ValueError())
    assert once.started == [id, id]
    once.finish(id)
    assert once.quiet == 1


def test_once_is_done_when_another_worker_takes_the_retry() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(retries=1, retry_delay=5.0)
    once = plane.worker(quiet=True, limit=1)
    plane.settle()
    once.fail(id, ValueError())
    other = plane.worker()
    once.link.hold = True
    once.head_link.hold = True
    plane.advance(5)
    once.link.hold = once.head_link.hold = False
    once.head_link.deliver()
    plane.settle()
    assert (id in other.jobs) != (id in once.jobs)
    if id in once.jobs:
        once.finish(id)
    assert once.quiet == 1


@pytest.mark.parametrize("how", ["killed", "expired"])
def test_once_is_done_when_its_retry_ends_otherwise(how: str) -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(retries=1, retry_delay=50.0, deadline=20.0)
    once = plane.worker(quiet=True, limit=1)
    plane.settle()
    once.fail(id, Retry(after=50))
    assert once.quiet == 0
    if how == "killed":
        client.answer(client.kill(id))
    else:
        plane.advance(20)
    assert client.state(id) == ("killed" if how == "killed" else "timeout")
    assert once.quiet == 1


def test_once_is_done_when_its_arguments_cannot_be_read() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(args=("x" * 5000,))
    plane.store.hold_reads = True
    once = plane.worker(quiet=True, limit=1)
    plane.settle()
    plane.store.held_reads.popleft()[1](OSError("bad sector"))
    plane.store.hold_reads = False
    plane.settle()
    assert client.outcome(id).error.type == "lakeshore.StoreFailed"
    assert once.quiet == 1


# Functions that can't be found


def test_an_unresolvable_function_comes_back_free_and_is_not_offered_again() -> None:
    plane = HandPlane()
    client = plane.client()
    blind = plane.worker(unknown=["f"])
    ids = [client.submit("f"), client.submit("f")]
    other = client.submit("g")
    assert blind.started == [other]
    assert granted(blind) == 2  # f once, g once
    assert {client.state(id) for id in ids} == {"queued"}
    record = client.record(ids[0])
    assert (record.attempts, record.retries, record.losses) == ((), 0, 0)
    why = client.answer(client.ask(m.Why, ids[0])).value
    assert why[0].startswith("no live worker can find the function f: start one that can import it")
    assert why[1].endswith(" says: no f here")
    late = plane.worker()
    plane.settle()
    late.finish(ids[0])
    late.finish(ids[1], 2)
    assert client.result(ids[1]) == 2
    assert [attempt.number for attempt in client.record(ids[0]).attempts] == [2]  # the first is spent


@pytest.mark.parametrize("left_first", [False, True])
def test_stuck_entries_come_back_when_a_worker_joins(left_first: bool) -> None:
    plane = HandPlane()
    client = plane.client()
    blind = plane.worker(unknown=["f"])
    ids = [client.submit("f") for _ in range(3)]
    queue = plane.head.spaces["default"].queues["default"]
    assert client.state(ids[0]) == "queued"
    assert any("no live worker can find" in line for line in client.answer(client.ask(m.Why, ids[0])).value)
    if left_first:
        blind.link.cut()
        plane.settle()
    able = plane.worker(slots=3)
    plane.settle()
    assert sorted(able.started) == ids
    assert len(queue.backlog) == 0


def test_a_thousand_stuck_entries_and_a_worker_that_only_looks_in() -> None:
    plane = HandPlane()
    client = plane.client()
    blind = plane.worker(unknown=["f"])
    for _ in range(25):
        client.submit_many(100, "f")
    plane.settle()
    queue = plane.head.spaces["default"].queues["default"]
    while any(queue.backlog.is_claimable(e) for e in queue.backlog):
        plane.head.spaces["default"].queues["default"].handout.hungry.clear()
        plane.engine.tell(member_of(plane, blind), m.Kept(b"", 0))
        break
    guest = plane.worker(unknown=["f"])
    guest.link.cut()
    plane.settle()
    assert list(queue.members) == [member_of(plane, blind)]
    blind.link.cut()
    plane.settle()
    assert not queue.members
    able = plane.worker(slots=2)
    plane.settle()
    assert len(able.started) == 2


@pytest.mark.parametrize("kind", ["fifo", "filo", "priority", "boltzmann"])
def test_work_behind_thousands_a_worker_cannot_do_reaches_it(kind: str) -> None:
    plane = HandPlane(seed=1)
    client = plane.client()
    add_queue(client, "q", kind=kind)
    able, half = plane.worker(queues=("q",), name="able"), plane.worker(queues=("q",), unknown=["A"])
    plane.settle()
    first = [client.submit("A", queue="q"), client.submit("A", queue="q")]
    for _ in range(6):
        client.submit_many(500, "A", queue="q")
    plane.settle()
    assert len(able.jobs) == 1
    for _ in range(3):
        b = client.submit("B", queue="q", priority=-1.0)
        assert list(half.jobs) == [b]
        half.finish(b)
    for _ in range(5):
        able.finish(next(iter(able.jobs)))
    begun = able.started
    if kind == "filo":
        assert begun[0] in first
        assert begun[1:] == sorted(begun[1:], reverse=True)
    elif kind != "boltzmann":
        assert begun == sorted(begun)
    assert len(begun) == 6
    backlog = plane.head.spaces["default"].queues["q"].backlog
    assert len(backlog) == 3002 - 6


def test_what_a_worker_cannot_do_is_passed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = HandPlane()
    client = plane.client()
    count = 0
    real = Backlog.set_apart

    def counted(self: Backlog, *args: Any) -> None:
        nonlocal count
        count += 1
        real(self, *args)

    monkeypatch.setattr(Backlog, "set_apart", counted)
    able, half = plane.worker(), plane.worker(unknown=["A"])
    plane.settle()
    for _ in range(6):
        client.submit_many(500, "A")
    plane.settle()
    for _ in range(20):
        b = client.submit("B")
        worker = half if b in half.jobs else able
        worker.finish(b)
        if able.jobs:
            able.finish(next(iter(able.jobs)))
    assert count < 3100


def test_priorities_hold_between_what_is_set_apart_and_what_is_not() -> None:
    plane = HandPlane()
    client = plane.client()
    add_queue(client, "q", kind="priority")
    half = plane.worker(queues=("q",), unknown=["A", "C"])
    plane.settle()
    ids = {}
    for priority, name in enumerate("ACACA"):
        ids[priority] = client.submit(name, queue="q", priority=float(priority))
    busy = client.submit("B", queue="q")
    assert list(half.jobs) == [busy]
    ids[2.5] = client.submit("B", queue="q", priority=2.5)
    able = plane.worker(queues=("q",), slots=2)
    plane.settle()
    while able.jobs:
        able.finish(next(iter(able.jobs)))
    assert able.started == [ids[key] for key in sorted(ids, reverse=True)]


def test_busy_is_at_most_the_slots_and_last_seen_is_when_it_last_spoke() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    for _ in range(10):
        worker.finish(client.submit())
    for _ in range(10):
        client.submit()
    assert granted(worker) > 1
    member = member_of(plane, worker)
    assert len(member.grants) > 1
    assert member.info()["busy"] == 1
    plane.advance(50.0)
    before = member.info()["lastSeenAt"]
    worker.finish(next(iter(worker.jobs)))
    assert member.info()["lastSeenAt"] == plane.clock.wall
    assert before < plane.clock.wall


def test_a_stuck_entry_still_expires_and_can_be_killed() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.worker(unknown=["f"])
    expires, killed = client.submit("f", deadline=10.0), client.submit("f")
    plane.settle()
    assert client.answer(client.kill(killed)).value is None
    assert client.state(killed) == "killed"
    plane.advance(10.0)
    assert client.state(expires) == "timeout"


def test_what_was_passed_over_still_expires() -> None:
    plane = HandPlane()
    client = plane.client()
    blind, able = plane.worker(unknown=["f"]), plane.worker(name="able")
    busy = client.submit("g")
    worker, other = (able, blind) if busy in able.jobs else (blind, able)
    if worker is blind:  # the one that can is to be the busy one
        busy2 = client.submit("g")
        assert busy2 in able.jobs
        blind.finish(busy)
    first = client.submit("f", deadline=10.0)
    second = client.submit("f", deadline=10.0)
    plane.advance(10.0)
    assert [client.state(id) for id in (first, second)] == ["timeout", "timeout"]
    assert other is not None


def test_max_running_is_free_again_after_an_unresolvable_function() -> None:
    plane = HandPlane()
    client = plane.client()
    add_queue(client, "q", max_running=1)
    stuck, runs = client.submit("f", queue="q"), client.submit("g", queue="q")
    worker = plane.worker(queues=("q",), unknown=["f"], slots=2)
    plane.settle()
    assert worker.started == [runs]
    assert client.state(stuck) == "queued"


# Pickled bodies


def pickled(plane, client, hash: bytes, **options) -> bytes:
    call = Call(Options(Function("f", "elsewhere:1", "", hash)), b"\x92\x90\x80")
    id = plane.new_id()
    client.ask(m.Submit, id, "default", call, function=FunctionRow(hash, b"pickle of " + hash), **options)
    return id


def sent_with(worker, id: bytes) -> bytes | None:
    return next(g.function for g in reversed(worker.received) if isinstance(g, m.Grant) and g.id == id)


@pytest.mark.parametrize("delay", [None, 1.0])
def test_a_pickle_comes_along_also_where_its_commit_is_on_the_way(delay: float | None) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=9)
    first, second = (pickled(plane, client, b"h" * 16, delay=delay) for _ in range(2))
    plane.settle()
    plane.advance(1.0)
    assert sent_with(worker, first) == b"pickle of " + b"h" * 16
    assert sent_with(worker, second) in (None, b"pickle of " + b"h" * 16)  # twice where read at once


def test_a_pickle_is_sent_again_once_the_worker_may_have_let_it_go() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()

    def run(number: int) -> bytes | None:
        id = pickled(plane, client, number.to_bytes(16, "big"))
        plane.settle()
        worker.finish(id)
        return sent_with(worker, id)

    assert run(0) is not None
    for number in range(1, PICKLES):
        assert run(number) is not None
        assert run(0) is None  # used all the time
    assert run(PICKLES) is not None
    assert (run(0), run(2)) == (None, None)
    assert run(1) is not None


# Deadlines


@pytest.mark.parametrize("count", [1, 1500])
def test_what_comes_back_past_its_deadline_is_not_begun_again(count: int) -> None:
    plane = HandPlane()
    client, first = plane.client(), plane.worker(slots=count)
    ids, _ = client.submit_many(count, deadline=5.0)
    second = plane.worker(slots=count)
    plane.advance(20.0)
    first.worker.leave()
    plane.settle()
    assert not second.started
    assert {client.state(id) for id in ids} == {"timeout"}
    late = client.submit()
    assert second.started == [late]


def test_once_does_not_begin_a_retry_past_the_deadline() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(retries=1, retry_delay=0.0, deadline=5.0)
    once = plane.worker(quiet=True, limit=1)
    plane.advance(20.0)
    once.fail(id, ValueError())
    assert once.started == [id]
    assert once.quiet
    assert client.state(id) == "timeout"


def test_what_a_worker_can_do_is_taken_at_once_though_a_turn_only_looks_at_so_many() -> None:
    plane = HandPlane()
    client, blind = plane.client(), plane.worker(unknown=["f"], slots=3)
    client.submit("f")
    client.answer(client.ask(m.ShiftQueue, "default", "pause"))
    before = client.submit("g")
    for _ in range(15):
        client.submit_many(100, "f")
    after = client.submit("g")
    client.answer(client.ask(m.ShiftQueue, "default", "resume"))
    assert blind.started == [before, after]


def test_losses_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit("deadly")
    for _ in range(3):
        worker = plane.worker()
        plane.settle()
        worker.link.cut()
        plane.settle()
    assert client.state(id) == "failed"
    said = [record.getMessage() for record in caplog.records if record.name == "lakeshore"]
    assert [text.split(": ")[1] for text in said] == ["queued again, as its worker was lost"] * 2 + ["failed"]
    assert all(f"{text_of(id)} (deadly), attempt {n}" in text for n, text in enumerate(said, 1))
