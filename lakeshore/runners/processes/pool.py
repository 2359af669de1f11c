"""The processes of one worker: which take jobs, when there are more, and when they are replaced."""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable, Iterator

from anyio import to_thread

from lakeshore.core.backend import Backend, Timed
from lakeshore.runners.processes.descriptors import PipeReader

from .kernel import how, resident
from .limits import Limits
from .outlets import Outlet, outlets
from .process import Owner, Process
from .spawning import spawn
from .wire import Charge, framed

log = logging.getLogger("lakeshore")

_FIRST, _LONGEST = 0.5, 30.0  # seconds until a process is started again, where none would start
_STARTING = 120.0  # seconds that one may take to load
_TRIES = 3  # that fail until jobs don't wait for more
_QUIT = 5.0  # seconds that an idle one may take to end
_HURRY = 1.0  # and as its worker ends, or where a body has left something in it
_SHOWN = 1.0  # seconds, as its worker ends, for what bodies have written to be shown


class Pool:
    """Keeps up to `limits.slots` processes, one more than is busy of them, while it is open.

    Args:
        owner: told of what they say, after this.
        program: the module that they run.
        failing: called where none can be started, with the reason.
    """

    def __init__(
        self,
        owner: Owner,
        limits: Limits,
        program: str,
        backend: Backend,
        failing: Callable[[str], None],
    ) -> None:
        self._owner, self._limits, self._backend = owner, limits, backend
        self._program = program
        self._charge, self._failing = b"", failing
        self._devices = list(limits.devices)  # that no process has
        self._spare = True  # start one before it is needed
        self._waiting = 0  # jobs
        self._failures = 0  # in a row, of processes that did not load
        self._again: Timed | None = None
        self._gone: Callable[[], None] | None = None
        self._tee: dict[str, Outlet] = {}
        self._readers: list[PipeReader] = []  # of processes that have ended
        self.all: dict[Process, None] = {}
        self.idle: list[Process] = []
        self.closed = False

    def open(self, charge: Charge) -> None:
        """From now on processes may be started."""
        self._charge = framed(charge)
        if self._limits.capture and not self._tee:
            self._tee = outlets()

    def take(self) -> Process | None:
        """An idle process, for one job."""
        process = next(iter(self._fit()), None)
        if process is None:
            return None
        limit = self._limits.recycle_jobs
        if limit and process.jobs + 1 >= limit:
            process.worn = True  # the next one loads meanwhile
        return process

    def _fit(self) -> Iterator[Process]:
        while self.idle:
            process = self.idle.pop()
            if process.fit():
                yield process
            else:
                self._retire(process)

    def fill(self, waiting: int) -> None:
        """Start as many as are needed, for what waits and one more."""
        self._waiting = waiting
        if self.closed or self._again is not None or not self._charge:
            return
        fresh = [process for process in self.all if not (process.worn or process.doomed or process.quitting)]
        busy = sum(process.job is not None for process in fresh)
        wanted = min(self._limits.slots, busy + waiting + self._spare)
        for _ in range(wanted - len(fresh)):
            if self._limits.devices and not self._devices:
                return  # the one that has it ends first
            if not self._start():
                return

    def draining(self) -> None:
        """No more jobs come but those that wait."""
        self._spare = False

    def _start(self) -> bool:
        device = self._devices.pop(0) if self._devices else ""
        environ = dict(os.environ)
        if device:
            environ[self._limits.variable] = device
        try:
            spawned = spawn("body", environ, self._program, capture=self._limits.capture)
            process = Process(spawned, self._charge, self._owner, self._backend, device, self._tee)
        except (OSError, RuntimeError) as error:
            if device:
                self._devices.insert(0, device)
            self._failed(f"no process can be started for bodies ({error})")
            return False
        self.all[process] = None
        process.load_within(_STARTING)
        return True

    def _failed(self, why: str) -> None:
        self._failures += 1
        wait = random.uniform(0.5, 1.0) * min(_LONGEST, _FIRST * 2.0 ** min(self._failures - 1, 30))
        log.error("%s; trying again in %.1f s", why, wait)
        self._again = self._backend.later(wait, self._try_again)
        if self._failures >= _TRIES:
            self._failing(why)

    def _try_again(self) -> None:
        self._again = None
        self.fill(self._waiting)

    # what becomes of them

    def ready(self, process: Process) -> None:
        """It has loaded: one that is to be replaced goes."""
        self._failures = 0
        if not process.fit():
            return
        self.idle.insert(0, process)
        old = next((each for each in self.idle if each.worn), None)
        if old is not None:
            self._retire(old)

    def free(self, process: Process) -> None:
        """Its job is over."""
        if self.closed:
            return
        if not process.fit():
            self._retire(process)
            return
        limits = self._limits
        if not process.worn and self._is_old(process):
            process.worn = True  # it goes on until the next one has loaded
        spent = limits.recycle_jobs and process.jobs >= limits.recycle_jobs
        if process.worn and (spent or limits.devices or any(not each.worn for each in self.idle)):
            self._retire(process)
        else:
            self.idle.append(process)

    def _is_old(self, process: Process) -> bool:
        limits = self._limits
        if limits.recycle_age and self._backend.now() - process.since >= limits.recycle_age:
            return True
        limit = limits.recycle_memory
        return bool(limit) and resident((process.pid,)) > limit

    def _retire(self, process: Process) -> None:
        if process in self.idle:
            self.idle.remove(process)
        if process.spoiled and process.status is None:
            log.info("process %d is replaced: a body has left %s in it", process.pid, process.spoiled)
        process.quit(_HURRY if process.spoiled else _QUIT)

    def gone(self, process: Process) -> None:
        """It has ended."""
        del self.all[process]
        if process.output is not None:
            self._readers = [each for each in self._readers if not each.join(0)] + [process.output]
        if process in self.idle:
            self.idle.remove(process)
        if process.device:
            self._devices.append(process.device)
        if not self.all and self._gone is not None:
            self._gone()
        if self.closed or process.quitting:
            return
        if not process.is_ready:
            self._failed(f"a process for bodies {how(process.status or 0)} while it loaded")
        elif process.job is None and not process.doomed:
            log.warning(
                "an idle process of bodies, %d, %s: another takes its place",
                process.pid,
                how(process.status or 0),
            )

    async def aclose(self) -> None:
        """End all: idle ones by themselves, the others by force. None is left."""
        self.close()
        if self.all:
            parker = self._backend.parker()
            self._gone = lambda: parker.set(None)
            timer = self._backend.later(2 * _HURRY, self._gone)
            try:
                await parker.wait()
            finally:
                timer.cancel()
                for process in list(self.all):
                    process.reap()
                    if process.output is not None:
                        self._readers.append(process.output)
                self.all.clear()
        if self._tee:
            await to_thread.run_sync(self._show)

    def _show(self) -> None:
        """What bodies have written is on its way: wait for that, unless nobody reads it."""
        until = time.monotonic() + _SHOWN
        for reader in self._readers:
            reader.join(max(0.0, until - time.monotonic()))
        for outlet in self._tee.values():
            outlet.close(until)
        self._tee.clear()

    def close(self) -> None:
        """Begin to end."""
        if self.closed:
            return
        self.closed = True
        if self._again is not None:
            self._again.cancel()
        for process in self.all:
            if process.is_ready and process.job is None:
                process.quit(_HURRY)
            else:
                process.kill()
