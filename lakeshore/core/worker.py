"""A worker: its slots, the attempts it holds, and the reports the head has not confirmed yet.

No loop of its own: the runner runs bodies and calls back, `timer` calls back at a time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import msgspec

from .away import PAIR, away_in
from .bodies import ON_LOOP, Absent, Body, Job
from .bond import Bond
from .clearing import Clearing
from .failures import describe
from .ids import text_of
from .logbook import SILENCE, Notes
from .messages import (
    Anew,
    Began,
    Bye,
    Cleared,
    Dismiss,
    Drain,
    Ended,
    EndedAck,
    Frames,
    FramesAck,
    GaveBack,
    Grant,
    Hello,
    Kept,
    LoggedAck,
    PleaseDrain,
    Quiet,
    Reclaim,
    Registered,
    Serving,
    Stop,
)
from .ports import Link, Values
from .running import Running
from .scribe import Scribe
from .values import unpack_call

log = logging.getLogger("lakeshore")

CLEANUP = 5.0  # seconds a cancelled body may go on for
BUSY = 0.1  # seconds with all slots taken until what has not begun goes back


class Unresolved(Exception):
    """The function of a grant can't be found here; the message says why."""


class Lacking(Unresolved):
    """Its pickle is not here: it may have been lost with a link."""


class Runner(Protocol):
    """Runs bodies, on slots that the worker counts."""

    def start(self, job: Job) -> None:
        """Begin a job: `Worker.ended` follows, once, after any `Worker.frames`."""
        ...

    def cancel(self, job: Job) -> None:
        """Stop a begun job's body, once; `job.why` says why."""
        ...

    def acked(self, job: Job) -> None:
        """Frames of the job were stored: it may be able to go on."""
        ...


Timer = Callable[[float, Callable[[], None]], Any]  # seconds from now, what to call; has cancel()


