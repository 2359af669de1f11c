"""One running plane: a head over a store, driven by the event loop that runs here."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any

from .about import about
from .actor import NEVER
from .backend import Backend, Timed
from .client import Client
from .door import Door
from .engine import Engine
from .errors import PlaneClosed, PlaneFailed
from .fresh import new_id
from .head import Head
from .intake import refusal
from .messages import Refusal, Sorry
from .peer import Peer
from .ports import Link, Store
from .reception import Reception

log = logging.getLogger("lakeshore")


def _seeded(seed: int) -> Callable[[], float]:
    return random.Random(seed).random


class Plane:
    """Drives an engine: pumps it when it has mail and when something is due.

    Args:
        store: unopened.
        backend: the loop this runs on; its `serve` must be running.
        failed: called once, on the loop, when a bug has ended the plane.
        superseded: called once, on the loop, when another process has taken the store over.
        unwanted: called on the loop with objects of storages, as place and name, that nothing refers to.
        options: for `Head`.
    """

    def __init__(
        self,
        store: Store,
        backend: Backend,
        *,
        failed: Callable[[], None] = lambda: None,
        superseded: Callable[[], None] = lambda: None,
        unwanted: Callable[[tuple[tuple[str, str], ...]], None] = lambda objects: None,
        **options: Any,
    ) -> None:
        self.store, self.backend, self._on_failure = store, backend, failed
        self._on_superseded = superseded
        self.engine = Engine(
            store,
            monotonic=backend.now,
            wall=time.time,
            uniform=random.random,
            seeded=_seeded,
            new_id=new_id,
            wake=self._wake,
            failed=self._failed,
            superseded=self._superseded,
        )
        self.door: Door | None = None
        self.reception: Reception | None = None
        self.head = Head(self.engine, **options)
        self.failure: BaseException | None = None
        self.engine.unwanted = unwanted
        self.engine.enter, self.engine.leave = self.enter, self.leave
        self._inside = 0  # a link is being read, or a commit lets go of its effects
        self._pumping = self._woken = False
        self._flushes: list[Callable[[], None]] = []
        self._timer: Timed | None = None
        self._armed = NEVER
        self._ends: dict[Peer, Callable[[Refusal], None]] = {}
        self._closing = False
        self._settled: list[Callable[[], None]] = []

    async def open(self) -> None:
        """Open the store and rebuild what it holds. Raises `StoreError`."""
        await self.store.open()
        opened = self.backend.parker()
        try:
            self.head.open(opened.set)
            error = await opened.wait()
            if error is not None:
                raise error
        except BaseException:
            await self.store.aclose()
            raise
        self.head.about = about(self.store, self.backend, self._clients) | self.head.about
        self._pump()

    async def aclose(self) -> None:
        """Store what is waiting to be stored, tell everyone who waits, close the store."""
        self._closing = True
        if self.door is not None:
            self.door.leaving = True  # else a busy plane would never come to an end
        if self.failure is None and not self.engine.idle and self.engine.store_error is None:
            settled = self.backend.parker()
            self._settled.append(lambda: settled.set(None))
            self.engine.watched = True
            self._pump()
            await settled.wait()
        self._hang_up()
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self.store.aclose()
        finally:
            self.head.close()

    async def let_go(self) -> None:
        """Another process has the store: close it here without a word."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            await self.store.aclose()
        finally:
            self.head.close()

    def attach(
        self, link: Link, namespace: str, hang_up: Callable[[Refusal], None] = lambda why: None
    ) -> Peer:
        """Serve the head's end of a link. `hang_up` is called with the reason when the plane ends."""
        peer = self.head.connect(link, namespace)
        if self.failure is not None:
            self.backend.soon(lambda: hang_up(self._why_failed()))
        else:
            self._ends[peer] = hang_up
        return peer

    def detach(self, peer: Peer) -> None:
        """The link of a peer is closed."""
        if self._ends.pop(peer, None) is not None and self.failure is None:
            peer.closed()

    def hop(self, namespace: str, receive: Callable[[Any], None], ended: Callable[[Refusal], None]) -> Link:
        """The end of a link to a client on this very loop, with nothing in between."""
        here: Any = _Hop()
        there: Any = _Hop()
        there.send = receive
        peer = self.attach(there, namespace, ended)
        here.send, here.close = peer.receive, lambda: self.detach(peer)
        return here

    def connect(self, namespace: str) -> Client:
        """A client on this very loop."""
        client = Client()
        client.relinked(self.hop(namespace, client.receive, client.closed), None)
        return client

    def let_in(self, **options: Any) -> Reception:
        """Begin to take links from other processes; `options` are those of `Door`."""
        self.door = Door(self.head, **options)
        self.reception = Reception(self.door, self.backend, self)
        return self.reception

    def _clients(self) -> int:
        """How many are connected that are no workers."""
        guests = self.door.guests if self.door is not None else {}
        return sum(peer.member is None for peer in (*self._ends, *guests))

    # One turn of the loop, not one for each step: while a link is read, or a commit lets go of its effects,
    # nothing is handled, and then all of it; what leaves by links leaves once, after that.

    def enter(self) -> None:
        """Messages are about to come in."""
        self._inside += 1

    def leave(self) -> None:
        """They have come: handle them."""
        self._inside -= 1
        if self._inside or self._pumping:
            return
        if self._woken:
            self._woken = False
            self._pump()
        elif self._flushes:
            self._flush()

    def flush_later(self, flush: Callable[[], None]) -> None:
        """Call `flush` when all that is handled now has been; for links, which have something to send."""
        self._flushes.append(flush)
        if not (self._inside or self._pumping) and len(self._flushes) == 1:
            self.backend.soon(self._flush)

    def _flush(self) -> None:
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            flush()

    def _wake(self) -> None:
        if self._inside:
            self._woken = True
        else:
            self.backend.soon(self._pump)

    def _pump(self) -> None:
        engine = self.engine
        self._pumping = True
        try:
            more = engine.pump()
        except BaseException:  # the engine has called _failed: nobody waits any more
            return
        finally:
            self._pumping = False
            if self._flushes:
                self._flush()
        if more:
            self.backend.soon(self._pump)
            return
        due = engine.due
        if due < self._armed:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = due
            self._timer = self.backend.later(max(0.0, due - self.backend.now()), self._ring)
        if self._settled and (engine.idle or engine.store_error is not None):
            settled, self._settled = self._settled, []
            for call in settled:
                call()

    def _ring(self) -> None:
        self._armed, self._timer = NEVER, None
        self._pump()

    def _failed(self, error: BaseException) -> None:
        self.failure = error
        log.critical("the plane ended on a bug; what was accepted is in its store: %r", error, exc_info=error)
        self._hang_up()
        for call in self._settled:
            call()
        self._on_failure()

    def _superseded(self) -> None:
        place = getattr(self.store, "path", "the store")
        log.warning("another process has taken %s over: this one goes on as its client", place)
        if self.door is not None:
            self.door.close(Sorry("PlaneClosed", "another process hosts this plane now", retry_after=0.0))
        self._on_superseded()
        why = Refusal(0, "Superseded", "another process hosts this plane now")
        ends, self._ends = self._ends, {}
        for hang_up in ends.values():
            hang_up(why)
        for call in self._settled:
            call()

    def _why_failed(self) -> Refusal:
        error = self.failure
        text = f"the plane ended on a bug in Lakeshore, {type(error).__name__}: {error}; open it again"
        return refusal(0, PlaneFailed(text))

    def _hang_up(self) -> None:
        if self.failure is not None:
            why = self._why_failed()
        else:
            why = refusal(0, PlaneClosed("the plane was closed: open it again to go on"))
        if self.door is not None:
            failed = self.failure is not None
            self.door.close(Sorry(why.kind, why.message, retry_after=None if failed else 0.1))
        ends, self._ends = self._ends, {}
        for hang_up in ends.values():
            hang_up(why)


class _Hop:
    """One end of a link that is not there, as both live on one loop: what is sent is handed over at once."""

    __slots__ = ("close", "send")

    def __init__(self) -> None:
        self.send: Callable[[Any], None] = lambda message: None
        self.close: Callable[[], None] = lambda: None
