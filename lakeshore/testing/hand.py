"""A whole plane driven by hand: no loop, no thread, no real time, everything from a seed.

Clients, workers, links and the store are the real ones; only bodies are played by the test, and
nothing happens until `settle` or `advance`:

    plane = HandPlane(seed=1)
    client, worker = plane.client(), plane.worker()
    inv = client.submit("double")
    plane.settle()
    worker.finish(inv, 42)
    assert client.result(inv) == 42
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import msgspec

from lakeshore.core import messages as m
from lakeshore.core.bodies import Job
from lakeshore.core.client import Client
from lakeshore.core.engine import Engine
from lakeshore.core.head import Head
from lakeshore.core.ids import IdMaker
from lakeshore.core.messages import GaveBack
from lakeshore.core.ports import Store
from lakeshore.core.rows import Call, Function, GetInvocation, InvocationRow, Options
from lakeshore.core.values import pack, pack_call, pack_frames, unpack, unpack_frames
from lakeshore.core.worker import Unresolved, Worker
from lakeshore.runners.lines import Notebook

from .faults import FaultyLink, FaultyStore, faulty_pair

START = 1_700_000_000.0  # seconds since 1970 at which a hand-driven plane begins


class HandClock:
    """Two clocks that only the test moves; the wall clock may jump on its own."""

    def __init__(self) -> None:
        self.now, self.wall = 0.0, START
        self._timers: list[tuple[float, int, _Timed]] = []
        self._count = 0

    def later(self, seconds: float, call: Callable[[], None]) -> _Timed:
        """Call back when the clock has been moved that far."""
        self._count += 1
        timed = _Timed(call)
        heapq.heappush(self._timers, (self.now + seconds, self._count, timed))
        return timed

    @property
    def due(self) -> float:
        """When the next callback is due."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else float("inf")

    def ring(self) -> None:
        """Make the callbacks that are due."""
        while self.due <= self.now:
            call = heapq.heappop(self._timers)[2].call
            if call is not None:
                call()


class _Timed:
    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Don't call back."""
        self.call = None


class HandPlane:
    """A head over a store that the test can hold back and break.

    Args:
        seed: where all chance comes from.
        store: one that answers at once; a fresh `MemoryStore` by default. It is wrapped in a
            `FaultyStore`, unless it is one.
        chance: where chance comes from instead of `seed`.
        options: for `Head` (local, retention, journal_bytes).

    Attributes:
        store: the `FaultyStore`; `stored` looks into it past everything that is held.
        clock: `now` (monotonic) and `wall`, moved by `advance` and by the test.
        watch: called with every message that leaves the head, when it leaves.
        failure: the bug that ended the plane, if one did; it is raised where the plane was driven.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        store: Store | None = None,
        chance: random.Random | None = None,
        **options: Any,
    ) -> None:
        if store is None:
            from lakeshore.store.memory import MemoryStore

            store = MemoryStore()
        self.store = store if isinstance(store, FaultyStore) else FaultyStore(store)
        self.clock = HandClock()
        self.random = chance or random.Random(seed)
        self.new_id = IdMaker(lambda: int(self.clock.wall * 1000), self.random.randbytes)
        self.options = options
        self.links: list[FaultyLink] = []  # the head's ends
        self.clients: list[HandClient] = []
        self.watch: Callable[[Any], None] = lambda message: None
        self.failure: BaseException | None = None
        self._unsaid: BaseException | None = None  # a failure that nobody was told of yet
        self.engine: Engine
        self.head: Head
        self._open()

    def _open(self) -> None:
        self.engine = Engine(
            self.store,
            monotonic=lambda: self.clock.now,
            wall=lambda: self.clock.wall,
            uniform=self.random.random,
            seeded=lambda seed: random.Random(seed).random,
            new_id=self.new_id,
            failed=self._failed,
        )
        self.head = Head(self.engine, **self.options)
        opened: list[BaseException | None] = []
        self.head.open(opened.append)
        if opened and opened[0] is not None:
            raise opened[0]

    def client(self, namespace: str = "default") -> HandClient:
        """A program connected to the plane."""
        ours, theirs = self.connect(namespace)
        client = HandClient(self, ours, theirs)
        self.clients.append(client)
        return client

    def worker(self, *, namespace: str = "default", **hello: Any) -> HandWorker:
        """A worker connected to the plane; `hello` overrides fields of `Hello`. With `leased` it is one
        in another process, that outlives its links."""
        ours, theirs = self.connect(namespace)
        return HandWorker(self, ours, theirs, hello, namespace)

    def settle(self, limit: int = 100_000) -> None:
        """Let everything happen that needs no time to pass."""
        for _ in range(limit):
            self.clock.ring()
            try:
                more = self.engine.pump()
            except BaseException:
                self._unsaid = None
                raise
            if self._unsaid is not None:  # met while a commit let its effects go
                error, self._unsaid = self._unsaid, None
                raise error
            if not more and min(self.clock.due, self.engine.due) > self.clock.now:
                return
        raise RuntimeError(f"the plane did not settle in {limit} turns")

    def advance(self, seconds: float) -> None:
        """Let time pass, stopping at every moment something is due."""
        self.settle()
        end = self.clock.now + seconds
        while (due := min(self.engine.due, self.clock.due)) <= end:
            self._move(max(due, self.clock.now))
            self.settle()
        self._move(end)
        self.settle()

    def stored(self, id: bytes, namespace: str = "default") -> Any:
        """The `InvocationRow` as it is on disk now, whatever is held, or None."""
        found: list[Any] = []
        self.store.inner.read(GetInvocation(namespace, id), found.append)
        return found[0] if isinstance(found[0], InvocationRow) else None

    def crash(self) -> None:
        """The head's process is killed and started again on the same store; all links are gone."""
        self.engine.failed = _expected
        self.engine.fail(RuntimeError("killed by the test"))
        self.failure = self._unsaid = None
        self.store.drop()
        self._hang_up("PlaneClosed", "the head's process ended")
        links, self.links = self.links, []
        for link in links:
            link.closed = lambda: None
            link.cut()
        self._open()

    def _failed(self, error: BaseException) -> None:
        self.failure = self._unsaid = error
        self._hang_up("PlaneFailed", f"{type(error).__name__}: {error}")

    def _hang_up(self, kind: str, text: str) -> None:
        clients, self.clients = self.clients, []
        for client in clients:
            client.client.closed(m.Refusal(0, kind, text))

    def _move(self, to: float) -> None:
        self.clock.wall += to - self.clock.now
        self.clock.now = to

    def connect(self, namespace: str = "default") -> tuple[FaultyLink, FaultyLink]:
        """A new link: the far end, and the head's."""
        ours, theirs = faulty_pair()
        peer = self.head.connect(ours, namespace)
        ours.receive, ours.closed = peer.receive, peer.closed
        ours.watch = lambda message: self.watch(message)
        self.links.append(ours)
        return theirs, ours


