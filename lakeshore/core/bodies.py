"""A body as a worker runs it, and the jobs made of it. Pure: how a body ended, as a message."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, cast

import msgspec

from .away import AWAY_BYTES, Away
from .errors import PayloadTooLarge, Retry
from .failures import describe
from .messages import Ended, Grant
from .running import Running
from .values import pack

KINDS = ("sync", "generator", "async", "async_generator")
WINDOW_FRAMES, WINDOW_BYTES = 1024, 4 << 20  # how far a generator may run ahead of the store
PICKLES = 256  # pickled bodies that a worker is trusted to have still; it keeps twice as many
RUNNERS = ("", "inline", "process")  # what a body may ask for; empty: as the worker is
ON_LOOP = frozenset({"async", "async_generator"})
_RUNNERS = "lakeshore.runners."


class Body(Protocol):
    """What a function's name resolves to."""

    kind: str
    fn: Callable[..., Any]
    types: tuple[Any, ...]  # of its parameters, for values that carry classes

    def wants_retry(self, error: BaseException) -> bool:
        """Whether `retry_on` names this error."""
        ...


class Absent:
    """A body that is in another process alone."""

    fn: Callable[..., Any]
    types: tuple[Any, ...] = ()

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def wants_retry(self, error: BaseException) -> bool:
        """That process alone knows."""
        return False


class Job:
    """One attempt in a worker: what to run, and whether and why it was asked to stop.

    `why` is empty, "timeout", "kill", "drain" or "stale" (nobody wants its report).
    """

    # what most jobs never change costs none of them anything
    started = 0.0
    begun = done = False
    publishing = False  # its files are being moved to their keys: nothing stops that
    held = ""  # why it is to be stopped once that is done
    away: Away | None = None  # where its arguments are, which it has not got yet
    why = ""
    sent = acked = ahead = 0  # frames, frames, bytes
    _flight: deque[tuple[int, int]] | None = None  # unconfirmed chunks: end and bytes
    refused: BaseException | None = None  # why a yielded value can't travel
    state: Any = None  # the runner's own
    timer: Any = None
    pid = 0  # of the process that its body runs in, where that is not the worker's own

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

    def is_large(self, size: int) -> bool:
        """Whether so many packed bytes go into the storage."""
        return (size > AWAY_BYTES and bool(self.running.storage)) or size > self.limit

    def sending(self, count: int, size: int) -> None:
        """A chunk leaves."""
        self.sent += count
        self.ahead += size
        if self._flight is None:
            self._flight = deque()
        self._flight.append((self.sent, size))

    def confirmed(self, index: int) -> None:
        """Frames below `index` are stored."""
        flight = self._flight
        while flight and flight[0][0] <= index:
            self.acked, size = flight.popleft()
            self.ahead -= size

    def full(self, frames: int = 0, size: int = 0) -> bool:
        """Whether the body is as far ahead of the store as it may be, with so much not sent yet."""
        return self.sent + frames - self.acked >= WINDOW_FRAMES or self.ahead + size >= WINDOW_BYTES

    def succeeded(self, value: object, seconds: float) -> Ended:
        """The body returned."""
        try:
            result = pack(value, path="the result")
            if len(result) > self.limit and not self.running.storage:
                check_size(result, self.limit, "the result")
        except BaseException as error:  # code of the value's own classes runs here
            return self.failed(error, seconds, retryable=False)
        return Ended(self.id, self.attempt, "succeed", result, None, False, None, seconds)

    def failed(self, error: BaseException, seconds: float, *, retryable: bool | None = None) -> Ended:
        """The body raised `error`, or what it gave can't travel."""
        after, failure = None, describe(error, skip_frames=_ours(error))
        if error is self.refused:
            retryable = False
        elif retryable is None:
            try:
                retryable, after = self._asks(error)
            except BaseException as wrong:  # a predicate of the user's that raises decides nothing
                note = f"not retried: retry_on raised {describe(wrong).headline}"
                retryable, failure = False, msgspec.structs.replace(failure, notes=(*failure.notes, note))
        if isinstance(error, Retry) and not self.grant.call.options.retries:
            note = "no retry is allowed: decorate the body with @udf(retries=...)"
            failure = msgspec.structs.replace(failure, notes=(*failure.notes, note))
        return Ended(
            self.id,
            self.attempt,
            "fail",
            error=failure,
            retryable=retryable,
            after=after,
            seconds=seconds,
        )

    def stopped(self, move: str, seconds: float, reason: str) -> Ended:
        """The body was stopped: "expire" or "kill"."""
        return Ended(self.id, self.attempt, move, seconds=seconds, reason=reason)

    def _asks(self, error: BaseException) -> tuple[bool, float | None]:
        """Whether an error is to be retried, and after how many seconds if it says so. A group is
        where all its members are, or where `retry_on` wants the group itself."""
        if isinstance(error, Retry):
            return True, _seconds(getattr(error, "after", None))
        members = members_of(error)
        if members:
            asked = [self._asks(member) for member in members]
            if all(wanted for wanted, _ in asked):
                return True, max((after for _, after in asked if after is not None), default=None)
        return bool(self.body.wants_retry(error)), None


def members_of(error: BaseException) -> tuple[BaseException, ...]:
    """What an exception group holds; nothing for another error."""
    return cast("Any", error).exceptions if isinstance(error, BaseExceptionGroup) else ()


def _seconds(after: Any) -> float | None:
    """What a `Retry` asks for; anything but a number of seconds asks for nothing special."""
    if isinstance(after, int | float) and math.isfinite(after):
        return max(0.0, float(after))
    return None


def _ours(error: BaseException) -> int:
    """How many frames of the runners a traceback begins with: the first shown is the user's own."""
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    count = 0
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(_RUNNERS):
        count, trace = count + 1, trace.tb_next
    return count


def check_size(data: bytes, limit: int, what: str) -> None:
    """Raise PayloadTooLarge where packed data is above the plane's limit."""
    if len(data) > limit:
        raise PayloadTooLarge(
            f"{what} is {len(data)} bytes packed, above the payload limit of {limit}: write it to a file "
            "or an object store and pass its path or key, or raise payload_limit"
        )
