"""A folder as a storage: what is particular to disks. What every storage does is in
test_storage_conformance.py."""

from __future__ import annotations

import errno
import os
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeshore.core.errors import KeyNotFound, StorageFailed
from lakeshore.storage import disk
from lakeshore.storage.folder import Folder
from lakeshore.storage.retrying import Retrying


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "files")


def staged_name(folder: Folder) -> list[str]:
    return os.listdir(folder.path / ".lakeshore" / "staged")


def source(folder: Folder, data: bytes = b"new", name: str = "source") -> Path:
    path = folder.workplace() / name
    path.write_bytes(data)
    return path


def tree(folder: Folder, **files: bytes) -> Path:
    path = folder.workplace() / "tree"
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def test_files_are_plain_and_lie_where_they_are_named(folder: Folder, tmp_path: Path) -> None:
    folder.put("scenes/0007/frame.png", b"png")
    path = folder.fetch("scenes/0007/frame.png", tmp_path / "scratch")
    assert path == tmp_path / "files" / "scenes" / "0007" / "frame.png"
    assert path.read_bytes() == b"png"
    assert not (tmp_path / "scratch").exists()
    assert folder.url == str(tmp_path / "files")


def test_a_folder_is_seen_as_it_was_when_it_was_fetched(folder: Folder, tmp_path: Path) -> None:
    folder.stage("set", tree(folder, a=b"1"), "m").publish()
    path = folder.fetch("set", tmp_path / "scratch")
    assert path.is_relative_to(tmp_path / "scratch")
    assert (path / "a").stat().st_nlink == 2  # no copy
    folder.stage("set", tree(folder, a=b"2", b=b"2"), "m").publish()
    assert [each.name for each in path.iterdir()] == ["a"]
    assert (path / "a").read_bytes() == b"1"


