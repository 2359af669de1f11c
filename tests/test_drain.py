"""Draining: what it waits for, what goes back, and that nothing holds it up."""

# ruff: noqa: ASYNC110 (time is virtual: a poll takes none)

import asyncio
import contextlib
import functools
import gc
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import trio

import lakeshore as dls

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual: Any) -> Any:
    return virtual


async def _one() -> int:
    return 1


class Flaky:
    def __init__(self, failures: int) -> None:
        self.failures, self.runs = failures, 0

    async def __call__(self) -> int:
        self.runs += 1
        if self.runs <= self.failures:
            raise OSError("not yet")
        return self.runs


class Sleeper:
    """A body that sleeps, and says when it has begun and how it ended."""

    def __init__(self, seconds: float = 3600, *, cleanup: float = 0.0) -> None:
        self.seconds, self.cleanup = seconds, cleanup
        self.begun = anyio.Event()
        self.ends: list[str] = []

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await anyio.sleep(self.seconds)
            self.ends.append("slept")
        except anyio.get_cancelled_exc_class():
            self.ends.append("cancelled")
            try:
                await anyio.sleep(self.cleanup)
                self.ends.append("clean")
            except anyio.get_cancelled_exc_class():
                self.ends.append("cancelled again")
                raise
            raise
        return "slept"


@contextlib.asynccontextmanager
async def plane() -> AsyncIterator[tuple[dls.AsyncDispatch, Any]]:
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        yield q, tasks
        tasks.cancel_scope.cancel()


async def drained(q: dls.AsyncDispatch, limit: float = 10_000, **options: Any) -> int:
    with anyio.fail_after(limit):
        return await dls.arun_worker(q, drain=True, **options)


@pytest.mark.parametrize("slots", [1, 2, 8])
async def test_it_runs_all_there_is_and_waits_for_retry_delays(slots: int) -> None:
    async with plane() as (q, _):
        flaky = [Flaky(2) for _ in range(3)]
        ids = [await q.submit(dls.udf(body, retries=2, retry_delay=60.0)) for body in flaky]
        ids += await q.submit_many(_one, [{}] * 5)
        assert await drained(q, slots=slots) == 5 + 3 * 3
        for inv in ids:
            assert (await q.get(inv)).state is dls.State.SUCCEEDED


async def test_nothing_to_do_is_over_at_once() -> None:
    async with plane() as (q, _):
        before = anyio.current_time()
        assert await drained(q) == 0
        assert anyio.current_time() == before


async def test_it_does_not_wait_for_delays_nor_for_a_paused_queue() -> None:
    async with plane() as (q, tasks):
        await q.submit(dls.udf(_one), _delay=50)
        await q.queues.add("paused")
        flaky = dls.udf(Flaky(1), queue="paused", retries=1, retry_delay=500.0, retry_cap=500.0)
        inv = await q.submit(flaky)
        await tasks.start(functools.partial(dls.arun_worker, q))
        while (await q.get(inv)).attempt == 0 or (await q.get(inv)).state is dls.State.RUNNING:
            await anyio.sleep(0.001)
        await q.submit(dls.udf(_one, queue="paused"), _delay=60)
        await q.submit(_one)
        await q.queues.pause("paused")
        before = anyio.current_time()
        assert await drained(q) in (0, 1)  # the other worker may have taken it
        assert anyio.current_time() - before < 1


@pytest.mark.parametrize("what", ["kill", "other", "pause", "deadline"])
async def test_it_ends_when_the_retry_it_waits_for_will_not_come(what: str) -> None:
    async with plane() as (q, tasks):
        flaky = dls.udf(Flaky(1), retries=1, retry_delay=1000.0, retry_cap=1000.0)
        inv = await q.submit(flaky, **({"_deadline": 1} if what == "deadline" else {}))
        over = anyio.Event()

        async def drain() -> None:
            await dls.arun_worker(q, drain=True)
            over.set()

        tasks.start_soon(drain)
        while (await q.get(inv)).attempt == 0 or (await q.get(inv)).state is dls.State.RUNNING:
            await anyio.sleep(0.001)
        before = anyio.current_time()
        if what == "kill":
            await q.kill(inv)
        elif what == "pause":
            await q.queues.pause("default")
        elif what == "other":
            await tasks.start(functools.partial(dls.arun_worker, q, slots=4))
        with anyio.fail_after(5000):
            await over.wait()
        if what != "other":
            assert anyio.current_time() - before < 2


async def test_it_does_not_wait_for_bodies_of_other_workers() -> None:
    async with plane() as (q, tasks):
        sleeper = Sleeper()
        await q.submit(sleeper)
        await tasks.start(functools.partial(dls.arun_worker, q))
        await sleeper.begun.wait()
        await q.submit(_one)
        before = anyio.current_time()
        assert await drained(q) == 1
        assert anyio.current_time() - before < 1


