"""The few things the runtime needs of an event loop, done directly on asyncio and on trio.

A one-shot wait through `Parker` costs about half of an `anyio.Event`, and a callback costs no task
switch; everything that waits in some other way uses anyio.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from socket import socket
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from sniffio import current_async_library_cvar

T = TypeVar("T")


class Parker(Protocol[T]):
    """One wait for one value."""

    def set(self, value: T) -> None:
        """End the wait. A second time, or after a cancel, it does nothing."""
        ...

    def wait(self) -> Awaitable[T]:
        """To be awaited, once: the value. Cancelling is fine."""
        ...


class Timed(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Don't call it."""
        ...


class Backend(Protocol):
    """A running event loop."""

    name: str

    def now(self) -> float:
        """The loop's clock, seconds."""
        ...

    def parker(self) -> Parker[Any]:
        """A fresh one-shot wait."""
        ...

    def wait(self) -> tuple[Awaitable[Any], Callable[[Any], None]]:
        """The two ends of a fresh one-shot wait, for where one is made per job: what to await, once,
        and what ends it."""
        ...

    def soon(self, call: Callable[[], None]) -> None:
        """Call back in the next turn of this loop; only from its own thread."""
        ...

    def later(self, seconds: float, call: Callable[[], None]) -> Timed:
        """Call back after `seconds`; only from its own thread."""
        ...

    def post(self, call: Callable[[], None]) -> None:
        """Call back in this loop, from any thread. RuntimeError once the loop has ended."""
        ...

    def readable(self, sock: socket, call: Callable[[], None]) -> Timed:
        """Call back whenever `sock` has something to read, until cancelled, which must come before the
        socket is closed; only from the loop's own thread. One at a time for a socket."""
        ...

    def writable(self, sock: socket, call: Callable[[], None]) -> Timed:
        """The same for room to write."""
        ...

    async def serve(self) -> None:
        """Must run in a task while any of these is used; ends when cancelled."""
        ...


class _AsyncioParker:  # not generic: making one of a generic class costs ten times as much
    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def set(self, value: Any) -> None:
        _settle(self._future, value)

    def wait(self) -> Any:
        return self._future


def _settle(future: Any, value: Any) -> None:
    if not future.done():
        future.set_result(value)


class _Watched:
    __slots__ = ("_on", "_remove", "_sock")

    def __init__(self, remove: Callable[[socket], object], sock: socket) -> None:
        self._remove, self._sock = remove, sock
        self._on = True

    def cancel(self) -> None:
        if self._on:
            self._on = False
            self._remove(self._sock)


