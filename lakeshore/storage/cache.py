"""What was fetched before, on this machine's disk: by URL, key and ETag, up to a number of bytes.

An entry is a file that never changes. Who fetches gets a second name of it (a hard link, or a copy on another
file system), so that what is evicted is still there for those who read it. Processes share a cache without
asking each other: entries appear by a rename, and one process at a time evicts.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from . import disk
from .places import machine_folder, made

_STAMP = (
    978_307_200  # seconds since 1970: when every entry was changed last; another time tells who wrote to it
)
_LARGEST, _SHARE = 10 << 30, 0.1  # bytes, of what is free
_ABANDONED = 86_400.0  # seconds after which a download that nobody ended is deleted


class Cache:
    """Files in a folder.

    Args:
        folder: made at the first use, for its owner alone; None is `LAKESHORE_CACHE`, else
            `LAKESHORE_HOME/<hostname>/cache`.
        limit: bytes; None is `LAKESHORE_CACHE_BYTES`, else 10 GiB, or a tenth of what is free on the disk
            where that is less.

    Raises: ValueError for a `LAKESHORE_CACHE_BYTES` that is no number.
    """

    def __init__(self, folder: Path | None = None, limit: int | None = None) -> None:
        named = os.environ.get("LAKESHORE_CACHE")
        self.folder = folder or (Path(named).expanduser() if named else machine_folder() / "cache")
        self._limit = limit if limit is not None else _limit_from_environment()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}
        self._guard = threading.Lock()
        self._known, self._added = -1, 0  # bytes at the last look; since then, by this process

    @property
    def limit(self) -> int:
        """How many bytes are kept."""
        if self._limit is None:
            usage = shutil.disk_usage(made(self.folder))
            self._limit = min(_LARGEST, int(_SHARE * (usage.free + self.size())))
        return self._limit

    def size(self) -> int:
        """How many bytes are there."""
        return sum(size for _, size, _ in self._entries())

    def fetch(
        self, url: str, key: str, etag: str, size: int, fill: Callable[[int], None], target: Path
    ) -> None:
        """Make `target` a file with what an object holds, for reading only.

        Args:
            size: of the object, bytes: an entry of another size is fetched again.
            fill: writes the object to an open file; called where it is not here yet.

        Raises: what `fill` raises; OSError.
        """
        name = hashlib.sha256("\0".join((url, key, etag)).encode()).hexdigest()
        entry = self.folder / name[:2] / name
        with self._only_one(name):
            if self._give(entry, size, target):
                return
            self._add(entry, fill)
            if not self._give(entry, size, target):
                raise OSError(f"{entry} is not as it was written")
        with self._guard:
            self._added += size
            enough = self._known >= 0 and self._added < min(self.limit - self._known, self.limit // 16)
        if not enough:
            self.evict()

    @contextmanager
    def _only_one(self, name: str) -> Generator[None]:
        """Threads that want the same object wait for the first."""
        with self._guard:
            lock, users = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, users = self._locks[name]
                if users == 1:
                    del self._locks[name]
                else:
                    self._locks[name] = lock, users - 1

    def _give(self, entry: Path, size: int, target: Path) -> bool:
        try:
            disk.link_or_copy(entry, target)
            found = os.stat(target)
            if found.st_size != size or os.stat(entry).st_mtime != _STAMP:
                os.unlink(target)
                os.unlink(entry)
                return False
            os.utime(entry, (time.time(), _STAMP))  # used just now
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                os.unlink(target)
            return False
        return True

    def _add(self, entry: Path, fill: Callable[[int], None]) -> None:
        made(entry.parent)
        partial = made(self.folder / "partial") / secrets.token_hex(16)
        try:
            with disk.opened(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode=0o600) as file:
                fill(file)
                os.fchmod(file, 0o400)
            os.utime(partial, (time.time(), _STAMP))
            os.replace(partial, entry)
        except BaseException:
            disk.remove(partial)
            raise

    def evict(self) -> None:
        """Delete what was not used for longest, until the rest is within the limit. One process does, the
        others need not wait."""
        known = self.size()
        with self._guard:
            self._known, self._added = known, 0
        if known <= self.limit:
            return
        with disk.opened(self.folder / "lock", os.O_RDWR | os.O_CREAT, mode=0o600) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return
            entries = sorted(self._entries())
            left = sum(size for _, size, _ in entries)
            for _, size, path in entries:
                if left <= self.limit:
                    break
                with suppress(FileNotFoundError):
                    os.unlink(path)
                left -= size
            self._sweep()

    def _sweep(self) -> None:
        with suppress(FileNotFoundError):
            for path in (self.folder / "partial").iterdir():
                if time.time() - disk.newest(path) > _ABANDONED:
                    disk.remove(path)

    def _entries(self) -> list[tuple[float, int, str]]:
        """When each was used last, its bytes and its path."""
        found: list[tuple[float, int, str]] = []
        for place in _scan(self.folder):
            if len(place.name) == 2:
                for entry in _scan(place.path):
                    with suppress(FileNotFoundError):
                        status = entry.stat()
                        found.append((status.st_atime, status.st_size, entry.path))
        return found


def _scan(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _limit_from_environment() -> int | None:
    text = os.environ.get("LAKESHORE_CACHE_BYTES")
    if not text:
        return None
    if not text.isdigit():
        raise ValueError(
            f"LAKESHORE_CACHE_BYTES is {text!r}: give a number of bytes, for example 10737418240"
        )
    return int(text)
