"""A program's client as its session sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakeshore.core.client import Client
from lakeshore.core.credit import Limits
from lakeshore.core.messages import Refusal, Welcome


class ClientParty:
    """Hands links to a client.

    Args:
        learn: called with each welcome.

    Attributes:
        poke: called when a link is wanted and there is none.
    """

    def __init__(self, client: Client, learn: Callable[[Welcome], None]) -> None:
        self._client, self._learn = client, learn
        self.poke: Callable[[], None] = lambda: None
        self.receive = client.receive
        client.wanted = lambda: self.poke()

    def refused(self, why: Refusal) -> None:
        """Who waits is told, who comes later is not."""
        self._client.refuse(why)

    def closed(self, why: Refusal) -> None:
        """There is no way any more."""
        self._client.closed(why)

    @property
    def wants(self) -> bool:
        """Whether anybody waits for an answer."""
        return self._client.wants

    def linked(self, link: Any, welcome: Welcome | None) -> None:
        """Go on over a new link."""
        if welcome is None:
            self._client.relinked(link, None)
        else:
            self._learn(welcome)
            limits = Limits(welcome.requests, welcome.room, welcome.waits)
            self._client.relinked(link, limits)

    def unlinked(self) -> None:
        """Wait for another one."""
        self._client.unlinked()

    def waited(self, before: float) -> None:
        """Refuse what does not wait for ever."""
        self._client.expire(before, "for a minute")
