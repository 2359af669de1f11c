"""`run_worker`: a worker of a plane, in the calling thread or in the caller's own loop."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus
from msgspec import Struct

from lakeshore.core.backend import Backend, current_backend, running_loop
from lakeshore.core.errors import WouldDeadlock
from lakeshore.core.messages import Hello
from lakeshore.core.plane import new_id
from lakeshore.core.ports import Link
from lakeshore.core.settings import check_name
from lakeshore.core.worker import Worker
from lakeshore.runners.inline import InlineRunner

from .face import Face
from .functions import process_mark
from .host import Host
from .resolver import Resolver
from .run import Run
from .run import run as run_proxy


class Hooks(Struct, frozen=True):
    """What a worker calls besides bodies. Each may be a function or a coroutine function
    (`on_run_setup` a plain function where bodies run on threads).

    Args:
        on_host_setup: once, before the first claim; if it raises, the worker ends with that error.
        on_run_setup: before each body, in its context, with `dls.run`; if it raises, that
            invocation fails.
        on_shutdown: once, when draining ends.
    """

    on_host_setup: Callable[[], Any] | None = None
    on_run_setup: Callable[[Run], Any] | None = None
    on_shutdown: Callable[[], Any] | None = None


class Event(Protocol):
    """A `threading.Event`, or an event of the worker's own loop."""

    def is_set(self) -> bool:
        """Whether it is set."""
        ...

    def wait(self) -> Any:
        """Wait until it is."""
        ...


