"""Slow readers and large values over TCP: nothing is doubled, lost in silence, or kept for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import shared_path
from head_process import Head
from heads import ServedHead, served
from planes import PATIENCE, working
from test_guests import Outside
from test_stories_limits import (
    LIMIT,
    test_a_frame,
    test_a_post_to_a_topic,
    test_a_result,
    test_arguments,
    test_the_message_of_an_exception,
)
from through import through

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.ids import parse
from lakeshore.core.values import unpack_frames
from lakeshore.sdk.credentials import machine_token
from lakeshore.transports.blocking import BlockingLink

__all__ = [  # told again, over TCP
    "test_a_frame",
    "test_a_post_to_a_topic",
    "test_a_result",
    "test_arguments",
    "test_the_message_of_an_exception",
]

LONG = "LAKESHORE_LONG" in os.environ
MIB = 1 << 20


@pytest.fixture
def limit() -> int:
    return LIMIT


@pytest.fixture
def head(home: Path, tmp_path: Path, backend: Any, limit: int) -> Iterator[ServedHead]:
    with served(tmp_path / "plane.db", backend, payload_limit=limit) as running:
        yield running


@pytest.fixture
def q(head: ServedHead, backend: Any) -> Iterator[dls.Dispatch]:
    with dls.Dispatch(head.url, backend=backend) as dispatch:
        yield dispatch


# readers that are slow, or do nothing

FRAMES = 100_000 if LONG else 40_000
KEPT = 40 * MIB  # bytes that a head may take more for readers that stopped


@dls.udf
def floods(count: int) -> Iterator[bytes]:
    for n in range(count):
        yield n.to_bytes(1024, "big")


def test_readers_that_stopped_cost_a_head_little_and_nobody_else_anything(
    home: Path, tmp_path: Path, backend: Any
) -> None:
    with (
        Head(home, "--store", tmp_path / "plane.db", "--sync", "normal", backend=backend) as head,
        dls.Dispatch(head.url, backend=backend) as q,
        dls.Dispatch(head.url, backend=backend) as other,
    ):
        with working(q):
            warm = q.submit(floods, 6000)
            assert sum(1 for _ in q.stream(warm)) == 6000
            inv = q.submit(floods, FRAMES)
            slow, stopped = other.stream(inv), other.stream(inv)
            assert (next(slow).seq, next(stopped).seq) == (0, 0)
            before = head.memory()
            deaf = follow(head, inv)  # one that asks for everything, and reads nothing
            with closing(deaf):
                for number, frame in enumerate(q.stream(inv)):
                    assert frame.seq == int.from_bytes(frame.value, "big") == number
                assert q.result(inv, timeout=PATIENCE) is None
                assert head.memory() - before < KEPT
                assert q.get(inv).attempt == 1
                again = q.submit(floods, 10)
                assert sum(1 for _ in q.stream(again)) == 10
                assert [frame.seq for frame in slow] == list(range(1, FRAMES))
                assert stopped.cursor == 1
                stopped.close()
                rest = other.stream(inv, since=FRAMES - 5)
                assert [frame.seq for frame in rest] == list(range(FRAMES - 5, FRAMES))
                assert heard(deaf) == FRAMES
        assert head.memory() - before < KEPT


def follow(head: Head, inv: str) -> BlockingLink:
    """A link that wants all frames, and as much as there may be at once."""
    link = BlockingLink(head.url, timeout=PATIENCE)
    link.send(m.Knock(m.PROTOCOL, "1", os.urandom(16), "client", "", machine_token(head.home)))
    assert isinstance(link.receive(PATIENCE), m.Welcome)
    link.send(m.Follow(1, parse(inv), 0, 1 << 30, 1 << 40))
    return link


def heard(link: BlockingLink) -> int:
    """How many frames come, whole and in order, until their end."""
    seq = 0
    while not isinstance(message := link.receive(PATIENCE), m.StreamEnd):
        assert isinstance(message, m.Chunk), message
        assert message.seq == seq
        _, values = unpack_frames(message.data)
        assert [int.from_bytes(value, "big") for value in values] == list(range(seq, seq + message.count))
        seq += message.count
    return seq


@pytest.mark.parametrize("topic", [False, True])
def test_a_full_link_is_sent_no_frames_however_many_it_asked_for(topic: bool) -> None:
    outside = Outside()
    client = outside.client
    id = outside.answer(client.start("f", kind="generator")[1]).id
    worker = outside.plane.worker()
    other = outside.plane.client()
    outside.run()

    def give(*values: int) -> None:
        for value in values:
            if topic:
                other.answer(other.post("news", value))
            else:
                worker.give(id, value)
            outside.plane.settle()
        outside.run()

    def came(stream: int) -> list[int]:
        return [value for _, _, value in client.arrived(stream)]

    greedy = client.follow_topic("news") if topic else client.follow(id)
    modest = client.follow_topic("news", credit=4) if topic else client.follow(id, credit=4)
    outside.run()
    give(1, 2)
    assert came(greedy) == came(modest) == [1, 2]
    outside.guest.hold()
    give(3, 4, 5, 6)
    client.consume(modest, 1)
    outside.run()
    assert came(greedy) == came(modest) == [1, 2]
    outside.guest.go_on()
    outside.run()
    assert (came(greedy), came(modest)) == ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5])
    give(7, 8)
    client.consume(modest, 2)
    outside.guest.hold()
    outside.guest.go_on()
    outside.run()
    assert (came(greedy), came(modest)) == ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6, 7])
    if not topic:
        outside.guest.hold()
        give(9)
        worker.finish(id, "done")
        outside.run()
        outside.guest.go_on()
        outside.run()
        assert came(greedy)[-1] == 9
        assert client.end(greedy).next_seq == 9


# sizes


@dls.udf
def size_of(data: bytes) -> int:
    return len(data)


@dls.udf
def sized(size: int) -> bytes:
    return bytes(size)


@pytest.mark.parametrize("limit", [16 * MIB])
def test_far_above_the_usual_limit(q: dls.Dispatch) -> None:
    huge = (200 if LONG else 40) * MIB
    with pytest.raises(dls.PayloadTooLarge, match=f"payload limit of {16 * MIB}"):
        q.submit(size_of, bytes(huge))
    assert q.jobs.list() == []
    inv, fits = q.submit(sized, huge), q.submit(size_of, bytes(16 * MIB - 100))
    assert dls.run_worker(q, drain=True) == 2
    with pytest.raises(dls.InvocationFailed, match=r"the result is .*limit"):
        q.result(inv)
    assert q.result(fits) == 16 * MIB - 100


@pytest.mark.parametrize("limit", [16 * MIB])
@pytest.mark.parametrize("on_full", ["reject", "block"])
def test_a_budget_of_bytes(head: ServedHead, q: dls.Dispatch, backend: Any, on_full: Any) -> None:
    count, size, budget = (1000, MIB, 100 * MIB) if LONG else (100, 100 << 10, 2 * MIB)
    q.queues.add("narrow", max_bytes=budget, on_full=on_full)
    body = dls.udf(size_of.fn, queue="narrow")
    data = bytes(size)

    def submit(_: int) -> str | None:
        try:
            return q.submit(body, data)
        except dls.QueueFull:
            return None

    if on_full == "reject":
        ids = [submit(number) for number in range(count)]
        fit = len(ids) - ids.count(None)
        assert budget // size - 2 <= fit <= budget // size
        assert ids[fit:] == [None] * (count - fit)  # the first ones are in
        assert dls.run_worker(q, queues=("narrow",), drain=True) == fit
        assert submit(0) is not None
        return
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(submit, number) for number in range(count)]
        with working(q, queues=("narrow",)):
            for future in waiting:
                inv = future.result(PATIENCE)
                assert inv is not None
                assert q.result(inv, timeout=PATIENCE) == size


@pytest.mark.parametrize("limit", [80 * MIB])
def test_beats_pass_a_large_value_on_a_slow_link(
    head: ServedHead, home: Path, tmp_path: Path, backend: Any
) -> None:
    """It takes longer than the lease, both ways, and the worker is not lost."""
    size = (64 if LONG else 8) * MIB
    head.stop()
    with (
        served(tmp_path / "plane.db", backend, payload_limit=80 * MIB, lease=1.0) as head,
        dls.Dispatch(head.url, backend=backend) as q,
        through(head.url) as way,
        dls.Dispatch(way.url, backend=backend) as far,
        working(far),
    ):
        assert q.result(q.submit(size_of, b"x")) == 1
        way.delay(0.25)  # 1 MiB at most is under way: 4 MiB in a second
        invs = [q.submit(shared_path.same, bytes(size)), q.submit(size_of, b"yy")]
        assert [len(q.result(invs[0])), q.result(invs[1])] == [size, 2]
        for job in map(q.get, invs):
            assert {attempt.outcome for attempt in job.attempts} <= {"succeeded", "returned"}
        assert len(q.workers.list(ended=True)) == 1
