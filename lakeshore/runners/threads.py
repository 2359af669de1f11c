"""Synchronous bodies and generators, on threads that are theirs alone.

Results come back through one lane: however many threads end at once, the loop is woken once.
"""

from __future__ import annotations

import logging
import threading
import time
from queue import SimpleQueue
from typing import Any, cast

from lakeshore.core.backend import Lane
from lakeshore.core.bodies import WINDOW_BYTES, WINDOW_FRAMES, Job
from lakeshore.core.errors import Overtaken
from lakeshore.core.messages import Ended, GaveBack
from lakeshore.core.running import CURRENT

from .frames import FrameBuffer, prepared
from .shared import Setup, Shared, stopped
from .stored import complete, discard, fetch, publish, stow, stow_frame

log = logging.getLogger("lakeshore")

_NO_FRAMES = FrameBuffer()  # of all that are no generators; stays empty
_CUT = object()  # what a generator gave that was stopped between two values


class _State:
    """What a thread and the loop share about one job. Each attribute has one writer."""

    __slots__ = ("_over", "buffer", "flushed", "grace", "made", "room", "size")

    def __init__(self, job: Job) -> None:
        generator = job.body.kind == "generator"
        self.buffer = FrameBuffer() if generator else _NO_FRAMES  # the loop's
        self.flushed = 0  # the loop's: bytes that left the buffer
        self.made = self.size = 0  # the thread's: frames and their bytes
        self.room = threading.Event() if generator else None
        self.grace: Any = None  # the loop's timer
        self._over = [True]

    def wake(self) -> None:
        """A generator that waits for room is to look again."""
        if self.room is not None:
            self.room.set()

    def claim(self) -> bool:
        """True for the first to call: the thread when its body ends, or the loop that gives it up."""
        try:
            return self._over.pop()
        except IndexError:
            return False