def test_where_links_are_not_possible_a_folder_is_copied(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*args: object, **more: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    folder.put("set/a", b"1")
    monkeypatch.setattr(os, "link", link)
    path = folder.fetch("set", tmp_path / "scratch")
    assert (path / "a").stat().st_nlink == 1
    assert (path / "a").read_bytes() == b"1"


def test_what_is_published_is_on_the_disk_itself(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    real, synced = os.fsync, list[str]()

    def fsync(descriptor: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    staged = folder.stage("new/key", source(folder), "mark")
    assert [name.rpartition("-")[0] for name in synced] == ["mark"]
    synced.clear()
    staged.publish()
    assert synced == ["files", "new"]  # the new folder's name, the file's name
    synced.clear()
    staged = folder.stage("set", tree(folder, a=b"1"), "mark")
    assert synced[0] == "a"
    assert synced[1].startswith("mark-")


# Symlinks: no key goes through one


@pytest.fixture
def linked(folder: Folder, tmp_path: Path) -> Folder:
    """`out` is a link to a folder outside, `secret` one to a file outside, `dead` leads nowhere."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_bytes(b"secret")
    (folder.path / "out").symlink_to(tmp_path / "outside")
    (folder.path / "secret").symlink_to(tmp_path / "outside" / "file")
    (folder.path / "dead").symlink_to("nowhere")
    return folder


@pytest.mark.parametrize("key", ["secret", "dead", "out", "out/file", "out/new"])
def test_nothing_is_read_through_a_symlink(linked: Folder, key: str, tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=r"is a symlink there, which keys never go through"):
        linked.fetch(key, tmp_path / "scratch")
    with pytest.raises(StorageFailed, match="is a symlink there"):
        linked.get(key)


def test_nothing_is_written_through_a_symlink(linked: Folder, tmp_path: Path) -> None:
    for key in ("out/file", "out/new/deep"):
        with pytest.raises(StorageFailed, match=rf"'{key}' in .*'out' is a symlink there"):
            linked.put(key, b"broken in")
        with pytest.raises(StorageFailed, match="is a symlink there"):
            linked.stage(key, source(linked), "m").publish()
        with pytest.raises(StorageFailed, match="is a symlink there"):
            linked.remove(key)
    linked.put("secret", b"ours")  # takes the link's place
    assert linked.get("secret") == b"ours"
    linked.remove("out")  # the link, not what it leads to
    assert not (linked.path / "out").is_symlink()
    assert [(each.name, each.read_bytes()) for each in (tmp_path / "outside").iterdir()] == [
        ("file", b"secret")
    ]


def test_nothing_is_listed_through_a_symlink(linked: Folder, tmp_path: Path) -> None:
    linked.put("real", b"1")
    assert [stored.key for stored in linked.list("")] == ["real"]
    with pytest.raises(StorageFailed, match="is a symlink there"):
        list(linked.list("out"))
    (linked.path / "data").mkdir()
    (linked.path / "data" / "link").symlink_to(tmp_path / "outside" / "file")
    with pytest.raises(StorageFailed, match="'data/link' is a symlink there"):
        linked.fetch("data", tmp_path / "scratch")


def test_a_folder_exchanged_for_a_symlink_meanwhile_leads_nowhere(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any moment of a write: nothing ever appears outside."""
    (tmp_path / "outside").mkdir()
    count = [0]
    for moment in range(40):
        (folder.path / "a").mkdir(exist_ok=True)
        count[0] = 0
        real: dict[str, Callable[..., Any]] = {
            name: getattr(os, name) for name in ("open", "stat", "replace")
        }

        def swapping(call: Callable[..., Any], moment: int = moment) -> Callable[..., Any]:
            def swapped(*args: Any, **more: Any) -> Any:
                count[0] += 1
                if count[0] == moment:
                    real_folder = folder.path / "a"
                    if real_folder.is_dir() and not real_folder.is_symlink():
                        real_folder.rename(folder.path / f"moved-{moment}")
                        real_folder.symlink_to(tmp_path / "outside")
                return call(*args, **more)

            return swapped

        with monkeypatch.context() as patch:
            for name, call in real.items():
                patch.setattr(os, name, swapping(call))
            try:
                folder.put("a/file", b"x")
            except StorageFailed as error:
                assert "symlink" in str(error)  # noqa: PT017
        if (folder.path / "a").is_symlink():
            (folder.path / "a").unlink()
    assert count[0] >= 4  # the folder, its part, what is there, the rename
    assert list((tmp_path / "outside").iterdir()) == []


def test_our_own_folder_is_no_symlink(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / ".lakeshore").symlink_to(tmp_path)
    with pytest.raises(StorageFailed, match="is a symlink: delete it"):
        Folder(tmp_path / "files")


def test_the_folder_itself_may_be_reached_by_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Folder(tmp_path / "link").put("a", b"1")
    assert (tmp_path / "real" / "a").read_bytes() == b"1"


def test_sockets_are_refused(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket may not be long
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
    with pytest.raises(StorageFailed, match="a socket was written"):
        folder.stage("key", tmp_path / "socket", "m")
    os.mkfifo(folder.path / "fifo")
    with pytest.raises(StorageFailed, match="it is a FIFO there"):
        folder.get("fifo")


# Keys that can't both be there


def test_a_file_is_no_folder(folder: Folder) -> None:
    folder.put("a", b"1")
    for write in (
        lambda: folder.put("a/b", b""),
        lambda: folder.stage("a/b/c", source(folder), "m").publish(),
    ):
        with pytest.raises(StorageFailed, match=r"'a' is a file there, so 'a/b.*' can't be in it"):
            write()
    assert folder.get("a") == b"1"


def test_a_folder_of_keys_is_not_replaced_by_a_file(folder: Folder) -> None:
    folder.put("a/b/c", b"1")
    with pytest.raises(StorageFailed, match=r"'a' is a folder there, with 'a/b' in it: remove it"):
        folder.put("a", b"")
    with pytest.raises(StorageFailed, match=r"'a' is a folder there"):  # before the body has ended
        folder.stage("a", source(folder), "m")
    assert folder.get("a/b/c") == b"1"
    assert staged_name(folder) == []


def test_a_folder_takes_the_place_of_a_file(folder: Folder, tmp_path: Path) -> None:
    folder.put("a", b"1")
    folder.stage("a", tree(folder, x=b"2"), "m").publish()
    assert [stored.key for stored in folder.list("")] == ["a/x"]
    assert staged_name(folder) == []


def test_keys_that_differ_by_case_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path, ignores_case=True)
    folder.put("Data/Frame.png", b"1")
    with pytest.raises(StorageFailed, match=r"'Data/Frame.png' is there, and 'Data/frame.PNG' differs"):
        folder.put("Data/frame.PNG", b"2")
    with pytest.raises(StorageFailed, match=r"'Data' is there, and 'DATA' differs from it by case alone"):
        folder.stage("DATA/other", source(folder), "m").publish()
    with pytest.raises(KeyNotFound):
        folder.get("data/Frame.png")
    folder.put("Data/Frame.png", b"3")
    assert folder.get("Data/Frame.png") == b"3"


def test_whether_case_counts_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Folder(tmp_path / "one").descent.ignores_case
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    assert Folder(tmp_path / "two").descent.ignores_case


# Without the exchange of Linux; other file systems; full and failing disks


def test_without_exchange_a_folder_is_never_a_mix(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.stage("set", tree(folder, a=b"1", b=b"1"), "m").publish()
    monkeypatch.setattr(disk, "_rename2", None)
    folder.stage("set", tree(folder, a=b"2"), "m").publish()
    assert [stored.key for stored in folder.list("")] == ["set/a"]
    assert staged_name(folder) != []  # what was there waits for the sweep


@pytest.mark.parametrize("kernel", [True, False])
def test_holes_of_a_file_from_another_file_system_stay_holes(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: bool
) -> None:
    real = os.rename

    def rename(one: Path, two: Path, **more: Any) -> None:
        if Path(one).parent == tmp_path:
            raise OSError(errno.EXDEV, "another file system")
        real(one, two, **more)

    def copy_file_range(*args: object) -> int:
        raise OSError(errno.EXDEV, "not here")

    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.write(b"begin")
        file.seek(5 << 30)
        file.write(b"middle")
        file.truncate(6 << 30)
    monkeypatch.setattr(os, "rename", rename)
    if not kernel:
        monkeypatch.setattr(os, "copy_file_range", copy_file_range)
    folder.stage("sparse", path, "m").publish()
    found = folder.fetch("sparse", tmp_path / "scratch")
    assert found.stat().st_size == 6 << 30
    assert found.stat().st_blocks * 512 < 1 << 20
    with found.open("rb") as file:
        assert file.read(5) == b"begin"
        file.seek(5 << 30)
        assert file.read(7) == b"middle\0"
    assert not path.exists()


def test_a_sparse_file_of_5_gib_is_only_renamed(folder: Folder, tmp_path: Path) -> None:
    path = source(folder, b"")
    os.truncate(path, 5 << 30)
    inode = path.stat().st_ino
    folder.stage("sparse", path, "m").publish()
    found = folder.fetch("sparse", tmp_path / "scratch")
    assert (found.stat().st_ino, found.stat().st_size, found.stat().st_blocks) == (inode, 5 << 30, 0)


def test_a_full_disk_is_named_and_nothing_is_there(small_disk: Path, tmp_path: Path) -> None:
    folder = Folder(small_disk / "files")
    folder.put("kept", b"1")
    (tmp_path / "big").write_bytes(bytes(6 << 20))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "big").write_bytes(bytes(6 << 20))
    for write in (
        lambda: folder.stage("big", tmp_path / "big", "m"),
        lambda: folder.stage("big", tmp_path / "tree", "m"),
        lambda: folder.put("big", bytes(6 << 20)),
    ):
        with pytest.raises(StorageFailed, match=r"'big' in .*files: no space left: make room"):
            write()
        assert staged_name(folder) == []
    assert [stored.key for stored in folder.list("")] == ["kept"]
    assert (tmp_path / "big").exists()  # so that it can be tried again


def test_a_disk_that_becomes_full(small_disk: Path) -> None:
    folder = Folder(small_disk / "files")

    def fill() -> None:
        while True:
            folder.put(f"many/{os.urandom(16).hex()}", bytes(100_000))

    with pytest.raises(StorageFailed, match="no space left"):
        fill()
    assert all(stored.size == 100_000 for stored in folder.list(""))


@pytest.mark.parametrize("failures", [2, 5])
def test_what_may_pass_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    waits: list[float] = []
    folder = Folder(tmp_path, retrying=Retrying(sleep=waits.append, draw=lambda: 1.0))
    real, left = os.replace, [failures]

    def replace(*args: Any, **more: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.EIO, "Input/output error")
        real(*args, **more)

    monkeypatch.setattr(os, "replace", replace)
    staged = folder.stage("key", source(folder), "m")
    if failures == 2:
        staged.publish()
        assert waits == [0.2, 0.4]
    else:
        with pytest.raises(StorageFailed, match=r"^'key' in .*: Input/output error$"):
            staged.publish()
        assert waits == [0.2, 0.4, 0.8, 1.6]
        staged.publish()  # may be tried again
    assert folder.get("key") == b"new"


def test_what_can_not_pass_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path, retrying=Retrying(sleep=lambda wait: pytest.fail("it waited")))
    for code, reason in [(errno.EACCES, "permission denied"), (errno.EROFS, "can only be read")]:

        def replace(*args: Any, code: int = code, **more: Any) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "replace", replace)
        with pytest.raises(StorageFailed, match=reason):
            folder.put("key", b"")
    with pytest.raises(StorageFailed, match="longer than the file system takes"):
        folder.put("x" * 300, b"")


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is no folder: name a folder"):
        Folder(tmp_path / "file")
    with pytest.raises(StorageFailed, match="Not a directory"):
        Folder(tmp_path / "file" / "inside")


def test_publishing_twice_says_so(folder: Folder) -> None:
    staged = folder.stage("key", source(folder), "m")
    staged.publish()
    with pytest.raises(StorageFailed, match="was swept, or published before"):
        staged.publish()
    assert folder.get("key") == b"new"


def test_deleting_and_writing_side_by_side(folder: Folder) -> None:
    """Folders that become empty are deleted; whoever writes into one just then makes it again."""
    folder = Folder(folder.path, durable=False, retrying=Retrying(tries=50, sleep=lambda wait: None))
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            folder.put("a/b/other", b"")
            folder.remove("a/b/other")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(100):
            folder.put("a/b/mine", b"x")
            assert folder.get("a/b/mine") == b"x"
            folder.remove("a/b/mine")
    finally:
        stop.set()
        thread.join()


def test_an_error_is_one_line(folder: Folder) -> None:
    with pytest.raises(KeyNotFound, match=re.escape(f"nothing under 'a/b' in {folder.path}")):
        folder.get("a/b")
