"""Ids as bytes and as text, against python-ulid."""

from __future__ import annotations

import random
import threading

import pytest
from ulid import ULID

from lakeshore.core.ids import IdMaker, floor, milliseconds, parse, text_of

EDGES = [bytes(16), b"\xff" * 16, b"\0" * 15 + b"\1", b"\x7f" + bytes(15), bytes(range(16))]


def test_text_is_what_python_ulid_writes_and_reads() -> None:
    chance = random.Random(1)
    for raw in [*EDGES, *(chance.randbytes(16) for _ in range(3000))]:  # more than are kept
        text = text_of(raw)
        assert text == str(ULID(raw))
        assert text_of(raw) == text
        assert parse(text) == parse(text.lower()) == raw == ULID.from_str(text).bytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,  # above the largest
        "Z" * 26,
        *("0" * 12 + odd + "0" * 13 for odd in "ILOUilou_- +!.\0\x80é٣\udc80"),
        "é" * 13,  # 26 bytes
        " " + "0" * 25,
        "0" * 25 + "\n",
    ],
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(ValueError, match="is not an invocation id"):
        parse(text)


def test_an_id_is_a_string() -> None:
    with pytest.raises(TypeError, match="pass what submit returned"):
        parse(b"0" * 26)  # type: ignore[arg-type]


def test_ids_rise_whatever_the_clock_does() -> None:
    now, made = 0, list[bytes]()
    make = IdMaker(lambda: now, random.Random(1).randbytes)
    for at in (5, 5, 3, 6, 6, 2, 7):
        now = at
        made.append(make())
    assert made == sorted(set(made))
    assert [int.from_bytes(raw[:6], "big") for raw in made] == [5, 5, 5, 6, 6, 6, 7]


def test_threads_share_a_maker() -> None:
    ticks = iter(range(1, 1_000_000))
    make, made = IdMaker(lambda: next(ticks) // 50, random.Random(1).randbytes, threading.Lock), []

    def many() -> None:
        mine = [make() for _ in range(2000)]
        assert mine == sorted(mine)
        made.extend(mine)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8000


@pytest.mark.parametrize("seconds", [0.0, 1.5, 1_700_000_000.123, 1e9])
def test_a_floor_is_between_the_ids_of_two_milliseconds(seconds: float) -> None:
    ms = int(seconds * 1000)
    assert milliseconds(floor(seconds)) == ms
    assert (ms << 80) - 1 < int.from_bytes(floor(seconds), "big") <= ms << 80


@pytest.mark.parametrize("seconds", [-1.0, -1e306, float("-inf")])
def test_before_all_time_is_the_lowest_floor(seconds: float) -> None:
    assert floor(seconds) == bytes(16)


@pytest.mark.parametrize("seconds", [1e15, 1e306, float("inf")])
def test_after_all_time_is_the_highest_floor(seconds: float) -> None:
    assert floor(seconds) == b"\xff" * 6 + bytes(10)
