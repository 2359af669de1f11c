"""The same program gives the same outcome on asyncio and on trio, in memory and in a file.

Each program runs on both loops and on both stores under a virtual clock. Of every invocation, in id order,
all is compared: the stored transitions, the attempts, the frames, the outcome, what was seen on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import selectors
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import programs_bodies  # noqa: F401
import programs_ends  # noqa: F401
import programs_queues  # noqa: F401
import programs_streams  # noqa: F401
import programs_workers  # noqa: F401
import programs_world
import pytest
from programs_log import brief, differences, history
from programs_world import PROGRAMS, World
from trio.testing import MockClock

import lakeshore as dls
from lakeshore.core.ids import text_of
from lakeshore.store.memory import MemoryStore
from lakeshore.store.sqlite import SqliteStore
from lakeshore.testing.clock import JumpingSelector

BATCHES: list[Callable[[Any], None]] = []  # told of each batch that is to be stored


class Threads:
    """How many calls a store's threads are at work on: time must not jump over them."""

    def __init__(self) -> None:
        self.busy = 0
        self.clock: MockClock | None = None  # trio's

    def add(self, count: int) -> None:
        self.busy += count
        if self.clock is not None:
            self.clock.autojump_threshold = float("inf") if self.busy else 0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        self.add(1)
        try:
            yield
        finally:
            self.add(-1)


THREADS = Threads()


class PatientSelector(JumpingSelector):
    """Jumps only where no store is at work."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout and THREADS.busy else timeout)


def _patient_loop() -> Any:
    selector = PatientSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    return loop


def _options(loop: str) -> dict[str, Any]:
    if loop == "asyncio":
        THREADS.clock = None
        return {"loop_factory": _patient_loop}
    THREADS.clock = MockClock(autojump_threshold=0)
    return {"clock": THREADS.clock}


@pytest.fixture(autouse=True)
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stores whose batches are seen and whose threads are waited for; no jitter."""
    for store in (MemoryStore, SqliteStore):
        monkeypatch.setattr(store, "commit", _seen(store.commit))
    for name in ("commit", "read"):
        monkeypatch.setattr(SqliteStore, name, _counted(getattr(SqliteStore, name)))
    for name in ("open", "aclose"):
        monkeypatch.setattr(SqliteStore, name, _counted_wait(getattr(SqliteStore, name)))
    monkeypatch.setattr(random, "random", lambda: 0.5)
    yield
    programs_world.here = None
    THREADS.busy = 0
    BATCHES.clear()


def _seen(commit: Any) -> Any:
    def watching(self: Any, batch: Any, done: Any) -> None:
        for tell in BATCHES:
            tell(batch)
        commit(self, batch, done)

    return watching


def _counted(call: Any) -> Any:
    def counting(self: Any, what: Any, done: Any) -> None:
        def answered(answer: Any) -> None:
            THREADS.add(-1)
            done(answer)

        THREADS.add(1)
        call(self, what, answered)

    return counting


def _counted_wait(call: Any) -> Any:
    async def counting(self: Any) -> None:
        with THREADS.counted():
            await call(self)

    return counting


def _note_rows(stored: dict[str, list[Any]], batch: Any) -> None:
    """Write down each invocation's state where it changed."""
    for rows in (batch.inserts, batch.updates):
        for row in rows.values():
            now = str(row.state), row.record.attempt
            states = stored.setdefault(text_of(row.id), [])
            if not states or states[-1] != now:
                states.append(now)


def run(name: str, loop: str, address: str) -> list[dict[str, Any]]:
    """Run one program; its log."""
    body, _ = PROGRAMS[name]
    stored: dict[str, list[Any]] = {}
    BATCHES[:] = [partial(_note_rows, stored)]

    async def main() -> None:
        async with dls.AsyncDispatch(address) as q:
            world = programs_world.here = World(q, stored, THREADS.counted)
            await body(world)
            log.extend(await history(world))

    log: list[dict[str, Any]] = []
    anyio.run(main, backend=loop, backend_options=_options(loop))
    return log


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_outcome(name: str, tmp_path: Path) -> None:
    logs = {
        (loop, store): run(name, loop, ":memory:" if store == "memory" else str(tmp_path / f"{loop}.db"))
        for loop in ("asyncio", "trio")
        for store in ("memory", "file")
    }
    expected = logs["asyncio", "memory"]
    for where, log in logs.items():
        assert differences(log, expected) == [], where
        assert log == expected, where
    golden = [line.strip() for line in PROGRAMS[name][1].strip().splitlines()]
    assert not golden or brief(expected) == golden
