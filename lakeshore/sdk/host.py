"""The plane behind a face: on this program's own loop, or on a thread of its own."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

import anyio

from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.errors import PlaneClosed
from lakeshore.core.messages import Refusal
from lakeshore.core.plane import Plane
from lakeshore.core.ports import Link, Store
from lakeshore.store.memory import MemoryStore
from lakeshore.transports.memory import memory_pair, thread_pair

from .address import MEMORY
from .connection import Connection

log = logging.getLogger("lakeshore")


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
        if not retention >= 0:
            raise ValueError(f"retention={retention!r}: choose seconds, 0 or more")
        for name, value in (("memory_limit", memory_limit), ("payload_limit", payload_limit)):
            if value is not None and (not isinstance(value, int) or value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{name}={value!r}: choose a number of bytes, 1 or more")
        self.sync: Any = sync
        self.retention = float(retention)
        self.memory_limit, self.payload_limit = memory_limit, payload_limit


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
        self.known: dict[str, Any] = {}  # bodies submitted here, by local name
        self.users = 0
        self.closed = False
        self.backend: Backend
        self.plane: Plane
        self.thread = 0
        self._workers: dict[Attached, None] = {}
        self._empty: Callable[[], None] | None = None
        self._lock: Any = None

    async def open(self, backend: Backend) -> None:
        """Open the plane on this loop."""
        self.backend, self.thread = backend, threading.get_ident()
        store = self._store()
        journal_bytes = 1 << 30 if self.durable else 64 << 20
        self.plane = Plane(store, backend, retention=self.options.retention, journal_bytes=journal_bytes)
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

    async def aclose(self, *, patience: float = 40.0) -> None:
        """Let attached workers end, then close the plane. On the plane's loop."""
        if self.closed:
            return
        self.closed = True
        if self._workers:
            empty = self.backend.parker()
            self._empty = lambda: empty.set(None)
            for worker in list(self._workers):
                worker.drain()
            with anyio.move_on_after(patience):
                await empty.wait()
        try:
            await self.plane.aclose()
        finally:
            self._unlock()
            self.known.clear()

    def connect(self, namespace: str) -> Connection:
        """A program's connection. On the plane's loop."""
        return Connection(self.plane.connect(namespace), self.backend)

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


def shared(address: str) -> Host | None:
    """The open plane of a path in this process, with one more user; None where there is none."""
    if address == MEMORY:
        return None
    with _lock:
        host = _hosts.get(address)
        if host is None or host.closed or host.pid != os.getpid():
            return None
        host.users += 1
        return host


def register(host: Host) -> None:
    """A plane was opened, for its first user."""
    host.users = 1
    if host.durable:
        with _lock:
            _hosts[host.address] = host


def release(host: Host) -> bool:
    """A user is done with a plane; whether it was the last."""
    with _lock:
        host.users -= 1
        last = host.users <= 0
        if last and _hosts.get(host.address) is host:
            del _hosts[host.address]
        return last


class ThreadHost:
    """A plane on a daemonic thread with a loop of its own.

    Raises: what opening raises, in the caller's thread.
    """

    def __init__(self, address: str, options: HostOptions, backend: str) -> None:
        self.host = Host(address, options)
        self._ready = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._stop: Callable[[float], None]
        thread = threading.Thread(target=self._run, args=(backend,), name="lakeshore plane", daemon=True)
        thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def close(self, timeout: float | None = None) -> None:
        """End the plane and wait for that, at most `timeout` seconds."""
        if self._ended.is_set():
            return
        patience = 40.0 if timeout is None else max(0.0, timeout - 0.5)
        try:
            self.host.backend.post(lambda: self._stop(patience))
        except RuntimeError:
            return
        if threading.get_ident() != self.host.thread:
            self._ended.wait(timeout)

    def _run(self, backend: str) -> None:
        try:
            anyio.run(self._serve, backend=backend)
        except BaseException as error:
            if self._ready.is_set():
                log.critical("a plane's thread ended on %r", error, exc_info=error)
            self._error = error
        finally:
            self._ended.set()
            self._ready.set()

    async def _serve(self) -> None:
        backend = current_backend()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.serve)
            stop = backend.parker()
            self._stop = stop.set
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


