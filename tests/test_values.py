from __future__ import annotations

import array
import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import io
import math
import pathlib
import pickle
import socket
import subprocess
import sys
import threading
import types
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, NewType, TypeVar

import msgspec
import numpy as np
import pydantic
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec import msgpack
from msgspec.msgpack import Ext

from lakeshore.core import values
from lakeshore.core.errors import LakeshoreError, MissingExtra
from lakeshore.core.extensions import leaves
from lakeshore.core.values import (
    MalformedValue,
    Record,
    pack,
    pack_call,
    pack_frames,
    pack_prepared_frames,
    prepare,
    prepared_size,
    unpack,
    unpack_call,
    unpack_frames,
)

T = TypeVar("T")


def same(a: Any, b: Any) -> bool:
    """Equal and of the same type all the way down; NaN is itself, and -0.0 is not 0.0."""
    kind: Any = type(a)
    if kind is not type(b):
        return False
    if kind is float:
        return a.hex() == b.hex()
    if kind is complex:
        return same(a.real, b.real) and same(a.imag, b.imag)
    if kind in (list, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if kind in (dict, collections.OrderedDict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if kind is decimal.Decimal:
        return str(a) == str(b)
    if isinstance(a, dt.datetime | dt.time):
        ours, theirs = (
            (x.replace(tzinfo=None), x.fold, x.utcoffset(), x.tzname(), str(x.tzinfo)) for x in (a, b)
        )
        return ours == theirs
    return bool(a == b)


def travels(value: Any, **options: Any) -> Any:
    back = unpack(pack(value), **options)
    assert same(back, value), (back, value)
    return back


# Every value there is


@dataclasses.dataclass
class Cfg:
    lr: float
    layers: list[int] = dataclasses.field(default_factory=list)
    inner: Any = None
    _private: int = 3
    made: str = dataclasses.field(init=False, default="")

    def __post_init__(self) -> None:
        self.made = "made"


@dataclasses.dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = 0


class Pair(NamedTuple):
    first: Any
    second: Any = None


class Message(msgspec.Struct, frozen=True, kw_only=True, tag="m"):
    text: str
    more: Any = None


class Colour(enum.Enum):
    RED = 1
    BLUE = ("b", object)  # a value that can't travel does no harm
    ALSO_RED = 1  # noqa: PIE796


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    HI = "hi"


class Bits(enum.Flag):
    A = 1
    B = 2
    C = 4


odd_text = st.text(st.characters(codec=None), max_size=8)
zones = st.one_of(
    st.none(),
    st.just(dt.UTC),
    st.timedeltas(min_value=dt.timedelta(hours=-23), max_value=dt.timedelta(hours=23)).map(dt.timezone),
    st.builds(dt.timezone, st.just(dt.timedelta(hours=1)), st.text(max_size=4)),
    st.timezones(),
)
hashable_leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(1 << 70), max_value=1 << 70),
    st.floats(),
    odd_text,
    st.binary(max_size=8),
    st.complex_numbers(allow_nan=False),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.dates(),
    st.datetimes(timezones=zones),
    st.times(timezones=st.one_of(st.none(), st.just(dt.UTC))),
    st.timedeltas(),
    st.sampled_from([Colour.RED, Colour.BLUE, Level.HIGH, Word.HI, Bits.A, Bits.A | Bits.C, Bits(0)]),
    st.builds(range, st.integers(), st.integers(), st.integers(min_value=1)),
    st.lists(st.sampled_from(["a", "b c", "é"]), max_size=3).map(lambda parts: pathlib.Path(*parts)),
    st.sampled_from([pathlib.PurePosixPath("/a"), pathlib.PureWindowsPath("C:/b")]),
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.frozensets(inner.filter(lambda x: x == x), max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
    ),
    max_leaves=5,
)
anything = st.recursive(
    st.one_of(
        hashables,
        st.binary(max_size=8).map(bytearray),
        st.sets(hashables.filter(lambda x: x == x), max_size=4),
        st.sampled_from([slice(1, None, 2), slice("a", (1,))]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(odd_text, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=3).map(collections.OrderedDict),
        st.builds(Cfg, st.floats(), inner=inner),
        st.builds(Point, inner, inner),
        st.builds(Pair, inner, inner),
        st.builds(Message, text=odd_text, more=inner),
    ),
    max_leaves=12,
)


@settings(deadline=None)
@given(anything)
@example([1 << 64, "\ud800", {"\udfff": -(1 << 63) - 1}])
@example({1: "a", "1": "b", (1,): "c", None: "d", b"1": "e", 1.5: "f"})
def test_whatever_packs_unpacks_equal(value: Any) -> None:
    try:
        data = pack(value)
    except TypeError as error:  # a time zone that hypothesis found, at most
        assume("time zone" not in str(error))
        raise
    back = unpack(data)
    if any(math.isnan(x) for x in floats_in(value)):  # NaN equals nothing, so neither do keys that hold it
        assert pack(back) == data or type(back) is type(value)
    else:
        assert same(back, value)


def floats_in(value: Any) -> list[float]:
    if isinstance(value, float):
        return [value]
    if isinstance(value, dict):
        return [x for pair in value.items() for item in pair for x in floats_in(item)]
    if isinstance(value, list | tuple | set | frozenset):
        return [x for item in value for x in floats_in(item)]
    if dataclasses.is_dataclass(value):
        return [x for field in dataclasses.fields(value) for x in floats_in(getattr(value, field.name))]
    return floats_in(value.more) if isinstance(value, Message) else []


@settings(deadline=None)
@given(st.lists(anything, max_size=3), st.dictionaries(st.from_regex("[a-z]{1,3}", fullmatch=True), anything))
def test_calls(args: list[Any], kwargs: dict[str, Any]) -> None:
    assume(not any(math.isnan(x) for x in floats_in([args, kwargs])))
    assert same(unpack_call(pack_call(tuple(args), kwargs)), (tuple(args), kwargs))


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1e10), anything), max_size=5))
def test_frames(frames: list[tuple[float, Any]]) -> None:
    times, items = [time for time, _ in frames], [item for _, item in frames]
    assume(not any(math.isnan(x) for x in floats_in(items)))
    data = pack_frames(times, items)
    prepared = [prepare(item) for item in items]
    assert same(unpack_frames(data), (times, items))
    assert same(unpack_frames(pack_prepared_frames(times, prepared)), (times, items))


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        -0.0,
        -math.inf,
        [math.nan, 0.0],
        (1 << 63) - 1,
        -(1 << 63),
        -(1 << 63) - 1,
        (1 << 64) - 1,
        1 << 64,
        -(1 << 20_000),
        True,
        [True, 1, 1.0],
        "",
        "\ud800 and é",
        b"",
        bytearray(b"x"),
        (),
        [()],
        ([],),
        {},
        {"": {}},
        set(),
        {1, "a", (2, frozenset({3}))},
        frozenset(),
        {(1, 2): {"x": ()}},
        {3: 1, 1: 3},
        {"b": 1, "a": 2},
        collections.OrderedDict(b=1, a=(2,)),
        collections.OrderedDict(),
        complex(math.nan, -0.0),
        decimal.Decimal("1.10"),
        decimal.Decimal("-0E+5"),
        decimal.Decimal("NaN"),
        decimal.Decimal("sNaN123"),
        decimal.Decimal("-Infinity"),
        decimal.Decimal("1E+999999"),
        uuid.UUID(int=5),
        pathlib.Path("/a b/é"),
        pathlib.Path(),
        pathlib.Path("bad\udcff"),
        pathlib.PurePosixPath("//a"),
        pathlib.PureWindowsPath("C:\\x"),
        range(5),
        range(1 << 70, 0, -3),
        slice(None),
        dt.date.min,
        dt.timedelta.min,
        dt.timedelta.max,
        dt.datetime.max,
        dt.datetime(2026, 11, 1, 1, 30, fold=1),
        dt.datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("America/New_York")),
        dt.datetime(2026, 11, 1, 1, 30, fold=0, tzinfo=zoneinfo.ZoneInfo("America/New_York")),
        dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, microseconds=7))),
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1), "CET")),
        dt.time(1, 2, 3, 4, fold=1),
        dt.time(1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
        dt.time(1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_comes_back(value: Any) -> None:
    travels(value)
    travels([value])
    travels((value, {"x": value}))


def test_what_comes_back_shares_nothing() -> None:
    inner: list[int] = []
    back = travels([inner, inner])
    back[0].append(1)
    assert (inner, back[1]) == ([], [])


def test_plain_data_is_plain_msgpack() -> None:
    value = {"a": [1, 2.5, None, True, "x", b"y", {"z": []}]}
    assert msgpack.decode(pack(value)) == value


def test_the_value_itself_is_never_changed() -> None:
    value: Any = {"a": [(1,), {2: [3]}, {"k": (4,)}], "b": "\ud800"}
    before = pickle.dumps(value)
    pack(value)
    assert pickle.dumps(value) == before


def test_a_time_zone_of_another_kind_keeps_its_offset_and_name() -> None:
    class Own(dt.tzinfo):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
            return dt.timedelta(hours=2)

        def tzname(self, when: dt.datetime | None) -> str | None:
            return "OWN"

        def dst(self, when: dt.datetime | None) -> dt.timedelta | None:
            return None

    class Broken(Own):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
            raise RuntimeError("no")

    class Without(Own):
        def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
            return None

    value = dt.datetime(2026, 1, 1, tzinfo=Own())
    back = unpack(pack(value))
    assert (back, back.utcoffset(), back.tzname()) == (value, value.utcoffset(), "OWN")
    for zone in (Broken(), Without()):
        with pytest.raises(TypeError, match=r"value\[0\] has a time zone"):
            pack([value.replace(tzinfo=zone)])


def test_a_zone_that_is_not_known_here_keeps_its_offset() -> None:
    when = msgpack.encode([2026, 1, 1, 0, 0, 0, 0, 0, 3_600_000_000, "XYZ", "No/Such_Zone"])
    back = unpack(msgpack.encode(Ext(leaves._DATETIME, when)))  # pyright: ignore[reportPrivateUsage]
    assert back == dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert back.tzname() == "XYZ"


# Records: dataclasses, Enums, Structs, named tuples


@dataclasses.dataclass
class Unset:
    x: int
    never: int = dataclasses.field(init=False)


@dataclasses.dataclass
class Extra:
    x: int
    calls: ClassVar[int] = 0

    def __post_init__(self) -> None:
        self.twice = self.x * 2
        type(self).calls += 1


@dataclasses.dataclass
class Cached:
    x: int

    @__import__("functools").cached_property
    def lock(self) -> Any:
        return threading.Lock()


@dataclasses.dataclass
class Base:
    a: int


@dataclasses.dataclass
class Child(Base):
    __slots__ = ("b", "hidden")
    b: int


@dataclasses.dataclass
class Box(Generic[T]):
    item: T


class Bare(Base):
    pass


class Careful(msgspec.Struct):
    n: int
    ran: ClassVar[list[int]] = []

    def __post_init__(self) -> None:
        self.n += 1


Odd = collections.namedtuple("Odd", ["class", "x"], rename=True)


class Outer:
    @dataclasses.dataclass
    class Inner:
        x: int


@pytest.mark.parametrize(
    "value",
    [
        Cfg(0.1, [1], Cfg(2.0)),
        Point(1, (2,)),
        Pair(1, [2]),
        Message(text="x", more=Message(text="y")),
        Colour.RED,
        Colour.BLUE,
        Level.LOW,
        Word.HI,
        Bits.A | Bits.B,
        Bits(0),
        Child(1, 2),
        Box[int](5),
        Bare(4),
        Careful(1),
        Odd(1, 2),
        Outer.Inner(3),
        {Point(1, 2): {Colour.RED: Level.HIGH}},
        {Point(1, 2), Colour.RED, Pair(1, 2)},
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_record_comes_back(value: Any) -> None:
    travels(value)
    assert same(unpack_call(pack_call((value,), {"x": value})), ((value,), {"x": value}))


def test_members_of_enums_are_the_very_same() -> None:
    assert unpack(pack([Colour.ALSO_RED, Bits.A])) == [Colour.RED, Bits.A]
    assert unpack(pack(Colour.BLUE)) is Colour.BLUE


def test_building_runs_no_constructor_and_leaves_nothing_out() -> None:
    value = Extra(3)
    before, value.twice = Extra.calls, 7
    back = travels(value)
    assert (back.twice, Extra.calls) == (7, before)
    assert vars(travels(Cfg(1.0))) == vars(Cfg(1.0))
    unset = unpack(pack(Unset(1)))
    assert vars(unset) == {"x": 1}
    assert travels(Careful(1)).n == 2  # its own __post_init__ has run once, not twice


def test_slots_of_a_base_come_too() -> None:
    value = Child(1, 2)
    value.hidden = [3]  # type: ignore[attr-defined]
    assert travels(value).hidden == [3]


def test_cached_properties_stay_behind() -> None:
    value = Cached(1)
    assert value.lock is not None
    assert vars(travels(value)) == {"x": 1}


def test_an_attribute_that_cannot_travel_is_named() -> None:
    value = Extra(1)
    value.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"^value\.lock is a lock, which can't travel"):
        pack(value)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("dataclass", {"lr": 0.5, "layers": [(1,)]}),
        ("namedtuple", {"first": 1, "second": {2}}),
        ("struct", {"text": "x", "more": None}),
        ("enum", {"name": "RED", "value": 1}),
    ],
)
@pytest.mark.parametrize(
    "name", ["no_such_mod:C", "antigravity:C", "xml.sax.expatreader:X", "nocolon", ":", "a:b:c"]
)
def test_an_unknown_class_becomes_a_record_and_nothing_is_imported(
    kind: str, fields: dict[str, Any], name: str
) -> None:
    before = set(sys.modules)
    back = unpack(pack(Record(name, fields, kind)))
    assert type(back) is Record
    assert back._kind == kind
    assert (back._type, back._fields) == (name, fields)
    assert set(sys.modules) == before
    assert unpack(pack(back)) == back  # and it goes on as what it is
    assert travels([back, {"x": back}])
    assert hash(back) == hash(unpack(pack(back)))
    assert {back: 1}[unpack(pack(back))] == 1


def test_a_record_that_went_on_becomes_its_class_where_that_is_known() -> None:
    assert unpack(pack(Record(f"{__name__}:Cfg", vars(Cfg(0.5)) | {}))) == Cfg(0.5)


def test_a_lazy_module_stays_unloaded() -> None:
    loaded: list[str] = []

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> Any:
            loaded.append(name)
            raise AssertionError(name)

    def forbidden(name: str) -> Any:
        loaded.append(name)

    lazy, asking = Lazy("lakeshore_test_lazy"), types.ModuleType("lakeshore_test_ask")
    asking.__getattr__ = forbidden  # type: ignore[method-assign]
    try:
        sys.modules.update({"lakeshore_test_lazy": lazy, "lakeshore_test_ask": asking})
        for module in ("lakeshore_test_lazy", "lakeshore_test_ask"):
            assert type(unpack(pack(Record(f"{module}:Cfg", {})))) is Record
        assert loaded == []
    finally:
        del sys.modules["lakeshore_test_lazy"], sys.modules["lakeshore_test_ask"]


@pytest.mark.parametrize("kind", ["dataclass", "enum", "struct", "namedtuple"])
@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "os:environ",
        "builtins:dict",
        "builtins:object",
        "subprocess:Popen",
        "threading:Thread",
        "os:stat_result",
        "collections:OrderedDict",
        "enum:Enum",
        f"{__name__}:Outer",
        f"{__name__}:T",
        f"{__name__}:Cfg.__init__",
        f"{__name__}:Cfg.__class__",
        f"{__name__}:Outer.Inner.x",
        f"{__name__}:",
        "",
    ],
)
def test_a_class_of_the_wrong_kind_stays_a_record(name: str, kind: str) -> None:
    record = Record(name, {"name": "x", "value": "echo no"}, kind)
    assert type(unpack(pack(record))) is Record
    assert unpack(pack(record)) == record


