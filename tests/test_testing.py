"""What `lakeshore.testing` gives to users: the clock that jumps and the pytest plugin."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

import lakeshore as dls
from lakeshore.testing import virtual_backend

pytest_plugins = ["pytester"]


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return virtual_backend(request.param)


@pytest.mark.anyio
async def test_an_hour_passes_at_once_and_exactly() -> None:
    real, start = time.monotonic(), anyio.current_time()
    await anyio.sleep(3600)
    assert anyio.current_time() - start == pytest.approx(3600)
    assert time.monotonic() - real < 60


@pytest.mark.anyio
async def test_deadlines_come_in_order() -> None:
    order: list[int] = []

    async def wake(seconds: int) -> None:
        await anyio.sleep(seconds)
        order.append(seconds)

    async with anyio.create_task_group() as tasks:
        for seconds in (300, 100, 200):
            tasks.start_soon(wake, seconds)
    assert order == [100, 200, 300]


@dls.udf(timeout=60)
async def slow(seconds: float) -> float:
    await anyio.sleep(seconds)
    return seconds


@dls.udf(retries=5, retry_delay=100)
async def third_time() -> int:
    if dls.run.attempt < 3:
        raise ValueError("not yet")
    return dls.run.attempt


@pytest.mark.anyio
async def test_a_plane_lives_by_the_virtual_clock() -> None:
    async with dls.AsyncDispatch(":memory:") as q, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: dls.arun_worker(q, slots=3))
        late = await q.submit(slow, 3600)
        in_time = await q.submit(slow, 30)
        retried = await q.submit(third_time)
        delayed = await q.submit(slow, 5, _delay=7200)
        with pytest.raises(dls.InvocationTimeout, match="longer than its timeout of 60 s"):
            await q.result(late)
        assert [await q.result(inv) for inv in (in_time, retried, delayed)] == [30, 3, 5]
        tasks.cancel_scope.cancel()


def test_the_plugin_gives_planes_on_both_loops(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_user="""
        import anyio
        import pytest
        import lakeshore as dls

        @dls.udf
        async def nap(seconds):
            await anyio.sleep(seconds)
            return seconds

        @dls.udf
        def double(x):
            return 2 * x

        @pytest.fixture
        def anyio_backend(lakeshore_virtual_backend):
            return lakeshore_virtual_backend

        def test_blocking(lakeshore_dispatch):
            inv = double.submit(21)
            assert dls.run_worker(lakeshore_dispatch, once=True) == 1
            assert lakeshore_dispatch.result(inv) == 42

        @pytest.mark.anyio
        async def test_native(lakeshore_plane):
            inv = await nap.asubmit(1000)
            assert await dls.arun_worker(lakeshore_plane, once=True) == 1
            assert await lakeshore_plane.result(inv) == 1000
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=3)
