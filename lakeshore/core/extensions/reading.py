"""From what msgspec read to values."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from msgspec import msgpack

from . import arrays, records
from .leaves import (
    ATOMS,
    DICT,
    FROZENSET,
    MARKS,
    ORDERED,
    RANGE,
    SET,
    SLICE,
    TUPLE,
    Mark,
    class_of,
    read_leaf,
)


def _hook(code: int, data: memoryview) -> object:
    mark = MARKS.get(code)
    if mark is None:
        return read_leaf(code, data)
    next(marks_seen)
    return mark


# One decoder serves all threads. Its hook draws a number for each mark, so a reader that draws one before
# and one after knows whether there was any; numbers drawn by others only cost it a needless look.
marks_seen = count()
decode: Callable[[bytes], Any] = msgpack.Decoder(ext_hook=_hook).decode
decode_frames: Callable[[bytes], tuple[list[float], Any]] = msgpack.Decoder(
    tuple[list[float], list[Any]], ext_hook=_hook
).decode

_DEEP = frozenset({list, dict, Mark})


def built(value: Any, classes: records.Classes) -> Any:
    """Replace marked lists by what they stand for, from the inside out."""
    kind = class_of(value)
    if kind is list:
        mark = value.pop(0) if value and type(value[0]) is Mark else None
        if not _DEEP.isdisjoint(map(type, value)):
            for i, item in enumerate(value):
                if type(item) in _DEEP:
                    value[i] = built(item, classes)
        return value if mark is None else _make(mark, value, classes)
    if kind is dict:
        if not ATOMS.issuperset(map(type, value)):
            raise ValueError("a map with keys that are not plain")
        if not _DEEP.isdisjoint(map(type, value.values())):
            for key, item in value.items():
                if type(item) in _DEEP:
                    value[key] = built(item, classes)
        return value
    if kind is Mark:
        raise ValueError("a mark that heads nothing")
    return value


def _make(mark: Mark, items: list[Any], classes: records.Classes) -> object:
    make = _CONTAINERS.get(mark)
    if make is not None:
        return make(items)
    read = arrays.READERS.get(mark)
    return read(items) if read is not None else records.build(mark, items, classes)


def _pairs(items: list[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(items[::2], items[1::2], strict=True)


def _span(kind: type[range] | type[slice], items: list[Any]) -> object:
    (fields,) = items
    return kind(fields["start"], fields["stop"], fields["step"])


_CONTAINERS: dict[Mark, Callable[[list[Any]], object]] = {
    TUPLE: tuple,
    SET: set,
    FROZENSET: frozenset,
    DICT: lambda items: dict(_pairs(items)),
    ORDERED: lambda items: OrderedDict(_pairs(items)),
    RANGE: lambda items: _span(range, items),
    SLICE: lambda items: _span(slice, items),
}
