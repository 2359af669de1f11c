"""A body as a worker runs it, and the jobs made of it. Pure: how a body ended, as a message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from .errors import PayloadTooLarge, Retry
from .failures import describe
from .messages import Ended, Grant
from .running import Running
from .values import pack

KINDS = ("sync", "generator", "async", "async_generator")
WINDOW_FRAMES, WINDOW_BYTES = 1024, 4 << 20  # how far a generator may run ahead of the store
ON_LOOP = frozenset({"async", "async_generator"})


class Body(Protocol):
    """What a function's name resolves to."""

    kind: str
    fn: Callable[..., Any]
    types: tuple[Any, ...]  # of its parameters, for values that carry classes

    def wants_retry(self, error: BaseException) -> bool:
        """Whether `retry_on` names this error."""
        ...


class Job:
    """One attempt in a worker: what to run, and whether and why it was asked to stop.

    `why` is empty, "timeout", "kill", "drain" or "stale" (nobody wants its report).
    """

    __slots__ = (
        "acked",
        "ahead",
        "args",
        "attempt",
        "begun",
        "body",
        "done",
        "flight",
        "grant",
        "id",
        "kwargs",
        "limit",
        "running",
        "sent",
        "started",
        "state",
        "timer",
        "why",
    )

    def __init__(
        self,
        grant: Grant,
        body: Body,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        running: Running,
        limit: int,
    ) -> None:
        self.grant, self.body, self.args, self.kwargs = grant, body, args, kwargs
        self.id, self.attempt = grant.id, grant.attempt
        self.running, self.limit = running, limit
        self.started = 0.0
        self.begun = self.done = False
        self.why = ""
        self.sent = self.acked = self.ahead = 0  # frames, frames, bytes
        self.flight: deque[tuple[int, int]] = deque()  # unconfirmed chunks: end and bytes
        self.state: Any = None  # the runner's own
        self.timer: Any = None

    def sending(self, count: int, size: int) -> None:
        """A chunk leaves."""
        self.sent += count
        self.ahead += size
        self.flight.append((self.sent, size))

    def confirmed(self, index: int) -> None:
        """Frames below `index` are stored."""
        flight = self.flight
        while flight and flight[0][0] <= index:
            self.acked, size = flight.popleft()
            self.ahead -= size

    def full(self, buffered: int) -> bool:
        """Whether the body is as far ahead of the store as it may be."""
        return self.sent + buffered - self.acked >= WINDOW_FRAMES or self.ahead >= WINDOW_BYTES

    def succeeded(self, value: object, seconds: float) -> Ended:
        """The body returned."""
        try:
            result = pack(value, path="the result")
            check_size(result, self.limit, "the result")
        except Exception as error:
            return self.failed(error, seconds, retryable=False)
        return Ended(self.id, self.attempt, "succeed", result, seconds=seconds)

    def failed(self, error: BaseException, seconds: float, *, retryable: bool | None = None) -> Ended:
        """The body raised `error`, or what it gave can't travel."""
        after = None
        if isinstance(error, Retry):
            retryable, after = True, error.after
        elif retryable is None:
            retryable = self._wants_retry(error)
        return Ended(
            self.id,
            self.attempt,
            "fail",
            error=describe(error),
            retryable=retryable,
            after=after,
            seconds=seconds,
        )

    def stopped(self, move: str, seconds: float, reason: str) -> Ended:
        """The body was stopped: "expire" or "kill"."""
        return Ended(self.id, self.attempt, move, seconds=seconds, reason=reason)

    def _wants_retry(self, error: BaseException) -> bool:
        try:
            return self.body.wants_retry(error)
        except Exception:  # a predicate of the user's that raises decides nothing
            return False


def check_size(data: bytes, limit: int, what: str) -> None:
    """Raise PayloadTooLarge where packed data is above the plane's limit."""
    if len(data) > limit:
        raise PayloadTooLarge(
            f"{what} is {len(data)} bytes packed, above the payload limit of {limit}: write it to a file "
            "or an object store and pass its path or key, or raise payload_limit"
        )
