"""The child's half: a worker with one slot, whose head is the worker that minds it."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import msgspec

from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.bodies import Body, Job
from lakeshore.core.errors import OutOfMemory, ProcessDied
from lakeshore.core.messages import Began, Ended, Frames, GaveBack, Grant, Hello
from lakeshore.core.ports import Values
from lakeshore.core.worker import Worker
from lakeshore.runners.inline import InlineRunner
from lakeshore.runners.lines import Notebook
from lakeshore.runners.shared import Setup, unbegun

from .leftovers import Leftovers
from .wire import WANTS_DIED, WANTS_MEMORY, Begun, Charge, Denied, Left, Published, Quit, Ready, Run, Wire

_SAMPLES = (
    (WANTS_DIED, ProcessDied("the process of the body ended")),
    (WANTS_MEMORY, OutOfMemory("the process of the body ran out of memory")),
)


class _Inner(Worker):
    """Times nothing, keeps nothing and logs nothing: the worker that minds it does."""

    limit = 0  # bytes of memory
    leftovers = Leftovers()

    def began(self, job: Job, pid: int = 0) -> None:
        """The body begins now. That has left before it does anything: it may end this process."""
        job.begun, job.started = True, self._now()
        self.leftovers.begin()
        self.link.send(Begun(job.id, job.attempt, _retries(job)))

    def published(self, job: Job) -> None:
        """Stops that came meanwhile are kept by the worker that minds it."""
        self.link.send(Published(job.id, job.attempt))
        super().published(job)

    def ended(self, job: Job, report: Ended | GaveBack) -> None:
        """The body is over, and all that it said is told."""
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # the body has closed it, say
                stream.flush()
        if left := self.leftovers.found():
            self.link.send(Left(left))
        super().ended(job, report)
        self.scribe.forget((job.id, job.attempt))

    def _report(self, report: Ended, grant: Grant) -> None:
        error = report.error
        if self.limit and error is not None and error.type == "builtins.MemoryError":
            note = f"its process may take {self.limit} bytes (the worker's memory limit)"
            error = msgspec.structs.replace(error, notes=(*error.notes, note))
            report = msgspec.structs.replace(report, error=error)
        self.link.send(report)


class _Bodies(InlineRunner):
    """A runner for functions that may take long to load: what has been said meanwhile is heard first.

    Attributes:
        listen: takes in what has come.
    """

    listen: Callable[[], None]
    _starting: Job | None = None

    def start(self, job: Job) -> None:
        """Begin a job, unless it was stopped."""
        self._starting = job
        self.listen()
        self._starting = None
        if job.why:
            self._shared.worker.ended(job, unbegun(job))
        else:
            super().start(job)

    def cancel(self, job: Job) -> None:
        """Stop a body; one that is about to begin never does."""
        if job is not self._starting:
            super().cancel(job)


def _retries(job: Job) -> int:
    """Which deaths of this process `retry_on` wants the body tried again for."""
    if not job.grant.call.options.retries:
        return 0
    wanted = 0
    for bit, sample in _SAMPLES:
        with suppress(BaseException):  # a predicate of the user's that raises decides nothing
            wanted |= bit if job.body.wants_retry(sample) else 0
    return wanted


class _Upwards:
    """The link of the worker in the child."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def send(self, message: Any, /) -> None:
        """When a body begins, `Begun` says so."""
        if type(message) is Frames:
            self._wire.send_soon(message)
        elif type(message) is not Began:
            self._wire.send(message)

    def close(self) -> None:
        """It is closed by the end of the process."""


class Resolve:
    """Finds the body of a grant: `ours` those that are the parent's own, `theirs` all others."""

    def __init__(self, ours: Callable[[Grant], Body], theirs: Callable[[Grant], Body]) -> None:
        self._ours, self._theirs = ours, theirs
        self.trusted = False  # the grant that comes next

    def __call__(self, grant: Grant) -> Body:
        """The body. Raises Unresolved."""
        return self._ours(grant) if self.trusted else self._theirs(grant)


async def work(
    charge: Charge,
    sock: socket.socket,
    resolve: Resolve,
    *,
    setup: Setup | None,
    plane: Any,
    values: Values | None = None,
) -> None:
    """Run what comes by the link, until the worker that minds this process is gone or says so."""
    backend = current_backend()
    finished = backend.parker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        Charged(charge, sock, resolve, tasks, backend, setup, plane, values, lambda: finished.set(None))
        await finished.wait()
        tasks.cancel_scope.cancel()


class Charged:
    """The pieces of a child, put together."""

    def __init__(
        self,
        charge: Charge,
        sock: socket.socket,
        resolve: Resolve,
        tasks: Any,
        backend: Backend,
        setup: Setup | None,
        plane: Any,
        values: Values | None,
        finish: Callable[[], None],
    ) -> None:
        self._resolve, self._finish = resolve, finish
        self._wire = Wire(sock, backend, self._receive, _orphaned)
        hello = Hello(b"", "", "", os.getpid(), (), False, 1)
        self._worker = _Inner(
            hello,
            _Upwards(self._wire),
            resolve=resolve,
            timer=backend.later,
            now=backend.now,
            payload_limit=charge.payload_limit,
            plane=plane,
            root=charge.root,
        )
        self._worker.limit = charge.memory
        self._worker.notes = Notebook(self._worker.scribe, backend.post, tells=False)
        self._worker.values = values
        runner = _Bodies(self._worker, tasks, backend, setup=setup, cleanup=charge.cleanup, abandons=False)
        runner.listen = self._wire.read
        self._worker.runner = runner
        self._wire.send(Ready())

    def _receive(self, message: Any) -> None:
        if type(message) is Run:
            self._resolve.trusted = message.trusted
            self._worker.receive(message.grant)
        elif type(message) is Quit:
            self._finish()
        elif type(message) is Denied:
            self._worker.clearing.deny((message.id, message.attempt))
        else:
            self._worker.receive(message)


def _orphaned() -> None:
    """Nobody minds this process any more: it ends, and all that it has started."""
    os.killpg(0, signal.SIGKILL)