def test_a_property_is_not_set_and_methods_are_not_run() -> None:
    hit: list[object] = []

    @dataclasses.dataclass
    class Guarded:
        x: int

        @property
        def door(self) -> None: ...

        @door.setter
        def door(self, value: object) -> None:
            hit.append(value)

        def __setattr__(self, name: str, value: object) -> None:
            hit.append(name)
            object.__setattr__(self, name, value)

    name = f"{__name__}:{Guarded.__qualname__}"
    unpack(pack(Record(name, {"x": 1, "door": 2, "__class__": 3})), types=[Guarded])
    assert hit == []


def test_a_class_that_has_changed_since() -> None:
    @dataclasses.dataclass
    class Now:
        x: int
        added: int = 5
        lists: list[int] = dataclasses.field(default_factory=list)
        ids: Any = dataclasses.field(default_factory=object)

    @dataclasses.dataclass(slots=True)
    class Slim:
        x: int
        added: int = 6

    class Strict(msgspec.Struct):
        x: int
        added: int = 7

    def back(cls: type, fields: dict[str, Any], kind: str) -> Any:
        return unpack(pack(Record(f"{__name__}:{cls.__qualname__}", fields, kind)), types=[cls])

    assert vars(back(Now, {"x": 1, "gone": 2}, "dataclass")) == {"x": 1, "gone": 2, "added": 5, "lists": []}
    assert back(Slim, {"x": 1}, "dataclass") == Slim(1)
    assert type(back(Slim, {"x": 1, "gone": 2}, "dataclass")) is Record
    assert back(Strict, {"x": 1}, "struct") == Strict(1)
    assert type(back(Strict, {"gone": 1}, "struct")) is Record
    assert type(back(Pair, {"first": 1}, "namedtuple")) is Record
    assert type(back(Colour, {"name": "GREEN", "value": 9}, "enum")) is Record
    assert type(back(Bits, {"name": "D", "value": 64}, "enum")) is Record


