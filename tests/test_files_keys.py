"""What is a key, how keys are read, and in which storage they are."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from filing import (
    EVENTS,
    found,
    on_worker,
)
from filing import events as events
from filing import q as q
from filing import store as store
from planes import PATIENCE
from stored_jobs import plain

import lakeshore as dls
from lakeshore.sdk import verbs
from lakeshore.storage.folder import Folder


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
