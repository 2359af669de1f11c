"""Nothing leaves before its commit, and what commits do when they fail."""

from __future__ import annotations

import pytest

from lakeshore.core import messages as m
from lakeshore.core.rows import Batch
from lakeshore.core.values import unpack
from lakeshore.testing.hand import HandPlane


def plane_with_worker(**hello):
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(**hello)
    plane.settle()
    return plane, client, worker


# Each case: what is done before the store is held, what is done after, and what must not arrive yet.


def test_accepted_and_grant_wait_for_the_commit() -> None:
    plane, client, worker = plane_with_worker()
    plane.store.hold = True
    id, req = client.start()
    assert client.answer(req) is None
    assert not worker.received
    assert plane.stored(id) is None
    plane.store.release()
    assert client.answer(req) == m.Accepted(req, id)
    assert [message.id for message in worker.received] == [id]
    assert plane.stored(id).state == "running"


def test_an_accepted_submit_without_a_worker_waits_too() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    plane.store.hold = True
    id, req = client.start()
    assert client.answer(req) is None
    plane.store.release()
    assert client.answer(req).id == id
    assert plane.stored(id).state == "queued"


def test_a_result_waits_for_the_commit() -> None:
    plane, client, worker = plane_with_worker()
    id = client.submit()
    wait = client.ask(m.Wait, id)
    plane.settle()
    plane.store.hold = True
    worker.finish(id, 42)
    late = client.ask(m.Wait, id)  # asks while the end is under way
    get = client.ask(m.Get, id)
    assert [client.answer(req) for req in (wait, late, get)] == [None] * 3
    assert not any(isinstance(message, m.EndedAck) for message in worker.received)
    plane.store.release()
    plane.settle()
    plane.store.release()
    assert unpack(client.answer(wait).result) == 42
    assert unpack(client.answer(late).result) == 42
    assert client.answer(get).rows[0][0].state == "succeeded"
    assert worker.received[-1] == m.EndedAck(id, 1, "succeeded")


def test_frames_and_their_end_wait_for_their_commits() -> None:
    plane, client, worker = plane_with_worker()
    id = client.submit(kind="async_generator")
    stream = client.follow(id)
    plane.settle()
    plane.store.hold = True
    worker.give(id, "a", "b")
    assert client.frames(stream) == []
    assert worker.acks == {}
    worker.finish(id)  # gathers while the frames are in flight
    plane.store.release(1)
    assert client.frames(stream) == [(0, 1, "a"), (1, 1, "b")]
    assert client.end(stream) is None
    plane.store.release()
    end = client.end(stream)
    assert (end.next_seq, end.outcome.state) == (2, "succeeded")


@pytest.mark.parametrize("running", [False, True])
def test_a_kill_is_answered_after_its_commit(running: bool) -> None:
    plane = HandPlane()
    client = plane.client()
    worker = plane.worker() if running else None
    id = client.submit()
    plane.store.hold = True
    kill = client.kill(id, running=running)
    assert client.answer(kill) is None
    assert plane.stored(id).state == ("running" if running else "queued")
    if worker is not None:
        assert not worker.cancelled  # the body is told only once `killing` is stored
        plane.store.release(1)
        plane.settle()
        assert plane.stored(id).record.killing
        assert worker.cancelled == [(id, "kill")]
        worker.stop(id)
        assert client.answer(kill) is None
    plane.store.release()
    assert client.answer(kill) == m.Answer(kill)
    assert plane.stored(id).state == "killed"


