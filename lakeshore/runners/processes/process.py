"""One child as its worker sees it: the job it has, how it is stopped, and how it ended."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol, cast
from weakref import WeakSet

from lakeshore.core.backend import Backend, Timed
from lakeshore.core.bodies import Job
from lakeshore.core.messages import Ended, FramesAck, GaveBack, Stop
from lakeshore.runners.processes.descriptors import PipeReader

from .outlets import Outlet
from .spawning import Spawned, signal_group
from .wire import Begun, Left, Quit, Ready, Run, Wire

TERMINATED = 2.0  # seconds between SIGTERM and SIGKILL
_LAST = 0.5  # seconds for what has left its process group to end its output
_LOOSE = 0.5  # seconds that a process may go on without its link


class Owner(Protocol):
    """Who minds processes; all of it is called on its loop."""

    def ready(self, process: Process) -> None:
        """It has loaded."""
        ...

    def begun(self, process: Process, job: Job, retries: int) -> None:
        """The body of its job begins."""
        ...

    def told(self, process: Process, job: Job, message: Any) -> None:
        """Whatever else it says of its job while that runs."""
        ...

    def ended(self, process: Process, job: Job, report: Ended | GaveBack) -> None:
        """Its job is over: it has none now."""
        ...

    def gone(self, process: Process) -> None:
        """It has ended, and its group with it; `status` says how."""
        ...

    def failed(self, error: BaseException) -> None:
        """A bug in here, which nobody else would hear of."""
        ...


class Process:
    """Args:
    spawned: it waits for its charge.
    charge: encoded, to be sent first.
    device: which GPU is its own; empty: none in particular.
    tee: where what it writes is shown, too.

    Raises: OSError, RuntimeError where there are no more descriptors or threads; it has ended then.

    Attributes:
        job: what it runs; nothing else may be sent to it, and it may be signalled for that alone.
        known: hashes of the pickles that it has, the last used at the end.
        doomed: a signal of ours is on its way to it: it gets no more jobs.
        spoiled: what a body has left in it; empty: nothing, as far as that can be seen.
        output: reads what it writes.
        fault: why, where it is the body's.
        used: bytes that its group took as it was ended for that.
    """

    def __init__(
        self,
        spawned: Spawned,
        charge: bytes,
        owner: Owner,
        backend: Backend,
        device: str = "",
        tee: Mapping[str, Outlet] | None = None,
    ) -> None:
        self.pid, self.device = spawned.pid, device
        self._owner, self._backend = owner, backend
        self._life: socket.socket | None = spawned.life
        self.job: Job | None = None
        self.begun = self.is_ready = self.doomed = self.worn = self.quitting = False
        self.retries = self.jobs = self.used = 0
        self.known: dict[bytes, None] = {}
        self.fault = self.spoiled = ""
        self.status: int | None = None
        self.since = backend.now()
        self._timer: Timed | None = None  # the next signal
        self._loose: Timed | None = None
        self.output: PipeReader | None = None
        self._watch: Callable[[], None] = _nothing
        self._wire = Wire(spawned.link, backend, self._receive, self._unlinked)
        try:
            self.output = PipeReader(spawned.pipes, tee) if spawned.pipes else None
            self._watch = _watch_exit(spawned.pid, backend, self._exited)
        except (OSError, RuntimeError):
            self.reap()
            for pipe in spawned.pipes.values() if self.output is None else ():
                os.close(pipe)
            raise
        self._wire.send_raw(charge)
        _processes.add(self)

    # what it is told

    def load_within(self, seconds: float) -> None:
        """It is killed where it takes longer than that."""
        self._later(seconds, self.kill)

    def give(self, job: Job, run: Run) -> None:
        """Run a job, its only one."""
        self.job, self.begun, self.retries = job, False, 0
        self.jobs += 1
        job.state = self
        if self.output is not None:
            self.output.turn_to(job.running)
        self._wire.send(run)

    def fit(self) -> bool:
        """Whether it may have a job: it lives, and nothing of the last one is at work in it."""
        if self.jobs:
            self._hear_out()
        return not (self.spoiled or self.doomed or self.quitting or self.status is not None)

    def acked(self, job: Job) -> None:
        """Frames were stored."""
        self._wire.send_soon(FramesAck(job.id, job.attempt, job.acked))

    def tell(self, job: Job, message: Any) -> None:
        """Say something about a job, if that is its job still."""
        if self.job is job:
            self._wire.send(message)

    def stop(self, job: Job, cleanup: float) -> None:
        """Ask the body to stop; after `cleanup` seconds the whole group is made to."""
        why = "kill" if job.why == "stale" else job.why  # a stale one reports to us, and we to nobody
        self._wire.send(Stop(job.id, job.attempt, why))
        self._later(cleanup, lambda: self._terminate(job))

    def _terminate(self, job: Job) -> None:
        if self.job is job and not self.doomed:
            self.doomed = True
            self._signal(signal.SIGTERM)
            self._later(TERMINATED, self.kill)

    def end(self, fault: str, used: int = 0) -> None:
        """Kill it for what its body did."""
        if not self.doomed:
            self.fault, self.used = fault, used
            self.kill()

    def kill(self) -> None:
        """Kill the whole group."""
        self.doomed = True
        self._signal(signal.SIGKILL)

    def quit(self, patience: float) -> None:
        """Have an idle one end by itself."""
        if not (self.quitting or self.doomed or self.status is not None):
            self.quitting = True
            self._wire.send(Quit())
            self._later(patience, self.kill)

    def _signal(self, number: int) -> None:
        if self.status is None:  # until it is waited for, its pid is nobody else's
            signal_group(self.pid, number)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._backend.later(seconds, call)

    # what it says

    def _receive(self, message: Any) -> None:
        try:
            self._take(message)
        except BaseException as error:
            self._owner.failed(error)

    def _take(self, message: Any) -> None:
        job = self.job
        if type(message) is Ready:
            self.is_ready = True
            self._quiet()
            self._owner.ready(self)
        elif type(message) is Left:
            self.spoiled = message.what
        elif job is None or message.id != job.id or message.attempt != job.attempt:
            return  # of one that is over
        elif type(message) is Begun:
            self.begun, self.retries = True, message.retries
            self._owner.begun(self, job, message.retries)
        elif type(message) not in (Ended, GaveBack):
            self._owner.told(self, job, message)
        else:
            self._forget_job()
            self._owner.ended(self, job, message)

    def _forget_job(self) -> None:
        self.job = None
        self._hear_out()
        if not self.doomed:
            self._quiet()

    def _quiet(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _unlinked(self) -> None:
        """Mostly it has just ended; else its body has closed what it does not know."""
        if self.status is None and not self.doomed:
            fault = "the body closed the descriptors by which its process is minded"
            self._loose = self._backend.later(_LOOSE, lambda: self.end(fault))

    # its end

    def _exited(self, status: int | None) -> None:
        """It is a zombie: its pid is still its own, so the group can be killed without doubt. Where a
        system has no way to tell that, `status` is how it ended."""
        if self.status is not None:
            return
        signal_group(self.pid, signal.SIGKILL)
        self.status = _reaped(self.pid) if status is None else status
        self._watch()
        if self._loose is not None:
            self._loose.cancel()
        self._wire.read()  # its last words
        self._hear_out()
        self._close()
        try:
            self._owner.gone(self)
        except BaseException as error:
            self._owner.failed(error)

    def _hear_out(self) -> None:
        """What it has written so far is the job's; what comes after that is nobody's."""
        if self.output is not None and self.output.turn_to(None):
            self.spoiled = self.spoiled or "something that goes on writing"

    def reap(self) -> None:
        """Kill it, and wait: nothing is told of it any more."""
        if self.status is None:
            self.kill()
            self.status = _reaped(self.pid)
            self._watch()
        self._close()

    def forget(self) -> None:
        """In a forked child: it is the parent's, and must not live by what is open here."""
        self.status = 0
        self._wire.forget()
        if self._life is not None:
            self._life.close()

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.output is not None:
            self.output.finish(_LAST)
        self._wire.close()
        if self._life is not None:
            self._life.close()


