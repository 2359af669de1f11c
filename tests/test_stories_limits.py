"""One byte below a limit, at it, and above it: nothing too large fails in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from planes import PATIENCE, working

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.settings import declare
from lakeshore.core.values import pack, pack_call, pack_frames
from lakeshore.testing.hand import HandClient, HandPlane

LIMIT = 5000
WAY_OUT = r"payload limit of 5000.*(path|key)"


@pytest.fixture
def q(address: str, backend: Any) -> Iterator[dls.Dispatch]:
    """A plane with a small payload limit."""
    with dls.Dispatch(address, backend=backend, payload_limit=LIMIT) as dispatch:
        yield dispatch


@dls.udf
def size_of(data: bytes) -> int:
    return len(data)


@dls.udf(retries=3, retry_delay=0.001)
def large(size: int) -> bytes:
    return bytes(size)


@dls.udf(retries=3, retry_delay=0.001)
async def alarge(size: int) -> bytes:
    return bytes(size)


@dls.udf(retries=3, retry_delay=0.001)
def frames(size: int) -> Iterator[bytes]:
    yield b"before"
    yield bytes(size)
    yield b"after"


@dls.udf(retries=3, retry_delay=0.001)
async def aframes(size: int) -> Any:
    for data in (b"before", bytes(size), b"after"):
        yield data


@dls.udf
def fails(size: int) -> None:
    raise ValueError("é" + "x" * (size - 3) + "z")  # so many bytes


ARGS = LIMIT - len(pack_call((bytes(LIMIT),), {})) + LIMIT  # bytes of data that take exactly LIMIT
RESULT = LIMIT - len(pack(bytes(LIMIT))) + LIMIT
FRAME = LIMIT - len(pack_frames([0.0], [bytes(LIMIT)])) + LIMIT


def test_arguments(q: dls.Dispatch) -> None:
    fit = [q.submit(size_of, bytes(ARGS + more)) for more in (-1, 0)]
    for more in (1, 2, 100):
        with pytest.raises(dls.PayloadTooLarge, match=rf"(?s){LIMIT + more} bytes.*{WAY_OUT}"):
            q.submit(size_of, bytes(ARGS + more))
    with pytest.raises(dls.SubmitErrors) as refused:
        q.submit_many(size_of, [bytes(ARGS + more) for more in (-1, 1, 0)])
    assert [inv is None for inv in refused.value.ids] == [False, True, False]
    assert isinstance(refused.value.errors[1], dls.PayloadTooLarge)
    assert len(q.jobs.list()) == 4  # nothing of the others was sent
    assert dls.run_worker(q, drain=True) == 4
    assert [q.result(inv) for inv in fit] == [ARGS - 1, ARGS]


@pytest.mark.parametrize("body", [large, alarge], ids=["thread", "loop"])
def test_a_result(q: dls.Dispatch, body: dls.UDF[[int], bytes]) -> None:
    with working(q):
        fit = [q.submit(body, RESULT + more) for more in (-1, 0)]
        over = [q.submit(body, RESULT + more) for more in (1, 100 * LIMIT)]
        assert [len(q.result(inv, timeout=PATIENCE)) for inv in fit] == [RESULT - 1, RESULT]
        for inv, more in zip(over, (1, 100 * LIMIT), strict=True):
            with pytest.raises(dls.InvocationFailed, match="the result is") as error:
                q.result(inv, timeout=PATIENCE)
            assert error.value.type.endswith("PayloadTooLarge")
            if more == 1:
                assert f"{LIMIT + 1} bytes" in error.value.message
            assert q.get(inv).attempt == 1  # the same body would give the same again


@pytest.mark.parametrize("body", [frames, aframes], ids=["thread", "loop"])
def test_a_frame(q: dls.Dispatch, body: dls.UDF[[int], Any]) -> None:
    """One chunk with this frame alone takes the limit; what was given before it stays readable."""
    with working(q):
        for more in (-1, 0):
            inv = q.submit(body, FRAME + more)
            assert [len(value) for value in q.stream(inv).values()] == [6, FRAME + more, 5]
        for more in (20, 100 * LIMIT):
            inv, seen = q.submit(body, FRAME + more), list[int]()
            with pytest.raises(dls.InvocationFailed, match=rf"yield\[1\].*{WAY_OUT}"):  # noqa: PT012
                for value in q.stream(inv).values():
                    seen.append(len(value))
            assert seen == [6]
            assert q.get(inv).attempt == 1


def test_a_post_to_a_topic(q: dls.Dispatch) -> None:
    topic = q.topic("news")
    assert [topic.post(bytes(RESULT - 20)), topic.post(b"next")] == [0, 1]
    with pytest.raises(dls.PayloadTooLarge, match=WAY_OUT):
        topic.post(bytes(RESULT + 1))
    assert topic.post(b"last") == 2


def test_the_message_of_an_exception(q: dls.Dispatch) -> None:
    """Cut with a mark where it is too long, never refused: also above the payload limit."""
    most = 16 << 10
    with working(q):
        for size in (most - 1, most, most + 1, 20 * most):
            inv = q.submit(fails, size)
            with pytest.raises(dls.InvocationFailed) as error:
                q.result(inv, timeout=PATIENCE)
            message = error.value.message
            assert error.value.type == "builtins.ValueError"
            assert (message[0], message[-1]) == ("é", "z")
            assert len(message.encode()) <= most
            assert ("cut" in message or "…" in message or "..." in message) is (size > most)
            assert (len(message.encode()) == size) is (size <= most)


def test_the_usual_limit_is_sixteen_mebibytes() -> None:
    with dls.Dispatch(":memory:") as q:
        most = 16 << 20
        inv = q.submit(size_of, bytes(most - 20))
        with pytest.raises(dls.PayloadTooLarge, match=f"payload limit of {most}"):
            q.submit(size_of, bytes(most))
        assert dls.run_worker(q, once=True) == 1
        assert q.result(inv) == most - 20


# Budgets of bytes


UNIT = 100 * len(pack_call((bytes(200),), {}))  # a hundred submits of this size fill it


def _budget(on_full: str, most: int) -> tuple[HandPlane, HandClient]:
    plane = HandPlane()
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "q", declare({"max_bytes": most, "on_full": on_full})))
    return plane, client


def _queued(plane: HandPlane, client: HandClient) -> int:
    return client.answer(client.ask(m.QueueStats, "q")).value["pending"]


@pytest.mark.parametrize(("more", "fit"), [(-1, 99), (0, 100), (1, 100)])
def test_a_budget_that_rejects(more: int, fit: int) -> None:
    plane, client = _budget("reject", UNIT + more)
    asked = [client.start(queue="q", args=(bytes(200),)) for _ in range(1000)]
    answers = [client.answer(req) for _, req in asked]
    assert [isinstance(answer, m.Accepted) for answer in answers] == [True] * fit + [False] * (1000 - fit)
    assert {answer.kind for answer in answers[fit:]} == {"QueueFull"}
    assert _queued(plane, client) == fit
    client.answer(client.kill(asked[0][0]))  # what leaves makes room for exactly as much
    assert client.submit(queue="q", args=(bytes(200),))
    assert client.answer(client.start(queue="q", args=(bytes(200),))[1]).kind == "QueueFull"
    plane.crash()
    client = plane.client()
    assert client.answer(client.start(queue="q", args=(bytes(200),))[1]).kind == "QueueFull"


@pytest.mark.parametrize(("more", "fit"), [(-1, 99), (0, 100), (1, 100)])
def test_a_budget_that_blocks(more: int, fit: int) -> None:
    plane, client = _budget("block", UNIT + more)
    asked = [client.start(queue="q", args=(bytes(200),)) for _ in range(300)]
    plane.settle()
    assert _queued(plane, client) == fit
    _, hopeless = client.start(queue="q", args=(bytes(2 * UNIT),))
    worker, most = plane.worker(queues=("q",)), 0
    plane.settle()
    while worker.jobs:
        most = max(most, _queued(plane, client))
        plane.advance(0.02)
        worker.finish(next(iter(worker.jobs)))
    assert most == fit
    assert worker.started == [id for id, _ in asked]  # all, in the order of their arrival
    assert client.answer(hopeless).kind == "QueueFull"  # it would wait for ever


@pytest.mark.parametrize("size", [-1, 0, 1])
@pytest.mark.parametrize("on_full", ["reject", "block"])
def test_one_that_takes_the_whole_budget(on_full: str, size: int) -> None:
    most = len(pack_call((bytes(3000),), {}))
    plane, client = _budget(on_full, most)
    id, req = client.start(queue="q", args=(bytes(3000 + size),))
    answer = client.answer(req)
    if size > 0:
        assert answer.kind == "QueueFull"
        assert str(most) in answer.message
        assert _queued(plane, client) == 0
    else:
        assert answer == m.Accepted(req, id)
