"""A daemon's child as its parent sees it: how to start it, what to tell it, and how it ended."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from pathlib import Path

from .options import Charge, DaemonOptions, send_charge

DRAIN, END, AGAIN = b"d", b"e", b"a"  # (register again) what a child is told
DRAINED, REMOVED, FAILED = b"drained", b"removed", b"failed"  # its last word; without one it died

_CODE = "from lakeshore.sdk.daemons.child import main; main()"


class Child:
    """A process that works, in a group of its own: a terminal's Ctrl-C is the parent's to pass on.

    Args:
        worker: the id it registers under.
    """

    def __init__(self, worker: bytes, options: DaemonOptions) -> None:
        self.worker = worker
        self.word = b""
        self.open = True  # it may say more
        self._kills = _memory_kills()
        self.control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(theirs.fileno()), f"worker {options.name}"],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        with contextlib.suppress(OSError):  # it has ended already
            send_charge(self.control, Charge(worker, options))
        self.control.setblocking(False)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def tell(self, word: bytes) -> None:
        """Have it drain, or end."""
        with contextlib.suppress(OSError):
            self.control.send(word)

    def kill(self) -> None:
        """End it by force."""
        self._process.kill()

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
        return self._process.poll()

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
        if status == -signal.SIGKILL and _memory_kills() > self._kills:
            return f"out of memory: {reason}"
        return reason


def _memory_kills() -> int:
    """How many processes of our control group were killed as its memory ran out; 0 where nobody says."""
    try:
        group = next(line for line in Path("/proc/self/cgroup").read_text().split("\n") if line[:3] == "0::")
        events = Path(f"/sys/fs/cgroup{group[3:]}/memory.events").read_text()
    except (OSError, StopIteration):
        return 0
    counts = dict(line.split() for line in events.splitlines() if line.count(" ") == 1)
    return int(counts.get("oom_kill", 0))


__all__ = ["AGAIN", "DRAIN", "DRAINED", "END", "FAILED", "REMOVED", "Child"]