def test_local_classes_are_built_only_where_they_are_named() -> None:
    @dataclasses.dataclass
    class Local:
        x: Any

    @dataclasses.dataclass
    class Holder:
        item: Local
        many: list[Local] = dataclasses.field(default_factory=list)

    value = Local(1)
    data = pack([value])
    (record,) = unpack(data)
    assert type(record) is Record
    assert record._type.endswith("<locals>.Local")
    assert record.x == record["x"] == 1
    mention = NewType("mention", Local)
    for annotation in (
        Local,
        list[Local],
        Local | None,
        dict[str, tuple[Local, ...]],
        Annotated[list[Local], []],
        Callable[[Local], None],
        Box[Local],
        mention,
        Annotated[int, Local],
    ):
        assert unpack(data, types=[annotation]) == [value], annotation
    nested = Holder(value, [value])
    Holder.__annotations__ |= {"item": Local, "many": list[Local]}
    assert unpack(pack(nested), types=[Holder]) == nested
    assert unpack_call(pack_call((value,), {"x": value}), types=[Local]) == ((value,), {"x": value})
    assert unpack_frames(pack_frames([1.0], [value]), types=[Local]) == ([1.0], [value])
    assert type(unpack(data, types=["Local", T, None, int, 3])[0]) is Record


def test_a_class_of_main_is_found_by_its_name_among_the_named_ones() -> None:
    record = Record("__main__:Cfg", vars(Cfg(0.5)))
    assert unpack(pack(record), types=[Cfg]) == Cfg(0.5)
    assert type(unpack(pack(record))) is Record
    assert type(unpack(pack(Record("elsewhere:Cfg", {})), types=[Cfg])) is Record


