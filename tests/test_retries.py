"""Retries: which errors, how long apart, and what readers see of it."""

import contextlib
import functools
import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import lakeshore as dls

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def working(address: str = ":memory:", **options: Any) -> AsyncIterator[dls.AsyncDispatch]:
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q, **options))
        yield q
        tasks.cancel_scope.cancel()


async def _one() -> int:
    return 1


def _only_odd(error: BaseException) -> bool:
    return int(str(error)) % 2 == 1


def _broken(error: BaseException) -> bool:
    raise SystemExit("in the predicate")


@pytest.mark.parametrize(
    ("retry_on", "error", "runs"),
    [
        (Exception, OSError("x"), 3),
        (Exception, SystemExit(1), 1),
        (BaseException, SystemExit(1), 3),
        ((KeyError, OSError), FileNotFoundError("x"), 3),
        ((KeyError, OSError), ValueError("x"), 1),
        (_only_odd, ValueError("3"), 3),
        (_only_odd, ValueError("2"), 1),
        (_only_odd, ValueError("no number"), 1),
        (_broken, ValueError("x"), 1),
        (KeyError, ExceptionGroup("g", [KeyError("a"), KeyError("b")]), 3),
        (KeyError, ExceptionGroup("g", [KeyError("a"), ValueError("b")]), 1),
        (KeyError, dls.Retry(after=0), 3),
        (KeyError, dls.Retry(after=-1), 3),
        (KeyError, dls.Retry(after=float("nan")), 3),
        (KeyError, dls.Retry(after="soon"), 3),  # type: ignore[arg-type]
        (KeyError, ExceptionGroup("g", [KeyError("a"), dls.Retry(after=0)]), 3),
    ],
)
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_which_errors_are_retried(retry_on: Any, error: BaseException, runs: int, kind: str) -> None:
    attempts: list[int] = []

    @dls.udf(retries=2, retry_delay=0.001, retry_cap=0.001, retry_on=retry_on)
    def sync() -> None:
        attempts.append(dls.run.attempt)
        raise error

    @dls.udf(retries=2, retry_delay=0.001, retry_cap=0.001, retry_on=retry_on)
    async def async_() -> None:
        attempts.append(dls.run.attempt)
        raise error

    async with working() as q:
        inv = await q.submit(sync if kind == "sync" else async_)
        with anyio.fail_after(20), pytest.raises(dls.InvocationFailed) as caught:
            await q.result(inv)
        assert attempts == list(range(1, runs + 1))
        assert caught.value.attempt == runs
        if retry_on is _broken:
            assert "retry_on raised" in caught.value.notes[-1]
        assert await q.result(await q.submit(_one)) == 1


class TestDelays:
    @pytest.fixture
    def anyio_backend(self, virtual: Any) -> Any:
        return virtual

    async def test_the_delays_grow_within_their_bounds(self) -> None:
        starts: list[float] = []

        @dls.udf(retries=40, retry_delay=2.0, retry_cap=64.0)
        async def body() -> None:
            starts.append(anyio.current_time())
            raise OSError

        async with working() as q:
            with pytest.raises(dls.InvocationFailed):
                await q.result(await q.submit(body))
            waits = [b - a for a, b in itertools.pairwise(starts)]
            assert len(waits) == 40
            for number, wait in enumerate(waits):
                assert 0 <= wait <= min(64.0, 2.0 * 2**number) + 1e-3
            assert sum(waits[10:]) > 30 * 64 / 4  # full jitter: half the cap on average
            assert len({round(wait, 3) for wait in waits}) > 20

    async def test_a_failing_job_does_not_go_round_in_no_time(self) -> None:
        starts: list[float] = []

        @dls.udf(retries=50)
        async def body() -> None:
            starts.append(anyio.current_time())
            raise OSError

        async with working() as q:
            with pytest.raises(dls.InvocationFailed):
                await q.result(await q.submit(body))
            assert starts[-1] - starts[0] > 1000
            assert starts[9] - starts[0] > 1

    async def test_a_retry_waits_while_others_run(self) -> None:
        order: list[str] = []

        @dls.udf(retries=1)
        async def flaky() -> None:
            order.append("flaky")
            if len(order) == 1:
                raise dls.Retry(after=100)

        async def other() -> None:
            order.append("other")

        async with working() as q:
            inv = await q.submit(flaky)
            for one in await q.submit_many(other, [{}] * 3):
                await q.result(one)
            assert (await q.get(inv)).state is dls.State.QUEUED
            assert "its retry delay ends" in " ".join(await q.jobs.why(inv))
            await q.result(inv)
            assert order == ["flaky", "other", "other", "other", "flaky"]
            record = await q.get(inv)
            assert [attempt.outcome for attempt in record.attempts] == ["failed", "succeeded"]
            assert record.error is None


