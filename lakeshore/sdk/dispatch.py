"""`Dispatch`: a plane for programs that block."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, overload

from lakeshore.core.backend import current_backend
from lakeshore.core.errors import ForkedPlane
from lakeshore.core.messages import Wait

from . import current, forks, host, verbs
from .address import MEMORY
from .choices import Elasticity, Kind, Loop, OnFull, QueueChanges, Sync
from .connection import Connection
from .face import Face
from .host import Host, ThreadHost, closed_error
from .outcomes import value_of
from .records import Invocation, QueueInfo, QueueStats, Removed, TopicInfo, WorkerInfo
from .streams import Stream
from .udf import as_udf
from .verbs import Verb

T = TypeVar("T")

_EXIT_PATIENCE = 2.0  # seconds the interpreter's exit may be held up


class Dispatch(Face):
    """The blocking face of a plane. May be shared between threads; opens at its first use. One that is
    still open when the main thread ends is closed then, and takes at most two seconds for that.

    Args:
        address: ":memory:", a file path, or None for `LAKESHORE_URL`, else the local plane
            `LAKESHORE_HOME/<hostname>/plane.db`.
        namespace: the tenant; None is `LAKESHORE_NAMESPACE`, else "default".
        backend: the event loop of the plane and of `run_worker`: "asyncio" or "trio".
        sync: "normal" (what is acknowledged survives the process) or "full" (a power cut too).
        retention: seconds that ended invocations are kept.
        memory_limit: bytes a `:memory:` plane may hold (1 GiB).
        payload_limit: bytes that arguments, a result or a frame may take, packed.

    Raises: ValueError for a wrong argument; at the first use `StoreLocked`, `StoreCorrupt`,
        `StoreTooNew` or `StoreError` where the file can't be opened.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        namespace: str | None = None,
        token: str | None = None,
        ca: str | None = None,
        backend: Loop = "asyncio",
        sync: Sync = "normal",
        storage: str | None = None,
        retention: float = 604800,
        lease: float = 30.0,
        memory_limit: int | None = None,
        payload_limit: int = 16777216,
        connect_timeout: float = 5.0,
    ) -> None:
        super().__init__(
            address,
            namespace=namespace,
            token=token,
            ca=ca,
            backend=backend,
            sync=sync,
            storage=storage,
            retention=retention,
            lease=lease,
            memory_limit=memory_limit,
            payload_limit=payload_limit,
            connect_timeout=connect_timeout,
        )
        self._lock = threading.Lock()
        self._host: Host | None = None
        self._connection: Connection | None = None
        self._forks = forks.count
        self.queues = Queues(self)
        self.jobs = Jobs(self)
        self.workers = Workers(self)
        self.topics = Topics(self)
        _open.add(self)
        current.made(self)

    # opening and closing

    def host(self) -> Host:
        """The open plane."""
        if self._host is None or self._forks != forks.count or self._host.closed:
            self._open()
        assert self._host is not None
        return self._host

    def connection(self) -> Connection:
        """The connection to it."""
        if self._connection is None or self._host is None or self._forks != forks.count or self._host.closed:
            self._open()
        assert self._connection is not None
        return self._connection

    def close(self) -> None:
        """Let attached workers drain and end the plane. A second time does nothing."""
        self._close(None)

    def __enter__(self) -> Self:
        try:
            self.host()
        except BaseException:
            self.close()
            raise
        current.enter(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current.leave(self)
        self.close()

    def __repr__(self) -> str:
        return f"<Dispatch {self.address!r} namespace={self.namespace!r}{' closed' * self._closed}>"

    def _open(self) -> None:
        with self._lock:
            if self._closed:
                raise closed_error()
            if self._forks != forks.count:
                self._after_fork()
            if self._host is not None and not self._host.closed:
                return
            if self._host is not None and self.address == MEMORY:
                raise closed_error()
            found = self._claim()
            try:
                self._connection = _connect(found, self.namespace)
            except BaseException:
                _end(found, None)
                raise
            self._host = found

    def _claim(self) -> Host:
        """The plane of this address, opened where it is not open in this process."""
        while True:
            found = host.claim(self.address)
            if not isinstance(found, host.Latch):
                break
            found.wait()
        if found is None:
            try:
                found = ThreadHost(self.address, self._options, self.backend).host
            except BaseException:
                host.gone(self.address)
                raise
            host.register(found)
        return found

    def _after_fork(self) -> None:
        if self.address == MEMORY and self._host is not None:
            raise ForkedPlane(
                'a ":memory:" plane lives in the process that made it, and this is a forked child: make a '
                "Dispatch here, or share a file path"
            )
        self._forks = forks.count
        self._host = self._connection = None

    def _close(self, timeout: float | None) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            found, connection = self._host, self._connection
            self._host = self._connection = None
        current.closed(self)
        _open.discard(self)
        if found is None or self._forks != forks.count:
            return
        if not _end(found, timeout) and connection is not None:
            connection.hang_up()

    # verbs

    def run(self, verb: Verb[T], timeout: float | None = None) -> T:
        """Carry out one verb."""
        connection = self.connection()
        answer = connection.call_blocking(verb.make(connection.number()), timeout=timeout, id=verb.id)
        return verb.read(answer)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> str:
        """Submit a call of a udf, or of a plain function, which is wrapped. See `UDF.submit`."""
        return self.submit_blocking(as_udf(fn), args, kwargs)

    def submit_many(self, fn: Any, items: Iterable[Any]) -> list[str]:
        """Submit many calls of one function. See `UDF.submit_many`."""
        return self.submit_many_blocking(as_udf(fn), items)

    @overload
    def result(self, inv: str, *, timeout: float | None = None, type: None = None) -> Any: ...
    @overload
    def result(self, inv: str, *, timeout: float | None = None, type: type[T]) -> T: ...
    @overload
    def result(self, inv: str, *, timeout: float | None = None, type: Any) -> Any: ...
    def result(self, inv: str, *, timeout: float | None = None, type: Any = None) -> Any:
        """Wait for an invocation's end and return its value.

        Args:
            inv: its id.
            timeout: seconds to wait; None waits without limit.
            type: builds values that carry this class (or the classes an annotation names).

        Raises: InvocationFailed, InvocationKilled, InvocationTimeout by how it ended; TimeoutError
            when the wait ran out, which leaves the invocation alone; NotFound, Expired.
        """
        if timeout is None:  # as `verbs.result`, for most jobs wait for one
            connection, id = self.connection(), verbs.known(inv)
            answer = connection.call_blocking(Wait(connection.number(), id), id=id)
            return value_of(answer, () if type is None else (type,))
        timeout = verbs.waiting(timeout)
        if timeout is not None and timeout <= 0 and not self.get(inv).state.terminal:
            raise TimeoutError(verbs.RUNS_STILL)
        return self.run(verbs.result(inv, type), timeout if timeout is not None and timeout > 0 else None)

    def get(self, inv: str) -> Invocation:
        """The record of an invocation as it is now, with every attempt. Raises NotFound."""
        return self.run(verbs.get(inv))

    def stream(self, inv: str, *, since: int = 0) -> Stream[Any]:
        """The frames a generator yielded, from number `since` on, live until its end.

        Iterating raises what the invocation ended with, after every frame before it; `Gap` where
        frames from `since` on are not there; NotFound.
        """
        return Stream(self.connection(), verbs.known(inv), since, ())

    def topic(self, name: str) -> Topic:
        """A topic of this namespace, made at its first post."""
        return Topic(self, verbs.topic_name(name))

    def kill(self, inv: str, *, running: bool = False) -> None:
        """Kill a queued invocation; with `running=True` cancel a running one's body too, and return
        once it is over. Raises Conflict for a running one without it, or an ended one; NotFound."""
        self.run(verbs.kill(inv, running))

    def retry(self, inv: str) -> str:
        """Submit an ended invocation's call anew; the new id. Raises Conflict for a live one."""
        return self.run(verbs.retry(inv))


class Topic:
    """A journal that many post to and many read. Made by `Dispatch.topic`."""

    def __init__(self, face: Dispatch, name: str) -> None:
        self._face, self.name = face, name

    def post(self, value: Any) -> int:
        """Append one value; returns its number, from 0. Raises Conflict after `close`."""
        return self._face.run(verbs.post(self.name, time.time(), self._face.packed(value)))

    def stream(self, since: int = 0) -> Stream[Any]:
        """Values from number `since` on, live until somebody closes the topic."""
        return Stream(self._face.connection(), self.name, since, ())

    def close(self) -> None:
        """Write END, for all publishers."""
        self._face.run(verbs.close_topic(self.name))


class Queues:
    """Administration of queues."""

    def __init__(self, face: Dispatch) -> None:
        self._face = face

    def add(
        self,
        name: str,
        *,
        kind: Kind = "fifo",
        temperature: float = 1.0,
        seed: int | None = None,
        description: str = "",
        provider: str | None = None,
        elasticity: Elasticity | None = None,
        min: int | None = None,
        max: int | None = None,
        threshold: float | None = None,
        template: dict[str, Any] | None = None,
        max_depth: int | None = None,
        on_full: OnFull = "reject",
        rate_limit: float | str | None = None,
        deadline_cutoff_s: float | None = None,
        max_running: int | None = None,
        max_bytes: int | None = None,
        retention: float | None = None,
    ) -> QueueInfo:
        """Create a queue.

        Args:
            kind: fifo, priority, boltzmann or filo.
            temperature, seed: of a boltzmann queue.
            max_depth: how many may be queued; max_bytes: how many bytes of arguments.
            on_full: reject, or block the submitter until there is room.
            rate_limit: submits per second, or "100/s", "30/m".
            deadline_cutoff_s: seconds an invocation may wait once it is claimable.
            max_running: how many may run at once.
            retention: seconds that its ended invocations are kept.

        Raises: ValueError for a wrong setting, Conflict where the name exists, NotFound for an
            unknown provider.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "name")}
        return self._face.run(verbs.add_queue(name, given))

    def ls(self, *, state: str | Iterable[str] | None = None) -> list[QueueInfo]:
        """All queues but archived ones, or those in the given states."""
        return self._face.run(verbs.list_queues(state))

    def show(self, name: str) -> QueueInfo:
        """One queue and its workers."""
        return self._face.run(verbs.show_queue(name))

    def patch(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change settings: all that `add` takes but name, kind and elasticity."""
        return self._face.run(verbs.patch_queue(name, {**changes}))

    def pause(self, name: str) -> QueueInfo:
        """Admit, but hand out nothing."""
        return self._face.run(verbs.shift_queue(name, "pause"))

    def resume(self, name: str) -> QueueInfo:
        """End a pause."""
        return self._face.run(verbs.shift_queue(name, "resume"))

    def drain(self, name: str) -> QueueInfo:
        """Admit nothing; let what is queued and running finish."""
        return self._face.run(verbs.shift_queue(name, "drain"))

    def archive(self, name: str) -> QueueInfo:
        """Admit nothing and hand out nothing; keep the backlog."""
        return self._face.run(verbs.shift_queue(name, "archive"))

    def unarchive(self, name: str) -> QueueInfo:
        """Make a draining or archived queue active again."""
        return self._face.run(verbs.shift_queue(name, "unarchive"))

    def rm(self, name: str, *, force: bool = False) -> Removed:
        """Delete a queue: what is queued is killed, what runs may finish. Raises Conflict while a live
        worker is bound to it, unless `force` unbinds them."""
        return self._face.run(verbs.remove_queue(name, force))

    def stats(self, name: str) -> QueueStats:
        """Its signals now."""
        return self._face.run(verbs.queue_stats(name))


class Jobs:
    """Administration of invocations."""

    def __init__(self, face: Dispatch) -> None:
        self._face = face

    def list(
        self,
        *,
        state: str | Iterable[str] | None = None,
        queue: str | None = None,
        worker: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[Invocation]:
        """Invocations, newest first. `queue` is a name or an id, `worker` an id, `limit` 1 to 200."""
        return self._face.run(verbs.list_jobs(state, queue, worker, limit, offset))

    def show(self, inv: str) -> Invocation:
        """One invocation, with every attempt."""
        return self._face.run(verbs.get(inv))

    def kill(self, inv: str, *, running: bool = False) -> None:
        """As `Dispatch.kill`."""
        self._face.run(verbs.kill(inv, running))

    def retry(self, inv: str) -> str:
        """As `Dispatch.retry`."""
        return self._face.run(verbs.retry(inv))

    def why(self, inv: str) -> list[str]:
        """Why an invocation is where it is, in sentences."""
        return self._face.run(verbs.why(inv))

    def bulk_cancel(self, queue: str | None = None) -> int:
        """Kill everything queued, in one queue or in all; how many. What runs is untouched."""
        return self._face.run(verbs.bulk_cancel(queue))

    def prune(self, older_than: float | timedelta | None = None) -> int:
        """Delete invocations that ended more than `older_than` ago (None: as long ago as each queue's
        retention says); how many."""
        return self._face.run(verbs.prune(older_than))


class Workers:
    """Administration of workers."""

    def __init__(self, face: Dispatch) -> None:
        self._face = face

    def list(self, *, ended: bool = False) -> list[WorkerInfo]:
        """Live workers of the namespace, and with `ended` those that were."""
        return self._face.run(verbs.list_workers(ended))


class Topics:
    """Administration of topics."""

    def __init__(self, face: Dispatch) -> None:
        self._face = face

    def list(self) -> list[TopicInfo]:
        """Every topic of the namespace."""
        return self._face.run(verbs.list_topics())

    def remove(self, name: str) -> None:
        """Delete a topic and its values; readers see its end."""
        self._face.run(verbs.remove_topic(name))


_open: weakref.WeakSet[Dispatch] = weakref.WeakSet()


def _end(found: Host, timeout: float | None) -> bool:
    """One user less; the last one ends the plane. Whether this was the last."""
    last = host.release(found)
    if last and found.owner is not None:
        found.owner.close(timeout)
    return last


def _connect(found: Host, namespace: str) -> Connection:
    """Make a connection on the plane's loop, from this thread."""
    if threading.get_ident() == found.thread:
        return found.connect(namespace)
    ready = threading.Lock()
    ready.acquire()
    box: list[Any] = []

    def connect() -> None:
        try:
            box.append(found.connect(namespace))
        except BaseException as error:
            box.append(error)
        ready.release()

    try:
        found.backend.post(connect)
    except RuntimeError:
        raise closed_error() from None
    ready.acquire()
    if isinstance(box[0], BaseException):
        raise box[0]
    return box[0]


async def connect_async(found: Host, namespace: str) -> Connection:
    """Make a connection on the plane's loop, from a coroutine of any loop."""
    if threading.get_ident() == found.thread:
        return found.connect(namespace)
    backend = current_backend()
    parker = backend.parker()

    def connect() -> None:
        connection = found.connect(namespace)
        try:
            backend.post(lambda: parker.set(connection))
        except RuntimeError:  # the asking loop has ended
            connection.close()

    try:
        found.backend.post(connect)
    except RuntimeError:
        raise closed_error() from None
    return await parker.wait()


def _close_at_exit() -> None:
    deadline = time.monotonic() + _EXIT_PATIENCE
    for face in list(_open):
        face._close(max(0.1, deadline - time.monotonic()))  # pyright: ignore[reportPrivateUsage]


def _after_fork() -> None:
    for face in list(_open):  # another thread may have held it
        face._lock = threading.Lock()  # pyright: ignore[reportPrivateUsage]


# before the interpreter waits for threads, as concurrent.futures does it: a worker on a thread that is
# no daemon ends with its plane, and `atexit` would come only after that thread
try:
    getattr(threading, "_register_atexit", atexit.register)(_close_at_exit)
except RuntimeError:  # imported while the interpreter ends
    atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_after_fork)
