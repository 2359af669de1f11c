"""Asynchronous bodies on the worker's own loop: whatever a body does, it fails alone."""

import asyncio
import contextlib
import functools
import gc
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio

import lakeshore as dls
from lakeshore.core.rows import Failure

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return ":memory:" if request.param == "memory" else str(tmp_path / "plane.db")


@contextlib.asynccontextmanager
async def working(address: str = ":memory:", **options: Any) -> AsyncIterator[dls.AsyncDispatch]:
    """A plane with a worker, which must still be alive at the end."""
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, **options))
        yield q
        assert await q.result(await q.submit(_alive)) == "alive"
        tasks.cancel_scope.cancel()


async def _alive() -> str:
    return "alive"


async def failure(q: dls.AsyncDispatch, fn: Any, *args: Any) -> dls.InvocationFailed:
    inv = await q.submit(fn, *args)
    with anyio.fail_after(30), pytest.raises(dls.InvocationFailed) as caught:
        await q.result(inv)
    return caught.value


def _sync(x: int) -> int:
    return 2 * x


def _generator(x: int) -> Iterator[int]:
    yield x
    yield x + 1
    return 2 * x


async def _async(x: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 2 * x


async def _async_generator(x: int) -> AsyncIterator[int]:
    yield x
    await anyio.lowlevel.checkpoint()
    yield x + 1


@pytest.mark.parametrize(
    ("fn", "result", "values"),
    [(_sync, 42, []), (_generator, 42, [21, 22]), (_async, 42, []), (_async_generator, None, [21, 22])],
)
async def test_four_kinds_of_body(
    address: str, fn: Callable[..., Any], result: Any, values: list[int]
) -> None:
    async with working(address) as q:
        inv = await q.submit(fn, 21)
        assert await q.result(inv) == result
        assert [value async for value in q.stream(inv).values()] == values
        assert (await q.get(inv)).state is dls.State.SUCCEEDED


async def test_what_only_looks_like_a_coroutine_function(anyio_backend_name: str) -> None:
    def wrapped(fn: Any) -> Any:
        @functools.wraps(fn)
        def wrapper(*args: Any) -> Any:
            return fn(*args)

        return wrapper

    class Call:
        async def __call__(self, x: int) -> int:
            return 2 * x

    class Later:
        def __await__(self) -> Any:
            yield from _async(4).__await__()
            return "later"

    @wrapped
    async def gives_a_coroutine(x: int) -> int:
        return await _async(x)

    @functools.wraps(_async)
    def gives_an_awaitable(x: int) -> Later:
        return Later()

    @functools.wraps(_async)
    def gives_a_value(x: int) -> int:
        return x

    @functools.wraps(_async)
    def stops(x: int) -> Any:
        raise StopIteration(x)

    async with working() as q:
        assert await q.result(await q.submit(gives_a_coroutine, 2)) == 4
        assert await q.result(await q.submit(Call(), 2)) == 4
        assert await q.result(await q.submit(functools.partial(_async, 3))) == 6
        assert await q.result(await q.submit(gives_an_awaitable, 2)) == "later"
        assert "await" in (await failure(q, gives_a_value, 2)).message
        assert (await failure(q, stops, 2)).type == "builtins.StopIteration"


class Odd(BaseException):
    pass


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class TwoArguments(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


ERRORS = {
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "GeneratorExit": GeneratorExit(),
    "Odd": Odd("odd"),
    "Unprintable": Unprintable(),
    "TwoArguments": TwoArguments(1, 2),
    "CancelledError": asyncio.CancelledError("mine"),
}


@pytest.mark.parametrize("name", ERRORS)
@pytest.mark.parametrize("kind", ["sync", "generator", "async", "async_generator"])
async def test_any_exception_fails_its_invocation_only(name: str, kind: str) -> None:
    error = ERRORS[name]

    def sync() -> None:
        raise error

    def generator() -> Iterator[int]:
        yield 1
        raise error

    async def async_() -> None:
        await anyio.lowlevel.checkpoint()
        raise error

    async def async_generator() -> AsyncIterator[int]:
        yield 1
        await anyio.lowlevel.checkpoint()
        raise error

    body = {"sync": sync, "generator": generator, "async": async_, "async_generator": async_generator}[kind]
    async with working() as q:
        failed = await failure(q, body)
        assert failed.type.endswith(name)
        assert failed.attempt == 1
        assert "lakeshore" not in failed.traceback.splitlines()[1]  # the user's own frame comes first


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_stop_iteration(kind: str) -> None:
    def sync() -> None:
        raise StopIteration(1)

    async def async_() -> None:
        raise StopIteration(1)

    async with working() as q:
        failed = await failure(q, sync if kind == "sync" else async_)
        assert "StopIteration" in f"{failed.type} {failed.message}"


async def test_a_body_that_awaits_a_cancelled_task_fails_and_the_next_one_runs(
    anyio_backend_name: str,
) -> None:
    async def asyncio_body() -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    async def trio_body() -> None:
        kept: list[BaseException] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep_forever()
            except trio.Cancelled as error:
                kept.append(error)
                raise
        raise kept.pop()

    async with working() as q:
        body = asyncio_body if anyio_backend_name == "asyncio" else trio_body
        assert "Cancelled" in (await failure(q, body)).type
        for _ in range(20):
            assert await q.result(await q.submit(_async, 1)) == 2


@pytest.mark.parametrize("how", ["unawaited", "awaited", "swallowed", "twice"])
async def test_a_body_that_cancels_its_own_asyncio_task(how: str, anyio_backend_name: str) -> None:
    """The task is the slot's: no such cancel may reach the next body or end the slot."""
    if anyio_backend_name != "asyncio":
        pytest.skip("about asyncio's own cancels")

    async def body() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if how == "awaited":
            await asyncio.sleep(60)
        if how in ("swallowed", "twice"):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
        if how == "twice":
            task.cancel()
        return "done"

    async def group() -> str:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asyncio.sleep(0))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        return "grouped"

    async with working() as q:
        for _ in range(5):
            if how == "awaited":
                assert "Cancelled" in (await failure(q, body)).type
            else:
                assert await q.result(await q.submit(body)) == "done"
            with anyio.fail_after(10):
                assert await q.result(await q.submit(group)) == "grouped"
        for _ in range(3):  # and so it is when the next body is stopped
            inv = await q.submit(body)
            if how == "awaited":
                with pytest.raises(dls.InvocationFailed):
                    await q.result(inv)
            else:
                await q.result(inv)
            await killed_while_running(q)


async def killed_while_running(q: dls.AsyncDispatch) -> None:
    begun = anyio.Event()

    async def sleeps() -> None:
        begun.set()
        await anyio.sleep(3600)

    inv = await q.submit(sleeps)
    with anyio.fail_after(10):
        await begun.wait()
        await q.kill(inv, running=True)


async def test_a_late_cancel_of_the_slots_task_while_it_is_idle(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("about asyncio's own cancels")

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_soon(task.cancel)

    async with working() as q:
        for _ in range(10):
            await q.result(await q.submit(body))
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            with anyio.fail_after(10):
                assert await q.result(await q.submit(_async, 1)) == 2


async def test_a_body_that_breaks_its_task_loses_no_job(caplog: pytest.LogCaptureFixture) -> None:
    """A cancel scope that is never left corrupts the task: the worker may end, but not in silence."""

    async def leaves_a_scope_open() -> str:
        anyio.CancelScope().__enter__()
        return "left"

    async with dls.AsyncDispatch(":memory:") as q:
        ids: list[str] = []
        with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
            async with anyio.create_task_group() as tasks:
                await tasks.start(functools.partial(dls.arun_worker, q))
                assert await q.result(await q.submit(leaves_a_scope_open)) == "left"
                await killed_while_running(q)
                ids = await q.submit_many(_async, range(20))
                with anyio.fail_after(10):
                    await q.result(ids[-1])
                raise KeyError("the slot was replaced")
        assert caught.value
        assert await dls.arun_worker(q, drain=True) in range(21)
        assert [await q.result(inv) for inv in ids] == [2 * x for x in range(20)]


async def test_a_group_says_the_real_error_first_and_keeps_its_leaves(anyio_backend_name: str) -> None:
    async def fails(error: str) -> None:
        raise ValueError(error)

    async def body() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fails, "one")

    async def many() -> None:
        raise ExceptionGroup("outer", [KeyError("a"), ExceptionGroup("inner", [OSError("b")])])

    async with working() as q:
        failed = await failure(q, body)
        assert str(failed).splitlines()[0] == "builtins.ValueError: one"
        assert [leaf.type for leaf in failed.failure.leaves] == ["builtins.ValueError"]
        failed = await failure(q, many)
        first = str(failed).splitlines()[0]
        assert "KeyError" in first
        assert "unhandled errors" not in first
        assert [leaf.type for leaf in failed.failure.leaves] == ["builtins.KeyError", "builtins.OSError"]


async def test_notes_causes_and_contexts_travel() -> None:
    async def body() -> None:
        try:
            try:
                raise OSError("root")
            except OSError:
                raise KeyError("middle")  # noqa: B904
        except KeyError as error:
            last = ValueError("top")
            last.add_note("a note")
            raise last from error

    async with working() as q:
        found: Failure | None = (await failure(q, body)).failure
        assert found is not None
        assert found.notes == ("a note",)
        chain: list[str] = []
        while found is not None:
            chain.append(found.type)
            found = found.cause
        assert chain == ["builtins.ValueError", "builtins.KeyError", "builtins.OSError"]


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


class Exits:
    """A class whose own code ends the program when it is looked at."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise SystemExit(1)


def _deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(300):
        found = [found]
    return found


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("what", ["socket", "lambda", "deep", "repr", "class", "nested", "set"])
async def test_a_result_that_cannot_travel(kind: str, what: str) -> None:
    runs: list[int] = []

    def make() -> Any:
        runs.append(1)
        if what == "socket":
            with socket.socket() as found:
                return found
        if what == "nested":
            return [1, 2, {"conn": lambda: None}]
        return {"lambda": lambda: None, "deep": _deep(), "repr": BadRepr(), "class": Exits()}.get(
            what, {BadRepr}
        )

    @dls.udf(retries=5, retry_delay=0.001)
    def sync() -> Any:
        return make()

    @dls.udf(retries=5, retry_delay=0.001)
    async def async_() -> Any:
        return make()

    async with working() as q:
        failed = await failure(q, sync if kind == "sync" else async_)
        if what not in ("deep", "class"):
            assert "the result" in failed.message
        if what == "nested":
            assert "[2]['conn']" in failed.message
        assert len(runs) == 1  # to run it again would not help


@pytest.mark.parametrize("kind", ["generator", "async_generator"])
async def test_a_third_item_that_cannot_travel_leaves_the_first_two_readable(address: str, kind: str) -> None:
    closed: list[str] = []

    @dls.udf(retries=3, retry_delay=0.001)
    def generator() -> Iterator[Any]:
        try:
            yield from (1, 2, lambda: None, 4)
        finally:
            closed.append("closed")

    @dls.udf(retries=3, retry_delay=0.001)
    async def async_generator() -> AsyncIterator[Any]:
        try:
            for value in (1, 2, lambda: None, 4):
                yield value
        finally:
            closed.append("closed")

    async with working(address) as q:
        inv = await q.submit(generator if kind == "generator" else async_generator)
        seen: list[Any] = []
        with pytest.raises(dls.InvocationFailed, match=r"yield\[2\]"):  # noqa: PT012
            async for frame in q.stream(inv):
                seen.append(frame.value)  # noqa: PERF401
        assert seen == [1, 2]
        assert closed == ["closed"]
        assert (await q.get(inv)).attempt == 1


async def test_a_frame_and_a_result_above_the_payload_limit() -> None:
    async def result() -> bytes:
        return bytes(5000)

    async def frames() -> AsyncIterator[bytes]:
        yield b"small"
        yield bytes(5000)

    def thread_frames() -> Iterator[bytes]:
        yield b"small"
        yield bytes(5000)

    async with dls.AsyncDispatch(":memory:", payload_limit=2000) as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q))
        assert (await failure(q, result)).type.endswith("PayloadTooLarge")
        for fn in (frames, thread_frames):
            inv = await q.submit(fn)
            with pytest.raises(dls.InvocationFailed, match="payload limit"):
                await q.result(inv)
            seen: list[bytes] = []
            with pytest.raises(dls.InvocationFailed):  # noqa: PT012
                async for frame in q.stream(inv):
                    seen.append(frame.value)  # noqa: PERF401
            assert seen == [b"small"]
        tasks.cancel_scope.cancel()


async def test_a_yielded_list_is_a_snapshot() -> None:
    async def body() -> AsyncIterator[list[Any]]:
        items: list[Any] = []
        for number in range(3):
            items.append(number)
            yield items
        items.append(lambda: None)

    def thread_body() -> Iterator[list[Any]]:
        items: list[Any] = []
        for number in range(3):
            items.append(number)
            yield items
        items.append(lambda: None)

    async with working() as q:
        for fn in (body, thread_body):
            inv = await q.submit(fn)
            assert [value async for value in q.stream(inv).values()] == [[0], [0, 1], [0, 1, 2]]


async def test_many_slots_run_at_once_and_never_more() -> None:
    now = most = 0

    async def body() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        now -= 1

    async with working(slots=8) as q:
        ids = await q.submit_many(body, [{}] * 200)
        for inv in ids:
            await q.result(inv)
    assert most == 8


async def test_ten_thousand_jobs_leave_nothing_behind() -> None:
    @dls.udf(timeout=3600)
    async def body(x: int) -> int:
        return x

    async with working(slots=8) as q:

        async def many(count: int) -> None:
            ids = await body.asubmit_many(range(count), _dispatch=q)
            assert await q.result(ids[-1]) == count - 1
            for inv in ids[-50:]:
                await q.result(inv)

        await many(500)
        before = _jobs_alive()
        await many(10_000)
        assert _jobs_alive() <= before + 64


def _jobs_alive() -> int:
    gc.collect()
    from lakeshore.core.bodies import Job
    from lakeshore.core.running import Running

    return sum(isinstance(found, Job | Running) for found in gc.get_objects())
