"""A head that is started again finds its daemons at work, and takes up with them."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.testing.hand import HandPlane, HandWorker

LEASE, TICK = 30.0, 1.0


def placed(**hello: Any) -> tuple[HandPlane, Any, HandWorker]:
    plane = HandPlane()
    return plane, plane.client(), plane.worker(leased=True, **hello)


def restarted(plane: HandPlane) -> Any:
    """The head's process is killed and started again; a new client."""
    plane.crash()
    plane.settle()
    return plane.client()


def test_work_goes_on_across_a_restart_of_the_head() -> None:
    plane, client, worker = placed()
    id = client.submit()
    client = restarted(plane)
    assert client.state(id) == "running"
    worker.relink()
    plane.settle()
    worker.finish(id, 42)
    assert client.result(id) == 42
    assert (worker.started, len(client.record(id).attempts)) == ([id], 1)
    next = client.submit()
    assert worker.started == [id, next]


def test_a_worker_has_one_whole_lease_to_come_back() -> None:
    plane, client, worker = placed()
    id = client.submit()
    plane.advance(20)
    client = restarted(plane)
    plane.advance(LEASE)
    assert client.state(id) == "running"
    plane.advance(TICK)
    assert (client.state(id), client.record(id).losses) == ("queued", 1)
    worker.relink()
    plane.settle()
    assert worker.cancelled == [(id, "stale")]
    assert worker.started == [id, id]
    worker.finish(id, 1)
    assert client.result(id) == 1


def test_workers_that_do_not_come_back_are_charged_for_their_slots() -> None:
    plane, client, worker = placed(slots=2)
    for _ in range(8):
        worker.finish(client.submit(), 0)
    ids = [client.submit() for _ in range(5)]
    client = restarted(plane)
    plane.advance(LEASE + TICK)
    assert [client.record(id).losses for id in ids] == [1, 1, 0, 0, 0]


def test_bodies_of_the_heads_own_process_are_lost_at_once() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    assert worker.started == [id]
    client = restarted(plane)
    assert (client.state(id), client.record(id).losses) == ("queued", 1)


def test_a_grant_that_died_with_the_head_is_queued_free() -> None:
    plane, client, worker = placed()
    worker.head_link.hold = True
    id = client.submit()
    client = restarted(plane)
    assert client.state(id) == "running"
    worker.relink()
    plane.settle()
    assert worker.started == [id]
    record = client.record(id)
    assert ([each.outcome for each in record.attempts], record.losses) == (["returned", None], 0)


def test_an_attempt_that_the_head_does_not_know_is_stopped() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    plane.advance(11)
    other = plane.worker()
    plane.settle()
    assert other.started == [id]
    other.finish(id, "other")
    restarted(plane)
    worker.relink()
    plane.settle()
    assert worker.cancelled == [(id, "stale")]
    assert worker.worker.held == 0


@pytest.mark.parametrize("stored", [False, True])
def test_an_end_that_was_on_its_way_is_stored_once(stored: bool) -> None:
    plane, client, worker = placed()
    id = client.submit()
    plane.store.hold = True
    worker.finish(id, 1)
    if stored:
        plane.store.lose_answer()
    plane.store.hold = False
    client = restarted(plane)
    worker.relink()
    assert client.result(id) == 1
    assert (worker.worker.held, worker.started) == (0, [id])


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("killed", [False, True])
def test_frames_are_accepted_exactly_once_across_restarts(stored: bool, killed: bool) -> None:
    plane, client, worker = placed()
    id = client.submit(kind="generator", retries=1, retry_delay=0.0)
    worker.give(id, "x", "y")
    worker.fail(id, ValueError("first"))
    plane.advance(1)
    worker.give(id, "a", "b")
    plane.settle()
    if killed:  # a row is written while it runs
        client.kill(id, running=True)
        plane.settle()
    plane.store.hold = True
    worker.give(id, "c")
    plane.settle()
    if stored:
        plane.store.lose_answer()
    plane.store.hold = False
    client = restarted(plane)
    worker.give(id, "d")
    worker.relink()
    plane.settle()
    worker.give(id, "e")
    worker.finish(id)
    frames = client.frames(client.follow(id))
    assert frames == [(n, 1 if n < 2 else 2, value) for n, value in enumerate("xyabcde")]
    assert client.state(id) == "succeeded"
    assert worker.worker.held == 0


