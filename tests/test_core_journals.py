"""Frames: their numbers, who may write them, and every way to read along. Topics too."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.ids import text_of
from lakeshore.core.values import pack_frames
from lakeshore.testing.hand import HandPlane


def stored_in(plane: HandPlane) -> Any:
    """The memory store behind a plane, to look into."""
    return plane.store.inner


def running(kind: str = "async_generator", **options):
    plane = HandPlane(**options)
    client, worker = plane.client(), plane.worker()
    id = client.submit(kind=kind, retries=3, retry_delay=0.0)
    return plane, client, worker, id


def raw_frames(worker, id: bytes, attempt: int, index: int, *values) -> None:
    """A report past the worker's own bookkeeping."""
    data = pack_frames([0.0] * len(values), list(values))
    worker.link.send(m.Frames(id, attempt, index, len(values), data))


def journal_of(plane, id) -> Any:
    return plane.head.spaces["default"].live[id].journal


# Who may write


def test_gaps_and_repeats_of_the_index_are_refused_and_not_acknowledged() -> None:
    plane, client, worker, id = running()
    stream = client.follow(id)
    worker.give(id, "a", "b")
    plane.settle()
    acks = [message for message in worker.received if isinstance(message, m.FramesAck)]
    raw_frames(worker, id, 1, 5, "gap")
    raw_frames(worker, id, 1, 0, "a", "b")
    raw_frames(worker, id, 1, 1, "b", "c")
    plane.settle()
    assert client.frames(stream) == [(0, 1, "a"), (1, 1, "b")]
    later = [message for message in worker.received if isinstance(message, m.FramesAck)][len(acks) :]
    assert [ack.index for ack in later] == [2, 2, 2]  # never beyond what is stored
    (member,) = plane.head.spaces["default"].members.values()
    assert member.stale == 3
    worker.give(id, "c")
    worker.finish(id)
    assert client.frames(stream) == [(0, 1, "a"), (1, 1, "b"), (2, 1, "c")]
    assert client.end(stream).next_seq == 3


@pytest.mark.parametrize("after", ["end", "retry", "backstop", "lost", "killed"])
def test_stale_reports_are_refused_counted_and_answered_with_stop(after: str) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(kind="async_generator", retries=1, retry_delay=0.0, timeout=10.0)
    stream = client.follow(id)
    worker.give(id, "a")
    plane.settle()
    holder, reporter, state = worker, worker, "succeeded"
    if after == "end":
        worker.finish(id, 1)
    elif after == "retry":  # the same worker, a later attempt
        worker.fail(id, ValueError())
        assert id in worker.jobs
        state = "running"
    elif after == "backstop":
        plane.advance(10.0)
        assert worker.cancelled == [(id, "timeout")]
        plane.advance(10.0)  # neither the body nor the worker has ended it
        state = "timeout"
        assert client.state(id) == state
    elif after == "lost":
        holder = plane.worker(name="other")
        worker.link.cut()
        plane.settle()
        assert id in holder.jobs
        reporter, state = plane.worker(name="liar"), "running"
        plane.settle()
    else:
        client.kill(id, running=True)
        plane.settle()
        worker.stop(id)
        state = "killed"
    frames = client.frames(stream)
    (member,) = [x for x in plane.head.spaces["default"].members.values() if x.hello is reporter.worker.hello]
    before = member.stale
    seen = len(reporter.received)
    raw_frames(reporter, id, 1, 1, "late")
    reporter.link.send(m.Ended(id, 1, "succeed", b"\xc0"))
    reporter.link.send(m.GaveBack(id, 1, "late"))
    reporter.link.send(m.Ended(id, 7, "succeed", b"\xc0"))
    plane.settle()
    assert client.state(id) == state
    assert client.frames(stream) == frames
    stops = [message for message in reporter.received[seen:] if isinstance(message, m.Stop)]
    expected = 4
    if after == "backstop":  # frames are refused by the queue, the end frees the slot
        assert not any(isinstance(message, m.EndedAck) for message in reporter.received[seen:])
        assert not member.grants
    assert {stop.why for stop in stops} == {"stale"}
    assert (len(stops), member.stale - before) == (expected, expected)
    if state == "running":
        holder.finish(id, 5)
        assert client.result(id) == 5


