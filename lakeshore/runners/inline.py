"""Bodies in the worker's own process: async ones as native code of its loop, the others on threads.

No task, scope or thread is made per job. A slot is a task with two nested cancel scopes that are
renewed only after a cancel: the outer one is cancelled to stop a body; once its body has been told,
the inner one shields what the body still awaits, for as long as cleaning up may take.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from types import coroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from lakeshore.core.backend import Backend, Parker
from lakeshore.core.bodies import ON_LOOP, Job
from lakeshore.core.messages import Ended, GaveBack
from lakeshore.core.running import CURRENT
from lakeshore.core.worker import CLEANUP, Worker

from .frames import FrameBuffer
from .threads import ThreadRunner

_BREATHE_JOBS = 128  # bodies a slot runs before it lets the loop breathe
_BREATHE_SECONDS = 0.001  # how long an async generator may go on without a pause

Setup = Callable[[Any], Any]


class InlineRunner:
    """Runs the four kinds of body for one worker.

    Args:
        worker: who is told.
        tasks: where slot tasks live.
        setup: called before each body, inside its context; may be a coroutine function for
            bodies on the loop.
        cleanup: seconds a stopped body may go on.
    """

    def __init__(
        self,
        worker: Worker,
        tasks: TaskGroup,
        backend: Backend,
        *,
        setup: Setup | None = None,
        cleanup: float = CLEANUP,
    ) -> None:
        self._worker, self._tasks, self._backend = worker, tasks, backend
        self._setup, self._cleanup = setup, cleanup
        self._context = copy_context()
        self._cancelled = anyio.get_cancelled_exc_class()
        self._ready: deque[Job] = deque()
        self._idle: list[Parker[Job]] = []
        self._slots = 0
        self._threads = ThreadRunner(worker, backend, self._context, setup=setup, cleanup=cleanup)

    def start(self, job: Job) -> None:
        """Begin a job."""
        if job.body.kind not in ON_LOOP:
            self._threads.start(job)
        elif self._idle:
            self._idle.pop().set(job)
        else:
            self._ready.append(job)
            if self._slots < self._worker.hello.slots:
                self._slots += 1
                self._tasks.start_soon(self._slot, name=f"lakeshore slot {self._slots}")

    def cancel(self, job: Job) -> None:
        """Stop a body."""
        if job.body.kind not in ON_LOOP:
            self._threads.cancel(job)
        elif job.state is not None:
            job.state.outer.cancel()

    def acked(self, job: Job) -> None:
        """A generator that waited for the store may go on."""
        if job.body.kind not in ON_LOOP:
            self._threads.acked(job)
        elif job.state is not None and job.state.room is not None and not job.full(0):
            job.state.room.set(None)

    def close(self) -> None:
        """Let the threads go."""
        self._threads.close()

    async def _slot(self) -> None:
        ready = self._ready
        while True:
            with anyio.CancelScope() as outer, anyio.CancelScope() as inner:
                run = _Run(self, outer, inner)
                count = 0
                while True:
                    if ready:
                        job = ready.popleft()
                    else:
                        parker = self._backend.parker()
                        self._idle.append(parker)
                        job = await parker.wait()
                    await run.run(job)
                    if outer.cancel_called or inner.cancel_called or job.why:
                        inner.shield = False
                        await checkpoint()  # a cancel that the body did not see ends here
                        break
                    count += 1
                    if count % _BREATHE_JOBS == 0:
                        await checkpoint()


class _Run:
    """What one slot does with one job after another."""

    def __init__(self, runner: InlineRunner, outer: anyio.CancelScope, inner: anyio.CancelScope) -> None:
        self.outer, self.inner = outer, inner
        self.room: Parker[None] | None = None
        self._runner = runner
        self._worker: Worker = runner._worker  # pyright: ignore[reportPrivateUsage]
        self._backend: Backend = runner._backend  # pyright: ignore[reportPrivateUsage]
        self._job: Job
        self._buffer: FrameBuffer | None = None
        self._flushed = 0.0

    async def run(self, job: Job) -> None:
        runner, worker = self._runner, self._worker
        self._job, job.state = job, self
        worker.began(job)
        context = runner._context.copy()  # pyright: ignore[reportPrivateUsage]
        context.run(CURRENT.set, job.running)
        ended: Ended | GaveBack
        try:
            body = context.run(self._coroutine, job)
            value = await _drive(body, context, self)
        except BaseException as error:
            self._flush()
            ended = self._raised(job, error)
            worker.ended(job, ended)
            if isinstance(error, runner._cancelled) and not job.why and self._hosts_cancelled():  # pyright: ignore[reportPrivateUsage]
                raise
        else:
            self._flush()
            seconds = self._backend.now() - job.started
            if job.why == "timeout":
                ended = job.stopped("expire", seconds, _too_long(job))
            else:
                ended = job.succeeded(value, seconds)
            worker.ended(job, ended)
        finally:
            self._buffer = None
            job.state = None

    def _hosts_cancelled(self) -> bool:
        return self._runner._tasks.cancel_scope.cancel_called  # pyright: ignore[reportPrivateUsage]

    def _coroutine(self, job: Job) -> Coroutine[Any, Any, Any]:
        setup = self._runner._setup  # pyright: ignore[reportPrivateUsage]
        if job.body.kind == "async_generator":
            self._buffer = FrameBuffer(job.limit)
            return self._pump(job, setup)
        if setup is not None:
            return self._after_setup(job, setup)
        return job.body.fn(*job.args, **job.kwargs)

    async def _after_setup(self, job: Job, setup: Setup) -> Any:
        await _called(setup, job)
        return await job.body.fn(*job.args, **job.kwargs)

    async def _pump(self, job: Job, setup: Setup | None) -> None:
        if setup is not None:
            await _called(setup, job)
        buffer, wall = self._buffer, time.time
        assert buffer is not None
        self._flushed = wall()
        values = job.body.fn(*job.args, **job.kwargs)
        try:
            async for value in values:
                at = wall()
                if buffer.add(at, value):
                    self._flush()
                    if job.full(0):
                        await self._wait_for_room(job)
                elif at - self._flushed > _BREATHE_SECONDS:
                    self._flush()
                    await checkpoint()
        finally:
            close = getattr(values, "aclose", None)
            if close is not None:
                await close()

    async def _wait_for_room(self, job: Job) -> None:
        while job.full(0):
            self.room = self._backend.parker()
            try:
                await self.room.wait()
            finally:
                self.room = None

    def _flush(self) -> None:
        buffer = self._buffer
        if buffer is not None and buffer.times:
            self._flushed = buffer.times[-1]
            self._worker.frames(self._job, *buffer.take())

    def suspending(self) -> None:
        """The body is about to wait: let out what it has yielded."""
        if self._buffer is not None:
            self._flush()

    def interrupted(self, error: BaseException) -> None:
        """Something is thrown into the body; after a stop it may clean up, once."""
        if self._job.why and isinstance(error, self._runner._cancelled) and not self.inner.shield:  # pyright: ignore[reportPrivateUsage]
            self.inner.shield = True
            self.inner.deadline = anyio.current_time() + self._runner._cleanup  # pyright: ignore[reportPrivateUsage]

    def _raised(self, job: Job, error: BaseException) -> Ended | GaveBack:
        seconds = self._backend.now() - job.started
        if job.why == "timeout":
            return job.stopped("expire", seconds, _too_long(job))
        if _only(error, self._runner._cancelled):  # pyright: ignore[reportPrivateUsage]
            if job.why == "kill":
                return job.stopped("kill", seconds, "killed while it was running")
            if job.why:
                return GaveBack(job.id, job.attempt, "the worker's grace was over", begun=True)
            if self._hosts_cancelled():
                return GaveBack(job.id, job.attempt, "the worker was cancelled", begun=True)
        return job.failed(error, seconds)


def _too_long(job: Job) -> str:
    return f"it ran longer than its timeout of {job.grant.call.options.timeout:g} s"


def _only(error: BaseException, kind: type[BaseException]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_only(leaf, kind) for leaf in error.exceptions)
    return isinstance(error, kind)


async def _called(setup: Setup, job: Job) -> None:
    result = setup(job.running)
    if hasattr(result, "__await__"):
        await result


@coroutine
def _drive(body: Coroutine[Any, Any, Any], context: Context, run: _Run) -> Generator[Any, Any, Any]:
    """Await `body` with every step of it inside `context`, without a task of its own."""
    step = context.run
    send, throw = body.send, body.throw
    try:
        trap = step(send, None)
        while True:
            run.suspending()
            try:
                sent = yield trap
            except GeneratorExit:
                step(body.close)
                raise
            except BaseException as error:
                run.interrupted(error)
                trap = step(throw, error)
            else:
                trap = step(send, sent)
    except StopIteration as stop:
        return stop.value
