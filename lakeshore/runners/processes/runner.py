"""Bodies in processes: a timeout really ends one, and what ends one ends nothing else."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from lakeshore.core.backend import Backend, Timed
from lakeshore.core.bodies import Job
from lakeshore.core.failures import describe
from lakeshore.core.messages import Cleared, Ended, Frames, GaveBack, Logged, LoggedAck, Progressed, Publish
from lakeshore.core.worker import Worker
from lakeshore.runners.shared import unbegun

from .deaths import report, unloadable
from .functions import Grants
from .kernel import members, memory_kills, proportional, resident
from .limits import Limits
from .pool import Pool
from .process import Process
from .wire import Charge, Denied, Published

log = logging.getLogger("lakeshore")


def _answer(job: Job, cleared: bool) -> Cleared | Denied:
    return (Cleared if cleared else Denied)(job.id, job.attempt)


def _killed_unbegun(job: Job, process: Process) -> bool:
    """Whether a job was killed while its process was still on its way to the body, which never ran."""
    return job.why == "kill" and not process.begun


_MARGIN = 0.1  # seconds beyond its cleanup that a body has to end by itself
_WATCH = 0.1  # seconds between two looks at the memory of what runs
_LOOK_AROUND = 10  # of them in which what bodies have started is looked for anew
_FRESH = 1.0  # seconds for which the count of those killed for memory is taken to be known
_LOADS = 2  # processes that may end while they load one job's function


class ProcessRunner:
    """Runs bodies for one worker, each in a process that has one at a time.

    Args:
        worker: who is told.
        grants: how a child finds functions.
        program: the module whose `main` a child runs; it hears its charge, and calls `child.work`.
        left: called with a job whose process has died: what it had on its way to a storage is still there.
    """

    def __init__(
        self,
        worker: Worker,
        backend: Backend,
        limits: Limits,
        grants: Grants,
        program: str,
        left: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self._worker, self._backend, self._limits = worker, backend, limits
        self._grants, self._left = grants, left
        self._queue: deque[Job] = deque()
        self._loads: dict[Job, int] = {}  # processes that ended as they loaded its function
        self._pool = Pool(self, limits, program, backend, self._failing)
        self._kills, self._kills_at = memory_kills(), backend.now()
        self._watch: Timed | None = None
        self._groups: dict[int, list[int]] = {}
        self._looks = 0

    def open(self, charge: Charge) -> None:
        """Begin: `charge` is what every child is told first. One loads before the first job comes."""
        self._pool.open(charge)
        self._pool.fill(len(self._queue))

    # as a runner

    def start(self, job: Job) -> None:
        """Hand a job to a process, or have it wait for one."""
        self._queue.append(job)
        self._match()

    def cancel(self, job: Job) -> None:
        """Stop a body, first by asking."""
        process = job.state
        if process is None:
            self._queue.remove(job)
            self._loads.pop(job, None)
            self._worker.ended(job, unbegun(job))
        else:
            process.stop(job, self._limits.cleanup + _MARGIN)

    def acked(self, job: Job) -> None:
        """Frames of it were stored."""
        if job.state is not None:
            job.state.acked(job)

    def draining(self) -> None:
        """Nothing more comes."""
        self._pool.draining()

    def close(self) -> None:
        """End every process; `aclose` waits for that."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._pool.close()

    async def aclose(self) -> None:
        """Leave none behind."""
        self.close()
        await self._pool.aclose()

    # handing out

    def _match(self) -> None:
        queue = self._queue
        while queue and (process := self._pool.take()) is not None:
            self._give(process, queue.popleft())
        self._pool.fill(len(queue))

    def _give(self, process: Process, job: Job) -> None:
        try:
            run = self._grants.run(job.grant, process.known)
        except TypeError as error:  # of a body that only this process has
            self._pool.idle.append(process)
            self._worker.ended(job, Ended(job.id, job.attempt, "fail", error=describe(error)))
            return
        now = self._backend.now()
        if now - self._kills_at > _FRESH:
            self._kills, self._kills_at = memory_kills(), now
        process.give(job, run)
        if self._limits.memory and self._watch is None:
            self._look()

    def _failing(self, why: str) -> None:
        """No process can be started: what waits goes back."""
        jobs = list(self._queue)
        self._queue.clear()
        for job in jobs:
            self._loads.pop(job, None)
            self._worker.ended(job, GaveBack(job.id, job.attempt, why))

    # what processes say

    def ready(self, process: Process) -> None:
        """It takes jobs."""
        self._pool.ready(process)
        self._match()

    def begun(self, process: Process, job: Job, retries: int) -> None:
        """The body begins, and its timeout with it."""
        self._loads.pop(job, None)
        self._worker.began(job, process.pid)

    def told(self, process: Process, job: Job, message: Any) -> None:
        """It yielded, or said something, or wants its files to be seen."""
        worker, running = self._worker, job.running
        match message:
            case Frames():
                worker.frames(job, message.count, message.data, message.away)
            case Logged():
                if running.notes is not None:
                    running.notes.forward(running, message.count, message.data)
                process.tell(job, LoggedAck(job.id, job.attempt, message.index + message.count))
            case Progressed():
                found = message.progress
                if running.notes is not None:
                    running.notes.progress(running, found.done, found.total, found.text)
            case Publish():
                worker.clearing.ask(job, lambda cleared: process.tell(job, _answer(job, cleared)))
            case Published():
                worker.published(job)
            case _:
                raise TypeError(f"a process said {message!r}")

    def ended(self, process: Process, job: Job, report: Ended | GaveBack) -> None:
        """Its process may have the next one."""
        self._pool.free(process)
        job.state = None
        self._loads.pop(job, None)
        if _killed_unbegun(job, process):
            report = unbegun(job)
        self._worker.ended(job, report)
        self._match()

    def gone(self, process: Process) -> None:
        """A process has ended. What it ran ended with it, unless that had not begun."""
        job = process.job
        self._pool.gone(process)
        if job is not None:
            job.state = None
            self._lost(job, process)
        self._match()

    def failed(self, error: BaseException) -> None:
        """A bug."""
        self._worker.failed(error)

    def _lost(self, job: Job, process: Process) -> None:
        loads = self._loads.get(job, 0) + 1
        ended: Ended | GaveBack
        if self._pool.closed:
            ended = GaveBack(job.id, job.attempt, "the worker has ended", begun=process.begun)
        elif _killed_unbegun(job, process):
            ended = unbegun(job)
        elif process.begun or job.why or process.fault:
            self._left(job)
            ended = report(job, process, self._seconds(job), self._was_memory(), self._limits.memory)
        elif loads >= _LOADS:
            ended = unloadable(job, process)
        else:
            self._loads[job] = loads
            log.warning("process %d ended before it began a job: another takes it", process.pid)
            self._queue.appendleft(job)
            return
        self._loads.pop(job, None)
        self._worker.ended(job, ended)

    def _seconds(self, job: Job) -> float:
        return self._backend.now() - job.started if job.begun else 0.0

    def _was_memory(self) -> bool:
        """Whether the kernel has killed for memory since that was looked at."""
        before, self._kills = self._kills, memory_kills()
        return self._kills > before

    # memory

    def _look(self) -> None:
        """End what takes more than it may."""
        running = [process for process in self._pool.all if process.job is not None and not process.doomed]
        self._watch = self._backend.later(_WATCH, self._look) if running else None
        if self._looks % _LOOK_AROUND == 0 or any(process.pid not in self._groups for process in running):
            self._groups = members(process.pid for process in running)
        self._looks += 1
        limit = self._limits.memory
        for process in running:
            pids = self._groups[process.pid]
            if resident(pids) > limit and (used := proportional(pids)) > limit:
                process.end("memory limit", used)