class AsyncioBackend:
    """The running asyncio loop."""

    name = "asyncio"

    def __init__(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._forever = asyncio.Event
        self._future: Callable[[], Any] = partial(asyncio.Future, loop=self._loop)
        own = getattr(self._loop.time, "__func__", None)
        # what the usual loops' `time` calls, without the call in between
        usual = own is asyncio.BaseEventLoop.time
        self.now: Callable[[], float] = monotonic if usual else self._loop.time
        # callbacks see neither the thread nor the body they were posted from, and anyio knows the loop
        self._context = copy_context()
        self._context.run(current_async_library_cvar.set, "asyncio")
        self._later, self._soon, self._post = (
            self._loop.call_later,
            self._loop.call_soon,
            self._loop.call_soon_threadsafe,
        )

    def soon(self, call: Callable[[], None]) -> None:
        """A callback of the loop."""
        self._soon(call, context=self._context)

    def post(self, call: Callable[[], None]) -> None:
        """The loop's own way in from threads."""
        self._post(call, context=self._context)

    def parker(self) -> Parker[Any]:
        """A future."""
        return _AsyncioParker(self._future())

    def wait(self) -> tuple[Awaitable[Any], Callable[[Any], None]]:
        """A future: no subclass of it, which asyncio would await in a slower way."""
        future = self._future()
        return future, partial(_settle, future)

    def later(self, seconds: float, call: Callable[[], None]) -> Timed:
        """The loop's own timer."""
        return self._later(seconds, call, context=self._context)

    def readable(self, sock: socket, call: Callable[[], None]) -> Timed:
        """The loop's own way."""
        self._context.copy().run(self._loop.add_reader, sock, call)
        return _Watched(self._loop.remove_reader, sock)

    def writable(self, sock: socket, call: Callable[[], None]) -> Timed:
        """The loop's own way."""
        self._context.copy().run(self._loop.add_writer, sock, call)
        return _Watched(self._loop.remove_writer, sock)

    async def serve(self) -> None:
        """Nothing to do: the loop calls back by itself."""
        await self._forever().wait()


class _TrioParker:
    __slots__ = ("_done", "_lowlevel", "_task", "_value")

    def __init__(self, lowlevel: Any) -> None:
        self._lowlevel, self._task, self._done = lowlevel, None, False
        self._value: Any = None

    def set(self, value: Any) -> None:
        if not self._done:
            self._done, self._value = True, value
            if self._task is not None:
                self._lowlevel.reschedule(self._task)

    async def wait(self) -> Any:
        lowlevel = self._lowlevel
        if not self._done:
            self._task = lowlevel.current_task()
            await lowlevel.wait_task_rescheduled(self._abort)
        return self._value

    def _abort(self, _: Any) -> Any:
        self._done = True
        return self._lowlevel.Abort.SUCCEEDED


class _TrioTimed:
    __slots__ = ("_timers", "call")

    def __init__(self, call: Callable[[], None], timers: _TrioTimers) -> None:
        self.call: Callable[[], None] | None = call
        self._timers = timers

    def cancel(self) -> None:
        if self.call is not None:
            self.call = None
            self._timers.cancelled()


class _TrioTimers:
    """Timers by time. Cancelled ones go when they are due, or when they are the most."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, _TrioTimed]] = []
        self._count = self._dead = 0

    @property
    def due(self) -> float:
        """When the first is due."""
        while self._heap and self._heap[0][2].call is None:
            heapq.heappop(self._heap)
            self._dead -= 1
        return self._heap[0][0] if self._heap else float("inf")

    def add(self, when: float, call: Callable[[], None]) -> _TrioTimed:
        self._count += 1
        timed = _TrioTimed(call, self)
        heapq.heappush(self._heap, (when, self._count, timed))
        return timed

    def ring(self, now: Callable[[], float]) -> None:
        """Call those that are due."""
        while self.due <= now():
            timed = heapq.heappop(self._heap)[2]
            call, timed.call = timed.call, None
            if call is not None:
                call()

    def cancelled(self) -> None:
        self._dead += 1
        if self._dead > 64 + len(self._heap) // 2:
            self._heap = [timer for timer in self._heap if timer[2].call is not None]
            heapq.heapify(self._heap)
            self._dead = 0


class _TrioWatch:
    """One socket and one direction of it, watched by a task of `serve`."""

    __slots__ = ("_call", "_on", "_scope", "_sock", "_wait")

    def __init__(self, wait: Any, sock: socket, call: Callable[[], None], scope: Any) -> None:
        self._wait, self._sock, self._call = wait, sock, call
        self._scope, self._on = scope, True

    async def run(self) -> None:
        with self._scope:
            while self._on:  # cancelled before it began, its socket may be closed already
                await self._wait(self._sock)
                if self._on:
                    self._call()

    def cancel(self) -> None:
        self._on = False
        self._scope.cancel()


class TrioBackend:
    """The running trio loop. All of it is served by tasks inside `serve`."""

    name = "trio"

    def __init__(self) -> None:
        import trio

        self._trio, self._lowlevel = trio, trio.lowlevel
        self._token = trio.lowlevel.current_trio_token()
        self.now: Callable[[], float] = trio.current_time
        self._calls: deque[Callable[[], None]] = deque()
        self._timers = _TrioTimers()
        self._idle: _TrioParker | None = None
        self._asleep: _TrioParker | None = None
        self._sleeps_until = float("inf")
        self._nursery: Any = None
        self._context = copy_context()
        self._early: list[_TrioWatch] = []  # asked for before `serve` ran

    def parker(self) -> Parker[Any]:
        """A task reschedule."""
        return _TrioParker(self._lowlevel)

    def wait(self) -> tuple[Awaitable[Any], Callable[[Any], None]]:
        """The same."""
        parker = _TrioParker(self._lowlevel)
        return parker.wait(), parker.set

    def post(self, call: Callable[[], None]) -> None:
        """Trio's own way in from threads."""
        try:
            self._token.run_sync_soon(call)
        except self._trio.RunFinishedError as error:
            raise RuntimeError("the event loop has ended") from error

    def soon(self, call: Callable[[], None]) -> None:
        """Called by the serving task."""
        self._calls.append(call)
        if self._idle is not None:
            self._idle.set(None)
            self._idle = None

    def later(self, seconds: float, call: Callable[[], None]) -> Timed:
        """Called by the timer task."""
        when = self.now() + seconds
        timed = self._timers.add(when, call)
        if when < self._sleeps_until and self._asleep is not None:
            self._asleep.set(None)
            self._asleep = None
        return timed

    def readable(self, sock: socket, call: Callable[[], None]) -> Timed:
        """Called by a task of its own."""
        return self._watch(self._lowlevel.wait_readable, sock, call)

    def writable(self, sock: socket, call: Callable[[], None]) -> Timed:
        """Called by a task of its own."""
        return self._watch(self._lowlevel.wait_writable, sock, call)

    def _watch(self, wait: Any, sock: socket, call: Callable[[], None]) -> _TrioWatch:
        watch = _TrioWatch(wait, sock, call, self._trio.CancelScope())
        if self._nursery is None:
            self._early.append(watch)
        else:  # what it calls does not see who asked
            self._context.copy().run(self._nursery.start_soon, watch.run)
        return watch

    async def serve(self) -> None:
        """Call back until cancelled."""
        async with self._trio.open_nursery() as nursery:
            self._nursery, self._context = nursery, copy_context()
            nursery.start_soon(self._keep_time)
            for watch in self._early:
                nursery.start_soon(watch.run)
            self._early.clear()
            try:
                await self._call_back()
            finally:
                self._nursery = None

    async def _call_back(self) -> None:
        calls = self._calls
        while True:
            if not calls:
                self._idle = _TrioParker(self._lowlevel)
                await self._idle.wait()
            for _ in range(len(calls)):
                calls.popleft()()
            if calls:
                await self._trio.lowlevel.checkpoint()

    async def _keep_time(self) -> None:
        while True:
            self._timers.ring(self.now)
            self._sleeps_until = self._timers.due
            self._asleep = _TrioParker(self._lowlevel)
            with self._trio.CancelScope(deadline=self._sleeps_until):
                await self._asleep.wait()


def current_backend() -> Backend:
    """The event loop that runs in this thread.

    Raises: RuntimeError where none runs.
    """
    name = running_loop()
    if not name:
        raise RuntimeError("no event loop runs here: call this from a coroutine")
    return TrioBackend() if name == "trio" else AsyncioBackend()


def running_loop() -> str:
    """ "asyncio" or "trio" where such a loop runs in this thread, else empty."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return "trio"
    asyncio = sys.modules.get("asyncio")
    return "asyncio" if asyncio is not None and asyncio._get_running_loop() is not None else ""


class Lane(Generic[T]):
    """Items from any thread to a function on one loop, in order, one wake-up for many.

    Args:
        post: the loop's `Backend.post`.
        target: called on the loop with each item.
    """

    __slots__ = ("_items", "_post", "_scheduled", "_target")

    def __init__(self, post: Callable[[Callable[[], None]], Any], target: Callable[[T], None]) -> None:
        self._post, self._target = post, target
        self._items: deque[T] = deque()
        self._scheduled = False

    def put(self, item: T) -> None:
        """Hand over one item. RuntimeError once the loop has ended."""
        self._items.append(item)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._post(self.drain)
            except RuntimeError:
                self._scheduled = False  # or the next one would wait for a call that never comes
                raise

    def drain(self) -> None:
        """Hand on what is there; the loop calls this."""
        self._scheduled = False  # before looking: what comes later schedules anew
        items, target = self._items, self._target
        while items:
            target(items.popleft())
