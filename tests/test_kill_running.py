"""`kill(running=True)`: whoever is first wins, and a neighbour is never hit."""

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import lakeshore as dls

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def working(**options: Any) -> AsyncIterator[dls.AsyncDispatch]:
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, **options))
        yield q
        tasks.cancel_scope.cancel()


async def _one() -> int:
    return 1


async def test_a_running_body_is_cancelled_and_then_marked() -> None:
    log: list[str] = []
    begun = anyio.Event()

    async def body() -> None:
        begun.set()
        try:
            await anyio.sleep(3600)
        finally:
            await anyio.lowlevel.checkpoint()
            log.append("clean")

    async with working() as q:
        inv = await q.submit(body)
        await begun.wait()
        with pytest.raises(dls.Conflict, match="running"):
            await q.kill(inv)
        await q.kill(inv, running=True)
        assert log == ["clean"]
        record = await q.get(inv)
        assert record.state is dls.State.KILLED
        with pytest.raises(dls.InvocationKilled):
            await q.result(inv)
        await q.kill(inv, running=True)  # of a killed one: done already


async def test_a_body_that_swallows_the_cancel_and_succeeds_wins() -> None:
    begun = anyio.Event()

    async def body() -> str:
        begun.set()
        with contextlib.suppress(BaseException):
            await anyio.sleep(3600)
        return "anyway"

    async with working() as q:
        inv = await q.submit(body)
        await begun.wait()
        with pytest.raises(dls.Conflict):
            await q.kill(inv, running=True)
        assert await q.result(inv) == "anyway"
        assert await q.result(await q.submit(_one)) == 1


async def test_a_killed_body_that_fails_is_failed_and_not_retried() -> None:
    begun = anyio.Event()

    @dls.udf(retries=5, retry_delay=0.001)
    async def body() -> str:
        begun.set()
        try:
            await anyio.sleep(3600)
        except BaseException:
            raise ValueError("in cleanup") from None
        return ""

    async with working() as q:
        inv = await q.submit(body)
        await begun.wait()
        with pytest.raises(dls.Conflict):
            await q.kill(inv, running=True)
        record = await q.get(inv)
        assert record.state is dls.State.FAILED
        assert record.attempt == 1


@pytest.mark.parametrize("slots", [1, 4])
async def test_kills_at_the_very_moment_bodies_end(slots: int) -> None:
    hits: list[str] = []

    async def body(turns: int) -> int:
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        return turns

    async def neighbour() -> int:
        try:
            for _ in range(4):
                await anyio.lowlevel.checkpoint()
        except BaseException as error:
            hits.append(repr(error))
            raise
        return -1

    killed = survived = 0
    async with working(slots=slots) as q:
        for number in range(400):
            with anyio.fail_after(30):
                turns = number % 8
                inv = await q.submit(body, turns)
                ids = [await q.submit(neighbour) for _ in range(2)]
                for _ in range(number % 13):
                    await anyio.lowlevel.checkpoint()
                try:
                    await q.kill(inv, running=True)
                    killed += 1
                    assert (await q.get(inv)).state is dls.State.KILLED
                except dls.Conflict:
                    survived += 1
                    assert await q.result(inv) == turns
                assert [await q.result(one) for one in ids] == [-1, -1]
    assert hits == []
    assert killed
    assert survived


async def test_one_that_was_granted_and_not_begun_is_given_up() -> None:
    begun, release = anyio.Event(), anyio.Event()
    ran: list[int] = []

    async def first() -> None:
        begun.set()
        await release.wait()

    async def other(number: int) -> None:
        ran.append(number)

    async with working() as q:
        for inv in await q.submit_many(_one, [{}] * 20):  # short bodies: it may run ahead now
            await q.result(inv)
        head = await q.submit(first)
        ids = await q.submit_many(other, range(6))
        await begun.wait()
        for number, inv in enumerate(ids[:4]):
            await q.kill(inv, running=bool(number % 2))
            assert (await q.get(inv)).state is dls.State.KILLED
        release.set()
        await q.result(head)
        for inv in ids[4:]:
            await q.result(inv)
        assert ran == [4, 5]


async def test_kill_of_a_generator_closes_it_once_and_keeps_its_frames() -> None:
    log: list[str] = []

    async def body() -> AsyncIterator[int]:
        try:
            for number in range(1_000_000):
                yield number
                await anyio.sleep(0 if number < 3 else 3600)
        finally:
            log.append("closed")

    async with working() as q:
        inv = await q.submit(body)
        seen: list[int] = []
        with pytest.raises(dls.InvocationKilled):  # noqa: PT012
            async for frame in q.stream(inv):
                seen.append(frame.value)
                if frame.value == 3:
                    await q.kill(inv, running=True)
        assert seen == [0, 1, 2, 3]
        assert log == ["closed"]


async def test_a_sync_generator_is_closed_between_two_values() -> None:
    log: list[str] = []

    def body() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            log.append("closed")

    async with working() as q:
        inv = await q.submit(body)
        stream = q.stream(inv)
        assert (await anext(aiter(stream))).value == 0
        await q.kill(inv, running=True)
        assert log == ["closed"]
        await stream.aclose()
        assert await q.result(await q.submit(_one)) == 1


async def test_a_retry_that_comes_in_the_same_moment_as_a_kill() -> None:
    @dls.udf(retries=3, retry_delay=50.0)
    async def body(turns: int) -> None:
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        raise OSError

    async with working() as q:
        for number in range(100):
            inv = await q.submit(body, number % 5)
            for _ in range(number % 9):
                await anyio.lowlevel.checkpoint()
            with anyio.fail_after(10):
                while (await q.get(inv)).state is not dls.State.KILLED:
                    with contextlib.suppress(dls.Conflict):
                        await q.kill(inv)