def run_worker(
    q: Face,
    *,
    queues: Sequence[str] = (),
    once: bool = False,
    drain: bool = False,
    slots: int = 1,
    runner: str = "inline",
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    allow_pickle: bool = True,
    trust: Sequence[str] = (),
    strict_source: bool = False,
    root: str | os.PathLike[str] | None = None,
    grace: float = 30.0,
    hooks: Hooks | None = None,
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
        slots: how many bodies at once.
        name, labels: for display.
        allow_pickle: whether bodies may come as pickles.
        grace: seconds that running bodies share once it drains; what is left then goes back.
        hooks: what to call besides bodies.
        stop: an event that drains it.

    Raises: ValueError for a wrong argument, WouldDeadlock inside a running event loop.
    """
    if q.connection().here or running_loop():
        raise WouldDeadlock("run_worker blocks and an event loop runs here: use await arun_worker(...)")
    options = _Options(
        queues, once, drain, slots, runner, name, labels, allow_pickle, trust, strict_source, root, grace, hooks
    )
    signals = threading.current_thread() is threading.main_thread()

    async def main() -> int:
        return await _Running(q, options, stop).run(signals=signals)

    return anyio.run(main, backend=q.backend)


async def arun_worker(
    q: Face,
    *,
    queues: Sequence[str] = (),
    once: bool = False,
    drain: bool = False,
    slots: int = 1,
    runner: str = "inline",
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    allow_pickle: bool = True,
    trust: Sequence[str] = (),
    strict_source: bool = False,
    root: str | os.PathLike[str] | None = None,
    grace: float = 30.0,
    hooks: Hooks | None = None,
    stop: Event | None = None,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> int:
    """`run_worker` in the caller's loop; touches no signals. Cancelling ends it at once: what it
    holds goes back free. `task_status` is told when it has registered."""
    options = _Options(
        queues, once, drain, slots, runner, name, labels, allow_pickle, trust, strict_source, root, grace, hooks
    )
    return await _Running(q, options, stop).run(task_status=task_status)


class _Options:
    def __init__(
        self,
        queues: Sequence[str],
        once: bool,
        drain: bool,
        slots: int,
        runner: str,
        name: str | None,
        labels: Mapping[str, str] | None,
        allow_pickle: bool,
        trust: Sequence[str],
        strict_source: bool,
        root: str | os.PathLike[str] | None,
        grace: float,
        hooks: Hooks | None,
    ) -> None:
        if isinstance(queues, str):
            raise TypeError(f"queues={queues!r}: pass a list of names")
        if not isinstance(slots, int) or slots < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"slots={slots!r}: choose how many bodies may run at once, 1 or more")
        if runner != "inline":
            raise ValueError(f"runner={runner!r}: this version runs bodies inline")
        if trust or strict_source:
            raise ValueError("trust and strict_source are for workers on other machines; leave them out")
        if not grace >= 0:
            raise ValueError(f"grace={grace!r}: choose seconds, 0 or more")
        self.queues = tuple(check_name(queue) for queue in queues)
        self.once, self.drain, self.slots = once, drain, slots
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.labels = dict(labels or {})
        self.allow_pickle, self.grace = allow_pickle, float(grace)
        self.root = os.fspath(root) if root is not None else None
        self.hooks = hooks or Hooks()


class _Running:
    """One worker while it runs, on its own loop."""

    def __init__(self, face: Face, options: _Options, stop: Event | None) -> None:
        self._face, self._options, self._stop = face, options, stop
        self._backend: Backend
        self._worker: Worker
        self._finished: Any = None
        self._stops = 0
        self._lost = False

    async def run(
        self, *, signals: bool = False, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> int:
        host, options = self._face.host(), self._options
        same = threading.get_ident() == host.thread
        self._backend = host.backend if same else current_backend()
        await _call(options.hooks.on_host_setup)
        async with anyio.create_task_group() as helpers:
            if not same:
                helpers.start_soon(self._backend.serve)
            try:
                async with anyio.create_task_group() as slots:
                    self._finished = self._backend.parker()
                    runner = await self._connect(host, slots)
                    if signals:
                        helpers.start_soon(self._watch_signals)
                    self._watch_stop(helpers)
                    task_status.started()
                    try:
                        await self._finished.wait()
                    finally:
                        runner.close()
                        slots.cancel_scope.cancel()
            finally:
                if not self._lost:
                    self._worker.leave()
                    self._worker.link.close()
                helpers.cancel_scope.cancel()
        await _call(options.hooks.on_shutdown)
        return self._worker.ran

    async def _connect(self, host: Host, slots: anyio.abc.TaskGroup) -> InlineRunner:
        options, backend = self._options, self._backend
        connected = backend.parker()

        def attached(link: Link) -> _Running:
            backend.post(lambda: connected.set(link))
            return self

        def connect() -> None:
            host.worker_link(self._face.namespace, backend, attached)

        host.backend.post(connect)
        link: Any = await connected.wait()
        follow_all = not options.queues
        hello = Hello(
            new_id(),
            options.name,
            socket.gethostname(),
            os.getpid(),
            options.queues,
            follow_all,
            options.slots,
            process_mark(),
            1 if options.once else None,
            options.once or options.drain,
            options.labels,
            _versions(),
        )
        worker = self._worker = Worker(
            hello,
            link,
            resolve=Resolver(host.known, allow_pickle=options.allow_pickle),
            timer=backend.later,
            now=backend.now,
            payload_limit=host.options.payload_limit,
            quiet=self._quiet,
            idle=self._idle,
            plane=self._face,
            root=options.root,
        )
        setup = options.hooks.on_run_setup
        runner = InlineRunner(
            worker, slots, backend, setup=None if setup is None else lambda running: setup(run_proxy)
        )
        worker.runner = runner
        link.receive, link.closed = worker.receive, self._plane_ended
        worker.register()
        return runner

    # why it ends

    def drain(self) -> None:
        """The plane is being closed; called on the plane's loop."""
        try:
            self._backend.post(self._begin_to_stop)
        except RuntimeError:
            return

    def _begin_to_stop(self) -> None:
        self._stops += 1
        if self._stops > 1:
            self._finish()
            return
        self._worker.drain()
        if self._worker.held:
            self._backend.later(self._options.grace, self._worker.interrupt)

    def _quiet(self) -> None:
        if not self._worker.draining:
            self._begin_to_stop()

    def _idle(self) -> None:
        if self._worker.draining:
            self._finish()

    def _finish(self) -> None:
        if self._finished is not None:
            self._finished.set(None)

    def _plane_ended(self) -> None:
        self._lost = True
        self._finish()

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            async for _ in received:
                self._begin_to_stop()

    def _watch_stop(self, helpers: anyio.abc.TaskGroup) -> None:
        stop = self._stop
        if stop is None:
            return
        if isinstance(stop, threading.Event):
            threading.Thread(target=self._wait_for, args=(stop,), name="lakeshore stop", daemon=True).start()
        else:
            helpers.start_soon(self._await_stop, stop)

    def _wait_for(self, stop: threading.Event) -> None:
        stop.wait()
        try:
            self._backend.post(self._begin_to_stop)
        except RuntimeError:  # it ended by itself
            return

    async def _await_stop(self, stop: Event) -> None:
        await stop.wait()
        self._begin_to_stop()


async def _call(hook: Callable[[], Any] | None) -> None:
    if hook is not None:
        result = hook()
        if isinstance(result, Awaitable):
            await result


def _versions() -> dict[str, str]:
    try:
        package = importlib.metadata.version("lakeshore-queue")
    except importlib.metadata.PackageNotFoundError:
        package = "unknown"
    return {"python": platform.python_version(), "lakeshore": package}
