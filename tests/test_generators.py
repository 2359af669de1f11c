"""Generator bodies: closed once, held back by the store alone, and their frames in order."""

import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import lakeshore as dls
from lakeshore.sdk import residence
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.faults import FaultyStore

pytestmark = pytest.mark.anyio

KINDS = ["generator", "async_generator"]


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> list[FaultyStore]:
    """The store of each plane in memory, whose commits can be held back."""
    made: list[FaultyStore] = []

    def make(limit: int) -> FaultyStore:
        made.append(FaultyStore(MemoryStore(limit)))
        return made[-1]

    monkeypatch.setattr(residence, "MemoryStore", make)
    return made


@contextlib.asynccontextmanager
async def working(**options: Any) -> AsyncIterator[dls.AsyncDispatch]:
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, **options))
        with anyio.fail_after(30):
            yield q
        tasks.cancel_scope.cancel()


class Counter:
    """Yields numbers, or bytes of a size, and counts them; may pause between two."""

    def __init__(self, count: int, size: int = 0, pause: Callable[[], Any] | None = None) -> None:
        self.count, self.size, self.pause = count, size, pause
        self.made = self.closed = 0
        self.begun, self.gate = threading.Event(), threading.Event()
        self.gate.set()

    def value(self, number: int) -> Any:
        self.made += 1
        return bytes(self.size) if self.size else number

    def generator(self) -> Iterator[Any]:
        self.begun.set()
        self.gate.wait()
        try:
            for number in range(self.count):
                yield self.value(number)
        finally:
            self.closed += 1

    async def async_generator(self) -> AsyncIterator[Any]:
        self.begun.set()
        await anyio.to_thread.run_sync(self.gate.wait)
        try:
            for number in range(self.count):
                yield self.value(number)
                if self.pause is not None:
                    await self.pause()
        finally:
            self.closed += 1


async def quiet(counter: Counter) -> None:
    """Wait until a body makes nothing more."""
    last = -1
    while counter.made != last:
        last = counter.made
        await anyio.sleep(0.05)


@pytest.mark.parametrize("size", [0, 10_000, 1 << 20])
@pytest.mark.parametrize("kind", [*KINDS, "pausing"])
async def test_a_body_runs_ahead_of_commits_only_so_far(
    stores: list[FaultyStore], kind: str, size: int
) -> None:
    counter = Counter(3000 if size < 1 << 20 else 40, size)
    if kind == "pausing":
        counter.pause = anyio.lowlevel.checkpoint
    counter.gate.clear()
    async with working() as q:
        await q.submit(_one)
        inv = await q.submit(counter.generator if kind == "generator" else counter.async_generator)
        await anyio.to_thread.run_sync(counter.begun.wait)
        stores[0].hold = True
        counter.gate.set()
        await quiet(counter)
        held = counter.made
        assert 0 < held <= 1024 if not size else held * size <= (4 << 20) + 2 * size + 262_144
        for _ in range(3):
            before = counter.made
            stores[0].release()
            await quiet(counter)
            assert counter.made - before <= 2 * 1024
        stores[0].hold = False
        stores[0].release()
        seen = [frame.seq async for frame in q.stream(inv)]
        assert seen == list(range(counter.count))
        assert counter.closed == 1


async def _one() -> int:
    return 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_slow_reader_loses_nothing_and_slows_nobody(kind: str) -> None:
    """C11: the body waits for commits, never for a reader."""
    counter = Counter(20_000)
    async with working() as q:
        inv = await q.submit(counter.generator if kind == "generator" else counter.async_generator)
        slow, stopped = q.stream(inv), q.stream(inv)
        assert (await anext(aiter(slow))).value == 0
        assert (await anext(aiter(stopped))).value == 0  # and is never read again
        fast = [frame.value async for frame in q.stream(inv)]
        assert fast == list(range(20_000))
        await q.result(inv)
        assert counter.made == 20_000
        rest: list[Any] = []
        async for frame in slow:
            rest.append(frame.value)
            if len(rest) % 500 == 0:
                await anyio.lowlevel.checkpoint()
        assert rest == list(range(1, 20_000))
        await stopped.aclose()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["end", "error", "kill", "timeout", "drain", "unserializable"])
async def test_closed_exactly_once_on_every_way_out(kind: str, how: str) -> None:
    closed: list[str] = []
    begun = anyio.Event()

    def step(number: int) -> Any:
        if number == 2 and how == "end":
            return StopIteration
        if number == 2 and how == "error":
            raise ValueError
        return object() if number == 2 and how == "unserializable" else number

    def generator() -> Iterator[Any]:
        try:
            number = 0
            while (value := step(number)) is not StopIteration:
                yield value
                number += 1
        finally:
            closed.append("closed")

    async def async_generator() -> AsyncIterator[Any]:
        try:
            number = 0
            while (value := step(number)) is not StopIteration:
                yield value
                number += 1
                await anyio.sleep(0.001)
        finally:
            await anyio.lowlevel.checkpoint()
            closed.append("closed")

    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        stop, over = anyio.Event(), anyio.Event()

        async def run() -> None:
            await dls.arun_worker(q, stop=stop, grace=0)
            over.set()

        tasks.start_soon(run)
        body = dls.udf(generator if kind == "generator" else async_generator)
        inv = await q.submit(body, **({"_timeout": 0.05} if how == "timeout" else {}))
        with anyio.fail_after(20):
            stream = q.stream(inv)
            assert (await anext(aiter(stream))).value == 0
            begun.set()
            if how == "kill":
                await q.kill(inv, running=True)
            if how == "drain":
                stop.set()
                await over.wait()
                assert (await q.get(inv)).state is dls.State.QUEUED
            elif how == "end":
                assert await q.result(inv) is None
            else:
                with pytest.raises(dls.Unsuccessful):
                    await q.result(inv)
            await stream.aclose()
        assert closed == ["closed"]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", KINDS)
async def test_every_frame_comes_before_the_end(kind: str) -> None:
    async with working(slots=4) as q:
        for count in (0, 1, 63, 64, 65, 129, 1500):
            counter = Counter(count)
            inv = await q.submit(counter.generator if kind == "generator" else counter.async_generator)
            assert [frame.value async for frame in q.stream(inv)] == list(range(count))


async def test_a_frame_comes_at_once_though_the_body_goes_on() -> None:
    go_on = anyio.Event()

    async def body() -> AsyncIterator[int]:
        yield 1
        await go_on.wait()
        yield 2

    async with working() as q:
        inv = await q.submit(body)
        stream = q.stream(inv)
        assert (await anext(aiter(stream))).value == 1
        go_on.set()
        assert [frame.value async for frame in stream] == [2]


async def test_a_generator_that_will_not_close() -> None:
    async def stubborn() -> AsyncIterator[int]:
        try:
            yield 1
            raise ValueError
        finally:
            yield 2

    def thread_stubborn() -> Iterator[Any]:
        try:
            yield object()
        finally:
            yield 2

    async with working() as q:
        for fn in (stubborn, thread_stubborn):
            with pytest.raises(dls.InvocationFailed):
                await q.result(await q.submit(fn))
        assert await q.result(await q.submit(_one)) == 1
