"""What bodies read and write by key: on a worker and in place, for all four kinds of body."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from filing import (
    EVENTS,
    KINDS,
    each_kind,
    found,
    in_place,
    left_over,
    on_worker,
)
from filing import events as events
from filing import q as q
from filing import store as store
from planes import PATIENCE, elsewhere
from stored_jobs import plain, waiting, yielding

import lakeshore as dls

# what is written is where its key says


@each_kind
@pytest.mark.parametrize(
    "given",
    ["a.txt", ["a.txt"], ("a.txt", 1), {"name": "a.txt"}, {"deep": [("x", {"k": "./a.txt"})]}],
    ids=repr,
)
def test_a_key_that_is_returned_is_in_the_storage(
    q: dls.Dispatch, store: Path, body: Any, given: Any
) -> None:
    with dls.scope("scenes/0007"):
        on_worker(q, body, ["a.txt"], given)
        assert found(store) == {"scenes/0007/a.txt": "in a.txt"}
        (store / "scenes/0007/a.txt").unlink()
        in_place(body, ["a.txt"], given)
    assert found(store) == {"scenes/0007/a.txt": "in a.txt"}
    assert left_over(store) == []


@pytest.mark.parametrize("body", [plain, waiting], ids=lambda body: body.kind)
def test_a_key_that_is_not_returned_fails_with_the_same_words_everywhere(
    q: dls.Dispatch, store: Path, body: Any
) -> None:
    with pytest.raises(dls.KeysNotReturned, match=r"written and not returned: 'b', 'd/c'\. Return") as here:
        in_place(body, ["a", "b", "d/c"], ["a", {"b": "x"}])
    assert here.value.keys == ("b", "d/c")
    with pytest.raises(dls.InvocationFailed) as there:
        on_worker(q, body, ["a", "b", "d/c"], ["a", {"b": "x"}])
    assert (there.value.message, there.value.type) == (
        str(here.value),
        "lakeshore.core.errors.KeysNotReturned",
    )
    assert found(store) == {}
    assert left_over(store) == []


@pytest.mark.parametrize("body", [yielding], ids=lambda body: body.kind)
def test_a_generator_that_returns_something_else_must_have_yielded_its_keys(
    q: dls.Dispatch, store: Path, body: Any
) -> None:
    with pytest.raises(dls.KeysNotReturned, match="'b'"):
        in_place(body, ["a", "b"], "a")
    inv = body.submit(["a", "b"], "a", _dispatch=q)
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match="'b'"):
        q.result(inv)
    assert found(store) == {"a": "in a"}  # it was yielded


def test_the_rule_is_not_retried(q: dls.Dispatch, store: Path) -> None:
    again = dls.udf(plain.fn, retries=5)
    inv = again.submit(["a"], None, _dispatch=q)
    assert dls.run_worker(q, drain=True) == 1
    assert q.get(inv).attempt == 1


def test_a_generators_result_is_the_keys_that_it_wrote(q: dls.Dispatch, store: Path) -> None:
    @dls.udf
    def three() -> Iterator[int]:
        for number in range(3):
            with dls.scope("numbers"):
                dls.run.write(f"{number}").write_text("x")
            if number == 1:
                yield number

    with dls.scope("p"):
        inv = three.submit(_dispatch=q)
        dls.run_worker(q, once=True)
    assert q.result(inv) == ["numbers/0", "numbers/1", "numbers/2"]
    assert found(store).keys() == {"p/numbers/0", "p/numbers/1", "p/numbers/2"}

    async def slow() -> AsyncIterator[int]:
        dls.run.write("late").write_text("x")
        yield 1

    inv = dls.udf(slow).submit(_dispatch=q)
    dls.run_worker(q, once=True)
    assert q.result(inv) == ["late"]


def test_what_a_generator_did_not_write_is_not_in_its_result(q: dls.Dispatch, store: Path) -> None:
    @dls.udf
    def maybe() -> Iterator[int]:
        dls.run.write("asked for")
        dls.run.write("written").write_text("x")
        yield 1

    inv = maybe.submit(_dispatch=q)
    dls.run_worker(q, once=True)
    assert q.result(inv) == ["written"]


def test_keys_that_nobody_wrote_may_be_returned(q: dls.Dispatch, store: Path) -> None:
    for body in KINDS:
        on_worker(q, body, [], ["never", "../..", "/abs", "a\0b", "\ud800"[:0]])
        in_place(body, [], ["never", "../..", "/abs"])
    assert found(store) == {}


def test_a_path_that_was_asked_for_and_not_written(q: dls.Dispatch, store: Path) -> None:
    @dls.udf
    def forgets(returns: bool) -> Any:
        dls.run.write("x")
        return "x" if returns else None

    assert forgets(False) is None  # nothing was written: there is nothing to return
    with pytest.raises(FileNotFoundError, match=r"the key 'x' is returned.*nothing was written"):
        forgets(True)
    with pytest.raises(dls.InvocationFailed, match="nothing was written"):
        on_worker(q, forgets, True)


# while it runs


def test_a_body_sees_its_own_writes_and_nobody_else_does(q: dls.Dispatch, store: Path) -> None:
    (store / "d").mkdir()
    (store / "d/old").write_text("old")
    (store / "d/both").write_text("old")

    @dls.udf
    def body() -> list[str]:
        dls.run.write("d/new").write_text("new")
        dls.run.write("d/both").write_text("new")
        assert dls.run.read("d/new").read_text() == "new"
        assert dls.run.read("d/both").read_text() == "new"
        assert found(store) == {"d/old": "old", "d/both": "old"}
        merged = dls.run.read("d")
        assert {path.name: path.read_text() for path in merged.iterdir()} == {
            "old": "old",
            "both": "new",
            "new": "new",
        }
        return ["d/new", "d/both"]

    on_worker(q, body)
    assert found(store) == {"d/old": "old", "d/both": "new", "d/new": "new"}


def test_a_key_written_twice_has_what_came_last(q: dls.Dispatch, store: Path) -> None:
    @dls.udf
    def body() -> str:
        dls.run.write("a").write_text("first")
        with dls.run.write("a").open("a") as file:
            file.write(" and second")
        return "a"

    on_worker(q, body)
    assert found(store) == {"a": "first and second"}


def test_a_generator_may_write_a_key_anew_after_it_was_yielded(q: dls.Dispatch, store: Path) -> None:
    @dls.udf
    def body() -> Iterator[str]:
        for number in range(3):
            path = dls.run.write("latest")
            assert not path.exists()
            path.write_text(str(number))
            yield "latest"
            assert found(store) == {"latest": str(number)}

    on_worker(q, body)
    assert list(body()) == ["latest"] * 3
    assert found(store) == {"latest": "2"}


@dls.udf
def two_files() -> Iterator[str]:
    dls.run.write_all(["a", "b"])
    dls.run.write("a").write_text("x")
    dls.run.write("b").write_text("x")
    yield "a"
    assert EVENTS["seen"].wait(PATIENCE)
    yield "b"


@dls.udf
async def two_files_slowly() -> AsyncIterator[str]:
    dls.run.write("a").write_text("x")
    dls.run.write("b").write_text("x")
    yield "a"
    await anyio.to_thread.run_sync(EVENTS["seen"].wait, PATIENCE)
    yield "b"


@pytest.mark.parametrize("body", [two_files, two_files_slowly], ids=lambda body: body.kind)
def test_a_file_is_there_before_the_frame_that_names_it(
    q: dls.Dispatch, store: Path, body: Any, events: dict[str, threading.Event]
) -> None:
    inv = body.submit(_dispatch=q)
    with elsewhere(lambda: dls.run_worker(q, once=True)):
        for number, value in enumerate(q.stream(inv).values()):
            assert found(store).keys() == ({"a"} if number == 0 else {"a", "b"})
            assert value in found(store)
            events["seen"].set()


def test_folders_are_written_whole(q: dls.Dispatch, store: Path) -> None:
    @dls.udf
    def body(names: list[str]) -> str:
        folder = dls.run.write("ckpt", dir=True)
        assert list(folder.iterdir()) == []
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(name)
        assert dls.run.read("ckpt/" + names[0]).read_text() == names[0]
        with pytest.raises(dls.KeyNotFound):
            dls.run.read("ckpt/other")
        return "ckpt"

    on_worker(q, body, ["a", "d/b"])
    assert found(store) == {"ckpt/a": "a", "ckpt/d/b": "d/b"}
    on_worker(q, body, ["c"])  # in place of what was there
    assert found(store) == {"ckpt/c": "c"}
    assert sorted(path.name for path in dls.run.read("ckpt").iterdir()) == ["c"]
