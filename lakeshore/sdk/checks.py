"""Values from users, checked where they come in."""

from __future__ import annotations

import sys
from typing import Any

_LARGEST = sys.float_info.max
LONGEST = 1e11  # seconds, 3,000 years: what is longer is a mistake, and breaks dates


def finite(name: str, value: Any) -> float:
    """A finite number, or a ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise ValueError(f"{name}={value!r}: choose a finite number")
    return float(value)


def seconds(name: str, value: Any) -> float:
    """A time span from 0 to `LONGEST`, or a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: pass a number of seconds")
    if not 0 <= value <= LONGEST:
        raise ValueError(f"{name}={value!r}: choose seconds from 0 to {LONGEST:g}")
    return float(value)


def patience(name: str, value: Any) -> float | None:
    """How long to wait: None for no limit, else a number of seconds, finite; what is below 0 is now."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: pass a number of seconds, or None to wait without a limit")
    if not abs(value) <= _LARGEST:
        raise ValueError(
            f"{name}={value!r}: pass a finite number of seconds, or None to wait without a limit"
        )
    return float(value)


def flag(name: str, value: Any) -> bool:
    """True or False, or a TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: pass True or False")
    return value


def whole(name: str, value: Any, least: int, most: int) -> int:
    """An int within bounds, or a TypeError or ValueError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}={value!r}: pass a whole number")
    if not least <= value <= most:
        raise ValueError(f"{name}={value!r}: choose {least} to {most}")
    return value


def sound(what: str, text: str) -> str:
    """Text as it is. Raises ValueError for half a surrogate pair, which no store can keep."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} is {text!r}, which is not valid Unicode text: replace its \\ud800-\\udfff"
        ) from None
    return text
