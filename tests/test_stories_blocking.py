"""Bodies that block their worker's loop, hold the interpreter, or fill the pools that others use."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import pytest
from planes import PATIENCE, elsewhere

import lakeshore as dls


class Stage:
    """What the bodies of one test share, and the test holds: gates, and who has begun."""

    def __init__(self) -> None:
        self.begun: Counter[Any] = Counter()
        self.blocked, self.go = threading.Event(), threading.Event()
        self._changed = threading.Condition()

    def begins(self, who: Any) -> None:
        """A body says that it has begun."""
        with self._changed:
            self.begun[who] += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many have begun."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.begun.total() >= count, PATIENCE), self.begun


NOW: list[Stage] = []  # the stage of the test that runs: bodies in a file are found by name


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Lets everything go at the end, come what may."""
    NOW[:] = [Stage()]
    yield NOW[0]
    NOW[0].go.set()


@dls.udf
def short(who: int) -> int:
    """A body that does nothing."""
    NOW[0].begins(who)
    return who


@dls.udf
async def ashort(who: int) -> int:
    """The same, on the loop."""
    NOW[0].begins(who)
    return who


@dls.udf
async def blocks() -> str:
    """Blocks its loop until it is let go."""
    NOW[0].begins("blocks")
    NOW[0].blocked.set()
    NOW[0].go.wait(PATIENCE)
    return "went on"


@dls.udf
def spins() -> str:
    """Holds the interpreter, in pure Python, until it is let go."""
    NOW[0].begins("spins")
    NOW[0].blocked.set()
    while not NOW[0].go.is_set():
        sum(n * n for n in range(1000))
    return "went on"


@dls.udf
async def waits() -> None:
    """A body for the test to stop."""
    NOW[0].begins("waits")
    await anyio.sleep_forever()


@dls.udf
async def fill(pool: str, calls: int) -> None:
    """Push blocking calls into a pool that the whole program shares, and wait for them."""
    go = NOW[0].go
    NOW[0].begins(dls.run.id)
    if pool == "executor":
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, go.wait, PATIENCE) for _ in range(calls)))
        return

    async def call() -> None:
        await anyio.to_thread.run_sync(go.wait, PATIENCE, abandon_on_cancel=True)

    async with anyio.create_task_group() as tasks:
        for _ in range(calls):
            tasks.start_soon(call)


@contextmanager
def serving(q: dls.Dispatch, stage: Stage, **options: Any) -> Iterator[tuple[Future[int], threading.Event]]:
    """A worker on a thread of its own, and what makes it drain; at the end it does, whatever holds it."""
    stop = threading.Event()
    with elsewhere(dls.run_worker, q, stop=stop, **options) as worker:
        try:
            yield worker, stop
        finally:
            stop.set()
            stage.go.set()


def draining(q: dls.Dispatch, stop: threading.Event) -> None:
    """Ask the one worker to drain, and see that it does."""
    stop.set()
    limit = time.monotonic() + PATIENCE
    while [worker.state for worker in q.workers.list()] != ["draining"]:  # a round trip
        assert time.monotonic() < limit


@pytest.mark.parametrize("ahead", [False, True])
def test_a_body_that_blocks_its_loop_stops_nobody_else(q: dls.Dispatch, stage: Stage, ahead: bool) -> None:
    """The plane goes on: it admits, answers, kills what is queued, and other workers take what waits.
    With `ahead`, some were granted to the blocked worker: they wait for it, and begin once."""
    with serving(q, stage, slots=2) as (worker, stop):
        warm = [q.submit(ashort, n) for n in range(20 if ahead else 0)]
        assert [q.result(inv, timeout=PATIENCE) for inv in warm] == [*range(len(warm))]
        blocking = q.submit(blocks)
        assert stage.blocked.wait(PATIENCE)
        others = q.submit_many(ashort, range(100, 130))
        doomed = q.submit(ashort, 1000)
        queued = q.get(doomed).state == "queued"
        if queued:
            q.kill(doomed)
        with elsewhere(dls.run_worker, q, drain=True) as second:
            assert second.result(PATIENCE) >= 10  # what the blocked one was not granted
        stop.set()
        assert q.get(blocking).state == "running"
        assert not worker.done()
        stage.go.set()
        assert q.result(blocking, timeout=PATIENCE) == "went on"
        worker.result(PATIENCE)
    dls.run_worker(q, drain=True)
    assert [q.result(inv, timeout=PATIENCE) for inv in others] == [*range(100, 130)]
    assert q.get(doomed).state == ("killed" if queued else "succeeded")
    assert set(stage.begun.values()) == {1}
    assert [a.outcome for a in q.get(blocking).attempts] == ["succeeded"]


