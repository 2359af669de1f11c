"""What bodies read and write by key: on a worker and in place, for all four kinds of body."""

from __future__ import annotations

import contextvars
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from planes import PATIENCE, elsewhere

import lakeshore as dls
from lakeshore.core.errors import Overtaken
from lakeshore.sdk import verbs
from lakeshore.storage.files import Files
from lakeshore.storage.folder import Folder


@dls.udf
def plain(keys: Any, given: Any) -> Any:
    for key in keys:
        dls.run.write(key).write_text(f"in {key}")
    return given


@dls.udf
async def waiting(keys: Any, given: Any) -> Any:
    for key in keys:
        dls.run.write(key).write_text(f"in {key}")
    await anyio.lowlevel.checkpoint()
    return given


@dls.udf
def yielding(keys: Any, given: Any) -> Iterator[Any]:
    for key in keys:
        dls.run.write(key).write_text(f"in {key}")
    yield given
    return ()


@dls.udf
async def yielding_slowly(keys: Any, given: Any) -> AsyncIterator[Any]:
    for key in keys:
        dls.run.write(key).write_text(f"in {key}")
    yield given


KINDS = [plain, waiting, yielding, yielding_slowly]
each_kind = pytest.mark.parametrize("body", KINDS, ids=lambda body: body.kind)


def in_place(body: Any, *args: Any) -> Any:
    """What a body gives that is called here."""
    if body.kind == "sync":
        return body(*args)
    if body.kind == "generator":
        return list(body(*args))

    async def run() -> Any:
        if body.kind == "async":
            return await body(*args)
        return [value async for value in body(*args)]

    return anyio.run(run)


def on_worker(q: dls.Dispatch, body: Any, *args: Any) -> Any:
    """What it gives that is submitted."""
    inv = body.submit(*args, _dispatch=q)
    assert dls.run_worker(q, once=True) == 1
    result = q.result(inv, timeout=PATIENCE)
    return list(q.stream(inv).values()) if "generator" in body.kind else result


@pytest.fixture(params=["memory on asyncio", "a file on trio"])
def q(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dls.Dispatch]:
    """Half of the four planes: what differs between loops and stores is tested elsewhere."""
    if request.param.startswith("memory"):
        address, backend = ":memory:", "asyncio"
    else:
        address, backend = str(tmp_path / "plane.db"), "trio"
    with dls.Dispatch(address, backend=backend) as dispatch:
        yield dispatch


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of what runs here, and of workers that are told nothing else."""
    folder = tmp_path / "store"
    folder.mkdir()
    monkeypatch.setenv("LAKESHORE_ROOT", str(folder))
    monkeypatch.setattr("lakeshore.sdk.current._made", [])  # what other tests have left open
    return folder


def found(folder: Path) -> dict[str, str]:
    """Every file by key, but for Lakeshore's own."""
    files: dict[str, str] = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".lakeshore"]
        for name in names:
            path = Path(where, name)
            files[str(path.relative_to(folder))] = path.read_text()
    return files


def left_over(folder: Path) -> list[Path]:
    """Files that are on their way, and folders of attempts."""
    own = folder / ".lakeshore"
    return [path for part in ("work", "staged") if (own / part).is_dir() for path in (own / part).iterdir()]


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


EVENTS = {name: threading.Event() for name in ("seen", "written")}


@pytest.fixture
def events() -> dict[str, threading.Event]:
    for event in EVENTS.values():
        event.clear()
    return EVENTS


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


# attempts that come to nothing


def test_a_body_that_fails_leaves_nothing_and_its_retry_begins_clean(q: dls.Dispatch, store: Path) -> None:
    paths: list[Path] = []

    @dls.udf(retries=1, retry_delay=0.01)
    def body() -> str:
        if dls.run.attempt == 2:
            assert found(store) == {}
            with pytest.raises(dls.KeyNotFound):
                dls.run.read("a")
        path = dls.run.write("a")
        assert not path.exists()
        path.write_text(f"attempt {dls.run.attempt}")
        paths.append(path)
        if dls.run.attempt == 1:
            raise ValueError("no")
        return "a"

    inv = body.submit(_dispatch=q)
    dls.run_worker(q, drain=True)
    assert q.result(inv) == "a"
    assert found(store) == {"a": "attempt 2"}
    assert paths[0] != paths[1]
    assert left_over(store) == []


