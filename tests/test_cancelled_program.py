"""A program that is cancelled in full flight still closes its plane, at once and in order."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import lakeshore as dls


@dls.udf
async def nothing() -> None:
    return None


@pytest.mark.anyio
@pytest.mark.parametrize("store", ["memory", "file"])
async def test_a_cancelled_program_closes_its_plane(store: str, tmp_path: Path) -> None:
    address = ":memory:" if store == "memory" else str(tmp_path / "plane.db")
    submitted: list[str] = []
    with anyio.fail_after(30):
        with anyio.CancelScope() as program:
            async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:

                async def client() -> None:
                    while True:
                        inv = await q.submit(nothing)
                        submitted.append(inv)
                        await q.result(inv)
                        if len(submitted) > 200:
                            program.cancel()

                tasks.start_soon(lambda: dls.arun_worker(q, slots=8))
                for _ in range(20):
                    tasks.start_soon(client)
        assert program.cancelled_caught
        if store == "file":  # all that was acknowledged is there
            async with dls.AsyncDispatch(address) as q:
                assert [(await q.get(inv)).id for inv in submitted] == submitted