def test_a_record_is_readable_and_fixed() -> None:
    record = Record("mod:Cfg", {"lr": 0.1, "_type": "taken", "class": 2, "items": [1]})
    assert (record.lr, record["_type"], record._type) == (0.1, "taken", "mod:Cfg")
    assert repr(record) == "Record(mod:Cfg: lr=0.1, _type='taken', class=2, items=[1])"
    with pytest.raises(AttributeError, match="has no field 'depth'"):
        _ = record.depth
    with pytest.raises(AttributeError, match="can't be changed"):
        record.lr = 1
    with pytest.raises(ValueError, match="choose one of"):
        Record("mod:Cfg", {}, "function")
    assert pickle.loads(pickle.dumps(record)) == record
    assert record != Record("mod:Cfg", {})
    assert record != Cfg(0.1)
    assert hash(Record("m:C", {"x": 1})) == hash(Record("m:C", {"x": 1.0}))


# What can't travel, and what is said


class Hostile:
    """Its methods must not be run."""

    def __repr__(self) -> str:
        raise AssertionError("repr was called")

    __str__ = __repr__
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise AssertionError("__class__ was asked for")


class Meta(type):
    def __repr__(cls) -> str:
        raise AssertionError("repr was called")

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise AssertionError(f"{name} was asked for")
        return super().__getattribute__(name)


class HostileClass(metaclass=Meta):
    pass


class Text(str):
    pass


class Number(int):
    pass


class Names(dict[str, int]):
    pass


@dataclasses.dataclass
class OnList(list[int]):
    x: int = 0


@dataclasses.dataclass
class Refuses:
    x: int

    def __getattribute__(self, name: str) -> Any:
        if name == "x":
            raise RuntimeError("no")
        return super().__getattribute__(name)


class Model(pydantic.BaseModel):
    pass


def a_generator() -> Any:
    yield 1


class WithDict(Pair):
    pass


def with_dict() -> Any:
    value = WithDict(1, 2)
    value.more = 3  # type: ignore[attr-defined]
    return value


UNFIT: list[tuple[Callable[[], Any], str]] = [
    (socket.socket, "is a socket, which can't travel: pass a path, a key or plain data"),
    (threading.Lock, "is a lock, which can't travel: pass plain data"),
    (lambda: print, "is a builtin_function_or_method, which can't travel: pass its name"),
    (lambda: with_dict, "is a function, which can't travel: pass its name"),
    (lambda: "x".join, "is a builtin_function_or_method"),
    (lambda: Cfg, "is a type, which can't travel: pass its name"),
    (lambda: sys, "is a module"),
    (a_generator, "is a generator, which can't travel: pass list"),
    (object, "is an object, which can't travel: pass plain data instead"),
    (Hostile, "is a Hostile, which can't travel"),
    (HostileClass, "is a HostileClass, which can't travel"),
    (lambda: memoryview(b"x"), "is a memoryview, which can't travel: pass bytes"),
    (lambda: collections.deque([1]), "is a deque, which can't travel: pass list"),
    (lambda: array.array("i"), "is an array, which can't travel: pass list"),
    (
        lambda: collections.defaultdict(list),
        "is a defaultdict, which can't travel: it would not .* pass dict",
    ),
    (collections.Counter, "is a Counter, which can't travel: .* pass dict"),
    (Names, "is a Names, which can't travel: .* pass dict"),
    (lambda: Text("x"), "is a Text, which can't travel: .* pass str"),
    (lambda: Number(3), "is a Number, which can't travel: .* pass int"),
    (lambda: sys.version_info, "is a version_info, which can't travel: .* pass tuple"),
    (io.StringIO, "is a StringIO, which can't travel: pass x.getvalue"),
    (io.BytesIO, "is a BytesIO, which can't travel: pass x.getvalue"),
    (OnList, "is a dataclass built on list, which can't be rebuilt from its fields: make the list a field"),
    (with_dict, "is a named tuple with attributes of its own: pass a dataclass"),
    (lambda: ValueError("x"), "is a ValueError, which can't travel"),
    (lambda: Ext(1, b""), "is an Ext, which can't travel"),
    (lambda: msgspec.Raw(b"\xc1"), "is a Raw, which can't travel"),
    (lambda: dt.datetime.__class__, "is a type"),
    (Model, "is a Model, which can't travel: pass x.model_dump"),
    (lambda: np.array([object()]), "holds Python objects"),
    (lambda: np.array([(1, None)], dtype=[("a", int), ("b", object)]), "holds Python objects"),
    (lambda: np.ma.array([1]), "is a MaskedArray, which can't travel: pass numpy.asarray"),
    (
        lambda: np.rec.array([(1,)], dtype=[("a", int)]),
        "is a recarray, which can't travel: pass numpy.asarray",
    ),
    (lambda: np.array(["a"], dtype=np.dtypes.StringDType()), "has dtype|holds Python objects"),
    (lambda: np.dtype("f8"), "is a Float64DType, which can't travel"),
]


