"""Whether an attempt may publish its files: asked of the head, before anything can be seen."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.testing.hand import HandPlane


def placed() -> tuple[HandPlane, Any, Any, Any]:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    return plane, client, worker, worker.jobs[id]


def asked(worker: Any, job: Any) -> list[bool]:
    """What a job that asks is told; asked, but not settled."""
    told: list[bool] = []
    worker.worker.clearing.ask(job, told.append)
    return told


def test_the_current_attempt_is_cleared_and_from_then_on_not_stopped() -> None:
    plane, client, worker, job = placed()
    told = asked(worker, job)
    plane.settle()
    assert told == [True]
    assert job.publishing
    client.kill(job.id, running=True)
    plane.settle()
    assert (job.why, worker.cancelled) == ("", [])
    worker.finish(job.id, 1)
    assert client.result(job.id) == 1  # the body's own success outranks the kill


def test_who_publishes_a_frame_may_be_stopped_after_that() -> None:
    plane, client, worker, job = placed()
    asked(worker, job)
    plane.settle()
    job.publishing = False
    client.kill(job.id, running=True)
    plane.settle()
    assert job.why == "kill"


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_attempt_that_is_anothers_is_not_cleared(when: str) -> None:
    plane, _, worker, job = placed()
    if when == "before":
        worker.worker.receive(m.Stop(job.id, job.attempt, "stale"))
    told = asked(worker, job)
    if when == "after":
        worker.worker.receive(m.Stop(job.id, job.attempt, "stale"))
    plane.settle()
    assert told == [False]


def test_a_head_clears_the_current_attempt_only() -> None:
    plane, _, worker, job = placed()
    worker.link.send(m.Publish(job.id, job.attempt + 1))
    plane.settle()
    received = [message for message in worker.received if isinstance(message, m.Cleared | m.Stop)]
    assert received == [m.Stop(job.id, job.attempt + 1, "stale")]
    other = plane.worker()
    other.link.send(m.Publish(job.id, job.attempt))
    plane.settle()
    assert m.Stop(job.id, job.attempt, "stale") in other.received


def test_a_body_that_was_too_slow_is_not_cleared() -> None:
    _, _, worker, job = placed()
    worker.worker._stop(job, "timeout")
    assert asked(worker, job) == [False]


@pytest.mark.parametrize("how", ["ended", "leave"])
def test_who_waits_is_told_when_it_is_over(how: str) -> None:
    _, _, worker, job = placed()
    told = asked(worker, job)
    if how == "ended":
        worker.worker.ended(job, job.succeeded(1, 0.0))
    else:
        worker.worker.leave()
    assert told == [False]
    assert asked(worker, job) == [False]


def test_who_asks_while_the_link_is_broken_is_answered_on_the_next_one() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(leased=True)
    job = worker.jobs[client.submit()]
    told: list[bool] = []
    worker.cut()
    worker.worker.clearing.ask(job, told.append)
    plane.settle()
    assert told == []
    worker.relink()
    plane.settle()
    assert told == [True]


def test_a_stop_that_comes_before_the_answer_counts() -> None:
    plane, client, worker, job = placed()
    told: list[bool] = []
    client.kill(job.id, running=True)
    worker.worker.clearing.ask(job, told.append)  # both are on their way
    plane.settle()
    assert (told, job.publishing) == ([False], False)
    assert job.why == "kill"
    late: list[bool] = []
    worker.worker.clearing.asked[job.id, job.attempt] = job, late.append
    worker.worker.receive(m.Cleared(job.id, job.attempt))
    assert (late, job.publishing) == ([False], False)


def test_a_stop_that_comes_while_a_frame_is_published_comes_after_it() -> None:
    plane, client, worker, job = placed()
    asked(worker, job)
    plane.settle()
    client.kill(job.id, running=True)
    plane.settle()
    assert job.why == ""
    worker.worker.published(job)
    assert job.why == "kill"


def test_the_head_does_not_end_what_it_has_cleared() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    job = worker.jobs[client.submit(timeout=5.0)]
    worker.worker.began(job)
    asked(worker, job)
    plane.settle()
    plane.advance(1000.0)
    assert client.state(job.id) == "running"
    worker.finish(job.id, 1)
    assert client.result(job.id) == 1


def test_the_head_ends_what_goes_on_after_a_frame() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    job = worker.jobs[client.submit(timeout=5.0)]
    worker.worker.began(job)
    asked(worker, job)
    plane.settle()
    worker.give(job.id, "a")
    plane.settle()
    worker.worker._stop = lambda job, why: None  # it does not say a word any more
    plane.advance(1000.0)
    assert client.outcome(job.id).state == "timeout"


def test_who_ends_waits_for_what_is_being_published() -> None:
    plane, _, worker, job = placed()
    calls: list[str] = []
    worker.worker.clearing.when_done(lambda: calls.append("nothing"))
    asked(worker, job)
    plane.settle()
    worker.worker.clearing.when_done(lambda: calls.append("published"))
    assert calls == ["nothing"]
    worker.finish(job.id, 1)
    assert calls == ["nothing", "published"]


@pytest.mark.parametrize("how", ["stale", "leave"])
def test_files_of_who_has_left_are_closed(how: str) -> None:
    _, _, worker, job = placed()
    closed: list[str] = []
    job.running.files = type("Files", (), {"close": lambda self: closed.append(how)})()
    if how == "stale":
        worker.worker.receive(m.Stop(job.id, job.attempt, "stale"))
    else:
        worker.worker.leave()
    assert closed == [how]
    assert not job.running.over
    worker.worker.ended(job, job.succeeded(1, 0.0))
    assert job.running.over
