"""The plane behind a face: on this program's own loop, or on a thread of its own."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakSet, WeakValueDictionary

import anyio

from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.errors import PlaneClosed, WouldDeadlock
from lakeshore.core.messages import Refusal
from lakeshore.core.plane import Plane
from lakeshore.core.ports import Link, Store
from lakeshore.store.memory import MemoryStore
from lakeshore.transports.memory import memory_pair, thread_pair

from .address import MEMORY
from .connection import Connection
from .submitting import Submitter
from .udf import UDF

log = logging.getLogger("lakeshore")

_DRAINING = 40.0  # seconds that attached workers may take to end


class HostOptions:
    """What counts for the process that hosts a plane.

    Raises: ValueError for a value that makes no sense.
    """

    def __init__(
        self,
        *,
        sync: str = "normal",
        retention: float = 604800,
        memory_limit: int | None = None,
        payload_limit: int = 16777216,
    ) -> None:
        if sync not in ("normal", "full"):
            raise ValueError(f"sync={sync!r}: normal, or full to survive a power cut")
        if not 0 <= retention < math.inf:
            raise ValueError(f"retention={retention!r}: choose seconds, 0 or more, and no infinity")
        for name, value in (("memory_limit", memory_limit), ("payload_limit", payload_limit)):
            if value is not None and (not isinstance(value, int) or value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{name}={value!r}: choose a number of bytes, 1 or more")
        self.sync: Any = sync
        self.retention = float(retention)
        self.memory_limit, self.payload_limit = memory_limit, payload_limit


class Latch:
    """Set once, by any thread; others wait for that, or have a function called then.

    Args:
        thread: the loop thread that sets it, if that is known: blocking there would be for ever.
    """

    def __init__(self, thread: int = 0) -> None:
        self._thread, self._lock = thread, threading.Lock()
        self._calls: list[Callable[[], object]] | None = []

    @property
    def is_set(self) -> bool:
        """Whether it was set."""
        return self._calls is None

    def set(self) -> None:
        """Let go all who wait. A second time does nothing."""
        with self._lock:
            calls, self._calls = self._calls, None
        for call in calls or ():
            call()

    def then(self, call: Callable[[], object]) -> None:
        """Have `call` called once it is set, from the thread that does it; at once where it is."""
        with self._lock:
            if self._calls is not None:
                self._calls.append(call)
                return
        call()

    def wait(self, timeout: float | None = None) -> None:
        """Block this thread until it is set, at most `timeout` seconds."""
        if self.is_set:
            return
        if threading.get_ident() == self._thread:
            raise WouldDeadlock(
                "this path is being opened or closed by the event loop that runs here, and this would block "
                "that loop: await the opening or closing first"
            )
        done = threading.Lock()
        done.acquire()
        self.then(done.release)
        done.acquire(timeout=-1 if timeout is None else timeout)

    async def awaited(self) -> None:
        """Wait in a coroutine of any loop until it is set."""
        backend = current_backend()
        parker = backend.parker()

        def wake() -> None:
            try:
                backend.post(lambda: parker.set(None))
            except RuntimeError:  # the waiting loop has ended
                return

        self.then(wake)
        await parker.wait()


class Attached(Protocol):
    """A worker that is to end before its plane does."""

    def drain(self) -> None:
        """Take nothing more, and end. Called on the plane's loop."""
        ...


class Host:
    """One open plane and who uses it. Lives on one loop; `post` reaches it from anywhere.

    Args:
        address: ":memory:" or an absolute path.
    """

    def __init__(self, address: str, options: HostOptions) -> None:
        self.address, self.options = address, options
        self.durable = address != MEMORY
        self.pid = os.getpid()
        # bodies submitted here, by local name; kept alive by the `Options` of their invocations
        self.known: WeakValueDictionary[str, UDF[..., Any]] = WeakValueDictionary()
        self.users = 0
        self.closed = False  # takes no new users, and ends or has ended
        self.owner: ThreadHost | None = None  # the thread it lives on, where that is its own
        self.connections: WeakSet[Connection] = WeakSet()
        self._submitter = Submitter(
            durable=self.durable,
            known=self.known,
            wall=time.time,
            payload_limit=options.payload_limit,
        )
        self.backend: Backend
        self.plane: Plane
        self.thread = 0
        self._workers: dict[Attached, None] = {}
        self._empty: Callable[[], None] | None = None
        self._lock: Any = None
        self._closing = False
        self.on_failure: Callable[[], object] = lambda: None  # is to close it, on its loop

    def _failed(self) -> None:
        """A bug ended the plane: it is let go at once, so that its path can be opened anew."""
        retire(self)
        self.on_failure()

    async def open(self, backend: Backend) -> None:
        """Open the plane on this loop."""
        self.backend, self.thread = backend, threading.get_ident()
        store = self._store()
        journal_bytes = 1 << 30 if self.durable else 64 << 20
        self.plane = Plane(
            store,
            backend,
            failed=self._failed,
            retention=self.options.retention,
            journal_bytes=journal_bytes,
        )
        try:
            await self.plane.open()
        except BaseException:
            self._unlock()
            raise

    def _store(self) -> Store:
        if not self.durable:
            limit = self.options.memory_limit
            return MemoryStore(1 << 30 if limit is None else limit)
        from lakeshore.store.lock import StoreLock
        from lakeshore.store.sqlite import SqliteStore

        self._lock = StoreLock(self.address)
        self._lock.acquire()
        return SqliteStore(self.address, sync=self.options.sync)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    async def aclose(self, *, patience: float = _DRAINING) -> None:
        """Let attached workers end, then close the plane. On the plane's loop."""
        if self._closing:
            return
        self._closing = True
        retire(self)
        try:
            if self._workers:
                empty = self.backend.parker()
                self._empty = lambda: empty.set(None)
                for worker in list(self._workers):
                    worker.drain()
                with anyio.move_on_after(patience):
                    await empty.wait()
            await self.plane.aclose()
        finally:
            self._unlock()
            self.known.clear()
            gone(self.address)

    def connect(self, namespace: str) -> Connection:
        """A program's connection. On the plane's loop."""
        connection = Connection(self.plane.connect(namespace), self.backend, self._submitter)
        self.connections.add(connection)
        return connection

    def worker_link(self, namespace: str, backend: Backend, attached: Callable[[Link], Attached]) -> None:
        """Connect a worker that runs on `backend`. On the plane's loop.

        `attached` is called here with the worker's end of the link.
        """
        here = backend is self.backend
        ours, theirs = memory_pair() if here else thread_pair(self.backend.post, backend.post)
        worker = attached(theirs)

        def hang_up(why: Refusal) -> None:
            ours.close()
            self._gone(worker)

        peer = self.plane.attach(ours, namespace, hang_up)
        ours.receive = peer.receive

        def closed() -> None:
            self.plane.detach(peer)
            self._gone(worker)

        ours.closed = closed
        self._workers[worker] = None

    def _gone(self, worker: Attached) -> None:
        self._workers.pop(worker, None)
        if not self._workers and self._empty is not None:
            self._empty()
            self._empty = None


