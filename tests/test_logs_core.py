"""Logs and progress between a worker, its head and whoever reads: by hand."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.logbook import ROOM, unpack_lines
from lakeshore.core.rows import GetExtent, log_of
from lakeshore.testing.hand import HandPlane, HandWorker


def running(plane: HandPlane | None = None, **hello: Any) -> tuple[HandPlane, Any, HandWorker, bytes]:
    plane = plane or HandPlane()
    client, worker = plane.client(), plane.worker(**hello)
    return plane, client, worker, client.submit(retries=3, retry_delay=0.0)


SOON = 0.02  # seconds in which whatever was said has left


def follow(client: Any, id: bytes, since: int = 0, *, on: bool = False, credit: int = 10_000) -> int:
    return client.ask(m.FollowLogs, id, since, credit, 1 << 30, on)


def said(client: Any, req: int, since: int = 0) -> list[str]:
    """The lines that have come, each with the attempt that said it."""
    client.plane.advance(SOON)
    chunks = [each for each in client.answers[req] if isinstance(each, m.Chunk)]
    return [
        f"{chunk.attempt}:{line[3]}"
        for chunk in chunks
        for seq, line in enumerate(unpack_lines(chunk.data), chunk.seq)
        if seq >= since
    ]


def logs(client: Any, id: bytes, since: int = 0) -> list[str]:
    """What is stored now."""
    req = follow(client, id, since)
    found = said(client, req, since)
    assert isinstance(client.answers[req][-1], m.StreamEnd), client.answers[req][-1]
    return found


def used(plane: HandPlane) -> int:
    inner: Any = plane.store.inner
    return inner.used


def extent(plane: HandPlane, id: bytes) -> tuple[int, int, int]:
    found: list[Any] = []
    plane.store.inner.read(GetExtent("default", log_of(id)), found.append)
    return found[0]


def test_what_is_said_can_be_read_while_the_body_runs_and_afterwards() -> None:
    _, client, worker, id = running()
    assert logs(client, id) == []
    worker.say(id, "one", "two\nthree")
    client.plane.advance(SOON)
    assert logs(client, id) == ["1:one", "1:two", "1:three"]
    assert logs(client, id, since=2) == ["1:three"]
    worker.say(id, "four")
    worker.finish(id)
    assert client.state(id) == "succeeded"
    assert logs(client, id) == ["1:one", "1:two", "1:three", "1:four"]
    assert client.record(id).lines == 4


def test_a_follower_reads_along_until_the_end_of_the_invocation() -> None:
    _, client, worker, id = running()
    req = follow(client, id, on=True)
    assert said(client, req) == []
    worker.say(id, "one")
    assert said(client, req) == ["1:one"]
    worker.fail(id, ValueError("no"))
    worker.say(id, "two")
    assert said(client, req) == ["1:one", "2:two"]
    worker.finish(id)
    end = client.answers[req][-1]
    assert (type(end), end.next_seq, end.outcome) == (m.StreamEnd, 2, None)


def test_who_follows_a_job_that_never_says_anything_is_told_of_its_end() -> None:
    _, client, worker, id = running()
    req = follow(client, id, on=True)
    worker.finish(id)
    assert isinstance(client.answer(req), m.StreamEnd)
    assert logs(client, id) == []


def test_each_line_waits_for_its_commit_and_none_is_later_than_the_end() -> None:
    plane, client, worker, id = running()
    plane.advance(SOON)
    plane.store.hold = True
    worker.say(id, "one")
    plane.advance(SOON)
    assert extent(plane, id) == (0, 0, 0)
    assert not any(isinstance(each, m.LoggedAck) for each in worker.received)
    worker.say(id, "last")
    wait = client.ask(m.Wait, id)
    worker.finish(id)
    assert client.answer(wait) is None
    plane.store.hold = False
    plane.store.release()
    assert client.answer(wait).state == "succeeded"
    assert extent(plane, id) == (0, 2, 1)


def test_lines_of_an_attempt_that_is_over_are_refused() -> None:
    plane, client, worker, id = running()
    worker.say(id, "one")
    worker.fail(id, ValueError("no"))
    late = m.Logged(id, 1, 1, 1, b"\x01")
    worker.link.send(late)
    worker.link.send(m.Progressed(id, 1, m.Progress(1, 2, 0.0)))
    plane.advance(SOON)
    stops = [each for each in worker.received if isinstance(each, m.Stop)]
    assert [(each.attempt, each.why) for each in stops] == [(1, "stale")] * 2
    assert logs(client, id) == ["1:one"]
    assert client.record(id).progress is None


def test_what_a_body_leaves_behind_says_nothing_any_more() -> None:
    plane, client, worker, id = running()
    first = worker.jobs[id].running
    worker.say(id, "one")
    lines = first.notes
    worker.fail(id, ValueError("no"))
    silent = worker.jobs[id].running
    worker.finish(id)
    for running_ in (first, silent):
        running_.notes.line(running_, "log", "info", "late")
        running_.notes.progress(running_, 1, None, "")
    lines.line(first, "log", "info", "late")
    lines.write(first, "stdout", "late\n")
    lines.progress(first, 1, None, "")
    lines.forward(first, 1, b"\xdd\0\0\0\1\x01")
    plane.advance(SOON)
    assert logs(client, id) == ["1:one"]
    silent.notes = worker.worker.notes  # it has just found out where to, as its body ended
    silent.notes.line(silent, "log", "info", "late")
    plane.advance(SOON)
    assert logs(client, id) == ["1:one"]
    assert not any(isinstance(each, m.Stop) for each in worker.received)


def test_unconfirmed_lines_are_said_again_on_a_new_link_and_stored_once() -> None:
    plane, client, worker, id = running(leased=True)
    worker.say(id, "one")
    plane.advance(SOON)
    worker.head_link.hold = True  # the acknowledgement of these is lost
    worker.say(id, "two")
    plane.advance(SOON)
    worker.cut()
    worker.say(id, "three")
    worker.come(id, 3, 4)
    plane.advance(SOON)
    worker.relink()
    plane.advance(SOON)
    assert logs(client, id) == ["1:one", "1:two", "1:three", "1:3/4 (75 %)"]
    assert client.record(id).progress.done == 3
    worker.finish(id)
    assert client.state(id) == "succeeded"
    assert not worker.worker.scribe.said


def test_lines_and_an_end_that_were_said_without_a_link_come_in_order() -> None:
    plane, client, worker, id = running(leased=True)
    worker.cut()
    worker.say(id, "one")
    worker.come(id, 1)
    worker.finish(id)
    worker.relink()
    plane.advance(SOON)
    assert client.state(id) == "succeeded"
    assert logs(client, id) == ["1:one", "1:1"]
    assert client.record(id).progress.done == 1


def test_after_a_crash_of_the_head_lines_go_on_and_none_is_doubled() -> None:
    plane, _, worker, id = running(leased=True)
    worker.say(id, "before")
    worker.fail(id, ValueError("no"))
    worker.say(id, "one")
    plane.advance(SOON)
    worker.head_link.hold = True
    worker.say(id, "two")
    plane.advance(SOON)
    plane.crash()
    client = plane.client()
    assert logs(client, id) == ["1:before", "2:one", "2:two"]
    worker.relink()
    worker.say(id, "three")
    plane.advance(SOON)
    worker.finish(id)
    assert logs(client, id) == ["1:before", "2:one", "2:two", "2:three"]


def test_lines_that_a_head_has_lost_are_missing_and_no_other() -> None:
    """A power cut may take back what was stored."""
    plane, client, worker, id = running(leased=True)
    worker.say(id, "one")
    plane.advance(SOON)
    worker.link.send(m.Logged(id, 1, 5, 1, b"\xdd\0\0\0\1\x94\x01\xa3log\xa4info\xa3six"))
    plane.advance(SOON)
    assert logs(client, id) == ["1:one", "1:six"]
    assert worker.received[-1] == m.LoggedAck(id, 1, 6)
    worker.link.send(m.Logged(id, 1, 4, 1, b"\x01"))
    plane.advance(SOON)
    assert logs(client, id) == ["1:one", "1:six"]


def test_what_is_not_stored_takes_a_bounded_room_and_the_last_lines_are_kept() -> None:
    plane, client, worker, id = running()
    plane.advance(SOON)
    plane.store.hold = True
    running_ = worker.jobs[id].running
    most = 0
    for number in range(50_000):
        worker.say(id, f"{number} " + "x" * 90)
        if number % 100 == 0:
            plane.advance(SOON)
            flight = sum(len(each.data) for each in worker.worker.scribe.unconfirmed())
            most = max(most, flight + running_.notes._draft.size)
    assert most < 3 * ROOM
    plane.store.hold = False
    plane.store.release()
    worker.finish(id)
    plane.advance(SOON)
    found = logs(client, id)
    numbers = [int(line[2:].split()[0]) for line in found if "dropped" not in line]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (0, 49_999)
    (gap,) = [line for line in found if "dropped" in line]
    assert int(gap[2:].split()[0].replace(",", "")) == 50_000 - len(numbers)


def test_a_log_is_capped_and_what_is_gone_is_a_gap() -> None:
    plane, client, worker, id = running(HandPlane(journal_bytes=64 * 10_000))
    for number in range(100):
        worker.say(id, f"{number} " + "x" * 990)
        plane.advance(SOON)
    first, end, _ = extent(plane, id)
    assert end == 100
    assert 85 <= first < 95
    gap = client.answer(follow(client, id))
    assert gap == m.StreamGap(gap.req, first)
    assert len(logs(client, id, since=first)) == end - first
    worker.finish(id)
    plane.advance(SOON)
    gap = client.answer(follow(client, id))
    assert gap == m.StreamGap(gap.req, first)
    assert len(logs(client, id, since=first)) == end - first


def test_a_slow_reader_gets_no_more_than_it_asked_for() -> None:
    _, client, worker, id = running()
    req = follow(client, id, on=True, credit=1)
    for text in ("one", "two", "three"):
        worker.say(id, text)
        client.plane.advance(SOON)
    assert said(client, req) == ["1:one"]
    client.client.consumed(req, 2, 0)
    assert said(client, req) == ["1:one", "1:two", "1:three"]
    req = follow(client, id, credit=1)
    assert said(client, req) == ["1:one"]
    client.client.consumed(req, 3, 0)
    assert len(said(client, req)) == 3
    assert isinstance(client.answers[req][-1], m.StreamEnd)


def test_a_log_goes_with_its_invocation() -> None:
    plane, client, worker, id = running()
    worker.say(id, "one")
    worker.finish(id)
    assert extent(plane, id) == (0, 1, 1)
    before = used(plane)
    assert client.answer(client.ask(m.PruneJobs, 0.0)).value == 0
    plane.advance(1.0)
    assert client.answer(client.ask(m.PruneJobs, 0.0)).value == 1
    assert extent(plane, id) == (0, 0, 0)
    assert used(plane) < before - 250
    assert client.answer(follow(client, id)).kind == "Expired"
    assert client.answer(follow(client, plane.new_id())).kind == "NotFound"


def test_progress_is_told_now_and_then_and_the_last_word_always() -> None:
    plane, client, worker, id = running()
    told: list[float] = []
    send = worker.link.send

    def watched(message: Any) -> None:
        if isinstance(message, m.Progressed):
            told.append(message.progress.done)
        send(message)

    worker.link.send = watched  # type: ignore[method-assign]
    for number in range(100):
        worker.come(id, number, 100)
        plane.advance(0.01)
    assert told[0] == 0
    assert 4 <= len(told) <= 7
    worker.come(id, 100, 100)
    worker.finish(id)
    assert told[-1] == 100
    record = client.record(id)
    assert (record.progress.done, record.progress.total) == (100, 100)
    assert logs(client, id) == ["1:0/100 (0 %)", "1:100/100 (100 %)"]


def test_progress_is_stored_every_few_seconds_and_belongs_to_its_attempt() -> None:
    plane, client, worker, id = running()
    worker.come(id, 1, 9)
    plane.advance(SOON)
    assert plane.stored(id).record.progress.done == 1
    rows = 0
    commit = plane.store.inner.commit

    def counted(batch: Any, done: Any) -> None:
        nonlocal rows
        rows += len(batch.updates)
        commit(batch, done)

    plane.store.inner.commit = counted  # type: ignore[method-assign]
    for number in range(2, 9):
        plane.advance(1.0)
        worker.come(id, number, 9)
        plane.advance(SOON)
    assert rows == 1
    assert client.record(id).progress.done == 8
    worker.fail(id, ValueError("no"))
    assert client.record(id).progress is None  # another attempt has begun
    worker.come(id, 2, 9)
    worker.finish(id)
    assert plane.stored(id).record.progress.done == 2


def test_a_crashed_head_knows_the_progress_that_was_stored_and_hears_the_rest() -> None:
    plane, _, worker, id = running(leased=True)
    worker.come(id, 1)
    plane.advance(SOON)
    plane.advance(1.0)
    worker.come(id, 2)
    plane.advance(SOON)
    plane.crash()
    client = plane.client()
    assert client.record(id).progress.done == 1
    worker.relink()
    plane.advance(SOON)
    assert client.record(id).progress.done == 2


def test_why_tells_how_far_it_is() -> None:
    _, client, worker, id = running()
    worker.come(id, 340, 1000)
    client.plane.advance(SOON)
    sentences = client.answer(client.ask(m.Why, id)).value
    assert any(sentence.startswith("its body has come to 340/1000 (34 %)") for sentence in sentences)
    worker.finish(id)
    assert any("340/1000" in sentence for sentence in client.answer(client.ask(m.Why, id)).value)


@pytest.mark.parametrize("how", ["kill", "timeout", "drain"])
def test_a_body_that_is_stopped_keeps_what_it_has_said(how: str) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(timeout=5.0)
    worker.say(id, "one")
    if how == "kill":
        client.kill(id, running=True)
    elif how == "timeout":
        plane.advance(5.0)
    else:
        worker.worker.interrupt()
    plane.advance(SOON)
    worker.say(id, "two")
    worker.stop(id)
    assert logs(client, id) == ["1:one", "1:two"]


def test_a_dropped_reader_costs_nothing() -> None:
    _, client, worker, id = running()
    req = follow(client, id, on=True)
    client.plane.advance(SOON)
    client.client.close_stream(req, id)
    worker.say(id, "one")
    client.plane.advance(SOON)
    log = client.plane.head.spaces["default"].live[id].log
    assert not log.followers
    assert not log.tail


def test_a_body_that_says_a_lot_wakes_the_loop_now_and_then() -> None:
    plane, client, worker, id = running()
    notes: Any = worker.worker.notes
    post, woken = notes.post, 0

    def counted(call: Any) -> None:
        nonlocal woken
        woken += 1
        post(call)

    notes.post = counted
    for _ in range(100):
        worker.say(id, "x")
        worker.come(id, 1)
    assert woken == 1
    for _ in range(100):
        worker.say(id, "x")
        plane.settle()
    assert woken == 1
    plane.advance(1.0)
    assert len(logs(client, id)) == 201  # one of them of progress
    worker.say(id, "later")
    worker.say(id, "later")
    assert woken == 2


def test_lines_of_a_body_in_another_process_go_on_in_its_name() -> None:
    """As a child's worker would send them to its parent."""
    plane, client, worker, id = running()
    other, _, child, inner = running(HandPlane(seed=2))
    child.say(inner, "from", "a child")
    sent = []
    send = child.worker.link.send
    child.worker.link.send = lambda message: (sent.append(message), send(message))  # type: ignore[method-assign]
    other.advance(SOON)
    running_ = worker.jobs[id].running
    worker.say(id, "parent")
    for message in sent:
        assert isinstance(message, m.Logged)
        running_.notes.forward(running_, message.count, message.data)
    plane.advance(SOON)
    assert logs(client, id) == ["1:parent", "1:from", "1:a child"]
