"""What a queue lets in, and how fast. Pure: the time is passed in, in seconds of any one clock."""

import re
from math import inf, ulp
from sys import float_info
from typing import Any, Literal, get_args

from msgspec import Struct

OnFull = Literal["reject", "block"]
Reason = Literal["", "max_depth", "max_bytes", "rate_limit", "size"]

_RATE = re.compile(r"\s*((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(?:/\s*([smh]))?\s*")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


class Admission(Struct, frozen=True):
    """The admission rule of a queue, checked; make one with `admission`. None is no limit.

    Attributes:
        max_depth: most invocations queued at once, delayed ones too, >= 1.
        on_full: whether a submit that finds no room, bytes or rate is refused or waits its turn.
        rate_limit: submits per second in the long run, > 0; one second's worth may come at once.
        deadline_cutoff_s: longest time an invocation may stay claimable, seconds, > 0.
        max_running: most invocations running at once, >= 1.
        max_bytes: most bytes of arguments queued at once, >= 1.
    """

    max_depth: int | None = None
    on_full: OnFull = "reject"
    rate_limit: float | None = None
    deadline_cutoff_s: float | None = None
    max_running: int | None = None
    max_bytes: int | None = None


def admission(
    *,
    max_depth: int | None = None,
    on_full: str = "reject",
    rate_limit: float | str | None = None,
    deadline_cutoff_s: float | None = None,
    max_running: int | None = None,
    max_bytes: int | None = None,
) -> Admission:
    """The checked rule; fields as in `Admission`, `rate_limit` in any spelling of `parse_rate`.

    Raises: ValueError naming the field, what was given and what to give.
    """
    _check_count("max_depth", max_depth, "drain the queue to admit nothing")
    _check_count("max_running", max_running, "pause the queue to run nothing")
    _check_count("max_bytes", max_bytes, "drain the queue to admit nothing")
    if deadline_cutoff_s is not None and not (_is_number(deadline_cutoff_s) and 0 < deadline_cutoff_s < inf):
        raise ValueError(
            f"deadline_cutoff_s={deadline_cutoff_s!r}: give seconds above 0, or null for no cutoff"
        )
    if on_full not in get_args(OnFull):
        raise ValueError(f"on_full={on_full!r}: choose reject or block")
    return Admission(
        max_depth,
        "block" if on_full == "block" else "reject",
        parse_rate(rate_limit),
        None if deadline_cutoff_s is None else float(deadline_cutoff_s),
        max_running,
        max_bytes,
    )


def parse_rate(value: float | str | None) -> float | None:
    """A rate per second.

    Args:
        value: a number per second, or text: "100/s", "30/m", "5/h", "2.5"; None is no limit.

    Raises: ValueError for anything else, and for a rate that is not finite and above 0.
    """
    if value is None:
        return None
    rate = 0.0
    if isinstance(value, str):
        if match := _RATE.fullmatch(value):
            rate = float(match[1]) / _SECONDS[match[2]]
    elif _is_number(value):
        rate = float(value)
    if not 0 < rate < inf:
        raise ValueError(
            f"rate_limit={value!r}: give a number per second above 0, or text such as 100/s, 30/m or 5/h, "
            "or null for no limit"
        )
    return rate


class TokenBucket:
    """Lets `rate` things a second pass in the long run, and `burst` at once after a rest.

    Begins full. A clock that jumps back stops the filling for that one moment and takes nothing.

    Args:
        rate: tokens per second, finite, > 0.
        burst: most tokens kept, finite, >= 1; one second's worth unless given, and at least 1.

    Raises: ValueError for other numbers.
    """

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, *, burst: float | None = None) -> None:
        if not 0 < rate < inf:
            raise ValueError(f"rate={rate}: choose a finite number of tokens per second above 0")
        self._rate, self._burst = rate, max(1.0, rate) if burst is None else float(burst)
        if not 1 <= self._burst < inf:
            raise ValueError(f"burst={burst}: choose a finite number of tokens, at least 1")
        self._tokens, self._at = self._burst, inf

    def take(self, now: float) -> bool:
        """Take a token if one is there at `now`."""
        if self._fill(now) < 1:
            return False
        self._tokens -= 1
        return True

    def wait(self, now: float) -> float:
        """Seconds from `now` until a token is there, 0 where one is.

        `take(now + wait(now))` succeeds: the wait is rounded up to what the clock's floats can tell.
        """
        missing = 1 - self._fill(now)
        if missing <= 0:
            return 0.0
        wait = missing / self._rate
        while self._tokens + (now + wait - now) * self._rate < 1:
            wait += ulp(now + wait)
        return wait

    def give_back(self) -> None:
        """Return a token that was taken and not used."""
        self._tokens = min(self._burst, self._tokens + 1)

    def _fill(self, now: float) -> float:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return self._tokens


def verdict(
    rule: Admission,
    *,
    depth: int,
    reserved: int,
    bytes: int,
    size: int,
    bucket: TokenBucket | None,
    now: float,
) -> Reason:
    """Whether one more submit may come in; if so its token is taken.

    Args:
        depth: invocations queued now.
        reserved: places promised to submitters that waited and have not sent yet.
        bytes: bytes of arguments queued now, promised ones included.
        size: bytes of this submit's arguments.
        bucket: of `rule.rate_limit`, None where there is no such limit.
        now: the bucket's clock, seconds.

    Returns: "" for yes, else the field that stands in the way, or "size" where `size` alone is over
        `max_bytes`: it would wait for ever, so refuse it even where `on_full` is block.
    """
    if rule.max_bytes is not None and size > rule.max_bytes:
        return "size"
    if rule.max_depth is not None and depth + reserved >= rule.max_depth:
        return "max_depth"
    if rule.max_bytes is not None and bytes + size > rule.max_bytes:
        return "max_bytes"
    if bucket is not None and not bucket.take(now):
        return "rate_limit"
    return ""


def _check_count(name: str, value: Any, instead: str) -> None:
    if value is not None and not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        raise ValueError(f"{name}={value!r}: give a whole number from 1, or null for no limit; {instead}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max
