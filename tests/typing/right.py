"""What a type checker accepts in its strictest mode, and the types it finds. Checked, never run."""

import threading
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from types import CoroutineType
from typing import Any, assert_type

import anyio
import msgspec

import dreamlake.lakeshore as dreamlake_dls
import lakeshore as dls


class Point(msgspec.Struct):
    x: int = 0


# four kinds of body, bare and with options


@dls.udf
def sync(x: int, *, y: str = "") -> float:
    return x + len(y)


@dls.udf(retries=3, retry_on=(OSError, ValueError), timeout=1.5, name="counter", by="value")
def generator(n: int) -> Iterator[int]:
    yield n


@dls.udf(retry_delay=1, retry_cap=2, retry_on=lambda error: "busy" in str(error))
async def coroutine(x: int) -> str:
    return str(x)


@dls.udf(priority=1)
async def async_generator(x: int) -> AsyncIterator[Point]:
    yield Point(x)


# a plain call and `local` keep the shape

assert_type(sync(1, y="a"), float)
assert_type(sync.local(1), float)
assert_type(generator(1), Iterator[int])
assert_type(generator.local(n=1), Iterator[int])
_ = assert_type(coroutine(1), CoroutineType[Any, Any, str])
_ = assert_type(coroutine.local(x=1), CoroutineType[Any, Any, str])
assert_type(async_generator(1), AsyncIterator[Point])
assert_type(async_generator.local(1), AsyncIterator[Point])

# with a queue too

through = dls.udf(sync.fn, queue="q")
assert_type(through(1, y=""), float)
assert_type(dls.udf(generator.fn, queue="q")(1), Iterator[int])
_ = assert_type(dls.udf(coroutine.fn, queue="q")(1), CoroutineType[Any, Any, str])
assert_type(dls.udf(async_generator.fn, queue="q")(1), AsyncIterator[Point])
assert_type(dls.udf(partial(sync.fn, y="a"))(1), float)


@dls.udf(queue="q", runner="inline")
def decorated(x: int) -> bytes:
    return bytes(x)


assert_type(decorated(1), bytes)
assert_type(decorated.kind, str)
assert_type(decorated.queue, str | None)
assert_type(decorated.retries, int)

# submits: the body's own arguments, and Lakeshore's

assert_type(sync.submit(1, y="a"), str)
assert_type(generator.submit(n=1), str)
_ = assert_type(coroutine.submit(1), str)
assert_type(async_generator.submit(x=1), str)
sync.submit(x=1, _key="k", _strict_key=True)
sync.submit(1, _priority=2.0, _timeout=None)
sync.submit(1, _delay=3, _deadline=timedelta(hours=1))
sync.submit(1, _delay=datetime(2030, 1, 1, tzinfo=UTC))
assert_type(sync.submit_many([1, (2,), {"x": 3, "_key": "k"}]), list[str])


def blocking(inv: str) -> None:
    with dls.Dispatch(":memory:", backend="trio", sync="full", namespace="mine", retention=60) as q:
        assert_type(q, dls.Dispatch)
        assert_type(q.submit(sync, 1), str)
        assert_type(q.submit(len, [1]), str)
        assert_type(q.submit_many(sync, [1]), list[str])
        assert_type(sync.submit(1, _dispatch=q), str)
        assert_type(q.result(inv), Any)
        assert_type(q.result(inv, timeout=1), Any)
        assert_type(q.result(inv, type=Point), Point)
        assert_type(q.result(inv, type=list[Point], timeout=1), list[Point])
        assert_type(q.result(inv, type=dict[str, int]), dict[str, int])
        assert_type(q.get(inv), dls.Invocation)
        assert_type(q.get(inv).state, dls.State)
        assert_type(q.get(inv).attempts, tuple[dls.Attempt, ...])
        assert_type(q.stream(inv), dls.Stream[Any])
        points: dls.Stream[Point] = q.stream(inv, since=3)
        with points as stream:
            for frame in stream:
                assert_type(frame, dls.Frame[Point])
                assert_type(frame.value, Point)
                assert_type((frame.seq, frame.attempt, frame.at), tuple[int, int, float])
                assert_type(frame.time, datetime)
            assert_type(stream.cursor, int)
            assert_type(stream.values(restarts="keep"), Iterator[Point])
        assert_type(q.topic("news"), dls.Topic)
        assert_type(q.topic("news").post({"any": "thing"}), int)
        assert_type(q.topic("news").stream(since=1), dls.Stream[Any])
        assert_type(q.kill(inv, running=True), None)
        assert_type(q.retry(inv), str)
        assert_type(q.jobs.list(state=["failed", "killed"], limit=5), list[dls.Invocation])
        assert_type(q.jobs.list(state=dls.State.FAILED), list[dls.Invocation])
        assert_type(q.jobs.prune(older_than=timedelta(days=1)), int)
        assert_type(q.jobs.why(inv), list[str])
        assert_type(q.queues.add("a", kind="boltzmann", on_full="block", rate_limit="1/s"), dls.QueueInfo)
        assert_type(q.queues.add("b", elasticity="max_count", max=3), dls.QueueInfo)
        assert_type(q.queues.patch("a", description="", max_depth=None, retention=None), dls.QueueInfo)
        assert_type(q.queues.stats("a"), dls.QueueStats)
        assert_type(q.queues.rm("a", force=True), dls.Removed)
        assert_type(q.queues.events("a", limit=5, verbose=True), list[dls.Event])
        assert_type(q.jobs.list(before=inv, worker="w"), list[dls.Invocation])
        assert_type(q.workers.list(), list[dls.WorkerInfo])
        assert_type((q.workers.show("w"), q.workers.drain("w")), tuple[dls.WorkerInfo, dls.WorkerInfo])
        assert_type(q.workers.remove("w"), dls.WorkerInfo)
        assert_type(q.providers.add("gpu", kind="slurm", config={"x": 1}, max=3), dls.ProviderInfo)
        assert_type(q.providers.patch("gpu", max=None), dls.ProviderInfo)
        assert_type(
            (q.providers.list(), q.providers.show("gpu")), tuple[list[dls.ProviderInfo], dls.ProviderInfo]
        )
        assert_type(q.providers.remove("gpu"), dls.ProviderInfo)
        assert_type(q.tokens.create("read", namespace="n", name="x"), dls.NewToken)
        assert_type(q.tokens.list("n"), list[dls.TokenInfo])
        assert_type(q.tokens.remove("x"), dls.TokenInfo)
        assert_type(q.status(), dls.PlaneStatus)
        assert_type(q.topics.list(), list[dls.TopicInfo])
        hooks = dls.Hooks(on_host_setup=lambda: None, on_run_setup=lambda run: print(run.id))
        stop = threading.Event()
        assert_type(dls.run_worker(q, queues=["a"], slots=2, hooks=hooks, stop=stop), int)


