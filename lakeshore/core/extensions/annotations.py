"""Which classes annotations mention."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import Struct

from .leaves import qualname_of
from .records import Classes, full_name, is_namedtuple


def classes_in(annotations: Iterable[Any]) -> Classes:
    """Every class that annotations mention, and that the fields of those mention, by `module:qualname`."""
    annotations = tuple(annotations)
    try:
        return _classes_in(annotations)
    except TypeError:  # one can't be hashed, such as Annotated[int, []]
        return _classes_in.__wrapped__(annotations)


@lru_cache(maxsize=256)
def _classes_in(annotations: tuple[Any, ...]) -> Classes:
    found: dict[str, type] = {}
    todo, seen = list(annotations), dict[int, Any]()
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item  # kept alive, so that no other takes its id
        if isinstance(item, (list, tuple)):  # as in Callable[[Cfg], None]
            todo.extend(typing.cast("list[Any]", item))
        elif arguments := typing.get_args(item):
            todo.extend((typing.get_origin(item), *arguments))
        elif isinstance(item, type):
            found.setdefault(full_name(item), item)
            found.setdefault(f":{qualname_of(item)}", item)
            todo.extend(_hints(item))
        elif isinstance(item, typing.NewType):
            todo.append(item.__supertype__)
        elif type(item).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12 on
            todo.append(item.__value__)
    return found


def _hints(cls: type[Any]) -> list[Any]:
    known: Any = dataclasses.is_dataclass(cls) or issubclass(cls, Struct) or is_namedtuple(cls)
    if not known:
        return []
    try:
        return list(typing.get_type_hints(cls).values())
    except Exception:  # a name that only exists inside a function
        bases: tuple[type, ...] = cls.__mro__
        return [hint for base in bases for hint in vars(base).get("__annotations__", {}).values()]
