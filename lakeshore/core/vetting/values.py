"""Checks of single values; each gives "" or a sentence that names the field."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, cast

from lakeshore.core.settings import check_name

LARGEST = 1 << 63  # whole numbers that can be stored are below it
HUGE = 1.7976931348623157e308
ID = 16  # bytes
NAME, LABEL, PROGRESS, TEXT = 1000, 200, 300, 1 << 16  # characters

_LONGEST = 1e11  # seconds: three thousand years
_LABELS = 1000
_DATA, _NESTING = 1 << 20, 32  # about how many bytes nested plain data may take, and how deep it may be


def whole(name: str, value: int, least: int = 0, most: int = LARGEST - 1) -> str:
    """A whole number that a store can keep."""
    return "" if least <= value <= most else f"{name} is {value}: send {least} to {most}"


def an_id(name: str, value: bytes) -> str:
    """An id."""
    return "" if len(value) == ID else f"{name} has {len(value)} bytes: an id has {ID}"


def maybe_id(name: str, value: bytes | None) -> str:
    """An id or none."""
    return "" if not value or len(value) == ID else an_id(name, value)


def seconds(name: str, value: float | None, most: float = _LONGEST) -> str:
    """A time span, or none."""
    if value is None or 0 <= value <= most:
        return ""
    return f"{name} is {value}: send seconds from 0 to {most:g}"


def finite(name: str, value: float) -> str:
    """A number with an end."""
    return "" if -HUGE <= value <= HUGE else f"{name} is {value}: send a finite number"


def text(name: str, value: str, most: int = NAME, least: int = 0) -> str:
    """So many characters."""
    size = len(value)
    return "" if least <= size <= most else f"{name} has {size} characters: send {least} to {most}"


def size(name: str, value: bytes, most: int, least: int = 0) -> str:
    """So many bytes."""
    length = len(value)
    return "" if least <= length <= most else f"{name} takes {length} bytes: send {least} to {most}"


def one_of(name: str, value: str, known: Collection[str]) -> str:
    """A word that is known."""
    return "" if value in known else f"{name} is {quoted(value)}: send one of {', '.join(known)}"


def quoted(value: str) -> str:
    """Some text for a sentence."""
    return repr(value if len(value) <= 60 else f"{value[:60]}…")


def sentence(error: BaseException) -> str:
    """What an error says; it may quote what was sent."""
    said = str(error)
    return said if len(said) <= 500 else f"{said[:500]}…"


@lru_cache(maxsize=1024)
def _queue_name(name: str) -> str:
    try:
        check_name(name)
    except ValueError as error:
        return sentence(error)
    return ""


def queue(name: str) -> str:
    """A queue that may be made under this name."""
    return _queue_name(name) if len(name) <= NAME else text("queue", name)


def queue_or_id(name: str | None) -> str:
    """A queue by its name or the text of its id."""
    if name is None or (len(name) == 26 and name.isascii() and name.isalnum()):
        return ""
    return queue(name)


def topic(name: str) -> str:
    """What a topic may be called."""
    return text("a topic's name", name, LABEL, 1) or ("a topic's name holds a NUL" if "\0" in name else "")


def all_of(given: tuple[str, ...], known: Collection[str]) -> str:
    """Some states, all known."""
    if len(given) > 64:
        return f"states are {len(given)}: send each once"
    return next((wrong for state in given if (wrong := one_of("state", state, known))), "")


def plain(name: str, value: Any) -> str:
    """Nested plain data, not too deep and not too large."""
    room = _DATA

    def wrong(value: Any, depth: int) -> str:
        nonlocal room
        room -= 8
        if value is None or isinstance(value, bool | float):
            return ""
        if isinstance(value, int):
            return whole(name, value, -LARGEST)
        if isinstance(value, str | bytes):
            room -= len(value)
        elif not isinstance(value, list | dict):
            return f"{name} holds a {type(value).__name__}: send numbers, text, lists and dicts"
        elif depth == 0:
            return f"{name} is nested more than {_NESTING} deep"
        else:
            parts = cast(Iterable[Any], value)
            if isinstance(value, dict):
                named = cast(dict[Any, Any], value)
                if not all(isinstance(key, str) for key in named):
                    return f"{name} has a key that is no text"
                parts = (part for item in named.items() for part in item)
            for part in parts:
                if found := wrong(part, depth - 1):
                    return found
        return "" if room >= 0 else f"{name} takes more than about {_DATA} bytes"

    return wrong(value, _NESTING)


def labels(name: str, given: dict[str, str]) -> str:
    """A few short texts by name."""
    if len(given) > _LABELS:
        return f"{name} are {len(given)}: send at most {_LABELS}"
    parts = (part for item in given.items() for part in item)
    return next((wrong for part in parts if (wrong := text(name, part, 4 * NAME))), "")


def namespace(name: str) -> str:
    """A namespace, or the token's own."""
    return text("namespace", name, LABEL) or ("a namespace holds a NUL" if "\0" in name else "")
