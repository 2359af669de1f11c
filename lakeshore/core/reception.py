"""Where links from other processes come in: a knock is awaited, the door asked, and the guest seated."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from .backend import Backend
from .door import Door, sorry
from .guest import Guest
from .messages import Knock, Sorry
from .ports import LinkEnd

log = logging.getLogger("lakeshore")

_PATIENCE = 10.0  # seconds until a link must have knocked
_MOST_UNKNOWN = 1000  # links that have not knocked yet
_LOOKED = "the other end closed the link"
_SHORT = 16384  # bytes that one who is not let in yet may make us keep


class WireEnd(LinkEnd, Protocol):
    """A link between processes: it may be full, and can be torn down."""

    on_full: Callable[[], None]
    on_drained: Callable[[], None]
    enter: Callable[[], None]
    leave: Callable[[], None]
    flush_later: Callable[[Callable[[], None]], None]
    lost_reason: str
    peer: str

    @property
    def limit(self) -> int:
        """The longest message, bytes."""
        ...

    @limit.setter
    def limit(self, limit: int) -> None: ...

    def abort(self, reason: str) -> None:
        """End at once, without sending what waits."""
        ...


class Turns(Protocol):
    """Whose turn it is: what comes in together is handled together, and what leaves leaves once."""

    def enter(self) -> None:
        """Messages are about to come in."""
        ...

    def leave(self) -> None:
        """They have come."""
        ...

    def flush_later(self, flush: Callable[[], None]) -> None:
        """Call `flush` when they have been handled."""
        ...


class Reception:
    """Seats guests.

    Args:
        door: decides who comes in.
        turns: of the plane; without, each link has its own turns of the loop.
    """

    def __init__(self, door: Door, backend: Backend, turns: Turns | None = None) -> None:
        self._door, self._backend, self._turns = door, backend, turns
        self._unknown: dict[WireEnd, Any] = {}
        self._said: set[str] = set()

    def came(self, link: WireEnd, *, trusted: bool) -> None:
        """A link was accepted. `trusted`: it needs no token."""
        if len(self._unknown) >= _MOST_UNKNOWN:  # the one that has had the most time goes
            oldest = next(iter(self._unknown))
            self._known(oldest)
            oldest.abort("too many have not said who they are")
        limit, link.limit = link.limit, _SHORT
        link.closed = lambda: self._strange(link)
        link.receive = lambda message: self._first(link, message, trusted, limit)
        self._unknown[link] = self._backend.later(_PATIENCE, lambda: self._silent(link))

    def _known(self, link: WireEnd) -> None:
        timer = self._unknown.pop(link, None)
        if timer is not None:
            timer.cancel()

    def _strange(self, link: WireEnd) -> None:
        """It was lost before it knocked: who only looks whether the port is open is not worth a word."""
        self._known(link)
        if link.lost_reason and link.lost_reason != _LOOKED:
            host = link.peer.rpartition(":")[0]
            self._say(f"strange {host}", "%s was let go: %s", link.peer, link.lost_reason)

    def _silent(self, link: WireEnd) -> None:
        self._known(link)
        link.abort(f"it said nothing for {_PATIENCE:g} s")

    def _first(self, link: WireEnd, message: Any, trusted: bool, limit: int) -> None:
        self._known(link)

        def hang_up(why: Sorry) -> None:
            if why.kind == "BadRequest":
                self._say_of(message, why.kind, why.message)
            link.send(why)
            link.close()

        link.receive = link.closed = _deaf
        if type(message) is not Knock:
            hang_up(Sorry("Forbidden", "the first message on a link is a Knock"))
            return
        try:
            welcome, guest = self._door.knock(message, link, hang_up, trusted=trusted)
        except Exception as error:
            self._say_of(message, type(error).__name__, f"turned away: {error}")
            hang_up(sorry(error))
            return
        link.limit = limit
        link.on_full, link.on_drained = guest.hold, guest.go_on
        if (turns := self._turns) is not None:
            link.enter, link.leave, link.flush_later = turns.enter, turns.leave, turns.flush_later
        link.receive = self._receiver(guest)
        link.closed = lambda: self._door.left(guest, hang_up)
        link.send(welcome)

    def _receiver(self, guest: Guest) -> Callable[[Any], None]:
        receive, door = guest.receive, self._door

        def received(message: Any) -> None:
            if door.leaving:
                return  # it is sent again when the other end comes back
            try:
                receive(message)
            except Exception as error:
                log.exception("a bug in Lakeshore met a message from outside, whose link is cut")
                self._door.cut(guest, f"a bug in Lakeshore met it, {type(error).__name__}: {error}")

        return received

    def _say_of(self, knock: Knock, kind: str, what: str) -> None:
        host = knock.host or "?"
        self._say(
            f"{kind} {host} {knock.purpose}", "a %s of %s (pid %d): %s", knock.purpose, host, knock.pid, what
        )

    def _say(self, about: str, text: str, *fields: object) -> None:
        """Say so once for each kind and place: what comes back every second would fill the log."""
        if about not in self._said:
            if len(self._said) >= _MOST_UNKNOWN:
                self._said.clear()
            self._said.add(about)
            log.warning(text, *fields)


def _deaf(*message: Any) -> None:
    """Its link is about to end."""