@each_kind
def test_a_body_that_raises_in_place_leaves_nothing(store: Path, body: Any) -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    @dls.udf
    def fails() -> str:
        in_place(body, ["a"], "a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()  # what it called in place is a part of it
    assert found(store) == {}
    assert left_over(store) == []


@dls.udf
def until_stopped() -> str:
    dls.run.write("a").write_text("x")
    EVENTS["written"].set()
    while not dls.run.cancelled:
        EVENTS["seen"].wait(0.01)
    raise InterruptedError


@dls.udf
async def until_cancelled() -> str:
    dls.run.write("a").write_text("x")
    EVENTS["written"].set()
    await anyio.sleep_forever()
    return "a"


@pytest.mark.parametrize("body", [until_stopped, until_cancelled], ids=lambda body: body.kind)
@pytest.mark.parametrize("why", ["kill", "timeout"])
def test_a_stopped_attempt_leaves_nothing_under_its_keys(
    q: dls.Dispatch, store: Path, body: Any, why: str, events: dict[str, threading.Event]
) -> None:
    inv = body.submit(_dispatch=q, _timeout=0.2 if why == "timeout" else None)
    with elsewhere(lambda: dls.run_worker(q, once=True)):
        assert events["written"].wait(PATIENCE)
        if why == "kill":
            with suppress(dls.Conflict):  # a body that looks may end by itself first
                q.kill(inv, running=True)
        with pytest.raises(dls.Unsuccessful):
            q.result(inv, timeout=PATIENCE)
    assert found(store) == {}


def files_of(store: Path, mark: str) -> tuple[Files, Folder]:
    return Files(mark, ""), Folder(store)


def test_an_attempt_that_was_overtaken_publishes_nothing(store: Path) -> None:
    files, folder = files_of(store, "old")
    files.write(folder, "a", "a", "a", folder=False).write_text("old")
    with pytest.raises(Overtaken):
        files.complete("a", lambda: False)
    files.discard()
    assert found(store) == {}
    assert left_over(store) == []


def test_an_attempt_that_is_given_up_in_the_middle_publishes_nothing(store: Path) -> None:
    files, folder = files_of(store, "old")
    files.write(folder, "a", "a", "a", folder=False).write_text("old")

    def clear() -> bool:
        files.discard()  # on another thread, say
        return False

    with pytest.raises(Overtaken):
        files.complete("a", clear)
    assert found(store) == {}
    assert left_over(store) == []
    with pytest.raises(dls.StorageFailed, match="reads and writes nothing more"):
        files.write(folder, "b", "b", "b", folder=False)


def test_of_two_that_write_one_key_the_last_complete_one_stands(store: Path) -> None:
    (one, folder), (two, _) = files_of(store, "one"), files_of(store, "two")
    one.write(folder, "a", "a", "a", folder=False).write_text("one" * 1000)
    two.write(folder, "a", "a", "a", folder=False).write_text("two")
    one.complete("a", lambda: True)
    assert found(store) == {"a": "one" * 1000}
    two.complete("a", lambda: True)
    assert found(store) == {"a": "two"}


@pytest.mark.parametrize("where", ["stage", "publish"])
@each_kind
def test_a_storage_that_fails_fails_the_invocation_and_names_the_key(
    q: dls.Dispatch, store: Path, monkeypatch: pytest.MonkeyPatch, body: Any, where: str
) -> None:
    stage = Folder.stage

    def broken(self: Folder, key: str, source: Path, mark: str) -> Any:
        if where == "stage" and key == "b":
            raise dls.StorageFailed(key, self.url, "it is broken")
        staged = stage(self, key, source, mark)
        if key == "b":
            monkeypatch.setattr(staged, "publish", lambda: broken_publish(self, key))
        return staged

    def broken_publish(self: Folder, key: str) -> None:
        raise dls.StorageFailed(key, self.url, "it is broken")

    monkeypatch.setattr(Folder, "stage", broken)
    inv = body.submit(["a", "b"], ["a", "b"], _dispatch=q)
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match=r"'b' in .*store: it is broken"):
        q.result(inv)
    assert "b" not in found(store)
    assert left_over(store) == []


@dls.udf
def stubborn_after(keys: list[str]) -> Iterator[str]:
    """Its files can't be stored; and then it takes its time."""
    try:
        for key in keys:
            dls.run.write(key).write_text("x")
        yield keys[0]
    finally:
        EVENTS["written"].set()
        while not dls.run.cancelled:
            EVENTS["seen"].wait(0.01)