class HandClient:
    """Asks without waiting: `answers` holds what has come, by request number.

    Attributes:
        link: this end; `head_link` the head's end of the same.
    """

    def __init__(self, plane: HandPlane, link: FaultyLink, head_link: FaultyLink) -> None:
        self.plane, self.link, self.head_link = plane, link, head_link
        self.client = Client(link)
        link.receive = self.client.receive
        self.answers: dict[int, list[Any]] = {}
        self._since: dict[int, int] = {}

    def ask(self, kind: type[Any], *fields: Any, **named: Any) -> int:
        """Send a request of a kind; its number."""
        req = self.client.number()
        self.answers[req] = []
        message = kind(req, *fields, **named)
        if kind in (m.Follow, m.FollowLogs, m.FollowTopic):
            self.client.open(message, self.answers[req].append)
        else:
            self.client.ask(message, self.answers[req].append)
        return req

    def answer(self, req: int) -> Any:
        """The newest answer to a request, after settling; None where there is none."""
        self.plane.settle()
        return self.answers[req][-1] if self.answers[req] else None

    def start(self, function: str = "f", **options: Any) -> tuple[bytes, int]:
        """Send a submit; its id and request number.

        Args:
            options: `queue`, `args`, `kind`, `timeout`, `retries`, `retry_delay`, `retry_cap`, `key`,
                and fields of `Submit`.
        """
        id = options.pop("id", None) or self.plane.new_id()
        call = call_of(function, options)
        queue = options.pop("queue", "default")
        return id, self.ask(m.Submit, id, queue, call, **options)

    def submit(self, function: str = "f", **options: Any) -> bytes:
        """Submit and settle; the id that was accepted. AssertionError where it was not."""
        _, req = self.start(function, **options)
        answer = self.answer(req)
        assert isinstance(answer, m.Accepted), answer
        return answer.id

    def outcome(self, id: bytes) -> Any:
        """How an invocation ended (`Outcome`, or the `Refusal` to say so), or None while it lives."""
        return self.answer(self.ask(m.Wait, id))

    def state(self, id: bytes) -> str:
        """An invocation's state, as `get` says."""
        answer = self.answer(self.ask(m.Get, id))
        return str(answer.rows[0][0].state) if isinstance(answer, m.Described) else answer.kind

    def record(self, id: bytes) -> Any:
        """An invocation's stored record, as `get` says."""
        return self.answer(self.ask(m.Get, id)).rows[0][0].record

    def result(self, id: bytes) -> Any:
        """The value of an invocation that has succeeded."""
        outcome = self.outcome(id)
        assert isinstance(outcome, m.Outcome), outcome
        assert outcome.state == "succeeded", outcome
        assert outcome.result is not None
        return unpack(outcome.result)

    def kill(self, id: bytes, *, running: bool = False) -> int:
        """Ask to kill an invocation."""
        return self.ask(m.Kill, id, running)

    def submit_many(self, count: int, function: str = "f", **options: Any) -> tuple[list[bytes], int]:
        """Send one `SubmitMany`; its ids and request number. `args` may be a list, one for each."""
        req = self.client.number()
        ids = [self.plane.new_id() for _ in range(count)]
        queue = options.pop("queue", "default")
        keys = options.pop("keys", None) or [""] * count
        call = call_of(function, options)
        items = tuple(
            m.Submit(req, id, queue, msgspec.structs.replace(call, key=key), **options)
            for id, key in zip(ids, keys, strict=True)
        )
        self.answers[req] = []
        self.client.ask(m.SubmitMany(req, items), self.answers[req].append)
        return ids, req

    def follow(self, id: bytes, since: int = 0, credit: int = 1_000_000) -> int:
        """Open a stream; see `frames` and `end`."""
        req = self.ask(m.Follow, id, since, credit)
        self._since[req] = since
        return req

    def follow_topic(self, name: str, since: int = 0, credit: int = 1_000_000) -> int:
        """Open a topic's stream."""
        req = self.ask(m.FollowTopic, name, since, credit)
        self._since[req] = since
        return req

    def post(self, name: str, value: Any) -> int:
        """Post one value to a topic; the answer is its sequence number."""
        return self.ask(m.Post, name, self.plane.clock.wall, pack(value))

    def frames(self, req: int) -> list[tuple[int, int, Any]]:
        """What a stream has given: sequence number, attempt and value of each frame."""
        self.plane.settle()
        return self.arrived(req)

    def arrived(self, req: int) -> list[tuple[int, int, Any]]:
        """The same without settling: what has come so far."""
        found: list[tuple[int, int, Any]] = []
        for chunk in self.answers[req]:
            if isinstance(chunk, m.Chunk):
                values = unpack_frames(chunk.data)[1]
                found += [(chunk.seq + n, chunk.attempt, value) for n, value in enumerate(values)]
        return [frame for frame in found if frame[0] >= self._since.get(req, 0)]

    def end(self, req: int) -> Any:
        """What ended a stream: `StreamEnd`, `StreamGap` or a `Refusal`; None while it is open."""
        self.plane.settle()
        last = self.answers[req][-1] if self.answers[req] else None
        return None if isinstance(last, m.Chunk) else last

    def consume(self, req: int, frames: int) -> None:
        """Give a stream more credit."""
        self.client.consumed(req, frames)

    def close(self, req: int, id: bytes = b"") -> None:
        """Done with a stream, or nobody waits for an answer any more."""
        self.client.close_stream(req, id)
        self.client.drop(req, id)


