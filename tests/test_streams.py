"""Reading frames: live, from a cursor, across attempts, to an end of every kind."""

import gc
import threading
import time
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from planes import PATIENCE, elsewhere, working

import lakeshore as dls


class Gate:
    go, began = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.go, Gate.began = threading.Event(), threading.Event()


@dls.udf
def count(n: int):
    yield from range(n)


@dls.udf
def failing(n: int):
    yield from range(n)
    raise KeyError("after the values")


@dls.udf
def waits(n: int):
    yield from range(n)
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    yield n


@dls.udf(retries=2, retry_delay=0.001)
def restarts():
    yield f"{dls.run.attempt}a"
    yield f"{dls.run.attempt}b"
    if dls.run.attempt < 3:
        raise ValueError("again")


@dls.udf
async def endless():
    while True:
        yield 1
        await anyio.sleep_forever()


@dls.udf(timeout=0.05)
async def too_long():
    yield "before"
    await anyio.sleep_forever()


def values(stream: Any) -> list[Any]:
    return [frame.value for frame in stream]


def test_frames_have_numbers_attempts_and_times(q: dls.Dispatch) -> None:
    before = datetime.now(UTC)
    inv = count.submit(3)
    dls.run_worker(q, once=True)
    frames = list(q.stream(inv))
    assert [(frame.seq, frame.value, frame.attempt) for frame in frames] == [(0, 0, 1), (1, 1, 1), (2, 2, 1)]
    assert all(before <= frame.time <= datetime.now(UTC) for frame in frames)


@pytest.mark.parametrize("since", [-1, 0, 1, 199, 200])
def test_since_is_inclusive_and_resumes(q: dls.Dispatch, since: int) -> None:
    inv = count.submit(200)
    dls.run_worker(q, once=True)
    stream = q.stream(inv, since=since)
    assert values(stream) == list(range(max(since, 0), 200))
    assert stream.cursor == 200
    assert list(stream) == []  # stays at its end


def test_the_cursor_goes_on_after_the_last_frame_given(q: dls.Dispatch) -> None:
    inv = count.submit(500)
    dls.run_worker(q, once=True)
    got: list[int] = []
    cursor = 0
    while len(got) < 500:
        with q.stream(inv, since=cursor) as stream:
            got.extend(frame.value for frame in islice(stream, 70))
            cursor = stream.cursor
    assert got == list(range(500))


def test_a_since_beyond_what_was_written_is_a_gap(q: dls.Dispatch) -> None:
    inv = count.submit(3)
    dls.run_worker(q, once=True)
    with pytest.raises(dls.Gap) as gap:
        next(q.stream(inv, since=10))
    assert (gap.value.since, gap.value.first) == (10, 3)
    assert values(q.stream(inv, since=gap.value.first)) == []


@pytest.mark.parametrize("since", [1.0, "0", None, True])
def test_a_cursor_is_a_number(q: dls.Dispatch, since: Any) -> None:
    with pytest.raises(TypeError, match="cursor"):
        q.stream(count.submit(1), since=since)


def test_what_yields_nothing_ends_at_once(q: dls.Dispatch) -> None:
    ids = [count.submit(0), dls.udf(len).submit([])]
    dls.run_worker(q, drain=True)
    assert [values(q.stream(inv)) for inv in ids] == [[], []]


def test_a_non_generator_s_stream_ends_with_it(q: dls.Dispatch) -> None:
    inv = dls.udf(len).submit([])
    with elsewhere(values, q.stream(inv)) as reading:
        dls.run_worker(q, once=True)
        assert reading.result(PATIENCE) == []


@pytest.mark.parametrize("early", [False, True])
def test_an_error_comes_after_every_value(q: dls.Dispatch, early: bool) -> None:
    inv = failing.submit(300)
    got: list[int] = []

    if not early:
        dls.run_worker(q, once=True)
    with elsewhere(_collect, q.stream(inv), got) as reading:
        if early:
            dls.run_worker(q, once=True)
        with pytest.raises(dls.InvocationFailed, match="after the values"):
            reading.result(PATIENCE)
    assert got == list(range(300))