def test_a_body_whose_frame_can_not_be_stored_may_still_be_stopped(
    q: dls.Dispatch, store: Path, monkeypatch: pytest.MonkeyPatch, events: dict[str, threading.Event]
) -> None:
    def broken(self: Folder, key: str, staged: Path, is_folder: bool) -> None:
        raise dls.StorageFailed(key, self.url, "it is broken")

    monkeypatch.setattr(Folder, "publish", broken)
    inv = stubborn_after.submit(["a"], _dispatch=q)
    with elsewhere(lambda: dls.run_worker(q, once=True)):
        assert events["written"].wait(PATIENCE)
        with suppress(dls.Conflict):
            q.kill(inv, running=True)
        with pytest.raises(dls.Unsuccessful):
            q.result(inv, timeout=PATIENCE)


def test_what_is_staged_as_the_attempt_ends_goes_too(store: Path) -> None:
    files, folder = files_of(store, "old")
    files.write(folder, "a", "a", "a", folder=False).write_text("old")
    stage, begun, go = folder.stage, threading.Event(), threading.Event()

    def slow(key: str, source: Path, mark: str) -> Any:
        begun.set()
        assert go.wait(PATIENCE)
        return stage(key, source, mark)

    folder.stage = slow  # type: ignore[method-assign]
    errors: list[BaseException] = []

    def publishes() -> None:
        try:
            files.complete("a", lambda: True)
        except Overtaken as error:
            errors.append(error)

    publishing = threading.Thread(target=publishes)
    publishing.start()
    assert begun.wait(PATIENCE)
    discarding = threading.Thread(target=files.discard)
    discarding.start()
    files.close()
    go.set()
    publishing.join()
    discarding.join()
    assert len(errors) == 1
    assert (found(store), left_over(store)) == ({}, [])


def test_of_several_keys_none_is_published_once_the_attempt_is_anothers(store: Path) -> None:
    files, folder = files_of(store, "old")
    for key in ("a", "b"):
        files.write(folder, key, key, key, folder=False).write_text("old")
    publish = folder.publish

    def once(key: str, staged: Path, is_folder: bool) -> None:
        publish(key, staged, is_folder)
        files.close()

    folder.publish = once  # type: ignore[method-assign]
    with pytest.raises(Overtaken):
        files.complete(["a", "b"], lambda: True)
    files.discard()
    assert (len(found(store)), left_over(store)) == (1, [])


def test_what_a_body_leaves_behind_writes_no_files(q: dls.Dispatch, store: Path) -> None:
    errors: list[BaseException] = []
    go, done = threading.Event(), threading.Event()

    def late() -> None:
        try:
            assert go.wait(PATIENCE)
            dls.run.write("z")
        except BaseException as error:
            errors.append(error)
        done.set()

    def body() -> None:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(late,)).start()

    with dls.Dispatch(":memory:") as memory:
        memory.submit(body)
        dls.run_worker(memory, once=True)
    go.set()
    assert done.wait(PATIENCE)
    assert "the body has ended" in str(errors[0])


def test_a_folder_that_was_deleted_is_made_again(q: dls.Dispatch, store: Path) -> None:
    on_worker(q, plain, ["a"], "a")
    shutil.rmtree(store)
    on_worker(q, plain, ["b"], "b")
    assert found(store) == {"b": "in b"}


# keys


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("/etc/passwd", "relative path"),
        ("a\\b", "forward slashes"),
        ("a\0b", "relative path"),
        ("", "empty part"),
        ("a//b", "empty part"),
        ("a/", "empty part"),
        ("../../../x", "climbs out of the root"),
        ("\ud800", "surrogate"),
        (".", "names? something|no key"),
        ("../../.lakeshore/x", "Lakeshore's own"),
        ("x" * 300, "too long"),
        ("x/" * 600 + "x", "too long"),
    ],
)
def test_what_is_no_key_says_so(store: Path, key: str, says: str) -> None:
    @dls.udf
    def body(reads: bool) -> Any:
        return dls.run.read(key) if reads else dls.run.write(key)

    for reads in (True, False):
        with dls.scope("a/b" if key != "." else "."), pytest.raises(ValueError, match=says):
            body(reads)


def test_keys_climb_to_parents_of_the_scope(q: dls.Dispatch, store: Path) -> None:
    @dls.udf
    def body() -> list[str]:
        dls.run.write("../shared").write_text("x")
        with dls.scope("inner"):
            assert dls.run.prefix == "a/b/inner"
            dls.run.write("own").write_text("x")
        return ["../shared", "inner/own"]

    with dls.scope("a"), dls.scope("b"):
        on_worker(q, body)
        assert dls.run.read("../shared") == store / "a/shared"
        assert body() == ["../shared", "inner/own"]
    assert found(store).keys() == {"a/shared", "a/b/inner/own"}


