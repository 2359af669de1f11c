"""What has ended but could not be stored: nobody is told, nothing is lost, and it is told once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.testing.hand import HandClient, HandPlane, HandWorker

FULL = OSError(28, "no space left on device")


class Ending:
    """One running job that ends while the store can't be written."""

    def __init__(self, how: str) -> None:
        self.plane = HandPlane()
        self.client, self.worker = self.plane.client(), self.plane.worker()
        timeout = 10.0 if how == "timeout" else None
        self.id = self.client.submit(kind="generator", timeout=timeout)
        self.wait, self.stream = self.client.ask(m.Wait, self.id), self.client.follow(self.id)
        self.plane.settle()
        self.plane.store.refuse = FULL
        ENDS[how](self)
        self.plane.settle()

    def told(self) -> list[Any]:
        """Everything the one who waits has heard."""
        self.plane.settle()
        return self.client.answers[self.wait]

    def acknowledged(self) -> int:
        """How often the worker was told that its report is stored."""
        return sum(isinstance(message, m.EndedAck) for message in self.worker.received)


def _timed_out(story: Ending) -> None:
    story.plane.advance(10.1)
    assert dict(story.worker.cancelled) == {story.id: "timeout"}
    story.worker.stop(story.id)


def _streamed(story: Ending) -> None:
    story.worker.give(story.id, "frame")
    story.worker.finish(story.id, 42)


ENDS: dict[str, Callable[[Ending], None]] = {
    "success": lambda story: story.worker.finish(story.id, 42),
    "frames": _streamed,
    "failure": lambda story: story.worker.fail(story.id, ValueError("of the body")),
    "timeout": _timed_out,
}
STATES = {"success": "succeeded", "frames": "succeeded", "failure": "failed", "timeout": "timeout"}


@pytest.mark.parametrize("how", list(ENDS))
def test_an_end_that_was_not_stored_is_told_once_the_store_works_again(how: str) -> None:
    story = Ending(how)
    late = story.client.ask(m.Wait, story.id)
    get = story.client.ask(m.Get, story.id)
    story.plane.advance(60.0)  # it is tried again and again
    assert story.told() == []
    assert story.client.answers[late] == story.client.answers[get] == []
    assert story.client.frames(story.stream) == []
    assert story.client.end(story.stream) is None
    assert story.acknowledged() == 0
    assert story.worker.worker.held == 1, "the worker must keep what nobody confirmed"
    assert str(story.plane.stored(story.id).state) == "running"
    story.plane.store.refuse = None
    story.plane.advance(10.0)
    assert [outcome.state for outcome in story.told()] == [STATES[how]]
    assert [outcome.state for outcome in story.client.answers[late]] == [STATES[how]]
    assert story.client.end(story.stream).outcome.state == STATES[how]
    assert len(story.client.frames(story.stream)) == (how == "frames")
    assert story.acknowledged() == 1
    assert story.worker.worker.held == 0
    story.plane.advance(1000.0)
    assert len(story.told()) == 1
    assert story.worker.started == [story.id]
    assert str(story.plane.stored(story.id).state) == STATES[how]


@pytest.mark.parametrize("how", list(ENDS))
def test_an_end_that_was_never_stored_is_run_once_more_after_a_crash(how: str) -> None:
    story = Ending(how)
    plane = story.plane
    plane.advance(5.0)
    assert story.told() == []
    plane.store.refuse = None
    plane.crash()
    assert [answer.kind for answer in story.client.answers[story.wait]] == ["PlaneClosed"]
    client, worker = plane.client(), plane.worker()
    stream = client.follow(story.id)
    plane.settle()
    assert worker.started == [story.id]
    worker.give(story.id, "again")
    worker.finish(story.id, 43)
    assert client.result(story.id) == 43
    assert [value for _, _, value in client.frames(stream)] == ["again"]
    plane.crash()
    client, worker = plane.client(), plane.worker()
    plane.advance(100.0)
    assert worker.started == []
    assert client.result(story.id) == 43
    record = client.record(story.id)
    assert [a.outcome for a in record.attempts] == ["lost", "succeeded"]
    assert (record.losses, record.retries) == (1, 0)


@pytest.mark.parametrize("how", list(ENDS))
def test_an_end_that_was_stored_but_not_told_is_not_run_again(how: str) -> None:
    """The commit went through and the process died before anybody heard."""
    story = Ending(how)
    plane = story.plane
    plane.store.refuse = None
    plane.store.hold = True
    plane.advance(10.0)
    assert story.told() == []
    while plane.store.held:
        plane.store.lose_answer()
    plane.store.hold = False
    plane.crash()
    client, worker = plane.client(), plane.worker()
    plane.advance(100.0)
    assert worker.started == []
    assert client.outcome(story.id).state == STATES[how]
    assert len(client.frames(client.follow(story.id))) == (how == "frames")
    assert len(client.record(story.id).attempts) == 1


def _plane() -> tuple[HandPlane, HandClient, HandWorker]:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    plane.settle()
    return plane, client, worker


def test_a_kill_that_was_not_stored_stops_nothing_and_is_done_when_it_can_be() -> None:
    plane, client, worker = _plane()
    id = client.submit()
    plane.store.refuse = FULL
    kill = client.kill(id, running=True)
    plane.advance(10.0)
    assert client.answers[kill] == []
    assert worker.cancelled == []  # the order to stop leaves after its commit, too
    plane.store.refuse = None
    plane.advance(10.0)
    assert worker.cancelled == [(id, "kill")]
    worker.stop(id)
    assert len(client.answers[kill]) == 1
    assert client.state(id) == "killed"


def test_a_failure_whose_retry_was_not_stored_is_one_retry() -> None:
    plane, client, worker = _plane()
    id = client.submit(retries=1, retry_delay=1.0)
    plane.store.refuse = FULL
    worker.fail(id, ValueError("first"))
    plane.advance(100.0)
    assert worker.started == [id]
    plane.store.refuse = None
    plane.advance(100.0)
    assert worker.started == [id, id]
    worker.fail(id, ValueError("second"))
    plane.advance(100.0)
    assert client.outcome(id).error.message == "second"
    record = client.record(id)
    assert (record.retries, [a.outcome for a in record.attempts]) == (1, ["failed", "failed"])


def test_results_of_many_workers_that_wait_for_the_store_come_all() -> None:
    plane = HandPlane()
    client, workers = plane.client(), [plane.worker() for _ in range(8)]
    plane.settle()
    ids = [client.submit() for _ in range(8)]
    waits = [client.ask(m.Wait, id) for id in ids]
    plane.store.refuse = FULL
    for n, worker in enumerate(workers):
        (id,) = worker.jobs
        worker.finish(id, n)
        if n == 3:
            plane.advance(1.0)  # some were tried already
    assert all(client.answers[wait] == [] for wait in waits)
    plane.store.refuse = None
    plane.advance(10.0)
    assert [len(client.answers[wait]) for wait in waits] == [1] * 8
    assert sorted(client.result(id) for id in ids) == list(range(8))
    assert sum(len(worker.started) for worker in workers) == 8