def test_the_backstop_gives_that_worker_nothing_until_its_slot_reports() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(timeout=3.0)
    wait = client.ask(m.Wait, id)
    next_one = client.submit()
    plane.advance(12.9)
    assert client.answers[wait] == []
    plane.advance(0.1)
    outcome = client.answer(wait)
    assert outcome.state == "timeout"
    assert "did not report" in outcome.reason
    assert client.state(next_one) == "queued"
    worker.stop(id)
    assert worker.started == [id, next_one]
    assert client.state(id) == "timeout"


# RESTART


def test_a_generator_that_fails_halfway_and_is_retried() -> None:
    plane, client, worker, id = running()
    follower = client.follow(id)
    stopped = client.follow(id)
    worker.give(id, "a1")
    plane.settle()
    client.close(stopped, id)
    worker.give(id, "a2")
    worker.fail(id, ValueError("halfway"))
    joined = client.follow(id)
    assert client.end(follower) is None  # the error of attempt 1 is not the end
    worker.give(id, "b1", "b2")
    worker.give(id, "b3")
    worker.finish(id, "two")
    view = [(0, 1, "a1"), (1, 1, "a2"), (2, 2, "b1"), (3, 2, "b2"), (4, 2, "b3")]
    assert client.frames(follower) == client.frames(joined) == view
    assert client.frames(client.follow(id, since=1)) == view[1:]
    end = client.end(follower)
    assert (end.next_seq, end.outcome.state, end.outcome.attempt) == (5, "succeeded", 2)
    assert end.outcome.result is None  # a stream does not carry the result
    assert client.result(id) == "two"


def test_late_items_of_a_killed_worker_are_refused() -> None:
    plane, client, worker, id = running()
    stream = client.follow(id)
    worker.give(id, "a1", "a2")
    plane.settle()
    worker.link.hold = True
    worker.give(id, "late")  # on the way when the link breaks
    worker.link.cut()
    second = plane.worker()
    plane.settle()
    second.give(id, "b1")
    raw_frames(second, id, 1, 2, "late")
    second.finish(id)
    assert client.frames(stream) == [(0, 1, "a1"), (1, 1, "a2"), (2, 2, "b1")]


def test_an_attempt_without_values_restarts_nothing() -> None:
    _, client, worker, id = running()
    stream = client.follow(id)
    worker.fail(id, ValueError())
    worker.fail(id, ValueError())
    worker.give(id, "x")
    worker.finish(id)
    assert client.frames(stream) == [(0, 3, "x")]


# Readers


def test_every_cursor_and_every_credit_sees_each_frame_once() -> None:
    plane, client, worker, id = running()
    rng = random.Random(5)
    value = 0
    sizes = [rng.randint(1, 9) for _ in range(200)]
    open_: list[tuple[int, int, int]] = []  # request, since, consumed
    for number, size in enumerate(sizes):
        worker.give(id, *range(value, value + size))
        value += size
        if number % 10 == 0:
            plane.settle()
            since = rng.randint(0, value)
            open_.append((client.follow(id, since, credit=rng.randint(1, 50)), since, 0))
        for n, (req, since, seen) in enumerate(open_):
            if rng.random() < 0.2:
                got = len(client.arrived(req))
                client.consume(req, got - seen)
                open_[n] = (req, since, got)
    worker.finish(id)
    late = [(client.follow(id, since, credit=7), since, 0) for since in (0, 1, 500, value - 1, value)]
    todo = open_ + late
    for _ in range(3000):
        plane.settle()
        if all(client.end(req) for req, _, _ in todo):
            break
        for n, (req, since, seen) in enumerate(todo):
            got = len(client.arrived(req))
            client.consume(req, max(1, got - seen))
            todo[n] = (req, since, got)
    for req, since, _ in todo:
        assert [(seq, v) for seq, _, v in client.arrived(req)] == [(n, n) for n in range(since, value)]
        assert client.end(req).next_seq == value