@pytest.mark.parametrize(("first", "second"), [("a", "a/b"), ("a/b", "a"), ("x", "X")])
def test_keys_that_can_not_both_be_there(store: Path, first: str, second: str) -> None:
    @dls.udf
    def body() -> Any:
        dls.run.write(first).write_text("x")
        dls.run.write(second)

    with pytest.raises(ValueError, match="can't both be written"):
        body()


def test_a_key_is_a_file_or_a_folder(store: Path) -> None:
    @dls.udf
    def body(dir: bool) -> Any:
        dls.run.write("a", dir=dir)
        dls.run.write("a", dir=not dir)

    for dir in (True, False):
        with pytest.raises(ValueError, match="use another key"):
            body(dir)


def test_what_is_no_string_is_no_key(store: Path) -> None:
    wrong: Any = 3

    @dls.udf
    def body(call: str) -> Any:
        return getattr(dls.run, call)(wrong)

    for call in ("read", "write", "read_all", "write_all"):
        with pytest.raises(TypeError, match="string"):
            body(call)


def test_many_keys_mirror_their_shape(q: dls.Dispatch, store: Path) -> None:
    keys = {"one": "a", "more": ["b", ("c",)], "none": []}

    @dls.udf
    def writes() -> Any:
        paths = dls.run.write_all(keys)
        assert (type(paths["more"]), type(paths["more"][1])) == (list, tuple)
        for name, path in (("a", paths["one"]), ("b", paths["more"][0]), ("c", paths["more"][1][0])):
            path.write_text(name)
        return keys

    assert on_worker(q, writes) == keys
    read: Any = dls.run.read_all(keys)
    assert read == {"one": store / "a", "more": [store / "b", (store / "c",)], "none": []}
    assert dls.run.read_all("a") == store / "a"


async def _reads_slowly() -> Any:
    return [(await dls.run.aread("a")).read_text(), (await dls.run.aread_all(["a"]))[0].read_text()]


def test_asynchronous_reads(q: dls.Dispatch, store: Path) -> None:
    (store / "a").write_text("x")
    assert on_worker(q, dls.udf(_reads_slowly)) == ["x", "x"]


# where it is


def test_outside_of_bodies(store: Path) -> None:
    (store / "a").write_text("x")
    assert dls.run.read("a").read_text() == "x"
    with pytest.raises(dls.KeyNotFound, match=r"nothing under 'b' in .*store"):
        dls.run.read("b")
    with pytest.raises(RuntimeError, match="inside a udf"):
        dls.run.write("a")
    assert not dls.run


def test_a_place_of_its_own(store: Path) -> None:
    @dls.udf(queue="mine")
    def body() -> Any:
        assert dls.run
        return (
            dls.run.id,
            dls.run.attempt,
            dls.run.queue,
            dls.run.namespace,
            dls.run.prefix,
            dls.run.cancelled,
        )

    with dls.scope("p"):
        id, *rest = body.local()
    assert len(id) == 26
    assert rest == [1, "mine", "default", "p", False]
    assert body.local()[0] != id


def test_generators_in_place_keep_what_is_theirs(store: Path) -> None:
    @dls.udf
    def body(name: str) -> Iterator[str]:
        for number in range(2):
            dls.run.write(f"{name}{number}").write_text(dls.run.prefix)
            yield f"{name}{number}"

    with dls.scope("one"):
        one = body("a")
    with dls.scope("two"):
        two = body("b")
    assert [next(one), next(two), next(two), next(one)] == ["a0", "b0", "b1", "a1"]
    assert not dls.run  # between two steps no body runs here
    assert found(store) == {"one/a0": "one", "one/a1": "one", "two/b0": "two", "two/b1": "two"}


def test_scopes_in_a_generator_in_place_are_its_own(store: Path, backend: str) -> None:
    seen: list[str] = []

    @dls.udf
    def body() -> Iterator[str]:
        with dls.scope("inner"):
            yield dls.run.prefix
            yield dls.run.prefix

    @dls.udf
    async def later() -> AsyncIterator[str]:
        try:
            with dls.scope("inner"):
                yield dls.run.prefix
                yield dls.run.prefix
        finally:
            seen.append(dls.run.id)

    with dls.scope("outer"):
        running: Any = body()
        assert next(running) == "outer/inner"
        assert dls.run.prefix == "outer"
    assert next(running) == "outer/inner"
    running.close()
    assert dls.run.prefix == ""

    async def main() -> None:
        with dls.scope("outer"):
            running: Any = later()
            assert await anext(running) == "outer/inner"
            assert dls.run.prefix == "outer"
        assert await anext(running) == "outer/inner"
        await running.aclose()
        assert dls.run.prefix == ""

    anyio.run(main, backend=backend)
    assert len(seen) == 1


