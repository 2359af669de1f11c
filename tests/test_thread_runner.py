"""Synchronous bodies: threads of their own, given up when they ignore a stop."""

import contextlib
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

import lakeshore as dls
from lakeshore.runners import inline

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short_cleanup(monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = inline.InlineRunner.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "cleanup", 0.05)


@contextlib.asynccontextmanager
async def working(**options: Any) -> AsyncIterator[dls.AsyncDispatch]:
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, **options))
        with anyio.fail_after(30):
            yield q
        tasks.cancel_scope.cancel()


def body_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lakeshore body")]


def none_left() -> None:
    limit = time.monotonic() + 10
    for thread in body_threads():
        thread.join(max(0.0, limit - time.monotonic()))
    assert not body_threads()


def _one() -> int:
    return 1


async def test_every_step_of_a_generator_is_on_one_thread() -> None:
    def body() -> Iterator[str]:
        for _ in range(200):
            yield threading.current_thread().name

    async with working(slots=4) as q:
        ids = [await q.submit(body) for _ in range(8)]
        for inv in ids:
            names = {name async for name in q.stream(inv).values()}
            assert len(names) == 1
            assert names.pop().startswith("lakeshore body")
    none_left()


async def test_no_more_threads_than_slots_and_none_after_the_worker() -> None:
    names: set[int] = set()
    barrier = threading.Barrier(4, timeout=20)

    def body() -> None:
        names.add(threading.get_ident())
        barrier.wait()

    async with working(slots=4) as q:
        for inv in await q.submit_many(body, [{}] * 80):
            await q.result(inv)
        assert len(names) == len(body_threads()) == 4
    none_left()


async def test_a_body_that_looks_at_cancelled_ends_by_itself() -> None:
    @dls.udf(timeout=0.01)
    def body() -> str:
        while not dls.run.cancelled:
            time.sleep(0.001)
        return "late"

    async with working() as q:
        with pytest.raises(dls.InvocationTimeout):
            await q.result(await q.submit(body))
        assert await q.result(await q.submit(_one)) == 1
        assert len(body_threads()) == 1
    none_left()


async def test_a_body_that_ignores_its_timeout_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    release = threading.Event()
    flags: list[bool] = []

    @dls.udf(timeout=0.01)
    def body() -> str:
        release.wait()
        flags.append(dls.run.cancelled)
        return "late"

    async with working() as q:
        inv = await q.submit(body)
        with pytest.raises(dls.InvocationTimeout):
            await q.result(inv)
        assert await q.result(await q.submit(_one)) == 1  # on a fresh thread
        assert any("given up" in record.message for record in caplog.records)
        release.set()
    none_left()
    assert flags == [True]
    caplog.clear()


async def test_at_most_slots_replacements_then_the_slot_stays_taken(caplog: pytest.LogCaptureFixture) -> None:
    releases = [threading.Event() for _ in range(4)]
    begun = [threading.Event() for _ in range(4)]

    def body(number: int) -> None:
        begun[number].set()
        releases[number].wait()

    stuck = dls.udf(body, timeout=0.01)
    async with working(slots=2) as q:
        ids = [await q.submit(stuck, number) for number in range(2)]
        for inv in ids:
            with pytest.raises(dls.InvocationTimeout):
                await q.result(inv)
        more = [await q.submit(stuck, number) for number in range(2, 4)]
        while not any(  # noqa: ASYNC110
            record.levelno == logging.ERROR for record in caplog.records
        ):
            await anyio.sleep(0.005)
        last = await q.submit(_one)
        assert [(await q.get(inv)).state for inv in (*more, last)] == ["running", "running", "queued"]
        releases[0].set()
        with pytest.raises(dls.InvocationTimeout):
            await q.result(more[0])
        assert await q.result(last) == 1
        for release in releases:
            release.set()
        with pytest.raises(dls.InvocationTimeout):
            await q.result(more[1])
    none_left()
    caplog.clear()


@pytest.mark.parametrize("full", [False, True])
async def test_abandoned_bodies_hold_up_neither_drain_nor_exit(
    full: bool, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()
    begun = threading.Semaphore(0)

    def body() -> None:
        begun.release()
        release.wait()

    stuck = dls.udf(body, timeout=0.01 if full else None)
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        stop, over = anyio.Event(), anyio.Event()

        async def run() -> None:
            await dls.arun_worker(q, slots=2, grace=0.01, stop=stop)
            over.set()

        tasks.start_soon(run)
        ids = [await q.submit(stuck) for _ in range(4 if full else 2)]
        for _ in ids:
            await anyio.to_thread.run_sync(begun.acquire)
        stop.set()
        with anyio.fail_after(20):
            await over.wait()
        expected = dls.State.TIMEOUT if full else dls.State.QUEUED
        assert {(await q.get(inv)).state for inv in ids} == {expected}
        release.set()
    none_left()
    caplog.clear()


async def test_cancelled_it_leaves_running_threads_to_themselves() -> None:
    release, begun = threading.Event(), threading.Event()
    closed = threading.Event()

    def body() -> None:
        begun.set()
        release.wait()

    def generator() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    async with working(slots=2) as q:
        ids = [await q.submit(generator), await q.submit(body)]
        await anyio.to_thread.run_sync(begun.wait)
    assert closed.wait(10)  # it waited for room, and was told
    release.set()
    none_left()
    assert ids


async def test_kills_at_the_moment_a_sync_body_ends() -> None:
    def body() -> int:
        return 1

    async with working(slots=2) as q:
        for number in range(200):
            inv = await q.submit(body)
            for _ in range(number % 7):
                await anyio.lowlevel.checkpoint()
            with contextlib.suppress(dls.Conflict):
                await q.kill(inv, running=True)
            assert (await q.get(inv)).state in (dls.State.KILLED, dls.State.SUCCEEDED)
            assert await q.result(await q.submit(_one)) == 1
        assert len(body_threads()) <= 2
    none_left()


def test_a_blocking_worker_leaves_no_thread() -> None:
    for backend in ("asyncio", "trio"):
        with dls.Dispatch(":memory:", backend=backend) as q:
            ids = q.submit_many(_one, [{}] * 50)
            assert dls.run_worker(q, drain=True, slots=4) == 50
            assert [q.result(inv) for inv in ids] == [1] * 50
        none_left()
