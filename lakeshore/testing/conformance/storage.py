"""What every `ports.Storage` must do.

class TestMyStorage(StorageConformance):
    @pytest.fixture
    def storage(self, tmp_path):
        return MyStorage(tmp_path / "files")
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest

from lakeshore.core.errors import KeyNotFound, StorageFailed
from lakeshore.core.ports import Staged, Storage

KEYS = ("a", "b.txt", "with blank/and +%#&?=.bin", "überall/日本/😀.png", ".hidden/x", "UPPER/lower")


class StorageConformance:
    """Bring a fixture `storage` that gives an empty one.

    Attributes:
        many: small files that are listed.
        large: bytes of a file that is moved in parts, if the storage has such.
        rounds: times that a folder is replaced while it is read.
    """

    many: ClassVar[int] = 10_000
    large: ClassVar[int] = 3 << 20
    rounds: ClassVar[int] = 20

    @pytest.fixture
    def storage(self) -> Storage:
        """An empty storage."""
        raise NotImplementedError

    def stage_file(self, storage: Storage, key: str, data: bytes, mark: str = "id-1") -> Staged:
        """Have a file on its way."""
        source = storage.workplace() / f"{random.getrandbits(64):x}"
        source.write_bytes(data)
        return storage.stage(key, source, mark)

    def stage_folder(self, storage: Storage, key: str, files: dict[str, bytes], mark: str = "id-1") -> Staged:
        """Have a folder on its way."""
        source = storage.workplace() / f"{random.getrandbits(64):x}"
        source.mkdir()
        for name, data in files.items():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(data)
        return storage.stage(key, source, mark)

    def read(self, storage: Storage, key: str, scratch: Path) -> bytes | dict[str, bytes]:
        """What is at a key: a file's bytes, or a folder's files."""
        path = storage.fetch(key, scratch)
        if path.is_file():
            return path.read_bytes()
        return {
            each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*") if each.is_file()
        }

    def keys(self, storage: Storage, prefix: str = "") -> list[str]:
        """The keys that are listed."""
        return [stored.key for stored in storage.list(prefix)]

    @pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 300], ids=["empty", "one", "some"])
    def test_bytes_are_kept(self, storage: Storage, data: bytes, tmp_path: Path) -> None:
        storage.put("some/key", b"before, and longer" * 9)
        storage.put("some/key", data)
        assert storage.get("some/key") == data
        assert self.read(storage, "some/key", tmp_path / "scratch") == data
        (stored,) = storage.list("")
        assert (stored.key, stored.size) == ("some/key", len(data))
        assert stored.modified_at > 1e9

    def test_names_of_all_kinds(self, storage: Storage, tmp_path: Path) -> None:
        for key in KEYS:
            storage.put(key, key.encode())
        assert self.keys(storage) == sorted(KEYS)
        for key in KEYS:
            assert storage.get(key) == key.encode()
            assert storage.fetch(key, tmp_path / "scratch").name == key.rpartition("/")[2]

    @pytest.mark.parametrize("key", ["nothing", "nothing/at/all", "file/inside"])
    def test_what_is_not_there(self, storage: Storage, key: str, tmp_path: Path) -> None:
        storage.put("file", b"")
        storage.remove(key)
        with pytest.raises(KeyNotFound, match=key):
            storage.get(key)
        with pytest.raises(KeyNotFound, match=key):
            storage.fetch(key, tmp_path / "scratch")
        assert self.keys(storage, key) == []
        assert storage.get("file") == b""

    @pytest.mark.parametrize("key", ["", "/abs", "a//b", "../up", "a/../../b", "a/", "."])
    def test_what_is_no_key(self, storage: Storage, key: str, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="no key"):
            storage.put(key, b"")
        with pytest.raises(ValueError, match="no key"):
            storage.fetch(key, tmp_path / "scratch")

    def test_a_list_is_of_folders(self, storage: Storage) -> None:
        for key in ("a/x", "a/b/y", "a.b", "ab/z", "a-", ".lakeshore/payloads/1"):
            storage.put(key, b"1")
        assert self.keys(storage) == ["a-", "a.b", "a/b/y", "a/x", "ab/z"]
        assert self.keys(storage, "a") == self.keys(storage, "a/") == ["a/b/y", "a/x"]
        assert self.keys(storage, ".lakeshore/payloads") == [".lakeshore/payloads/1"]

    def test_remove_takes_a_file_or_a_folder(self, storage: Storage) -> None:
        for key in ("a/b/c", "a/b/d/e", "a/bb", "f"):
            storage.put(key, b"1")
        storage.remove("a/b")
        storage.remove("f")
        assert self.keys(storage) == ["a/bb"]
        storage.remove("a/bb")
        assert self.keys(storage) == []
        storage.put("a", b"what is empty is in nobody's way")

    def test_many_small_files_are_listed(self, storage: Storage) -> None:
        names = [f"part-{number:05}" for number in range(self.many)]
        with ThreadPoolExecutor(2) as pool:
            for _ in pool.map(partial(storage.put, data=b"small"), [f"many/{name}" for name in names]):
                pass
        assert self.keys(storage, "many") == [f"many/{name}" for name in names]

    @pytest.mark.parametrize("large", [False, True])
    def test_what_is_staged_is_not_seen(self, storage: Storage, large: bool, tmp_path: Path) -> None:
        data = random.Random(1).randbytes(self.large if large else 1000)
        staged = self.stage_file(storage, "out/a.bin", data)
        assert self.keys(storage) == []
        with pytest.raises(KeyNotFound):
            storage.fetch("out/a.bin", tmp_path / "scratch")
        staged.publish()
        assert self.keys(storage) == ["out/a.bin"]
        assert self.read(storage, "out/a.bin", tmp_path / "scratch") == data
        staged.discard()
        assert storage.get("out/a.bin") == data
        assert list(storage.workplace().iterdir()) == []

    @pytest.mark.parametrize("large", [False, True])
    def test_what_is_discarded_leaves_nothing(self, storage: Storage, large: bool) -> None:
        self.stage_file(storage, "key", bytes(self.large if large else 10)).discard()
        self.stage_folder(storage, "folder", {"x": bytes(self.large if large else 10)}).discard()
        assert self.keys(storage) == self.keys(storage, ".lakeshore") == []
        assert list(storage.workplace().iterdir()) == []

    @pytest.mark.parametrize("large", [False, True])
    def test_the_last_to_publish_wins(self, storage: Storage, large: bool, tmp_path: Path) -> None:
        size = self.large if large else 3
        one, two = (self.stage_file(storage, "key", sort * size, sort.decode()) for sort in (b"1", b"2"))
        two.publish()
        assert storage.get("key") == b"2" * size
        held = storage.fetch("key", tmp_path / "scratch")
        with held.open("rb") as file:
            one.publish()
            assert file.read() == b"2" * size
        assert self.read(storage, "key", tmp_path / "scratch") == b"1" * size

    def test_a_file_from_another_place(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "source").write_bytes(b"elsewhere")
        storage.stage("key", tmp_path / "source", "id-1").publish()
        assert storage.get("key") == b"elsewhere"
        assert not (tmp_path / "source").exists()

    def test_a_folder_is_published_whole(self, storage: Storage, tmp_path: Path) -> None:
        files = {"a.txt": b"a", "deep/er/b": b"bb", "empty": b"", ".lakeshore": b"of the body"}
        staged = self.stage_folder(storage, "out/set", files)
        assert self.keys(storage) == []
        with pytest.raises(KeyNotFound):
            storage.fetch("out/set", tmp_path / "scratch")
        staged.publish()
        staged.discard()
        assert (
            self.keys(storage) == self.keys(storage, "out/set") == sorted(f"out/set/{name}" for name in files)
        )
        assert [(stored.key, stored.size) for stored in storage.list("out/set/deep")] == [
            ("out/set/deep/er/b", 2)
        ]
        assert self.read(storage, "out/set", tmp_path / "scratch") == files
        assert storage.fetch("out/set", tmp_path / "scratch").name == "set"
        assert self.read(storage, "out/set/deep", tmp_path / "scratch") == {"er/b": b"bb"}
        assert self.read(storage, "out", tmp_path / "scratch") == {f"set/{k}": v for k, v in files.items()}
        assert (
            storage.get("out/set/a.txt") == self.read(storage, "out/set/a.txt", tmp_path / "scratch") == b"a"
        )
        assert list(storage.workplace().iterdir()) == []

    def test_a_folder_replaces_the_one_before(self, storage: Storage, tmp_path: Path) -> None:
        self.stage_folder(storage, "set", {"gone": b"1", "same": b"1", "sub/x": b"1"}).publish()
        self.stage_folder(storage, "set", {"same": b"2", "new": b"2"}).publish()
        assert self.read(storage, "set", tmp_path / "scratch") == {"same": b"2", "new": b"2"}
        assert self.keys(storage) == ["set/new", "set/same"]
        assert self.keys(storage, ".lakeshore") == []
        storage.remove("set")
        assert self.keys(storage) == []
        with pytest.raises(KeyNotFound):
            storage.fetch("set", tmp_path / "scratch")

    def test_an_empty_folder(self, storage: Storage, tmp_path: Path) -> None:
        staged = self.stage_folder(storage, "nothing", {})
        staged.publish()
        assert self.read(storage, "nothing", tmp_path / "scratch") == {}
        self.stage_folder(storage, "nothing", {"x": b"1"}).publish()
        assert self.read(storage, "nothing", tmp_path / "scratch") == {"x": b"1"}

    def test_files_that_others_put_there_are_a_folder(self, storage: Storage, tmp_path: Path) -> None:
        storage.put("data/a", b"1")
        storage.put("data/b/c", b"2")
        assert self.read(storage, "data", tmp_path / "scratch") == {"a": b"1", "b/c": b"2"}

    def test_readers_never_see_a_mix(self, storage: Storage, tmp_path: Path) -> None:
        def version(number: int) -> dict[str, bytes]:
            return {f"{part}/file": b"%d" % number for part in range(6)} | {f"only-{number}": b"%d" % number}

        self.stage_folder(storage, "set", version(0)).publish()
        done = threading.Event()
        seen: list[set[bytes]] = []

        def read() -> None:
            while not done.is_set():
                found = self.read(storage, "set", tmp_path / "scratch")
                assert isinstance(found, dict)
                assert len(found) == 7
                seen.append(set(found.values()))

        def write(first: int) -> None:
            for number in range(first, first + self.rounds):
                self.stage_folder(storage, "set", version(number), f"id-{number}").publish()

        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read) for _ in range(2)]
            try:
                for writer in [pool.submit(write, first) for first in (1, 1001)]:
                    writer.result()
            finally:
                done.set()
            for reader in readers:
                reader.result()
        assert all(len(values) == 1 for values in seen)
        last = self.read(storage, "set", tmp_path / "scratch")
        assert isinstance(last, dict)
        assert int(last["0/file"]) in (self.rounds, 1000 + self.rounds)
        assert len(self.keys(storage)) == 7
        assert self.keys(storage, ".lakeshore") == []

    def test_a_file_is_never_a_mix(self, storage: Storage, tmp_path: Path) -> None:
        def write(sort: bytes) -> None:
            for _ in range(3):
                self.stage_file(storage, "key", sort * self.large, sort.hex()).publish()

        storage.put("key", b"0" * self.large)
        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(write, sort) for sort in (b"1", b"2")]
            while not all(writer.done() for writer in writers):
                data = self.read(storage, "key", tmp_path / "scratch")
                assert len(data) == self.large
                assert data == data[:1] * self.large  # type: ignore[index]
            for writer in writers:
                writer.result()

    def odd(self, folder: Path, outside: Path) -> Iterator[tuple[str, str]]:
        """Make, one after another, what can't be stored: its name and what an error calls it."""
        outside.write_bytes(b"secret")
        (folder / "link").symlink_to(outside)
        yield "link", "symlink"
        (folder / "loop").symlink_to("loop")
        yield "loop", "symlink"
        (folder / "up").symlink_to("..")
        yield "up", "symlink"
        os.mkfifo(folder / "fifo")
        yield "fifo", "FIFO"

    def test_what_is_no_file_is_refused(self, storage: Storage, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        for name, what in self.odd(tmp_path, outside):
            with pytest.raises(StorageFailed, match=f"'key' in .*{what}"):
                storage.stage("key", tmp_path / name, "id-1")
        source = tmp_path / "folder"
        source.mkdir()
        for name, what in self.odd(source, outside):
            with pytest.raises(StorageFailed, match=f"'key' in .*{name!r}.*{what}"):
                storage.stage("key", source, "id-1")
            (source / name).unlink()
        with pytest.raises(StorageFailed, match="nothing was written"):
            storage.stage("key", tmp_path / "never", "id-1")
        assert self.keys(storage) == self.keys(storage, ".lakeshore") == []

    def test_a_link_inside_a_folder_becomes_the_file(self, storage: Storage, tmp_path: Path) -> None:
        source = storage.workplace() / "linked"
        source.mkdir()
        (source / "latest").symlink_to("v3.bin")
        (source / "v3.bin").write_bytes(b"three")
        storage.stage("models", source, "id-1").publish()
        path = storage.fetch("models", tmp_path / "scratch")
        assert (path / "latest").read_bytes() == b"three"
        assert not (path / "latest").is_symlink()
