"""`once=True`: exactly one invocation to its end."""

# ruff: noqa: ASYNC110 (time is virtual: a poll takes none)

import contextlib
import functools
import itertools
from typing import Any

import anyio
import pytest

import lakeshore as dls

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual: Any) -> Any:
    return virtual


class Flaky:
    """A body that fails some times."""

    def __init__(self, failures: int) -> None:
        self.failures, self.runs = failures, 0

    async def __call__(self) -> int:
        self.runs += 1
        if self.runs <= self.failures:
            raise OSError("not yet")
        return self.runs


async def _one() -> int:
    return 1


async def test_it_returns_zero_at_once_where_nothing_can_be_claimed() -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        assert await dls.arun_worker(q, once=True) == 0
        await q.submit(dls.udf(_one), _delay=3600)
        await q.queues.add("paused")
        await q.queues.pause("paused")
        await q.submit(dls.udf(_one, queue="paused"))
        before = anyio.current_time()
        assert await dls.arun_worker(q, once=True) == 0
        assert anyio.current_time() == before


async def test_it_takes_one_of_many_whatever_its_slots() -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        ids = await q.submit_many(_one, [{}] * 5)
        assert await dls.arun_worker(q, once=True, slots=4) == 1
        states = [(await q.get(inv)).state for inv in ids]
        assert states.count(dls.State.SUCCEEDED) == 1
        assert states.count(dls.State.QUEUED) == 4
        assert [(await q.get(inv)).attempt for inv in ids] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("delay", [0.0, 0.5, 60.0])
async def test_its_retries_are_included_with_their_delays(slots: int, delay: float) -> None:
    runs: list[float] = []

    @dls.udf(retries=5)
    async def body() -> int:
        runs.append(anyio.current_time())
        if len(runs) < 4:
            raise dls.Retry(after=delay)
        return len(runs)

    async with dls.AsyncDispatch(":memory:") as q:
        other = await q.submit(_one)
        inv = await q.submit(body, _priority=1)
        assert await dls.arun_worker(q, once=True) == 1  # the other one, which came first
        assert await q.result(other) == 1
        with anyio.fail_after(1000):
            assert await dls.arun_worker(q, once=True, slots=slots) == 1
        assert await q.result(inv) == 4
        assert [round(b - a, 6) for a, b in itertools.pairwise(runs)] == [delay] * 3


async def test_a_failed_one_counts() -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        inv = await q.submit(Flaky(9))
        assert await dls.arun_worker(q, once=True) == 1
        assert (await q.get(inv)).state is dls.State.FAILED


async def test_it_returns_one_when_another_worker_takes_the_retry() -> None:
    body = dls.udf(Flaky(1), retries=1, retry_delay=1000.0, retry_cap=1000.0)
    returned: list[int] = []

    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        inv = await q.submit(body)

        async def once() -> None:
            returned.append(await dls.arun_worker(q, once=True))

        tasks.start_soon(once)
        while (await q.get(inv)).attempt == 0 or (await q.get(inv)).state is dls.State.RUNNING:
            await anyio.sleep(0.001)
        await tasks.start(functools.partial(dls.arun_worker, q, slots=4))
        with anyio.fail_after(5000):
            assert await q.result(inv) == 2
        while not returned:
            await anyio.sleep(1)
        assert returned == [1]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("what", ["kill", "pause"])
async def test_it_returns_when_its_retry_will_not_come(what: str) -> None:
    body = dls.udf(Flaky(1), retries=1, retry_delay=1000.0, retry_cap=1000.0)
    returned: list[int] = []

    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        inv = await q.submit(body)

        async def once() -> None:
            returned.append(await dls.arun_worker(q, once=True))

        tasks.start_soon(once)
        while (await q.get(inv)).attempt == 0 or (await q.get(inv)).state is dls.State.RUNNING:
            await anyio.sleep(0.001)
        if what == "kill":
            await q.kill(inv)
        else:
            await q.queues.pause("default")
        with anyio.fail_after(5000):
            while not returned:
                await anyio.sleep(1)
        assert returned == [1]


async def test_a_malformed_payload_and_an_unresolved_function_do_not_hold_it(tmp_path: Any) -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        host = q.host()
        inv = await q.submit(_one)
        host.known.clear()  # as if the submitter's objects were gone
        other = await q.submit(dls.udf(_one, name="other"))
        assert await dls.arun_worker(q, once=True) == 1
        assert await q.result(other) == 1
        assert (await q.get(inv)).state is dls.State.QUEUED
        assert (await q.get(inv)).attempts == ()
        assert await dls.arun_worker(q, once=True) == 0


async def test_killed_before_it_began_it_takes_another() -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        first, second = await q.submit_many(_one, [{}] * 2)
        await q.kill(first)
        assert await dls.arun_worker(q, once=True) == 1
        assert await q.result(second) == 1


async def test_cancelled_it_gives_its_work_back() -> None:
    begun = anyio.Event()

    async def sleeps() -> None:
        begun.set()
        await anyio.sleep(3600)

    async with dls.AsyncDispatch(":memory:") as q:
        inv = await q.submit(sleeps)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(dls.arun_worker, q, once=True))
            await begun.wait()
            tasks.cancel_scope.cancel()
        record = await q.get(inv)
        assert record.state is dls.State.QUEUED
        assert [attempt.outcome for attempt in record.attempts] == ["returned"]
        with contextlib.suppress(dls.Conflict):
            await q.kill(inv)
