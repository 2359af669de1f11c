"""`AsyncDispatch`: a plane inside an asyncio or trio program, in the program's own tasks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import anyio

from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.errors import ForkedPlane
from lakeshore.core.messages import Wait

from . import current, forks, hosts, verbs
from .agroups import AsyncJobs, AsyncQueues, AsyncTopic, AsyncTopics, AsyncWorkers
from .choices import Sync
from .connection import Connection, no_answer
from .dispatch import connect_async
from .face import Face
from .host import Host, closed_error
from .latch import Latch
from .loglines import AsyncLog
from .outcomes import value_of_async
from .plane_agroups import AsyncProviders, AsyncTokens
from .records import Invocation, PlaneStatus
from .streams import AsyncStream
from .submitting import read
from .udf import as_udf
from .verbs import Verb

T = TypeVar("T")

_DRAINING = 40.0  # seconds that attached workers may take to end
_CLOSING = 60.0  # seconds that closing may take in all


async def _serve(backend: Backend, until: anyio.CancelScope) -> None:
    """Serve the plane's loop until the block ends: a cancelled program still has to close its plane."""
    with until:
        await backend.serve()


class AsyncDispatch(Face):
    """The native face of a plane: the same verbs as `Dispatch`, as coroutines, on either loop.

    Enter it with `async with`, in the task that leaves it. Its plane runs in a task group of that
    block; nothing of it is left behind. The arguments are those of `Dispatch` (the loop is the
    program's own).
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        namespace: str | None = None,
        token: str | None = None,
        ca: str | None = None,
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
            backend="asyncio",
            sync=sync,
            storage=storage,
            retention=retention,
            lease=lease,
            memory_limit=memory_limit,
            payload_limit=payload_limit,
            connect_timeout=connect_timeout,
        )
        self._host: Host | None = None
        self._connection: Connection | None = None
        self._stack: AsyncExitStack | None = None
        self._forks = -1
        self.queues = AsyncQueues(self)
        self.jobs = AsyncJobs(self)
        self.workers = AsyncWorkers(self)
        self.topics = AsyncTopics(self)
        self.providers = AsyncProviders(self)
        self.tokens = AsyncTokens(self)
        current.made(self)

    # opening and closing

    def host(self) -> Host:
        """The open plane."""
        if self._host is None:
            if self._closed:
                raise closed_error()
            raise RuntimeError("this AsyncDispatch is not open: enter it with `async with`, then use it")
        if self._forks != forks.count:
            raise ForkedPlane("this plane lives in the process that opened it, and this is a forked child")
        return self._host

    def connection(self) -> Connection:
        """The connection to it."""
        if self._connection is None or self._forks != forks.count:
            self.host()
        assert self._connection is not None
        return self._connection

    async def __aenter__(self) -> Self:
        if self._closed or self._host is not None:
            raise RuntimeError("an AsyncDispatch is entered once: make a new one")
        self._forks = forks.count
        try:
            found = await self._claim()
        except BaseException:
            self._closed = True
            current.closed(self)
            raise
        self._host = found
        self.backend = found.backend.name
        current.enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current.leave(self)
        await self._close(patient=kind is None)

    async def aclose(self) -> None:
        """As leaving the block; a second time does nothing."""
        await self._close(patient=True)

    def __repr__(self) -> str:
        return f"<AsyncDispatch {self.address!r} namespace={self.namespace!r}{' closed' * self._closed}>"

    async def _claim(self) -> Host:
        while True:
            found = hosts.claim(self.address, threading.get_ident())
            if not isinstance(found, Latch):
                break
            await found.awaited()
        if found is None:
            try:
                found = await self._open()
            except BaseException:
                hosts.gone(self.address)
                raise
        try:
            self._connection = await connect_async(found, self)
        except BaseException:
            stack, self._stack = self._stack, None
            async with stack or AsyncExitStack():  # scopes are left in the order they were entered
                with anyio.CancelScope(shield=True) as scope:
                    scope.deadline = anyio.current_time() + _CLOSING
                    if stack is None:
                        await _end(found)
                    else:
                        await found.aclose(patience=0.0)
            raise
        return found

    async def _open(self) -> Host:
        backend = current_backend()
        found = Host(self.address, self._options)
        wrong: BaseException | None = None
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(anyio.create_task_group())
            serving = anyio.CancelScope(shield=True)
            stack.callback(serving.cancel)
            tasks.start_soon(_serve, backend, serving)
            try:
                await found.open(backend, tasks)
            except Exception as error:  # raised below, out of the task group, which would wrap it
                wrong = error
            else:
                found.on_failure = lambda: tasks.start_soon(found.aclose)
                hosts.register(found)
                self._stack = stack.pop_all()
        if wrong is not None:
            raise wrong
        return found

    async def _close(self, *, patient: bool) -> None:
        if self._closed:
            return
        self._closed = True
        current.closed(self)
        found, connection, stack = self._host, self._connection, self._stack
        self._host = self._connection = self._stack = None
        if found is None or connection is None or self._forks != forks.count:
            return
        if stack is None:
            with anyio.CancelScope(shield=True) as scope:
                scope.deadline = anyio.current_time() + _CLOSING
                if not await _end(found):
                    connection.hang_up()
            return
        hosts.retire(found)
        async with stack:
            with anyio.CancelScope(shield=True) as scope:
                scope.deadline = anyio.current_time() + _CLOSING
                await found.aclose(patience=_DRAINING if patient else 0.0)

    # verbs

    async def run(self, verb: Verb[T], timeout: float | None = None) -> T:
        """Carry out one verb."""
        connection = self.connection()
        message = verb.make(connection.number())
        if timeout is None:
            return verb.read(await connection.call(message, verb.id))
        with anyio.move_on_after(max(0.0, timeout)):
            return verb.read(await connection.call(message, verb.id))
        raise TimeoutError(no_answer(timeout))

    async def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> str:
        """Submit a call of a udf, or of a plain function, which is wrapped. See `UDF.submit`."""
        connection = self.connection()  # as `submit_async`, with one coroutine less
        message = connection.submitter.submit(as_udf(fn), args, kwargs, connection.number())
        return read(message, await connection.call(message))

    async def submit_many(self, fn: Any, items: Iterable[Any]) -> list[str]:
        """Submit many calls of one function. See `UDF.submit_many`."""
        return await self.submit_many_async(as_udf(fn), items)

    @overload
    async def result(self, inv: str, *, timeout: float | None = None, type: None = None) -> Any: ...
    @overload
    async def result(self, inv: str, *, timeout: float | None = None, type: type[T]) -> T: ...
    @overload
    async def result(self, inv: str, *, timeout: float | None = None, type: Any) -> Any: ...
    async def result(self, inv: str, *, timeout: float | None = None, type: Any = None) -> Any:
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
            answer = await connection.call(Wait(connection.number(), id), id)
            return await value_of_async(answer, () if type is None else (type,))
        timeout = verbs.waiting(timeout)
        if timeout is not None and timeout <= 0:
            if not (await self.get(inv)).state.terminal:
                raise TimeoutError(verbs.RUNS_STILL)
            timeout = None
        outcome = await self.run(verbs.outcome(inv), timeout)
        return await value_of_async(outcome, () if type is None else (type,))

    async def get(self, inv: str) -> Invocation:
        """The record of an invocation as it is now, with every attempt. Raises NotFound."""
        return await self.run(verbs.get(inv))

    def stream(self, inv: str, *, since: int = 0) -> AsyncStream[Any]:
        """The frames a generator yielded, from number `since` on, live until its end.

        Iterating raises what the invocation ended with, after every frame before it; `Gap` where
        frames from `since` on are not there; NotFound.
        """
        return AsyncStream(self.connection(), verbs.known(inv), since, ())

    def logs(self, inv: str, *, since: int = 0, follow: bool = False) -> AsyncLog:
        """The lines of an invocation's log, from number `since` on: what its bodies wrote with
        `dls.run.log`, to `logging`, and to stdout and stderr, of all attempts.

        It ends with what is stored now; with `follow` it goes on, live, until the invocation ends.
        Iterating raises `Gap` where lines from `since` on are not kept any more; NotFound, Expired.
        """
        return AsyncLog(self.connection(), verbs.known(inv), since, follow)

    def topic(self, name: str) -> AsyncTopic:
        """A topic of this namespace, made at its first post."""
        return AsyncTopic(self, verbs.topic_name(name))

    async def kill(self, inv: str, *, running: bool = False) -> None:
        """Kill a queued invocation; with `running=True` cancel a running one's body too, and return
        once it is over. Raises Conflict for a running one without it, or an ended one; NotFound."""
        await self.run(verbs.kill(inv, running))

    async def retry(self, inv: str) -> str:
        """Submit an ended invocation's call anew; the new id. Raises Conflict for a live one."""
        return await self.run(verbs.retry(inv))

    async def status(self) -> PlaneStatus:
        """What the plane is and how much goes on in it."""
        return await self.run(verbs.status())


async def _end(found: Host) -> bool:
    """One user less; the last one ends the plane's thread. Whether this was the last."""
    last = hosts.release(found)
    if last and found.owner is not None:
        await found.owner.aclose()
    return last