async def asynchronous(inv: str) -> None:
    async with dls.AsyncDispatch(":memory:", sync="normal") as q, anyio.create_task_group() as tasks:
        await tasks.start(dls.arun_worker, q)
        tasks.start_soon(partial(dls.arun_worker, q, once=True))
        assert_type(await dls.arun_worker(q, drain=True, stop=anyio.Event()), int)
        assert_type(await q.submit(sync, 1), str)
        assert_type(await sync.asubmit(1, y=""), str)
        assert_type(await coroutine.asubmit(1, _key="k", _dispatch=q), str)
        assert_type(await async_generator.asubmit_many([1], _dispatch=q), list[str])
        assert_type(await coroutine(1), str)
        async for point in async_generator(1):
            assert_type(point, Point)
        assert_type(await q.result(inv), Any)
        assert_type(await q.result(inv, type=Point, timeout=1.5), Point)
        assert_type(await q.result(inv, type=list[Point]), list[Point])
        assert_type(await q.get(inv), dls.Invocation)
        assert_type(q.stream(inv), dls.AsyncStream[Any])
        points: dls.AsyncStream[Point] = q.stream(inv)
        async with points:
            async for frame in points:
                assert_type(frame, dls.Frame[Point])
            async for value in points.values():
                assert_type(value, Point)
        assert_type(await q.topic("news").post(1), int)
        assert_type(q.topic("news").stream(), dls.AsyncStream[Any])
        assert_type(await q.queues.add("a", kind="filo", elasticity="fixed", min=1), dls.QueueInfo)
        assert_type(await q.queues.patch("a", on_full="reject", max_depth=None, min=2), dls.QueueInfo)
        assert_type(await q.jobs.bulk_cancel(), int)
        assert_type(await q.queues.events("a"), list[dls.Event])
        assert_type(await q.workers.drain("w"), dls.WorkerInfo)
        assert_type(await q.providers.add("gpu", kind="local"), dls.ProviderInfo)
        assert_type((await q.tokens.create("admin")).token, str)
        assert_type(await q.status(), dls.PlaneStatus)


def errors(inv: str, q: dls.Dispatch) -> None:
    try:
        q.result(inv)
    except dls.InvocationFailed as error:
        assert_type((error.type, error.message, error.traceback), tuple[str, str, str])
        assert_type((error.id, error.attempt, error.notes), tuple[str, int, tuple[str, ...]])
    except (dls.InvocationKilled, dls.InvocationTimeout) as error:
        assert_type(error.message, str)
    except dls.QueueFull as error:
        assert_type(error.retry_after, float | None)
    except dls.KeyConflict as error:
        assert_type(error.id, str)
    except dls.SubmitErrors as error:
        assert_type(error.ids, list[str | None])
        assert_type(error.errors, dict[int, Exception])
    except dls.Gap as error:
        assert_type((error.since, error.first), tuple[int, int])
    except dls.StreamRestarted as error:
        assert_type(error.attempt, int)


@dls.udf
def inside() -> list[str | int | bool]:
    with dls.scope("a/b", root="/") as prefix:
        assert_type(prefix, str)
    if dls.run.attempt > 3:
        raise dls.Retry(after=2.5)
    return [dls.run.id, dls.run.attempt, dls.run.queue, dls.run.cancelled]


# both names are the same types

assert_type(dreamlake_dls.Dispatch(":memory:"), dls.Dispatch)


@dreamlake_dls.udf
def by_the_other_name(x: int) -> str:
    return str(x)


assert_type(by_the_other_name.submit(1), str)
assert_type(by_the_other_name(1), str)
