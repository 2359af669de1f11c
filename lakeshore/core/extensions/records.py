"""Dataclasses, Enums, Structs and named tuples: by name and fields, built only where their class is known.

Data never imports anything: it names `module:qualname`, which is looked up among the classes the caller
named and then among modules that are already imported. No `__init__` runs; a Struct can't be made without
its `__post_init__`, so that runs, and the fields win over what it did.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from enum import Enum, Flag
from functools import cached_property
from types import MemberDescriptorType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.structs import force_setattr

from .leaves import (
    ATOMS,
    DATACLASS,
    ENUM,
    NAMEDTUPLE,
    STRUCT,
    CannotTravel,
    Mark,
    class_of,
    module_of,
    name_of,
    qualname_of,
)

_TEXT = frozenset({str})
_MAINS = ("__main__", "__mp_main__")
_HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, not built in
_MISSING: Any = dataclasses.MISSING
KINDS = {"dataclass": DATACLASS, "enum": ENUM, "struct": STRUCT, "namedtuple": NAMEDTUPLE}
_KIND_OF = {mark.code: kind for kind, mark in KINDS.items()}

Classes = Mapping[str, type]


class Record:
    """A dataclass, Enum, Struct or named tuple whose class this process does not know.

    Its fields are attributes, and items too, in case a name is taken: `record.lr == record["lr"]`.
    `_type` is the class as `module:qualname`, `_fields` a dict of the fields, `_kind` one of
    "dataclass", "enum" (fields `name` and `value`), "struct", "namedtuple". Packed again, it becomes
    what it was. To get the real class, import it first, or name it: `result(..., type=Cfg)`.
    """

    __slots__ = ("_fields", "_kind", "_type")
    _type: str
    _fields: dict[str, Any]
    _kind: str

    def __init__(self, type_name: str, fields: dict[str, Any], kind: str = "dataclass") -> None:
        if kind not in KINDS:
            raise ValueError(f"kind={kind!r}: choose one of {', '.join(KINDS)}")
        for name, value in (("_type", type_name), ("_fields", fields), ("_kind", kind)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name not in Record.__slots__ and name in self._fields:
            return self._fields[name]
        raise AttributeError(f"a Record of {self._type} has no field {name!r}", name=name)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Record can't be changed: {name} stays as it is", name=name)

    def __eq__(self, other: object) -> bool:
        if type(other) is not Record:
            return NotImplemented
        return (self._type, self._kind, self._fields) == (other._type, other._kind, other._fields)

    def __hash__(self) -> int:  # usable as a key whatever its fields are, for it may stand for one
        return hash((self._type, *((name, _hash(value)) for name, value in sorted(self._fields.items()))))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Record, (self._type, self._fields, self._kind))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._fields.items())
        return f"Record({self._type}: {fields})"


def _hash(value: object) -> int:
    try:
        return hash(value)
    except TypeError:
        return 0


def full_name(kind: type) -> str:
    """`module:qualname`, as it travels."""
    return f"{module_of(kind)}:{qualname_of(kind)}"


class _Plan(Struct, frozen=True):
    """How instances of one dataclass are taken apart and put together."""

    name: str
    fields: tuple[str, ...]
    slots: dict[str, Any]
    skip: frozenset[str]  # cached properties: they are computed again
    free: bool  # has a __dict__


_PLANS: WeakKeyDictionary[type, _Plan] = WeakKeyDictionary()


def _plan(kind: type) -> _Plan:
    plan = _PLANS.get(kind)
    if plan is None:
        slots: dict[str, Any] = {}
        skip: set[str] = set()
        for base in reversed(kind.__mro__):
            slots |= {k: v for k, v in vars(base).items() if isinstance(v, MemberDescriptorType)}
            skip |= {k for k, v in vars(base).items() if isinstance(v, cached_property)}
        fields = dict.fromkeys(field.name for field in dataclasses.fields(kind))
        names = (*fields, *(name for name in slots if name not in fields))
        free = kind.__dictoffset__ != 0
        plan = _PLANS[kind] = _Plan(full_name(kind), names, slots, frozenset(skip - set(fields)), free)
    return plan


def _plain(kind: type) -> bool:
    """Whether `object.__new__` makes it: no builtin among its bases."""
    return all(base is object or base.__flags__ & _HEAP for base in kind.__mro__)


def is_namedtuple(kind: type[Any]) -> bool:
    """Whether a class is a tuple with named fields."""
    names: Any = getattr(kind, "_fields", None)
    return issubclass(kind, tuple) and class_of(names) is tuple and _TEXT.issuperset(map(class_of, names))


def shape_of(value: Any, kind: Any) -> tuple[Mark, str, dict[str, Any]] | None:
    """The mark, class name and fields of a record; None for anything else.

    Raises: CannotTravel for one whose class could not be built again from its fields.
    """
    if kind is Record:
        return KINDS[value._kind], value._type, value._fields
    if issubclass(kind, Enum):
        fields = {"name": value._name_}
        if type(value._value_) in ATOMS:
            fields["value"] = value._value_
        return ENUM, full_name(kind), fields
    if issubclass(kind, Struct):
        return STRUCT, full_name(kind), _read(value, kind.__struct_fields__)
    if is_namedtuple(kind):
        if getattr(value, "__dict__", None):
            raise CannotTravel("is a named tuple with attributes of its own: pass a dataclass instead")
        return NAMEDTUPLE, full_name(kind), dict(zip(kind._fields, value, strict=True))
    if not hasattr(kind, "__dataclass_fields__"):
        return None
    if not _plain(kind):
        bases = [base for base in kind.__mro__ if base is not object and not base.__flags__ & _HEAP]
        raise CannotTravel(
            f"is a dataclass built on {name_of(bases[0])}, which can't be rebuilt from its fields: "
            f"make the {name_of(bases[0])} a field"
        )
    plan = _plan(kind)
    fields = _read(value, plan.fields)
    if plan.free:
        for name, item in value.__dict__.items():
            if name not in fields and name not in plan.skip and not name.startswith("__"):
                fields[name] = item
    return DATACLASS, plan.name, fields


def _read(value: object, names: Iterable[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in names:
        try:
            fields[name] = getattr(value, name)
        except AttributeError:
            pass  # never set: it comes back unset
        except Exception as error:
            failed = CannotTravel(f"can't be read ({name_of(type(error))}): pass plain data instead")
            failed.under(value, f".{name}")
            raise failed from error
    return fields


def build(mark: Mark, items: list[Any], classes: Classes) -> object:
    """The object that `[type_name, fields]` describes, or a `Record` where its class is not known."""
    name: Any
    fields: Any
    name, fields = items
    if type(name) is not str or class_of(fields) is not dict:
        raise ValueError("a record that is not a name and fields")
    if not _TEXT.issuperset(map(type, fields)):
        raise ValueError("a record whose fields have no names")
    cls = _resolve(name, classes)
    made: object = _MISSING
    if cls is not None:
        try:
            made = _MAKERS[mark.code](cls, fields)
        except Exception:  # the class refuses, say because it has changed since
            made = _MISSING
    return Record(name, fields, _KIND_OF[mark.code]) if made is _MISSING else made


def _resolve(name: str, classes: Classes) -> type | None:
    found: Any = classes.get(name)
    module_name, _, path = name.partition(":")
    if found is None and module_name in _MAINS:  # one script, there run and here imported
        found = classes.get(f":{path}")
    if found is None:
        module = sys.modules.get(module_name)
        if not isinstance(module, ModuleType):
            return None
        found, space = None, object.__getattribute__(module, "__dict__")  # a lazy module stays so
        for part in path.split("."):
            found = space.get(part)
            if not isinstance(found, type):
                return None
            space = vars(found)
    return found


def _make_dataclass(cls: type[Any], fields: dict[str, Any]) -> object:
    if not hasattr(cls, "__dataclass_fields__") or not _plain(cls):
        return _MISSING
    plan = _plan(cls)
    if not plan.free and not fields.keys() <= plan.slots.keys():
        return _MISSING
    made: Any = object.__new__(cls)
    for name, value in fields.items():
        if name in plan.slots:
            plan.slots[name].__set__(made, value)
        else:
            made.__dict__[name] = value
    for field in dataclasses.fields(cls):
        if field.name not in fields and (default := _default(field)) is not _MISSING:
            if field.name in plan.slots:
                plan.slots[field.name].__set__(made, default)
            else:
                made.__dict__[field.name] = default
    return made


def _default(field: dataclasses.Field[Any]) -> Any:
    factory: Any = field.default_factory
    simple: list[Any] = [list, dict, set]
    return factory() if factory in simple else field.default


def _make_enum(cls: Any, fields: dict[str, Any]) -> object:
    if not issubclass(cls, Enum):
        return _MISSING
    members: dict[Any, Any] = cls._member_map_
    found = members.get(fields.get("name"), _MISSING)
    if found is _MISSING and issubclass(cls, Flag) and type(fields.get("value")) is int:
        return cls(fields["value"])
    return found


def _make_struct(cls: Any, fields: dict[str, Any]) -> object:
    if not issubclass(cls, Struct):
        return _MISSING
    made = cls(**fields)
    if hasattr(cls, "__post_init__"):  # it has run, as msgspec always does; the fields win
        for name, value in fields.items():
            force_setattr(made, name, value)
    return made


def _make_namedtuple(cls: Any, fields: dict[str, Any]) -> object:
    if not is_namedtuple(cls) or cls._fields != tuple(fields):
        return _MISSING
    return tuple.__new__(cls, fields.values())  # pyright: ignore[reportUnknownMemberType]


_MAKERS = {
    DATACLASS.code: _make_dataclass,
    ENUM.code: _make_enum,
    STRUCT.code: _make_struct,
    NAMEDTUPLE.code: _make_namedtuple,
}