class ThreadRunner:
    """Runs sync and generator bodies.

    A body that is stopped is flagged and gets some seconds to clean up; then its thread is given up
    and its slot gets a fresh one, at most as many at a time as the worker has slots.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared, self._worker, self._backend = shared, shared.worker, shared.backend
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._lane: Lane[tuple[Job, Any]] = Lane(self._backend.post, self._arrived)
        self._threads = 0
        self._running: dict[Job, None] = {}
        self._given_up: set[Job] = set()
        self._overdue: dict[Job, None] = {}
        self._flushing: dict[Job, None] = {}
        self._closed = False

    def start(self, job: Job) -> None:
        """Begin a job on a thread."""
        job.state = _State(job)
        self._worker.began(job)
        self._running[job] = None
        if len(self._running) > self._threads:
            self._threads += 1
            name = f"lakeshore body {self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._inbox.put(job)

    def cancel(self, job: Job) -> None:
        """The body has been flagged; give its thread up if it goes on for too long."""
        job.state.wake()
        if self._shared.abandons:
            job.state.grace = self._backend.later(self._shared.cleanup, lambda: self._give_up(job))

    def acked(self, job: Job) -> None:
        """A generator that waited for the store may go on."""
        job.state.wake()

    def draining(self) -> None:
        """No slot needs a fresh thread any more: all that are overdue can be given up."""
        for job in list(self._overdue):
            self._give_up(job)

    def close(self) -> None:
        """Let idle threads end; those in a body end with it, or with the process."""
        self._closed = True
        for job in self._running:
            job.why = job.why or "drain"
            job.running.cancelled = True
            job.state.wake()
            if job.state.grace is not None:
                job.state.grace.cancel()
        for _ in range(self._threads):
            self._inbox.put(None)
        self._threads = 0

    # on the loop

    def _arrived(self, item: tuple[Job, Any]) -> None:
        if self._closed:
            return
        try:
            self._take(*item)
        except BaseException as error:  # nobody else would tell the worker
            self._worker.failed(error)

    def _take(self, job: Job, what: Any) -> None:
        state: _State = job.state
        if type(what) is tuple:
            if not job.done:
                if state.buffer.add(*cast("tuple[float, Any, int, bytes]", what)):
                    self._flush(job)
                elif job not in self._flushing:
                    if not self._flushing:
                        self._backend.soon(self._flush_all)
                    self._flushing[job] = None
        elif what is None:
            self._given_up.discard(job)
            for overdue in list(self._overdue)[: self._spare()]:
                self._give_up(overdue)
        else:
            if state.buffer.times:
                self._flush(job)
            self._overdue.pop(job, None)
            self._running.pop(job, None)
            if state.grace is not None:
                state.grace.cancel()
            self._worker.ended(job, what)

    def _flush_all(self) -> None:
        jobs, self._flushing = self._flushing, {}
        for job in jobs:
            self._flush(job)

    def _flush(self, job: Job) -> None:
        state: _State = job.state
        buffer = state.buffer
        if buffer.times and not job.done:
            size = buffer.size
            self._worker.frames(job, *buffer.take())
            state.flushed += size

    def _spare(self) -> int:
        return self._worker.hello.slots - len(self._given_up)

    def _give_up(self, job: Job) -> None:
        if job.done or self._closed:
            return
        if job.publishing:  # soon over, and not to be broken off
            self.cancel(job)
            return
        if self._spare() <= 0 and not self._worker.draining:
            self._overdue[job] = None
            if len(self._overdue) >= self._worker.hello.slots:
                log.error(
                    "all %d slots of worker %s are held by bodies that ignore their timeout or kill: it "
                    "takes nothing until one of them ends; end the process to get them back",
                    self._worker.hello.slots,
                    self._worker.hello.name,
                )
            return
        self._overdue.pop(job, None)
        if not job.state.claim():
            return  # it has ended just now: its report is on the way
        self._given_up.add(job)
        del self._running[job]
        self._threads -= 1
        log.warning(
            "a body of %s goes on after it was stopped (%s): its thread is given up",
            job.grant.call.options.function.name,
            job.why,
        )
        self._flush(job)
        self._worker.ended(job, stopped(job, self._backend.now() - job.started))

    # on a thread

    def _work(self) -> None:
        while (job := self._inbox.get()) is not None:
            report = self._shared.context.copy().run(self._run, job)
            mine = job.state.claim()
            try:
                self._lane.put((job, report if mine else None))
            except RuntimeError:  # the loop has ended
                return
            if not mine:  # given up meanwhile: the slot has another thread
                return
            del job, report  # keep nothing alive while waiting

    def _run(self, job: Job) -> Ended | GaveBack:
        CURRENT.set(job.running)
        start = time.monotonic()
        try:
            if self._shared.setup is not None:
                self._set_up(job, self._shared.setup)
            if job.away is not None:
                fetch(job, self._shared)
            value = job.body.fn(*job.args, **job.kwargs)
            if job.body.kind == "generator":
                value = self._pump(job, value)
            if value is not _CUT and job.why != "timeout":
                value = complete(job, self._shared, value)
        except BaseException as error:
            seconds = time.monotonic() - start
            late = job.why == "timeout" or isinstance(error, Overtaken)
            return stopped(job, seconds) if late else job.failed(error, seconds)
        finally:
            discard(job)
        seconds = time.monotonic() - start
        if value is _CUT or job.why == "timeout":
            return stopped(job, seconds)
        return stow(job, self._shared, job.succeeded(value, seconds))

    def _set_up(self, job: Job, setup: Setup) -> None:
        found = setup(job.running)
        if hasattr(found, "__await__"):
            if hasattr(found, "close"):
                found.close()
            raise TypeError(
                "on_run_setup is a coroutine function and this body runs on a thread: make the hook a "
                "plain function, or the body an async one"
            )

    def _pump(self, job: Job, values: Any) -> Any:
        lane, wall = self._lane, time.time
        state: _State = job.state
        room = state.room
        assert room is not None
        try:
            while not job.why:
                try:
                    value = next(values)
                except StopIteration as stop:
                    return stop.value
                ready, size = prepared(job, value, state.made)
                away = b""
                if job.is_large(size):
                    ready, size, away = stow_frame(job, self._shared, ready)
                if job.running.files is not None:
                    publish(job, self._shared, value)
                state.made += 1
                state.size += size
                lane.put((job, (wall(), ready, size, away)))
                while self._full(job, state):
                    room.clear()
                    if job.why or not self._full(job, state):
                        break
                    room.wait()
        finally:
            close = getattr(values, "close", None)
            if close is not None:
                close()
        return _CUT

    def _full(self, job: Job, state: _State) -> bool:
        """Whether the body is as far ahead of the store as it may be."""
        return (
            state.made - job.acked >= WINDOW_FRAMES or state.size - state.flushed + job.ahead >= WINDOW_BYTES
        )