def _nothing() -> None:
    """There is nothing to end."""


def _reaped(pid: int) -> int:
    """Its exit code, or minus a signal."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # this process had its children ignored, or somebody else has waited for all
        return 0


def _watch_exit(pid: int, backend: Backend, exited: Callable[[int | None], None]) -> Callable[[], None]:
    """Call back on the loop once a child has ended, without waiting for it; what ends the watch."""
    if hasattr(os, "pidfd_open"):
        descriptor = _Descriptor(os.pidfd_open(pid))
        try:
            watch = backend.readable(cast("socket.socket", descriptor), lambda: exited(None))
        except BaseException:
            os.close(descriptor.fileno())
            raise

        def end() -> None:
            watch.cancel()
            os.close(descriptor.fileno())

        return end

    def wait() -> None:
        status: int | None = None
        if hasattr(os, "waitid"):
            with suppress(OSError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        else:
            status = _reaped(pid)
        with suppress(RuntimeError):  # the loop has ended
            backend.post(lambda: exited(status))

    threading.Thread(target=wait, name="lakeshore child", daemon=True).start()
    return _nothing


_processes: WeakSet[Process] = WeakSet()


def _after_fork() -> None:
    for each in list(_processes):
        each.forget()


os.register_at_fork(after_in_child=_after_fork)


class _Descriptor:
    """A descriptor that loops can wait for."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        """Its number."""
        return self._number