@pytest.mark.parametrize(("make", "words"), UNFIT, ids=lambda x: x[:30] if isinstance(x, str) else "")
def test_what_cannot_travel_is_refused_with_its_path(make: Callable[[], Any], words: str) -> None:
    value = make()
    try:
        for path, refused in (
            (r"value", lambda: pack(value)),
            (r"\[2\]\['conn'\]", lambda: pack([0, 1, {"conn": value}], path="")),
            (r"kwargs\.cfg\.inner\[3\]", lambda: pack_call((), {"cfg": Cfg(1.0, inner=[0, 1, 2, value])})),
            (r"args\[0\]\.x", lambda: pack_call((Point(value),), {})),
            (r"args\[1\]\['a'\]\['b c'\]\[7\]", lambda: pack_call((1, {"a": {"b c": {7: value}}}), {})),
            (r"yield\[12\]\.second", lambda: pack_frames([1.0] * 3, [1, 2, Pair(1, value)], first=10)),
            (r"yield\[12\]\.more", lambda: prepare(Message(text="", more=value), "yield[12]")),
            (r"value\[a tuple\]\[1\]", lambda: pack({(1, 2): (0, value)})),
        ):
            with pytest.raises(TypeError, match=f"^{path} {words}") as caught:
                refused()
            assert "instead" in str(caught.value) or ": " in str(caught.value)
    finally:
        if type(value) is socket.socket:
            value.close()


def test_bad_keys_and_elements() -> None:
    with pytest.raises(TypeError, match=r"^value\{a key\} is an object"):
        pack({object(): 1})
    with pytest.raises(TypeError, match=r"^value\{a key\}\[1\] is an object"):
        pack({(1, object()): 1})
    with pytest.raises(TypeError, match=r"^value\{an element\} is a Hostile"):
        pack({Hostile()})
    with pytest.raises(TypeError, match=r"^value\{a key\} is a Text"):
        pack({Text("x"): 1})
    with pytest.raises(TypeError, match=r"^value\.start is an object"):
        pack(slice(object(), 1))
    with pytest.raises(TypeError, match=r"^\[0\] is an object"):
        pack([object()], path="")
    with pytest.raises(TypeError, match=r"^the value is an object"):
        pack(object(), path="")
    with pytest.raises(TypeError, match="name of a keyword argument"):
        pack_call((), {"\ud800": 1})
    with pytest.raises(TypeError, match=r"^value\.x can't be read \(RuntimeError\)"):
        pack(Refuses(1))


def test_the_bad_part_is_named_beside_odd_ints_and_text() -> None:
    with pytest.raises(TypeError, match=r"^value\[2\]\['x'\] is an object"):
        pack([1 << 80, "\ud800", {"x": object()}])
    with pytest.raises(TypeError, match=r"^kwargs\.b is an object"):
        pack_call((1 << 80,), {"a": "\ud800", "b": object()})


