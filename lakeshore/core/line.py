"""The way to a worker that outlives its links: what is to leave leaves on the newest one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .messages import Grant, Registered
from .ports import Outlet


class Line:
    """The outlet to a leased worker, over one link after another.

    Effects that wait for a commit when a link is replaced leave on the new one. Without a link, and
    until the worker has been told that it is registered, grants wait; anything else is dropped, as
    it is said again to a worker that comes back.

    Args:
        grants: what the worker was granted, by invocation: queue and attempt.
    """

    __slots__ = ("_grants", "_open", "_send", "_sent", "_waiting", "wire")

    def __init__(self, grants: Mapping[bytes, tuple[Any, int]]) -> None:
        self._grants = grants
        self._sent: dict[bytes, int] = {}  # attempts that have left, by invocation
        self._waiting: list[Grant] = []
        self._send: Callable[[Any], None] | None = None
        self._open = False
        self.wire: Outlet | None = None

    def turn_to(self, wire: Outlet | None) -> None:
        """Leave by another link from now on; None: there is none."""
        self.wire, self._open = wire, False
        self._send = None if wire is None else wire.deliver

    def has_sent(self, id: bytes, attempt: int) -> bool:
        """Whether a grant has left, on whatever link. One that has not still will."""
        return self._sent.get(id) == attempt

    def assume_sent(self, id: bytes, attempt: int) -> None:
        """A grant that an earlier process of the head had sent."""
        self._sent[id] = attempt

    def deliver(self, message: Any) -> None:
        """As an outlet: send, if there is a link."""
        send = self._send
        if type(message) is Grant:
            if send is None or not self._open:
                self._waiting.append(message)
            else:
                self._grant(send, message)
        elif send is not None:
            send(message)
            if type(message) is Registered:
                self._open = True
                waiting, self._waiting = self._waiting, []
                for grant in waiting:
                    self._grant(send, grant)

    def _grant(self, send: Callable[[Any], None], grant: Grant) -> None:
        held = self._grants.get(grant.id)
        if held is None or held[1] != grant.attempt:
            return  # it was taken back before it left
        self._sent[grant.id] = grant.attempt
        if len(self._sent) > 2 * len(self._grants) + 64:
            self._sent = {id: held[1] for id, held in self._grants.items() if self.has_sent(id, held[1])}
        send(grant)
