"""`run_worker`: a worker of a plane, in the calling thread or in the caller's own loop."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import logging
import os
import platform
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import Struct

from lakeshore.core.backend import Backend, Parker, Timed, current_backend, running_loop
from lakeshore.core.errors import PlaneFailed, WouldDeadlock
from lakeshore.core.messages import Hello
from lakeshore.core.plane import new_id
from lakeshore.core.settings import check_name
from lakeshore.core.worker import CLEANUP, Worker
from lakeshore.runners.inline import InlineRunner

from .checks import LONGEST, finite, flag, sound, whole
from .face import Face
from .functions import process_mark
from .host import Host, closed_error
from .resolver import Resolver
from .run import Run
from .run import run as run_proxy
from .stopping import when_set

log = logging.getLogger("lakeshore")

_MOST_SLOTS = 1_000_000


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
        stop: an event that drains it. A `threading.Event` is waited for on one daemonic thread, whatever
            the number of workers it is given to; that ends when the event is set.

    Raises: ValueError for a wrong argument, WouldDeadlock inside a running event loop.
    """
    _check(q, stop)
    if q.connection().here or running_loop():
        raise WouldDeadlock("run_worker blocks and an event loop runs here: use await arun_worker(...)")
    options = _Options(
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
    )
    signals = threading.current_thread() is threading.main_thread()

    async def main() -> int:
        return await _Running(q, options, stop).run(signals=signals)

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
    _check(q, stop)
    options = _Options(
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
    )
    return await _Running(q, options, stop).run(task_status=task_status)


def _check(q: Any, stop: Any) -> None:
    if not isinstance(q, Face):
        raise TypeError(f"a worker is of a plane: pass a Dispatch or an AsyncDispatch, not {q!r}")
    if stop is not None and not (hasattr(stop, "is_set") and hasattr(stop, "wait")):
        raise TypeError(f"stop={stop!r}: pass a threading.Event, or an event of the worker's own loop")


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
        if isinstance(queues, str | bytes) or not isinstance(queues, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"queues={queues!r}: pass a list of names")
        for flagged, value in (("once", once), ("drain", drain), ("allow_pickle", allow_pickle)):
            flag(flagged, value)
        whole("slots", slots, 1, _MOST_SLOTS)
        if runner != "inline":
            raise ValueError(f"runner={runner!r}: this version runs bodies inline")
        if trust or strict_source:
            raise ValueError("trust and strict_source are for workers on other machines; leave them out")
        if not 0 <= finite("grace", grace) <= LONGEST:
            raise ValueError(f"grace={grace!r}: choose seconds, 0 to {LONGEST:g}")
        if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"name={name!r}: pass a string")
        if hooks is not None and not isinstance(hooks, Hooks):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"hooks={hooks!r}: pass Hooks(...)")
        self.queues = tuple(check_name(queue) for queue in queues)
        self.once, self.drain, self.slots = once, drain, slots
        self.name = sound("name", name or f"{socket.gethostname()}-{os.getpid()}")
        self.labels = _labels(labels)
        self.allow_pickle, self.grace = allow_pickle, float(grace)
        self.root = os.fspath(root) if root is not None else None
        self.hooks = hooks or Hooks()


def _labels(labels: Any) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels={labels!r}: pass a dict of strings")
    for key, value in labels.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"labels: pass strings as names and values, not {key!r}: {value!r}")
        sound("labels", key + value)
    return dict(labels)  # pyright: ignore[reportUnknownArgumentType]