def nest(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


WRAPS: list[Callable[[Any], Any]] = [
    lambda x: [x],
    lambda x: (x,),
    lambda x: {"k": x},
    lambda x: {uuid.UUID(int=1): x},
    lambda x: collections.OrderedDict(k=x),
    lambda x: frozenset([x]),
    lambda x: Point(x),
    lambda x: Cfg(1.0, layers=x),
    lambda x: Message(text="", more=x),
    lambda x: Pair(x, x if x == 1 else 1),
    lambda x: slice(x),
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_two_hundred_levels_and_no_more(wrap: Callable[[Any], Any]) -> None:
    deep = nest(200, wrap)
    data = pack(deep)
    assert pack(unpack(data)) == data
    assert same(unpack_call(pack_call((deep,), {}))[0], (unpack(data),)) or wrap is WRAPS[-1]
    assert len(unpack_frames(pack_frames([1.0], [deep]))[1]) == 1
    for depth in (201, 300, 5000):
        with pytest.raises(TypeError, match="nested deeper than 200 levels: pass it flatter") as caught:
            pack(nest(depth, wrap) if depth < 1000 or wrap is WRAPS[0] else nest(250, wrap))
        assert len(str(caught.value)) < 500
    with pytest.raises(TypeError, match=r"^args\[0\].*…"):
        pack_call((nest(300, wrap),), {})


def test_the_stack_may_be_nearly_used_up() -> None:
    def at_depth(depth: int) -> Any:
        return at_depth(depth - 1) if depth else pack(nest(200, lambda x: (x,)))

    room = sys.getrecursionlimit() - len(__import__("inspect").stack())
    with pytest.raises(TypeError, match="nested too deep for the stack that is left"):
        at_depth(room - 60)


def test_cycles() -> None:
    loop: list[Any] = []
    loop.append(loop)
    tree: dict[str, Any] = {"a": [1, {}]}
    tree["a"][1]["up"] = tree
    cfg = Cfg(1.0)
    cfg.inner = {1: (cfg,)}
    for value in (loop, tree, cfg):
        with pytest.raises(TypeError, match=r"^value.* is inside itself, so it never ends") as caught:
            pack(value)
        assert len(str(caught.value)) < 400
        with pytest.raises(TypeError, match=r"^kwargs\.x.* is inside itself"):
            pack_call((), {"x": value})
        with pytest.raises(TypeError, match=r"^yield\[1\].* is inside itself"):
            pack_frames([1.0, 1.0], [1, value])


# Frames


def test_a_prepared_frame_is_a_snapshot() -> None:
    state = {"step": [1]}
    prepared = [prepare(state), prepare(7)]
    state["step"].append(2)
    assert unpack_frames(pack_prepared_frames([1.0, 2.0], prepared)) == ([1.0, 2.0], [{"step": [1]}, 7])


@pytest.mark.parametrize(
    "value", [1, -(1 << 63), "x" * 300, b"y" * 300, 1.5, None, [1] * 100, "é" * 50, (1,)]
)
def test_the_size_of_a_prepared_frame(value: Any) -> None:
    frame = prepare(value)
    assert 0 <= prepared_size(frame) - len(pack(value)) <= 9


def test_earlier_frames_travel_though_the_third_is_bad() -> None:
    prepared = [prepare((1,), "yield[0]"), prepare("a", "yield[1]")]
    with pytest.raises(TypeError, match=r"^yield\[2\] is a generator"):
        prepare(a_generator(), "yield[2]")
    assert unpack_frames(pack_prepared_frames([1.0, 2.0], prepared))[1] == [(1,), "a"]


def test_packing_frames_at_once_is_the_same_as_one_by_one() -> None:
    items = [1, (2,), "\ud800", 1 << 90, {"x": {3}}]
    times = [float(i) for i in range(5)]
    assert pack_frames(times, items) == pack_prepared_frames(times, [prepare(item) for item in items])


def test_whole_numbers_are_times_too() -> None:
    times, _ = unpack_frames(msgpack.encode(([1], ["a"])))
    assert type(times[0]) is float


# NumPy, torch, PIL


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(20)[::-3],
        np.array(5),
        np.zeros((0, 3)),
        np.zeros((2, 0, 3), ">i2"),
        np.array([True, False]),
        np.array([1 + 2j], "c8"),
        np.array([1.5], "f2"),
        np.array([1.5], ">f8"),
        np.array([1.5], np.longdouble),
        np.array(["a", "bcd\0"]),
        np.array([b"a", b"bc"]),
        np.array(["", ""]),
        np.array(["2026-01-01", "NaT"], "M8[ns]"),
        np.array([1], "m8[25us]"),
        np.array([b"ab"], "V2"),
        np.array([(1, 2.5, "x")], [("a", "i4"), ("b", "f8"), ("c", "U3")]),
        np.array([(1, [[1, 2], [3, 4]])], [("a", "i1"), ("m", "u2", (2, 2))]),
        np.array([(1, (2, 3.0))], np.dtype([("a", "i1"), ("n", [("x", ">i4"), ("y", "f8")])], align=True)),
        np.array([(1,)], np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 16})),
        np.array([(1,)], np.dtype([(("title", "a"), "i4")])),
        np.array([], np.dtype([])),
        np.broadcast_to(np.arange(3), (2, 3)),
    ],
    ids=lambda value: f"{value.dtype.str}{value.shape}",
)
def test_arrays(value: np.ndarray[Any, Any]) -> None:
    back = unpack(pack({"x": (value,)}))["x"][0]
    assert type(back) is np.ndarray
    assert (back.dtype, back.shape) == (value.dtype, value.shape)
    assert back.dtype.isalignedstruct == value.dtype.isalignedstruct
    np.testing.assert_array_equal(back, value)
    assert back.flags.writeable
    assert back.flags.owndata
    before = value.copy()
    back[...] = np.zeros((), back.dtype)
    np.testing.assert_array_equal(value, before)


@settings(deadline=None)
@given(st.data())
def test_any_array(data: st.DataObject) -> None:
    from hypothesis.extra import numpy as hnp

    dtype = data.draw(hnp.scalar_dtypes() | hnp.nested_dtypes())
    assume(dtype.subdtype is None and not dtype.hasobject)
    value = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=3)))
    back = unpack(pack(value))
    assert (back.dtype, back.shape, back.tobytes()) == (value.dtype, value.shape, value.tobytes())


@pytest.mark.parametrize(
    "value",
    [
        np.float64(1.5),
        np.float32("nan"),
        np.int8(-3),
        np.uint64((1 << 64) - 1),
        np.bool_(True),
        np.complex64(1j),
        np.longdouble("1.1"),
        np.float16(2),
        np.str_("text\0"),
        np.str_("\ud800"),
        np.bytes_(b"x\0"),
        np.datetime64("2026-01-01T00:00", "m"),
        np.timedelta64(5, "D"),
        np.datetime64("NaT"),
        np.void(b"ab\0"),
        np.array([(1, 2.0)], [("a", "i4"), ("b", ">f8")])[0],
    ],
    ids=lambda value: type(value).__name__,
)
def test_numpy_scalars(value: Any) -> None:
    back = unpack(pack([value]))[0]
    assert type(back) is type(value)
    assert back.dtype == value.dtype
    assert back == value or (back != back and value != value)


def test_numpy_scalars_as_keys() -> None:
    assert unpack(pack({np.int64(1): np.float32(2)})) == {1: 2}
    assert type(next(iter(unpack(pack({np.int64(1)}))))) is np.int64


def test_a_large_array_is_packed_without_waste() -> None:
    value = np.arange(1 << 20)
    assert len(pack(value)) < value.nbytes + 100


