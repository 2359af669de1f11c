"""Lines as text: what is cut, what wins, what is dropped."""

from __future__ import annotations

import pytest

from lakeshore import MalformedValue
from lakeshore.core.logbook import LONGEST, ROOM, SILENCE, Draft, Partial, pack_line, told, unpack_lines
from lakeshore.core.rows import Progress


def texts(draft: Draft) -> list[str]:
    found: list[str] = []
    while (chunk := draft.take(0.0)) is not None:
        count, data = chunk
        lines = unpack_lines(data)
        assert len(lines) == count
        found += [text for *_, text in lines]
    return found


def fed(*written: str) -> list[str]:
    partial = Partial()
    lines = [line for text in written for line in partial.feed(text)[1]]
    return [*lines, partial.rest()]


@pytest.mark.parametrize(
    ("written", "lines"),
    [
        (["a\nb\n"], ["a", "b", ""]),
        (["a", "b", "\n", "c"], ["ab", "c"]),
        (["\n\n"], ["", "", ""]),
        (["a\r\nb\r", "\nc"], ["a", "b", "c"]),
        (["10 %\r20 %\r", "30 %\r", "40 %"], ["40 %"]),
        (["\r10 %", "\r20 %", "\n", "x\n"], ["20 %", "x", ""]),
        (["long line\rshort\n"], ["short", ""]),
        (["99 %\r", "", "\nnext"], ["99 %", "next"]),
        (["\r", "\r", "a"], ["a"]),
        ([""], [""]),
    ],
)
def test_the_last_state_of_a_line_wins(written: list[str], lines: list[str]) -> None:
    assert fed(*written) == lines


def test_a_line_without_an_end_takes_no_more_than_a_line() -> None:
    *_, line = fed(*["x" * 1000] * 1000)
    assert line == "x" * LONGEST + f"… ({1_000_000 - LONGEST:,} more characters were cut)"
    assert fed("y" * (LONGEST + 5) + "\nnext") == [
        "y" * LONGEST + "… (5 more characters were cut)",
        "next",
    ]
    assert fed("z" * (LONGEST + 5), "\rshort")[-1] == "short"


def test_of_a_huge_write_the_end_is_looked_at() -> None:
    skipped, lines = Partial().feed("".join(f"{n}\n" for n in range(200_000)))
    assert lines[-1] == "199999"
    assert lines[0] == str(skipped)
    assert skipped + len(lines) == 200_000
    assert sum(map(len, lines)) <= ROOM
    partial = Partial()
    partial.feed("half")
    assert partial.feed("x" * 3 * ROOM) == (0, [])  # no newline in it: one line
    assert partial.rest().startswith("halfxxx")


def test_a_draft_keeps_its_newest_lines_and_counts_the_others() -> None:
    draft = Draft()
    for number in range(10_000):
        draft.add(pack_line(1.0, "log", "info", f"{number} " + "x" * 90))
        assert draft.size <= ROOM
    first, *rest = texts(draft)
    dropped = 10_000 - len(rest)
    assert first == f"{dropped:,} lines were dropped here: they came faster than they can be stored"
    assert [line.split()[0] for line in rest] == [str(n) for n in range(dropped, 10_000)]
    assert not draft.size


def test_lines_that_did_not_get_to_a_draft_are_counted_with_the_next_one() -> None:
    draft = Draft()
    assert draft.take(0.0) is None
    draft.drop(7)
    draft.add(pack_line(1.0, "log", "info", "after"))
    missing = "7 lines were dropped here: they came faster than they can be stored"
    assert texts(draft) == [missing, "after"]
    draft.drop(7)
    assert texts(draft) == [missing]


def test_a_chunk_that_was_packed_elsewhere_goes_on_as_it_is() -> None:
    child, draft = Draft(), Draft()
    for text in "abc":
        child.add(pack_line(1.0, "stdout", "info", text))
    chunk = child.take(0.0)
    assert chunk is not None
    draft.add(pack_line(1.0, "log", "info", "before"))
    draft.forward(*chunk)
    assert texts(draft) == ["before", "a", "b", "c"]


def test_a_chunk_from_elsewhere_spoils_nothing() -> None:
    child, draft = Draft(), Draft()
    child.add(pack_line(1.0, "stdout", "info", "x" * 2 * LONGEST))
    chunk = child.take(0.0)
    assert chunk is not None
    for each in (chunk, (3, b"\xdd\0\0\0\3\1\2"), (1, pack_line(1.0, "log", "info", "no chunk"))):
        draft.forward(*each)
    draft.add(pack_line(1.0, "log", "info", "after"))
    assert texts(draft) == [
        "4 lines were dropped here: they came faster than they can be stored",
        "x" * LONGEST + f"… ({LONGEST:,} more characters were cut)",
        "after",
    ]


@pytest.mark.parametrize("text", ["nul \0", "\x1b[31mred\x1b[0m", "\udc80 lone", "é 漢 🎉", ""])
def test_any_text_travels(text: str) -> None:
    draft = Draft()
    draft.add(pack_line(1.5, "log", "info", text))
    chunk = draft.take(0.0)
    assert chunk is not None
    expected = text.encode("utf-8", "backslashreplace").decode()
    assert unpack_lines(chunk[1]) == [(1.5, "log", "info", expected)]


@pytest.mark.parametrize(
    "data", [b"", b"\x01", b"\x91\x01", b"\xdd\xff\xff\xff\xff", b"\x91\x94\x01\x02\x03\x04"]
)
def test_damaged_lines_are_an_error(data: bytes) -> None:
    with pytest.raises(MalformedValue, match="no log lines"):
        unpack_lines(data)


@pytest.mark.parametrize(
    ("done", "total", "text", "said"),
    [
        (340, 1000, "", "340/1000 (34 %)"),
        (7, None, "files", "7 files"),
        (0.5, 2.0, "", "0.5/2 (25 %)"),
        (0, 0, "", "0/0"),
        (5, 2, "", "5/2 (250 %)"),
        (1e300, 1, "", "1e+300/1 (999 %)"),
    ],
)
def test_progress_for_people(done: float, total: float | None, text: str, said: str) -> None:
    assert told(Progress(done, total, 0.0, text)) == said


def test_after_the_end_nothing_is_heard() -> None:
    SILENCE.line(None, "log", "info", "x")
    SILENCE.write(None, "stdout", "x")
    SILENCE.progress(None, 1, None, "")
    SILENCE.forward(None, 1, b"")
