"""A slot of the worker's own loop: one task that runs asynchronous bodies one after another.

It has two nested cancel scopes, renewed only after a cancel: the outer one is cancelled to stop a
body; once its body has been told, the inner one shields what the body still awaits, for as long as
cleaning up may take.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from functools import partial
from math import inf
from types import CoroutineType, coroutine
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from lakeshore.core.backend import Parker
from lakeshore.core.bodies import Job, members_of
from lakeshore.core.errors import Overtaken
from lakeshore.core.extensions.leaves import class_of
from lakeshore.core.messages import Ended, GaveBack
from lakeshore.core.running import CURRENT

from .frames import FrameBuffer, prepared
from .shared import Shared, stopped, unbegun
from .stored import aside, complete, discard, fetch, publish, published, stow, stow_frame

_BREATHE_JOBS = 128  # bodies a slot runs before it lets the loop breathe
_BREATHE_SECONDS = 0.001  # how long an async generator may go on without a pause


class Slot:
    """Runs jobs from `ready`, and those it is given while it is one of `idle`."""

    def __init__(self, shared: Shared, ready: deque[Job], idle: list[Slot]) -> None:
        self.job: Job | None = None  # at work on
        self._shared, self._ready, self._idle = shared, ready, idle
        self._worker, self._backend, self._now = shared.worker, shared.backend, shared.backend.now
        self._cancelled: type[BaseException] = GeneratorExit  # until `serve` knows its loop
        self._task: Any = None  # of asyncio, whose cancels are counted
        self._trio_task: Any = None
        self._nurseries = 0  # of trio, that were open when the body was stopped
        self._outer: anyio.CancelScope
        self._inner: anyio.CancelScope
        self._wake: Callable[[None], None]  # ends the wait of an idle slot
        self._gift: Job | None = None
        self._spoilt = False  # a scope was cancelled, or may be soon
        self._room: Parker[None] | None = None
        self._buffer: FrameBuffer | None = None
        self._flushed = 0.0
        self._told = self._torn = False
        self._completing = False  # a thread publishes, and throws away what is not to be

    # what the runner calls

    def give(self, job: Job) -> None:
        """A job for an idle slot."""
        self._gift = job
        self._wake(None)

    def stop(self) -> None:
        """Cancel the body, whose job says why."""
        if self._trio_task is not None:
            self._nurseries = len(self._trio_task.child_nurseries)
        self._spoilt = True
        self._outer.cancel()

    def hurry(self) -> None:
        """The worker ends now: no more time to clean up."""
        if self.job is not None:
            self._spoilt = True
            self._inner.cancel()

    def make_room(self, job: Job) -> None:
        """Frames were stored: a generator that waited for that may go on."""
        if self._room is not None and not job.full():
            self._room.set(None)

    async def serve(self) -> None:
        """Run jobs until cancelled. Should it ever end by itself, `unfinished` has the rest."""
        self._cancelled = anyio.get_cancelled_exc_class()  # here: only a task knows
        if self._backend.name == "asyncio":
            import asyncio

            self._task = asyncio.current_task()
        else:
            import trio

            self._trio_task = trio.lowlevel.current_task()
        while True:
            with anyio.CancelScope() as self._outer, anyio.CancelScope() as self._inner:
                await self._serve()
            self._spoilt = False

    def unfinished(self) -> Job | None:
        """A job that was handed over and never begun."""
        if self in self._idle:
            self._idle.remove(self)
        job, self._gift = self._gift, None
        return job

    # jobs

    async def _serve(self) -> None:
        ready, task, count = self._ready, self._task, 0
        while True:
            job = ready.popleft() if ready else await self._next()
            await self._run(job)
            if self._spoilt:
                self._inner.shield = False
                await self._absorb()  # a cancel that the body did not see ends here
                return
            if task is not None and task.cancelling():
                await self._absorb()
            count += 1
            if count % _BREATHE_JOBS == 0:
                await self._absorb()

    async def _next(self) -> Job:
        while True:
            waiting, self._wake = self._backend.wait()
            self._idle.append(self)
            try:
                await waiting
            except self._cancelled:
                if self in self._idle:
                    self._idle.remove(self)
                if self.ending():
                    raise
                await self._absorb()
            job, self._gift = self._gift, None
            if job is not None:
                return job

    async def _absorb(self) -> None:
        """Let no cancel of one body reach the next, not even one that it asked asyncio for. Should
        the worker itself be cancelled, that is said again at the next wait."""
        with contextlib.suppress(self._cancelled):
            await checkpoint()
        while self._task is not None and self._task.cancelling():
            self._task.uncancel()

    def ending(self) -> bool:
        """Whether the worker itself is being cancelled (asked while this body was not stopped)."""
        return anyio.current_effective_deadline() == -inf

    async def _run(self, job: Job) -> None:
        worker, why = self._worker, job.why
        if why:
            worker.ended(job, unbegun(job))
            return
        self.job, job.state, self._told, self._nurseries = job, self, False, 0
        self._completing = False
        worker.began(job)
        context = self._shared.context.copy()
        try:
            body, found = context.run(self._first_step, job)
            value = found if body is None else await _drive(body, found, context, self, job)
            if job.running.files is not None:
                value = await self._complete(job, value)
            report = self._returned(job, value)
            if type(report) is Ended and job.is_large(len(report.result or b"")):
                report = await published(job, self._shared, partial(stow, job, self._shared, report))
        except BaseException as error:
            if self._torn:
                raise
            if job.running.files is not None and not self._completing:
                await self._discard(job, error)
            ending = not job.why and self.ending()
            if ending:
                worker.drain()
            self._finish(job, self._raised(job, error, ending))
            if ending and isinstance(error, self._cancelled):
                raise
        else:
            self._finish(job, report)

    def _returned(self, job: Job, value: Any) -> Ended | GaveBack:
        seconds = self._now() - job.started
        return stopped(job, seconds) if job.why == "timeout" else job.succeeded(value, seconds)

    def _finish(self, job: Job, report: Ended | GaveBack) -> None:
        if self._buffer is not None:
            self._flush()
            self._buffer = None
        self.job = job.state = None
        self._worker.ended(job, report)

    async def _complete(self, job: Job, value: Any) -> Any:
        """Publish what the body has written, on a thread."""

        def work() -> Any:
            try:
                return value if job.why == "timeout" else complete(job, self._shared, value)
            finally:
                discard(job)

        self._completing = True
        return await published(job, self._shared, work)

    async def _discard(self, job: Job, error: BaseException) -> None:
        """What it has not published goes; whoever was cancelled does not wait for that."""
        if isinstance(error, self._cancelled):
            threading.Thread(target=discard, args=(job,), name="lakeshore files", daemon=True).start()
        else:
            with contextlib.suppress(self._cancelled):  # it is said again at the next wait
                await aside(self._backend, partial(discard, job))

    def _raised(self, job: Job, error: BaseException, ending: bool) -> Ended | GaveBack:
        seconds = self._now() - job.started
        if job.why == "timeout" or isinstance(error, Overtaken):
            return stopped(job, seconds)
        if (job.why or ending) and _only(error, self._cancelled):
            if ending:
                return GaveBack(job.id, job.attempt, "the worker was cancelled", begun=True)
            return stopped(job, seconds)
        return job.failed(error, seconds)

    def _first_step(self, job: Job) -> tuple[Coroutine[Any, Any, Any] | None, Any]:
        """Begin a body, inside its context: it and what it waits for, or None and its value. Most
        short bodies are over at once, and need no more."""
        CURRENT.set(job.running)
        body: Any
        if job.body.kind == "async_generator":
            self._buffer = FrameBuffer()
            body = self._pump(job, self._buffer)
        elif self._shared.setup is not None or job.away is not None:
            body = self._after_setup(job)
        else:
            body = job.body.fn(*job.args, **job.kwargs)
            if class_of(body) is not CoroutineType:
                body = _awaited(body)
        try:
            return body, body.send(None)
        except StopIteration as stop:
            return None, stop.value

    async def _after_setup(self, job: Job) -> Any:
        await self._set_up(job)
        return await job.body.fn(*job.args, **job.kwargs)

    async def _set_up(self, job: Job) -> None:
        if job.away is not None:
            await aside(self._backend, partial(fetch, job, self._shared))
        if self._shared.setup is not None:
            result = self._shared.setup(job.running)
            if hasattr(result, "__await__"):
                await result

    # frames

    async def _pump(self, job: Job, buffer: FrameBuffer) -> None:
        await self._set_up(job)
        number, wall = 0, time.time
        self._flushed = wall()
        values = job.body.fn(*job.args, **job.kwargs)
        try:
            async for value in values:
                at = wall()
                ready, size = prepared(job, value, number)
                away = b""
                if job.is_large(size):
                    stowing = partial(stow_frame, job, self._shared, ready)
                    ready, size, away = await aside(self._backend, stowing)
                if job.running.files is not None:
                    await published(job, self._shared, partial(publish, job, self._shared, value))
                full = buffer.add(at, ready, size, away)
                number += 1
                if full or job.full(len(buffer.times), buffer.size):
                    self._flush()
                    if job.full():
                        await self._wait_for_room(job)
                elif at - self._flushed > _BREATHE_SECONDS:
                    self._flush()
                    await checkpoint()
        finally:
            close = getattr(values, "aclose", None)
            if close is not None:
                await close()

    async def _wait_for_room(self, job: Job) -> None:
        while job.full():
            self._room = self._backend.parker()
            try:
                await self._room.wait()
            finally:
                self._room = None

    def _flush(self) -> None:
        buffer, job = self._buffer, self.job
        if buffer is not None and job is not None and buffer.times:
            self._flushed = buffer.times[-1]
            self._worker.frames(job, *buffer.take())

    # what `_drive` tells

    def suspending(self) -> None:
        """The body is about to wait: let out what it has yielded."""
        if self._buffer is not None:
            self._flush()
        if self._told or (self._nurseries and len(self._trio_task.child_nurseries) < self._nurseries):
            self._told, self._nurseries = False, 0  # by one of its own tasks, if a nursery is over
            self._shield()

    def interrupted(self, error: BaseException) -> None:
        """asyncio throws something into the body; after a stop it may clean up, once."""
        if isinstance(error, self._cancelled):
            self._shield()

    def resumed(self, sent: Any) -> None:
        """trio sends something into the body, and a cancel too is sent. The shield has to wait until
        the body has been told: a scope of trio's own, around the wait, would swallow the cancel."""
        if isinstance(getattr(sent, "error", None), self._cancelled):
            self._told = True

    def _shield(self) -> None:
        inner, job = self._inner, self.job
        if job is not None and job.why and not inner.shield:
            self._spoilt = inner.shield = True
            inner.deadline = anyio.current_time() + self._shared.cleanup

    def torn(self) -> None:
        """The loop is gone: the body was closed, and there is nobody to tell."""
        self._torn = True


async def _awaited(found: Any) -> Any:
    return await found


def _only(error: BaseException, kind: type[BaseException]) -> bool:
    members = members_of(error)
    return all(_only(member, kind) for member in members) if members else isinstance(error, kind)


@coroutine
def _drive(
    body: Coroutine[Any, Any, Any], trap: Any, context: Context, slot: Slot, job: Job
) -> Generator[Any, Any, Any]:
    """Await `body`, which waits for `trap`, with every step of it inside `context`, without a task of
    its own."""
    step = context.run
    send, throw = body.send, body.throw
    try:
        while True:
            slot.suspending()
            thrown: BaseException | None = None
            sent: Any = None
            try:
                sent = yield trap
            except GeneratorExit:
                slot.torn()
                step(body.close)
                raise
            except BaseException as error:
                thrown = error
            if thrown is not None:  # out of the handler: what the body raises next has no cause here
                slot.interrupted(thrown)
                error, thrown = thrown, None  # nor a cycle through this frame
                trap = step(throw, error)
                del error
                continue
            if job.why:
                slot.resumed(sent)
            trap = step(send, sent)
    except StopIteration as stop:
        return stop.value