def test_answers_that_only_read_wait_for_what_they_reveal() -> None:
    plane = HandPlane()
    client, other = plane.client(), plane.client()
    plane.settle()
    plane.store.hold = True
    id, _ = client.start(key="k", digest=b"d")
    plane.settle()
    reads = [
        other.ask(m.Get, id),
        other.ask(m.Why, id),
        other.kill(id, running=False),
        other.follow(id, since=7),  # beyond the end: a Gap, which says that the invocation is there
        other.start(key="k", digest=b"d")[1],
        other.ask(m.AddQueue, "q", {}),
        other.ask(m.QueueStats, "default"),
    ]
    plane.settle()
    assert [other.answers[req] for req in reads] == [[]] * len(reads)
    plane.store.release()
    plane.settle()
    plane.store.release()
    plane.settle()
    assert [len(other.answers[req]) for req in reads] == [1] * len(reads)
    assert other.answers[reads[3]] == [m.StreamGap(reads[3], 0)]
    assert other.answers[reads[4]] == [m.Accepted(reads[4], id, True, True)]


def test_posts_and_topic_frames_wait_for_the_commit() -> None:
    plane = HandPlane()
    client = plane.client()
    stream = client.follow_topic("t")
    plane.settle()
    plane.store.hold = True
    post = client.post("t", "x")
    assert client.answer(post) is None
    assert client.frames(stream) == []
    plane.store.release()
    assert client.answer(post).value == 0
    assert client.frames(stream) == [(0, 0, "x")]
    assert client.end(stream) is None
    close = client.ask(m.CloseTopic, "t")
    assert client.answer(close) is None
    assert client.end(stream) is None
    plane.store.release()
    assert client.answer(close) == m.Answer(close)
    assert client.end(stream) == m.StreamEnd(stream, 1)


def test_quiet_waits_for_what_came_before() -> None:
    plane, client, worker = plane_with_worker(quiet=True)
    id = client.submit()
    before = worker.quiet
    plane.store.hold = True
    worker.finish(id)
    assert worker.quiet == before
    plane.store.release()
    plane.settle()
    assert worker.quiet > before


# How much is written


def test_a_submit_that_finds_room_is_one_insert_row_already_running() -> None:
    plane, client, _ = plane_with_worker()
    batches: list[Batch] = []
    plane.store.watch = batches.append
    id = client.submit()
    assert len(batches) == 1
    (batch,) = batches
    assert [row.state for row in batch.inserts.values()] == ["running"]
    assert (len(batch.updates), batch.size) == (0, 1)
    assert batch.inserts["default", id].record.attempt == 1


def test_several_transitions_in_one_batch_are_one_row() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    plane.store.hold = True
    first, _ = client.start()
    plane.settle()  # the first commit is in flight; all that follows gathers
    second, _ = client.start()
    kill = client.kill(second)
    worker = plane.worker()
    plane.settle()
    batches: list[Batch] = []
    plane.store.watch = batches.append
    plane.store.release(1)
    plane.settle()
    plane.store.release(1)
    plane.settle()
    assert list(batches[0].inserts) == [("default", first)]
    assert [(key[1], row.state) for key, row in batches[1].inserts.items()] == [(second, "killed")]
    assert [(key[1], row.state) for key, row in batches[1].updates.items()] == [(first, "running")]
    assert client.answer(kill) == m.Answer(kill)
    assert worker.started == [first]


def test_one_commit_is_in_flight_while_the_next_gathers() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    plane.store.hold = True
    requests = []
    for _ in range(5):
        requests.append(client.start()[1])
        plane.settle()
    assert len(plane.store.held) == 1
    assert plane.store.release(1) == 1
    plane.settle()
    assert [bool(client.answers[req]) for req in requests] == [True, False, False, False, False]
    assert len(plane.store.held) == 1
    assert len(plane.store.held[0][0].inserts) == 4
    plane.store.release(1)
    assert all(client.answer(req) for req in requests)
    assert not plane.store.held


# When the store fails