def _collect(stream: Any, into: list[Any]) -> None:
    into.extend(frame.value for frame in stream)


async def _acollect(stream: Any, into: list[Any]) -> None:
    async for frame in stream:
        into.append(frame.value)  # noqa: PERF401 - what came before an error counts


def test_a_kill_and_a_timeout_raise_theirs(q: dls.Dispatch) -> None:
    killed, late = endless.submit(), too_long.submit()
    with working(q, slots=2):
        stream = q.stream(killed)
        assert next(stream).value == 1
        q.kill(killed, running=True)
        with pytest.raises(dls.InvocationKilled):
            next(stream)
        stream = q.stream(late)
        assert next(stream).value == "before"
        with pytest.raises(dls.InvocationTimeout):
            next(stream)


def test_a_restart_is_never_silent(q: dls.Dispatch) -> None:
    inv = restarts.submit()
    dls.run_worker(q, once=True)
    assert [(frame.seq, frame.attempt) for frame in q.stream(inv)] == [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 3),
        (5, 3),
    ]
    assert list(q.stream(inv).values(restarts="keep")) == ["1a", "1b", "2a", "2b", "3a", "3b"]
    stream = q.stream(inv)
    got: list[str] = []
    for attempt in (2, 3):
        with pytest.raises(dls.StreamRestarted) as restarted:
            got.extend(stream.values())
        assert restarted.value.attempt == attempt
    got.extend(stream.values())
    assert got == ["1a", "1b", "2a", "2b", "3a", "3b"]
    assert q.result(inv) is None  # of the third: the errors of the others are not its own
    with pytest.raises(ValueError, match="keep"):
        next(q.stream(inv).values(restarts="no"))  # pyright: ignore[reportArgumentType]


def test_an_unknown_id_is_not_found_at_once(q: dls.Dispatch) -> None:
    with pytest.raises(dls.NotFound):
        next(q.stream("01JD2K7Q0000000000000000ZZ"))
    with pytest.raises(dls.NotFound):
        q.stream("news")


def test_a_reader_that_lags_gets_all(q: dls.Dispatch) -> None:
    inv = count.submit(10_000)
    with working(q), q.stream(inv) as stream:
        assert next(stream).value == 0
        q.result(inv, timeout=PATIENCE)
        assert values(stream) == list(range(1, 10_000))


def test_many_readers_of_one(q: dls.Dispatch) -> None:
    inv = waits.submit(50)
    streams = [q.stream(inv, since=since) for since in range(0, 50, 10)]
    with working(q):
        assert len(list(islice(q.stream(inv), 50))) == 50
        firsts = [next(stream).value for stream in streams]
        Gate.go.set()
        assert firsts == [0, 10, 20, 30, 40]
        assert [values(stream)[-1] for stream in streams] == [50] * 5


def _followers(q: Any) -> int:
    host = q.host()
    space = host.plane.head.space(q.namespace)
    return sum(len(owner.streams.open) for owner in (*space.queues.values(), space.archive))


def test_a_stream_that_was_closed_or_dropped_is_forgotten(q: dls.Dispatch) -> None:
    inv = waits.submit(3)
    with working(q):
        assert Gate.began.wait(PATIENCE)
        with q.stream(inv) as stream:
            next(stream)
            assert _followers(q) == 1
        next(q.stream(inv))
        gc.collect()
        q.get(inv)  # behind what was sent before
        assert _followers(q) == 0
        assert list(stream) == []
        Gate.go.set()


def test_a_stream_after_its_plane_was_closed(q: dls.Dispatch) -> None:
    inv = count.submit(5)
    dls.run_worker(q, once=True)
    begun, fresh = q.stream(inv), q.stream(inv)
    assert next(begun).value == 0
    q.close()
    got: list[int] = []
    with pytest.raises(dls.PlaneClosed):
        _collect(begun, got)
    assert got == [1, 2, 3, 4][: len(got)]  # what has come is given
    with pytest.raises(dls.PlaneClosed):
        next(fresh)
    with pytest.raises((dls.PlaneClosed, StopIteration)):
        next(fresh)
    fresh.close()


