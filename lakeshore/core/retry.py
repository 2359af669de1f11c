"""How long to wait before a retry. Pure: the random number is passed in."""

from math import inf


def ceiling(retry: int, *, base: float, cap: float) -> float:
    """Longest wait before a retry; draw the actual wait uniformly below it ("full jitter").

    Args:
        retry: how many retries came before this one, >= 0.
        base: longest wait before the first retry, seconds, >= 0; 0 retries at once.
        cap: longest wait ever, seconds, finite, >= base.

    Returns: seconds, never falling with `retry`: min(cap, base * 2**retry).
    Raises: ValueError unless 0 <= retry and 0 <= base <= cap < infinity.
    Source: M. Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
    """
    if not 0 <= base <= cap < inf:
        raise ValueError(f"base={base}, cap={cap}: choose base at least 0 and cap finite and at least base")
    if retry < 0:
        raise ValueError(f"retry={retry}: the first retry is 0")
    return min(cap, base * 2.0 ** min(retry, 1023))


def delay(retry: int, *, base: float, cap: float, uniform: float) -> float:
    """The wait before a retry, seconds: a uniform draw from 0 to `ceiling`.

    Args:
        retry, base, cap: as for `ceiling`.
        uniform: a random number in [0, 1].

    Raises: ValueError as `ceiling`, and for `uniform` outside [0, 1].
    Source: as `ceiling`; spreading the whole wait does the least work under contention.
    """
    if not 0 <= uniform <= 1:
        raise ValueError(f"uniform={uniform}: pass a random number from 0 to 1")
    return uniform * ceiling(retry, base=base, cap=cap)
