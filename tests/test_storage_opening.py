"""What a user may write for a storage, trying again, progress, and what is swept."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from lakeshore.core.errors import StorageFailed
from lakeshore.storage.folder import Folder
from lakeshore.storage.objects import Objects
from lakeshore.storage.opening import open_storage
from lakeshore.storage.progress import LARGE, transfer
from lakeshore.storage.retrying import Passing, Retrying
from lakeshore.storage.sweeping import sweep
from lakeshore.storage.urls import check_storage


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/data/files", "/data/files"),
        ("/data//files/", "/data/files"),
        ("file:///data/my%20files", "/data/my files"),
        ("file://localhost/data", "/data"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_a_storage_is_written_in_one_way(written: str, meant: str) -> None:
    assert check_storage(written) == meant


def test_a_relative_path_is_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/ada")
    assert check_storage("files") == str(tmp_path / "files")
    assert check_storage("~/files") == "/home/ada/files"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("", "is no storage: write a folder's path, s3://bucket/prefix"),
        ("  ", "is no storage"),
        ("a\0b", "is no storage"),
        ("ftp://host/path", r"ftp:// is no storage that is known: write a folder's path, s3://"),
        ("memory://", "memory:// is no storage that is known"),
        ("s3://", "names no bucket: write s3://bucket/prefix"),
        ("s3:///prefix", "names no bucket"),
        ("s3://bucket/a//b", "has an empty part"),
        ("s3://bucket/../other", "has an empty part, '.' or '..'"),
        ("s3://key:swordfish@bucket", "without credentials"),
        ("az://container/a?sig=swordfish", "without credentials"),
        ("file://host/path", "write file:///absolute/path"),
    ],
)
def test_what_is_no_storage_says_what_to_write(written: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        check_storage(written)
    assert "swordfish" not in str(caught.value)


def test_what_is_no_string_is_refused() -> None:
    with pytest.raises(TypeError, match="a storage is a string, not int"):
        check_storage(3)
    assert check_storage(Path("/data/x")) == "/data/x"
    assert check_storage("x", "/data") == "/data/x"


def test_one_storage_for_each_place(tmp_path: Path, home: Path) -> None:
    one = open_storage(str(tmp_path / "files"))
    assert isinstance(one, Folder)
    assert open_storage(f"file://{tmp_path}/files/") is one
    assert open_storage(str(tmp_path / "other")) is not one
    assert isinstance(open_storage("s3://bucket/one"), Objects)
    assert open_storage("s3://bucket/one/") is open_storage("s3://bucket/one")


def test_a_forked_child_opens_its_own(tmp_path: Path) -> None:
    one = open_storage(str(tmp_path))
    child = os.fork()
    if child == 0:
        os._exit(0 if open_storage(str(tmp_path)) is not one else 1)
    assert os.waitpid(child, 0)[1] == 0


# Trying again


def failing(times: int) -> tuple[list[int], object]:
    left = [times]

    def work() -> str:
        if left[0]:
            left[0] -= 1
            raise Passing(StorageFailed("key", "there", f"{left[0]} left"))
        return "done"

    return left, work


def test_waits_double_up_to_a_cap() -> None:
    waits: list[float] = []
    retrying = Retrying(tries=8, base=1.0, cap=10.0, sleep=waits.append, draw=lambda: 1.0)
    _, work = failing(7)
    assert retrying.run(work) == "done"  # type: ignore[arg-type]
    assert waits == [1, 2, 4, 8, 10, 10, 10]


def test_the_last_failure_is_raised() -> None:
    waits: list[float] = []
    _, work = failing(9)
    with pytest.raises(StorageFailed, match=r"^'key' in there: 4 left$"):
        Retrying(sleep=waits.append, draw=lambda: 0.0).run(work)  # type: ignore[arg-type]
    assert waits == [0.0] * 4


def test_what_else_is_raised_comes_out_at_once() -> None:
    def work() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        Retrying(sleep=lambda seconds: pytest.fail("it waited")).run(work)


# Progress


class Bar:
    def __init__(self) -> None:
        self.shown: list[object] = []

    def show(self, what: str, total: int) -> tuple[object, object]:
        self.shown.append((what, total))
        return self.shown.append, lambda: self.shown.append("end")


def test_a_bar_for_what_is_large_and_takes_long() -> None:
    bar, now = Bar(), [0.0]
    with transfer("up key", LARGE, show=bar.show, clock=lambda: now[0]) as advance:  # type: ignore[arg-type]
        advance(10)
        assert bar.shown == []
        now[0] = 1.5
        advance(20)
        advance(30)
    assert bar.shown == [("up key", LARGE), 30, 30, "end"]


@pytest.mark.parametrize(("size", "seconds"), [(LARGE - 1, 9.0), (LARGE, 0.9)])
def test_no_bar_for_what_is_small_or_quick(size: int, seconds: float) -> None:
    bar, now = Bar(), [0.0]
    with transfer("up key", size, show=bar.show, clock=lambda: now[0]) as advance:  # type: ignore[arg-type]
        now[0] = seconds
        advance(size)
    assert bar.shown == []


@pytest.mark.parametrize("terminal", [True, False])
def test_bars_are_at_a_terminal_alone(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    text, now = io.StringIO(), [0.0]
    monkeypatch.setattr(text, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", text)
    monkeypatch.setenv("TERM", "xterm")
    with (
        transfer("down [one]", LARGE, clock=lambda: now[0]) as one,
        transfer("down two", LARGE, clock=lambda: now[0]) as two,
    ):
        now[0] = 2.0
        one(LARGE // 2)
        two(LARGE)
    said = text.getvalue()
    assert ("down [one]" in said and "down two" in said) if terminal else said == ""


# What the dead leave behind


def test_the_sweep_takes_what_was_not_touched_for_long(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.put("kept", b"1")
    (folder.workplace() / "died").mkdir()
    (folder.workplace() / "died" / "half").write_bytes(b"x")
    source = folder.workplace() / "source"
    source.write_bytes(b"x")
    os.utime(source, (0, 0))  # written long ago, and staged just now
    staged = folder.stage("key", source, "m")
    assert sweep(folder, 3600.0) == 0
    staged.publish()
    folder.stage("other", folder.fetch("key", tmp_path), "m")
    assert sweep(folder, -1.0) == 2
    assert [stored.key for stored in folder.list("")] == ["kept"]
    assert list((tmp_path / ".lakeshore" / "staged").iterdir()) == []


def test_other_peoples_storages_sweep_themselves() -> None:
    class Other:
        pass

    assert sweep(Other(), 0.0) == 0  # type: ignore[arg-type]
