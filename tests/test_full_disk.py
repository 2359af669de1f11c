"""A full disk refuses submits with a sentence, loses nothing, and recovers by itself."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import lakeshore as dls


@dls.udf
async def size_of(data: bytes) -> int:
    return len(data)


@pytest.mark.anyio
async def test_a_full_disk_refuses_and_recovers(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    async with dls.AsyncDispatch(small_disk / "plane.db") as q, anyio.create_task_group() as tasks:
        before = await q.submit(size_of, b"x" * 10_000)
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(8 << 20))
        caught: list[str] = []

        async def caught_by_the_full_disk() -> None:
            caught.append(await q.submit(size_of, b"x" * 500_000))  # waits: it was taken, not refused

        tasks.start_soon(caught_by_the_full_disk)
        refused: list[dls.StoreFailed] = []
        with anyio.fail_after(30):
            while not refused:
                try:
                    with anyio.move_on_after(0.1):
                        caught.append(await q.submit(size_of, b"x" * 20_000))
                except dls.StoreFailed as error:
                    refused.append(error)
        assert "can't be written" in str(refused[0])
        assert "try again" in str(refused[0])
        ballast.unlink()
        with anyio.fail_after(30):
            while True:  # until the store has noticed
                try:
                    after = await q.submit(size_of, b"x" * 30_000)
                    break
                except dls.StoreFailed:
                    await anyio.lowlevel.checkpoint()
            assert await dls.arun_worker(q, drain=True) >= 3
            assert await q.result(before) == 10_000
            assert await q.result(after) == 30_000
            assert 500_000 in [await q.result(inv) for inv in caught]
