"""What workers and their bodies may do in one step."""

from __future__ import annotations

from typing import Any

from lakeshore.core import messages as m
from lakeshore.core.bodies import Job
from lakeshore.core.values import pack_frames

from .reading import Reading
from .world import SimWorker


class Working(Reading):
    """Steps of workers."""

    def hire(self, slots: int = 1, queues: str = "", unknown: str = "", **hello: Any) -> None:
        """A worker comes."""
        if len(self.world.workers) < 4:
            self.world.hire(slots=slots, queues=tuple(queues.split()), unknown=unknown, **hello)

    def _worker(self, which: int) -> SimWorker | None:
        workers = self.world.workers
        return workers[which % len(workers)] if workers else None

    def lose(self, which: int = 0) -> None:
        """A worker dies."""
        worker = self._worker(which)
        if worker is not None:
            self.world.ended(worker, lost=True)

    def drain(self, which: int = 0) -> None:
        """A worker takes nothing more, and ends when it holds nothing."""
        worker = self._worker(which)
        if worker is not None:
            worker.worker.drain()

    def interrupt(self, which: int = 0) -> None:
        """The grace of a worker is over."""
        worker = self._worker(which)
        if worker is not None:
            worker.worker.interrupt()

    def leave(self, which: int = 0) -> None:
        """A worker ends at once, in good order: what it holds goes back."""
        worker = self._worker(which)
        if worker is not None:
            if not worker.linked_now:
                return
            self.world.model.hands[worker.worker.hello.worker].left = True
            worker.worker.leave()
            self.world.ended(worker, lost=False)

    def _body(self, which: int) -> tuple[SimWorker, Job] | None:
        jobs = [(worker, job) for worker in self.world.workers for job in worker.jobs.values()]
        return jobs[which % len(jobs)] if jobs else None

    def give(self, which: int = 0, count: int = 1) -> None:
        """A body yields."""
        found = self._body(which)
        if found is None or found[1].why:
            return
        worker, job = found
        given = self.world.model.yielded[job.id, job.attempt]
        values = [f"{job.id[-3:].hex()}/{job.attempt}/{len(given) + n}" for n in range(count)]
        given += values
        worker.worker.frames(job, count, pack_frames([self.world.plane.clock.wall] * count, values))

    def end(self, which: int = 0, how: str = "finish", size: int = 1) -> None:
        """A body ends; one that was told to stop does, unless it got away ("finish anyway")."""
        found = self._body(which)
        if found is None:
            return
        worker, job = found
        del worker.jobs[job.id]
        seconds = self.world.plane.clock.now - job.started
        if job.why and how != "anyway":
            report = _stopped(job, seconds)
            if isinstance(report, m.GaveBack) and worker.far:
                id = worker.model_hand.hello.worker
                self.world.model.gave_back[job.id, job.attempt] = id  # whoever hears it
            worker.worker.ended(job, report)
        elif how == "fail":
            worker.worker.ended(job, job.failed(ValueError("no"), seconds))
        elif how == "refuse":
            worker.worker.ended(job, job.failed(ValueError("never"), seconds, retryable=False))
        else:
            value = f"{job.attempt}" + "y" * size
            worker.worker.ended(job, job.succeeded(value, seconds))

    def repeat(self, which: int = 0, report: int = 0) -> None:
        """A worker says again what it, or another, has said before: best of what it holds anew."""
        reports = self.world.reports
        again = [
            (worker, said)
            for worker in self.world.workers
            for said in reports
            if any(id == said.id and attempt > said.attempt for id, attempt in self.world.holds(worker))
        ]
        if again:
            worker, said = again[report % len(again)]
            worker.link.send(said)
        elif reports and (found := self._worker(which)) is not None:
            found.link.send(reports[report % len(reports)])


def _stopped(job: Job, seconds: float) -> m.Ended | m.GaveBack:
    if job.why == "drain":
        return m.GaveBack(job.id, job.attempt, "drained", begun=True)
    return job.stopped("expire" if job.why == "timeout" else "kill", seconds, job.why)
