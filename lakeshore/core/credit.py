"""How much a peer may have unanswered at its head: so many requests, so many bytes, so many waits.

Both ends count alike. The sender holds back what has no room; a head cuts the link of one that sends
it anyway.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from .messages import Post, Submit, SubmitMany


class Limits(Struct, frozen=True):
    """What may be unanswered: `requests`, of `bytes` in all (one of any size is always let through),
    and `waits` beside them, for what a plane need not answer soon."""

    requests: int = 4096
    bytes: int = 64 << 20
    waits: int = 65536


def weight(message: Any) -> int:
    """About how many bytes a request takes in the head's memory until it is answered."""
    kind = message.__class__
    if kind is Submit:
        return _weigh(message)
    if kind is SubmitMany:
        return sum(map(_weigh, message.items))
    if kind is Post:
        return 200 + len(message.data)
    return 200


def _weigh(message: Submit) -> int:
    size = 200 + len(message.call.args or b"")
    return size if message.function is None else size + len(message.function.data)


class Meter:
    """Counts what one peer has unanswered, by the numbers of its requests."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.bytes = 0
        self._sizes: dict[int, int] = {}
        self._waits: set[int] = set()

    def __contains__(self, req: int) -> bool:
        return req in self._sizes or req in self._waits

    def fits(self, message: Any) -> bool:
        """Whether one more may be sent."""
        limits = self.limits
        if message.waits:
            return len(self._waits) < limits.waits
        if not self._sizes:
            return True
        return len(self._sizes) < limits.requests and self.bytes + weight(message) <= limits.bytes

    def take(self, message: Any) -> None:
        """Count a request; what is counted already counts once."""
        req = message.req
        if message.waits:
            self._waits.add(req)
        elif req not in self._sizes:
            size = self._sizes[req] = weight(message)
            self.bytes += size

    def park(self, req: int) -> None:
        """A request waits for its turn from now on, without its payload: it counts as a wait, as long as
        there is credit for waits."""
        if req not in self._sizes:
            return
        self.bytes -= self._sizes.pop(req)
        if len(self._waits) < self.limits.waits:
            self._waits.add(req)
        else:
            self._sizes[req] = 0

    def give(self, req: int) -> None:
        """A request was answered, or is not wanted any more."""
        if req in self._sizes:
            self.bytes -= self._sizes.pop(req)
        else:
            self._waits.discard(req)
