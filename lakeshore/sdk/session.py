"""Keeps a client or a worker linked to its plane, over as many links as that takes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio

from lakeshore.core.backend import Backend
from lakeshore.core.errors import (
    Busy,
    LakeshoreError,
    Refused,
    StoreLocked,
    Unreachable,
    rebuild,
)
from lakeshore.core.framing import message_limit
from lakeshore.core.intake import refusal
from lakeshore.core.messages import Knock, Refusal, Sorry, Welcome
from lakeshore.transports.dialing import dial
from lakeshore.transports.stream import StreamLink

from .waiting import wait

log = logging.getLogger("lakeshore")

FIRST_WAIT, LONGEST_WAIT = 0.1, 10.0  # seconds between tries to reach a head over a network
NEAR_FIRST, NEAR_LONGEST = 0.02, 0.4  # and on this machine
ANSWER = 10.0  # seconds a head may take to say welcome
SILENT = 2.0  # seconds until a silent one is named
OUTAGE = 60.0  # seconds that a call waits through an outage


class There:
    """A plane behind an address.

    Args:
        near: on this machine, in another process.
        holder: who that is, in words.
    """

    __slots__ = ("address", "holder", "near")

    def __init__(self, address: str, *, near: bool = False, holder: str = "") -> None:
        self.address, self.near, self.holder = address, near, holder or address


class Here:
    """A plane in this very process. `link` gives a link to it: who receives, and who is told its end."""

    __slots__ = ("link",)

    def __init__(self, link: Callable[[Callable[[Any], None], Callable[[Refusal], None]], Any]) -> None:
        self.link = link


class Party(Protocol):
    """What is kept linked."""

    def linked(self, link: Any, welcome: Welcome | None) -> None:
        """There is a link; without a welcome the plane is in this very process."""
        ...

    def unlinked(self) -> None:
        """It broke; there may be another."""
        ...

    def receive(self, message: Any) -> None:
        """Take one message."""
        ...

    def refused(self, why: Refusal) -> None:
        """The head has ended on a bug: who waits is told, and another head may come."""
        ...

    def closed(self, why: Refusal) -> None:
        """There will be no other link."""
        ...

    def waited(self, before: float) -> None:
        """There has been no link since then: refuse what does not wait as long."""
        ...

    @property
    def wants(self) -> bool:
        """Whether a link is wanted now."""
        ...


class Session:
    """One party's way to its plane. Lives on one loop.

    Args:
        way: says where the plane is now.
        knock: makes the first message of a link.
        patience: seconds until the first link must be there (0: one try; None: for ever).
        ca: a file with the certificates to trust, for tls.
        eager: look for a new link at once when one breaks, wanted or not.
    """

    def __init__(
        self,
        backend: Backend,
        party: Party,
        *,
        way: Callable[[], Awaitable[Here | There]],
        knock: Callable[[], Knock],
        patience: float | None,
        ca: str | None = None,
        eager: bool = True,
    ) -> None:
        self._backend, self._party, self._way, self._knock = backend, party, way, knock
        self._patience, self._ca, self._eager = patience, ca, eager
        self._ready: list[Callable[[BaseException | None], None]] | None = []
        self._began = backend.now()
        self._link: Any = None
        self._lost: Any = None
        self._poked: Any = None
        self._sorry: Sorry | Refusal | None = None
        self._near = False
        self.address = ""  # where the plane is, unless it is in this process
        self.welcome: Welcome | None = None  # what its head said last
        self._scope = anyio.CancelScope()
        self._trouble = ""
        self._closed = False

    # from outside, on its loop

    def when_ready(self, call: Callable[[BaseException | None], None]) -> None:
        """Have `call` called once with None when the first link is there, or with why there is none."""
        if self._ready is not None:
            self._ready.append(call)
        else:
            call(None)

    def begin(self, here: Here) -> None:
        """The plane is in this very process: link at once, before `run` has its first turn."""
        self._near, self._lost = True, self._backend.parker()
        self._link = here.link(self._party.receive, self._ended)
        self._party.linked(self._link, None)
        self._tell_ready(None)

    def end(self, why: Refusal) -> None:
        """There will be no link any more."""
        if not self._closed:
            self.close()
            self._tell_ready(rebuild(why.kind, why.message, why.details))
            self._party.closed(why)

    @property
    def linked(self) -> bool:
        """Whether there is a link now."""
        return self._link is not None

    def poke(self) -> None:
        """A link is wanted at once."""
        poked, self._poked = self._poked, None
        if poked is not None:
            poked.set(None)

    def close(self) -> None:
        """No link is wanted any more."""
        if not self._closed:
            self._closed = True
            if self._link is not None:
                self._link.close()
            self._drop_link()
            self._scope.cancel()

    async def aclose(self) -> None:
        """The same, and wait until what was sent has left."""
        link = self._link
        self.close()
        if isinstance(link, StreamLink):
            await link.aclose()

    def _drop_link(self) -> None:
        self._link = None
        lost, self._lost = self._lost, None
        if lost is not None:
            lost.set(None)

    # its task

    async def run(self) -> None:
        """Keep the party linked until `close`, or until there is no way any more."""
        with self._scope:
            await self._run()

    async def _run(self) -> None:
        tries = 0
        while not self._closed:
            hint, began = None, self._backend.now()
            try:
                if self._lost is None:
                    await self._connect()
            except (StoreLocked, Unreachable, Busy, OSError) as error:
                if self._final(error):
                    return
                hint = getattr(error, "retry_after", None)
            except Exception as error:
                self._end(error)
                return
            else:
                tries = 0
                await self._stay()
                began = self._backend.now()
                if self._closed or self._dismissed():
                    return
                hint = self._sorry.retry_after if isinstance(self._sorry, Sorry) else None
                self._sorry = None
                self._party.unlinked()
                if not (self._eager or self._party.wants):
                    await self._pause(None)
                    continue
                if hint is None and self._near:
                    continue  # whoever is first goes on at once
            await self._pause(self._wait(tries, hint, self._backend.now() - began))
            tries += 1
            self._party.waited(self._backend.now() - OUTAGE)

    async def _connect(self) -> None:
        way = await self._way()
        self._sorry, welcome = None, None
        self._near = isinstance(way, Here) or way.near
        lost = self._backend.parker()
        if isinstance(way, Here):
            link = way.link(self._party.receive, self._ended)
            self._link, self._lost = link, lost
        else:
            self.address = way.address
            link = await dial(way.address, self._backend, ca=self._ca, timeout=ANSWER)
            self._link, self._lost = link, lost
            try:
                welcome = await self._greet(link, way)
                link.limit = message_limit(welcome.payload_limit)
            except BaseException:
                self._link = self._lost = None
                link.abort("it is not wanted any more")
                raise
        if self._closed:
            link.close()
            return
        self.welcome = welcome
        self._party.linked(link, welcome)
        self._trouble = ""
        self._tell_ready(None)

    async def _greet(self, link: Any, way: There) -> Welcome:
        answered = self._backend.parker()

        def first(message: Any) -> None:
            if type(message) is Welcome:  # more may come in the same breath
                link.receive = self._received
            answered.set(message)

        def ended() -> None:
            answered.set(None)
            if self._link is link:
                self._drop_link()

        link.closed, link.receive = ended, first
        link.send(self._knock())
        silent = f"{way.holder} takes connections and says nothing: see whether it is stopped"
        within = self._answer_within()
        naming = self._backend.later(SILENT, lambda: self._say(silent)) if within > SILENT else None
        message = _NOTHING
        try:
            with anyio.move_on_after(within):
                message = await answered.wait()
        finally:
            if naming is not None:
                naming.cancel()
        if type(message) is Welcome:
            return message
        if type(message) is Sorry:
            raise _error_of(message)
        if message is _NOTHING:
            raise Unreachable(silent)
        why = f": {link.lost_reason}" if message is None and link.lost_reason else ""
        raise Unreachable(f"{way.address} does not answer as a Lakeshore head does{why}")

    def _answer_within(self) -> float:
        """Seconds that a head may take to say welcome: who waits for the first link may be less patient."""
        if self._ready is None or self._patience is None:
            return ANSWER
        left = self._began + self._patience - self._backend.now()
        return min(ANSWER, max(SILENT, left))

    def _received(self, message: Any) -> None:
        if message.__class__ is Sorry:
            self._sorry = message
        else:
            self._party.receive(message)

    def _ended(self, why: Refusal) -> None:
        """The plane in this process has ended, or is another process's now."""
        if why.kind != "Superseded":
            self._sorry = why
        self._drop_link()

    async def _stay(self) -> None:
        if self._lost is not None:
            await self._lost.wait()
        self._link = self._lost = None

    def _dismissed(self) -> bool:
        """Whether the head has said goodbye for good."""
        why = self._sorry
        if why is None or (isinstance(why, Sorry) and why.retry_after is not None):
            return False
        if isinstance(why, Sorry) and why.kind == "PlaneFailed":  # somebody will start it again
            self._party.refused(Refusal(0, why.kind, why.message, why.details))
            return False
        self._end(_error_of(why) if isinstance(why, Sorry) else rebuild(why.kind, why.message, why.details))
        return True

    def _final(self, error: BaseException) -> bool:
        """A try has failed; whether that was the last."""
        if self._ready is None:
            self._say(str(error))
            return self._closed
        patience = self._patience
        if patience is not None and self._backend.now() - self._began >= patience:
            self._end(error)
            return True
        if isinstance(error, StoreLocked) and getattr(error, "final", False):
            self._end(error)
            return True
        return False

    def _end(self, error: BaseException) -> None:
        self._closed = True
        if isinstance(error, Refused):
            why = refusal(0, error)
        elif isinstance(error, LakeshoreError):
            why = Refusal(0, "Unreachable", str(error))
        else:
            why = Refusal(0, "Unreachable", f"{type(error).__name__}: {error}")
        if self._ready is None:
            self._party.closed(why)
        else:
            self._tell_ready(error)

    def _tell_ready(self, error: BaseException | None) -> None:
        ready, self._ready = self._ready, None
        for call in ready or ():
            call(error)

    def _say(self, trouble: str) -> None:
        """Say what is wrong, once for each outage and trouble."""
        if trouble != self._trouble:
            self._trouble = trouble
            log.warning("%s; trying again", trouble)

    def _wait(self, tries: int, hint: float | None, took: float) -> float:
        first, longest = (NEAR_FIRST, NEAR_LONGEST) if self._near else (FIRST_WAIT, LONGEST_WAIT)
        seconds = wait(tries, first, longest, took=took)
        if self._ready is not None and self._patience is not None:
            seconds = min(seconds, max(0.0, self._began + self._patience - self._backend.now()))
        return (hint or 0.0) + seconds

    async def _pause(self, seconds: float | None) -> None:
        poked = self._poked = self._backend.parker()
        if self._closed:
            return
        if seconds is None:
            await poked.wait()
        else:
            with anyio.move_on_after(seconds):
                await poked.wait()
        self._poked = None


_NOTHING: Any = object()


def _error_of(why: Sorry) -> Exception:
    if why.retry_after is not None:
        return Busy(why.message, retry_after=why.retry_after)
    return rebuild(why.kind, why.message, why.details)
