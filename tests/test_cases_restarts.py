"""A generator that fails halfway and is retried: every reader sees the same, on another worker too."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import lakeshore as dls

pytestmark = pytest.mark.anyio
FIRST, LATER = ["a1", "a2"], ["b1", "b2", "b3"]


def _fails() -> Iterator[str]:
    if dls.run.attempt == 1:
        yield from FIRST
        raise dls.Retry(after=0.05)
    yield from LATER


def _fails_and_is_shorter() -> Iterator[str]:
    if dls.run.attempt == 1:
        yield from FIRST
        raise dls.Retry(after=0.05)
    yield LATER[0]


async def _of(body: Any) -> AsyncIterator[str]:
    for value in body():
        await anyio.lowlevel.checkpoint()
        yield value


async def _async_fails() -> AsyncIterator[str]:
    async for value in _of(_fails):
        yield value


async def _async_fails_and_is_shorter() -> AsyncIterator[str]:
    async for value in _of(_fails_and_is_shorter):
        yield value


async def _is_cut_short() -> AsyncIterator[str]:
    """The first attempt yields, and waits until its worker goes."""
    for value in FIRST if dls.run.attempt == 1 else LATER:
        yield value
    if dls.run.attempt == 1:
        await anyio.sleep_forever()


@contextlib.asynccontextmanager
async def working(q: dls.AsyncDispatch, **options: Any) -> AsyncIterator[anyio.CancelScope]:
    async with anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, **options))
        yield tasks.cancel_scope
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("fn", [_fails, _fails_and_is_shorter, _async_fails, _async_fails_and_is_shorter])
async def test_every_reader_sees_the_same(address: str, fn: Any) -> None:
    later = LATER[:1] if "shorter" in fn.__name__ else LATER
    expected = [*((value, 1) for value in FIRST), *((value, 2) for value in later)]
    async with dls.AsyncDispatch(address) as q, working(q), anyio.create_task_group() as tasks:
        inv = await q.submit(dls.udf(fn, retries=1))
        views: dict[str, list[tuple[str, int]]] = {"from the start": [], "after the failure": [], "back": []}

        async def read(name: str, since: int = 0) -> None:
            async for frame in q.stream(inv, since=since):
                views[name].append((frame.value, frame.attempt))

        tasks.start_soon(read, "from the start")
        stopped = q.stream(inv)
        frame = await anext(aiter(stopped))
        views["back"].append((frame.value, frame.attempt))
        await stopped.aclose()
        with anyio.fail_after(20):
            while not (await q.get(inv)).attempts[0].outcome:  # noqa: ASYNC110
                await anyio.sleep(0.001)
        tasks.start_soon(read, "after the failure")
        assert await q.result(inv) is None
        await read("back", stopped.cursor)
    assert all(view == expected for view in views.values()), views


async def test_a_reader_follows_from_one_worker_to_the_next(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        async with working(q) as worker:
            inv = await q.submit(_is_cut_short)
            stream = q.stream(inv)
            frames = [await anext(aiter(stream)) for _ in FIRST]
            worker.cancel()
        async with working(q):
            assert await q.result(inv) is None
        frames += [frame async for frame in stream]
        expected = [*((value, 1) for value in FIRST), *((value, 2) for value in LATER)]
        assert [(frame.value, frame.attempt) for frame in frames] == expected
        assert [frame.seq for frame in frames] == list(range(len(expected)))
        assert [attempt.outcome for attempt in (await q.get(inv)).attempts] == ["returned", "succeeded"]
