"""A thread with one SQLite connection, and one hop to it and back on either event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar, cast

import aiosqlite
import anyio

from lakeshore.core.backend import Lane as Answers
from lakeshore.core.backend import current_backend, running_loop

from .connection import Connection

T = TypeVar("T")
Connector = Callable[[], Connection]
Done = Callable[[Any], None]


class Lane(Protocol):
    """Runs functions on its connection, one after the other."""

    def __init__(self, connector: Connector) -> None: ...

    def start(self) -> None:
        """Start the thread and connect. What fails to connect fails every function run."""
        ...

    def run(self, function: Callable[[Connection], Any], done: Done) -> None:
        """Call `function` on the thread, then `done` on the loop with its answer or its exception."""
        ...

    async def aclose(self) -> None:
        """Close the connection after what was run before, and end the thread."""
        ...


def lane_type() -> type[Lane]:
    """The kind of lane for the running event loop."""
    return AsyncioLane if running_loop() == "asyncio" else TrioLane


async def ask(lane: Lane, function: Callable[[Connection], T]) -> T:
    """Run a function on a lane and wait for its answer."""
    answers: list[Any] = []
    answered = anyio.Event()

    def done(answer: Any) -> None:
        answers.append(answer)
        answered.set()

    lane.run(function, done)
    await answered.wait()
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


class AsyncioLane(aiosqlite.Connection):
    """aiosqlite's connection and thread, handed whole functions: one hop where its verbs take many,
    and one callback of the loop with the answer where a future takes two.

    It knows of aiosqlite that the thread takes pairs (future or None, function) from `_tx`, in order,
    and that `stop` closes `_connection` there; a test fails where another version does it differently.
    """

    _tx: SimpleQueue[tuple[Any, Callable[[], Any]]]

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._answers = answers()
        self._thread.daemon = True

    def start(self) -> None:
        self._thread.start()
        self._tx.put_nowait((None, self._make))

    def run(self, function: Callable[[Connection], Any], done: Done) -> None:
        self._tx.put_nowait((None, partial(self._call, function, done)))

    async def aclose(self) -> None:
        await cast("asyncio.Future[Any]", self.stop())  # pyright: ignore[reportUnknownMemberType]
        self._thread.join()  # nothing is left for it to do

    def _make(self) -> None:
        try:
            self._connection = self._connector()
        except BaseException as exc:
            self._failure = exc

    _failure: BaseException | None = None

    def _call(self, function: Callable[[Any], Any], done: Done) -> None:
        self._answers.put((done, answer_of(function, self._connection, self._failure)))


class TrioLane:
    """The same over the standard `sqlite3`, as aiosqlite can't run on trio."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._jobs: SimpleQueue[tuple[Callable[[Any], Any], Done] | None] = SimpleQueue()
        self._answers = answers()
        self._thread = Thread(target=self._work, name="lakeshore-store", daemon=True)
        self._ended = anyio.Event()

    def start(self) -> None:
        self._thread.start()

    def run(self, function: Callable[[Connection], Any], done: Done) -> None:
        self._jobs.put((function, done))

    async def aclose(self) -> None:
        self._jobs.put(None)
        await self._ended.wait()
        self._thread.join()  # nothing is left for it to do

    def _work(self) -> None:
        conn, failure = None, None
        try:
            conn = self._connector()
        except BaseException as exc:
            failure = exc
        with suppress(RuntimeError):  # the loop ended without aclose
            while job := self._jobs.get():
                function, done = job
                self._answers.put((done, answer_of(function, conn, failure)))
        if conn is not None:
            with suppress(sqlite3.Error):
                conn.close()
        with suppress(RuntimeError):
            self._answers.put((lambda _: self._ended.set(), None))


def answers() -> Answers[tuple[Done, Any]]:
    """The way back to the running loop: one wake-up for all that is done when it looks."""
    return Answers(current_backend().post, _give)


def _give(item: tuple[Done, Any]) -> None:
    done, answer = item
    done(answer)


def answer_of(function: Callable[[Any], Any], conn: Any, failure: BaseException | None) -> Any:
    """What a function answers or raises."""
    if failure is not None:
        return failure
    try:
        return function(conn)
    except BaseException as exc:
        return exc