@pytest.mark.parametrize(
    "parts",
    [
        ["|O", [1], b"x" * 8],
        ["<f8", [2], b"x" * 8],
        ["<f8", [-1], b""],
        ["<f8", [1 << 62, 4], b""],
        ["<f8", [0, 1 << 62], b""],
        ["<f8", [True], b"x" * 8],
        ["<f8", 1, b"x" * 8],
        ["<f8", [1], "x" * 8],
        ["f8,O", [1], b"x" * 16],
        ["os.system", [1], b"x"],
        ["<f999", [1], b"x"],
        ["<M8[parsec]", [1], b"x" * 8],
        [["|O", [1]], [1], b"x" * 8],
        [["<f8"], [1], b"x" * 8],
        [{}, [1], b"x" * 8],
        [
            {
                "names": ["a"],
                "formats": ["|O"],
                "offsets": [0],
                "titles": [None],
                "itemsize": 8,
                "align": False,
            },
            [1],
            b"x" * 8,
        ],
        [
            {
                "names": ["a"],
                "formats": ["<i4"],
                "offsets": [-4],
                "titles": [None],
                "itemsize": 8,
                "align": False,
            },
            [1],
            b"x" * 8,
        ],
        [None, [1], b"x"],
        ["<f8", [1] * 100, b"x" * 8],
        [],
        ["<f8"],
    ],
)
def test_bad_arrays_are_malformed(parts: list[Any]) -> None:
    with pytest.raises(MalformedValue):
        unpack(msgpack.encode([leaves.ARRAY.ext, *parts]))


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    for value in (
        torch.arange(6).reshape(2, 3),
        torch.arange(6).reshape(2, 3).T,
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.randn(2, 3, dtype=torch.bfloat16),
        torch.randn(2, 3, dtype=torch.float16, requires_grad=True),
        torch.randn(2).to(torch.float8_e4m3fn),
        torch.tensor([True, False]),
        torch.tensor([1 + 2j]).conj(),
        torch.zeros(0, 3),
        torch.tensor([1 << 63], dtype=torch.uint64),
    ):
        back = unpack(pack({"x": (value,)}))["x"][0]
        assert type(back) is torch.Tensor
        assert (back.dtype, back.shape, back.requires_grad) == (value.dtype, value.shape, value.requires_grad)
        assert bytes(pack(back)) == pack(value)
        assert torch.equal(back.detach().to(torch.complex64), value.detach().to(torch.complex64))
        if not back.requires_grad:
            back.zero_()
    made = torch.randn(2, requires_grad=True) * 2
    assert unpack(pack(made)).is_leaf
    parameter = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    back = unpack(pack(parameter))
    assert type(back) is torch.nn.Parameter
    assert not back.requires_grad
    for unfit in (
        torch.eye(2).to_sparse(),
        torch.empty(2, device="meta"),
    ):
        with pytest.raises(TypeError, match=r"^value\[0\] is a tensor"):
            pack([unfit])

    class Own(torch.Tensor):
        pass

    with pytest.raises(TypeError, match=r"^value\.x is a Own, which can't travel: pass x.as_subclass"):
        pack(Point(torch.ones(2).as_subclass(Own)))
    for name in ("torch.onnx", "torch._dynamo", "torch.load", "os", 5, None):
        with pytest.raises(MalformedValue):
            unpack(msgpack.encode([leaves.TENSOR.ext, name, [1], b"x" * 4, False, False]))


def pictures() -> list[Any]:
    image = pytest.importorskip("PIL.Image")
    every = [image.effect_noise((5, 3), 50).convert("RGB").convert(mode) for mode in ("1", "L", "RGB")]
    every += [every[2].convert(mode) for mode in ("RGBA", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "RGBX")]
    every += [every[2].convert("L").convert(mode) for mode in ("LA", "I;16")]
    every += [every[2].convert("RGBA").convert("RGBa"), every[2].quantize(4), image.new("P", (2, 2), 1)]
    every += [every[2].convert("RGBA").quantize(4), every[2].convert("P").convert("PA")]
    every += [image.new("RGB", (0, 0)), image.new("L", (0, 4)), every[2].crop((1, 1, 4, 3))]
    return every


def test_pictures() -> None:
    for value in pictures():
        value.info["dpi"] = (72.0, 72)
        value.info["note"] = "é"
        back = unpack(pack([value]))[0]
        assert back == value, value.mode
        assert (back.mode, back.size, back.info) == (value.mode, value.size, value.info)
        assert type(back) is type(value)
        if value.palette is not None and value.mode == "P":
            assert back.palette.mode == value.palette.mode
            assert back.convert("RGBA") == value.convert("RGBA")
        if value.width:
            back.putpixel((0, 0), back.getpixel((0, 0)))


def test_a_picture_from_a_file() -> None:
    image = pytest.importorskip("PIL.Image")
    for form in ("PNG", "JPEG", "GIF"):
        file = io.BytesIO()
        image.effect_noise((8, 8), 50).save(file, form)
        with image.open(file) as opened:
            back = unpack(pack(opened))
        assert type(back) is image.Image
        assert back.tobytes() == opened.tobytes()
    file = io.BytesIO()
    image.new("L", (8, 8)).save(file, "PNG")
    closed = image.open(file)
    file.close()
    with pytest.raises(TypeError, match=r"^value is an image that can't be read"):
        pack(closed)


def test_what_a_picture_notes_that_is_not_plain_stays_behind() -> None:
    value = pictures()[2]
    value.info |= {"odd": object(), "big": 1 << 80, "more": (1, object()), "bad": "\ud800", "kept": (1, "x")}
    value.info[3] = 4
    assert unpack(pack(value)).info == {"kept": (1, "x")}


@pytest.mark.parametrize(
    "parts",
    [
        ["RGB", [1 << 20, 1 << 20], b"", None, {}],
        ["RGB", [2, 2], b"x" * 11, None, {}],
        ["RGB", [-1, -1], b"xxx", None, {}],
        ["XYZ", [1, 1], b"x", None, {}],
        ["L", [1.0, 1], b"x", None, {}],
        ["L", [1, 1], b"x", ["RGB", b"x"], {}],
        ["L", [1, 1], b"x", None, 5],
        ["P", [1, 1], b"x", ["os", b"x"], {}],
        ["P", [1, 1], b"x", [], {}],
        ["L"],
    ],
)
def test_bad_pictures_are_malformed(parts: list[Any]) -> None:
    with pytest.raises(MalformedValue):
        unpack(msgpack.encode([leaves.IMAGE.ext, *parts]))