def test_closing_the_plane_wakes_a_reader(q: dls.Dispatch) -> None:
    stream = q.stream(count.submit(5))
    with elsewhere(values, stream) as reading:
        q.jobs.list()
        q.close()
        with pytest.raises(dls.PlaneClosed):
            reading.result(PATIENCE)


@pytest.mark.anyio
async def test_async_streams(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q:
        inv, bad, again = await count.asubmit(300), await failing.asubmit(2), await restarts.asubmit()
        await dls.arun_worker(q, drain=True)
        async with q.stream(inv, since=290) as stream:
            assert (await anext(stream)).value == 290
            assert stream.cursor == 291
        assert [value async for value in q.stream(inv, since=298).values()] == [298, 299]
        got: list[int] = []
        with pytest.raises(dls.InvocationFailed):
            await _acollect(q.stream(bad), got)
        assert got == [0, 1]
        with pytest.raises(dls.StreamRestarted):
            [value async for value in q.stream(again).values()]
        assert len([value async for value in q.stream(again).values(restarts="keep")]) == 6
        with pytest.raises(dls.Gap):
            await anext(q.stream(inv, since=301))
        with pytest.raises(dls.NotFound):
            await anext(q.stream("01JD2K7Q0000000000000000ZZ"))


@pytest.mark.anyio
async def test_a_cancelled_wait_loses_nothing(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        topic = q.topic("t")
        stream = topic.stream()
        for n in range(20):
            with anyio.move_on_after(0):
                await anext(stream)
            await topic.post(n)
        got = [(await anext(stream)).value for _ in range(20 - stream.cursor)]
        assert got == list(range(20))[-len(got) :]
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_cancelled_wait_on_another_loop_loses_nothing(tmp_path: Any, anyio_backend: Any) -> None:
    with dls.Dispatch(tmp_path / "plane.db") as host:
        async with dls.AsyncDispatch(tmp_path / "plane.db") as q:
            topic, got = host.topic("t"), []
            stream = q.topic("t").stream()
            for n in range(200):
                topic.post(n)
                with anyio.move_on_after(0.0002 * (n % 3)):
                    got.append((await anext(stream)).value)
            topic.close()
            await _acollect(stream, got)
            assert got == list(range(200))


@dls.udf
async def ticks(n: int):
    for i in range(n):
        yield i
        await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_every_frame_comes_before_the_end(address: str, anyio_backend: Any) -> None:
    counts: list[int] = []

    async def read(q: dls.AsyncDispatch, inv: str) -> None:
        counts.append(len([frame async for frame in q.stream(inv)]))

    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        await tasks.start(dls.arun_worker, q)
        async with anyio.create_task_group() as readers:
            for _ in range(30):
                readers.start_soon(read, q, await ticks.asubmit(7))
        assert counts == [7] * 30
        tasks.cancel_scope.cancel()


def test_a_pruned_range_is_a_gap_to_go_on_from(backend: Any) -> None:
    with dls.Dispatch(":memory:", backend=backend) as q:
        q.host().hosted.head.space("default").queues["default"].journal_bytes = 50_000
        inv = dls.udf(blocks).submit(100)
        dls.run_worker(q, once=True)
        with pytest.raises(dls.Gap, match="pruned") as gap:
            next(q.stream(inv))
        got = list(q.stream(inv, since=gap.value.first))
        assert got[0].seq == gap.value.first > 0
        assert got[-1].seq == 99


def blocks(n: int):
    for i in range(n):
        yield bytes([i]) * 10_000


def test_a_reader_that_stopped_is_sent_only_so_many_bytes(q: dls.Dispatch) -> None:
    topic = q.topic("big")
    for _ in range(60):
        topic.post(b"x" * 300_000)
    topic.close()
    stream = topic.stream()
    assert next(stream).seq == 0

    def held() -> int:
        return sum(len(m.data) for m in (*stream._source._came, *stream._messages) if hasattr(m, "data"))

    until = time.monotonic() + PATIENCE
    while held() < 3_500_000 and time.monotonic() < until:
        q.topics.list()
    for _ in range(20):
        q.topics.list()  # what was on its way is there
    assert 3_500_000 <= held() < 5_000_000
    assert len(list(stream)) == 59
