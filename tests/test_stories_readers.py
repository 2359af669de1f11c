"""A slow reader, one that stopped, and a fast one of the same stream: bounded, whole, and apart."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from planes import PATIENCE, working

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.testing.hand import HandPlane

SIZE, COUNT = 4096, 6000  # 24 MB in all


@dls.udf
def floods(count: int) -> Iterator[bytes]:
    for n in range(count):
        yield n.to_bytes(SIZE, "big")


@dls.udf
async def afloods(count: int) -> AsyncIterator[bytes]:
    for n in range(count):
        yield n.to_bytes(SIZE, "big")


BODIES = [pytest.param(floods, id="thread"), pytest.param(afloods, id="loop")]


def numbers(stream: Any) -> list[int]:
    """What a stream still gives, each checked to be whole."""
    found: list[int] = []
    for frame in stream:
        assert len(frame.value) == SIZE
        assert frame.seq == int.from_bytes(frame.value, "big")
        found.append(frame.seq)
    return found


@pytest.mark.parametrize("body", BODIES)
def test_readers_at_three_speeds(q: dls.Dispatch, body: dls.UDF[[int], Any]) -> None:
    """The body ends and the fast one has all while the others have read one frame each."""
    inv = q.submit(body, COUNT)
    slow, stopped, fast = q.stream(inv), q.stream(inv), q.stream(inv)
    with working(q):
        assert (next(slow).seq, next(stopped).seq) == (0, 0)
        assert numbers(fast) == list(range(COUNT))
        q.result(inv, timeout=PATIENCE)
        assert q.get(inv).state == "succeeded"
        assert numbers(slow) == list(range(1, COUNT))
        assert (slow.cursor, stopped.cursor) == (COUNT, 1)
        again = q.submit(body, 10)  # the one that stopped holds up no later body either
        assert numbers(q.stream(again)) == list(range(10))
        stopped.close()
        assert numbers(q.stream(inv, since=stopped.cursor)) == list(range(1, COUNT))


@pytest.mark.parametrize("body", BODIES)
def test_readers_that_stopped_hold_a_bounded_part(
    tmp_path: Any, backend: Any, body: dls.UDF[[int], Any]
) -> None:
    """Of 48 MB that go by, less than half is in memory at any time: two that stopped hold 5 MiB each."""
    count = 2 * COUNT
    with dls.Dispatch(tmp_path / "plane.db", backend=backend) as q, working(q):
        warm = q.submit(body, 100)
        assert len(numbers(q.stream(warm))) == 100
        inv = q.submit(body, count)
        streams = [q.stream(inv) for _ in range(2)]
        assert [next(stream).seq for stream in streams] == [0] * 2
        tracemalloc.start()
        try:
            q.result(inv, timeout=PATIENCE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < SIZE * count / 2
        assert [numbers(stream) for stream in streams] == [list(range(1, count))] * 2


@pytest.mark.parametrize("crash", [False, True])
def test_a_reader_that_stopped_is_sent_no_more_than_it_asked_for(crash: bool) -> None:
    """By hand: in frames and in bytes, for as long as it says nothing; then it goes on where it was."""
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(kind="generator")
    plane.settle()
    few, small = client.follow(id, credit=10), client.ask(m.Follow, id, 0, 1000, 10_000)
    fast = client.follow(id)
    for n in range(500):
        worker.give(id, bytes(1000), n)
        plane.settle()
        assert worker.acks[id] == 2 * (n + 1), "the body waits for the store alone"
        assert len(client.arrived(fast)) == 2 * (n + 1)
    assert len(client.arrived(few)) == 10
    chunks = [answer for answer in client.answers[small] if isinstance(answer, m.Chunk)]
    assert sum(len(chunk.data) for chunk in chunks) <= 11_100  # one chunk more at most
    worker.finish(id, "done")
    assert client.result(id) == "done"
    assert client.end(fast) is not None
    assert client.end(few) is None  # the end does not come before what it has not read
    if crash:
        plane.crash()
        client = plane.client()
        few = client.follow(id, since=10, credit=10)  # as one does that comes back with its cursor
        assert len(client.frames(few)) == 10
    client.consume(few, 1000)
    assert [(seq, value) for seq, _, value in client.frames(few) if seq % 2] == [
        (seq, seq // 2) for seq in range(11 if crash else 1, 1000, 2)
    ]
    assert client.end(few).next_seq == 1000
