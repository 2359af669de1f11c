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
        caught: list[tuple[str, int]] = []
        refused: list[dls.StoreFailed] = []

        async def one(size: int) -> None:
            try:  # the one that meets the full disk waits: it was taken, not refused
                caught.append((await q.submit(size_of, b"x" * size), size))
            except dls.StoreFailed as error:
                refused.append(error)

        tasks.start_soon(one, 300_000)
        for _ in range(10):  # it is on its way before any other
            await anyio.lowlevel.checkpoint()
        with anyio.fail_after(30):
            while not refused:
                with anyio.move_on_after(0.1):
                    await one(20_000)
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
            assert await dls.arun_worker(q, drain=True) > 0
            assert await q.result(before) == 10_000
            assert await q.result(after) == 30_000
            assert caught  # by the full disk, and stored as soon as there was room
            assert [await q.result(inv) for inv, _ in caught] == [size for _, size in caught]
