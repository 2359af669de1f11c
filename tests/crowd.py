"""Many peers of one head in one virtual time: real sessions, doors and planes, and links without sockets.
The head goes down, comes back, or takes links and says nothing."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from lakeshore.core import door
from lakeshore.core import messages as m
from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.bodies import Job
from lakeshore.core.client import Client
from lakeshore.core.errors import Unreachable
from lakeshore.core.plane import Plane, new_id
from lakeshore.core.rows import Call, Function, Options
from lakeshore.core.values import pack_call
from lakeshore.core.worker import Worker
from lakeshore.sdk import session as session_module
from lakeshore.sdk.knocking import knock
from lakeshore.sdk.party import ClientParty
from lakeshore.sdk.session import Session, There
from lakeshore.store.memory import MemoryStore

LEASE = 30.0
CALL = Call(Options(Function("f", "crowd:f"), "async", None, 0, 1.0, 300.0), pack_call((), {}))


async def until(what: Callable[[], bool]) -> None:
    """Virtual time passes until that is so."""
    for _ in range(100_000):
        if what():
            return
        await anyio.sleep(0.1)
    raise AssertionError("it never was so")


class End:
    """One end of a link whose messages take a turn of the loop."""

    def __init__(self, backend: Backend) -> None:
        self.other: End
        self._soon = backend.soon
        self.open = True
        self._came: deque[Callable[[], None]] = deque()
        self.mute = False  # what comes is kept until `speak`
        self.receive: Callable[[Any], None] = lambda message: None
        self.closed: Callable[[], None] = lambda: None
        self.on_full = self.on_drained = lambda: None
        self.sent: Callable[[Any], None] = lambda message: None
        self.lost_reason, self.peer, self.limit = "", "somewhere:1", 1 << 24

    def send(self, message: Any, /) -> None:
        if self.open:
            self.sent(message)
            other = self.other
            other.take(lambda: other.receive(message))

    def close(self) -> None:
        if self.open:
            self.open = False
            other = self.other
            other.take(other.over)

    def abort(self, reason: str) -> None:
        self.close()

    def over(self) -> None:
        """The other end has closed."""
        if self.open:
            self.open = False
            self.closed()

    def take(self, call: Callable[[], None]) -> None:
        """In order, each in a turn of its own."""
        self._came.append(call)
        if not self.mute:
            self._soon(self._next)

    def speak(self) -> None:
        """What came is looked at from now on."""
        self.mute = False
        for _ in self._came:
            self._soon(self._next)

    def _next(self) -> None:
        if self._came:
            self._came.popleft()()


class Server:
    """A head that can be killed, and come back on the same store.

    Attributes:
        tries: when somebody dialled it.
        early: peers that came back before the time they had been told.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend, self._store = backend, MemoryStore()
        self.plane: Plane | None = None
        self.up = self.mute = False
        self.tries: list[float] = []
        self.hints: Counter[bytes] = Counter()
        self.early = 0
        self._not_before: dict[bytes, float] = {}
        self._links: list[tuple[End, End]] = []

    async def begin(self) -> None:
        """The head listens, and answers."""
        plane = Plane(self._store, self._backend, local=True, lease=LEASE)
        await plane.open()
        plane.let_in(version="1", identity=new_id(), payload_limit=1 << 24)
        self.plane, self.up = plane, True
        waiting, self.mute = self.mute, False
        for _, far in self._links if waiting else ():
            self._seat(far)
            far.speak()

    async def die(self) -> None:
        """Its process is gone, and so are its links."""
        plane, self.plane, self.up = self.plane, None, False
        links, self._links = self._links, []
        for _, far in links:
            far.receive, far.closed = lambda message: None, lambda: None
            far.close()
        if plane is not None:
            await plane.let_go()

    def listen(self) -> None:
        """It takes links, and is too busy to read them."""
        self.up = self.mute = True

    async def dial(self, address: Any, backend: Backend, **options: Any) -> End:
        self.tries.append(backend.now())
        await anyio.lowlevel.checkpoint()
        if not self.up:
            raise Unreachable("nothing listens there")
        near, far = End(backend), End(backend)
        near.other, far.other = far, near
        who: list[bytes] = []

        def knocked(message: Any) -> None:
            if type(message) is m.Knock:
                who.append(message.worker or message.session)
                self.early += backend.now() < self._not_before.get(who[0], 0.0) - 1e-6

        def answered(message: Any) -> None:
            if near.open and type(message) is m.Sorry and message.retry_after is not None:
                self.hints[who[0]] += 1
                self._not_before[who[0]] = backend.now() + message.retry_after

        near.sent, far.sent, far.mute = knocked, answered, self.mute
        self._links.append((near, far))
        if not self.mute:
            self._seat(far)
        return near

    def _seat(self, far: End) -> None:
        assert self.plane is not None
        assert self.plane.reception is not None
        self.plane.reception.came(far, trusted=True)  # pyright: ignore[reportArgumentType]


