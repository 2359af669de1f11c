"""What a process has of one plane: the plane itself, or the way to where it is."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.client import Client
from lakeshore.core.errors import PlaneClosed
from lakeshore.core.fresh import new_id
from lakeshore.core.messages import Knock, Refusal, Welcome
from lakeshore.core.plane import Plane
from lakeshore.transports.memory import memory_pair, thread_pair

from .address import MEMORY
from .connection import Connection
from .hosts import gone, retire
from .knocking import knock
from .options import HostOptions
from .party import ClientParty
from .residence import Residence
from .session import Here, Session, There
from .submitting import Submitter
from .udf import UDF

if TYPE_CHECKING:
    from .thread import ThreadHost

T = TypeVar("T")
log = logging.getLogger("lakeshore")

DRAINING = 40.0  # seconds that attached workers may take to end


class Attached(Protocol):
    """A worker that is to end before its plane does."""

    def drain(self) -> None:
        """Take nothing more, and end. Called on the plane's loop."""
        ...


class Host:
    """One plane as this process has it, and who uses it here. Lives on one loop; `backend.post` reaches
    it from anywhere.

    Args:
        address: ":memory:", an absolute path, or the URL of a head.
        served: the plane is opened by `lakeshore serve`.
        auto_create: make queues on first use.

    Attributes:
        plane: the plane, where this process hosts it.
        closed: takes no new users, and ends or has ended.
        owner: the thread it lives on, where that is its own.
        on_failure: is to close it, on its loop.
        on_moved: called when another process has taken the plane over from this one.
        moved: whether one has.
    """

    def __init__(
        self, address: str, options: HostOptions, *, served: bool = False, auto_create: bool = True
    ) -> None:
        self.address, self.options = address, options
        self.durable = address != MEMORY
        self.pid = os.getpid()
        # bodies submitted here, by local name; kept alive by the `Options` of their invocations
        self.known: WeakValueDictionary[str, UDF[..., Any]] = WeakValueDictionary()
        self.users = 0
        self.closed = False
        self.owner: ThreadHost | None = None
        self.connections: WeakSet[Connection] = WeakSet()
        self._submitter = Submitter(
            durable=self.durable,
            known=self.known,
            wall=time.time,
            payload_limit=options.payload_limit,
        )
        self.backend: Backend
        self.tasks: TaskGroup
        self.thread = 0
        self._residence: Residence | None = None
        if "://" not in address:
            self._residence = Residence(address, options, served=served, auto_create=auto_create)
            self._residence.failed = self._failed
            self._residence.moved = self._moved
        self._sessions: dict[Session, None] = {}
        self._workers: dict[Attached, None] = {}
        self._empty: Callable[[], None] | None = None
        self._closing = self._over = False
        self.on_failure: Callable[[], object] = lambda: None
        self.on_moved: Callable[[], object] = lambda: None
        self.moved = False

    @property
    def plane(self) -> Plane | None:
        """The plane, where this process hosts it now."""
        return None if self._residence is None else self._residence.plane

    @property
    def hosted(self) -> Plane:
        """The plane, which is here. RuntimeError where it is not."""
        if self.plane is None:
            raise RuntimeError(f"{self.address} is hosted elsewhere")
        return self.plane

    @property
    def failure(self) -> BaseException | None:
        """The bug that ended the plane here."""
        return None if self._residence is None else self._residence.failure

    @property
    def machine(self) -> bytes:
        """The hash of the machine's own token, which opens everything."""
        return b"" if self._residence is None else self._residence.machine

    @machine.setter
    def machine(self, hash: bytes) -> None:
        assert self._residence is not None
        self._residence.machine = hash

    @property
    def movable(self) -> bool:
        """Whether the plane may be elsewhere, now or later."""
        return self.address != MEMORY

    def _failed(self) -> None:
        """A bug ended the plane: it is let go at once, so that its path can be opened anew."""
        retire(self)
        self.on_failure()

    def _moved(self) -> None:
        self.moved = True
        self.on_moved()

    async def open(self, backend: Backend, tasks: TaskGroup) -> None:
        """Open the plane on this loop, or find out who has it. `tasks` outlives its use."""
        self.backend, self.thread, self.tasks = backend, threading.get_ident(), tasks
        if self._residence is not None:
            await self._residence.settle(backend, tasks)

    async def aclose(self, *, patience: float = DRAINING) -> None:
        """Let attached workers end, then close the plane. On the plane's loop."""
        if self._closing:
            return
        self._closing = True
        retire(self)
        try:
            if self._workers:
                empty = self.backend.parker()
                self._empty = lambda: empty.set(None)
                for worker in list(self._workers):
                    worker.drain()
                with anyio.move_on_after(patience):
                    await empty.wait()
            if self._residence is not None:
                await self._residence.aclose()
            why = Refusal(0, "PlaneClosed", "the plane was closed: open it again to go on")
            for session in list(self._sessions):
                session.end(why)
        finally:
            self._over = True
            self.known.clear()
            gone(self.address)

    # clients

    def connect(
        self,
        namespace: str,
        ready: Callable[[Connection | BaseException], None],
        *,
        token: Callable[[], str] = str,
        ca: str | None = None,
        patience: float | None = 5.0,
    ) -> None:
        """Make a program's connection and call `ready` with it, at once where the plane is here, or with
        what is in the way. On the plane's loop."""
        if self._over:
            ready(closed_error())
            return
        id = new_id()
        client = Client(now=self.backend.now, publisher=id if self.movable else b"")
        connection = Connection(client, self.backend, self._submitter)
        party = ClientParty(client, self._learn)
        if not self.movable:
            plane = self.plane
            assert plane is not None
            client.relinked(plane.hop(namespace, client.receive, client.closed), None)
            self.connections.add(connection)
            ready(connection)
            return
        session = Session(
            self.backend,
            party,
            way=lambda: self.way(namespace),
            knock=lambda: knock(id, "client", namespace, token()),
            patience=patience,
            ca=ca,
            eager=self._residence is None,
        )
        party.poke = session.poke
        connection.session = session
        self.connections.add(connection)
        self._sessions[session] = None
        session.when_ready(lambda error: ready(connection if error is None else error))
        if (here := self._here(namespace)) is not None:
            session.begin(here)
        self.tasks.start_soon(self._keep, session)

    async def _keep(self, session: Session) -> None:
        try:
            await session.run()
        finally:
            self._sessions.pop(session, None)

    def _learn(self, welcome: Welcome) -> None:
        """What counts is the host's."""
        self.options.payload_limit = welcome.payload_limit
        self._submitter.payload_limit = welcome.payload_limit

    # ways

    async def way(self, namespace: str) -> Here | There:
        """Where the plane is now. On the plane's loop.

        Raises: Unreachable, StoreLocked, StoreError.
        """
        if self._closing:
            raise closed_error()
        if self._residence is None:
            return There(self.address)
        there = await self._residence.find()
        here = self._here(namespace)
        if here is not None:
            return here
        assert there is not None
        return there

    def _here(self, namespace: str) -> Here | None:
        plane = self.plane
        if plane is None:
            return None
        return Here(lambda receive, ended: plane.hop(namespace, receive, ended))

    async def worker_way(self, namespace: str, backend: Backend) -> Here | There:
        """The same for a worker that runs on `backend`. From that loop."""
        way = await self.on_loop(lambda: self.way(namespace))
        if not isinstance(way, Here):
            return way
        here = backend is self.backend
        plane = self.plane
        if plane is None:
            raise closed_error()
        ours, theirs = memory_pair() if here else thread_pair(self.backend.post, backend.post)

        def link(receive: Callable[[Any], None], ended: Callable[[Refusal], None]) -> Any:
            theirs.receive, theirs.closed = receive, lambda: ended(_why(why))
            return theirs

        why: list[Refusal] = []

        async def attach() -> None:
            def hang_up(reason: Refusal) -> None:
                why.append(reason)
                ours.close()

            peer = plane.attach(ours, namespace, hang_up)
            ours.receive, ours.closed = peer.receive, lambda: plane.detach(peer)

        await self.on_loop(attach)
        return Here(link)

    async def on_loop(self, call: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine on the plane's loop, from a coroutine of any loop. PlaneClosed where it ends."""
        if threading.get_ident() == self.thread:
            return await call()
        backend = current_backend()
        parker = backend.parker()

        def answered(value: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the asking loop has ended
                backend.post(lambda: parker.set((value, error)))

        async def run() -> None:
            try:
                value = await call()
            except Exception as error:
                answered(None, error)
            except BaseException:
                answered(None, closed_error())
                raise
            else:
                answered(value, None)

        def start() -> None:
            if self._over:
                answered(None, closed_error())
            else:
                self.tasks.start_soon(run)

        self.hand(start, lambda: parker.set((None, closed_error())))
        value, error = await parker.wait()
        if error is not None:
            raise error
        return value

    def ended(self) -> None:
        """Its loop runs no more, however that came."""
        self._over = True

    def hand(self, call: Callable[[], None], lost: Callable[[], None]) -> None:
        """Call back on the plane's loop; from any thread. `lost` is called where it ends before that, at
        times beside `call`: a loop that ends drops what was posted to it and says nothing."""
        try:
            self.backend.post(call)
        except RuntimeError:
            lost()
        else:
            if self._over:  # looked at after the post: what came before it still has its turn
                lost()

    async def share(self) -> str:
        """Where processes of this user reach a plane that is in memory, and so here. On the plane's loop.

        Raises: PlaneClosed, CannotListen.
        """
        if self._closing or self._residence is None:
            raise closed_error()
        return self._residence.share()

    # workers

    def attach(self, worker: Attached) -> bool:
        """A worker of this process runs from now on; False where the plane ends. On the plane's loop."""
        if self.closed:
            return False
        self._workers[worker] = None
        return True

    def detach(self, worker: Attached) -> None:
        """It has ended. On the plane's loop."""
        self._workers.pop(worker, None)
        if not self._workers and self._empty is not None:
            self._empty()
            self._empty = None


def _why(reasons: list[Refusal]) -> Refusal:
    return reasons[0] if reasons else Refusal(0, "Superseded", "the plane moved")


def closed_error() -> PlaneClosed:
    """What a verb raises after its plane was closed."""
    return PlaneClosed("this plane was closed: make a new Dispatch to go on")


__all__ = ["DRAINING", "Attached", "Host", "Knock", "closed_error"]