def test_frames_of_an_attempt_that_had_none_before_begin_at_nought() -> None:
    plane, client, worker = placed()
    id = client.submit(kind="generator", retries=1, retry_delay=0.0)
    worker.give(id, "x")
    worker.fail(id, ValueError("first"))
    plane.advance(1)
    client = restarted(plane)
    worker.relink()
    plane.settle()
    worker.give(id, "a")
    worker.finish(id)
    assert client.frames(client.follow(id)) == [(0, 1, "x"), (1, 2, "a")]


def test_a_kill_is_told_again_after_a_restart() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    client.kill(id, running=True)
    plane.settle()
    client = restarted(plane)
    worker.relink()
    plane.settle()
    assert worker.cancelled == [(id, "kill")]
    worker.stop(id)
    assert client.state(id) == "killed"


def test_a_killed_job_whose_worker_does_not_come_back_is_killed() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    client.kill(id, running=True)
    plane.settle()
    client = restarted(plane)
    plane.advance(LEASE + TICK)
    assert client.state(id) == "killed"


def test_a_timeout_is_watched_after_a_restart() -> None:
    plane, client, worker = placed()
    id = client.submit(timeout=20.0)
    client = restarted(plane)
    worker.relink()
    for _ in range(10):
        plane.advance(5)
        worker.beat()
    assert worker.cancelled == [(id, "timeout")]  # and its body does not end
    assert client.state(id) == "timeout"


def test_who_worked_for_which_queue_is_known_before_anybody_comes_back() -> None:
    plane, client, worker = placed(queues=("a", "b"), name="one", labels={"gpu": "1"}, slots=3)
    client.answer(client.ask(m.RemoveQueue, "b", True))
    before = client.answer(client.ask(m.ListWorkers)).value
    client = restarted(plane)
    after = client.answer(client.ask(m.ListWorkers)).value
    assert [each["state"] for each in before + after] == ["ready", "away"]
    for field in ("id", "name", "host", "pid", "queues", "slots", "labels", "versions", "startedAt"):
        assert before[0][field] == after[0][field]
    assert after[0]["queues"] == ["a"]
    worker.relink()
    plane.settle()
    now = client.answer(client.ask(m.ListWorkers)).value
    assert (now[0]["queues"], now[0]["state"]) == (["a"], "ready")
    assert worker.worker.hello.queues == ("a",)
    assert client.submit(queue="a") in worker.jobs


def test_a_worker_that_follows_every_queue_does_so_after_a_restart() -> None:
    plane, client, worker = placed(slots=2)
    client.submit(queue="late")
    client = restarted(plane)
    worker.relink()
    plane.settle()
    assert client.submit(queue="later") in worker.jobs


def test_one_that_runs_one_job_runs_one_across_a_restart() -> None:
    plane = HandPlane()
    client = plane.client()
    first, second = client.submit(), client.submit()
    worker = plane.worker(leased=True, limit=1, quiet=True)
    plane.settle()
    client = restarted(plane)
    worker.relink()
    plane.settle()
    worker.finish(first, 1)
    assert (client.state(first), client.state(second)) == ("succeeded", "queued")
    assert worker.quiet == 1
    client = restarted(plane)
    worker.relink()
    plane.settle()
    assert (worker.started, worker.quiet) == ([first], 2)


def test_a_hundred_workers_come_back_and_none_is_lost() -> None:
    """The head is away for three minutes, then all come at once."""
    plane = HandPlane()
    client = plane.client()
    workers = [plane.worker(leased=True) for _ in range(100)]
    ids = [client.submit() for _ in range(100)]
    plane.clock.now += 180
    plane.clock.wall += 180
    client = restarted(plane)
    for number, worker in enumerate(workers):
        if number % 10 == 0:
            plane.advance(2)
        worker.relink()
    plane.settle()
    for worker in workers:
        worker.finish(worker.started[0], 0)
    assert {client.state(id) for id in ids} == {"succeeded"}
    assert {len(client.record(id).attempts) for id in ids} == {1}
    listed = client.answer(client.ask(m.ListWorkers)).value
    assert [each["state"] for each in listed] == ["ready"] * 100


def test_workers_that_never_come_back_have_ended() -> None:
    plane, client, _ = placed()
    plane.settle()
    client = restarted(plane)
    plane.advance(LEASE + TICK)
    assert client.answer(client.ask(m.ListWorkers)).value == []
    listed = client.answer(client.ask(m.ListWorkers, True)).value
    assert [each["state"] for each in listed] == ["ended"]
    client = restarted(plane)
    assert client.answer(client.ask(m.ListWorkers)).value == []
