"""What msgpack has no type for: small values as extension types, and the marks that head the others.

A small flat value (a date, a UUID, a large int) is one msgpack extension. Anything that holds other
values, or bulk data, is a msgpack array whose first item is a *mark*: an extension without a payload.
So nothing is packed twice, however deep it lies. Codes never change their meaning.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from pathlib import Path, PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import msgpack
from msgspec.msgpack import Ext

from .references import read_away

class_of: Callable[[object], Any] = type  # for values of any type: a checker need not narrow them
ATOMS = frozenset({type(None), bool, int, float, str, bytes})  # what msgpack has types for
LOW, HIGH = -(1 << 63), 1 << 64  # what msgpack's own ints can hold: LOW <= n < HIGH


class CannotTravel(Exception):
    """A part of a value can't be packed. Gathers the way to it while it rises: `steps`, inside out."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.steps: list[str] = []
        self.holders: list[int] = []  # the id of each container on the way, to tell a cycle

    def under(self, holder: object, step: str) -> None:
        """Note that it happened in `holder`, one `step` down."""
        self.holders.append(id(holder))
        self.steps.append(step)


class Mark:
    """Heads an array that stands for something else. `ext` is its form on the wire."""

    __slots__ = ("code", "ext")

    def __init__(self, code: int) -> None:
        self.code, self.ext = code, Ext(code, b"")


TUPLE, SET, FROZENSET, DICT, ORDERED = (Mark(code) for code in range(1, 6))
DATACLASS, ENUM, STRUCT, NAMEDTUPLE = (Mark(code) for code in range(6, 10))
RANGE, SLICE = Mark(10), Mark(11)
ARRAY, SCALAR, TEXT_SCALAR, TENSOR, IMAGE = (Mark(code) for code in range(12, 17))
_ALL = (TUPLE, SET, FROZENSET, DICT, ORDERED, DATACLASS, ENUM, STRUCT, NAMEDTUPLE, RANGE, SLICE)
MARKS = {mark.code: mark for mark in (*_ALL, ARRAY, SCALAR, TEXT_SCALAR, TENSOR, IMAGE)}

_INT, _STR, _BYTEARRAY, _COMPLEX, _DECIMAL, _UUID, _PATH = range(32, 39)
_DATETIME, _DATE, _TIME, _TIMEDELTA = range(39, 43)
AWAY = 43  # a value that is elsewhere: `core.away`

_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder().decode
_pair, _triple = struct.Struct(">dd"), struct.Struct(">iii")