def test_credit_is_respected_to_the_chunk() -> None:
    plane, client, worker, id = running()
    stream = client.follow(id, credit=10)
    for n in range(100):
        worker.give(id, 2 * n, 2 * n + 1)
        plane.settle()
    assert len(client.frames(stream)) == 10
    client.consume(stream, 3)
    assert len(client.frames(stream)) == 14  # whole chunks: at most one beyond
    client.consume(stream, 1)
    assert len(client.frames(stream)) == 14
    client.consume(stream, 1)
    assert len(client.frames(stream)) == 16
    worker.finish(id)
    assert client.end(stream) is None  # never before what it has not read
    client.consume(stream, 1000)
    assert len(client.frames(stream)) == 200
    assert client.end(stream).next_seq == 200


def test_a_slow_reader_never_slows_the_writer_and_the_tail_stays_small() -> None:
    plane, client, worker, id = running()
    slow, fast = client.follow(id, credit=1), client.follow(id)
    stopped = client.follow(id, credit=0)
    for n in range(2000):
        worker.give(id, "x" * 1000, n)
        if n % 20 == 0:
            plane.settle()
            assert len(client.arrived(fast)) == 2 * (n + 1)
            journal = journal_of(plane, id)
            assert journal.tail_bytes <= 256 * 1024
            assert len(journal.tail) <= 64
    plane.settle()
    assert worker.acks[id] == 4000
    assert len(client.arrived(slow)) == 2
    assert len(client.arrived(stopped)) == 0
    worker.finish(id)
    assert client.end(slow) is None
    plane.store.hold_reads = True
    client.consume(slow, 1_000_000)
    plane.settle()
    reads = 0
    while plane.store.held_reads:
        query: Any = plane.store.held_reads[0][0]
        assert query.frames <= 1024
        reads += 1
        plane.store.release_reads()
        plane.settle()
    assert reads >= 3
    assert [v for _, _, v in client.frames(slow)][1::2] == list(range(2000))
    assert client.end(slow).next_seq == 4000


def test_a_late_reader_reads_the_store_and_joins_the_tail() -> None:
    plane, client, worker, id = running()
    for n in range(300):
        worker.give(id, n)
        plane.settle()
    reads = []
    plane.store.hold_reads = True
    stream = client.follow(id)
    plane.settle()
    worker.give(id, 300)  # while it is being fed
    plane.settle()
    while plane.store.held_reads:
        reads.append(plane.store.held_reads[0][0])
        plane.store.release_reads()
        plane.settle()
    worker.give(id, 301)
    plane.settle()
    assert not plane.store.held_reads  # the newest come from memory
    assert [v for _, _, v in client.frames(stream)] == list(range(302))
    assert 1 <= len(reads) <= 3


def test_drop_ends_a_stream() -> None:
    plane, client, worker, id = running()
    stream = client.follow(id)
    worker.give(id, 1)
    plane.settle()
    client.close(stream, id)
    worker.give(id, 2)
    worker.finish(id)
    plane.settle()
    assert client.arrived(stream) == [(0, 1, 1)]
    queue = plane.head.spaces["default"].queues["default"]
    assert queue.streams.open == {}


def test_a_reader_that_asks_during_the_terminal_commit_sees_all_frames_then_the_end() -> None:
    plane, client, worker, id = running()
    worker.give(id, "a")
    plane.settle()
    plane.store.hold = True
    worker.give(id, "b")
    plane.settle()
    worker.finish(id)
    asked = [client.follow(id, since=since) for since in (0, 1)]
    plane.settle()
    assert client.arrived(asked[0]) == [(0, 1, "a")]
    assert [client.end(req) for req in asked] == [None, None]
    plane.store.release(1)  # frame b
    plane.settle()
    asked.append(client.follow(id))
    plane.settle()
    assert [client.end(req) for req in asked] == [None] * 3
    plane.store.hold = False
    plane.store.release()  # the end
    middle = client.follow(id)  # the entry is about to leave memory
    plane.settle()
    for req, since in [*zip(asked, (0, 1, 0), strict=True), (middle, 0), (client.follow(id), 0)]:
        assert client.frames(req) == [(0, 1, "a"), (1, 1, "b")][since:]
        assert client.end(req).next_seq == 2


