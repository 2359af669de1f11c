"""From values to what msgspec packs right, and what to say of a value that can't travel."""

from __future__ import annotations

import reprlib
from collections import OrderedDict
from typing import Any, NoReturn

from . import arrays, records
from .leaves import (
    ATOMS,
    DICT,
    FROZENSET,
    LEAVES,
    ORDERED,
    RANGE,
    SET,
    SLICE,
    TUPLE,
    CannotTravel,
    Mark,
    class_of,
    module_of,
    name_of,
)

_LEVELS = 200  # how deep values may nest
_LONGEST_PATH = 200  # characters
_WRAPPED: dict[type, Mark] = {tuple: TUPLE, set: SET, frozenset: FROZENSET}


def ready(value: Any, depth: int, sure: frozenset[type]) -> object:
    """The form that msgspec encodes right; `value` itself where it is that already.

    One frame of the stack per level, and nothing is noted on the way down: an error gathers its path
    while it rises. `sure` are the types msgspec is trusted with: all atoms at first, for it raises at
    the odd ints and strings, and only the unproblematic ones when it did.
    """
    kind = class_of(value)
    if kind in sure:
        return value
    leaf = LEAVES.get(kind)
    if leaf is not None:
        return leaf(value)
    if depth == _LEVELS:
        raise CannotTravel(
            f"is nested deeper than {_LEVELS} levels: pass it flatter, or as a file by its key"
        )
    out: list[Any]
    if kind is list or kind in _WRAPPED:
        start = 0 if kind is list else 1
        head = [] if kind is list else [_WRAPPED[kind].ext]
        if sure.issuperset(map(type, value)):
            return [*head, *value] if start else value
        out = head
        try:
            for item in value:
                out.append(ready(item, depth + 1, sure))
        except CannotTravel as error:
            ordered = kind is list or kind is tuple
            error.under(value, f"[{len(out) - start}]" if ordered else "{an element}")
            raise
        return out
    if kind is dict and _plain_keys(value, sure):
        if sure.issuperset(map(type, value.values())):
            return value
        return ready_fields(value, depth, sure, attributes=False)
    if kind is dict or kind is OrderedDict:
        out = [DICT.ext if kind is dict else ORDERED.ext]
        for key, item in value.items():
            step = "{a key}"
            try:
                out.append(ready(key, depth + 1, sure))
                step = _key_step(key)
                out.append(ready(item, depth + 1, sure))
            except CannotTravel as error:
                error.under(value, step)
                raise
        return out
    if kind is range or kind is slice:
        fields = {"start": value.start, "stop": value.stop, "step": value.step}
        return [RANGE.ext if kind is range else SLICE.ext, ready_fields(fields, depth, sure, holder=value)]
    shape = records.shape_of(value, kind)
    if shape is not None:
        mark, name, fields = shape
        return [mark.ext, name, ready_fields(fields, depth, sure, holder=value)]
    array = arrays.write(value, kind)
    if array is None:
        raise CannotTravel(_hint(kind))
    return array


def ready_fields(
    fields: dict[Any, Any],
    depth: int,
    sure: frozenset[type],
    *,
    attributes: bool = True,
    holder: object = None,
) -> dict[Any, object]:
    out: dict[Any, object] = {}
    name: Any = None
    try:
        for name, item in fields.items():
            out[name] = ready(item, depth + 1, sure)
    except CannotTravel as error:
        error.under(fields if holder is None else holder, f".{name}" if attributes else _key_step(name))
        raise
    return out


def _plain_keys(value: dict[Any, Any], sure: frozenset[type]) -> bool:
    """Whether msgpack's own map takes the keys as they are."""
    if sure.issuperset(map(type, value)):
        return True
    return ATOMS.issuperset(map(type, value)) and all(LEAVES[type(key)](key) is key for key in value)


def _key_step(key: object) -> str:
    if type(key) in ATOMS:
        return f"[{reprlib.repr(key)}]"
    return f"[a {name_of(type(key))}]"


_OTHERWISE = "pass plain data instead (numbers, text, lists, dicts, a dataclass), or a path or key to it"
_HINTS = {
    "function": "pass its name, or data it can be made from",
    "builtin_function_or_method": "pass its name, or data it can be made from",
    "method": "pass its name and what it needs as data",
    "type": "pass its name as text",
    "module": "pass its name as text",
    "generator": "pass list(x), or make the body itself a generator",
    "coroutine": "await it and pass its result",
    "memoryview": "pass bytes(x)",
    "deque": "pass list(x)",
    "array": "pass list(x) or a NumPy array",
    "socket": "pass a path, a key or plain data, and open the connection in the body",
    "TextIOWrapper": "pass its path, and open it in the body",
    "BufferedReader": "pass its path, and open it in the body",
    "BufferedWriter": "pass its path, and open it in the body",
    "BytesIO": "pass x.getvalue()",
    "StringIO": "pass x.getvalue()",
}


def _hint(kind: type) -> str:
    name = name_of(kind)
    article = "an" if name[:1].lower() in "aeio" else "a"
    hint = _HINTS.get(name, _OTHERWISE)
    if any(module_of(base).startswith("pydantic.") for base in kind.__mro__):
        hint = "pass x.model_dump(), or make it a dataclass"
    for base in (str, bytes, bytearray, bool, int, float, complex, dict, list, tuple, set, frozenset):
        if issubclass(kind, base):
            hint = f"it would not come back as one; pass {base.__name__}(x)"
            break
    return f"is {article} {name}, which can't travel: {hint}"


def refuse(error: CannotTravel | RecursionError, path: str) -> NoReturn:
    if not isinstance(error, CannotTravel):
        raise TypeError(
            f"{path} is nested too deep for the stack that is left here: pass it flatter"
        ) from None
    full = path + "".join(reversed(error.steps)) or "the value"
    if len(full) > _LONGEST_PATH:
        half = _LONGEST_PATH // 2
        full = f"{full[:half]}…{full[-half:]}"
    why = error.why
    if len(set(error.holders)) < len(error.holders):
        why = "is inside itself, so it never ends: pass it without the cycle"
    raise TypeError(f"{full} {why}") from error.__cause__