class HandWorker:
    """A worker whose bodies the test plays.

    Attributes:
        jobs: begun and not ended, by invocation id.
        started: ids in the order their bodies began, an id once for each attempt.
        cancelled: id and reason of each body that was told to stop.
        unknown: names of functions this worker can't find.
        received: every message from the head, in order.
        quiet: how often the head said that nothing is left.
        dismissed: why it was removed, if it was.
        link: this end; `head_link` the head's end of the same.
    """

    def __init__(
        self,
        plane: HandPlane,
        link: FaultyLink,
        head_link: FaultyLink,
        hello: dict[str, Any],
        namespace: str = "default",
    ) -> None:
        self.plane, self.link, self.head_link = plane, link, head_link
        self._namespace = namespace
        self.jobs: dict[bytes, Job] = {}
        self.started: list[bytes] = []
        self.cancelled: list[tuple[bytes, str]] = []
        self.received: list[Any] = []
        self.unknown: set[str] = set(hello.pop("unknown", ()))
        self.quiet = 0
        self.dismissed: list[str] = []
        fields: dict[str, Any] = {
            "worker": plane.new_id(),
            "name": "hand",
            "host": "here",
            "pid": 1,
            "queues": (),
            "follow_all": not hello.get("queues"),
            "slots": 1,
        } | hello
        self.worker = Worker(
            m.Hello(**fields),
            link,
            resolve=self._resolve,
            timer=plane.clock.later,
            now=lambda: plane.clock.now,
            payload_limit=1 << 24,
            quiet=self._quiet,
            dismissed=self.dismissed.append,
        )
        self.worker.runner = self
        self.worker.notes = Notebook(
            self.worker.scribe, lambda call: plane.clock.later(0.0, call), lambda: plane.clock.wall
        )
        self.acks: dict[bytes, int] = {}
        self._listen()
        self.worker.register()

    # its link

    def cut(self) -> None:
        """Its link breaks, what was on its way is lost, and both ends see it."""
        self.link.cut()

    def relink(self) -> None:
        """It has a new link, whether or not the head has seen the end of the old one; the old one is
        closed once the new one has been used."""
        old = self.link
        old.receive, old.closed = lambda message: None, lambda: None
        self.link, self.head_link = self.plane.connect(self._namespace)
        self._listen()
        self.worker.relinked(self.link)

    def _listen(self) -> None:
        self.link.receive = self._receive
        if self.worker.hello.leased:
            self.link.closed = self.worker.unlinked

    def beat(self) -> bool:
        """Its process is heard of, on a link of its own; whether the head knows it."""
        known: list[Any] = []
        theirs, _ = self.plane.connect(self._namespace)
        theirs.receive = known.append
        theirs.send(m.Beat(self.worker.hello.worker))
        theirs.close()
        return bool(known[0].known)

    def die(self, reason: str) -> None:
        """Whoever watches its process says that it has ended."""
        theirs, _ = self.plane.connect(self._namespace)
        theirs.send(m.Died(self.worker.hello.worker, reason))
        theirs.close()
        self.plane.settle()

    # its bodies

    def finish(self, id: bytes, value: Any = None) -> None:
        """The body returns."""
        job = self.jobs.pop(id)
        self.worker.ended(job, job.succeeded(value, self._seconds(job)))
        self.plane.settle()

    def fail(self, id: bytes, error: BaseException) -> None:
        """The body raises."""
        job = self.jobs.pop(id)
        self.worker.ended(job, job.failed(error, self._seconds(job)))
        self.plane.settle()

    def stop(self, id: bytes) -> None:
        """A cancelled body ends by its cancel."""
        job = self.jobs.pop(id)
        if job.why == "drain":
            self.worker.ended(job, GaveBack(job.id, job.attempt, "drained", begun=True))
        else:
            move = "expire" if job.why == "timeout" else "kill"
            self.worker.ended(job, job.stopped(move, self._seconds(job), job.why))
        self.plane.settle()

    def give(self, id: bytes, *values: Any) -> None:
        """The body yields, all in one chunk."""
        job = self.jobs[id]
        data = pack_frames([self.plane.clock.wall] * len(values), list(values))
        self.worker.frames(job, len(values), data)

    def say(self, id: bytes, *texts: str) -> None:
        """The body logs lines."""
        running = self.jobs[id].running
        for text in texts:
            running.notes.line(running, "log", "info", text)

    def come(self, id: bytes, done: float, total: float | None = None) -> None:
        """The body says how far it is."""
        running = self.jobs[id].running
        running.notes.progress(running, done, total, "")

    # the runner's part

    def start(self, job: Job) -> None:
        """A body begins."""
        self.worker.began(job)
        self.jobs[job.id] = job
        self.started.append(job.id)

    def cancel(self, job: Job) -> None:
        """A body is told to stop; the test decides what it does. A leased worker's body that nobody
        wants any more ends by itself."""
        self.cancelled.append((job.id, job.why))
        if job.why == "stale" and self.worker.hello.leased:
            if self.jobs.get(job.id) is job:
                del self.jobs[job.id]
            self.worker.ended(job, job.stopped("kill", self._seconds(job), job.why))

    def acked(self, job: Job) -> None:
        """Frames were stored."""
        self.acks[job.id] = job.acked

    def _receive(self, message: Any) -> None:
        self.received.append(message)
        self.worker.receive(message)

    def _quiet(self) -> None:
        self.quiet += 1

    def _seconds(self, job: Job) -> float:
        return self.plane.clock.now - job.started

    def _resolve(self, grant: m.Grant) -> HandBody:
        options = grant.call.options
        if options.function.name in self.unknown:
            raise Unresolved(f"no {options.function.name} here")
        return HandBody(options.kind)


class HandBody:
    """What a hand-driven worker finds for every function."""

    types: tuple[Any, ...] = ()

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def fn(self, *args: Any, **kwargs: Any) -> Any:
        """Never called: the test plays it."""
        raise AssertionError("the test plays this body")

    def wants_retry(self, error: BaseException) -> bool:
        """Every Exception."""
        return isinstance(error, Exception)


def _expected(error: BaseException) -> None:
    """A plane that a test kills has not failed."""


def call_of(function: str, options: dict[str, Any]) -> Call:
    """A call of a named function; takes what concerns it out of `options`."""
    shared = Options(
        Function(function, f"hand:{function}"),
        options.pop("kind", "async"),
        options.pop("timeout", None),
        options.pop("retries", 0),
        options.pop("retry_delay", 1.0),
        options.pop("retry_cap", 300.0),
    )
    args = options.pop("args", None)
    packed = args if isinstance(args, bytes) else pack_call(args or (), {})
    return Call(shared, packed, key=options.pop("key", ""))