async def test_what_it_cannot_resolve_does_not_hold_it() -> None:
    async with plane() as (q, _):
        inv = await q.submit(_one)
        q.host().known.clear()
        assert await drained(q) == 0
        assert (await q.get(inv)).state is dls.State.QUEUED


async def test_stop_drains_and_returns_unbegun_work_free() -> None:
    """C07: nothing begins after the stop, what has not begun goes back, one grace for all."""
    async with plane() as (q, tasks):
        stop, returned = anyio.Event(), anyio.Event()
        quick, polite, stubborn, endless = Sleeper(4), Sleeper(), Sleeper(cleanup=3), Sleeper(cleanup=60)
        ids = [await q.submit(body) for body in (quick, polite, stubborn, endless)]
        waiting = await q.submit_many(_one, [{}] * 6)

        async def run() -> None:
            assert await dls.arun_worker(q, slots=4, grace=10, stop=stop) == 2
            returned.set()

        tasks.start_soon(run)
        for body in (quick, polite, stubborn, endless):
            await body.begun.wait()
        began = anyio.current_time()
        stop.set()
        await anyio.sleep(2)
        await q.kill(ids[1], running=True)
        assert anyio.current_time() - began == pytest.approx(2)
        with anyio.fail_after(100):
            await returned.wait()
        assert anyio.current_time() - began == pytest.approx(15)  # the grace, and 5 s to clean up
        assert await q.result(ids[0]) == "slept"
        assert (await q.get(ids[1])).state is dls.State.KILLED
        for inv in ids[2:]:
            record = await q.get(inv)
            assert record.state is dls.State.QUEUED
            assert [attempt.outcome for attempt in record.attempts] == ["returned"]
        assert stubborn.ends == ["cancelled", "clean"]
        assert endless.ends == ["cancelled", "cancelled again"]
        assert all([(await q.get(inv)).state is dls.State.QUEUED for inv in waiting])


async def test_a_return_costs_neither_retry_nor_loss() -> None:
    async with plane() as (q, tasks):
        runs: list[int] = []

        @dls.udf(retries=1, retry_delay=0.001)
        async def body() -> int:
            runs.append(dls.run.attempt)
            if len(runs) <= 5:
                await anyio.sleep(3600)
            if len(runs) == 6:
                raise OSError("the only retry")
            return len(runs)

        inv = await q.submit(body)
        for number in range(5):
            async with anyio.create_task_group() as workers:
                workers.start_soon(dls.arun_worker, q)
                while len(runs) <= number:
                    await anyio.sleep(0.001)
                workers.cancel_scope.cancel()
        await tasks.start(functools.partial(dls.arun_worker, q))
        assert await q.result(inv) == 7
        assert runs == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("how", ["scope", "group", "native"])
async def test_cancelled_it_ends_at_once_and_loses_nothing(how: str, anyio_backend_name: str) -> None:
    async with plane() as (q, _):
        sleepers = [Sleeper(cleanup=60) for _ in range(8)]
        ids = [await q.submit(body) for body in sleepers]
        more = await q.submit_many(_one, [{}] * 20)
        if how == "native" and anyio_backend_name == "asyncio":
            task = asyncio.ensure_future(dls.arun_worker(q, slots=8))
            for body in sleepers:
                await body.begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif how == "scope":
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(functools.partial(dls.arun_worker, q, slots=8))
                    for body in sleepers:
                        await body.begun.wait()
                    scope.cancel()
                    await anyio.sleep_forever()
        else:
            async with anyio.create_task_group() as inner:
                inner.start_soon(functools.partial(dls.arun_worker, q, slots=8))
                for body in sleepers:
                    await body.begun.wait()
                inner.cancel_scope.cancel()
        for inv in ids:
            record = await q.get(inv)
            assert record.state is dls.State.QUEUED, record
            assert [attempt.outcome for attempt in record.attempts] == ["returned"]
        assert all([(await q.get(inv)).state is dls.State.QUEUED for inv in more])
        assert all(body.ends[0] == "cancelled" for body in sleepers)
        assert await q.workers.list() == []


async def test_cancelled_while_bodies_clean_up_after_a_stop() -> None:
    async with plane() as (q, _):
        body = Sleeper(cleanup=4)
        inv = await q.submit(dls.udf(body, timeout=10))
        async with anyio.create_task_group() as inner:
            inner.start_soon(dls.arun_worker, q)
            await anyio.sleep(11)
            before = anyio.current_time()
            inner.cancel_scope.cancel()
        assert anyio.current_time() == before
        assert body.ends == ["cancelled", "cancelled again"]
        assert (await q.get(inv)).state is dls.State.TIMEOUT


