"""The worker's own half: what it does with arguments, stops and mistakes, apart from a head."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.errors import Retry
from lakeshore.core.values import pack_call
from lakeshore.testing.hand import HandPlane


def placed(**hello: Any) -> tuple[HandPlane, Any, Any]:
    plane = HandPlane()
    return plane, plane.client(), plane.worker(**hello)


def test_arguments_that_cannot_be_unpacked_fail_the_job_and_free_the_slot() -> None:
    _, client, worker = placed()
    id = client.submit(args=b"\xc1 not msgpack")
    outcome = client.outcome(id)
    assert outcome.state == "failed"
    assert "MalformedValue" in outcome.error.type
    assert (worker.started, worker.worker.ran) == ([], 1)
    good = client.submit()
    assert worker.started == [good]


def test_a_result_beyond_the_limit_is_the_jobs_failure() -> None:
    _, client, worker = placed()
    id = client.submit(retries=5)
    worker.worker._limit = 100
    worker.jobs[id].limit = 100
    worker.finish(id, "x" * 1000)
    outcome = client.outcome(id)
    assert outcome.state == "failed"  # another attempt would give as much
    assert "the result" in outcome.error.message


def test_a_bug_in_the_worker_is_told_to_its_owner() -> None:
    _, _, worker = placed()
    with pytest.raises(KeyError):
        worker.worker.receive("no message")
    told: list[BaseException] = []
    worker.worker._failed = told.append
    worker.worker.receive("no message")
    assert [type(error) for error in told] == [KeyError]


@pytest.mark.parametrize("why", ["kill", "stale"])
def test_what_waits_in_the_worker_is_given_up_when_it_is_stopped(why: str) -> None:
    plane, client, worker = placed()
    first = client.submit()
    grant = next(message for message in worker.received if isinstance(message, m.Grant))
    waiting = m.Grant(b"w" * 16, 1, grant.queue, grant.namespace, grant.call, pack_call((), {}), None)
    worker.worker.receive(waiting)  # ahead of its slots, as for short bodies
    assert worker.started == [first]
    sent: list[Any] = []
    worker.link.watch = sent.append
    worker.worker.receive(m.Stop(waiting.id, 1, why))
    gave = [message for message in sent if isinstance(message, m.GaveBack)]
    assert [message.id for message in gave] == ([waiting.id] if why == "kill" else [])
    worker.link.watch = lambda message: None
    worker.finish(first)
    plane.settle()
    assert worker.started == [first]  # it is not begun any more


def test_a_body_ends_once() -> None:
    _, client, worker = placed()
    id = client.submit()
    job = worker.jobs[id]
    worker.finish(id, 1)
    worker.worker.ended(job, job.succeeded(2, 0.0))  # a body that was abandoned comes back
    assert client.result(id) == 1
    assert worker.worker.ran == 1


def raised(job: Any, error: BaseException) -> Any:
    """What is reported of a body that raised."""
    return job.failed(error, 0.0)


def test_what_asks_for_another_attempt() -> None:
    _, client, worker = placed()
    job = worker.jobs[client.submit(retries=1)]
    assert raised(job, ValueError()).retryable is True
    assert raised(job, SystemExit()).retryable is False
    assert raised(job, Retry(after=5)).after == 5.0
    assert raised(job, Retry(after=float("nan"))).after is None
    group = ExceptionGroup("several", [Retry(after=1), Retry(after=3), ValueError()])
    assert (raised(job, group).retryable, raised(job, group).after) == (True, 3)
    mixed = BaseExceptionGroup("mixed", [ValueError(), SystemExit()])
    assert raised(job, mixed).retryable is False


def test_a_value_that_cannot_travel_is_not_tried_again() -> None:
    _, client, worker = placed()
    job = worker.jobs[client.submit(retries=1)]
    job.refused = error = TypeError("can't travel")
    assert raised(job, error).retryable is False


def test_a_predicate_that_raises_decides_nothing() -> None:
    _, client, worker = placed()
    job = worker.jobs[client.submit(retries=1)]

    def wants_retry(error: BaseException) -> bool:
        raise LookupError("no such table")

    job.body.wants_retry = wants_retry
    report = raised(job, ValueError("odd"))
    assert report.retryable is False
    assert report.error.message == "odd"
    assert report.error.notes == ("not retried: retry_on raised builtins.LookupError: no such table",)


def test_a_retry_where_none_is_allowed_says_how() -> None:
    _, client, worker = placed()
    job = worker.jobs[client.submit()]
    (note,) = raised(job, Retry()).error.notes
    assert note == "no retry is allowed: decorate the body with @udf(retries=...)"


def test_which_process_a_body_is_in_is_known_while_it_runs_and_said_to_the_next_head() -> None:
    plane, client, worker = placed(leased=True)
    id = client.submit()
    assert client.record(id).attempts[-1].pid == worker.worker.hello.pid
    worker.worker.began(worker.jobs[id], 77)
    plane.settle()
    assert client.record(id).attempts[-1].pid == 77
    worker.cut()
    worker.relink()
    sent: list[Any] = []
    worker.link.watch = sent.append
    plane.settle()
    assert m.Began(id, 1, 77) in sent
    worker.finish(id)
    assert client.record(id).attempts[-1].pid == 77


def test_a_body_that_is_found_elsewhere_is_not_looked_for_here() -> None:
    plane, client, worker = placed()
    worker.worker._elsewhere = lambda grant: True
    worker.worker.resolve = None
    id = client.submit(args=b"\xc1 not msgpack")
    job = worker.jobs[id]
    assert (job.body.kind, job.args, job.body.wants_retry(ValueError())) == ("async", (), False)
    worker.worker.ended(job, m.GaveBack(id, 1, "not there", unresolved=True))
    plane.settle()
    assert client.state(id) == "queued"
