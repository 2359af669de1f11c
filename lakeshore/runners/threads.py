"""Synchronous bodies and generators, on threads that are theirs alone.

Results come back through one lane: however many threads end at once, the loop is woken once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextvars import Context
from queue import SimpleQueue
from typing import Any

from lakeshore.core.backend import Backend, Lane
from lakeshore.core.bodies import Job
from lakeshore.core.messages import Ended, GaveBack
from lakeshore.core.running import CURRENT
from lakeshore.core.worker import Worker

from .frames import FrameBuffer, prepared

log = logging.getLogger("lakeshore")


class _State:
    """What a thread and the loop share about one job."""

    __slots__ = ("abandoned", "buffer", "grace", "made", "room")

    def __init__(self, job: Job) -> None:
        self.buffer = FrameBuffer(job.limit)
        self.room = threading.Event()
        self.made = 0
        self.grace: Any = None
        self.abandoned = False


class ThreadRunner:
    """Runs sync and generator bodies.

    A body that is stopped is flagged and gets `cleanup` seconds; then its thread is given up and
    its slot gets a fresh one, at most as many at a time as the worker has slots.
    """

    def __init__(
        self,
        worker: Worker,
        backend: Backend,
        context: Context,
        *,
        setup: Callable[[Any], Any] | None,
        cleanup: float,
    ) -> None:
        self._worker, self._backend, self._context = worker, backend, context
        self._setup, self._cleanup = setup, cleanup
        self._inbox: SimpleQueue[Job | None] = SimpleQueue()
        self._lane: Lane[tuple[Job, Any]] = Lane(backend.post, self._arrived)
        self._threads = self._busy = 0
        self._given_up: set[Job] = set()
        self._overdue: dict[Job, None] = {}
        self._flushing: dict[Job, None] = {}

    def start(self, job: Job) -> None:
        """Begin a job on a thread."""
        job.state = _State(job)
        self._worker.began(job)
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            name = f"lakeshore body {self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        self._inbox.put(job)

    def cancel(self, job: Job) -> None:
        """The body has been flagged; give its thread up if it goes on for too long."""
        job.state.room.set()
        job.state.grace = self._backend.later(self._cleanup, lambda: self._give_up(job))

    def acked(self, job: Job) -> None:
        """A generator that waited for the store may go on."""
        if job.state is not None:
            job.state.room.set()

    def close(self) -> None:
        """Let idle threads end; those in a body end with it, or with the process."""
        for _ in range(self._threads):
            self._inbox.put(None)
        self._threads = 0

    # on the loop

    def _arrived(self, item: tuple[Job, Any]) -> None:
        job, what = item
        if type(what) is tuple:
            if not job.done:
                at, value, size = what
                if job.state.buffer.add_prepared(at, value, size):
                    self._flush(job)
                elif job not in self._flushing:
                    if not self._flushing:
                        self._backend.soon(self._flush_all)
                    self._flushing[job] = None
            return
        self._flush(job)
        if job in self._given_up:
            self._given_up.discard(job)
            for overdue in list(self._overdue)[: self._spare()]:
                self._give_up(overdue)
            return
        self._overdue.pop(job, None)
        self._busy -= 1
        if job.state.grace is not None:
            job.state.grace.cancel()
        self._worker.ended(job, what)

    def _flush_all(self) -> None:
        jobs, self._flushing = self._flushing, {}
        for job in jobs:
            self._flush(job)

    def _flush(self, job: Job) -> None:
        if job.state.buffer.times and not job.done:
            self._worker.frames(job, *job.state.buffer.take())

    def _spare(self) -> int:
        return self._worker.hello.slots - len(self._given_up)

    def _give_up(self, job: Job) -> None:
        if job.done:
            return
        if self._spare() <= 0:
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
        job.state.abandoned = True
        self._given_up.add(job)
        self._busy -= 1
        self._threads -= 1
        log.warning(
            "a body of %s goes on after it was stopped (%s): its thread is given up",
            job.grant.call.options.function.name,
            job.why,
        )
        self._worker.ended(job, _stopped(job, self._seconds(job)))

    def _seconds(self, job: Job) -> float:
        return self._backend.now() - job.started

    # on a thread

    def _work(self) -> None:
        while (job := self._inbox.get()) is not None:
            report = self._context.copy().run(self._run, job)
            try:
                self._lane.put((job, report))
            except RuntimeError:  # the loop has ended
                return
            if job.state is not None and job.state.abandoned:
                return
            del job, report  # keep nothing alive while waiting

    def _run(self, job: Job) -> Ended | GaveBack:
        CURRENT.set(job.running)
        start = time.monotonic()
        try:
            if self._setup is not None:
                self._setup(job.running)
            value = job.body.fn(*job.args, **job.kwargs)
            if job.body.kind == "generator":
                value = self._pump(job, value)
        except BaseException as error:
            seconds = time.monotonic() - start
            if job.why == "timeout":
                return _stopped(job, seconds)
            return job.failed(error, seconds)
        seconds = time.monotonic() - start
        if job.why and (job.body.kind == "generator" or job.why == "timeout"):
            return _stopped(job, seconds)
        return job.succeeded(value, seconds)

    def _pump(self, job: Job, values: Any) -> Any:
        lane, state, wall = self._lane, job.state, time.time
        try:
            while not job.why:
                try:
                    value = next(values)
                except StopIteration as stop:
                    return stop.value
                ready, size = prepared(value, state.made, job.limit)
                state.made += 1
                lane.put((job, (wall(), ready, size)))
                while state.made - job.acked >= 1024 or job.ahead >= 4 << 20:
                    state.room.clear()
                    if job.why or (state.made - job.acked < 1024 and job.ahead < 4 << 20):
                        break
                    state.room.wait()
        finally:
            values.close()
        return None


def _stopped(job: Job, seconds: float) -> Ended | GaveBack:
    if job.why == "timeout":
        limit = job.grant.call.options.timeout
        return job.stopped("expire", seconds, f"it ran longer than its timeout of {limit:g} s")
    if job.why == "kill":
        return job.stopped("kill", seconds, "killed while it was running")
    return GaveBack(job.id, job.attempt, "the worker's grace was over", begun=True)
