"""Which of the keys that a body wrote it names in what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from lakeshore.core.keys import join, relative

_DEEPEST = 100  # containers inside each other


def strings_in(value: Any, depth: int = 0) -> Iterator[str]:
    """Every string in a value: itself, or in lists, tuples and the values of dicts."""
    if isinstance(value, str):
        yield value
    elif depth < _DEEPEST and isinstance(value, list | tuple | dict):
        container = cast("Any", value)
        for item in container.values() if isinstance(value, dict) else container:
            yield from strings_in(item, depth + 1)


def spelled(prefix: str, text: str) -> str:
    """A key in the one way that `relative` writes it; any other string as it is."""
    try:
        return relative(prefix, join(prefix, text))
    except ValueError:
        return text
