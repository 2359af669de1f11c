"""`Dispatch`: a plane for programs that block."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Iterable
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from lakeshore.core.backend import current_backend
from lakeshore.core.errors import ForkedPlane, WouldDeadlock
from lakeshore.core.messages import Wait

from . import current, forks, hosts, verbs
from .address import MEMORY
from .choices import Loop, Sync
from .connection import Connection
from .face import Face
from .groups import Jobs, Queues, Topic, Topics, Workers
from .host import Host, closed_error
from .latch import Latch
from .loglines import Log
from .outcomes import value_of
from .plane_groups import Providers, Tokens
from .records import Invocation, PlaneStatus
from .streams import Stream
from .thread import ThreadHost
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
        storage: where bodies read and write files by key, and where large values go: a folder, or a URL
            such as "s3://bucket/prefix"; None is the root of each worker. It counts while this process
            hosts the plane.

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
        storage: str | os.PathLike[str] | None = None,
        retention: float = 604800,
        lease: float = 30.0,
        memory_limit: int | None = None,
        payload_limit: int = 16777216,
        connect_timeout: float | None = 5.0,
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
        self.providers = Providers(self)
        self.tokens = Tokens(self)
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
                self._connection = _connect(found, self)
            except BaseException:
                _end(found, None)
                raise
            self._host = found

    def _claim(self) -> Host:
        """The plane of this address, opened where it is not open in this process."""
        while True:
            found = hosts.claim(self.address)
            if not isinstance(found, Latch):
                break
            found.wait()
        if found is None:
            try:
                found = ThreadHost(self.address, self._options, self.backend).host
            except BaseException:
                hosts.gone(self.address)
                raise
            hosts.register(found)
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

    def logs(self, inv: str, *, since: int = 0, follow: bool = False) -> Log:
        """The lines of an invocation's log, from number `since` on: what its bodies wrote with
        `dls.run.log`, to `logging`, and to stdout and stderr, of all attempts.

        It ends with what is stored now; with `follow` it goes on, live, until the invocation ends.
        Iterating raises `Gap` where lines from `since` on are not kept any more; NotFound, Expired.
        """
        return Log(self.connection(), verbs.known(inv), since, follow)

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

    def status(self) -> PlaneStatus:
        """What the plane is and how much goes on in it."""
        return self.run(verbs.status())


_open: weakref.WeakSet[Dispatch] = weakref.WeakSet()


def _end(found: Host, timeout: float | None) -> bool:
    """One user less; the last one ends the plane. Whether this was the last."""
    last = hosts.release(found)
    if last and found.owner is not None:
        found.owner.close(timeout)
    return last


def _connect(found: Host, face: Face) -> Connection:
    """Make a connection on the plane's loop, from this thread."""
    made: SimpleQueue[Connection | BaseException] = SimpleQueue()
    if threading.get_ident() == found.thread:
        face.connect_to(found, made.put)
        if made.empty():
            raise WouldDeadlock(
                "this plane is in another process, and this is the event loop that would reach it: use "
                "AsyncDispatch here, or open it before"
            )
    else:
        found.hand(lambda: face.connect_to(found, made.put), lambda: made.put(closed_error()))
    answer = made.get()
    if isinstance(answer, BaseException):
        raise answer
    return answer


async def connect_async(found: Host, face: Face) -> Connection:
    """Make a connection on the plane's loop, from a coroutine of any loop."""
    backend = current_backend()
    parker = backend.parker()

    def made(connection: Connection | BaseException) -> None:
        try:
            backend.post(lambda: parker.set(connection))
        except RuntimeError:  # the asking loop has ended
            if not isinstance(connection, BaseException):
                connection.close()

    found.hand(lambda: face.connect_to(found, made), lambda: parker.set(closed_error()))
    answer = await parker.wait()
    if isinstance(answer, BaseException):
        raise answer
    return answer


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
