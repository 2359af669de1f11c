"""One worker while it runs, on its own loop."""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec import structs

from lakeshore.core.backend import Backend, Parker, Timed, current_backend
from lakeshore.core.errors import PlaneFailed
from lakeshore.core.fresh import new_id
from lakeshore.core.messages import Hello, Refusal, Welcome
from lakeshore.core.worker import CLEANUP, Worker
from lakeshore.runners.capture import capturing
from lakeshore.runners.lines import Notebook
from lakeshore.storage.values import StoredValues

from .beating import BEATS, Beater
from .connection import error_of
from .face import Face
from .functions import process_mark
from .host import Host, closed_error
from .knocking import knock, versions
from .processes.parent import Runners
from .resolver import Resolver
from .run import Run
from .run import run as run_proxy
from .session import Session
from .stopping import when_set
from .worker_options import Event, WorkerOptions

log = logging.getLogger("lakeshore")

_GOODBYE = 5.0  # seconds that the last words of a worker may take to leave


class Working:
    """A worker, its runner, its session, and why it ends.

    Args:
        face: the plane it works for.
        stop: an event that drains it.
        id: what it registers under; a new one by default.

    Attributes:
        dismissal: why an operator has removed it; empty where that did not happen.
        bereft: the plane has failed, and is not to be had any more.
    """

    def __init__(self, face: Face, options: WorkerOptions, stop: Event | None, id: bytes = b"") -> None:
        self._face, self._options, self._stop = face, options, stop
        self._id = id or new_id()
        self.dismissal, self.bereft = "", False
        self._host: Host
        self._backend: Backend
        self._finished: Parker[None]
        self._registered: Parker[BaseException | None] | None = None
        self._worker: Worker | None = None
        self._runner: Runners | None = None
        self._session: Session | None = None
        self._beater: Beater | None = None
        self._link: Any = None
        self._timer: Timed | None = None
        self._error: BaseException | None = None
        self._signals = 0
        self._to_drain = self._lost = self._over = self._unbegun = False
        self._unwatch: Callable[[], object] = int  # takes back the wait for `stop`

    async def run(
        self, *, signals: bool = False, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> int:
        """Work until it is told to stop; how many bodies it ran."""
        self._host, hooks = self._face.host(), self._options.hooks
        await _call(hooks.on_host_setup)
        try:
            with capturing(self._options.capture):
                await self._run(signals, task_status)
        except BaseException as error:
            with anyio.CancelScope(shield=True) as scope:
                scope.deadline = anyio.current_time() + CLEANUP
                await _call(hooks.on_shutdown)
            if not isinstance(error, _Unbegun):
                raise
            if self._unbegun:
                raise KeyboardInterrupt("the worker was stopped before it had begun") from None
            return 0
        await _call(hooks.on_shutdown)
        ran = self._worker.ran if self._worker is not None else 0
        return min(ran, 1) if self._options.once else ran

    async def _run(self, signals: bool, task_status: TaskStatus[None]) -> None:
        host = self._host
        same = threading.get_ident() == host.thread
        self._backend = host.backend if same else current_backend()
        self._finished, self._registered = self._backend.parker(), self._backend.parker()
        error: BaseException | None = None
        async with anyio.create_task_group() as helpers:
            try:
                if not same:
                    helpers.start_soon(self._backend.serve)
                if signals:
                    await helpers.start(self._watch_signals)
                self._watch_stop(helpers)
                await self._serve(helpers, task_status)
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
        if (failure := host.failure) is not None:
            raise PlaneFailed(
                f"the plane ended on a bug in Lakeshore, {type(failure).__name__}: {failure}; open it again"
            )

    async def _serve(self, helpers: TaskGroup, task_status: TaskStatus[None]) -> None:
        error: Exception | None = None
        try:
            async with anyio.create_task_group() as slots:
                try:
                    self._make(slots)
                    await self._join(helpers)
                    task_status.started()
                    await self._finished.wait()
                except Exception as raised:
                    error = raised
                finally:
                    if self._worker is not None and self._runner is not None:
                        self._worker.drain()
                        await self._let_publish(self._worker)
                        self._runner.close()
                    slots.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True) as scope:
                scope.deadline = anyio.current_time() + _GOODBYE
                if self._runner is not None:
                    await self._runner.aclose()
                await self._leave()
        if error is not None:
            raise error

    async def _let_publish(self, worker: Worker) -> None:
        """Files on their way to their keys get there: in the middle, another attempt might come first."""
        published = self._backend.parker()
        worker.clearing.when_done(lambda: published.set(None))
        with anyio.CancelScope(shield=True) as scope:
            scope.deadline = anyio.current_time() + _GOODBYE
            await published.wait()

    def _make(self, slots: TaskGroup) -> None:
        """The worker and its runner, which have no link yet."""
        options, backend, host = self._options, self._backend, self._host
        resolver = Resolver(
            host.known,
            allow_pickle=options.allow_pickle,
            trust=options.trust,
            strict_source=options.strict_source,
        )
        setup = options.hooks.on_run_setup
        setup = None if setup is None else partial(_set_up, setup)
        runners = self._runner = Runners(options, self._face, host, backend, slots, setup)
        worker = self._worker = Worker(
            self._hello(),
            _NOWHERE,
            resolve=resolver,
            keep=runners.keeping(resolver.keep),
            elsewhere=runners.elsewhere,
            timer=backend.later,
            now=backend.now,
            payload_limit=host.options.payload_limit,
            quiet=self._drain,
            idle=self._idle,
            failed=self._failed,
            asked_to_drain=self._drain,
            dismissed=self._dismissed,
            plane=self._face,
            root=options.root,
        )
        worker.notes = Notebook(worker.scribe, backend.post)
        worker.values = StoredValues()
        runners.work_for(worker)

    def _hello(self) -> Hello:
        options = self._options
        return Hello(
            self._id,
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
            versions() | options.packages,
            self._host.movable,
            daemon=options.daemon,
        )

    async def _join(self, helpers: TaskGroup) -> None:
        """Get a link and register on it. Raises where there is no way to the plane."""
        host, face, backend = self._host, self._face, self._backend
        namespace = face.namespace

        async def attach() -> bool:
            return host.attach(self)

        if not await host.on_loop(attach):
            raise closed_error()
        if self._unbegun:
            raise _Unbegun
        session = self._session = Session(
            backend,
            self,
            way=lambda: host.worker_way(namespace, backend),
            knock=lambda: knock(new_id(), "worker", face.asked_for, face.token, self._id),
            patience=face.connect_timeout,
            ca=face.ca,
        )
        registered = self._registered
        assert registered is not None
        session.when_ready(registered.set)
        helpers.start_soon(session.run)
        error = await registered.wait()
        if error is not None:
            raise error

    async def _leave(self) -> None:
        host, session = self._host, self._session
        if self._beater is not None:
            self._beater.stop()
        if self._worker is not None and not self._lost:
            self._worker.leave()
        if session is not None:
            await session.aclose()

        async def detach() -> None:
            host.detach(self)

        with contextlib.suppress(Exception):  # it has ended
            await host.on_loop(detach)

    # as a party of its session

    wants = True

    def linked(self, link: Any, welcome: Welcome | None) -> None:
        """Register, for the first time or again with what it holds."""
        worker = self._worker
        assert worker is not None
        again, self._link = self._link is not None, link
        near = welcome is None
        follow_all = not self._options.queues and (welcome is None or welcome.local)
        if not again:
            worker.hello = structs.replace(worker.hello, near=near, follow_all=follow_all)
            worker.link = link
            if self._to_drain:
                worker.draining = True
                self._finish()
            else:
                worker.register()
        else:
            worker.hello = structs.replace(worker.hello, near=near)
            worker.relinked(link)
        if welcome is not None:
            self._beat(welcome)
        elif self._beater is not None:
            self._beater.stop()
            self._beater = None

    def _beat(self, welcome: Welcome) -> None:
        session, face = self._session, self._face
        assert session is not None
        if self._options.beats:
            if self._beater is None:
                self._beater = Beater(self._id, face.asked_for, face.token, face.ca, unknown=self._given_up)
            self._beater.point(session.address, welcome.lease * BEATS)

    def register_again(self) -> None:
        """As who beats for it has heard, the head does not know it, if it did. From any thread."""
        if self._worker is not None and self._worker.lease is not None:
            self._given_up()

    def _given_up(self) -> None:
        """The head does not know this worker any more; called on the thread that beats."""
        with contextlib.suppress(RuntimeError):  # our loop has ended
            self._backend.post(self._register_again)

    def _register_again(self) -> None:
        worker, session = self._worker, self._session
        if worker is not None and session is not None and session.linked and not self._over:
            worker.relinked(self._link)

    def unlinked(self) -> None:
        """Bodies go on."""
        if self._worker is not None:
            self._worker.unlinked()

    def receive(self, message: Any) -> None:
        """Take one message off the link."""
        if self._worker is not None:
            self._worker.receive(message)

    def refused(self, why: Refusal) -> None:
        """Bodies go on; another head will be told how they ended."""
        log.warning("%s", why.message)

    def closed(self, why: Refusal) -> None:
        """There is no way to the plane any more."""
        self._lost, self.bereft = True, why.kind == "PlaneFailed"
        if why.kind not in ("PlaneClosed", "PlaneFailed"):
            self._error = self._error or error_of(why)
        self._finish()

    def waited(self, before: float) -> None:
        """It waits for ever."""

    # why it ends

    def drain(self) -> None:
        """The plane is being closed; called on the plane's loop."""
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._backend.post(self._drain)

    def stop(self, *, at_once: bool = False) -> None:
        """Drain, as at a first signal, or end, as at a second one. On its loop."""
        if self._link is None:  # it has not even begun
            self._to_drain = self._unbegun = True
            if self._registered is not None:
                self._registered.set(_Unbegun())
        elif at_once:
            self._finish()
        else:
            self._drain()

    def _drain(self) -> None:
        self._to_drain = True
        if self._link is None and self._registered is not None:
            self._registered.set(_Unbegun())  # there may never be one
        worker, runner = self._worker, self._runner
        if worker is None or runner is None or self._link is None or worker.draining or self._over:
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

    def _dismissed(self, reason: str) -> None:
        log.warning("worker %s ends, as it was removed: %s", self._options.name, reason)
        self.dismissal = reason
        self._lost = True
        self._finish()

    def _failed(self, error: BaseException) -> None:
        log.critical("a worker ends on a bug in Lakeshore; what it held goes back: %r", error, exc_info=error)
        self._error = self._error or error
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
                    self.stop()
                else:
                    self.stop(at_once=True)

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


class _Unbegun(Exception):
    """It was stopped before it had a link."""


class _Nowhere:
    def send(self, message: Any, /) -> None:
        """It has no link yet, and nothing to say."""

    def close(self) -> None:
        """There is nothing to close."""


_NOWHERE = _Nowhere()


def _set_up(hook: Callable[[Run], Any], running: Any) -> Any:
    return hook(run_proxy)


async def _call(hook: Callable[[], Any] | None) -> None:
    if hook is not None:
        result = hook()
        if isinstance(result, Awaitable):
            await result