_lock = threading.Lock()
_hosts: dict[str, Host] = {}  # file planes that are open in this process, by path
_busy: dict[str, Latch] = {}  # paths that are being opened or closed in this process


def claim(address: str, thread: int = 0) -> Host | Latch | None:
    """The open plane of a path in this process, with one more user.

    A latch: another is opening or closing the path; wait for it, then ask again. None: the path is
    the caller's to open on loop thread `thread`, who then calls `register`, or `gone` on failing.
    """
    if address == MEMORY:
        return None
    with _lock:
        host = _hosts.get(address)
        if host is not None:
            host.users += 1
            return host
        latch = _busy.get(address)
        if latch is None:
            _busy[address] = Latch(thread)
        return latch


def register(host: Host) -> None:
    """A plane was opened, for its first user."""
    host.users = 1
    if host.durable:
        with _lock:
            _hosts[host.address] = host
        gone(host.address)


def release(host: Host) -> bool:
    """A user is done with a plane; whether it was the last, who is to end it."""
    with _lock:
        host.users -= 1
        last = host.users <= 0 and not host.closed
        if last:
            _retire(host)
        return last


def retire(host: Host) -> None:
    """The plane takes no new users: it is about to end."""
    with _lock:
        _retire(host)


def _retire(host: Host) -> None:
    if not host.closed:
        host.closed = True
        if _hosts.get(host.address) is host:
            del _hosts[host.address]
            _busy[host.address] = Latch(host.thread)


def gone(address: str) -> None:
    """Opening a path, or closing it, is over."""
    with _lock:
        latch = _busy.pop(address, None)
    if latch is not None:
        latch.set()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _hosts.clear()
    _busy.clear()


os.register_at_fork(after_in_child=_after_fork)


class ThreadHost:
    """A plane on a daemonic thread with a loop of its own.

    Raises: what opening raises, in the caller's thread.
    """

    def __init__(self, address: str, options: HostOptions, backend: str) -> None:
        self.host = Host(address, options)
        self.host.owner = self
        self._ready = threading.Event()
        self._ended = Latch()
        self._error: BaseException | None = None
        self._stop: Callable[[float], None]
        self._thread = threading.Thread(
            target=self._run, args=(backend,), name="lakeshore plane", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def close(self, timeout: float | None = None) -> None:
        """End the plane and wait for that, at most `timeout` seconds."""
        self._end(_DRAINING if timeout is None else max(0.0, timeout - 0.5))
        if threading.get_ident() != self.host.thread:
            self._ended.wait(timeout)
            if self._ended.is_set:
                self._thread.join()  # nothing is left for it to do

    async def aclose(self) -> None:
        """The same from a coroutine of another loop."""
        self._end(_DRAINING)
        await self._ended.awaited()
        self._thread.join()  # nothing is left for it to do

    def _end(self, patience: float) -> None:
        try:
            self.host.backend.post(lambda: self._stop(patience))
        except RuntimeError:  # it has ended
            return

    def _run(self, backend: str) -> None:
        try:
            anyio.run(self._serve, backend=backend)
        except BaseException as error:
            if self._ready.is_set():
                log.critical("a plane's thread ended on %r", error, exc_info=error)
            self._error = error
        finally:
            for connection in self.host.connections:
                connection.loop_ended()
            self._ended.set()
            self._ready.set()

    async def _serve(self) -> None:
        backend = current_backend()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.serve)
            stop = backend.parker()
            self._stop = stop.set
            self.host.on_failure = lambda: stop.set(0.0)
            try:
                await self.host.open(backend)
            except BaseException as error:
                self._error = error
                tasks.cancel_scope.cancel()
                return
            self._ready.set()
            patience = await stop.wait()
            await self.host.aclose(patience=patience)
            tasks.cancel_scope.cancel()


def closed_error() -> PlaneClosed:
    """What a verb raises after its plane was closed."""
    return PlaneClosed("this plane was closed: make a new Dispatch to go on")