@pytest.mark.anyio
async def test_a_body_that_blocks_the_loop_of_its_own_plane(
    address: str, stage: Stage, anyio_backend: Any
) -> None:
    """Here everything stops for as long. Then everything goes on, and nothing is begun twice."""
    with elsewhere(lambda: (stage.blocked.wait(PATIENCE), stage.go.wait(0.2), stage.go.set())):
        async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
            await tasks.start(functools.partial(dls.arun_worker, q, slots=4))
            slow = await waits.asubmit(_timeout=0.05, _dispatch=q)
            ids = [await q.submit(ashort, n) for n in range(5)]
            blocking = await q.submit(blocks)
            ids += [await q.submit(ashort, n) for n in range(5, 10)]
            with anyio.fail_after(PATIENCE):
                assert [await q.result(inv) for inv in ids] == [*range(10)]
                assert await q.result(blocking) == "went on"
                with pytest.raises(dls.InvocationTimeout):
                    await q.result(slow)
                assert await q.result(await q.submit(ashort, 10)) == 10
            tasks.cancel_scope.cancel()
    assert set(stage.begun.values()) == {1}


def test_a_body_that_holds_the_interpreter_stops_nobody(q: dls.Dispatch, stage: Stage) -> None:
    with serving(q, stage, slots=3) as (worker, stop):
        spinning = q.submit(spins)
        assert stage.blocked.wait(PATIENCE)
        waiting = q.submit(waits)
        stage.wait_for(2)
        ids = [q.submit(short if n % 2 else ashort, n) for n in range(10)]
        assert [q.result(inv, timeout=PATIENCE) for inv in ids] == [*range(10)]
        q.kill(waiting, running=True)
        assert q.get(waiting).state == "killed"
        draining(q, stop)
        late = q.submit(short, 10)
        assert q.get(late).state == "queued"
        assert not worker.done()
        stage.go.set()
        assert q.result(spinning, timeout=PATIENCE) == "went on"
        worker.result(PATIENCE)
    assert q.get(late).state == "queued"
    assert set(stage.begun.values()) == {1}


POOLS = [("asyncio", "executor"), ("asyncio", "anyio"), ("trio", "anyio")]


@pytest.mark.parametrize(("backend", "pool"), POOLS)
def test_bodies_that_fill_the_thread_pool_of_the_program(
    address: str, stage: Stage, backend: Any, pool: str
) -> None:
    """The plane's own threads, and those of synchronous bodies, are reserved."""
    with dls.Dispatch(address, backend=backend) as q:
        with serving(q, stage, slots=25) as (worker, stop):
            filling = [q.submit(fill, pool, 10) for _ in range(20)]
            waiting = q.submit(waits)
            stage.wait_for(21)
            ids = [q.submit(short if n % 2 else ashort, n) for n in range(10)]
            assert [q.result(inv, timeout=PATIENCE) for inv in ids] == [*range(10)]
            q.kill(waiting, running=True)
            q.kill(filling[0], running=True) if pool == "anyio" else None
            draining(q, stop)
            late = q.submit(short, 10)
            assert q.get(late).state == "queued"
            assert not worker.done()
            stage.go.set()
            for inv in filling[1:]:
                assert q.result(inv, timeout=PATIENCE) is None
            worker.result(PATIENCE)
        assert q.get(waiting).state == "killed"
        assert q.get(late).state == "queued"
    assert len(stage.begun) == 31
    assert set(stage.begun.values()) == {1}


@pytest.mark.anyio
async def test_a_full_pool_holds_up_neither_a_plane_that_opens_nor_one_that_closes(
    tmp_path: Any, stage: Stage, anyio_backend: Any
) -> None:
    """On the loop of a program whose own pools are full."""

    async def block() -> None:
        await anyio.to_thread.run_sync(stage.go.wait, PATIENCE)

    async with anyio.create_task_group() as tasks:
        for _ in range(60):
            tasks.start_soon(block)
        if anyio_backend == "asyncio":
            loop = asyncio.get_running_loop()
            full = [loop.run_in_executor(None, stage.go.wait, PATIENCE) for _ in range(40)]
        with anyio.fail_after(PATIENCE):
            await anyio.wait_all_tasks_blocked()
            assert anyio.to_thread.current_default_thread_limiter().available_tokens == 0
            for n in range(2):
                async with dls.AsyncDispatch(tmp_path / "plane.db") as q:
                    ids = [await q.submit(short if m % 2 else ashort, (n, m)) for m in range(4)]
                    stop = threading.Event()
                    async with anyio.create_task_group() as workers:
                        workers.start_soon(functools.partial(dls.arun_worker, q, stop=stop))
                        assert [await q.result(inv) for inv in ids] == [(n, m) for m in range(4)]
                        stop.set()
                    assert len(await q.jobs.list()) == 4 * (n + 1)
        stage.go.set()
        if anyio_backend == "asyncio":
            await asyncio.gather(*full)
    assert set(stage.begun.values()) == {1}
