"""The read cache: shared, bounded, and never wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeshore.storage import cache as caches
from lakeshore.storage.cache import Cache


def filling(data: bytes, calls: list[bytes] | None = None) -> Callable[[int], None]:
    def fill(file: int) -> None:
        os.write(file, data)
        if calls is not None:
            calls.append(data)

    return fill


def entries(cache: Cache) -> list[Path]:
    return [each for each in cache.folder.rglob("*") if each.is_file() and each.name != "lock"]


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    (tmp_path / "out").mkdir()
    return Cache(tmp_path / "cache", 1000)


def test_what_is_there_is_not_fetched(cache: Cache, tmp_path: Path) -> None:
    calls: list[bytes] = []
    for number, etag in enumerate(("1", "1", "2")):
        cache.fetch("s3://b", "key", etag, 1, filling(etag.encode(), calls), tmp_path / "out" / f"{number}")
    other = Cache(cache.folder, 1000)  # of another process
    other.fetch("s3://b", "key", "1", 1, filling(b"", calls), tmp_path / "out" / "3")
    assert calls == [b"1", b"2"]
    assert [each.read_bytes() for each in sorted((tmp_path / "out").iterdir())] == [b"1", b"1", b"2", b"1"]
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


def test_the_oldest_goes_and_its_readers_keep_it(cache: Cache, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for number in range(4):
        cache.fetch("s3://b", f"{number}", "e", 300, filling(b"%d" % number * 300), out / f"{number}")
        (entry,) = [each for each in entries(cache) if each.read_bytes()[:1] == b"%d" % number]
        os.utime(entry, (1_000_000 + number, entry.stat().st_mtime))  # in this order
    calls: list[bytes] = []
    assert cache.size() == 900
    assert [(out / f"{number}").read_bytes() for number in range(4)] == [b"%d" % n * 300 for n in range(4)]
    cache.fetch(
        "s3://b", "1", "e", 300, filling(b"1" * 300, calls), out / "again"
    )  # used: not the oldest now
    cache.fetch("s3://b", "4", "e", 300, filling(b"4" * 300, calls), out / "4")
    assert sorted(each.read_bytes()[:1] for each in entries(cache)) == [b"1", b"3", b"4"]
    assert calls == [b"4" * 300]


def test_what_is_larger_than_the_cache_is_fetched_all_the_same(cache: Cache, tmp_path: Path) -> None:
    cache.fetch("s3://b", "large", "e", 5000, filling(bytes(5000)), tmp_path / "out" / "large")
    assert (tmp_path / "out" / "large").stat().st_size == 5000
    assert entries(cache) == []


@pytest.mark.parametrize("how", ["shorter", "other", "gone"])
def test_what_is_damaged_is_fetched_again(cache: Cache, tmp_path: Path, how: str) -> None:
    cache.fetch("s3://b", "key", "e", 5, filling(b"right"), tmp_path / "out" / "1")
    (entry,) = entries(cache)
    if how == "gone":
        entry.unlink()
    else:
        entry.chmod(0o600)
        entry.write_bytes(b"" if how == "shorter" else b"wrong")
    cache.fetch("s3://b", "key", "e", 5, filling(b"right"), tmp_path / "out" / "2")
    assert (tmp_path / "out" / "2").read_bytes() == b"right"


def test_a_download_of_another_size_is_no_entry(cache: Cache, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is not as it was written"):
        cache.fetch("s3://b", "key", "e", 5, filling(b"cut"), tmp_path / "out" / "1")
    assert list((tmp_path / "out").iterdir()) == []
    assert entries(cache) == []


def test_a_download_that_fails_leaves_nothing(cache: Cache, tmp_path: Path) -> None:
    def fill(file: int) -> None:
        os.write(file, b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        cache.fetch("s3://b", "key", "e", 8, fill, tmp_path / "out" / "1")
    assert entries(cache) == []
    cache.fetch("s3://b", "key", "e", 2, filling(b"ok"), tmp_path / "out" / "1")


def test_on_another_file_system_it_is_copied(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*args: object, **more: object) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", link)
    for number in (1, 2):
        cache.fetch("s3://b", "key", "e", 2, filling(b"ok"), tmp_path / "out" / f"{number}")
    assert (tmp_path / "out" / "2").read_bytes() == b"ok"
    assert (tmp_path / "out" / "2").stat().st_nlink == 1
    assert len(entries(cache)) == 1


def test_one_process_at_a_time_evicts(cache: Cache, tmp_path: Path) -> None:
    cache.fetch("s3://b", "a", "e", 600, filling(bytes(600)), tmp_path / "out" / "1")
    with (cache.folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache.fetch("s3://b", "b", "e", 600, filling(bytes(600)), tmp_path / "out" / "2")
        assert cache.size() == 1200
    cache.evict()
    assert cache.size() == 600


def test_downloads_of_the_dead_are_deleted(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (cache.folder / "partial").mkdir(parents=True)
    (cache.folder / "partial" / "dead").write_bytes(b"x")
    cache.fetch("s3://b", "a", "e", 2000, filling(bytes(2000)), tmp_path / "out" / "1")
    assert [each.name for each in entries(cache)] == ["dead"]
    monkeypatch.setattr(caches, "_ABANDONED", -1.0)
    cache.fetch("s3://b", "a", "e", 2000, filling(bytes(2000)), tmp_path / "out" / "2")
    assert entries(cache) == []


def test_where_and_how_large_by_default(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage: Any = type("Usage", (), {"free": 1 << 30})
    monkeypatch.setattr(caches.shutil, "disk_usage", lambda path: usage)
    cache = Cache()
    assert cache.folder.parent.parent == home
    assert cache.folder.name == "cache"
    assert cache.limit == (1 << 30) // 10
    usage.free = 1 << 50
    assert Cache().limit == 10 << 30
    monkeypatch.setenv("LAKESHORE_CACHE", str(tmp_path / "other"))
    monkeypatch.setenv("LAKESHORE_CACHE_BYTES", "12345")
    assert (Cache().folder, Cache().limit) == (tmp_path / "other", 12345)
    monkeypatch.setenv("LAKESHORE_CACHE_BYTES", "10 GB")
    with pytest.raises(ValueError, match="LAKESHORE_CACHE_BYTES is '10 GB': give a number of bytes"):
        Cache()
