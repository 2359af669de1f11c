"""The program that a child of the `process` runner runs."""

from __future__ import annotations

import faulthandler
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from lakeshore.runners.capture import capturing
from lakeshore.runners.processes.child import Resolve, work
from lakeshore.runners.processes.descriptors import print_through
from lakeshore.runners.processes.spawning import tie
from lakeshore.runners.processes.wire import Charge, receive_charge
from lakeshore.sdk.current import Later
from lakeshore.sdk.resolver import Resolver
from lakeshore.sdk.run import run
from lakeshore.storage.values import StoredValues

_FENCE = 1 << 30  # bytes beyond twice its limit that a process may ask for at all


def main() -> None:
    """`python -c … FOLDER LINK LIFE STDOUT STDERR TITLE`, as `spawn` has it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # from outside it is a kill; loops leave this alone
    link, life = (_socket(number) for number in sys.argv[1:3])
    saved = {"stdout": int(sys.argv[3]), "stderr": int(sys.argv[4])}
    tie(life)
    try:
        charge = receive_charge(link)
    except (EOFError, OSError):  # it is not needed any more
        sys.exit(0)
    sys.argv[:] = ["lakeshore body"]
    sys.path[:] = charge.path
    captures = saved["stdout"] >= 0
    if captures:
        faulthandler.enable(2)  # the last words of one that crashes
        print_through(saved)
    if charge.log_format:
        from lakeshore.sdk.logs import to_stderr

        to_stderr(charge.log_format)
    if charge.memory:
        _fence(2 * charge.memory + _FENCE)
    with capturing(captures, streams=False):
        anyio.run(partial(_run, charge, link), backend=charge.backend)


def _socket(number: str) -> socket.socket:
    sock = socket.socket(fileno=int(number))
    sock.set_inheritable(False)
    return sock


async def _run(charge: Charge, link: socket.socket) -> None:
    theirs = Resolver(
        {}, allow_pickle=charge.allow_pickle, trust=charge.trust, strict_source=charge.strict_source
    )
    ours = Resolver({}, allow_pickle=True)
    plane = Later(partial(_plane, charge))
    await work(charge, link, Resolve(ours, theirs), setup=_setup(charge), plane=plane, values=StoredValues())


def _plane(charge: Charge) -> Any:
    """The plane that bodies submit to: the one that they came from."""
    if not charge.address:
        raise RuntimeError(charge.plane_error)
    from lakeshore.sdk.dispatch import Dispatch

    return Dispatch(
        charge.address,
        namespace=charge.namespace or None,
        token=charge.token or None,
        ca=charge.ca or None,
    )


def _setup(charge: Charge) -> Callable[[Any], Any] | None:
    hook = pickle.loads(charge.setup) if charge.setup else None
    if charge.hooks:
        from lakeshore.sdk.worker_options import load_hooks

        loaded = load_hooks(charge.hooks)
        hook = None if loaded is None else loaded.on_run_setup
    return None if hook is None else partial(_set_up, hook)


def _set_up(hook: Callable[[Any], Any], running: Any) -> Any:
    return hook(run)


def _fence(most: int) -> None:
    """A body that asks for far more than it may have hears a MemoryError at once: nobody has to notice."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