def test_nothing_heavy_is_imported_before_it_is_needed(tmp_path: pathlib.Path) -> None:
    array = tmp_path / "array"
    array.write_bytes(pack({"x": np.arange(3)}))
    code = f"""
import sys
from lakeshore.core.values import pack, unpack, pack_call
pack_call((1, object and {{"a": (1,)}}), {{}})
try:
    pack(object())
except TypeError:
    pass
assert not {{"numpy", "torch", "PIL", "asyncio", "anyio"}} & set(sys.modules), set(sys.modules)
assert unpack(open({str(array)!r}, "rb").read())["x"].tolist() == [0, 1, 2]
assert "torch" not in sys.modules and "PIL" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_package_that_is_not_installed_is_named(tmp_path: pathlib.Path) -> None:
    array = tmp_path / "array"
    array.write_bytes(pack(np.arange(3)))
    code = f"""
import sys
from lakeshore.core.errors import MissingExtra
from lakeshore.core.values import unpack
sys.modules["numpy"] = None
try:
    unpack(open({str(array)!r}, "rb").read())
except MissingExtra as error:
    assert "pip install numpy" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert issubclass(MissingExtra, LakeshoreError)


# Bytes from anywhere


READERS: list[Callable[[bytes], Any]] = [unpack, unpack_call, unpack_frames]


def read_all(data: bytes) -> None:
    for read in READERS:
        with contextlib.suppress(MalformedValue, MissingExtra):
            read(data)


@settings(deadline=None, max_examples=500)
@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    before = set(sys.modules)
    read_all(data)
    assert set(sys.modules) - before <= {
        name for name in sys.modules if name.split(".")[0] in ("PIL", "torch")
    }


exts = st.builds(Ext, st.integers(-128, 127), st.binary(max_size=20)) | st.sampled_from(
    [mark.ext for mark in leaves.MARKS.values()]
)
trees = st.recursive(
    exts
    | st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | st.binary(max_size=5)
    | st.sampled_from(["", "<f8", "|O", f"{__name__}:Cfg", f"{__name__}:Colour", "os:system", "RGB", "name"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.builds(lambda mark, rest: [mark, *rest], exts, st.lists(inner, max_size=4))
        | st.dictionaries(st.sampled_from(["name", "value", "x", "start"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=1000)
@given(trees)
def test_any_tree_of_extensions(tree: Any) -> None:
    read_all(msgpack.encode(tree))


@settings(deadline=None, max_examples=300)
@given(anything, st.data())
def test_damaged_values(value: Any, data: st.DataObject) -> None:
    try:
        packed = bytearray(pack_call((value,), {}))
    except TypeError:
        assume(False)
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    read_all(bytes(packed[: data.draw(st.integers(0, len(packed)))]))
    read_all(bytes(packed))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\x91" * 100_000,
        b"\x92\xd4\x01\x00" * 50_000,
        b"\x01\x01",
        b"\xa1\xff",
        b"\xc7\x00\x7f",
        b"\x81\x90\x01" + b"\x00",
        b"\x81\x91\xd4\x01\x00\x01",
        msgpack.encode(leaves.TUPLE.ext),
        msgpack.encode([1, leaves.TUPLE.ext]),
        msgpack.encode([leaves.TUPLE.ext, leaves.TUPLE.ext]),
        msgpack.encode([leaves.SET.ext, [1]]),
        msgpack.encode([leaves.DICT.ext, 1]),
        msgpack.encode([leaves.DICT.ext, [], 1]),
        msgpack.encode([leaves.DATACLASS.ext, "a:b", {"x": leaves.SET.ext}]),
        msgpack.encode([leaves.DATACLASS.ext, "a:b", {1: 2}]),
        msgpack.encode([leaves.DATACLASS.ext, 1, {}]),
        msgpack.encode([leaves.ENUM.ext, "a:b"]),
        msgpack.encode([leaves.RANGE.ext, {"start": 1, "stop": 2, "step": 0}]),
    ],
)
def test_bad_bytes_are_malformed(data: bytes) -> None:
    for read in READERS:
        with pytest.raises(MalformedValue, match="not a packed value") as caught:
            read(data)
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, LakeshoreError)


@pytest.mark.parametrize("value", [1, [1], [[], {}, 1], [{}, []], [[], {1: 2}], {"a": 1}, (1, 2), ([], {})])
def test_a_value_is_not_a_call(value: Any) -> None:
    with pytest.raises(MalformedValue, match="not the arguments of a call"):
        unpack_call(pack(value))


@pytest.mark.parametrize("value", [[[1.0], []], [[1.0], (1,)], [[1.0], {1: 2}], [["x"], [1]], [[1.0]]])
def test_a_value_is_not_frames(value: Any) -> None:
    with pytest.raises(MalformedValue):
        unpack_frames(pack(value))


def test_errors_of_a_class_found_on_the_way_are_malformed_too() -> None:
    @dataclasses.dataclass(frozen=True)
    class Unhashable:
        x: int

        def __hash__(self) -> int:
            raise SystemError("no")

    record = Record(f"{__name__}:{Unhashable.__qualname__}", {"x": 1})
    with pytest.raises(MalformedValue, match="SystemError"):
        unpack(pack({record: 1}), types=[Unhashable])


def test_any_buffer_is_read() -> None:
    data = pack({"x": (b"y", bytearray(b"z"))})
    for form in (bytearray(data), memoryview(data)):
        assert unpack(form) == {"x": (b"y", bytearray(b"z"))}  # type: ignore[arg-type]


def test_many_threads_share_the_decoder() -> None:
    plain, marked = pack([1, 2, 3]), pack([(1,), {2}, 3])
    wrong: list[Any] = []

    def read(data: bytes, expected: Any) -> None:
        wrong.extend(back for _ in range(2000) if not same(back := unpack(data), expected))

    threads = [
        threading.Thread(target=read, args=args)
        for args in ((plain, [1, 2, 3]), (marked, [(1,), {2}, 3])) * 4
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_public_names() -> None:
    assert all(hasattr(values, name) for name in values.__all__)
