"""A daemon's child begins to load as the command line does: each takes as long as the other.

Imports little: the command line comes here before anything else.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

_CODE = "from lakeshore.sdk.daemons.child import main; main()"


class Spawned(NamedTuple):
    """A child that waits for its charge: our end of its control socket, and its process."""

    control: socket.socket
    pid: int


_ahead: ContextVar[Spawned | None] = ContextVar("lakeshore_daemon_child", default=None)


def spawn(title: str, loop: str) -> Spawned:
    """A child of this process, in a group of its own: a terminal's Ctrl-C is the parent's to pass on.

    Args:
        title: what a list of processes shows.
        loop: the event loop that it will probably run. It loads that first.

    Raises: OSError where there can't be another process.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            theirs.set_inheritable(True)
            command = [sys.executable, "-c", _CODE, str(theirs.fileno()), title, loop]
            pid = os.posix_spawn(
                sys.executable,
                command,
                os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
                setpgroup=0,
                setsigdef=[signal.SIGPIPE],  # which Python ignores
            )
    except BaseException:
        ours.close()
        raise
    return Spawned(ours, pid)


@contextmanager
def child_ahead(title: str, loop: str) -> Generator[None]:
    """Start a child. Unless this process becomes its parent before the end of the block, it ends there."""
    try:
        child = spawn(title, loop)
    except OSError:  # the parent tries again, and says what is in the way
        yield
        return
    before = _ahead.set(child)
    try:
        yield
    finally:
        _ahead.reset(before)
        child.control.close()
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)  # it has no charge: nothing is lost
        with suppress(ChildProcessError):
            os.waitpid(child.pid, 0)


def ahead() -> Spawned | None:
    """The child that `child_ahead` has started."""
    return _ahead.get()
