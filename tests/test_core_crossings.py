"""Messages that cross: what a question, a call or a report was about has changed before it arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.notes import Join, Take
from lakeshore.core.reports import BACKSTOP
from lakeshore.core.rows import GetInvocation
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandPlane


def add(client: Any, name: str = "q", **settings: Any) -> None:
    answer = client.answer(client.ask(m.AddQueue, name, declare(settings)))
    assert isinstance(answer, m.Answer), answer


def overheard(plane: HandPlane, queue: str, kind: type[Any]) -> list[Any]:
    """What a queue is told of a kind from now on."""
    found: list[Any] = []
    handlers = plane.head.spaces["default"].queues[queue].handlers
    handle = handlers[kind]

    def listen(message: Any, sender: Any) -> None:
        found.append(message)
        handle(message, sender)

    handlers[kind] = listen
    return found


def just_stored() -> tuple[HandPlane, Any, bytes]:
    """An invocation whose end is stored, but whose queue has not been told so yet."""
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    plane.store.hold = True
    worker.finish(id, 42)
    plane.store.hold = False
    plane.store.release()
    assert id in plane.head.spaces["default"].live
    return plane, client, id


@pytest.mark.parametrize(
    ("ask", "answers"),
    [
        (lambda client, id: client.ask(m.Wait, id), lambda said: said.state == "succeeded"),
        (lambda client, id: client.ask(m.Get, id), lambda said: said.rows[0][0].state == "succeeded"),
        (lambda client, id: client.ask(m.Why, id), lambda said: "succeeded" in str(said.value)),
        (lambda client, id: client.kill(id), lambda said: said.kind == "Conflict"),
        (lambda client, id: client.ask(m.Retry, id, b"n" * 16), lambda said: said.id == b"n" * 16),
        (lambda client, id: client.follow(id), lambda said: said.next_seq == 0),
    ],
    ids=["wait", "get", "why", "kill", "retry", "follow"],
)
def test_a_question_that_meets_the_end_is_answered_by_the_archive(
    ask: Callable[[Any, bytes], int], answers: Callable[[Any], bool]
) -> None:
    plane, client, id = just_stored()
    req = ask(client, id)
    said = client.answer(req)
    assert id not in plane.head.spaces["default"].live
    assert answers(said), said


def test_a_row_that_ended_while_it_was_read_is_read_again() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = plane.new_id()
    plane.store.hold_reads = True
    req = client.ask(m.Wait, id)  # before there is such a thing
    plane.settle()
    client.submit(id=id)
    ((query, done),) = plane.store.held_reads
    assert isinstance(query, GetInvocation)
    plane.store.held_reads.clear()
    plane.store.hold_reads = False
    seen: list[Any] = []
    plane.store.inner.read(query, seen.append)
    assert seen[0].state == "running"
    worker.finish(id, 42)
    assert id not in plane.head.spaces["default"].live
    done(seen[0])  # the answer was on its way all the time
    assert client.answer(req).state == "succeeded"


def test_a_call_from_a_queue_that_is_removed_meanwhile() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client)
    worker = plane.worker(queues=("q",))
    plane.settle()
    takes = overheard(plane, "q", Take)
    _, submit = client.start(queue="q")
    removal = client.ask(m.RemoveQueue, "q", True)  # the queue calls the worker, the space unbinds it
    assert client.answer(removal).value["nowServingDefault"] == ["hand"]
    assert isinstance(client.answer(submit), m.Accepted)
    assert (takes, worker.started) == ([], [])
    after = client.submit()  # to the default queue, which it serves now
    assert worker.started == [after]


def test_a_worker_that_names_a_queue_twice_serves_it_once() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client)
    joins = overheard(plane, "q", Join)
    worker = plane.worker(queues=("q", "q"), slots=1)
    one, _ = client.submit(queue="q"), client.submit(queue="q")
    assert (len(joins), worker.started) == (1, [one])
    assert client.answer(client.ask(m.ShowQueue, "q")).value["members"] == 1


def test_a_worker_is_registered_once() -> None:
    plane = HandPlane()
    worker = plane.worker()
    with pytest.raises(Exception, match="is registered already"):
        plane.worker(worker=worker.worker.hello.worker)
    assert len(plane.head.spaces["default"].members) == 1


def test_a_body_given_back_after_the_head_gave_it_up() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(timeout=1.0)
    plane.advance(1.0 + BACKSTOP + 1.0)  # the worker does nothing about it
    assert client.state(id) == "timeout"
    worker.link.send(m.GaveBack(id, 1, "drained", begun=True))
    plane.settle()
    assert client.state(id) == "timeout"


def test_an_id_that_was_taken_leaves_the_others_of_its_commit_alone() -> None:
    plane = HandPlane()
    client, other, worker = plane.client(), plane.client(), plane.worker()
    id = client.submit()
    worker.finish(id, 42)
    worker.link.cut()
    plane.settle()
    plane.store.hold = True
    _, twice = client.start(id=id)
    fresh, submit = other.start()
    plane.settle()
    wait = client.ask(m.Wait, id)  # on what is queued in memory, and will never be stored
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    assert client.answer(twice).kind == "Conflict"
    assert client.answer(wait).state == "succeeded"  # as the one that is stored did
    assert other.answer(submit).id == fresh
    assert plane.stored(fresh) is not None
    assert client.result(id) == 42
    worker = plane.worker()
    plane.settle()
    assert worker.started == [fresh]


@pytest.mark.parametrize("together", [True, False])
def test_a_kill_of_an_id_that_was_taken_leaves_the_first_alone(together: bool) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    worker.finish(id, 42)
    worker.link.cut()
    plane.settle()
    plane.store.hold = True
    client.start()
    plane.settle()
    _, twice = client.start(id=id)
    plane.settle()
    if together:  # with its first row, which waits for the commit before it
        client.kill(id)
        plane.settle()
    plane.store.release(1)
    client.kill(id)  # of what will never be stored
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    assert client.answer(twice).kind == "Conflict"
    assert client.result(id) == 42
    assert str(plane.stored(id).state) == "succeeded"


def test_a_kill_of_an_id_that_was_taken_and_was_to_run_is_refused() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    worker.finish(id, 42)
    plane.store.hold = True
    _, twice = client.start(id=id)
    plane.settle()
    kill = client.kill(id)
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    assert client.answer(twice).kind == "Conflict"
    assert client.answer(kill).kind == "Conflict"
    assert (client.result(id), worker.started) == (42, [id])


def test_a_limit_that_is_lowered_below_what_waits_refuses_it() -> None:
    plane = HandPlane()
    client = plane.client()
    add(client, max_bytes=1000, on_full="block")
    client.submit(queue="q", args=b"x" * 900)
    _, waits = client.start(queue="q", args=b"x" * 500)
    _, small = client.start(queue="q", args=b"x" * 50)
    assert client.answer(waits) is None
    client.answer(client.ask(m.PatchQueue, "q", {"max_bytes": 400}))
    refused = client.answer(waits)
    assert (refused.kind, "holds at most 400" in refused.message) == ("QueueFull", True)
    assert client.answer(small) is None  # there is no room yet


def test_a_queue_with_a_provider_that_is_not_there() -> None:
    plane = HandPlane()
    client = plane.client()
    answer = client.answer(client.ask(m.AddQueue, "q", declare({"provider": "gpus"})))
    assert (answer.kind, "no provider 'gpus'" in answer.message) == ("NotFound", True)
    assert client.answer(client.ask(m.ShowQueue, "q")).kind == "NotFound"
    add(client)
    before = client.answer(client.ask(m.ShowQueue, "q")).value
    answer = client.answer(client.ask(m.PatchQueue, "q", {"provider": "gpus"}))
    assert (answer.kind, "no provider 'gpus'" in answer.message) == ("NotFound", True)
    assert client.answer(client.ask(m.ShowQueue, "q")).value == before


def test_a_stream_that_is_opened_after_the_plane_is_gone() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit()
    plane.crash()
    assert client.end(client.follow(id)).kind == "PlaneClosed"
