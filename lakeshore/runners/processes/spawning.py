"""Starting a child: by exec, in a session of its own, tied to the life of its parent."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from .outlets import duplicate

_FOLDER = str(Path(__file__).parents[3])  # where this package was found
_CODE = (  # not with the current folder, in which anything may lie
    "import sys; sys.path[:] = [path for path in sys.path if path] + [sys.argv.pop(1)]; "
    "__import__('importlib').import_module(sys.argv.pop(1)).main()"
)
_SIGNALS = [signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP]  # at their defaults in a child
_F_SETSIG = getattr(fcntl, "F_SETSIG", 10)  # which signal tells of a descriptor; Linux has it


class Spawned(NamedTuple):
    """A child that waits for its charge.

    Attributes:
        link: our end of what jobs go by.
        life: while this is open, it may live.
        pipes: read ends of what it writes to its descriptors 1 and 2, as "stdout" and "stderr"; empty:
            it writes where this process does.
    """

    pid: int
    link: socket.socket
    life: socket.socket
    pipes: dict[str, int]


def spawn(title: str, environ: Mapping[str, str], program: str, *, capture: bool = False) -> Spawned:
    """A child in a session of its own: a terminal's Ctrl-C is its worker's, and one signal reaches all
    that it starts. It reads nothing.

    Args:
        title: what a list of processes shows.
        program: the module whose `main` it runs.
        capture: what it writes to its descriptors is to be read by this process.

    Raises: OSError where there can't be another process.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        numbers: list[int] = []
        pairs = [_closing(socket.socketpair(), ours, theirs) for _ in range(2)]
        for _, sock in pairs:
            sock.set_inheritable(True)
            numbers.append(sock.fileno())
        pipes, actions = dict[str, int](), list[Any]()
        for number, source in ((1, "stdout"), (2, "stderr")) if capture else ():
            pipes[source], end = os.pipe()
            ours.callback(os.close, pipes[source])
            theirs.callback(os.close, end)
            kept = duplicate(source)
            theirs.callback(os.close, kept)
            for each in (end, kept):
                os.set_inheritable(each, True)
            actions += [(os.POSIX_SPAWN_DUP2, end, number), (os.POSIX_SPAWN_CLOSE, end)]
            numbers.append(kept)
        if not capture:
            numbers += [-1, -1]
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-c", _CODE, _FOLDER, program, *map(str, numbers), title],
            environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), *actions],
            setsid=True,
            setsigdef=_SIGNALS,
            setsigmask=[],
        )
        ours.pop_all()
    (link, _), (life, _) = pairs
    return Spawned(pid, link, life, pipes)


def _closing(
    pair: tuple[socket.socket, socket.socket], ours: ExitStack, theirs: ExitStack
) -> tuple[socket.socket, socket.socket]:
    ours.callback(pair[0].close)
    theirs.callback(pair[1].close)
    return pair


def tie(life: socket.socket) -> None:
    """In a child: once the parent is gone, however that came, the kernel kills this process and its whole
    group, even where no code of them could. Where it can't, `Wire.closed` has to do."""
    if sys.platform.startswith("linux"):
        fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a child that has not been waited for, and to all of its group."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # it has no group yet, or somebody else's program in it
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            return
