"""A virtual clock that waits for threads: it jumps only while no store and no thread is at work.

The clock of `lakeshore.testing` jumps whenever the loop has nothing to do. A commit in a file, or a
plain function on a thread, takes real time that the loop can't see, and hours would pass meanwhile.
Here each of them is counted in and out, and time stands still until all are out. The wall clock
follows the loop's.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import anyio

from lakeshore.core.backend import current_backend
from lakeshore.core.ids import text_of
from lakeshore.core.worker import Worker
from lakeshore.runners.inline import InlineRunner
from lakeshore.store.sqlite import SqliteStore
from lakeshore.testing import virtual_backend

PATIENCE = 30.0  # real seconds after which a thread that is waited for hangs


class Pace:
    """What is at work outside the loop, by any token. Time stands still while something is.

    Attributes:
        moved: called after each change, on the loop.
    """

    def __init__(self) -> None:
        self.busy: dict[object, None] = {}
        self.moved: Callable[[], None] = lambda: None
        self._post: Callable[[Callable[[], None]], None]

    def enter(self, token: object) -> None:
        """It begins. On the loop."""
        self.busy[token] = None
        self.moved()

    def leave(self, token: object) -> None:
        """It is over; a second time does nothing. On the loop."""
        self.busy.pop(token, None)
        self.moved()

    def leave_from_thread(self, token: object) -> None:
        """The same, from a thread."""
        self._post(lambda: self.leave(token))

    def install(self) -> None:
        """Begin, on the loop that runs here."""
        _installed.append(self)
        self._post = current_backend().post
        count_store(self)
        count_threads(self)
        clock = self._slow_asyncio() if current_backend().name == "asyncio" else self._slow_trio()
        start, begun = time.time(), clock()
        time.time = lambda: start + clock() - begun
        time.time_ns = lambda: int(1e9 * time.time())

    def _slow_asyncio(self) -> Callable[[], float]:
        import asyncio

        loop: Any = asyncio.get_running_loop()
        selector = loop._selector
        jump, wait = selector.select, type(selector).__mro__[1].select

        def select(timeout: float | None = None) -> Any:
            if self.busy and (timeout is None or timeout > 0):
                ready = wait(selector, PATIENCE)
                assert ready, f"nothing came of {list(self.busy)}"
                return ready
            return jump(timeout)

        selector.select = select
        return loop.time

    def _slow_trio(self) -> Callable[[], float]:
        import trio.lowlevel

        clock: Any = trio.lowlevel.current_clock()

        def moved() -> None:
            clock.autojump_threshold = float("inf") if self.busy else 0

        self.moved = moved
        moved()
        return clock.current_time


_installed: list[Pace] = []


def idle(token: object) -> None:
    """Say, from a thread, that its body only waits now."""
    _installed[0].leave_from_thread(token)


def count_store(pace: Pace) -> None:
    """Count what a file's store does on its threads."""
    counted: Any = SqliteStore

    def with_callback(inner: Any) -> Any:
        def call(store: Any, what: Any, done: Callable[[Any], None]) -> None:
            token = object()
            pace.enter(token)

            def answered(answer: Any) -> None:
                pace.leave(token)
                done(answer)

            inner(store, what, answered)

        return call

    def awaited(inner: Any) -> Any:
        async def call(store: Any) -> None:
            token = object()
            pace.enter(token)
            try:
                await inner(store)
            finally:
                pace.leave(token)

        return call

    counted.commit, counted.read = with_callback(counted.commit), with_callback(counted.read)
    counted.open, counted.aclose = awaited(counted.open), awaited(counted.aclose)


def count_threads(pace: Pace) -> None:
    """Count bodies on threads, by invocation and attempt. One that only waits may leave early."""
    runner: Any = InlineRunner
    worker: Any = Worker
    start, close, ended = runner.start, runner.close, worker.ended
    begun: dict[Any, list[object]] = defaultdict(list)  # by runner

    def counted_start(self: Any, job: Any) -> None:
        if job.body.kind in ("sync", "generator"):
            token = (text_of(job.id), job.attempt)
            begun[self].append(token)
            pace.enter(token)
        start(self, job)

    def counted_end(self: Any, job: Any, report: Any) -> None:
        pace.leave((text_of(job.id), job.attempt))
        ended(self, job, report)

    def counted_close(self: Any) -> None:  # who closes waits for no thread
        for token in begun.pop(self, ()):
            pace.leave(token)
        close(self)

    runner.start, runner.close, worker.ended = counted_start, counted_close, counted_end


def run(backend: str, main: Callable[[Pace], Any]) -> Any:
    """Run a coroutine function on a loop of this kind, in such time."""
    name, options = virtual_backend(backend)
    pace = Pace()

    async def paced() -> Any:
        pace.install()
        return await main(pace)

    return anyio.run(paced, backend=name, backend_options=options)
