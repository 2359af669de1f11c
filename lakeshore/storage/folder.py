"""A storage that is a folder of plain files: what a key names lies at `<folder>/<key>`.

What is on its way lies under `<folder>/.lakeshore`, on the same file system, so that to publish is to rename.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from lakeshore.core.errors import KeyNotFound, StorageFailed
from lakeshore.core.keys import RESERVED
from lakeshore.core.ports import Stored

from . import disk
from .descent import Descent, walk
from .retrying import Retrying
from .sources import vet
from .troubles import disk_troubles

T = TypeVar("T")
_READ_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_NOT_FILES = (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


class Folder:
    """Plain files under a folder, for everybody who sees that folder.

    Args:
        path: the folder; made if need be.
        ignores_case: whether the file system takes `A` and `a` for one name; None finds out.
        durable: what was published is on the disk itself (fsync), so that it outlives a power cut.
        retrying: how often what may pass (EIO, a stale NFS handle) is tried.

    Raises: ValueError for a path that is no folder; StorageFailed where it can't be made or written to.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ignores_case: bool | None = None,
        durable: bool = True,
        retrying: Retrying | None = None,
    ) -> None:
        self.path = Path(os.path.abspath(os.path.expanduser(os.fspath(path))))
        self.url = str(self.path)
        self.durable = durable
        self._retrying = retrying or Retrying()
        self._own = self.path / RESERVED
        self._staged = self._own / "staged"
        self._guarded("", self._make)
        if ignores_case is None:
            ignores_case = self._guarded("", self._find_case)
        self.descent = Descent(str(self.path), self.url, ignores_case, durable)

    def _make(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"{self.path} is no folder: name a folder for the storage")
        for folder in (self._own, self.workplace(), self._staged):
            if folder.is_symlink():
                raise StorageFailed(RESERVED, self.url, f"{folder} is a symlink: delete it")
            folder.mkdir(parents=True, exist_ok=True)

    def _find_case(self) -> bool:
        name = f"case-{secrets.token_hex(8)}"
        probe = self._own / name
        probe.touch()
        try:
            return (self._own / name.upper()).exists()
        finally:
            probe.unlink()

    def workplace(self) -> Path:
        """`<folder>/.lakeshore/work`."""
        return self._own / "work"

    def stale(self) -> list[Path]:
        """What is on its way, or was when its writer died."""
        return [path for place in (self.workplace(), self._staged) for path in place.iterdir()]

    def fetch(self, key: str, scratch: Path) -> Path:
        """The path where a file lies, for reading only. Of a folder a snapshot in `scratch`, made of second
        names of its files (copies where that is not possible).

        Raises: KeyNotFound; StorageFailed where a symlink is on the way or in the folder.
        """
        return self._guarded(key, partial(self._fetch, key, scratch))

    def _fetch(self, key: str, scratch: Path) -> Path:
        with self.descent.parent(key) as (parent, name):
            mode = self._mode(parent, name, key)
            if stat.S_ISREG(mode):
                return self.path / key
            scratch.mkdir(parents=True, exist_ok=True)
            while True:  # until it was the same folder before and after
                target = scratch / f"{secrets.token_hex(8)}" / name
                if self._snapshot(key, parent, name, target):
                    return target
                disk.remove(target.parent)

    def _snapshot(self, key: str, parent: int, name: str, target: Path) -> bool:
        """Whether it is whole: nobody published another in its place meanwhile."""
        gone: list[bool] = []
        try:
            with disk.opened(name, _READ_FOLDER, parent) as folder:
                target.mkdir(parents=True)
                for inner, place, found in walk(folder, "", lambda: gone.append(True)):
                    self._take(key, inner, place, found, target)
                was, now = os.fstat(folder), os.stat(name, dir_fd=parent, follow_symlinks=False)
                return (was.st_dev, was.st_ino) == (now.st_dev, now.st_ino)
        except FileNotFoundError:
            self._mode(parent, name, key)  # raises where it is gone for good
            return False

    def _take(self, key: str, inner: str, place: int, found: os.stat_result, target: Path) -> None:
        if stat.S_ISDIR(found.st_mode):
            (target / inner).mkdir()
        elif stat.S_ISREG(found.st_mode):
            disk.link_or_copy(inner.rpartition("/")[2], target / inner, place)
            if (target / inner).is_symlink():  # which took the file's place just now
                raise self.descent.linked(key, f"{key}/{inner}")
        elif stat.S_ISLNK(found.st_mode):
            raise self.descent.linked(key, f"{key}/{inner}")
        else:
            raise StorageFailed(key, self.url, f"{f'{key}/{inner}'!r} is a {disk.kind(found.st_mode)} there")

    def _mode(self, parent: int, name: str, key: str) -> int:
        """What is there: a file or a folder."""
        try:
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            raise KeyNotFound(key, self.url) from None
        if stat.S_ISLNK(mode):
            raise self.descent.linked(key, key)
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise StorageFailed(key, self.url, f"it is a {disk.kind(mode)} there, no file")
        return mode

    def stage(self, key: str, source: Path, mark: str) -> StagedInFolder:
        """Take a finished file or folder; from `workplace` that is a rename.

        Raises: StorageFailed, also for symlinks that lead out of a folder, FIFOs, sockets and devices.
        """
        return self._guarded(key, partial(self._stage, key, source, mark))

    def _stage(self, key: str, source: Path, mark: str) -> StagedInFolder:
        is_folder = vet(source, key, self.url)
        # what can't be published is refused while the body still runs
        with suppress(KeyNotFound), self.descent.parent(key) as (parent, name):
            self._check_place(key, parent, name, is_folder)
        self._staged.mkdir(parents=True, exist_ok=True)  # the folder may have been deleted under us
        staged = self._staged / _staged_name(mark)
        disk.move(source, staged)
        try:
            if self.durable:
                disk.sync_tree(staged)
        except BaseException:
            os.rename(staged, source)  # so that it can be tried again
            raise
        return StagedInFolder(self, key, staged, is_folder)

    def publish(self, key: str, staged: Path, is_folder: bool) -> None:
        """Move what was staged to its key, in one step. Raises: StorageFailed."""
        self._guarded(key, partial(self._publish, key, staged, is_folder))

    def _publish(self, key: str, staged: Path, is_folder: bool) -> None:
        with self.descent.parent(key, make=True) as (parent, name):
            self._check_place(key, parent, name, is_folder)
            if is_folder:
                self._replace_folder(staged, parent, name)
            else:
                self._replace_file(key, staged, parent, name)
            if self.durable:
                os.fsync(parent)
        if is_folder:
            disk.remove(staged)  # by now it is what was there before, if anything

    def _check_place(self, key: str, parent: int, name: str, is_folder: bool) -> None:
        try:
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode) and not is_folder:
            raise self._covers(key, parent, name)

    def _covers(self, key: str, parent: int, name: str) -> StorageFailed:
        inner = key + "/"
        with suppress(OSError), disk.opened(name, _READ_FOLDER, parent) as folder:
            inner = next((each for each, _, _ in walk(folder, inner)), inner)
        return StorageFailed(
            key, self.url, f"{key!r} is a folder there, with {inner!r} in it: remove it, or use another key"
        )

    def _replace_file(self, key: str, staged: Path, parent: int, name: str) -> None:
        try:
            os.replace(staged, name, dst_dir_fd=parent)
        except FileNotFoundError:
            raise _vanished(staged) from None
        except IsADirectoryError:
            raise self._covers(key, parent, name) from None

    def _replace_folder(self, staged: Path, parent: int, name: str) -> None:
        while True:
            try:
                os.rename(staged, name, dst_dir_fd=parent)  # where nothing is, or an empty folder
                return
            except FileNotFoundError:
                raise _vanished(staged) from None
            except OSError as error:
                if error.errno not in _NOT_FILES:
                    raise
            with suppress(FileNotFoundError):  # it was removed since: rename
                if disk.exchange(staged, parent, name):
                    return
                # without an exchange there is a moment in which nothing is there, never a mix
                os.rename(name, self._staged / _staged_name("replaced"), src_dir_fd=parent)

    def put(self, key: str, data: bytes) -> None:
        """Store bytes as a file. Raises: StorageFailed."""
        self._staged.mkdir(parents=True, exist_ok=True)
        staged = self._staged / _staged_name("put")
        try:
            self._guarded(key, partial(self._write, staged, data))
            self.publish(key, staged, False)
        except BaseException:
            disk.remove(staged)
            raise

    def _write(self, staged: Path, data: bytes) -> None:
        with staged.open("wb") as file:
            file.write(data)
            if self.durable:
                file.flush()
                os.fsync(file.fileno())

    def get(self, key: str) -> bytes:
        """What a file holds. Raises: KeyNotFound, also for a folder; StorageFailed."""
        return self._guarded(key, partial(self._read, key))

    def _read(self, key: str) -> bytes:
        with self.descent.parent(key) as (parent, name):
            if stat.S_ISDIR(self._mode(parent, name, key)):
                raise KeyNotFound(key, self.url)
            with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=parent), "rb") as file:
                return file.read()

    def remove(self, key: str) -> None:
        """Delete a file or a folder with all in it, and the folders that this leaves empty; done where there
        is none. Raises: StorageFailed."""
        self._guarded(key, partial(self._remove, key))

    def _remove(self, key: str) -> None:
        trash = self._staged / _staged_name("removed")
        try:
            with self.descent.parent(key) as (parent, name):
                os.rename(name, trash, src_dir_fd=parent)  # a whole folder is gone in one step
        except (KeyNotFound, FileNotFoundError):
            return
        disk.remove(trash)
        self.descent.prune(key)

    def list(self, prefix: str) -> Iterator[Stored]:
        """The files in the folder `prefix` (empty: all), in the order of keys; symlinks are left out."""
        prefix = prefix.rstrip("/")
        folder = self._guarded(prefix, partial(self._open, prefix))
        if folder is None:
            return
        try:
            with disk_troubles(prefix, self.url):
                own = "" if prefix else RESERVED
                for key, _, found in walk(folder, f"{prefix}/" if prefix else "", leave_out=own):
                    if stat.S_ISREG(found.st_mode):
                        yield Stored(key, found.st_size, found.st_mtime)
        finally:
            os.close(folder)

    def _open(self, prefix: str) -> int | None:
        flags = _READ_FOLDER | os.O_NOFOLLOW | os.O_CLOEXEC
        if not prefix:
            return os.open(self.path, _READ_FOLDER | os.O_CLOEXEC)
        try:
            with self.descent.parent(prefix) as (parent, name):
                if not stat.S_ISDIR(self._mode(parent, name, prefix)):
                    return None
                return os.open(name, flags, dir_fd=parent)
        except (KeyNotFound, FileNotFoundError):
            return None

    def _guarded(self, key: str, work: Callable[[], T]) -> T:
        def guarded() -> T:
            with disk_troubles(key, self.url, may_pass=True):
                return work()

        return self._retrying.run(guarded)


class StagedInFolder:
    """What lies under `.lakeshore/staged` until it is published."""

    def __init__(self, folder: Folder, key: str, path: Path, is_folder: bool) -> None:
        self.key = key
        self._folder, self._path, self._is_folder = folder, path, is_folder

    def publish(self) -> None:
        """Rename to the key. Raises: StorageFailed."""
        self._folder.publish(self.key, self._path, self._is_folder)

    def discard(self) -> None:
        """Delete what was staged."""
        disk.remove(self._path)


def shown(mark: str) -> str:
    """A mark as far as file names can have it."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in mark)[:64]


def _staged_name(mark: str) -> str:
    """A name of its own, that shows whose it is."""
    return f"{shown(mark)}-{secrets.token_hex(8)}"


def _vanished(staged: Path) -> OSError:
    if os.path.lexists(staged):  # so it is the folder above the key that somebody deleted just now
        return OSError(errno.ESTALE, "the folder vanished")
    return OSError(errno.ENOENT, "what was staged is not there any more: it was swept, or published before")
