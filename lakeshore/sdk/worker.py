"""`run_worker`: a worker of a plane, in the calling thread or in the caller's own loop."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import anyio
from anyio.abc import TaskStatus

from lakeshore.core.backend import running_loop
from lakeshore.core.errors import WouldDeadlock

from .choices import Runner
from .face import Face
from .processes.options import Processes
from .worker_options import Event, Hooks, WorkerOptions
from .working import Working

__all__ = ["Event", "Hooks", "arun_worker", "run_worker"]


def run_worker(
    q: Face,
    *,
    queues: Sequence[str] = (),
    once: bool = False,
    drain: bool = False,
    slots: int | None = None,
    runner: Runner | Processes = "inline",
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    allow_pickle: bool = True,
    trust: Sequence[str] = (),
    strict_source: bool = False,
    root: str | os.PathLike[str] | None = None,
    grace: float = 30.0,
    hooks: Hooks | None = None,
    capture: bool = True,
    stop: Event | None = None,
) -> int:
    """Run bodies of a plane in this thread until told to stop; returns how many it ran.

    On the main thread SIGINT and SIGTERM are its while it runs: the first drains, the second ends
    at once. `stop` and closing the plane drain it too.

    Args:
        q: the plane.
        queues: whose work to take; empty: every queue of a local plane.
        once: take exactly one invocation to its end, retries included, and return 1; return 0 at
            once where nothing can be claimed.
        drain: return when nothing is left that it may run (it waits for retry delays, not for
            delays the submitter asked for).
        slots: how many bodies at once; 1, or one for each of the GPUs that `runner` deals out.
        runner: "inline", in this process; "process", each in one of its own, as `Processes(...)` may say
            in more detail. A body that names a runner itself has that one.
        name, labels: for display.
        allow_pickle: whether bodies may come as pickles.
        grace: seconds that running bodies share once it drains; what is left then goes back.
        hooks: what to call besides bodies.
        capture: whether what bodies print and log is kept with their invocations, too (`q.logs`).
        stop: an event that drains it. A `threading.Event` is waited for on one daemonic thread, whatever
            the number of workers it is given to; that ends when the event is set.

    Raises: ValueError for a wrong argument, WouldDeadlock inside a running event loop.
    """
    _check(q, stop)
    if q.connection().here or running_loop():
        raise WouldDeadlock("run_worker blocks and an event loop runs here: use await arun_worker(...)")
    options = WorkerOptions(
        queues,
        once,
        drain,
        slots,
        runner,
        name,
        labels,
        allow_pickle,
        trust,
        strict_source,
        root,
        grace,
        hooks,
        capture,
    )
    signals = threading.current_thread() is threading.main_thread()

    async def main() -> int:
        return await Working(q, options, stop).run(signals=signals)

    with _handlers_kept() if signals else contextlib.nullcontext():
        return anyio.run(main, backend=q.backend)


@contextlib.contextmanager
def _handlers_kept() -> Generator[None]:
    """An event loop that lets a signal go leaves it at the default: put the program's own back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)


async def arun_worker(
    q: Face,
    *,
    queues: Sequence[str] = (),
    once: bool = False,
    drain: bool = False,
    slots: int | None = None,
    runner: Runner | Processes = "inline",
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    allow_pickle: bool = True,
    trust: Sequence[str] = (),
    strict_source: bool = False,
    root: str | os.PathLike[str] | None = None,
    grace: float = 30.0,
    hooks: Hooks | None = None,
    capture: bool = True,
    stop: Event | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> int:
    """`run_worker` in the caller's loop; touches no signals. Cancelling ends it at once: what it
    holds goes back free. `task_status` is told when it has registered."""
    _check(q, stop)
    options = WorkerOptions(
        queues,
        once,
        drain,
        slots,
        runner,
        name,
        labels,
        allow_pickle,
        trust,
        strict_source,
        root,
        grace,
        hooks,
        capture,
    )
    return await Working(q, options, stop).run(task_status=task_status)


def _check(q: Any, stop: Any) -> None:
    if not isinstance(q, Face):
        raise TypeError(f"a worker is of a plane: pass a Dispatch or an AsyncDispatch, not {q!r}")
    if stop is not None and not (hasattr(stop, "is_set") and hasattr(stop, "wait")):
        raise TypeError(f"stop={stop!r}: pass a threading.Event, or an event of the worker's own loop")
