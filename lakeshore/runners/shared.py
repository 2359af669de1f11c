"""What the slots and the threads of one worker share."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

from lakeshore.core.backend import Backend
from lakeshore.core.bodies import Job
from lakeshore.core.messages import Ended, GaveBack
from lakeshore.core.worker import Worker

Setup = Callable[[Any], Any]


class Shared:
    """Args:
    worker: who is told.
    backend: its loop.
    context: each body gets a copy.
    setup: called before each body, inside its context.
    cleanup: seconds a stopped body may go on.
    abandons: whether a body on a thread that goes on for longer is left behind.
    """

    __slots__ = ("abandons", "backend", "cleanup", "context", "setup", "worker")

    def __init__(
        self,
        worker: Worker,
        backend: Backend,
        context: Context,
        setup: Setup | None,
        cleanup: float,
        abandons: bool = True,
    ) -> None:
        self.worker, self.backend, self.context = worker, backend, context
        self.setup, self.cleanup, self.abandons = setup, cleanup, abandons


def stopped(job: Job, seconds: float) -> Ended | GaveBack:
    """The report of a body that ended because it was stopped."""
    if job.why == "timeout":
        limit = job.grant.call.options.timeout
        return job.stopped("expire", seconds, f"it ran longer than its timeout of {limit:g} s")
    if job.why == "kill":
        return job.stopped("kill", seconds, "killed while it was running")
    return GaveBack(job.id, job.attempt, "the worker's grace was over", begun=True)


def unbegun(job: Job) -> GaveBack:
    """The report of a body that was stopped before it began."""
    why = "killed before it began" if job.why == "kill" else "the worker ended before it began"
    return GaveBack(job.id, job.attempt, why)
