"""An actor: the only owner of its state, spoken to only with messages, never waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from .engine import Engine

NEVER = float("inf")


class Read(Struct, gc=False):
    """A store's answer, handed to the actor that asked; `then` goes on where the actor parked."""

    then: Callable[[Any], None]
    answer: Any


class Wake(Struct, frozen=True, gc=False):
    """The actor's `due` has come."""


WAKE = Wake()


class Actor:
    """Base of the head's actors.

    A subclass fills `handlers` (message type → method taking message and sender, which validates
    first and then changes; the engine calls it), may give a
    `flush` that puts its rows just before a commit, and sets `due` through `call_at`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.due = NEVER
        self.handlers: dict[type, Callable[[Any, Any], object]] = {Read: self._read}

    def flush(self) -> None:
        """Put the rows of what changed since the last commit began."""

    def call_at(self, when: float) -> None:
        """Ask for a `Wake` no later than `when` (the engine's monotonic seconds)."""
        if when < self.due:
            self.due = when
            self.engine.timer(self, when)

    def deliver(self, message: Any) -> None:
        """As an outlet, an actor gets its effects by mail."""
        self.engine.tell(self, message)

    def _read(self, message: Read, sender: Any) -> None:
        message.then(message.answer)


class Mail:
    """An outlet that puts what was held for a commit into an actor's mail, from `sender`."""

    __slots__ = ("_actor", "_sender")

    def __init__(self, actor: Actor, sender: Any) -> None:
        self._actor, self._sender = actor, sender

    def deliver(self, message: Any) -> None:
        """The commit is done."""
        self._actor.engine.tell(self._actor, message, self._sender)