def test_an_asynchronous_read_can_be_cancelled(
    q: dls.Dispatch, store: Path, monkeypatch: pytest.MonkeyPatch, events: dict[str, threading.Event]
) -> None:
    def stuck(self: Folder, key: str, scratch: Path) -> Path:
        assert EVENTS["seen"].wait(PATIENCE)
        return scratch

    monkeypatch.setattr(Folder, "fetch", stuck)
    inv = dls.udf(_reads_slowly, timeout=0.1).submit(_dispatch=q)
    assert dls.run_worker(q, once=True) == 1
    with pytest.raises(dls.InvocationTimeout):
        q.result(inv)
    events["seen"].set()


def test_a_generator_in_place_takes_what_is_sent_and_thrown(store: Path) -> None:
    log: list[Any] = []

    @dls.udf
    def body() -> Iterator[Any]:
        try:
            log.append((yield "a"))
            yield "b"
        except KeyError:
            log.append("thrown")
            yield "c"
        finally:
            log.append("closed")

    running: Any = body()
    assert next(running) == "a"
    assert running.send("sent") == "b"
    assert running.throw(KeyError) == "c"
    running.close()
    assert log == ["sent", "thrown", "closed"]


def test_an_async_generator_in_place_takes_what_is_sent_and_thrown(store: Path, backend: str) -> None:
    log: list[Any] = []

    @dls.udf
    async def body() -> AsyncIterator[Any]:
        try:
            log.append((yield "a"))
            yield "b"
        except KeyError:
            log.append("thrown")
            yield "c"
        finally:
            log.append("closed")

    async def main() -> None:
        running: Any = body()
        assert await anext(running) == "a"
        assert await running.asend("sent") == "b"
        assert await running.athrow(KeyError) == "c"
        await running.aclose()

    anyio.run(main, backend=backend)
    assert log == ["sent", "thrown", "closed"]


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_storage_of_a_plane_of_a_namespace_and_of_a_queue(
    tmp_path: Path, backend: Any, scheme: str, store: Path
) -> None:
    def place(name: str) -> str:
        return f"{scheme}{tmp_path / name}"

    plane_db = str(tmp_path / "plane.db")
    with dls.Dispatch(plane_db, storage=place("plane"), backend=backend) as q:
        on_worker(q, plain, ["a"], "a")
        assert dls.run.read("a") == tmp_path / "plane/a"
        assert q.run(verbs.set_storage(place("space"))) == str(tmp_path / "space")
        on_worker(q, plain, ["b"], "b")
        assert q.queues.add("own", storage=place("queue")).storage == str(tmp_path / "queue")
        on_worker(q, dls.udf(plain.fn, queue="own"), ["c"], "c")
        q.queues.patch("own", storage=None)
        on_worker(q, dls.udf(plain.fn, queue="own"), ["d"], "d")
    with dls.Dispatch(plane_db, storage=place("plane"), backend=backend) as q:
        on_worker(q, plain, ["e"], "e")  # what was set is stored
        assert q.run(verbs.set_storage(None)) == str(tmp_path / "plane")

        @dls.udf
        def anchored() -> list[str]:
            with dls.scope("deep", root=place("anchor")), dls.scope("er"):
                dls.run.write("f").write_text("x")
            return ["f"]

        on_worker(q, anchored)
    where = {name: found(tmp_path / name).keys() for name in ("plane", "space", "queue", "anchor")}
    assert where == {"plane": {"a"}, "space": {"b", "d", "e"}, "queue": {"c"}, "anchor": {"deep/er/f"}}
    assert found(store) == {}


def test_a_worker_without_a_storage_has_its_own_root(tmp_path: Path, backend: Any) -> None:
    with dls.Dispatch(":memory:", backend=backend) as q:
        with dls.scope("p", root=tmp_path / "submitters"):  # the root does not travel
            plain.submit(["a"], "a", _dispatch=q)
        dls.run_worker(q, once=True, root=tmp_path / "workers")
    assert found(tmp_path / "workers") == {"p/a": "in a"}
