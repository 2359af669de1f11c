"""One worker, two runners: each body has the one that it asks for, else the worker's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from lakeshore.core.bodies import Job
from lakeshore.core.messages import Grant
from lakeshore.core.worker import Runner


class Ending(Runner, Protocol):
    """A runner whose worker may end."""

    def draining(self) -> None:
        """The worker takes nothing more."""
        ...

    def close(self) -> None:
        """The worker ends."""
        ...


class Choice:
    """Args:
    default: the name of one of `makers`.
    makers: what makes each runner, when it is first needed.
    """

    def __init__(self, default: str, makers: dict[str, Callable[[], Ending]]) -> None:
        self._default, self._makers = default, makers
        self.made: dict[str, Ending] = {}

    def name(self, grant: Grant) -> str:
        """Which runner a body has."""
        return grant.call.options.runner or self._default

    def open(self) -> None:
        """Make the worker's own."""
        self._get(self._default)

    def start(self, job: Job) -> None:
        """Begin a job."""
        self._of(job).start(job)

    def cancel(self, job: Job) -> None:
        """Stop a body."""
        self._of(job).cancel(job)

    def acked(self, job: Job) -> None:
        """Frames of it were stored."""
        self._of(job).acked(job)

    def draining(self) -> None:
        """The worker takes nothing more."""
        for runner in self._all():
            runner.draining()

    def close(self) -> None:
        """The worker ends."""
        for runner in self._all():
            runner.close()

    def _of(self, job: Job) -> Ending:
        return self._get(self.name(job.grant))

    def _get(self, name: str) -> Ending:
        runner = self.made.get(name)
        if runner is None:
            runner = self.made[name] = self._makers[name]()
        return runner

    def _all(self) -> Iterator[Ending]:
        return iter(self.made.values())
