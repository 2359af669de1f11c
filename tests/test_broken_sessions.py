"""What a broken link left behind: asked twice, dropped meanwhile, counted by one end alone."""

from __future__ import annotations

from typing import Any

from test_guests import Outside

from lakeshore.core import messages as m
from lakeshore.core.credit import Limits
from lakeshore.core.errors import StoreLocked
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandPlane

SMALL = Limits(requests=2, bytes=1 << 20, waits=2)


def released(outside: Outside) -> None:
    outside.run()
    outside.plane.store.hold = False
    outside.plane.store.release()
    outside.run()


def relinked(outside: Outside) -> None:
    outside.unlink()
    outside.plane.settle()
    outside.link()
    outside.run()


def test_a_post_that_is_sent_again_before_it_is_written_is_posted_once() -> None:
    outside = Outside()
    other = outside.plane.client()
    outside.run()
    outside.plane.store.hold = True
    other.start()
    outside.plane.settle()  # a commit is in flight: what follows waits for the next
    first, second = outside.client.post("news", "a"), outside.client.post("news", "b")
    outside.run()
    relinked(outside)
    released(outside)
    assert [outside.answer(req).value for req in (first, second)] == [0, 1]
    stream = outside.client.follow_topic("news")
    outside.run()
    assert [value for _, _, value in outside.client.arrived(stream)] == ["a", "b"]


def test_a_submit_many_that_is_answered_on_two_links_has_one_answer_an_item() -> None:
    outside = Outside()
    outside.plane.client().ask(m.AddQueue, "narrow", declare({"max_depth": 2, "on_full": "block"}))
    outside.run()
    outside.plane.store.hold = True
    ids, many = outside.client.submit_many(3, queue="narrow")
    outside.run()
    relinked(outside)
    released(outside)
    worker = outside.plane.worker(queues=("narrow",), slots=3)
    for id in ids:
        outside.run()
        worker.finish(id)
    assert [each.id for each in outside.answer(many).results] == ids


def test_what_was_dropped_without_a_link_takes_no_credit_of_the_next() -> None:
    outside = Outside(limits=SMALL)
    outside.run()
    outside.plane.store.hold = True
    reqs = [outside.client.start()[1] for _ in range(2)]
    outside.run()
    outside.unlink()
    for req in reqs:
        outside.client.client.drop(req)
    outside.link()
    again = [outside.client.start()[1] for _ in range(2)]
    released(outside)
    assert all(isinstance(outside.answer(req), m.Accepted) for req in again)
    assert outside.ended == []


def test_waits_that_were_dropped_without_a_link_take_none_either() -> None:
    outside = Outside(limits=SMALL)
    _, req = outside.client.start()
    id = outside.answer(req).id
    waits = [outside.client.ask(m.Wait, id) for _ in range(2)]
    outside.run()
    outside.unlink()
    for wait in waits:
        outside.client.client.drop(wait)
    outside.link()
    again = [outside.client.ask(m.Wait, id) for _ in range(2)]
    outside.client.kill(id)
    outside.run()
    assert {outside.answer(wait).state for wait in again} == {"killed"}
    assert len(outside.plane.head.space("default").live) == 0
    assert outside.ended == []


def test_streams_count_as_waits_at_both_ends() -> None:
    outside = Outside(limits=SMALL)
    outside.run()
    streams = [outside.client.follow_topic("news") for _ in range(4)]
    outside.client.post("news", "a")
    outside.run()
    assert [len(outside.client.arrived(stream)) for stream in streams] == [1, 1, 0, 0]
    for stream in streams[:2]:
        outside.client.close(stream)
    outside.run()
    assert [len(outside.client.arrived(stream)) for stream in streams[2:]] == [1, 1]
    assert outside.ended == []


def test_a_stream_that_waited_for_credit_and_is_closed_never_opens() -> None:
    outside = Outside(limits=SMALL)
    outside.run()
    streams = [outside.client.follow_topic("news") for _ in range(4)]
    outside.client.close(streams[2])
    outside.client.close(streams[0])
    outside.client.post("news", "a")
    outside.run()
    assert [len(outside.client.arrived(stream)) for stream in streams] == [0, 1, 0, 1]


def test_a_request_is_dropped_before_another_takes_its_place() -> None:
    outside = Outside(limits=SMALL)
    outside.run()
    outside.plane.store.hold = True
    reqs = [outside.client.start()[1] for _ in range(3)]
    outside.run()
    outside.client.client.drop(reqs[0])
    released(outside)
    assert isinstance(outside.answer(reqs[2]), m.Accepted)
    assert outside.ended == []


def test_frames_asked_for_on_two_links_come_once() -> None:
    outside = Outside()
    _, req = outside.client.start(kind="generator")
    id = outside.answer(req).id
    worker = outside.plane.worker()
    outside.plane.settle()
    worker.give(id, "a", "b", "c")
    worker.finish(id)
    outside.plane.store.hold_reads = True
    stream = outside.client.follow(id)
    outside.run()
    relinked(outside)
    outside.plane.store.hold_reads = False
    outside.plane.store.release_reads()
    outside.run()
    assert [value for _, _, value in outside.client.arrived(stream)] == ["a", "b", "c"]
    assert [type(each) for each in outside.client.answers[stream]].count(m.StreamEnd) == 1


def test_a_head_that_was_stopped_looks_at_its_clock_before_it_gives_a_worker_up() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(leased=True)
    id = client.submit()
    plane.advance(5)
    plane.clock.now += 300  # nothing runs meanwhile
    plane.clock.wall += 300
    worker.cut()  # seen before anything else
    plane.settle()
    assert client.state(id) == "running"
    worker.relink()
    plane.settle()
    worker.finish(id, 1)
    assert client.result(id) == 1
    assert len(client.record(id).attempts) == 1


def test_a_head_learns_that_it_was_superseded_by_what_it_can_not_find_in_memory() -> None:
    """It reads once more, writes, and is over; it does not read for ever."""
    plane = HandPlane()
    client = plane.client()
    id = client.submit("f")
    plane.head.space("default").live.pop(id)  # as if another head had admitted it
    reads: list[Any] = []
    read = plane.store.inner.read
    plane.store.inner.read = lambda query, done: (reads.append(query), read(query, done))[1]
    plane.store.refuse = StoreLocked("another process took this store over")
    req = client.ask(m.Get, id)
    plane.settle()
    assert (client.answers[req], plane.engine.ended, len(reads)) == ([], True, 2)


def test_what_came_back_into_memory_while_that_was_asked_is_answered() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit("f")
    live = plane.head.space("default").live
    entry = live.pop(id)
    plane.store.hold = True
    req = client.ask(m.Get, id)
    plane.settle()
    live[id] = entry
    plane.store.hold = False
    plane.store.release()
    assert client.answer(req).rows[0][0].id == id
