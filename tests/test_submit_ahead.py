"""A long submit_many over TCP: the next part is made while the head has the one before."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import shared_path
from heads import ServedHead, served
from planes import PATIENCE, elsewhere

import lakeshore as dls

COUNT = 2500  # three parts
BODY = dls.udf(shared_path.double.fn, queue="narrow")


@pytest.fixture
def head(home: Path, tmp_path: Path, backend: Any) -> Iterator[ServedHead]:
    with served(tmp_path / "plane.db", backend) as running:
        yield running


def numbers(made: threading.Event, until: int = COUNT) -> Iterator[int]:
    """Tells when the second part is whole; an error in place of number `until`."""
    for number in range(COUNT):
        if number == 2000:
            made.set()
        if number == until:
            raise OSError("no more to read")
        yield number


def test_the_next_part_is_made_while_one_waits(head: ServedHead, backend: Any) -> None:
    made = threading.Event()
    with dls.Dispatch(head.url, backend=backend) as q:
        q.queues.add("narrow", max_depth=1, on_full="block")
        with elsewhere(q.submit_many, BODY, numbers(made)) as submitting:
            assert made.wait(PATIENCE)
            assert q.queues.stats("narrow").pending == 1
            q.queues.patch("narrow", max_depth=COUNT)
            ids = submitting.result(PATIENCE)
        assert dls.run_worker(q, queues=["narrow"], drain=True, slots=8) == COUNT
        assert [q.result(ids[number]) for number in (0, 999, 1000, 2499)] == [0, 1998, 2000, 4998]


@pytest.mark.anyio
async def test_it_is_made_as_the_submitter_would(home: Path, tmp_path: Path, anyio_backend_name: str) -> None:
    """Also where the event loop makes it: under the scope and for the body that submits."""
    head = await anyio.to_thread.run_sync(ServedHead, tmp_path / "plane.db", anyio_backend_name)
    made = threading.Event()
    ids: list[str] = []
    done = anyio.Event()
    try:
        async with dls.AsyncDispatch(head.url) as q, anyio.create_task_group() as tasks:
            await q.queues.add("narrow", max_depth=1, on_full="block")

            async def submit() -> None:
                with dls.scope("a/b"):
                    ids.extend(await q.submit_many(BODY, numbers(made)))
                done.set()

            tasks.start_soon(submit)
            assert await anyio.to_thread.run_sync(made.wait, PATIENCE)
            assert (await q.queues.stats("narrow")).pending == 1
            await q.queues.patch("narrow", max_depth=COUNT)
            await done.wait()
            assert {(await q.get(ids[number])).prefix for number in (0, 1500, 2499)} == {"a/b"}
    finally:
        await anyio.to_thread.run_sync(head.stop)


def test_what_goes_wrong_in_making_it_is_raised_after_the_part_before(head: ServedHead, backend: Any) -> None:
    with dls.Dispatch(head.url, backend=backend) as q:
        q.queues.add("narrow")
        with pytest.raises(OSError, match="no more to read"):
            q.submit_many(BODY, numbers(threading.Event(), until=1700))
        assert q.queues.stats("narrow").pending == 1000


def scoped() -> Generator[int]:
    """Holds a context token for as long as it runs."""
    with dls.scope("inside"):
        yield from range(1500)


def test_a_generator_that_was_begun_by_the_caller_goes_on_as_it_was(head: ServedHead, backend: Any) -> None:
    with dls.Dispatch(head.url, backend=backend) as q:
        q.queues.add("narrow")
        items = scoped()
        assert next(items) == 0
        assert len(q.submit_many(BODY, items)) == 1499
        left = scoped()
        assert len(q.submit_many(BODY, itertools.islice(left, 1200))) == 1200
        left.close()


class Fatal(BaseException):
    """What no `except Exception` catches."""


@pytest.mark.anyio
async def test_what_is_no_exception_reaches_the_submitter(
    home: Path, tmp_path: Path, anyio_backend_name: str
) -> None:
    """And not the event loop that makes the part."""

    def items() -> Iterator[int]:
        yield from range(1500)
        raise Fatal

    head = await anyio.to_thread.run_sync(ServedHead, tmp_path / "plane.db", anyio_backend_name)
    try:
        async with dls.AsyncDispatch(head.url) as q:
            await q.queues.add("narrow")
            with pytest.raises(Fatal):
                await q.submit_many(BODY, items())
            assert len(await q.submit_many(BODY, range(3))) == 3
    finally:
        await anyio.to_thread.run_sync(head.stop)