class _Body:
    kind, types = "async", ()

    def fn(self) -> None: ...

    def wants_retry(self, error: BaseException) -> bool:
        return False


_BODY = _Body()


class Hand:
    """A worker of one slot, whose body never ends."""

    wants = True

    def __init__(self, backend: Backend, number: int) -> None:
        self.id = new_id()
        hello = m.Hello(self.id, f"w{number}", "h", number, (), False, 1, leased=True)
        self.worker = Worker(
            hello,
            self,  # no link yet
            resolve=lambda grant: _BODY,
            timer=backend.later,
            now=backend.now,
            payload_limit=1 << 24,
        )
        self.worker.runner = self
        self.started: list[tuple[bytes, int]] = []
        self.cancelled: list[Job] = []
        self.link: Any = None
        self._registered = False

    def knock(self) -> m.Knock:
        return knock(new_id(), "worker", "", "", self.id)

    # as a link that is not there

    def send(self, message: Any, /) -> None: ...

    def close(self) -> None: ...

    # as a runner

    def start(self, job: Job) -> None:
        self.started.append((job.id, job.attempt))

    def cancel(self, job: Job) -> None:
        self.cancelled.append(job)

    def acked(self, job: Job) -> None: ...

    # as a party

    def linked(self, link: Any, welcome: m.Welcome | None) -> None:
        self.link = link
        if self._registered:
            self.worker.relinked(link)
        else:
            self._registered, self.worker.link = True, link
            self.worker.register()

    def unlinked(self) -> None:
        self.link = None
        self.worker.unlinked()

    def receive(self, message: Any) -> None:
        if type(message) is not m.Beaten:
            self.worker.receive(message)

    def closed(self, why: m.Refusal) -> None:
        raise AssertionError(why)

    def waited(self, before: float) -> None: ...

    def beat(self) -> None:
        if self.link is not None:
            self.link.send(m.Beat(self.id))


class Program:
    """A client that submits, and whose submits are answered."""

    def __init__(self, backend: Backend) -> None:
        self.client = Client(now=backend.now, publisher=new_id())
        self.party = ClientParty(self.client, lambda welcome: None)
        self._session = new_id()
        self.answers: list[Any] = []
        self.submitted: list[bytes] = []

    def knock(self) -> m.Knock:
        return knock(self._session, "client", "", "")

    def submit(self) -> None:
        id = new_id()
        self.submitted.append(id)
        self.client.ask(m.Submit(self.client.number(), id, "default", CALL), self.answers.append)


class Crowd:
    """One head, and everybody who belongs to it."""

    def __init__(self, server: Server, workers: list[Hand], programs: list[Program]) -> None:
        self.server, self.workers, self.programs = server, workers, programs

    @property
    def linked(self) -> int:
        """How many are in."""
        return sum(hand.link is not None for hand in self.workers) + sum(
            program.client.linked for program in self.programs
        )

    async def all_linked(self) -> None:
        """Until everybody is."""
        await until(lambda: self.linked == len(self.workers) + len(self.programs))


@asynccontextmanager
async def crowd(patch: pytest.MonkeyPatch, workers: int, programs: int) -> AsyncIterator[Crowd]:
    """Everybody, linked."""
    backend = current_backend()
    server = Server(backend)
    patch.setattr(session_module, "dial", server.dial)
    patch.setattr(door, "_HELLOS", 1e6)  # who comes in at first is not the story

    async def way() -> There:
        return There("tcp://head:7420")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        await server.begin()
        hands = [Hand(backend, number) for number in range(workers)]
        people = [Program(backend) for _ in range(programs)]
        parties: list[tuple[Any, Any]] = [(hand, hand) for hand in hands]
        parties += [(program.party, program) for program in people]
        for party, peer in parties:
            session = Session(backend, party, way=way, knock=peer.knock, patience=None)
            if isinstance(peer, Program):
                peer.party.poke = session.poke
            tasks.start_soon(session.run)

        async def beat() -> None:
            while True:
                for hand in hands:
                    hand.beat()
                await anyio.sleep(LEASE / 3)

        tasks.start_soon(beat)
        found = Crowd(server, hands, people)
        await found.all_linked()
        yield found
        tasks.cancel_scope.cancel()
