"""Which of a worker's jobs may move their files to their keys: the head knows, and is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .bodies import Job
from .messages import Cleared, Publish

if TYPE_CHECKING:
    from .worker import Worker

Key = tuple[bytes, int]  # an invocation and an attempt
Told = Callable[[bool], None]


class Clearing:
    """The part of a worker that asks. All of it runs on the worker's loop.

    Attributes:
        asked: who waits for the answer.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.asked: dict[Key, tuple[Job, Told]] = {}
        self._publishing: set[Job] = set()
        self._then: Callable[[], None] | None = None

    def ask(self, job: Job, told: Told) -> None:
        """Ask whether the files of a job may be published; `told` is called once. One that was asked to
        stop may not; one that may is not stopped until it has ended, or says that it publishes no more."""
        if job.done or job.why or self._worker.left:
            told(False)
            return
        self.asked[job.id, job.attempt] = job, told
        self._worker.link.send(Publish(job.id, job.attempt))

    def ask_again(self) -> None:
        """There is a new link."""
        for key in self.asked:
            self._worker.link.send(Publish(*key))

    def on_cleared(self, message: Cleared) -> None:
        """The head says yes; too late for one that was stopped meanwhile."""
        job, told = self.asked.pop((message.id, message.attempt), (None, None))
        if job is None or told is None:
            return
        if not job.why:
            job.publishing = True
            self._publishing.add(job)
        told(job.publishing)

    def deny(self, key: Key) -> None:
        """An attempt is over, or stopped: if it waits for the answer, that is no."""
        _, told = self.asked.pop(key, (None, None))
        if told is not None:
            told(False)

    def deny_all(self) -> None:
        """The worker leaves."""
        for key in list(self.asked):
            self.deny(key)

    def done(self, job: Job) -> None:
        """A job publishes nothing any more."""
        job.publishing = False
        self._publishing.discard(job)
        self._look()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call once no job is publishing: at once, or later."""
        self._then = call
        self._look()

    def _look(self) -> None:
        call = self._then
        if call is not None and not self._publishing:
            self._then = None
            call()