@pytest.mark.parametrize("second", [3, 1])
@pytest.mark.parametrize("kind", ["generator", "async_generator"])
async def test_streams_of_a_retried_generator(kind: str, second: int) -> None:
    """C09: the error of attempt 1 ends nobody's stream."""
    failed = anyio.Event()

    @dls.udf(retries=1, retry_delay=0.001)
    def generator() -> Iterator[str]:
        if dls.run.attempt == 1:
            yield from ("a1", "a2")
            raise OSError("attempt 1")
        yield from [f"b{number + 1}" for number in range(second)]

    @dls.udf(retries=1, retry_delay=0.001)
    async def async_generator() -> AsyncIterator[str]:
        if dls.run.attempt == 1:
            yield "a1"
            yield "a2"
            raise OSError("attempt 1")
        failed.set()
        for number in range(second):
            yield f"b{number + 1}"

    expected = [("a1", 1), ("a2", 1), *((f"b{number + 1}", 2) for number in range(second))]
    async with working() as q:
        inv = await q.submit(generator if kind == "generator" else async_generator)
        whole = [frame async for frame in q.stream(inv)]
        assert [(frame.value, frame.attempt) for frame in whole] == expected
        assert [frame.seq for frame in whole] == list(range(len(expected)))
        later = [(frame.value, frame.attempt) async for frame in q.stream(inv, since=1)]
        assert later == expected[1:]
        with pytest.raises(dls.StreamRestarted):
            _ = [value async for value in q.stream(inv).values()]
        assert [value async for value in q.stream(inv).values(restarts="keep")] == [v for v, _ in expected]
        assert await q.result(inv) is None


async def test_a_malformed_payload_fails_its_invocation_and_the_worker_lives(tmp_path: Path) -> None:
    path = str(tmp_path / "plane.db")

    @dls.udf(retries=5)
    async def body(text: str) -> int:
        return len(text)

    async with dls.AsyncDispatch(path) as q:
        bad, good = await q.submit(body, "x" * 5000), await q.submit(body, "y" * 5000)
    with contextlib.closing(sqlite3.connect(path)) as db:
        smallest = db.execute("select id from blobs order by id limit 1").fetchone()
        db.execute("update blobs set data = x'c1c1c1' where id = ?", smallest)
        db.commit()
    async with working(path) as q:
        with pytest.raises(dls.InvocationFailed, match="not a packed value"):
            await q.result(bad)
        assert await q.result(good) == 5000


KILLED = """
import os, signal, sys
import lakeshore as dls

@dls.udf
def dies():
    os.kill(os.getpid(), signal.SIGKILL)

q = dls.Dispatch(sys.argv[1], backend=sys.argv[2])
if len(sys.argv) > 3:
    print(dies.submit(_dispatch=q), flush=True)
dls.run_worker(q)
"""


def test_a_job_that_kills_its_worker_is_started_three_times(tmp_path: Path) -> None:
    path, script = str(tmp_path / "plane.db"), tmp_path / "killed.py"
    script.write_text(KILLED)
    first = [sys.executable, str(script), path, "asyncio", "submit"]
    done = subprocess.run(first, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    inv = done.stdout.strip()
    for _ in range(2):
        again = [sys.executable, str(script), path, "trio"]
        done = subprocess.run(again, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr
    with dls.Dispatch(path) as q:
        other = q.submit(_one)
        with pytest.raises(dls.InvocationFailed, match="WorkerLost"):
            q.result(inv, timeout=10)
        record = q.get(inv)
        assert [attempt.outcome for attempt in record.attempts] == ["lost"] * 3
        assert record.attempts[0].worker_pid not in (0, os.getpid())
        assert dls.run_worker(q, drain=True) == 1
        assert q.result(other) == 1
