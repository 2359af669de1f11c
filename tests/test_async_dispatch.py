"""`AsyncDispatch`: the plane inside the program's own loop, leaving nothing behind."""

import asyncio
import gc
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
from planes import PATIENCE, elsewhere

import lakeshore as dls
from lakeshore.sdk import aio
from lakeshore.sdk import dispatch as blocking
from lakeshore.testing import virtual_backend

pytestmark = pytest.mark.anyio


@dls.udf
async def f(x: int = 1) -> int:
    await anyio.lowlevel.checkpoint()
    return x + 1


@dls.udf
def on_a_thread(x: int) -> int:
    return x + 1


def tasks_now(backend: Any) -> int:
    if backend == "asyncio":
        return len(asyncio.all_tasks())
    return sum(1 for task in _all_trio_tasks(trio.lowlevel.current_root_task()))


def _all_trio_tasks(task: Any) -> Any:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _all_trio_tasks(child)


async def test_no_thread_and_no_task_is_left(address: str, anyio_backend: str) -> None:
    threads, tasks = set(threading.enumerate()), tasks_now(anyio_backend)
    async with dls.AsyncDispatch(address) as q:
        ids = [await f.asubmit(1), await on_a_thread.asubmit(2)]
        await dls.arun_worker(q, drain=True)
        assert [await q.result(inv) for inv in ids] == [2, 3]
        assert [frame async for frame in q.stream(ids[0])] == []
    assert tasks_now(anyio_backend) == tasks
    for thread in set(threading.enumerate()) - threads:
        if thread.name.startswith("Trio thread"):  # of pytest's runner, which is a guest of its loop
            continue
        thread.join(PATIENCE)  # one that is ending is fine
        assert not thread.is_alive(), thread


async def test_an_error_in_the_block_comes_out_as_it_is(address: str) -> None:
    async def block() -> None:
        async with dls.AsyncDispatch(address) as q:
            await f.asubmit(_dispatch=q)
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await block()


