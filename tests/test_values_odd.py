"""Odd values and odd bytes: what can't travel says so, and what is damaged is never built."""

from __future__ import annotations

import datetime
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typing_extensions
from msgspec import msgpack

from lakeshore.core.extensions import leaves
from lakeshore.core.extensions.reading import built
from lakeshore.core.values import MalformedValue, Record, pack, unpack

if TYPE_CHECKING:
    from nowhere import Nothing  # pyright: ignore[reportMissingImports]

HUGE = 1 << 70


def test_a_value_that_needs_care_and_holds_what_cannot_travel() -> None:
    nested: Any = [HUGE]
    for _ in range(300):
        nested = [nested]
    assert unpack(pack({"x": HUGE})) == {"x": HUGE}
    with pytest.raises(TypeError, match=r"^value\[1\]"):
        pack([HUGE, object()])
    with pytest.raises(TypeError, match="deep"):
        pack(nested)


def test_what_needs_care_says_so_where_the_stack_ends() -> None:
    def below(frames: int, call: Callable[[], bytes]) -> bytes:
        return call() if frames == 0 else below(frames - 1, call)

    def outcome(frames: int) -> str:
        try:
            return str(unpack(below(frames, lambda: pack([HUGE]))) == [HUGE])
        except (RecursionError, TypeError) as error:
            return type(error).__name__

    left = sys.getrecursionlimit() - len(inspect.stack())
    outcomes = [outcome(left - room) for room in range(40)]
    assert outcomes == sorted(outcomes, key=["RecursionError", "TypeError", "True"].index)
    assert set(outcomes) == {"RecursionError", "TypeError", "True"}


def test_a_plain_value_stands_for_itself() -> None:
    assert built("text", {}) == "text"  # as when another thread reads marks at the same time


def test_a_mark_that_heads_nothing_is_malformed() -> None:
    with pytest.raises(MalformedValue):
        unpack(msgpack.encode({"x": [1, leaves.ARRAY.ext]}))


def test_memory_that_runs_out_is_not_called_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("lakeshore.core.values.decode", full)
    with pytest.raises(MemoryError):
        unpack(b"\x92\x01\x02")


def test_a_zone_that_is_not_known_here_and_has_no_offset() -> None:
    code = msgpack.decode(pack(datetime.time(1))).code
    zoned = msgpack.encode([1, 2, 3, 4, 0, None, None, "Atlantis/Poseidonis"])
    with pytest.raises(MalformedValue, match="ZoneInfoNotFoundError"):
        unpack(msgpack.encode(msgpack.Ext(code, zoned)))


@dataclass
class Aliased:
    x: int


@dataclass
class Unknown:
    inner: Aliased
    other: Nothing = None


Alias = typing_extensions.TypeAliasType("Alias", list[Aliased])


def test_a_class_behind_a_type_alias_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack([Aliased(1)])
    monkeypatch.delitem(sys.modules, __name__)
    assert type(unpack(data)[0]) is Record
    assert unpack(data, types=(Alias,)) == [Aliased(1)]


def test_a_class_whose_hints_cannot_be_read_is_built_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(Unknown(Aliased(1)))
    monkeypatch.delitem(sys.modules, __name__)
    back = unpack(data, types=(Unknown,))
    assert type(back) is Unknown
    assert back.other is None


def test_arrays_that_cannot_travel() -> None:
    titled = np.dtype({"names": ["a"], "formats": ["<i4"], "titles": [(1, 2)]})
    with pytest.raises(TypeError, match="field titles that are not text"):
        pack(np.zeros(1, titled))
    tagged = np.dtype("<i4", metadata={"unit": "m"})
    assert unpack(pack(np.zeros(1, tagged))).tolist() == [0]
    rational: Any = pytest.importorskip("numpy._core._rational_tests").rational  # a dtype of its own
    with pytest.raises(TypeError, match=r"has dtype rational, which can't travel: pass x.astype of a plain"):
        pack(np.array([rational(1, 2)]))


def test_an_array_of_objects_is_never_built() -> None:
    form = {
        "names": ["a"],
        "formats": ["|V8"],
        "offsets": [0],
        "titles": [None],
        "itemsize": 8,
        "align": False,
    }
    assert unpack(msgpack.encode([leaves.ARRAY.ext, form, [1], b"x" * 8])).tobytes() == b"x" * 8
    for objects in ("|O", {**form, "formats": ["|O"]}, {**form, "formats": [["|O", [1]]]}):
        with pytest.raises(MalformedValue):
            unpack(msgpack.encode([leaves.ARRAY.ext, objects, [1], b"x" * 8]))


def test_an_image_of_an_unknown_mode() -> None:
    image = pytest.importorskip("PIL.Image")
    made = image.new("RGB", (1, 1))
    made._mode = "RGB;32"
    with pytest.raises(TypeError, match=r'is an image of mode RGB;32, .*pass x.convert\("RGB"\)'):
        pack(made)
