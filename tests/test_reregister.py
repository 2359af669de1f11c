"""A worker in another process comes back after its link broke: with what it holds, and nothing twice."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lakeshore.core import messages as m
from lakeshore.core.notes import Dead
from lakeshore.testing.hand import HandPlane, HandWorker


def placed(**hello: Any) -> tuple[HandPlane, Any, HandWorker]:
    plane = HandPlane()
    return plane, plane.client(), plane.worker(leased=True, **hello)


def member_of(plane: HandPlane, worker: HandWorker) -> Any:
    return plane.head.space("default").members[worker.worker.hello.worker]


def test_a_body_goes_on_across_a_broken_link() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    plane.advance(5)
    assert client.state(id) == "running"
    worker.relink()
    plane.settle()
    worker.finish(id, 42)
    assert client.result(id) == 42
    assert worker.started == [id]
    assert len(client.record(id).attempts) == 1
    assert worker.worker.held == 0


def test_an_end_that_got_lost_is_said_again() -> None:
    _plane, client, worker = placed()
    id = client.submit()
    worker.link.hold = True
    worker.finish(id, 1)
    worker.cut()
    assert client.state(id) == "running"
    worker.relink()
    assert client.result(id) == 1
    assert (worker.worker.held, worker.started) == (0, [id])


def test_an_end_that_was_stored_and_not_acknowledged_is_forgotten() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.head_link.hold = True
    worker.finish(id, 1)
    worker.cut()
    assert worker.worker.held == 1
    worker.relink()
    plane.settle()
    assert worker.worker.held == 0
    assert client.result(id) == 1


def test_a_grant_that_got_lost_goes_back_free() -> None:
    plane, client, worker = placed()
    worker.head_link.hold = True
    id = client.submit()
    assert client.state(id) == "running"
    worker.cut()
    worker.relink()
    plane.settle()
    assert worker.started == [id]
    record = client.record(id)
    assert [(each.outcome, each.reason) for each in record.attempts[:1]] == [
        ("returned", "its worker came back without it")
    ]
    assert (len(record.attempts), record.losses, record.retries) == (2, 0, 0)
    worker.finish(id, 1)
    assert client.result(id) == 1


def test_a_grant_that_waits_for_its_commit_leaves_on_the_new_link() -> None:
    plane, client, worker = placed()
    plane.store.hold = True
    id, _ = client.start()
    plane.settle()
    old = worker.link
    worker.relink()
    plane.settle()
    old.cut()
    plane.settle()
    assert worker.started == []
    plane.store.hold = False
    plane.store.release()
    plane.settle()
    assert worker.started == [id]
    worker.finish(id, 1)
    assert client.result(id) == 1
    assert len(client.record(id).attempts) == 1


def test_a_grant_that_has_not_left_when_the_link_breaks_is_anothers() -> None:
    plane, client, worker = placed()
    plane.store.hold = True
    id, _ = client.start()
    plane.settle()
    other = plane.worker()
    worker.cut()
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    plane.settle()
    assert (worker.started, other.started) == ([], [id])
    worker.relink()
    plane.settle()
    assert worker.started == []
    assert client.record(id).losses == 0


def test_without_a_link_nothing_is_granted() -> None:
    plane, client, worker = placed(slots=2)
    worker.cut()
    id = client.submit()
    assert client.state(id) == "queued"
    worker.relink()
    plane.settle()
    assert worker.started == [id]


def test_the_end_of_an_old_link_means_nothing() -> None:
    plane, client, worker = placed(slots=2)
    first, old = client.submit(), worker.link
    worker.relink()
    plane.settle()
    old.cut()
    plane.settle()
    assert member_of(plane, worker).state == "ready"
    second = client.submit()
    assert worker.started == [first, second]


def test_what_an_old_link_still_brings_is_heard_once() -> None:
    plane, client, worker = placed()
    id, old = client.submit(), worker.link
    old.hold = True
    worker.finish(id, 1)
    worker.relink()
    old.deliver()
    plane.settle()
    assert client.result(id) == 1
    assert worker.worker.held == 0
    assert client.submit() in worker.jobs


def test_frames_go_on_where_they_were_cut() -> None:
    plane, client, worker = placed()
    id = client.submit(kind="generator")
    stream = client.follow(id)
    worker.give(id, "a", "b")
    plane.settle()
    worker.link.hold = True
    worker.give(id, "c")
    worker.cut()
    worker.give(id, "d")
    worker.relink()
    worker.give(id, "e")
    plane.settle()
    worker.give(id, "f")
    worker.finish(id)
    assert [value for _, _, value in client.frames(stream)] == list("abcdef")
    assert [seq for seq, _, _ in client.frames(stream)] == list(range(6))
    assert worker.worker.held == 0


def test_frames_whose_acknowledgement_got_lost_are_not_doubled() -> None:
    plane, client, worker = placed()
    id = client.submit(kind="generator")
    stream = client.follow(id)
    worker.head_link.hold = True
    worker.give(id, "a", "b")
    plane.settle()
    worker.cut()
    worker.give(id, "c")
    worker.relink()
    plane.settle()
    assert worker.acks[id] == 3
    worker.finish(id)
    assert [value for _, _, value in client.frames(stream)] == list("abc")


def test_an_end_waits_behind_its_frames() -> None:
    plane, client, worker = placed()
    id = client.submit(kind="generator")
    stream = client.follow(id)
    worker.cut()
    worker.give(id, "a")
    worker.finish(id)
    worker.relink()
    plane.settle()
    assert [value for _, _, value in client.frames(stream)] == ["a"]
    assert client.end(stream).outcome.state == "succeeded"


def test_what_waits_in_the_worker_waits_on() -> None:
    plane, client, worker = placed()
    warm_up(client, worker)
    ids = [client.submit() for _ in range(3)]
    assert worker.worker.held == 3
    worker.cut()
    worker.finish(ids[0], 0)
    assert worker.started[-1:] == ids[:1]  # nothing is begun that another may have by now
    worker.relink()
    plane.settle()
    for id in ids[1:]:
        worker.finish(id, 0)
    assert [len(client.record(id).attempts) for id in ids] == [1, 1, 1]
    assert [client.state(id) for id in ids] == ["succeeded"] * 3


def warm_up(client: Any, worker: HandWorker) -> None:
    """Short bodies, after which a worker is granted more than its slots."""
    for _ in range(8):
        worker.finish(client.submit(), 0)


@pytest.mark.parametrize("running", [False, True])
def test_a_kill_is_told_when_the_worker_comes_back(running: bool) -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    kill = client.kill(id, running=running)
    plane.advance(1)
    assert client.answer(kill) is None
    assert plane.stored(id).record.killing is running
    worker.relink()
    plane.settle()
    if running:
        assert worker.cancelled == [(id, "kill")]
        worker.stop(id)
        assert isinstance(client.answer(kill), m.Answer)
        assert client.state(id) == "killed"
    else:
        assert client.answer(kill).kind == "Conflict"


@pytest.mark.parametrize("running", [False, True])
def test_a_kill_of_what_has_not_left_yet_needs_no_worker(running: bool) -> None:
    plane, client, worker = placed()
    plane.store.hold = True
    id, _ = client.start()
    plane.settle()
    kill = client.kill(id, running=running)
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    assert isinstance(client.answer(kill), m.Answer)
    assert (client.state(id), worker.started) == ("killed", [])


@pytest.mark.parametrize("running", [False, True])
def test_a_kill_whose_worker_is_lost_is_answered(running: bool) -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    kill = client.kill(id, running=running)
    plane.advance(11)
    assert isinstance(client.answer(kill), m.Answer)
    assert client.state(id) == "killed"


@pytest.mark.parametrize("lost", ["kill", "answer"])
def test_a_kill_or_its_answer_that_got_lost_is_said_again(lost: str) -> None:
    plane, client, worker = placed()
    id = client.submit()
    (worker.head_link if lost == "kill" else worker.link).hold = True
    kill = client.kill(id)
    plane.settle()
    worker.cut()
    worker.relink()
    assert client.answer(kill).kind == "Conflict"


def test_a_drain_is_kept_across_links() -> None:
    plane, client, worker = placed(slots=2)
    id = client.submit()
    worker.cut()
    worker.worker.drain()
    worker.relink()
    plane.settle()
    client.submit()
    assert worker.started == [id]
    assert member_of(plane, worker).draining


def test_a_worker_that_is_asked_to_drain_while_it_is_away_hears_of_it() -> None:
    plane, client, worker = placed(slots=2)
    id = client.submit()
    worker.cut()
    plane.engine.tell(member_of(plane, worker), m.PleaseDrain())
    plane.settle()
    worker.relink()
    plane.settle()
    assert worker.worker.draining
    worker.finish(id, 1)
    assert client.result(id) == 1


@pytest.mark.parametrize("lost", [False, True])
def test_one_that_runs_one_job_is_told_that_it_has(lost: bool) -> None:
    plane, client, worker = placed(limit=1, quiet=True)
    first, second = client.submit(), client.submit()
    worker.head_link.hold = lost
    worker.finish(first, 1)
    worker.cut()
    worker.relink()
    plane.settle()
    assert worker.quiet
    assert (worker.started, client.state(second)) == ([first], "queued")


def test_one_that_follows_a_retry_goes_on_following() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(retries=1, retry_delay=100.0)
    worker = plane.worker(leased=True, limit=1, quiet=True)
    plane.settle()
    worker.fail(id, ValueError("first"))
    worker.cut()
    plane.advance(2)
    worker.relink()
    plane.settle()
    while not worker.jobs and plane.clock.now < 200:
        plane.advance(5)
        assert (worker.beat(), worker.quiet) == (True, 0)
    worker.finish(id, 2)
    assert (client.result(id), worker.started, worker.quiet) == (2, [id, id], 1)


def test_a_pickle_that_got_lost_with_its_grant_is_sent_again() -> None:
    from lakeshore.core.rows import Call, Function, FunctionRow, Options
    from lakeshore.core.values import pack_call

    plane, client, worker = placed()
    row = FunctionRow(b"h" * 16, b"a pickle")
    call = Call(Options(Function("f", value=row.hash), "async"), pack_call((), {}))
    worker.head_link.hold = True
    client.ask(m.Submit, plane.new_id(), "default", call, function=row)
    plane.settle()
    worker.cut()
    worker.relink()
    plane.settle()
    grants = [message for message in worker.received if isinstance(message, m.Grant)]
    assert [grant.function for grant in grants] == [row.data]


def test_stored_frames_that_the_head_lost_end_the_attempt() -> None:
    plane, client, worker = placed()
    id = client.submit(kind="generator")
    worker.give(id, "a", "b")
    plane.settle()
    client.follow(id)
    journal = plane.head.space("default").live[id].journal
    assert journal is not None
    journal.index = 0  # as after a power cut, with sync=normal
    worker.cut()
    worker.relink()
    plane.settle()
    assert worker.cancelled == [(id, "stale")]
    record = client.record(id)
    assert [each.reason for each in record.attempts[:1]] == ["the head has lost frames that were stored"]
    assert worker.started == [id, id]  # another attempt, at once
    worker.finish(id)
    assert client.state(id) == "succeeded"


@pytest.mark.parametrize("back", [False, True])
def test_a_body_that_the_head_timed_out_frees_its_slot_in_the_end(back: bool) -> None:
    plane, client, worker = placed()
    id = client.submit(kind="generator", timeout=20.0)
    plane.settle()
    worker.worker._timer = lambda *_: None  # the loop of the worker is blocked
    job = worker.jobs[id]
    job.timer.cancel()
    for _ in range(4):
        plane.advance(10)
        worker.beat()
    assert client.state(id) == "timeout"
    if back:
        worker.cut()
        worker.relink()
    else:
        worker.give(id, "late")
    plane.settle()
    assert worker.cancelled == [(id, "timeout")]
    worker.stop(id)
    assert client.submit() in worker.jobs


def test_one_that_comes_back_while_its_loss_is_being_dealt_with_is_kept() -> None:
    plane, client, worker = placed()
    plane.settle()
    worker.cut()
    plane.settle()
    plane.engine.tell(member_of(plane, worker), Dead("killed by signal 9"))
    plane.engine.pump(1)  # it is lost, and its space has not heard of it
    worker.relink()
    plane.settle()
    assert member_of(plane, worker).state == "ready"
    assert client.submit() in worker.jobs


def test_what_comes_late_on_the_link_of_a_lost_worker_does_not_end_its_successor() -> None:
    plane, _, worker = placed()
    plane.settle()
    old, worker.head_link.hold = worker.link, True
    plane.advance(31)
    worker.relink()
    plane.settle()
    old.send(m.Drain())
    plane.settle()
    assert member_of(plane, worker).state == "ready"
    plane.crash()
    plane.settle()
    assert member_of(plane, worker).state == "away"


def test_what_it_holds_and_was_not_granted_it_is_told_to_stop() -> None:
    plane, client, worker = placed(slots=2)
    id = client.submit()
    worker.cut()
    other = plane.new_id()
    hello = msgspec.structs.replace(
        worker.worker.hello, again=True, held=(m.Held(id, 1), m.Held(id, 7), m.Held(other, 1))
    )
    link, _ = plane.connect()
    said: list[Any] = []
    link.receive = said.append
    link.send(hello)
    plane.settle()
    assert [message for message in said if isinstance(message, m.Stop)] == [
        m.Stop(id, 7, "stale"),
        m.Stop(other, 1, "stale"),
    ]
    assert client.state(id) == "running"
