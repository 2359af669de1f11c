"""A million invocations that have ended, in one file: listed, paged through, counted, pruned.

Fewer in CI; `LAKESHORE_LONG=1` makes it the million.
"""

# ruff: noqa: ASYNC240 (a test may block: nothing else runs on its loop)

import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest

import lakeshore as dls
from lakeshore.core.ids import IdMaker, text_of
from lakeshore.core.rows import (
    Attempt,
    Batch,
    Call,
    Committed,
    Function,
    InvocationRow,
    KeyRow,
    Options,
    QueueRow,
    Record,
    WorkerRow,
)
from lakeshore.core.states import State
from lakeshore.store.sqlite import SqliteStore

COUNT = 1_000_000 if "LAKESHORE_LONG" in os.environ else 30_000
DAY = 86400.0  # seconds within which all of them have ended
STEP = 1000  # what one step of pruning looks at, at most
QUEUES = {"most": 0.9, "some": 0.099, "few": 0.001}
STATES = {State.SUCCEEDED: 0.92, State.FAILED: 0.06, State.TIMEOUT: 0.019, State.KILLED: 0.001}
WORKERS = (0.5, 0.499, 0.001)
OPTIONS = Options(Function("f", ref="nowhere:f"))
PART = 10_000  # rows of one commit


class Ended(NamedTuple):
    """What a list can be filtered by."""

    id: str
    state: str
    queue: str
    worker: str


class Filled(NamedTuple):
    """A file, and what is in it, newest first."""

    path: Path
    rows: list[Ended]
    workers: list[str]


class Writer:
    """Makes rows of the last day, in id order, and writes them through the store."""

    def __init__(self) -> None:
        self.random = random.Random(5)
        self.at = time.time() - DAY
        self.ids = IdMaker(lambda: int(self.at * 1000), self.random.randbytes)
        self.queues = {name: self.ids() for name in QUEUES}
        self.workers = [self.ids() for _ in WORKERS]
        self.rows: list[Ended] = []

    async def write(self, path: Path, count: int) -> None:
        """So many invocations, and first what they refer to."""
        store = SqliteStore(path)
        await store.open()
        first = Batch()
        for name, id in self.queues.items():
            first.put(QueueRow("default", id, name, "active", {}))
        for worker in self.workers:
            first.put(WorkerRow("default", worker, {"name": "w"}, self.at))
        await stored(store, first)
        for _ in range(0, count, PART):
            batch = Batch()
            for _ in range(PART):
                self.at += (DAY - 60) / count
                self._put(batch)
            await stored(store, batch)
        await store.aclose()

    def _put(self, batch: Batch) -> None:
        id, number = self.ids(), len(self.rows)
        (state,) = self.random.choices(list(STATES), list(STATES.values()))
        (queue,) = self.random.choices(list(QUEUES), list(QUEUES.values()))
        (worker,) = self.random.choices(self.workers, WORKERS)
        attempts = (Attempt(1, worker, self.at - 1, self.at, "done"),)
        record = Record(self.at - 2, attempt=1, attempts=attempts, ended_at=self.at, result=b"\xc0")
        call = Call(OPTIONS, b"\x92\x90\x80", key=f"key-{number}" if number % 10 == 0 else "")
        queue_id = self.queues[queue]
        batch.insert(InvocationRow("default", id, queue_id, state, number, worker, call, record))
        if call.key:
            batch.put(KeyRow("default", queue_id, call.key, id, b""))
        self.rows.append(Ended(text_of(id), state.value, queue, text_of(worker)))


async def stored(store: SqliteStore, batch: Batch) -> None:
    """Commit, and wait for it."""
    answers: list[Any] = []
    done = anyio.Event()

    def answered(answer: Any) -> None:
        answers.append(answer)
        done.set()

    store.commit(batch, answered)
    await done.wait()
    assert isinstance(answers[0], Committed), answers[0]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """One file for all tests, which copy it where they change it."""
    path, writer = tmp_path_factory.mktemp("million") / "plane.db", Writer()
    anyio.run(writer.write, path, COUNT)
    return Filled(path, writer.rows[::-1], [text_of(worker) for worker in writer.workers])


