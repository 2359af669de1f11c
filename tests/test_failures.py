from __future__ import annotations

import threading
import traceback
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from lakeshore.core.failures import describe
from lakeshore.core.rows import Failure


def caught(exc: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise exc from cause
    except BaseException as error:
        return error


def sent(failure: Failure) -> Failure:
    return msgpack.decode(msgpack.encode(failure), type=Failure)


class TwoArguments(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Exits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class NotText(Exception):
    def __str__(self) -> Any:
        return 7


class OddText(str):
    def encode(self, *args: Any) -> Any:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


class GivesOddText(Exception):
    def __str__(self) -> str:
        return OddText("fine")


class BadNotes(Exception):
    @property
    def __notes__(self) -> Any:
        raise KeyError("no")


class BadCause(Exception):
    @property
    def __cause__(self) -> Any:
        raise ValueError("no")

    @property
    def __context__(self) -> Any:
        return "not an exception"


class BadTraceback(Exception):
    @property
    def __traceback__(self) -> Any:
        raise ValueError("no")


class BadRepr(Exception):
    def __repr__(self) -> str:
        raise ValueError("no")


class Endless(Exception):
    def __str__(self) -> str:
        return str(self)


class BadGroup(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        raise ValueError("no")


def test_a_plain_exception() -> None:
    failure = describe(caught(ValueError("bad lr")))
    assert (failure.type, failure.message) == ("builtins.ValueError", "bad lr")
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert "raise exc from cause" in failure.traceback
    assert failure.traceback.endswith("ValueError: bad lr\n")
    assert (failure.notes, failure.cause, failure.leaves) == ((), None, ())


def test_the_type_is_module_and_qualified_name() -> None:
    class Local(Exception):
        pass

    assert describe(TwoArguments(1, 2)).type == f"{__name__}.TwoArguments"
    assert describe(TwoArguments(1, 2)).message == "1 and 2"
    name = "test_the_type_is_module_and_qualified_name.<locals>.Local"
    assert describe(Local()).type == f"{__name__}.{name}"
    Local.__module__ = 3  # type: ignore[assignment]
    assert describe(Local()).type == name


@pytest.mark.parametrize("exc", [SystemExit(2), KeyboardInterrupt(), StopIteration(5), GeneratorExit()])
def test_exceptions_that_end_things_are_described_too(exc: BaseException) -> None:
    assert sent(describe(caught(exc))).type == f"builtins.{type(exc).__name__}"


@pytest.mark.parametrize(
    ("exc", "message"),
    [
        (Unprintable(), "<unprintable Unprintable>"),
        (Exits(), "<unprintable Exits>"),
        (NotText(), "<unprintable NotText>"),
        (Endless(), "<unprintable Endless>"),
        (GivesOddText(), "fine"),
        (BadNotes("x"), "x"),
        (BadCause("x"), "x"),
        (BadTraceback("x"), "x"),
        (BadRepr("x"), "x"),
        (BadGroup("x", [ValueError()]), None),
        (ValueError(threading.Lock()), None),
        (ValueError("\ud800"), "\\ud800"),
        (ValueError("nul \0"), "nul \0"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), None),
        (SyntaxError("x", ("f", 1, 1, "text")), None),
    ],
)
def test_nothing_an_exception_does_is_raised(exc: BaseException, message: str | None) -> None:
    failure = sent(describe(caught(exc)))
    assert message is None or failure.message == message
    assert failure.traceback.splitlines()


def test_notes() -> None:
    exc = ValueError("x")
    exc.add_note("first")
    exc.add_note("\ud800")
    assert describe(exc).notes == ("first", "\\ud800")
    assert "first" in describe(exc).traceback


@pytest.mark.parametrize(
    ("notes", "expected"),
    [("one", ("one",)), ([1, Unprintable()], ("1", "<unprintable Unprintable>")), (None, ()), (7, ("7",))],
)
def test_odd_notes(notes: object, expected: tuple[str, ...]) -> None:
    exc = ValueError("x")
    exc.__notes__ = notes  # type: ignore[assignment]
    assert describe(exc).notes == expected


def test_many_notes_are_bounded() -> None:
    exc = ValueError("x")
    for i in range(100):
        exc.add_note(str(i))
    assert describe(exc).notes == tuple(map(str, range(64)))
    for i in range(10):
        exc.__notes__[i] = str(i) * 20_000
    notes = describe(exc).notes
    assert sum(len(note.encode()) for note in notes) <= (64 << 10) + 50
    assert [note[0] for note in notes] == ["0", "1", "2", "3", "…"]


def test_causes() -> None:
    root = caught(KeyError("root"))
    failure = describe(caught(RuntimeError("top"), caught(ValueError("middle"), root)))
    assert failure.cause is not None
    assert failure.cause.type == "builtins.ValueError"
    assert failure.cause.cause is not None
    assert failure.cause.cause.message == "'root'"
    assert failure.cause.cause.cause is None
    assert "direct cause" in failure.traceback
    assert "direct cause" not in failure.cause.traceback  # its own is one deeper


def test_context_unless_suppressed() -> None:
    def fail(suppress: bool) -> None:
        try:
            raise KeyError("first")
        except KeyError:
            if suppress:
                raise ValueError("second") from None
            raise ValueError("second")  # noqa: B904

    with pytest.raises(ValueError, match="second") as shown:
        fail(suppress=False)
    assert describe(shown.value).cause == describe(shown.value.__context__ or KeyError())
    with pytest.raises(ValueError, match="second") as hidden:
        fail(suppress=True)
    assert describe(hidden.value).cause is None


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    failure = sent(describe(first))
    assert failure.cause is not None
    assert failure.cause.message == "b"
    assert failure.cause.cause is None
    first.__cause__ = first
    assert describe(first).cause is None


def test_a_long_chain_is_bounded() -> None:
    exc: BaseException = ValueError("0")
    for i in range(1, 50):
        exc = caught(ValueError(str(i)), exc)
    failure, length = sent(describe(exc)), 0
    while failure.cause is not None:
        failure, length = failure.cause, length + 1
    assert length == 16


def test_leaves_are_flattened_in_order() -> None:
    inner = BaseExceptionGroup("inner", [ValueError("b"), caught(KeyError("c"))])
    group = BaseExceptionGroup("outer", [caught(OSError("a")), inner, KeyboardInterrupt()])
    failure = sent(describe(caught(group)))
    assert [leaf.type.rpartition(".")[2] for leaf in failure.leaves] == [
        "OSError",
        "ValueError",
        "KeyError",
        "KeyboardInterrupt",
    ]
    assert "raise exc from cause" in failure.leaves[0].traceback
    assert failure.type == "builtins.BaseExceptionGroup"


def test_many_leaves_are_bounded() -> None:
    group = ExceptionGroup("many", [ExceptionGroup("x", [ValueError(str(i))]) for i in range(200)])
    assert [leaf.message for leaf in describe(group).leaves] == [str(i) for i in range(64)]


def test_deeply_nested_groups_are_bounded() -> None:
    group: Any = ValueError("deep")
    for _ in range(3000):
        group = ExceptionGroup("g", [group])
    failure = sent(describe(caught(group)))
    assert failure.type == "builtins.ExceptionGroup"
    assert "ExceptionGroup" in failure.traceback


def test_long_text_is_cut_in_the_middle() -> None:
    exc = ValueError("start" + "é" * 100_000 + "end")
    exc.add_note("n" * 100_000)
    failure = describe(caught(exc, caught(ValueError("c" * 100_000))))
    assert failure.message.startswith("start")
    assert failure.message.endswith("end")
    assert "bytes cut" in failure.message
    assert len(failure.message.encode()) <= 16 << 10
    assert len(failure.traceback.encode()) <= 64 << 10
    assert failure.traceback.startswith("Traceback")
    assert failure.cause is not None
    assert len(failure.cause.message.encode()) <= 4 << 10
    assert len(failure.cause.traceback.encode()) <= 8 << 10


def test_text_at_the_limit_is_whole() -> None:
    assert describe(ValueError("x" * (16 << 10))).message == "x" * (16 << 10)
    assert "bytes cut" in describe(ValueError("x" * ((16 << 10) + 1))).message


def test_our_own_frames_are_left_out() -> None:
    def ours() -> None:
        theirs()

    def theirs() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x") as caught_here:
        ours()
    whole = describe(caught_here.value).traceback
    assert "in ours" in whole
    assert "in theirs" in whole
    cut = describe(caught_here.value, skip_frames=2).traceback
    assert "in ours" not in cut
    assert "in theirs" in cut
    assert describe(caught_here.value, skip_frames=99).traceback == "ValueError: x\n"
    assert "in ours" in "".join(traceback.format_exception(caught_here.value))  # untouched


@given(st.text(st.characters(codec=None), max_size=50), st.lists(st.text(st.characters()), max_size=3))
def test_any_text_can_be_sent(message: str, notes: list[str]) -> None:
    exc = ValueError(message)
    for note in notes:
        exc.add_note(note)
    failure = describe(exc)
    assert sent(failure) == failure


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_errors_of_a_task_group_read_the_same_on_both_loops(backend: str) -> None:
    async def fail() -> None:
        raise ValueError("x")

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    with pytest.raises(ExceptionGroup) as caught_group:
        anyio.run(main, backend=backend)
    failure = describe(ExceptionGroup("mine", [caught_group.value]))
    assert failure.message == "mine (1 sub-exception)"
    assert describe(caught_group.value).message == "errors in a task group (1 sub-exception)"
    cause = describe(caught(RuntimeError(), caught_group.value)).cause
    assert cause is not None
    assert cause.message == "errors in a task group (1 sub-exception)"