def test_a_failed_commit_is_retried_and_new_submits_are_refused_meanwhile() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    plane.store.refuse = OSError("disk full")
    early, req = client.start()
    plane.settle()
    assert client.answers[req] == []
    later, refused = client.start()
    post = client.post("t", 1)
    known = client.ask(m.Get, early)
    plane.settle()
    assert (client.answers[refused][0].kind, client.answers[post][0].kind) == ("StoreFailed",) * 2
    assert "disk full" in client.answers[refused][0].message
    assert client.answers[known] == []  # nothing is known of it before it is stored
    tries: list[float] = []
    commit = plane.store._commit
    plane.store._commit = lambda *a: (tries.append(plane.clock.now), commit(*a))  # type: ignore[method-assign]
    plane.advance(20)
    gaps = [round(b - a, 6) for a, b in zip([0.0, *tries], tries, strict=False)]
    assert gaps == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    plane.store.refuse = None
    plane.advance(5)
    assert client.answers[req] == [m.Accepted(req, early)]
    assert len(client.answers[known]) == 1
    assert plane.stored(early) is not None
    assert plane.stored(later) is None
    again = client.submit()
    assert plane.stored(again) is not None


def test_recovery_tells_everyone_in_order() -> None:
    plane, client, worker = plane_with_worker(slots=8)
    seen: list[object] = []
    ids = [client.submit(kind="generator") for _ in range(3)]
    waits = [client.ask(m.Wait, id) for id in ids]
    plane.settle()
    plane.store.failures.extend([OSError("a"), OSError("b")])
    plane.watch = seen.append
    worker.give(ids[0], 1)
    plane.settle()
    for id in ids:
        worker.finish(id, 1)
    assert seen == []
    plane.advance(1)
    outcomes = [message.req for message in seen if isinstance(message, m.Outcome)]
    assert outcomes == waits
    kinds = [type(message) for message in seen]
    assert kinds.index(m.FramesAck) < kinds.index(m.EndedAck)


def test_a_read_that_fails_is_an_answer() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    plane.store.hold_reads = True
    keyed, wait = client.start(key="k")[1], client.ask(m.Wait, plane.new_id())
    plane.settle()
    while plane.store.held_reads:
        plane.store.held_reads.popleft()[1](OSError("bad sector"))
    assert client.answer(keyed).kind == "StoreFailed"
    assert client.answer(wait).kind == "StoreFailed"
    plane.store.hold_reads = False
    assert client.submit(key="k")


def test_an_acknowledgement_is_lost_and_the_head_with_it() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    plane.store.hold = True
    id, req = client.start(key="k", digest=b"d")
    plane.settle()
    plane.store.lose_answer()
    plane.store.hold = False
    plane.crash()
    assert client.answers[req][0].kind == "PlaneClosed"
    client = plane.client()
    assert client.state(id) == "queued"
    again, _ = client.start(key="k", digest=b"d")
    plane.settle()
    assert again != id
    assert client.answer(client.ask(m.Get, again)).kind == "NotFound"
    resend = client.ask(m.Submit, id, "default", client.record(id) and _call(client, id), again=True)
    assert client.answer(resend) == m.Accepted(resend, id)
    worker = plane.worker(slots=4)
    plane.settle()
    assert worker.started == [id]


def _call(client, id):
    return client.answer(client.ask(m.Get, id)).rows[0][0].call


def test_a_resent_submit_that_was_not_stored_is_admitted_and_one_that_ended_is_answered() -> None:
    plane, client, worker = plane_with_worker()
    done = client.submit()
    call = _call(client, done)
    worker.finish(done)
    resend = client.ask(m.Submit, done, "default", call, again=True)
    assert client.answer(resend) == m.Accepted(resend, done)
    assert worker.started == [done]
    fresh = plane.new_id()
    resend = client.ask(m.Submit, fresh, "default", call, again=True)
    assert client.answer(resend) == m.Accepted(resend, fresh)
    assert client.state(fresh) == "running"