def test_a_request_passed_on_to_the_archive_keeps_its_credit_and_its_drop() -> None:
    plane, client, worker, id = running()
    for n in range(10):
        worker.give(id, n)
        plane.settle()
    plane.store.hold = True
    worker.finish(id)
    plane.store.hold = False
    plane.store.release()  # told to forget it, and the follow comes right behind
    stream, dropped = client.follow(id, credit=2), client.follow(id, credit=2)
    client.close(dropped, id)
    plane.settle()
    assert len(client.frames(stream)) == 2
    client.consume(stream, 100)
    assert [v for _, _, v in client.frames(stream)] == list(range(10))
    client.close(stream, id)
    plane.settle()
    space = plane.head.spaces["default"]
    assert space.archive.streams.open == space.queues["default"].streams.open == {}


def test_a_follow_dropped_while_the_archive_reads_opens_nothing() -> None:
    plane, client, worker, id = running()
    worker.give(id, 1)
    worker.finish(id)
    plane.store.hold_reads = True
    for steps in range(3):
        stream = client.follow(id)
        plane.settle()
        for _ in range(steps):
            plane.store.release_reads(1)
            plane.settle()
        client.close(stream, id)
        plane.settle()
        while plane.store.release_reads():
            plane.settle()
    plane.store.hold_reads = False
    plane.settle()
    assert plane.head.spaces["default"].archive.streams.open == {}


def test_an_invocation_followed_before_its_submit_is_handled() -> None:
    plane, client, worker, _ = running()
    id, _ = client.start()
    wait = client.ask(m.Wait, id)
    stream = client.follow(id, credit=1)
    plane.settle()
    worker.finish(next(iter(worker.jobs)))
    worker.give(id, 1)
    worker.give(id, 2)
    plane.settle()
    client.consume(stream, 1)
    assert client.frames(stream) == [(0, 1, 1), (1, 1, 2)]
    worker.finish(id)
    assert client.answer(wait).state == "succeeded"


def test_a_gap_names_the_first_frame_there_is() -> None:
    plane, client, worker, id = running(journal_bytes=2000)
    behind = client.follow(id, credit=1)
    for n in range(100):
        worker.give(id, n, "x" * 90)
        plane.settle()
    first = journal_of(plane, id).first_seq
    assert 100 < first < 200
    early = client.follow(id)
    assert client.end(early) == m.StreamGap(early, first)
    client.consume(behind, 1000)
    assert client.end(behind) == m.StreamGap(behind, first)
    assert len(client.arrived(behind)) == 2
    there = client.follow(id, since=first)
    assert [seq for seq, _, _ in client.frames(there)] == list(range(first, 200))
    beyond = client.follow(id, since=201)
    assert client.end(beyond) == m.StreamGap(beyond, 200)
    exact = client.follow(id, since=200)
    worker.finish(id)
    assert client.end(exact).next_seq == 200
    for since, first_there in ((0, first), (500, 200)):
        after = client.follow(id, since=since)
        assert client.end(after) == m.StreamGap(after, first_there)
    below = client.follow(id, since=-1)
    assert client.end(below) == m.StreamGap(below, first)


def test_the_stream_of_a_plain_body_is_empty_and_ends_with_it() -> None:
    _, client, worker, id = running("async")
    stream = client.follow(id)
    assert client.end(stream) is None
    worker.finish(id, 3)
    assert client.frames(stream) == []
    assert (client.end(stream).next_seq, client.end(stream).outcome.state) == (0, "succeeded")
    late = client.follow(id)
    assert client.end(late).next_seq == 0


@pytest.mark.parametrize("how", ["fail", "kill", "expire"])
def test_an_error_comes_after_every_frame_before_it(how: str) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(kind="generator", timeout=5.0)
    streams = [client.follow(id, credit=credit) for credit in (1, 1000)]
    for n in range(5):
        worker.give(id, n)
    if how == "fail":
        worker.fail(id, ValueError("no"))
    elif how == "kill":
        client.kill(id, running=True)
        plane.settle()
        worker.stop(id)
    else:
        plane.advance(5.0)
        worker.stop(id)
    streams.append(client.follow(id))
    state = {"fail": "failed", "kill": "killed", "expire": "timeout"}[how]
    for req in streams:
        client.consume(req, 100)
        assert [v for _, _, v in client.frames(req)] == list(range(5))
        assert client.end(req).outcome.state == state
        assert client.end(req).next_seq == 5
    if how == "fail":
        assert client.end(streams[0]).outcome.error.message == "no"