async def test_many_cancels_at_any_moment_lose_nothing() -> None:
    async with plane() as (q, tasks):
        runs: dict[int, int] = {}

        async def body(number: int) -> int:
            runs[number] = runs.get(number, 0) + 1
            for _ in range(number % 5):
                await anyio.lowlevel.checkpoint()
            return number

        ids = await q.submit_many(body, range(300))
        for turns in range(40):
            async with anyio.create_task_group() as inner:
                inner.start_soon(functools.partial(dls.arun_worker, q, slots=4))
                for _ in range(turns):
                    await anyio.lowlevel.checkpoint()
                inner.cancel_scope.cancel()
        await tasks.start(functools.partial(dls.arun_worker, q, slots=4))
        assert [await q.result(inv) for inv in ids] == list(range(300))
        for inv in ids:
            record = await q.get(inv)
            assert all(attempt.outcome in ("returned", "succeeded") for attempt in record.attempts)


async def test_closing_the_plane_drains_its_workers() -> None:
    body = Sleeper(5)
    over: list[int] = []
    async with anyio.create_task_group() as tasks:
        async with dls.AsyncDispatch(":memory:") as q:

            async def run() -> None:
                over.append(await dls.arun_worker(q, grace=10))

            await q.submit(body)
            tasks.start_soon(run)
            await body.begun.wait()
        assert body.ends == ["slept"]
    assert over == [1]


async def test_task_status_says_that_it_has_registered() -> None:
    async with plane() as (q, tasks):
        assert await q.workers.list() == []
        await tasks.start(functools.partial(dls.arun_worker, q, name="me", labels={"a": "b"}, slots=3))
        (worker,) = await q.workers.list()
        assert (worker.name, worker.labels, worker.slots) == ("me", {"a": "b"}, 3)


async def test_long_bodies_after_many_short_ones_do_not_bounce() -> None:
    """The head lets a worker with short bodies run ahead; what it then can't begin goes back once."""
    async with plane() as (q, tasks):
        await tasks.start(functools.partial(dls.arun_worker, q))
        for inv in await q.submit_many(_one, [{}] * 50):
            await q.result(inv)
        body = Sleeper(600)
        first = await q.submit(body)
        ids = await q.submit_many(_one, [{}] * 10)
        await body.begun.wait()
        await anyio.sleep(300)
        for inv in ids:
            record = await q.get(inv)
            assert record.state is dls.State.QUEUED
            assert len(record.attempts) <= 1
        await q.result(first)
        assert [await q.result(inv) for inv in ids] == [1] * 10


@pytest.mark.parametrize("kind", ["threading", "anyio", "own"])
async def test_an_event_that_was_set_before(kind: str, anyio_backend_name: str) -> None:
    async with plane() as (q, _):
        own: Any = asyncio.Event() if anyio_backend_name == "asyncio" else trio.Event()
        stop: Any = {"threading": threading.Event(), "anyio": anyio.Event(), "own": own}[kind]
        stop.set()
        inv = await q.submit(_one)
        with anyio.fail_after(5):
            assert await dls.arun_worker(q, stop=stop) == 0
        assert (await q.get(inv)).attempt == 0


def test_a_threads_event_stops_a_blocking_worker_and_its_thread_goes() -> None:
    for backend in ("asyncio", "trio"):
        with dls.Dispatch(":memory:", backend=backend) as q:
            stop = threading.Event()
            begun = threading.Event()

            def body() -> None:
                begun.set()  # noqa: B023

            q.submit(body)
            threading.Thread(target=lambda: (begun.wait(), stop.set())).start()  # noqa: B023
            assert dls.run_worker(q, stop=stop) == 1
            later = threading.Event()
            for _ in range(3):
                assert dls.run_worker(q, drain=True, stop=later) == 0
            waits = [thread for thread in _threads() if thread.name == "lakeshore stop"]
            assert [thread.daemon for thread in waits] == [True]  # one for the event, not for each worker
            later.set()
        limit = time.monotonic() + 10
        while _threads() and time.monotonic() < limit:
            for thread in _threads():
                thread.join(1)
        assert not _threads()
        gc.collect()


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("lakeshore")]


def test_closing_the_plane_ends_a_blocking_worker() -> None:
    for backend in ("asyncio", "trio"):
        q = dls.Dispatch(":memory:", backend=backend)
        begun, ran = threading.Event(), []

        def body() -> None:
            begun.set()  # noqa: B023

        q.submit(body)
        worker = threading.Thread(target=lambda: ran.append(dls.run_worker(q)))  # noqa: B023
        worker.start()
        begun.wait()
        q.close()
        worker.join(10)
        assert ran == [1]
        with pytest.raises(dls.PlaneClosed):
            dls.run_worker(q)


def test_closing_the_plane_at_any_moment_of_a_workers_start() -> None:
    for backend in ("asyncio", "trio"):
        for _ in range(30):
            q = dls.Dispatch(":memory:", backend=backend)
            q.queues.ls()
            started = threading.Event()

            def run() -> None:
                started.set()  # noqa: B023
                with contextlib.suppress(dls.PlaneClosed):
                    dls.run_worker(q)  # noqa: B023

            worker = threading.Thread(target=run)
            worker.start()
            started.wait()
            q.close()
            worker.join(10)
            assert not worker.is_alive()