async def test_a_cancelled_block_closes_its_plane(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        async with dls.AsyncDispatch(tmp_path / "plane.db") as q:
            inv = await f.asubmit()
            scope.cancel()
            await anyio.sleep_forever()
    async with dls.AsyncDispatch(tmp_path / "plane.db") as q:
        assert (await q.get(inv)).state == "queued"


async def test_the_worker_ends_with_its_plane(address: str) -> None:
    ran: list[int] = []

    async def work(q: dls.AsyncDispatch, *, task_status: Any) -> None:
        ran.append(await dls.arun_worker(q, task_status=task_status))

    async with anyio.create_task_group() as tasks, dls.AsyncDispatch(address) as q:
        await tasks.start(work, q)
        assert await q.result(await f.asubmit(1)) == 2
    assert ran == [1]


async def test_it_is_entered_once(address: str) -> None:
    q = dls.AsyncDispatch(address)
    with pytest.raises(RuntimeError, match="async with"):
        await q.jobs.list()
    async with q:
        with pytest.raises(RuntimeError, match="entered once"):
            await q.__aenter__()
    await q.aclose()
    with pytest.raises(dls.PlaneClosed):
        await q.jobs.list()
    with pytest.raises(RuntimeError, match="entered once"):
        await q.__aenter__()


async def test_waits_that_run_out(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        inv = await f.asubmit()
        for timeout in (0.01, 0, -1):
            with pytest.raises(TimeoutError, match="goes on"):
                await q.result(inv, timeout=timeout)
        with anyio.move_on_after(0.01) as scope:
            await q.result(inv)
        assert scope.cancelled_caught
        await dls.arun_worker(q, once=True)
        assert await q.result(inv, timeout=0) == 2


@pytest.mark.parametrize("name", ["Dispatch", "Topic", "Queues", "Jobs", "Workers", "Topics"])
def test_every_verb_has_its_twin(name: str) -> None:
    face, native = getattr(blocking, name), getattr(aio, "Async" + name)
    verbs = {verb for verb in vars(face) if not verb.startswith("_")} - {"close"}
    for verb in verbs:
        ours, theirs = (inspect.signature(getattr(kind, verb)) for kind in (face, native))
        assert list(ours.parameters.values()) == list(theirs.parameters.values()), verb
    assert verbs


async def test_a_blocking_face_may_join_from_a_thread(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"

    def in_a_thread(inv: str) -> tuple[int, str]:
        with dls.Dispatch(path) as joined:
            return joined.result(inv, timeout=PATIENCE), f.submit(5, _dispatch=joined)

    async with dls.AsyncDispatch(path) as q, anyio.create_task_group() as tasks:
        await tasks.start(dls.arun_worker, q)
        result, inv = await anyio.to_thread.run_sync(in_a_thread, await f.asubmit(1))
        assert result == 2
        assert await q.result(inv) == 6
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("other", ["asyncio", "trio"])
async def test_a_native_face_may_join_from_another_loop(tmp_path: Path, other: str) -> None:
    path = tmp_path / "plane.db"

    async def there(inv: str) -> tuple[int, list[int], str]:
        async with dls.AsyncDispatch(path) as joined:
            with anyio.move_on_after(0.01):
                await joined.result(never)
            values = [frame.value async for frame in joined.stream(stream)]
            return await joined.result(inv), values, await f.asubmit(5, _dispatch=joined)

    async with dls.AsyncDispatch(path) as q, anyio.create_task_group() as tasks:
        never = await f.asubmit(0, _delay=3600)
        stream = await q.submit(three)
        await tasks.start(dls.arun_worker, q)
        inv = await f.asubmit(1)
        result, values, late = await anyio.to_thread.run_sync(lambda: anyio.run(there, inv, backend=other))
        assert (result, values) == (2, [0, 1, 2])
        assert await q.result(late) == 6
        tasks.cancel_scope.cancel()


def three():
    yield from range(3)


async def test_the_host_may_leave_before_those_who_joined(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    joined = dls.Dispatch(path)
    async with dls.AsyncDispatch(path) as q:
        inv = await f.asubmit(1, _dispatch=q)
        assert await anyio.to_thread.run_sync(lambda: joined.get(inv).state) == "queued"
        with elsewhere(joined.result, inv) as waiting:
            await anyio.to_thread.run_sync(joined.jobs.list)
            await q.aclose()
            with pytest.raises(dls.PlaneClosed):
                waiting.result(PATIENCE)
    with joined:  # opens it anew
        assert joined.get(inv).state == "queued"
    assert not [thread for thread in threading.enumerate() if "lakeshore plane" in thread.name]


async def test_the_last_to_leave_ends_the_thread_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    first = dls.Dispatch(path)
    first.jobs.list()
    async with dls.AsyncDispatch(path) as q:
        first.close()
        inv = await f.asubmit(1, _dispatch=q)
    assert not [thread for thread in threading.enumerate() if "lakeshore plane" in thread.name]
    async with dls.AsyncDispatch(path) as q:
        assert (await q.get(inv)).state == "queued"


async def test_planes_of_one_path_opened_by_many_tasks(tmp_path: Path) -> None:
    path, ids = tmp_path / "plane.db", list[str]()

    async def open_one() -> None:
        async with dls.AsyncDispatch(path) as q:
            ids.append(await f.asubmit(_dispatch=q))
            await entered.wait()

    entered = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(open_one)
        while len(ids) < 5:
            await anyio.lowlevel.checkpoint()
        entered.set()
    async with dls.AsyncDispatch(path) as q:
        assert {job.id for job in await q.jobs.list()} == set(ids)


async def test_two_memory_planes_in_one_program() -> None:
    async with dls.AsyncDispatch(":memory:") as one, dls.AsyncDispatch(":memory:") as two:
        inv = await f.asubmit()
        assert (await two.get(inv)).queue == "default"
        with pytest.raises(dls.NotFound):
            await one.get(inv)


async def test_a_body_gets_its_face(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        inv = await parent.asubmit()
        await dls.arun_worker(q, drain=True)
        child = await q.result(inv)
        assert await q.result(child) == 8
        assert (await q.get(child)).parent == inv


@dls.udf
async def parent() -> str:
    return await f.asubmit(7)


# a virtual clock: delays, cutoffs and rates of hours take no time


class TestVirtualTime:
    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(self, request: pytest.FixtureRequest) -> Any:
        return virtual_backend(request.param)

    async def run(self, check: Callable[[dls.AsyncDispatch], Awaitable[None]]) -> None:
        async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
            await tasks.start(dls.arun_worker, q)
            await check(q)
            tasks.cancel_scope.cancel()

    async def test_a_delay(self) -> None:
        async def check(q: dls.AsyncDispatch) -> None:
            began = anyio.current_time()
            assert await q.result(await f.asubmit(1, _delay=3600)) == 2
            assert anyio.current_time() - began == pytest.approx(3600, abs=1)

        await self.run(check)

    async def test_a_deadline_before_its_turn(self) -> None:
        async def check(q: dls.AsyncDispatch) -> None:
            await q.queues.pause("default")
            inv = await f.asubmit(1, _deadline=600)
            began = anyio.current_time()
            with pytest.raises(dls.InvocationTimeout, match="deadline"):
                await q.result(inv)
            assert anyio.current_time() - began == pytest.approx(600, abs=1)

        await self.run(check)

    async def test_a_deadline_cutoff(self) -> None:
        async def check(q: dls.AsyncDispatch) -> None:
            await q.queues.add("cut", deadline_cutoff_s=100)
            await q.queues.pause("cut")
            body = dls.udf(f.fn, queue="cut")
            began = anyio.current_time()
            now, later = await body.asubmit(), await body.asubmit(_delay=1000)
            with pytest.raises(dls.InvocationTimeout):
                await q.result(now)
            assert anyio.current_time() - began == pytest.approx(100, abs=1)
            with pytest.raises(dls.InvocationTimeout):
                await q.result(later)
            assert anyio.current_time() - began == pytest.approx(1100, abs=2)

        await self.run(check)

    async def test_a_rate_limit_spreads_blocked_submits(self) -> None:
        async def check(q: dls.AsyncDispatch) -> None:
            await q.queues.add("slow", rate_limit="6/m", on_full="block")
            body = dls.udf(f.fn, queue="slow")
            began = anyio.current_time()
            times = []
            for _ in range(4):
                await body.asubmit()
                times.append(anyio.current_time() - began)
            assert times == pytest.approx([0, 10, 20, 30], abs=1)

        await self.run(check)

    async def test_a_timeout_runs_once(self) -> None:
        async def check(q: dls.AsyncDispatch) -> None:
            began = anyio.current_time()
            inv = await q.submit(sleeper, _timeout=1800)
            with pytest.raises(dls.InvocationTimeout):
                await q.result(inv)
            assert anyio.current_time() - began == pytest.approx(1800, abs=1)
            assert len((await q.get(inv)).attempts) == 1

        await self.run(check)


async def sleeper() -> None:
    await anyio.sleep_forever()


async def test_a_closed_plane_leaves_memory_with_what_was_queued(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        await q.submit_many(f, [(number,) for number in range(10)])
        await q.queues.add("blocked", max_depth=1, on_full="block")
        await q.submit(dls.udf(f.fn, queue="blocked"), 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(q.submit, dls.udf(f.fn, queue="blocked"), 2)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        plane = weakref.ref(q.host().plane)
        queue = weakref.ref(q.host().hosted.head.space("default").queues["blocked"])
    del q
    gc.collect()
    assert plane() is None
    assert queue() is None