def test_the_worker_is_told_what_is_stored() -> None:
    plane, _client, worker, id = running()
    plane.store.hold = True
    for n in range(5):
        worker.give(id, n)
        plane.settle()
    assert worker.acks == {}
    plane.store.release(1)
    plane.settle()
    assert worker.acks[id] == 1
    plane.store.release(1)
    plane.settle()
    assert worker.acks[id] == 5
    assert worker.jobs[id].ahead == 0


def test_a_journal_goes_on_with_the_right_number_after_a_crash() -> None:
    plane, client, worker, id = running()
    worker.give(id, "a", "b")
    plane.settle()
    plane.store.hold = True
    worker.give(id, "never stored")
    plane.settle()
    plane.store.hold = False
    plane.crash()
    client, worker = plane.client(), plane.worker()
    plane.settle()
    stream = client.follow(id, since=1)
    worker.give(id, "c")
    worker.finish(id)
    assert client.frames(stream) == [(1, 1, "b"), (2, 2, "c")]
    assert client.end(stream).next_seq == 3
    plane.crash()
    client = plane.client()
    stream = client.follow(id)
    assert client.frames(stream) == [(0, 1, "a"), (1, 1, "b"), (2, 2, "c")]


# Topics


def test_two_publishers_never_share_a_number() -> None:
    plane = HandPlane()
    ann, bob = plane.client(), plane.client()
    reader = plane.client()
    early = reader.follow_topic("news")  # before the first post
    asked = []
    for n in range(100):
        who = (ann, bob)[n % 2]
        asked.append((who, who.post("news", n), n))
        if n % 7 == 0:
            plane.settle()
    seqs = [(who.answer(req).value, n) for who, req, n in asked]
    assert sorted(seq for seq, _ in seqs) == list(range(100))
    assert reader.frames(early) == [(seq, 0, n) for seq, n in sorted(seqs)]
    middle = reader.follow_topic("news", since=40)
    assert [seq for seq, _, _ in reader.frames(middle)] == list(range(40, 100))
    beyond = reader.follow_topic("news", since=101)
    assert reader.end(beyond) == m.StreamGap(beyond, 100)


def test_a_closed_topic_ends_for_all_and_takes_no_post() -> None:
    plane = HandPlane()
    ann, bob = plane.client(), plane.client()
    stream = bob.follow_topic("t")
    posts = [ann.post("t", n) for n in range(3)]
    close, late = bob.ask(m.CloseTopic, "t"), ann.post("t", "late")
    assert [ann.answer(req).value for req in posts] == [0, 1, 2]
    assert bob.answer(close) == m.Answer(close)
    assert ann.answer(late).kind == "Conflict"
    assert [v for _, _, v in bob.frames(stream)] == [0, 1, 2]
    assert bob.end(stream) == m.StreamEnd(stream, 3)
    again = bob.ask(m.CloseTopic, "t")
    assert bob.answer(again) == m.Answer(again)
    plane.crash()
    ann = plane.client()
    assert ann.answer(ann.post("t", 1)).kind == "Conflict"
    stream = ann.follow_topic("t", since=2)
    assert ann.frames(stream) == [(2, 0, 2)]
    assert ann.end(stream) == m.StreamEnd(stream, 3)
    rows = ann.answer(ann.ask(m.ListTopics)).value
    assert [(row["name"], row["frames"], row["closed"]) for row in rows] == [("t", 3, True)]


def test_a_topic_named_like_an_invocation_is_another_thing() -> None:
    _, client, worker, id = running()
    name = text_of(id)
    topic, stream = client.follow_topic(name), client.follow(id)
    client.answer(client.post(name, "post"))
    worker.give(id, "frame")
    worker.finish(id)
    client.answer(client.ask(m.CloseTopic, name))
    assert client.frames(topic) == [(0, 0, "post")]
    assert client.frames(stream) == [(0, 1, "frame")]
    assert client.end(topic).outcome is None
    assert client.end(stream).outcome.state == "succeeded"


