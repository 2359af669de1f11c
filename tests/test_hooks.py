"""`Hooks`: what runs beside bodies, and what its failing means."""

import functools
import threading
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import lakeshore as dls

pytestmark = pytest.mark.anyio


async def _one() -> int:
    return 1


def _sync() -> int:
    return 2


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_failed_host_setup_never_becomes_ready(kind: str) -> None:
    shut: list[int] = []

    def fails() -> None:
        raise OSError("no disk")

    async def fails_later() -> None:
        await anyio.lowlevel.checkpoint()
        raise OSError("no disk")

    async with dls.AsyncDispatch(":memory:") as q:
        inv = await q.submit(_one)
        hook = fails if kind == "plain" else fails_later
        hooks = dls.Hooks(on_host_setup=hook, on_shutdown=lambda: shut.append(1))
        with pytest.raises(OSError, match="no disk"):
            await dls.arun_worker(q, drain=True, hooks=hooks)
        assert (await q.get(inv)).attempt == 0
        assert await q.workers.list(ended=True) == []
        assert shut == []


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_the_order_of_hooks(kind: str) -> None:
    log: list[str] = []

    def plain(word: str, *args: Any) -> None:
        log.append(word)

    async def later(word: str, *args: Any) -> None:
        await anyio.lowlevel.checkpoint()
        log.append(word)

    def body() -> None:
        log.append("body")

    async def async_body() -> None:
        log.append("body")

    async with dls.AsyncDispatch(":memory:") as q:
        await q.submit(body if kind == "plain" else async_body)
        hook = plain if kind == "plain" else later
        hooks = dls.Hooks(*(functools.partial(hook, word) for word in ("host", "run", "shutdown")))
        assert await dls.arun_worker(q, drain=True, hooks=hooks) == 1
    assert log == ["host", "run", "body", "shutdown"]


@pytest.mark.parametrize("fn", [_one, _sync])
async def test_a_failed_run_setup_fails_that_invocation(fn: Any) -> None:
    seen: list[str] = []

    def setup(run: Any) -> None:
        seen.append(run.id)
        if len(seen) == 1:
            raise SystemExit("not this one")

    async with dls.AsyncDispatch(":memory:") as q:
        bad, good = await q.submit(fn), await q.submit(fn)
        assert await dls.arun_worker(q, drain=True, hooks=dls.Hooks(on_run_setup=setup)) == 2
        with pytest.raises(dls.InvocationFailed, match="not this one"):
            await q.result(bad)
        assert await q.result(good)
        assert seen == [bad, good]


async def test_a_coroutine_run_setup_and_a_body_on_a_thread() -> None:
    async def setup(run: Any) -> None:
        pass

    async with dls.AsyncDispatch(":memory:") as q:
        bad, good = await q.submit(_sync), await q.submit(_one)
        assert await dls.arun_worker(q, drain=True, hooks=dls.Hooks(on_run_setup=setup)) == 2
        with pytest.raises(dls.InvocationFailed, match="plain function"):
            await q.result(bad)
        assert await q.result(good) == 1


async def test_shutdown_runs_when_it_is_cancelled_too() -> None:
    log: list[str] = []

    async def shutdown() -> None:
        await anyio.lowlevel.checkpoint()
        log.append("shutdown")

    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, hooks=dls.Hooks(on_shutdown=shutdown)))
        tasks.cancel_scope.cancel()
    assert log == ["shutdown"]


def test_hooks_of_a_blocking_worker() -> None:
    for backend in ("asyncio", "trio"):
        log: list[Any] = []

        async def setup() -> None:
            log.append(threading.get_ident())  # noqa: B023

        with dls.Dispatch(":memory:", backend=backend) as q:
            inv = q.submit(_one)
            hooks = dls.Hooks(on_host_setup=setup, on_shutdown=functools.partial(log.append, "over"))
            assert dls.run_worker(q, once=True, hooks=hooks) == 1
            assert q.result(inv) == 1
        assert log == [threading.get_ident(), "over"]


async def test_wrong_arguments() -> None:
    async with dls.AsyncDispatch(":memory:") as q:
        wrong: dict[str, Any]
        for wrong in (
            {"slots": 0},
            {"runner": "moon"},
            {"grace": -1},
            {"grace": float("nan")},
            {"queues": ["Capital"]},
        ):
            with pytest.raises(ValueError, match=r"\w"):
                await dls.arun_worker(q, **wrong)
        for wrong in ({"slots": 1.5}, {"queues": "default"}):
            with pytest.raises(TypeError, match=r"\w"):
                await dls.arun_worker(q, **wrong)
        with pytest.raises(dls.WouldDeadlock, match="arun_worker"):
            dls.run_worker(q)
