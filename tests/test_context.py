"""C25: each body has its own copy of the context variables, and `dls.run`."""

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import lakeshore as dls

pytestmark = pytest.mark.anyio

JOB: ContextVar[str] = ContextVar("job", default="none")
USER: ContextVar[str] = ContextVar("user", default="nobody")
OUTSIDE: ContextVar[str] = ContextVar("outside", default="unset")


def _name_job(run: Any) -> None:
    assert USER.get() == "nobody"
    JOB.set(run.id)


@contextlib.asynccontextmanager
async def working(address: str = ":memory:", **options: Any) -> AsyncIterator[dls.AsyncDispatch]:
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        hooks = dls.Hooks(on_run_setup=_name_job)
        await tasks.start(functools.partial(dls.arun_worker, q, slots=8, hooks=hooks, **options))
        yield q
        tasks.cancel_scope.cancel()


def _sync(number: int) -> list[str]:
    before = USER.get()
    USER.set(str(number))
    return [JOB.get(), dls.run.id, before, USER.get()]


def _generator(number: int) -> Iterator[list[str]]:
    before = USER.get()
    USER.set(str(number))
    for _ in range(3):
        yield [JOB.get(), dls.run.id, before, USER.get()]


async def _async(number: int) -> list[str]:
    before = USER.get()
    USER.set(str(number))
    for _ in range(number % 4):
        await anyio.lowlevel.checkpoint()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_child, number)
    return [JOB.get(), dls.run.id, before, USER.get()]


async def _child(number: int) -> None:
    assert USER.get() == str(number)
    USER.set("child")


async def _async_generator(number: int) -> AsyncIterator[list[str]]:
    before = USER.get()
    USER.set(str(number))
    for _ in range(3):
        yield [JOB.get(), dls.run.id, before, USER.get()]
        await anyio.lowlevel.checkpoint()


async def test_a_thousand_jobs_over_eight_slots(address: str) -> None:
    bodies = [_sync, _generator, _async, _async_generator]
    async with working(address) as q:
        ids = [await q.submit(bodies[number % 4], number) for number in range(1000)]
        for number, inv in enumerate(ids):
            expected = [inv, inv, "nobody", str(number)]
            if number % 2:
                stream = q.stream(inv)
                async for frame in stream:
                    USER.set("the reader's")
                    assert frame.value == expected
                USER.set("nobody")
            else:
                assert await q.result(inv) == expected
    assert USER.get() == "nobody"
    assert not dls.run


@pytest.mark.parametrize("how", ["fails", "killed", "times out"])
async def test_nothing_leaks_after_a_bad_end(how: str) -> None:
    begun = anyio.Event()

    async def bad() -> None:
        USER.set("bad")
        begun.set()
        if how == "fails":
            raise ValueError
        await anyio.sleep(3600)

    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q))
        inv = await q.submit(dls.udf(bad), **({"_timeout": 0.01} if how == "times out" else {}))
        await begun.wait()
        if how == "killed":
            await q.kill(inv, running=True)
        with pytest.raises(dls.Unsuccessful):
            await q.result(inv)
        assert (await q.result(await q.submit(_async, 1)))[2] == "nobody"
        assert (await q.result(await q.submit(_sync, 1)))[2] == "nobody"
        tasks.cancel_scope.cancel()


async def test_bodies_see_what_the_worker_was_started_with() -> None:
    def sync() -> str:
        return OUTSIDE.get()

    async def async_() -> str:
        return OUTSIDE.get()

    token = OUTSIDE.set("given")
    try:
        async with working() as q:
            assert await q.result(await q.submit(sync)) == "given"
            assert await q.result(await q.submit(async_)) == "given"
    finally:
        OUTSIDE.reset(token)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_what_run_says(kind: str, tmp_path: Any) -> None:
    def look() -> list[Any]:
        run = dls.run
        return [
            run.id,
            run.attempt,
            run.queue,
            run.namespace,
            run.prefix,
            str(run.root),
            run.cancelled,
            bool(run),
        ]

    async def look_async() -> list[Any]:
        return look()

    async with dls.AsyncDispatch(":memory:", namespace="mine") as q:
        with dls.scope("scenes/0007"):
            inv = await q.submit(dls.udf(look if kind == "sync" else look_async, queue="looks"))
        assert await dls.arun_worker(q, once=True, root=tmp_path) == 1
        assert await q.result(inv) == [inv, 1, "looks", "mine", "scenes/0007", str(tmp_path), False, True]
    with pytest.raises(RuntimeError, match="inside a udf"):
        _ = dls.run.id


async def test_a_body_submits_children_to_its_own_plane() -> None:
    async def child() -> int:
        return 7

    async def parent() -> str:
        return await dls.udf(child).asubmit()

    def sync_parent() -> str:
        return dls.udf(child).submit()

    async with working() as q, dls.AsyncDispatch(":memory:"):
        for fn in (parent, sync_parent):
            inv = await q.submit(fn)
            made = await q.result(inv)
            assert await q.result(made) == 7
            assert (await q.get(made)).parent == inv
