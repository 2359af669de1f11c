"""A daemon's child as its parent sees it: how to start it, what to tell it, and how it ended."""

from __future__ import annotations

import contextlib
import os
import signal

from lakeshore.runners.processes.kernel import memory_kills

from .early import Spawned, spawn
from .options import Charge, DaemonOptions, send_charge

DRAIN, END, AGAIN = b"d", b"e", b"a"  # (register again) what a child is told
DRAINED, REMOVED, FAILED = b"drained", b"removed", b"failed"  # its last word; without one it died


class Child:
    """A process that works, once it has its charge.

    Args:
        worker: the id it registers under.
        spawned: one that waits for its charge; else a new one is started.
    """

    def __init__(self, worker: bytes, options: DaemonOptions, spawned: Spawned | None = None) -> None:
        self.worker, self._options = worker, options
        self.word = b""
        self.open = True  # it may say more
        self._kills = memory_kills()
        self._status: int | None = None
        self.control, self.pid = spawned or spawn(f"worker {options.name}", options.backend)

    def charge(self) -> None:
        """Have it begin. Nothing may be told before."""
        with contextlib.suppress(OSError):  # it has ended already
            send_charge(self.control, Charge(self.worker, self._options))
        self.control.setblocking(False)

    def tell(self, word: bytes) -> None:
        """Have it drain, or end."""
        with contextlib.suppress(OSError):
            self.control.send(word)

    def kill(self) -> None:
        """End it by force."""
        if self.status() is None:
            os.kill(self.pid, signal.SIGKILL)

    def listen(self) -> None:
        """Take what it has said."""
        try:
            said = self.control.recv(1024)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        self.word += said
        self.open = bool(said)

    def status(self) -> int | None:
        """Its exit status, or minus the signal that killed it; None while it lives."""
        if self._status is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # it ended while this process had its children ignored
                pid, status = self.pid, 0
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def last_word(self) -> bytes:
        """Why it ended by itself; empty where it died."""
        self.listen()
        return self.word

    def close(self) -> None:
        """It has ended."""
        self.control.close()

    def how(self, status: int) -> str:
        """How it ended, in words."""
        if status >= 0:
            return f"exit status {status}"
        reason = f"killed by signal {-status}"
        with contextlib.suppress(ValueError):
            reason += f" ({signal.Signals(-status).name})"
        if status == -signal.SIGKILL and memory_kills() > self._kills:
            return f"out of memory: {reason}"
        return reason


__all__ = ["AGAIN", "DRAIN", "DRAINED", "END", "FAILED", "REMOVED", "Child"]