def test_removing_a_topic_answers_everyone_and_forgets_its_frames() -> None:
    plane = HandPlane()
    client = plane.client()
    client.answer(client.post("t", "old"))
    stream = client.follow_topic("t")
    plane.settle()
    pending = client.post("t", "lost")
    remove = client.ask(m.RemoveTopic, "t")
    fresh = client.post("t", "new")  # the same name in the same batch
    assert client.answer(pending).kind == "Conflict"
    assert client.answer(remove) == m.Answer(remove)
    assert client.answer(fresh).value == 0
    assert client.frames(stream) == [(0, 0, "old")]
    assert client.end(stream) == m.StreamEnd(stream, 1)
    unknown = client.ask(m.RemoveTopic, "none")
    assert client.answer(unknown).kind == "NotFound"
    inner: Any = plane.store.inner
    assert (len(inner._topics), len(inner._chunks)) == (1, 1)
    plane.crash()
    client = plane.client()
    stream = client.follow_topic("t")
    assert client.frames(stream) == [(0, 0, "new")]


def test_posts_of_one_turn_share_chunks() -> None:
    plane = HandPlane()
    client = plane.client()
    asked = [client.post("t", n) for n in range(200)]
    assert [client.answer(req).value for req in asked] == list(range(200))
    inner: Any = plane.store.inner
    (chunks,) = inner._chunks.values()
    assert [chunk.count for chunk in chunks] == [64, 64, 64, 8]
    plane.crash()
    client = plane.client()
    assert client.answer(client.post("t", 200)).value == 200
    assert [v for _, _, v in client.frames(client.follow_topic("t"))] == list(range(201))


# What is bounded


def test_credit_counts_bytes_as_well_as_frames() -> None:
    plane, client, worker, id = running()
    live = client.ask(m.Follow, id, 0, 2048, 10_000)
    for n in range(100):
        worker.give(id, "x" * 3000, n)
        plane.settle()
    behind = client.ask(m.Follow, id, 0, 2048, 10_000)
    tiny = client.ask(m.Follow, id, 0, 2048, 1)
    plane.settle()
    assert [len(client.answers[req]) for req in (live, behind, tiny)] == [4, 4, 1]  # at most one beyond
    for req in (live, behind):
        for _ in range(2):
            chunk = client.answers[req][0]
            client.client.consumed(req, chunk.count, len(chunk.data))
            plane.settle()
        assert len(client.answers[req]) <= 6
        read = 2
        while read < len(client.answers[req]):
            chunk = client.answers[req][read]
            read += 1
            client.client.consumed(req, chunk.count, len(chunk.data))
            plane.settle()
            assert sum(len(c.data) for c in client.answers[req][read:]) < 14_000
        assert [value for _, _, value in client.frames(req)][1::2] == list(range(100))


def stored_bytes(plane, owner: bytes) -> int:
    return sum(len(row.data) for row in stored_in(plane)._chunks.get(("default", owner), ()))


def test_the_limit_of_a_journal_counts_what_earlier_processes_wrote() -> None:
    plane = HandPlane(journal_bytes=10_000)
    client = plane.client()
    id = client.submit(kind="async_generator", retries=1000)
    for _ in range(3):
        client, worker = plane.client(), plane.worker()
        plane.settle()
        for _ in range(12):
            client.answer(client.post("t", "x" * 700))
            worker.give(id, "x" * 700)
            plane.settle()
            topic = plane.head.spaces["default"].topics.topics["t"]
            assert stored_bytes(plane, topic.id) <= 10_000
            assert stored_bytes(plane, id) <= 10_000
        worker.fail(id, ValueError())
        plane.advance(400)
        plane.crash()
    client = plane.client()
    for stream in (client.follow_topic("t"), client.follow(id)):
        assert client.end(stream).first > 20
    again = client.follow_topic("t", client.answers[stream - 1][-1].first)
    assert client.frames(again)[-1][0] == 35


def test_many_small_chunks_are_trimmed_without_a_note_of_each() -> None:
    plane, _, worker, id = running(journal_bytes=20_000)
    for n in range(3000):
        worker.give(id, n)
        if n % 50 == 0:
            plane.settle()
    plane.settle()
    assert stored_bytes(plane, id) <= 20_000
    assert len(journal_of(plane, id)._marks) <= 2 * 64 + 2


