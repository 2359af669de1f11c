"""The parent of a daemon. It loads little, runs no bodies, and so can always say whether its child lives.

It starts the child, again where that died, passes signals on, and ends with its child's exit status.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import select
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING

from lakeshore.core.ids import IdMaker
from lakeshore.sdk.logs import to_stderr

from .minded import AGAIN, DRAIN, DRAINED, END, FAILED, REMOVED, Child
from .options import DaemonOptions, take_over

if TYPE_CHECKING:
    from .early import Spawned
    from .reporter import Reporter

log = logging.getLogger("lakeshore")

STATUSES = {DRAINED: 0, FAILED: 1, REMOVED: 3}
_NEVER = float("inf")
_FIRST, _LONGEST = 0.5, 30.0  # seconds until a child that died is started again, for the second time on
_STEADY = 60.0  # seconds a child must live for its death to count as the first
_SLACK = 15.0  # seconds beyond its grace that a child may take to end
_REMOVED, _ENDED = 8.0, 5.0  # and once it is removed, or has said that it ends
_LAST_WORDS = 2.0  # seconds that the report of a death may take when the parent ends


class Parent:
    """Minds one child at a time until it is told to stop.

    Args:
        spawned: its first, which waits for its charge; else it starts one.
    """

    def __init__(self, options: DaemonOptions, spawned: Spawned | None = None) -> None:
        self._options, self._spawned = options, spawned
        self._new_id = IdMaker(lambda: time.time_ns() // 1_000_000, os.urandom, threading.Lock)
        self._reporter: Reporter
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._waker, False)
        self._child: Child | None = None
        self._deaths = 0
        self._began = 0.0
        self._begin_at = 0.0
        self._kill_at = _NEVER
        self._stops = 0  # how often it was told to stop
        self._removed = ""

    def run(self) -> int:
        """Until the end; the exit status."""
        self._take_signals()
        options = self._options
        log.info("daemon %s (pid %d) works for %s", options.name, os.getpid(), options.address)
        child = self._new_child()  # before the rest of us: it takes longer to load
        from .reporter import Reporter

        self._reporter = Reporter(options, self._on_dismissed, self._on_unknown)
        self._mind(child)
        self._reporter.start()
        try:
            while (status := self._turn()) is None:
                self._wait()
        finally:
            self._reporter.close(_LAST_WORDS)
        return status

    def _turn(self) -> int | None:
        """Look at everything; an exit status once it is over."""
        now, child = time.monotonic(), self._child
        if child is None:
            if self._stops or self._removed:
                return STATUSES[REMOVED if self._removed else DRAINED]
            if now >= self._begin_at:
                self._mind(self._new_child())
            return None
        if self._removed and self._kill_at == _NEVER:
            self._kill_at = now + _REMOVED
        status = child.status()
        if status is not None:
            return self._ended(child, status)
        if child.word and self._kill_at == _NEVER:
            self._kill_at = now + _ENDED
        if now >= self._kill_at:
            log.warning("the worker process %d does not end: it is killed", child.pid)
            self._kill_at = _NEVER
            child.kill()
        return None

    def _wait(self) -> None:
        child = self._child
        until = self._begin_at if child is None else self._kill_at
        timeout = None if until == _NEVER else max(0.0, until - time.monotonic())
        readers = [self._awake]
        if child is not None and child.open:
            readers.append(child.control.fileno())
        came, _, _ = select.select(readers, [], [], timeout)
        if child is not None and child.open:
            child.listen()
        if self._awake not in came:
            return
        with contextlib.suppress(BlockingIOError):
            for number in os.read(self._awake, 4096):
                if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    self._stop(signal.Signals(number))
                elif number == signal.SIGCHLD:
                    self._reporter.wake()

    # the child

    def _new_child(self) -> Child | None:
        self._began = time.monotonic()
        spawned, self._spawned = self._spawned, None
        try:
            return Child(self._new_id(), self._options, spawned)
        except OSError as error:  # no more processes, say
            self._begin_at = self._began + _LONGEST
            log.error("no worker process can be started (%s); trying again in %g s", error, _LONGEST)
            return None

    def _mind(self, child: Child | None) -> None:
        if child is not None:
            child.charge()  # first: the reporter's thread may have something to tell it
        self._child = child
        if child is not None:
            self._reporter.mind(child.worker, child.pid)

    def _ended(self, child: Child, status: int) -> int | None:
        word, how = child.last_word(), child.how(status)
        child.close()
        self._child, self._kill_at = None, _NEVER
        if word in STATUSES:
            return STATUSES[word]
        self._reporter.died(child.worker, how)
        if self._removed:
            return STATUSES[REMOVED]
        if self._stops:
            log.warning("the worker process %d ended on the way out: %s", child.pid, how)
            return status if status >= 0 else 128 - status
        self._again(child, how)
        return None

    def _again(self, child: Child, how: str) -> None:
        now = time.monotonic()
        self._deaths = 1 if now - self._began >= _STEADY else self._deaths + 1
        wait = 0.0
        if self._deaths > 1:
            wait = random.uniform(0.5, 1.0) * min(_LONGEST, _FIRST * 2.0 ** min(self._deaths - 2, 30))
        self._begin_at = now + wait
        soon = f"in {wait:.1f} s" if wait else "at once"
        log.warning("the worker process %d ended: %s; another one begins %s", child.pid, how, soon)

    # being told to stop

    def _stop(self, number: signal.Signals) -> None:
        self._stops += 1
        child = self._child
        if self._stops == 1:
            grace = self._options.grace
            log.info("stopping on %s: what runs has %g s to end", number.name, grace)
            self._kill_at = min(self._kill_at, time.monotonic() + grace + _SLACK)
        else:
            log.info("stopping at once on another %s", number.name)
            self._kill_at = min(self._kill_at, time.monotonic() + _SLACK)
        if child is not None:
            child.tell(DRAIN if self._stops == 1 else END)

    def _on_dismissed(self, reason: str) -> None:
        """On the reporter's thread: the child is told so too, if it listens."""
        if not self._removed:
            self._removed = reason
            with contextlib.suppress(BlockingIOError):
                os.write(self._waker, b"\0")

    def _on_unknown(self, worker: bytes) -> None:
        """On the reporter's thread: the child registers again, should it not know that it is lost."""
        child = self._child
        if child is not None and child.worker == worker:
            child.tell(AGAIN)

    def _take_signals(self) -> None:
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` has it
                signal.signal(number, _nothing)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The number is in the pipe."""


def main() -> None:
    """`python -c … DESCRIPTOR`, as `lakeshore.sdk.daemon.start` has it."""
    options, spawned = take_over(int(sys.argv[1]))
    to_stderr(options.log_format)
    status = Parent(options, spawned).run()
    log.info("daemon %s has ended, status %d", options.name, status)
    logging.shutdown()
    os._exit(status)
