"""What the programs of `test_same_outcome` are written in: bodies that follow a plan, and an event log.

A plan is one list of steps an attempt (the last one serves all later attempts); a step is a pair. Time is
virtual and stands still while a store's threads work, so an asynchronous program takes the same path on
each loop and each store, to the microsecond.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import anyio

import lakeshore as dls

Step = tuple[str, Any]
Program = Callable[["World"], Awaitable[None]]
ERRORS: dict[str, Callable[[], BaseException]] = {}
VALUES: dict[str, Callable[[], Any]] = {}
Standstill = Callable[[], contextlib.AbstractContextManager[None]]  # virtual time waits for threads inside
PROGRAMS: dict[str, tuple[Program, str]] = {}
here: World | None = None  # the one that runs now: bodies reach it as a global, for they may be pickled


def program(golden: str) -> Callable[[Program], Program]:
    """Register a program with what is expected of it, as `programs_log.brief` says it."""

    def register(run: Program) -> Program:
        assert run.__name__ not in PROGRAMS
        PROGRAMS[run.__name__] = run, golden
        return run

    return register


class World:
    """A plane, and a log of all that is seen of its invocations. Each goes by a label."""

    def __init__(self, q: dls.AsyncDispatch, stored: dict[str, list[Any]], standstill: Standstill) -> None:
        self.q, self.stored, self.standstill = q, stored, standstill
        self.ids: dict[str, str] = {}
        self.notes: list[tuple[str, Any]] = []  # of whom, by label or id, and what
        self.deaf = False  # to what bodies say
        self._events: dict[str, anyio.Event] = {}
        self._began = anyio.current_time()

    def now(self) -> float:
        """Virtual seconds since the program began."""
        return round(anyio.current_time() - self._began, 6)

    def event(self, name: str) -> anyio.Event:
        """An event that bodies and the program share."""
        return self._events.setdefault(name, anyio.Event())

    def forget(self, name: str) -> None:
        """Make an event anew."""
        del self._events[name]

    def note(self, label: str, *what: Any) -> None:
        """Write down what was seen of an invocation."""
        self.notes.append((label, what))

    def say(self, *what: Any) -> None:
        """Write down what no invocation is the subject of."""
        self.notes.append(("plane", what))

    def hear(self, *what: Any) -> None:
        """Write down what a body says of itself."""
        if not self.deaf:
            self.notes.append((dls.run.id, what))

    def seen(self, label: str) -> list[Any]:
        """What was written down of an invocation, by the program or by its body, in order."""
        return [what for name, what in self.notes if name in (label, self.ids.get(label))]

    def label(self, inv: str) -> str:
        """What an id is called here."""
        return next((label for label, id in self.ids.items() if id == inv), inv)

    async def submit(self, label: str, fn: Any, *args: Any, **options: Any) -> str:
        """Submit; a refusal is written down, and gives an empty id."""
        try:
            inv = await self.q.submit(fn, *args, **options)
        except (dls.LakeshoreError, TypeError, ValueError) as error:
            self.note(label, "refused", type(error).__name__)
            return ""
        if inv in self.ids.values():
            self.note(label, "is", self.label(inv))
        else:
            self.ids[label] = inv
        return inv

    async def see(self, *labels: str) -> None:
        """Write down in which state each is."""
        for label in labels:
            record = await self.q.get(self.ids[label])
            self.note(label, "is", str(record.state), record.attempt)

    async def end(self, *labels: str) -> None:
        """Wait until each has ended, in whatever way."""
        for label in labels:
            with contextlib.suppress(dls.Unsuccessful):
                await self.q.result(self.ids[label])

    async def refused(self, label: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a verb and write down how it was refused, or that it was not."""
        try:
            value = await call(*args, **options)
        except (dls.LakeshoreError, TimeoutError) as error:
            self.note(label, call.__name__, type(error).__name__)
            return None
        self.note(label, call.__name__, "done")
        return value

    async def read(self, name: str, label: str, since: int = 0, count: int | None = None) -> int:
        """Write down the frames a reader called `name` gets; the cursor it ended with."""
        stream = self.q.stream(self.ids[label], since=since)
        got: list[Any] = []
        try:
            while count is None or len(got) < count:
                frame = await anext(aiter(stream))
                got.append((frame.seq, frame.value, frame.attempt))
        except StopAsyncIteration:
            got.append("end")
        except dls.LakeshoreError as error:
            got.append(type(error).__name__)
        await stream.aclose()
        self.note(f"{label}, {name}", *got)
        return stream.cursor

    @contextlib.asynccontextmanager
    async def working(self, **options: Any) -> AsyncIterator[None]:
        """A worker, drained at the end."""
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            await tasks.start(functools.partial(dls.arun_worker, self.q, stop=stop, **options))
            yield
            stop.set()

    async def work(self, **options: Any) -> None:
        """A worker until it ends by itself; how many it ran."""
        self.say("ran", await dls.arun_worker(self.q, **options))


def udf(kind: str, **options: Any) -> Any:
    """A body of this kind that follows the plan it is called with."""
    return dls.udf(
        {"sync": sync, "generator": generator, "async": async_, "async_generator": agen}[kind], **options
    )


def _begin(plan: tuple[Any, ...]) -> list[Step]:
    """The steps of this attempt."""
    assert here is not None
    here.hear("begins", dls.run.attempt)
    return plan[min(dls.run.attempt, len(plan)) - 1]


def _close() -> None:
    assert here is not None
    here.hear("closes", dls.run.attempt)


def _do(what: str, value: Any) -> None:
    """A step that waits for nothing, or blocks."""
    if what == "raise":
        raise ERRORS[value]() if isinstance(value, str) else dls.Retry(after=value)
    assert what == "spin", what
    while not dls.run.cancelled:  # the sync way of waiting to be stopped
        pass


async def _await(what: str, value: Any) -> None:
    assert here is not None
    if what == "sleep":
        await anyio.sleep(value)
        here.hear("woke", here.now())
    elif what == "wait":
        await here.event(value).wait()
    elif what == "set":
        here.event(value).set()
    elif what == "see":
        record = await here.q.get(dls.run.id)
        here.hear("is", str(record.state), record.attempt)
    elif what == "submit":
        name, plan = value
        here.ids[name] = await udf("async").asubmit(*plan)
    elif what == "linger":
        await _linger(value)
    else:
        _do(what, value)


async def _linger(seconds: float) -> None:
    """Wait for ever; told to stop, take so long to do so."""
    assert here is not None
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(seconds)
        here.hear("stopped", here.now())


def _given(value: Any) -> Any:
    """What a plan names or says outright."""
    return VALUES[value]() if isinstance(value, str) and value in VALUES else value


def sync(*plan: Any) -> Any:
    for what, value in _begin(plan):
        if what == "return":
            return _given(value)
        _do(what, value)
    return None


def generator(*plan: Any) -> Iterator[Any]:
    try:
        for what, value in _begin(plan):
            if what == "return":
                return _given(value)
            if what == "yield":
                yield _given(value)
            else:
                _do(what, value)
    finally:
        _close()
    return None


async def async_(*plan: Any) -> Any:
    for what, value in _begin(plan):
        if what == "return":
            return _given(value)
        await _await(what, value)
    return None


async def agen(*plan: Any) -> AsyncIterator[Any]:
    try:
        for what, value in _begin(plan):
            if what == "yield":
                yield _given(value)
            else:
                await _await(what, value)
    finally:
        _close()
