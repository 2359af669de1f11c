"""Values from users, checked where they come in."""

from __future__ import annotations

import sys
from typing import Any

_LARGEST = sys.float_info.max


def finite(name: str, value: Any) -> float:
    """A finite number, or a ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _LARGEST:
        raise ValueError(f"{name}={value!r}: choose a finite number")
    return float(value)


def sound(what: str, text: str) -> str:
    """Text as it is. Raises ValueError for half a surrogate pair, which no store can keep."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} is {text!r}, which is not valid Unicode text: replace its \\ud800-\\udfff"
        ) from None
    return text
