"""Programs that end while their head is away, and what they leave behind in a head."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
import shared_path
from heads import ServedHead, served
from planes import PATIENCE
from through import beats

import lakeshore as dls

BEAT = 0.2
LEASE = 1.0


@pytest.fixture
def head(home: Path, tmp_path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedHead]:
    beats(monkeypatch, BEAT)
    with served(tmp_path / "plane.db", backend) as running:
        yield running


@pytest.fixture
def q(head: ServedHead, backend: Any) -> Iterator[dls.Dispatch]:
    with dls.Dispatch(head.url, backend=backend) as dispatch:
        yield dispatch


@pytest.mark.anyio
async def test_a_program_that_is_cancelled_while_it_reconnects(
    home: Path, tmp_path: Path, anyio_backend_name: str
) -> None:
    head = await anyio.to_thread.run_sync(ServedHead, tmp_path / "plane.db", anyio_backend_name)
    away = anyio.Event()

    async def read(q: dls.AsyncDispatch, inv: str) -> None:
        assert [frame async for frame in q.stream(inv)] == []

    async def program() -> None:
        async with dls.AsyncDispatch(head.url) as q, anyio.create_task_group() as tasks:
            await tasks.start(dls.arun_worker, q)
            inv = await q.submit(shared_path.double, 1)
            assert await q.result(inv) == 2
            later = await q.submit(shared_path.double, 2, _delay=3600)
            tasks.start_soon(q.result, later)
            tasks.start_soon(read, q, later)
            await anyio.to_thread.run_sync(head.stop)
            tasks.start_soon(q.submit, shared_path.double, 3)
            away.set()

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program)
            await away.wait()
            tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(head.start)
    try:
        async with dls.AsyncDispatch(head.url) as q:
            assert [str(job.state) for job in await q.jobs.list()] == ["queued", "succeeded"]
    finally:
        await anyio.to_thread.run_sync(head.stop)


def test_a_program_is_closed_while_the_head_is_away(head: ServedHead, backend: Any) -> None:
    q = dls.Dispatch(head.url, backend=backend, connect_timeout=600)
    inv = q.submit(shared_path.double, 1)
    calls: list[Callable[[], Any]] = [
        lambda: q.result(inv),
        lambda: list(q.stream(inv)),
        lambda: q.get(inv),
        lambda: q.submit(shared_path.double, 2),
        lambda: dls.run_worker(q),
    ]
    head.stop()
    with ThreadPoolExecutor(len(calls)) as pool:
        waiting = [pool.submit(call) for call in calls]
        while not q.host()._workers:
            os.sched_yield()
        q.close()
        for future in waiting[:-1]:
            with pytest.raises(dls.PlaneClosed):
                future.result(PATIENCE)
        assert waiting[-1].result(PATIENCE) == 0
    head.start()
    with dls.Dispatch(head.url, backend=backend) as other:
        assert [job.id for job in other.jobs.list()] == [inv]


LEAVES = """
    import sys, threading
    import lakeshore as dls

    class Gone(threading.Thread):
        def run(self):
            try:
                q.result(inv)
            except dls.PlaneClosed as error:
                print("told", flush=True)

    q = dls.Dispatch(sys.argv[1], backend=sys.argv[2])
    inv = q.submit(print, 1)
    Gone().start()
    print("ready", flush=True)
    sys.stdin.readline()  # the head is away now
    if sys.argv[3] == "raises":
        sys.exit(3)
"""


@pytest.mark.parametrize("how", ["returns", "raises"])
def test_an_interpreter_ends_while_the_head_is_away(
    head: ServedHead, q: dls.Dispatch, tmp_path: Path, backend: Any, how: str
) -> None:
    (tmp_path / "leaves.py").write_text(textwrap.dedent(LEAVES))
    command = [sys.executable, str(tmp_path / "leaves.py"), head.url, backend, how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        head.stop()
        out, err = process.communicate("go\n", PATIENCE)
    assert process.returncode == (3 if how == "raises" else 0)
    assert all(line.endswith("trying again") for line in err.splitlines())  # it may have looked by then
    assert out == "told\n"


# nothing is left behind


def sizes(head: ServedHead) -> dict[str, int]:
    """What a head keeps for those who are in, by name."""
    plane = head.host.plane
    found: dict[str, int] = {}
    space = plane.head.space("default")
    for name, owner in (("door", plane.door), ("reception", plane.reception), ("space", space)):
        for key, value in vars(owner).items():
            if isinstance(value, dict | set | list):
                found[f"{name}.{key}"] = len(value)  # pyright: ignore[reportUnknownArgumentType]
    return found


def test_short_programs_leave_nothing_in_the_head(
    home: Path, tmp_path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 1000 if "LAKESHORE_LONG" in os.environ else 60
    with (
        served(tmp_path / "plane.db", backend, lease=LEASE) as head,
        dls.Dispatch(head.url, backend=backend) as q,
    ):
        inv = q.submit(shared_path.double, 1)

        def short(_: int) -> None:
            with dls.Dispatch(head.url, backend=backend) as far:
                assert far.get(inv).state == "queued"
                far.stream(inv).close()
                with pytest.raises(TimeoutError):
                    far.result(inv, timeout=0.001)

        short(0)
        until(q, lambda: sizes(head)["door.guests"] == 1 and sizes(head)["door._entries"] == 1)
        before = sizes(head)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(short, range(count)))
        until(q, lambda: sizes(head) == before)
        assert len(head.host.plane.head.space("default").live) == 1
        (entry,) = head.host.plane.head.space("default").live.values()
        assert not entry.waiters
        q.kill(inv)


def until(q: dls.Dispatch, what: Callable[[], bool]) -> None:
    """Ask the head something again and again until that is so; the test hangs where it never is."""
    while not what():
        q.status()