@pytest.mark.anyio
async def test_every_filter_finds_what_it_should(filled: Filled) -> None:
    states: list[Any] = [None, *(state.value for state in STATES), ["failed", "killed"], "queued", "running"]
    async with dls.AsyncDispatch(filled.path) as q:
        for state, queue, worker in product(states, [None, *QUEUES], [None, *filled.workers]):
            wanted = {state} if isinstance(state, str) else set(state or ())
            found = [
                row.id
                for row in filled.rows
                if (not wanted or row.state in wanted)
                and (queue is None or row.queue == queue)
                and (worker is None or row.worker == worker)
            ]
            for offset in (0, 30, 2000):
                jobs = await q.jobs.list(state=state, queue=queue, worker=worker, offset=offset)
                assert [job.id for job in jobs] == found[offset : offset + 50], (state, queue, worker)


@pytest.mark.anyio
async def test_pages_hold_each_once_and_count_them_all(filled: Filled) -> None:
    ids = [row.id for row in filled.rows]
    async with dls.AsyncDispatch(filled.path) as q:
        for start in range(0, COUNT + 200, 200 if COUNT < 100_000 else 20_000):  # a late page takes long
            page = await q.jobs.list(limit=200, offset=start)
            assert [job.id for job in page] == ids[start : start + 200]


class Steps:
    """Watches the steps of pruning: how many each deleted."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        commit = SqliteStore.commit

        def watched(store: SqliteStore, batch: Batch, done: Callable[[Any], None]) -> None:
            def answered(answer: Any) -> None:
                self.sizes += [len(pruned.ids) for pruned in answer.pruned]
                done(answer)

            commit(store, batch, answered)

        patch.setattr(SqliteStore, "commit", watched)


@dls.udf
def late() -> None: ...


@pytest.mark.anyio
async def test_pruning_takes_small_steps_and_lets_others_in_between(
    filled: Filled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.copy(filled.path, tmp_path / "plane.db")
    steps, ids = Steps(monkeypatch), [row.id for row in filled.rows]
    pruned: list[int] = []
    between: list[int] = []  # how many steps each submit took to be stored
    read = 0

    async with dls.AsyncDispatch(path) as q, anyio.create_task_group() as tasks:

        async def submit() -> None:
            while not pruned:
                before = len(steps.sizes)
                await late.asubmit(_dispatch=q)
                between.append(len(steps.sizes) - before)

        async def read_along() -> None:
            nonlocal read
            while not pruned:
                assert (await q.get(ids[0])).id == ids[0]
                read += 1

        tasks.start_soon(submit)
        tasks.start_soon(read_along)
        pruned.append(await q.jobs.prune(DAY / 2))
        tasks.cancel_scope.cancel()

    assert pruned[0] == sum(steps.sizes) == pytest.approx(COUNT / 2, rel=0.01)
    assert max(steps.sizes) <= STEP
    assert len(steps.sizes) <= COUNT / 2 / STEP + 3  # nothing young was looked at
    assert len(between) > len(steps.sizes) / 4
    assert max(between) <= 4
    assert read > 0


@pytest.mark.anyio
async def test_what_was_pruned_leaves_room_for_as_many(filled: Filled, tmp_path: Path) -> None:
    path = Path(shutil.copy(filled.path, tmp_path / "plane.db"))
    size = os.path.getsize(path)
    async with dls.AsyncDispatch(path) as q:
        assert await q.jobs.prune(0) == COUNT
        assert await q.jobs.list() == []
        with pytest.raises(dls.Expired):
            await q.get(filled.rows[0].id)
    assert rows_of(path) == {"invocations": 0, "keys": 0, "blobs": 0, "chunks": 0, "workers": 0}
    await Writer().write(path, COUNT)
    assert rows_of(path)["invocations"] == COUNT
    assert os.path.getsize(path) < 1.05 * size


def rows_of(path: Path) -> dict[str, int]:
    """How many rows some tables have."""
    conn = sqlite3.connect(path)
    names = ("invocations", "keys", "blobs", "chunks", "workers")
    counts = {name: conn.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    conn.close()
    return counts
