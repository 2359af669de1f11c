"""The child of a daemon: a worker whose parent says that it lives."""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import anyio

from lakeshore.core.about import installed
from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.errors import InternalError, LakeshoreError, PlaneFailed
from lakeshore.sdk.aio import AsyncDispatch
from lakeshore.sdk.choices import Runner
from lakeshore.sdk.logs import to_stderr
from lakeshore.sdk.processes.options import Processes
from lakeshore.sdk.worker_options import WorkerOptions, load_hooks
from lakeshore.sdk.working import Working

from .minded import DRAIN, DRAINED, END, FAILED, REMOVED
from .options import Charge, DaemonOptions, receive_charge

log = logging.getLogger("lakeshore")

_ORPHANED = 12.0  # seconds that a child may go on without its parent, to give back what it has
_PACKAGES = ("cloudpickle", "msgspec", "numpy", "torch", "pillow", "pandas", "jax")  # worth telling a head


class Child:
    """Works until it is told to stop, by its parent, by a signal, or by the head."""

    def __init__(self, charge: Charge, control: socket.socket) -> None:
        self._charge, self._control = charge, control
        self._working: Working | None = None
        self._opening: anyio.CancelScope
        self._backend: Backend | None = None
        self._stopped = False

    async def run(self) -> bytes:
        """The last word, for the parent."""
        self._opening, self._backend = anyio.CancelScope(), current_backend()
        if self._stopped:
            return DRAINED
        threading.Thread(target=self._listen, name="lakeshore child", daemon=True).start()
        options, error = self._charge.options, None
        asked = worker_options(options)
        with self._opening:
            face = AsyncDispatch(
                options.address,
                namespace=options.namespace or None,
                token=options.token or None,
                ca=options.ca or None,
                connect_timeout=None,
            )
            async with face:
                self._working = working = Working(face, asked, None, self._charge.worker)
                try:
                    await working.run(signals=True)
                except (Exception, KeyboardInterrupt) as raised:  # outside of the face's task group
                    error = raised
                if working.bereft:  # its supervisor starts it again: then another child finds it
                    error = PlaneFailed("the head has ended on a bug")
                if working.dismissal:
                    return REMOVED
        if error is not None and not isinstance(error, KeyboardInterrupt):
            raise error
        return DRAINED

    def _listen(self) -> None:
        """On a thread: what the parent says, and whether it is there."""
        with suppress(OSError):
            while word := self._control.recv(1):
                if word == DRAIN:
                    self.drain()
                elif word == END:
                    self._post(self._end)
                elif self._working is not None:
                    self._working.register_again()
        self._post(self._end)
        time.sleep(_ORPHANED)
        os._exit(1)

    def drain(self) -> None:
        """Take nothing more, and end once what runs has ended. From any thread."""
        self._stopped = True
        self._post(self._drain)

    def _post(self, call: Any) -> None:
        if self._backend is not None:
            with suppress(RuntimeError):  # its loop has ended
                self._backend.post(call)

    def _drain(self) -> None:
        if self._working is None:
            self._opening.cancel()
        else:
            self._working.stop()
            log.info("nothing more is taken; what runs has %g s to end", self._charge.options.grace)

    def _end(self) -> None:
        if self._working is None:
            self._opening.cancel()
        else:
            self._working.stop(at_once=True)


def worker_options(options: DaemonOptions) -> WorkerOptions:
    """What the worker is to be. Raises: ValueError, TypeError; whatever importing the hooks raises."""
    made = WorkerOptions(
        options.queues,
        False,
        False,
        options.slots,
        _runner(options),
        options.name,
        options.labels,
        options.allow_pickle,
        options.trust,
        options.strict_source,
        None,
        options.grace,
        load_hooks(options.hooks),
        options.capture,
    )
    made.hooks_name, made.log_format = options.hooks, options.log_format
    made.beats, made.daemon, made.packages = False, True, installed(*_PACKAGES)
    return made


def _runner(options: DaemonOptions) -> Runner | Processes:
    if options.runner == "inline":
        return "inline"
    return Processes(
        options.memory, options.recycle_jobs, options.recycle_age, options.recycle_memory, options.gpus
    )


def _die_with_parent() -> None:
    """On Linux the kernel ends a child whose parent is gone, even one that no Python code can stop.

    The signal of the parent's death calls `alarm` with its own number as the seconds, so that there is
    time to give back what runs; what is not over by then ends with the alarm.
    """
    if not sys.platform.startswith("linux"):
        return
    number = int(getattr(signal, "SIGSTKFLT", signal.SIGUSR2))  # 16, which nobody sends
    libc: Any = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(number, ctypes.cast(libc.alarm, ctypes.c_void_p))
    libc.prctl(1, number, 0, 0, 0)  # PR_SET_PDEATHSIG


def main() -> None:
    """`python -c … DESCRIPTOR TITLE LOOP`, as `spawn` has it."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    _die_with_parent()
    with suppress(ImportError):  # whoever gives the charge will know
        importlib.import_module(f"anyio._backends._{sys.argv[3]}")
    try:
        charge = receive_charge(control)
    except (EOFError, OSError):  # the command line was wrong, say: whoever began this has told why
        sys.exit(1)
    options = charge.options
    to_stderr(options.log_format)
    sys.argv[:] = ["lakeshore daemon"]
    sys.path[:] = [path for path in sys.path if path]
    sys.path.insert(0, os.getcwd())  # bodies are imported from the current folder, as `python -m` does
    word, child = b"", Child(charge, control)
    for number in (signal.SIGTERM, signal.SIGINT):  # until the worker runs, which takes them over
        signal.signal(number, lambda number, frame: child.drain())
    try:
        word = anyio.run(child.run, backend=options.backend)
    except (InternalError, PlaneFailed):
        raise
    except (LakeshoreError, ValueError, TypeError) as error:
        log.error("%s: %s", type(error).__name__, error)
        word = FAILED
    except Exception:
        log.exception("the worker can't begin")
        word = FAILED
    with suppress(OSError):
        control.send(word)
    sys.exit({DRAINED: 0, FAILED: 1, REMOVED: 3}[word])