def test_an_id_that_is_taken_is_a_conflict_and_leaves_the_first_alone() -> None:
    plane, client, worker = plane_with_worker(slots=2)
    id = client.submit("first", args=(1,))
    _, twice = client.start("second", id=id)
    assert client.answer(twice).kind == "Conflict"  # known from memory
    worker.finish(id, "done")
    _, third = client.start("third", id=id, args=(3,))
    assert client.answer(third).kind == "Conflict"  # known from the writer
    assert client.result(id) == "done"
    assert plane.stored(id).call.options.function.name == "first"
    assert worker.started == [id]  # its grant never left
    plane.settle()
    (member,) = plane.head.spaces["default"].members.values()
    assert not member.grants
    assert client.submit() in worker.jobs  # the slot is free again


# A bug


def test_a_handler_that_raises_ends_the_plane() -> None:
    plane, client, worker = plane_with_worker()
    other = plane.client()
    id = client.submit()
    wait = other.ask(m.Wait, id)
    plane.settle()
    queue = plane.head.spaces["default"].queues["default"]

    def broken(message: object, sender: object) -> None:
        raise ZeroDivisionError("a bug")

    queue.handlers[m.Why] = broken
    stored, commits = plane.stored(id), plane.store.commits
    accepted = other.start()[1]
    why = client.ask(m.Why, id)
    received = len(worker.received)
    with pytest.raises(ZeroDivisionError):
        plane.settle()
    assert client.answers[why][0].kind == "InternalError"
    assert "ZeroDivisionError" in client.answers[why][0].message
    for req in (wait, accepted):
        assert other.answers[req][-1].kind == "PlaneFailed"
        assert "a bug" in other.answers[req][-1].message
    assert len(client.answers[why]) == 1
    assert isinstance(plane.failure, ZeroDivisionError)
    assert (plane.store.commits, len(worker.received), plane.stored(id)) == (commits, received, stored)
    plane.settle()  # an ended plane does nothing more
    plane.advance(100)
    assert plane.store.commits == commits
    late = other.ask(m.Get, id)
    assert other.answers[late][0].kind == "PlaneFailed"
    plane.crash()
    assert plane.client().state(id) == "queued"


def test_a_commit_that_returns_after_the_end_tells_nobody() -> None:
    plane, client, _worker = plane_with_worker()
    plane.store.hold = True
    id, req = client.start()
    plane.settle()
    plane.engine.fail(ZeroDivisionError("a bug"))
    plane.store.release()
    with pytest.raises(ZeroDivisionError):
        plane.settle()
    assert [answer.kind for answer in client.answers[req]] == ["PlaneFailed"]
    plane.crash()
    plane.store.hold = False
    assert plane.client().state(id) == "queued"  # stored all the same, and lost with its worker


@pytest.mark.parametrize("hold", [False, True])
def test_who_waits_for_an_id_that_was_taken_is_told_at_once(hold: bool) -> None:
    plane = HandPlane()
    first, other, worker = plane.client(), plane.client(), plane.worker()
    taken = first.submit()
    worker.finish(taken)
    worker.worker.leave()
    plane.settle()
    plane.store.hold = hold
    submitted = first.start(id=taken)[1]
    if hold:
        plane.engine.pump()
    waiting = other.ask(m.Wait, taken)
    plane.engine.pump()
    plane.store.release()  # nothing else happens
    plane.engine.pump()
    assert [type(answer) for answer in first.answers[submitted]] == [m.Refusal]
    assert [answer.state for answer in other.answers[waiting]] == ["succeeded"]  # of the one that has the id


def test_who_kills_what_was_taken_is_told_at_once() -> None:
    plane = HandPlane()
    first, other, worker = plane.client(), plane.client(), plane.worker()
    taken = first.submit()
    worker.finish(taken)
    plane.store.hold = True
    first.start(id=taken)
    plane.engine.pump()
    killed = other.ask(m.Kill, taken, running=True)
    plane.engine.pump()
    plane.store.release()  # and nothing else happens
    assert [type(answer) for answer in other.answers[killed]] == [m.Refusal]
