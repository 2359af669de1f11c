"""A bug that ends a plane: everybody is told, and the plane can be opened again at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import lakeshore as dls
from lakeshore.core.peer import Peer
from lakeshore.core.queue import Queue


@dls.udf
def double(x: int) -> int:
    return 2 * x


@pytest.fixture
def bug() -> Iterator[None]:
    """`queues.ls` meets a bug in an actor."""
    describe = Queue.describe

    def broken(self: Queue) -> Any:
        raise RuntimeError("a bug planted by the test")

    Queue.describe = broken
    yield
    Queue.describe = describe


def fail(q: dls.Dispatch) -> None:
    with pytest.raises(dls.InternalError, match="a bug planted by the test"):
        q.queues.ls()


def test_all_who_wait_are_told_and_the_path_opens_anew(tmp_path: Path, backend: Any, bug: None) -> None:
    path = tmp_path / "plane.db"
    first = dls.Dispatch(path, backend=backend)
    inv = first.submit(double, 21)
    waits = threading.Event()
    errors: list[Exception] = []

    def wait() -> None:
        with first.stream(inv) as stream:
            waits.set()
            try:
                list(stream)
            except dls.PlaneFailed as error:
                errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    waits.wait()
    fail(first)
    waiting.join(30)
    assert not waiting.is_alive()
    with dls.Dispatch(path, backend=backend) as second:  # the same process, at once
        assert dls.run_worker(second, once=True) == 1
        assert second.result(inv) == 42
    first.close()


def test_a_memory_plane_that_failed_says_so(backend: Any, bug: None) -> None:
    with dls.Dispatch(":memory:", backend=backend) as q:
        inv = q.submit(double, 21)
        fail(q)
        with pytest.raises(dls.Refused, match=r"ended on a bug|was closed"):
            q.get(inv)
        with pytest.raises(dls.Refused, match=r"ended on a bug|was closed"):
            dls.run_worker(q, once=True)


@pytest.mark.anyio
async def test_a_native_plane_that_failed_lets_its_path_go(tmp_path: Path, bug: None) -> None:
    path = tmp_path / "plane.db"
    async with dls.AsyncDispatch(path) as first:
        inv = await first.submit(double, 21)
        with pytest.raises(dls.InternalError):
            await first.queues.ls()
        with anyio.fail_after(30):
            async with dls.AsyncDispatch(path) as second:
                assert await dls.arun_worker(second, once=True) == 1
                assert await second.result(inv) == 42


@pytest.mark.anyio
async def test_a_bug_in_what_a_commit_lets_go_ends_the_plane_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On trio, what a callback of the loop raises would end the whole program."""
    path = tmp_path / "plane.db"
    async with dls.AsyncDispatch(path) as q:
        inv = await q.submit(double, 21)

        def broken(self: Peer, message: Any) -> None:
            raise RuntimeError("a bug planted by the test")

        with monkeypatch.context() as planted, anyio.fail_after(30):
            planted.setattr(Peer, "deliver", broken)
            with pytest.raises(dls.PlaneFailed, match="a bug planted by the test"):
                await q.submit(double, 22)
    async with dls.AsyncDispatch(path) as q:
        await dls.arun_worker(q, drain=True)
        assert await q.result(inv) == 42
        assert len(await q.jobs.list()) == 2  # it was stored: only the answer was lost
