"""What users call things: checks of names, and what to say where a name is not known. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from .errors import NotFound

_NAME = re.compile(r"^[a-z0-9][a-z0-9-]*$")
_LONGEST = 200  # characters of a label
_SHOWN = 20  # names listed in a sentence


def check_slug(what: str, name: str) -> str:
    """Return the name of a queue or provider as it is; raise ValueError with the pattern otherwise."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a {what} name is a string, not {type(name).__name__}")
    if not _NAME.fullmatch(name):  # `$` lets a newline pass
        raise ValueError(
            f"{name!r} is not a {what} name: use lower-case letters, digits and hyphens, "
            f"beginning with a letter or digit ({_NAME.pattern})"
        )
    return name


def check_label(what: str, name: str, *, empty: bool = False) -> str:
    """Return a name for people as it is, or raise ValueError."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} is a string, not {type(name).__name__}")
    if not (name or empty) or "\0" in name or len(name) > _LONGEST:
        raise ValueError(f"{name!r} is not {what}: choose {0 if empty else 1} to {_LONGEST} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{what} is {name!r}, which is not valid Unicode text: replace its \\ud800-\\udfff"
        ) from None
    return name


def unknown(what: str, name: str, known: Iterable[str], remedy: str) -> NotFound:
    """There is no such thing: says which names are near, and what makes or shows one."""
    near = difflib.get_close_matches(name, list(known), 3)
    hint = f"did you mean {' or '.join(repr(each) for each in near)}? Else " if near else ""
    return NotFound(f"no {what}: {hint}{remedy}")


def listed(names: Iterable[str]) -> str:
    """Names for a sentence, the first few of many."""
    some = list(names)
    more = f" and {len(some) - _SHOWN} more" if len(some) > _SHOWN else ""
    return ", ".join(some[:_SHOWN]) + more
