"""Bodies in the worker's own process: async ones as native code of its loop, the others on threads.

No task, scope or thread is made per job: slots are tasks, and threads, that take one after another.
An asynchronous body runs in its slot's task, so `current_task()` inside it is that task.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from contextvars import copy_context

from anyio import get_cancelled_exc_class
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from lakeshore.core.backend import Backend
from lakeshore.core.bodies import ON_LOOP, Job
from lakeshore.core.worker import CLEANUP, Worker

from .shared import Setup, Shared
from .slot import Slot
from .threads import ThreadRunner

log = logging.getLogger("lakeshore")


class InlineRunner:
    """Runs the four kinds of body for one worker.

    Args:
        worker: who is told.
        tasks: where slot tasks live.
        setup: called before each body, inside its context; may be a coroutine function for
            bodies on the loop.
        cleanup: seconds a stopped body may go on.
        abandons: give up a thread whose body goes on for longer; else whoever asked has other means.
    """

    def __init__(
        self,
        worker: Worker,
        tasks: TaskGroup,
        backend: Backend,
        *,
        setup: Setup | None = None,
        cleanup: float = CLEANUP,
        abandons: bool = True,
    ) -> None:
        self._shared = Shared(worker, backend, copy_context(), setup, cleanup, abandons)
        self._tasks, self._limit = tasks, worker.hello.slots
        self._ready: deque[Job] = deque()
        self._idle: list[Slot] = []
        self._slots: dict[Slot, None] = {}
        self._threads = ThreadRunner(self._shared)

    def start(self, job: Job) -> None:
        """Begin a job."""
        if job.body.kind not in ON_LOOP:
            self._threads.start(job)
        elif self._idle:
            self._idle.pop().give(job)
        else:
            self._ready.append(job)
            if len(self._slots) < self._limit:
                self._open()

    def cancel(self, job: Job) -> None:
        """Stop a body. One that has not begun will see it."""
        if job.body.kind not in ON_LOOP:
            self._threads.cancel(job)
        elif job.state is not None:
            job.state.stop()

    def acked(self, job: Job) -> None:
        """A generator that waited for the store may go on."""
        if job.body.kind not in ON_LOOP:
            self._threads.acked(job)
        elif job.state is not None:
            job.state.make_room(job)

    def draining(self) -> None:
        """The worker drains: bodies that ignored their stop hold nothing up any more."""
        self._threads.draining()

    def close(self) -> None:
        """Let the threads go, and give bodies that clean up no more time."""
        self._threads.close()
        for slot in self._slots:
            slot.hurry()

    def _open(self) -> None:
        slot = Slot(self._shared, self._ready, self._idle)
        self._slots[slot] = None
        self._tasks.start_soon(self._keep, slot, name=f"lakeshore slot {len(self._slots)}")

    async def _keep(self, slot: Slot) -> None:
        """A slot ends only with its worker; if a body breaks its task (by a cancel scope that it left
        open, say), another takes its place and nothing is lost."""
        try:
            await slot.serve()
        except GeneratorExit:
            raise
        except BaseException as error:
            if slot.ending():
                raise
            self._replace(slot, error)
            with contextlib.suppress(get_cancelled_exc_class()):
                await checkpoint()  # a cancel that is still to come must not end the group

    def _replace(self, slot: Slot, error: BaseException) -> None:
        log.error("a slot's task was broken, and is replaced: %r", error, exc_info=error)
        del self._slots[slot]
        rest, job = slot.unfinished(), slot.job
        if rest is not None:
            self._ready.appendleft(rest)
        if job is not None:
            worker = self._shared.worker
            worker.ended(job, job.failed(error, self._shared.backend.now() - job.started))
        self._open()