def _write_int(value: int) -> object:
    if LOW <= value < HIGH:
        return value
    return Ext(_INT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


def _write_str(value: str) -> object:
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:  # a lone surrogate, as in names from os.listdir
        return Ext(_STR, value.encode("utf-8", "surrogatepass"))
    return value


def _micros(offset: timedelta | None) -> int | None:
    return None if offset is None else offset // timedelta(microseconds=1)


def _write_zone(zone: tzinfo | None, of: datetime | time) -> list[object]:
    """Offset in microseconds, the name where it is not the default one, and the key in the database."""
    if zone is None:
        return [None, None, None]
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        return [_micros(offset), None if name == timezone(offset).tzname(None) else name, None]
    try:
        key = zone.key if type(zone) is ZoneInfo else None
        found: list[object] = [
            _micros(of.utcoffset()),
            None if (name := of.tzname()) is None else str(name),
            key,
        ]
    except Exception as error:
        raise CannotTravel(
            "has a time zone that can't give its offset: pass it in UTC, as in x.astimezone(timezone.utc)"
        ) from error
    if found[0] is None and found[2] is None:
        raise CannotTravel("has a time zone without an offset: use a zoneinfo.ZoneInfo")
    return found


def _read_zone(offset: int | None, name: str | None, key: str | None) -> tzinfo | None:
    if key is not None:
        try:
            return ZoneInfo(key)
        except ZoneInfoNotFoundError:
            if offset is None:
                raise
    if offset is None:
        return None
    gap = timedelta(microseconds=offset)
    if name is not None:
        return timezone(gap, name)
    return timezone(gap) if gap else UTC


def _write_datetime(value: datetime) -> object:
    day = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return Ext(_DATETIME, _encode([*day, value.fold, *_write_zone(value.tzinfo, value)]))


def _read_datetime(data: bytes) -> datetime:
    *when, fold, offset, name, key = _decode(data)
    return datetime(*when, tzinfo=_read_zone(offset, name, key), fold=fold)


def _write_time(value: time) -> object:
    clock = [value.hour, value.minute, value.second, value.microsecond]
    return Ext(_TIME, _encode([*clock, value.fold, *_write_zone(value.tzinfo, value)]))


def _read_time(data: bytes) -> time:
    *when, fold, offset, name, key = _decode(data)
    return time(*when, tzinfo=_read_zone(offset, name, key), fold=fold)


_FLAVOURS: dict[type, bytes] = {
    PurePosixPath: b"p",
    PosixPath: b"P",
    PureWindowsPath: b"w",
    WindowsPath: b"W",
}
_NATIVE = type(Path())
_PATHS: dict[bytes, Any] = {  # a path of another system comes back pure
    b"p": PurePosixPath,
    b"P": PosixPath if _NATIVE is PosixPath else PurePosixPath,
    b"w": PureWindowsPath,
    b"W": WindowsPath if _NATIVE is WindowsPath else PureWindowsPath,
}


def _write_path(value: PurePosixPath | PureWindowsPath) -> object:
    return Ext(_PATH, _FLAVOURS[type(value)] + str(value).encode("utf-8", "surrogatepass"))


def _read_path(data: bytes) -> object:
    return _PATHS[data[:1]](data[1:].decode("utf-8", "surrogatepass"))


def _same(value: object) -> object:
    return value


LEAVES: dict[type, Callable[[Any], object]] = {
    type(None): _same,
    bool: _same,
    float: _same,
    bytes: _same,
    int: _write_int,
    str: _write_str,
    bytearray: lambda value: Ext(_BYTEARRAY, bytes(value)),
    complex: lambda value: Ext(_COMPLEX, _pair.pack(value.real, value.imag)),
    Decimal: lambda value: Ext(_DECIMAL, str(value).encode()),
    UUID: lambda value: Ext(_UUID, value.bytes),
    datetime: _write_datetime,
    date: lambda value: Ext(_DATE, value.toordinal().to_bytes(4, "big")),
    time: _write_time,
    timedelta: lambda value: Ext(_TIMEDELTA, _triple.pack(value.days, value.seconds, value.microseconds)),
    **dict.fromkeys(_FLAVOURS, _write_path),
}

_READERS: dict[int, Callable[[bytes], object]] = {
    _INT: lambda data: int.from_bytes(data, "big", signed=True),
    _STR: lambda data: data.decode("utf-8", "surrogatepass"),
    _BYTEARRAY: bytearray,
    _COMPLEX: lambda data: complex(*_pair.unpack(data)),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: UUID(bytes=data),
    _PATH: _read_path,
    _DATETIME: _read_datetime,
    _DATE: lambda data: date.fromordinal(int.from_bytes(data, "big")),
    _TIME: _read_time,
    _TIMEDELTA: lambda data: timedelta(*_triple.unpack(data)),
    AWAY: read_away,
}


def read_leaf(code: int, data: memoryview) -> object:
    """The value of a small extension. Raises: KeyError for an unknown code, else as its type does."""
    return _READERS[code](bytes(data))


def name_of(kind: type) -> str:
    """A class's bare name, without running any code of its metaclass."""
    return str(type.__dict__["__name__"].__get__(kind))


def module_of(kind: type) -> str:
    """The module a class says it is from, without running any code of its metaclass."""
    module = type.__dict__["__module__"].__get__(kind)
    return module if isinstance(module, str) else "?"


def qualname_of(kind: type) -> str:
    """A class's qualified name, without running any code of its metaclass."""
    return str(type.__dict__["__qualname__"].__get__(kind))
