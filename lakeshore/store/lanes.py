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

from lakeshore.core.backend import running_loop

from .statements import Connection

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
    """aiosqlite's connection and thread, handed whole functions: one hop where its verbs take many.

    It knows of aiosqlite that the thread takes pairs (future, function) from `_tx`, in order, and
    that `stop` closes `_connection` there; a test fails where another version does it differently.
    """

    _tx: SimpleQueue[tuple[asyncio.Future[Any] | None, Callable[[], Any]]]

    def __init__(self, connector: Connector) -> None:
        super().__init__(connector, iter_chunk_size=64)
        self._loop = asyncio.get_running_loop()
        self._thread.daemon = True

    def start(self) -> None:
        self._thread.start()
        self._tx.put_nowait((None, self._make))

    def run(self, function: Callable[[Connection], Any], done: Done) -> None:
        future = self._loop.create_future()
        future.add_done_callback(partial(_finish, done))
        self._tx.put_nowait((future, partial(self._call, function)))

    async def aclose(self) -> None:
        await cast("asyncio.Future[Any]", self.stop())  # pyright: ignore[reportUnknownMemberType]
        self._thread.join()  # nothing is left for it to do

    def _make(self) -> None:
        try:
            self._connection = self._connector()
        except BaseException as exc:
            self._failure = exc

    _failure: BaseException | None = None

    def _call(self, function: Callable[[Any], Any]) -> Any:
        if self._failure is not None:
            raise self._failure
        return function(self._connection)


def _finish(done: Done, future: asyncio.Future[Any]) -> None:
    done(future.exception() or future.result())


class TrioLane:
    """The same over the standard `sqlite3`, as aiosqlite can't run on trio."""

    def __init__(self, connector: Connector) -> None:
        import trio  # a user of asyncio never pays for it

        self._connector = connector
        self._jobs: SimpleQueue[tuple[Callable[[Connection], Any], Done] | None] = SimpleQueue()
        self._reply = trio.lowlevel.current_trio_token().run_sync_soon
        self._finished = trio.RunFinishedError
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
        while job := self._jobs.get():
            function, done = job
            try:
                if failure is not None:
                    raise failure
                answer = function(conn)  # pyright: ignore[reportArgumentType]
            except BaseException as exc:
                answer = exc
            try:
                self._reply(done, answer)
            except self._finished:  # the loop ended without aclose
                break
        if conn is not None:
            with suppress(sqlite3.Error):
                conn.close()
        with suppress(self._finished):
            self._reply(self._ended.set)