class Worker:
    """Takes grants, keeps slots full, and reports.

    Args:
        hello: how it registers.
        link: to its head.
        resolve: finds a body by what a grant says; raises `Unresolved`.
        keep: called with each grant as it comes, whether it is ever begun: a pickle comes along once.
        elsewhere: whether the runner finds the body of a grant itself, in the process that runs it.
        timer, now: the loop's clock.
        quiet: called when the head says that nothing is left to do.
        idle: called whenever nothing is held and nothing unconfirmed.
        failed: called with what must not happen, a bug in here: the worker must end, and what it
            holds go back. Without it, the error is raised where it came up.
        asked_to_drain: called when somebody asks the worker to drain; it drains by itself without.
        dismissed: called with the reason when the worker is removed: what it held is over already.
        plane, root: what `Running` gives to bodies.
    """

    def __init__(
        self,
        hello: Hello,
        link: Link,
        *,
        resolve: Callable[[Grant], Body],
        timer: Timer,
        now: Callable[[], float],
        payload_limit: int,
        quiet: Callable[[], None] = lambda: None,
        idle: Callable[[], None] = lambda: None,
        failed: Callable[[BaseException], None] | None = None,
        keep: Callable[[Grant], object] = lambda grant: None,
        elsewhere: Callable[[Grant], bool] = lambda grant: False,
        asked_to_drain: Callable[[], None] | None = None,
        dismissed: Callable[[str], None] = lambda reason: None,
        plane: Any = None,
        root: str | None = None,
    ) -> None:
        self._keep, self._elsewhere = keep, elsewhere
        self.hello, self.link, self.resolve = hello, link, resolve
        self._timer, self._now, self._limit = timer, now, payload_limit
        self.scribe = Scribe(self, timer)
        self.notes: Notes | None = None  # what bodies say goes there; without it, nowhere
        self.values: Values | None = None  # where large values are to be had
        self._quiet, self._idle, self._failed = quiet, idle, failed
        self._asked_to_drain, self._dismissed = asked_to_drain or self.drain, dismissed
        self._plane, self._root, self._slots = plane, root, hello.slots
        self.runner: Runner
        self.draining = self.left = False
        self.ran = 0
        self._missed: tuple[str, ...] = ()  # queues that the head did not have at the last hello
        self._waiting: deque[Grant] = deque()
        self._jobs: dict[bytes, Job] = {}
        self._unacked: dict[tuple[bytes, int], Ended] = {}
        self._names: dict[tuple[bytes, int], str] = {}  # of those that did not succeed, for the log
        self._stale: set[Job] = set()  # bodies of attempts that are another's now, until they have ended
        self.clearing = Clearing(self)
        self._bond = Bond(self) if hello.leased else None
        self._frames = {} if self._bond is None else self._bond.sent  # that are not stored, by attempt
        self._took = (
            None if self._bond is None else self._bond.took
        )  # what it was granted, if that is limited
        self._busy_timer: Any = None
        self._moved = False  # a slot came free since the timer was set
        self._handlers: dict[type, Callable[[Any], None]] = {
            Grant: self._on_grant,
            EndedAck: self._on_ended_ack,
            FramesAck: self._on_frames_ack,
            Cleared: self.clearing.on_cleared,
            LoggedAck: self.scribe.on_ack,
            Stop: self._on_stop,
            Reclaim: self._on_reclaim,
            Quiet: lambda message: self._quiet(),
            Registered: self._on_registered,
            Anew: self._on_anew,
            Serving: self._on_serving,
            PleaseDrain: lambda message: self._asked_to_drain(),
            Dismiss: self._on_dismiss,
        }

    def register(self) -> None:
        """Say hello."""
        self.link.send(self.hello)

    def unlinked(self) -> None:
        """The link is broken. Bodies go on, and nothing is begun; `relinked` follows, or `leave`."""
        self._calm()
        if self._bond is not None:
            self._bond.unlinked()

    def relinked(self, link: Link) -> None:
        """There is a new link: register again, with what is held. From the old one nothing may come
        any more."""
        self._calm()
        if self._bond is not None:
            self._bond.relinked(link)
        self.clearing.ask_again()

    @property
    def lease(self) -> float | None:
        """Seconds after which the head gives the worker up if it hears nothing; None until it has said."""
        return None if self._bond is None else self._bond.lease

    def receive(self, message: Any) -> None:
        """Take one message off the link."""
        try:
            self._handlers[type(message)](message)
        except BaseException as error:  # it would end the plane, whose loop may be the caller's
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """A bug in the worker itself."""
        if self._failed is None:
            raise error
        self._failed(error)

    @property
    def held(self) -> int:
        """Attempts that are running, waiting for a slot, or not confirmed yet."""
        return len(self._jobs) + len(self._waiting) + len(self._unacked) + len(self._stale)

    def attempts(self) -> Iterator[tuple[tuple[bytes, int], bool, bool]]:
        """What it holds of the head's: invocation and attempt, whether begun, whether ended."""
        for job in self._jobs.values():
            yield (job.id, job.attempt), True, False
        for key in self._unacked:
            yield key, True, True
        for grant in self._waiting:
            yield (grant.id, grant.attempt), False, False

    def runs(self, key: tuple[bytes, int]) -> bool:
        """Whether the body of an attempt runs here, and is the head's still."""
        job = self._jobs.get(key[0])
        return job is not None and job.attempt == key[1]

    def timed(self) -> list[Began]:
        """Attempts whose bodies have a timeout, or a process of their own."""
        jobs = [job for job in self._jobs.values() if job.begun or not self._elsewhere(job.grant)]
        timed = [job for job in jobs if job.pid or job.grant.call.options.timeout is not None]
        return [Began(job.id, job.attempt, job.pid) for job in timed]

    def reports(self) -> list[Ended]:
        """Ends that are not confirmed, in order."""
        return list(self._unacked.values())

    # grants

    def _on_grant(self, grant: Grant) -> None:
        if grant.call.options.function.value:
            self._keep(grant)
        if self._took is not None:
            self._took.add(grant.id)
        if self.draining:
            self._give_back(grant, "the worker is draining")
            return
        if not self._waiting and len(self._jobs) < self._slots:
            self._begin(grant)  # as `_fill` would
            return
        if not self._waiting:
            self._moved = True  # what waits now has not waited yet
        self._waiting.append(grant)
        self._fill()

    def _fill(self) -> None:
        waiting = self._waiting
        if self._bond is not None and not self._bond.linked:
            return  # the head may have given it to another
        while waiting and len(self._jobs) < self._slots:
            self._moved = True
            self._begin(waiting.popleft())
        if waiting and self._busy_timer is None:
            self._moved = False
            self._busy_timer = self._timer(BUSY, self._still_busy)

    def _still_busy(self) -> None:
        self._busy_timer = None
        if not self._waiting:
            return
        if self._moved:  # slots do come free: only one that has waited all the time is busy
            self._moved = False
            self._busy_timer = self._timer(BUSY, self._still_busy)
        else:
            self._return_waiting("its slots stayed busy")

    def _calm(self) -> None:
        if self._busy_timer is not None:
            self._busy_timer.cancel()
            self._busy_timer = None

    def _return_waiting(self, reason: str) -> None:
        self._calm()
        while self._waiting:
            self._give_back(self._waiting.popleft(), reason)

    def _give_back(
        self, grant: Grant, reason: str, *, unresolved: bool = False, lacking: bool = False
    ) -> None:
        """It was not begun here."""
        if self._took is not None:
            self._took.discard(grant.id)
        self.link.send(GaveBack(grant.id, grant.attempt, reason, unresolved=unresolved, lacking=lacking))

    def _begin(self, grant: Grant) -> None:
        options = grant.call.options
        if self._elsewhere(grant):
            body: Body = Absent(options.kind)
            running = Running(grant, body, False, self._plane, self._root)
            running.notes = self.notes
            job = self._jobs[grant.id] = Job(grant, body, (), {}, running, self._limit)
            self.runner.start(job)
            return
        try:
            body = self.resolve(grant)
        except Unresolved as error:
            self._give_back(grant, str(error), unresolved=True, lacking=isinstance(error, Lacking))
            return
        away = None
        try:
            away = None if grant.args[0] == PAIR else away_in(grant.args)
            args, kwargs = ((), {}) if away else unpack_call(grant.args, types=body.types)
        except BaseException as error:  # code of the arguments' own classes runs here
            self.ran += 1
            self._report(Ended(grant.id, grant.attempt, "fail", error=describe(error)), grant)
            return
        running = Running(grant, body, body.kind in ON_LOOP, self._plane, self._root)
        running.notes = self.notes
        job = self._jobs[grant.id] = Job(grant, body, args, kwargs, running, self._limit)
        if away is not None:
            job.away = away
        if options.timeout is not None:
            self.link.send(Began(grant.id, grant.attempt))
        self.runner.start(job)

    # what the runner says

    def began(self, job: Job, pid: int = 0) -> None:
        """The body begins now; its timeout with it. `pid`: its process, where it has one of its own."""
        job.begun, job.started = True, self._now()
        if pid and job.why != "stale":
            job.pid = pid
            self.link.send(Began(job.id, job.attempt, pid))
        timeout = job.grant.call.options.timeout
        if timeout is not None:
            job.timer = self._timer(timeout, lambda: self._stop(job, "timeout"))

    def frames(self, job: Job, count: int, data: bytes, away: tuple[bytes, ...] = ()) -> None:
        """The body yielded; `data` is `count` packed frames, with references to large ones in `away`."""
        if job.why != "stale":
            message = Frames(job.id, job.attempt, job.sent, count, data, away)
            if self._bond is not None:
                self._bond.keep(message)
            self.link.send(message)
        job.sending(count, len(data))

    def published(self, job: Job) -> None:
        """The files that a frame names are where they belong: the job may be stopped again."""
        if not job.done:
            self.clearing.done(job)
            if job.held:
                self._stop(job, job.held)

    def ended(self, job: Job, report: Ended | GaveBack) -> None:
        """The body is over, or was abandoned."""
        if job.done:
            return
        job.done = True
        job.running.over = True
        if self.clearing.asked:
            self.clearing.deny((job.id, job.attempt))
        if job.publishing:
            self.clearing.done(job)
        if job.timer is not None:
            job.timer.cancel()
        said, job.running.notes = job.running.notes, SILENCE
        if said is not self.notes and job.why != "stale":
            self.scribe.ended((job.id, job.attempt), said)
        if job.why == "stale":
            self._stale.discard(job)
            self._slots += 1
        else:
            del self._jobs[job.id]
        if type(report) is Ended:
            self.ran += 1
            if job.why != "stale":
                self._report(report, job.grant)
        elif job.why != "stale":
            if self._took is not None and cast(GaveBack, report).unresolved:
                self._took.discard(job.id)
            self._forget((job.id, job.attempt))
            self.link.send(report)
        if self._waiting:
            self._fill()
        if not (self._jobs or self._unacked or self._waiting or self._stale):
            self._idle()

    def _forget(self, key: tuple[bytes, int]) -> None:
        """The head wants nothing more of an attempt."""
        if self._frames:
            self._frames.pop(key, None)
        if self.scribe.said:
            self.scribe.forget(key)

    def _report(self, report: Ended, grant: Grant) -> None:
        self._unacked[report.id, report.attempt] = report
        if report.move != "succeed":
            self._names[report.id, report.attempt] = grant.call.options.function.name
        self.link.send(report)

    def _tell(self, report: Ended, ack: EndedAck) -> None:
        """Say in the worker's log how a body ended that did not succeed."""
        name = self._names.pop((report.id, report.attempt), "a body")
        why = report.error.headline if report.error is not None else report.reason
        job = f"{text_of(report.id)} ({name}), attempt {report.attempt}"
        if ack.state == "queued":
            log.info("%s failed and will be retried: %s", job, why)
        else:
            log.warning("%s: %s: %s", job, ack.state, why)

    # what the head says

    def _on_ended_ack(self, message: EndedAck) -> None:
        report = self._unacked.pop((message.id, message.attempt), None)
        if report is not None and report.move != "succeed":
            self._tell(report, message)
        if self._frames or self.scribe.said:
            self._forget((message.id, message.attempt))
        if not (self._jobs or self._unacked or self._waiting or self._stale):
            self._idle()

    def _on_frames_ack(self, message: FramesAck) -> None:
        job = self._jobs.get(message.id)
        key = (message.id, message.attempt)
        if self._bond is not None and not self._bond.confirmed(key, message.index):
            self.link.send(GaveBack(*key, "the head has lost frames that were stored", begun=True))
            self._drop(key)
        elif job is not None and job.attempt == message.attempt:
            job.confirmed(message.index)
            self.runner.acked(job)

    def _drop(self, key: tuple[bytes, int]) -> None:
        """An attempt is another's now: nothing of it is told any more, and its body is stopped."""
        self._forget(key)
        self.clearing.deny(key)
        self._unacked.pop(key, None)
        self._names.pop(key, None)
        job = self._jobs.get(key[0])
        if job is not None and job.attempt == key[1]:
            self._stop(job, "stale")

    def _on_stop(self, message: Stop) -> None:
        job = self._jobs.get(message.id)
        if message.why == "stale":
            self._drop((message.id, message.attempt))
        elif job is not None and job.attempt == message.attempt:
            self._stop(job, message.why)
            return
        for grant in self._waiting:
            if grant.id == message.id and grant.attempt == message.attempt:
                self._waiting.remove(grant)
                if message.why != "stale":
                    self._give_back(grant, "killed before it began")
                break
        if not self.held:
            self._idle()

    def _on_reclaim(self, message: Reclaim) -> None:
        for grant in self._waiting:
            if grant.id == message.id and grant.attempt == message.attempt:
                self._waiting.remove(grant)
                self._give_back(grant, "killed before it began")
                return
        job = self._jobs.get(message.id)
        if job is None:
            return
        if job.attempt == message.attempt and not job.begun and self._elsewhere(job.grant):
            self._stop(job, "kill")  # it waits for a process, or that still loads its function
        else:
            self.link.send(Kept(message.id, message.attempt))

    def _stop(self, job: Job, why: str) -> None:
        before = job.why
        if why == "stale" and before != "stale" and not job.done:
            del self._jobs[job.id]  # the head may grant another attempt of it
            self._stale.add(job)
            if job.running.files is not None:
                job.running.files.close()
            self._slots -= 1
            job.why = why
        if job.publishing and why != "stale":
            job.held = job.held or why
            return
        if job.done or before:
            return
        job.why = why
        job.running.cancelled = True
        self.clearing.deny((job.id, job.attempt))
        self.runner.cancel(job)

    def _on_registered(self, message: Registered) -> None:
        for name in message.missing:
            if name not in self._missed:
                log.warning(
                    "the head has no queue %s: it is served once it is added (`lakeshore queues add %s`)",
                    name,
                    name,
                )
        self._missed = message.missing
        if self._bond is not None:
            self._bond.registered(message)
            self._fill()

    def _on_anew(self, message: Anew) -> None:
        log.warning("the head had given this worker up: %s; it registers again", message.reason)
        self._calm()
        if self._bond is not None:
            self._bond.again()

    def _on_serving(self, message: Serving) -> None:
        self.hello = msgspec.structs.replace(self.hello, queues=message.queues)

    def _on_dismiss(self, message: Dismiss) -> None:
        """Everything is over already: report nothing, and end."""
        self.draining = True
        self._calm()
        self._waiting.clear()
        for key, _, _ in list(self.attempts()):
            self._drop(key)
        self._dismissed(message.reason)

    # ending

    def drain(self) -> None:
        """Take nothing more; what has not begun goes back at once."""
        if not self.draining:
            self.draining = True
            self.link.send(Drain())
            self._return_waiting("the worker is draining")
            if not self.held:
                self._idle()

    def interrupt(self) -> None:
        """The grace is over: cancel what still runs, it goes back free."""
        self.drain()
        for job in list(self._jobs.values()):
            self._stop(job, "drain")

    def leave(self) -> None:
        """Nothing is held any more, or nobody waits for it: say goodbye. What is held goes back."""
        self.draining = self.left = True
        self._calm()
        self._waiting.clear()
        self.clearing.deny_all()
        for job in self._jobs.values():
            if job.timer is not None:
                job.timer.cancel()
            if job.running.files is not None:
                job.running.files.close()
        self.link.send(Bye())