class _Running:
    """One worker while it runs, on its own loop."""

    def __init__(self, face: Face, options: _Options, stop: Event | None) -> None:
        self._face, self._options, self._stop = face, options, stop
        self._backend: Backend
        self._finished: Parker[None]
        self._worker: Worker | None = None
        self._runner: InlineRunner | None = None
        self._link: Any = None  # a Link whose `receive` and `closed` are to be set
        self._timer: Timed | None = None
        self._error: BaseException | None = None
        self._signals = 0
        self._to_drain = self._lost = self._over = False
        self._unwatch: Callable[[], object] = int  # takes back the wait for `stop`

    async def run(
        self, *, signals: bool = False, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> int:
        host, hooks = self._face.host(), self._options.hooks
        await _call(hooks.on_host_setup)
        try:
            await self._run(host, signals, task_status)
        except BaseException:
            with anyio.CancelScope(shield=True) as scope:
                scope.deadline = anyio.current_time() + CLEANUP
                await _call(hooks.on_shutdown)
            raise
        await _call(hooks.on_shutdown)
        ran = self._worker.ran if self._worker is not None else 0
        return min(ran, 1) if self._options.once else ran

    async def _run(self, host: Host, signals: bool, task_status: TaskStatus[None]) -> None:
        same = threading.get_ident() == host.thread
        self._backend = host.backend if same else current_backend()
        self._finished = self._backend.parker()
        error: BaseException | None = None
        async with anyio.create_task_group() as helpers:
            try:
                if not same:
                    helpers.start_soon(self._backend.serve)
                if signals:
                    await helpers.start(self._watch_signals)
                self._watch_stop(helpers)
                await self._connect(host)
                await self._serve(host, task_status)
            except Exception as raised:  # raised outside, so that no group is wrapped around it
                error = raised
            finally:
                self._over = True
                self._unwatch()
                if self._timer is not None:
                    self._timer.cancel()
                helpers.cancel_scope.cancel()
        if error is not None or self._error is not None:
            raise error or self._error or AssertionError
        failure = host.plane.failure
        if failure is not None:
            raise PlaneFailed(
                f"the plane ended on a bug in Lakeshore, {type(failure).__name__}: {failure}; open it again"
            )

    async def _connect(self, host: Host) -> None:
        backend = self._backend
        connected = backend.parker()

        def attached(link: Any) -> _Running:
            link.closed = self._plane_ended
            self._link = link
            return self

        def connect() -> None:
            if not host.closed:
                host.worker_link(self._face.namespace, backend, attached)

        def tell() -> None:
            connect()
            with contextlib.suppress(RuntimeError):  # our loop has ended
                backend.post(lambda: connected.set(None))

        def forget() -> None:
            if self._link is not None:
                self._link.close()

        if threading.get_ident() == host.thread:
            connect()
        else:
            try:
                host.backend.post(tell)
            except RuntimeError:
                raise closed_error() from None
            try:
                await connected.wait()
            except BaseException:
                with contextlib.suppress(RuntimeError):  # the plane has ended
                    host.backend.post(forget)
                raise
        if self._link is None:
            raise closed_error()

    async def _serve(self, host: Host, task_status: TaskStatus[None]) -> None:
        options, backend, link = self._options, self._backend, self._link
        hello = Hello(
            new_id(),
            options.name,
            socket.gethostname(),
            os.getpid(),
            options.queues,
            not options.queues,
            options.slots,
            process_mark(),
            1 if options.once else None,
            options.once or options.drain,
            options.labels,
            _versions(),
        )
        resolver = Resolver(host.known, allow_pickle=options.allow_pickle)
        worker = Worker(
            hello,
            link,
            resolve=resolver,
            keep=resolver.keep,
            timer=backend.later,
            now=backend.now,
            payload_limit=host.options.payload_limit,
            quiet=self._drain,
            idle=self._idle,
            failed=self._failed,
            plane=self._face,
            root=options.root,
        )
        setup = options.hooks.on_run_setup
        setup = None if setup is None else partial(_set_up, setup)
        try:
            async with anyio.create_task_group() as slots:
                runner = InlineRunner(worker, slots, backend, setup=setup)
                worker.runner = runner
                link.receive = worker.receive
                self._worker, self._runner = worker, runner
                if self._to_drain:
                    worker.draining = True
                    self._finish()
                else:
                    worker.register()
                task_status.started()
                try:
                    await self._finished.wait()
                finally:
                    worker.drain()
                    runner.close()
                    slots.cancel_scope.cancel()
        finally:
            if not self._lost:
                worker.leave()
                link.close()

    # why it ends

    def drain(self) -> None:
        """The plane is being closed; called on the plane's loop."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._backend.post(self._drain)

    def _drain(self) -> None:
        self._to_drain = True
        worker, runner = self._worker, self._runner
        if worker is None or runner is None or worker.draining or self._over:
            return
        worker.drain()
        runner.draining()
        if worker.held:
            self._timer = self._backend.later(self._options.grace, self._interrupt)

    def _interrupt(self) -> None:
        """The grace is over. What even a cancel does not end is left behind."""
        if self._worker is not None:
            self._timer = self._backend.later(CLEANUP + 1.0, self._finish)
            self._worker.interrupt()

    def _idle(self) -> None:
        if self._worker is not None and self._worker.draining:
            self._finish()

    def _finish(self) -> None:
        self._finished.set(None)

    def _failed(self, error: BaseException) -> None:
        log.critical("a worker ends on a bug in Lakeshore; what it held goes back: %r", error, exc_info=error)
        self._error = self._error or error
        self._finish()

    def _plane_ended(self) -> None:
        self._lost = True
        self._finish()

    async def _watch_signals(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as received:
            task_status.started()
            async for _ in received:
                self._signals += 1
                if self._signals == 1:
                    if self._worker is not None and self._worker.held:
                        log.warning(
                            "worker %s takes nothing more; what runs has %g s to end, and a second "
                            "signal ends it at once",
                            self._options.name,
                            self._options.grace,
                        )
                    self._drain()
                else:
                    self._finish()

    def _watch_stop(self, helpers: TaskGroup) -> None:
        stop = self._stop
        if stop is None:
            return
        if stop.is_set():
            self._to_drain = True
        elif inspect.iscoroutinefunction(stop.wait):
            helpers.start_soon(self._await_stop, stop)
        else:
            self._unwatch = when_set(stop, self.drain)

    async def _await_stop(self, stop: Event) -> None:
        await stop.wait()
        self._drain()


def _set_up(hook: Callable[[Run], Any], running: Any) -> Any:
    return hook(run_proxy)


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
