"""Timeouts, deadlines and cut-offs, with a clock that jumps."""

import contextlib
import functools
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import lakeshore as dls

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual: Any) -> Any:
    return virtual


@contextlib.asynccontextmanager
async def working(**options: Any) -> AsyncIterator[dls.AsyncDispatch]:
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, **options))
        yield q
        tasks.cancel_scope.cancel()


async def _one() -> int:
    return 1


async def timed_out(q: dls.AsyncDispatch, inv: str) -> float:
    """Seconds until it ends, which must be by its timeout."""
    before = anyio.current_time()
    with anyio.fail_after(1000), pytest.raises(dls.InvocationTimeout):
        await q.result(inv)
    assert (await q.get(inv)).state is dls.State.TIMEOUT
    return anyio.current_time() - before


@pytest.mark.parametrize(
    ("cleanup", "ends", "took"),
    [
        (0.0, ["cancelled", "clean"], 10.0),
        (4.9, ["cancelled", "clean"], 14.9),
        (60.0, ["cancelled", "cancelled again"], 15.0),
    ],
)
async def test_a_body_is_cancelled_once_and_again_after_the_cleanup(
    cleanup: float, ends: list[str], took: float
) -> None:
    log: list[str] = []

    @dls.udf(timeout=10.0)
    async def body() -> None:
        try:
            await anyio.sleep(3600)
        finally:
            log.append("cancelled")
            try:
                for _ in range(10):
                    await anyio.sleep(cleanup / 10)
                    await anyio.lowlevel.checkpoint()
                log.append("clean")
            except anyio.get_cancelled_exc_class():
                log.append("cancelled again")
                raise

    async with working() as q:
        assert await timed_out(q, await q.submit(body)) == pytest.approx(took)
        assert log == ends
        assert await q.result(await q.submit(_one)) == 1


@pytest.mark.parametrize("wait", ["sleep", "checkpoint", "event", "thread", "group", "fail_after"])
async def test_the_cancel_reaches_every_kind_of_wait(wait: str) -> None:
    log: list[str] = []

    @dls.udf(timeout=10.0)
    async def body() -> None:
        try:
            while wait == "checkpoint":
                await anyio.lowlevel.checkpoint()
                if anyio.current_time() < 9:
                    await anyio.sleep(20)
            if wait == "event":
                await anyio.Event().wait()
            if wait == "group":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(anyio.sleep, 3600)
                    tasks.start_soon(anyio.sleep, 3600)
            if wait == "fail_after":
                with anyio.fail_after(100):
                    await anyio.sleep(3600)
            await anyio.sleep(3600)
        finally:
            await anyio.sleep(1)
            log.append("clean")

    async with working() as q:
        assert await timed_out(q, await q.submit(body)) == pytest.approx(11)
        assert log == ["clean"]


async def test_a_cancel_while_the_body_is_between_two_checkpoints() -> None:
    """On trio a checkpoint has a scope of its own, which must not swallow the cancel."""
    log: list[str] = []
    begun = anyio.Event()

    async def body() -> None:
        begun.set()
        try:
            while True:
                await anyio.lowlevel.checkpoint()
        finally:
            await anyio.sleep(1)
            log.append("clean")

    async with working() as q:
        for number in range(20):
            inv = await q.submit(body)
            await begun.wait()
            for _ in range(number):
                await anyio.lowlevel.checkpoint()
            before = anyio.current_time()
            await q.kill(inv, running=True)
            assert anyio.current_time() - before == pytest.approx(1)
            begun = anyio.Event()
    assert log == ["clean"] * 20


async def test_a_body_that_swallows_its_cancel() -> None:
    @dls.udf(timeout=10.0)
    async def returns() -> str:
        with contextlib.suppress(BaseException):
            await anyio.sleep(3600)
        return "late"

    @dls.udf(timeout=10.0)
    async def goes_on() -> str:
        for _ in range(2):
            with contextlib.suppress(BaseException):
                await anyio.sleep(3600)
        return "late"

    @dls.udf(timeout=10.0, retries=5)
    async def raises() -> str:
        try:
            await anyio.sleep(3600)
        except BaseException:
            raise ValueError("another") from None
        return ""

    async with working() as q:
        assert await timed_out(q, await q.submit(returns)) == pytest.approx(10)
        assert await timed_out(q, await q.submit(goes_on)) == pytest.approx(15)
        assert await timed_out(q, await q.submit(raises)) == pytest.approx(10)


async def test_the_next_job_of_the_slot_is_never_touched() -> None:
    @dls.udf(timeout=1.0)
    async def late() -> None:
        await anyio.sleep(1.0)  # ends at the very moment of its timeout

    @dls.udf(timeout=1.0)
    async def slow() -> None:
        await anyio.sleep(5)

    async def quick() -> int:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.5)
        return 1

    async with working() as q:
        for _ in range(100):
            ids = [await q.submit(fn) for fn in (late, quick, slow, quick)]
            assert await q.result(ids[1]) == 1
            assert await q.result(ids[3]) == 1
            assert (await q.get(ids[2])).state is dls.State.TIMEOUT
            assert (await q.get(ids[0])).state in (dls.State.TIMEOUT, dls.State.SUCCEEDED)


async def test_the_time_begins_with_the_body() -> None:
    @dls.udf(timeout=10.0)
    async def body() -> int:
        await anyio.sleep(9)
        return 1

    async with working() as q:
        ids = [await q.submit(body) for _ in range(5)]
        assert [await q.result(inv) for inv in ids] == [1] * 5


async def test_a_timeout_of_the_submit_outranks_the_bodys() -> None:
    @dls.udf(timeout=1000.0)
    async def body() -> None:
        await anyio.sleep(3600)

    async with working() as q:
        assert await timed_out(q, await q.submit(body, _timeout=3)) == pytest.approx(3)


async def test_a_group_that_a_timeout_cancels_is_a_timeout() -> None:
    @dls.udf(timeout=5.0)
    async def body() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.sleep, 3600)
            tasks.start_soon(anyio.sleep, 3600)

    async with working() as q:
        assert await timed_out(q, await q.submit(body)) == pytest.approx(5)


async def test_deadline_and_cutoff_while_queued() -> None:
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        await q.queues.add("cut", deadline_cutoff_s=20)
        ids = [
            await q.submit(_one, _deadline=5),
            await q.submit(dls.udf(_one, queue="cut")),
            await q.submit(dls.udf(_one, queue="cut"), _delay=30),
        ]
        ends: list[float] = []
        for inv in ids:
            with pytest.raises(dls.InvocationTimeout, match="not begun"):
                await q.result(inv)
            ends.append(round(anyio.current_time()))
        assert [end - ends[0] for end in ends] == [0, 15, 45]
        assert all([(await q.get(inv)).attempt == 0 for inv in ids])
        live = await q.submit(_one, _deadline=5)
        await tasks.start(functools.partial(dls.arun_worker, q))
        assert await q.result(live) == 1
        tasks.cancel_scope.cancel()


async def test_timers_of_ended_bodies_are_gone() -> None:
    @dls.udf(timeout=50.0)
    async def body() -> int:
        return 1

    async with working(slots=4) as q:
        for inv in await q.submit_many(body, [{}] * 200):
            await q.result(inv)
        before = anyio.current_time()
        await anyio.sleep(200)
        assert await q.result(await q.submit(_one)) == 1
        assert anyio.current_time() - before == pytest.approx(200)