def test_what_nobody_reads_is_not_kept_in_memory() -> None:
    plane, client, worker, id = running()
    worker.give(id, 1)
    plane.settle()
    assert not journal_of(plane, id).tail
    stream = client.follow(id)
    worker.give(id, 2)
    plane.settle()
    assert journal_of(plane, id).tail
    other = client.follow(id)
    client.close(stream, id)
    worker.give(id, 3)
    assert [value for _, _, value in client.frames(other)] == [1, 2, 3]
    client.close(other, id)
    plane.settle()
    assert not journal_of(plane, id).tail
    assert journal_of(plane, id).tail_bytes == 0


# Topics that are only read, and old ones


def topics_of(plane) -> Any:
    return plane.head.spaces["default"].topics


def test_reading_a_topic_that_is_not_there_stores_nothing_and_waits() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    batches = []
    plane.store.watch = batches.append
    one, two = client.follow_topic("typo"), client.follow_topic("typo")
    beyond = client.follow_topic("other", since=5)
    assert client.end(beyond).first == 0
    assert client.frames(one) == []
    assert client.answer(client.ask(m.ListTopics)).value == []
    assert client.answer(client.ask(m.RemoveTopic, "typo")).kind == "NotFound"
    assert batches == []
    client.close(one)
    plane.settle()
    assert list(topics_of(plane).topics) == ["typo"]
    client.close(two)
    client.close(beyond)
    plane.settle()
    assert topics_of(plane).topics == {} == topics_of(plane)._unstored
    three = client.follow_topic("typo")
    plane.settle()
    assert client.answer(client.post("typo", 1)).value == 0
    assert [value for _, _, value in client.frames(three)] == [1]
    client.close(three)
    plane.settle()
    plane.crash()
    client = plane.client()
    assert [topic["name"] for topic in client.answer(client.ask(m.ListTopics)).value] == ["typo"]


def test_closing_a_topic_that_is_not_there_ends_its_readers() -> None:
    plane = HandPlane()
    client = plane.client()
    stream = client.follow_topic("t")
    client.answer(client.ask(m.CloseTopic, "t"))
    assert client.end(stream) == m.StreamEnd(stream, 0)
    plane.crash()
    client = plane.client()
    assert client.end(client.follow_topic("t")).next_seq == 0


@pytest.mark.parametrize("crash", [False, True])
def test_topics_are_kept_for_the_retention(crash: bool) -> None:
    plane = HandPlane(retention=6400.0)
    client = plane.client()
    for hour in range(4):
        for _ in range(3):
            client.answer(client.post("open", hour))
        if hour == 0:
            client.answer(client.post("shut", 1))
            client.answer(client.ask(m.CloseTopic, "shut"))
            client.answer(client.ask(m.CloseTopic, "empty"))
        if crash:
            plane.crash()
            client = plane.client()
        plane.advance(3600.0 if hour < 3 else 0.0)
        names = {topic["name"] for topic in client.answer(client.ask(m.ListTopics)).value}
        assert names == ({"open", "shut", "empty"} if hour == 0 else {"open"})
    assert client.end(client.follow_topic("open")).first == 6
    assert [value for _, _, value in client.frames(client.follow_topic("open", 6))] == [2] * 3 + [3] * 3
    (owner,) = [owner for _, owner in stored_in(plane)._chunks]
    assert min(row.seq for row in stored_in(plane)._chunks["default", owner]) == 6
    plane.advance(7000.0)
    assert stored_in(plane)._chunks == {}
    assert client.answer(client.post("open", 9)).value == 12  # numbers go on


def test_an_old_topic_goes_in_small_steps_and_is_noted_in_few_words() -> None:
    plane = HandPlane(retention=1000.0)
    client = plane.client()
    for _ in range(120):
        for n in range(100):
            client.post("t", n)
        plane.advance(0.7)
    topic = topics_of(plane).topics["t"]
    assert len(topic.marks) <= 34
    trims = []
    plane.store.watch = lambda batch: trims.append([trim.below for trim in batch.trims])
    plane.advance(1100.0)
    assert stored_in(plane)._chunks == {}
    below = [0, *sorted(trim for some in trims for trim in some)]
    assert all(len(some) <= 1 for some in trims)
    assert max(b - a for a, b in pairwise(below)) <= 4096
