"""Values of jobs as text and as JSON. JSON has fewer kinds of values: the nearest is taken."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from datetime import date, time, timedelta
from enum import Enum
from typing import Any, cast

import msgspec


def text(value: Any) -> str:
    """A value as people read it: text as it is, all else as Python writes it."""
    return value if isinstance(value, str) else repr(value)


def jsonable(value: Any) -> Any:
    """The nearest value that JSON has.

    Whole numbers keep all digits; NaN and infinities are null; bytes are base64; what is unordered or
    an array is a list; a key is text; a record or a dataclass is an object with its fields.
    """
    match value:
        case Enum():
            return jsonable(value.value)
        case None | bool() | int():
            return value
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case float():
            return value if math.isfinite(value) else None
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            pairs = cast(Mapping[Any, Any], value).items()
            return {_key(key): jsonable(part) for key, part in pairs}
        case list() | tuple() | set() | frozenset() | range():
            return [jsonable(part) for part in cast(Iterable[Any], value)]
        case _:
            return _other(value)


def _key(key: Any) -> str:
    found = jsonable(key)
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()


def _other(value: Any) -> Any:
    plain = getattr(value, "tolist", None)  # arrays, their scalars, tensors
    if plain is not None:
        return jsonable(plain())
    for fields in (getattr(value, "__struct_fields__", None), getattr(value, "__dataclass_fields__", None)):
        if fields is not None:
            return {name: jsonable(getattr(value, name)) for name in fields}
    return text(value) if type(value).__str__ is object.__str__ else str(value)
