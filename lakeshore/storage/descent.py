"""From a folder's root down to a key, without following a symlink on the way.

Each part is opened inside the descriptor of the one before it, so that a name that is exchanged for a
symlink meanwhile leads nowhere: there is no moment between a look and a step.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress

from lakeshore.core.errors import KeyNotFound, StorageFailed

from .disk import kind

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parts_of(key: str) -> list[str]:
    """The parts of a clean key. Raises: ValueError for another."""
    parts = key.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{key!r} is no key: it has a part that is empty, '.' or '..', or holds NUL")
    return parts


class Descent:
    """How keys are reached below `root`, an absolute path that may itself be a link.

    Args:
        url: what to call the storage in errors.
        ignores_case: the file system takes `A` and `a` for one name.
        durable: folders that are made are on the disk itself before anything is in them.
    """

    def __init__(self, root: str, url: str, ignores_case: bool, durable: bool) -> None:
        self.root, self.url, self.ignores_case, self.durable = root, url, ignores_case, durable

    @contextmanager
    def parent(self, key: str, *, make: bool = False) -> Generator[tuple[int, str]]:
        """A descriptor of the folder that a key is in, and the key's last part.

        Raises: KeyNotFound where it is not there (and not to be made); StorageFailed where a symlink is on
        the way, where a file is and a folder has to be made, or where names differ by case alone.
        """
        *above, last = parts_of(key)
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for number, part in enumerate(above):
                inner = self._step(folder, part, "/".join(above[: number + 1]), key, make)
                os.close(folder)
                folder = inner
            self._check_case(folder, last, key, key, make)
            yield folder, last
        finally:
            os.close(folder)

    def _step(self, folder: int, part: str, so_far: str, key: str, make: bool) -> int:
        self._check_case(folder, part, so_far, key, make)
        try:
            if make:
                return self._made(folder, part)
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if make:  # it was empty, and somebody who deleted what was in it took it along
                raise OSError(errno.ESTALE, "the folder vanished") from None
            raise KeyNotFound(key, self.url) from None
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
        self._refuse(folder, part, so_far, key, make)
        raise KeyNotFound(key, self.url)

    def _made(self, folder: int, part: str) -> int:
        try:
            return os.open(part, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
                if self.durable:
                    os.fsync(folder)
        return os.open(part, _FOLDER, dir_fd=folder)

    def _refuse(self, folder: int, part: str, so_far: str, key: str, make: bool) -> None:
        found = kind(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode)
        if found == "symlink":
            raise self.linked(key, so_far)
        if make:
            raise StorageFailed(
                key, self.url, f"{so_far!r} is a {found} there, so {key!r} can't be in it: use another key"
            )

    def linked(self, key: str, where: str) -> StorageFailed:
        """What to raise where a symlink was met at `where`."""
        return StorageFailed(
            key, self.url, f"{where!r} is a symlink there, which keys never go through: move the files there"
        )

    def _check_case(self, folder: int, part: str, so_far: str, key: str, make: bool) -> None:
        if not self.ignores_case:
            return
        names = os.listdir(folder)
        if part in names:
            return
        folded = part.casefold()
        for name in names:
            if name.casefold() == folded:
                if not make:
                    raise KeyNotFound(key, self.url)
                other = "/".join([*so_far.split("/")[:-1], name])
                raise StorageFailed(
                    key,
                    self.url,
                    f"{other!r} is there, and {so_far!r} differs from it by case alone, which this folder "
                    "does not tell apart: use another key",
                )

    def prune(self, key: str) -> None:
        """Delete the folders that a deleted key leaves empty."""
        parts = parts_of(key)
        for count in range(len(parts) - 1, 0, -1):
            try:
                with self.parent("/".join(parts[:count])) as (folder, name):
                    os.rmdir(name, dir_fd=folder)
            except (OSError, KeyNotFound):
                return


def walk(
    folder: int, prefix: str, gone: Callable[[], object] = lambda: None, leave_out: str = ""
) -> Iterator[tuple[str, int, os.stat_result]]:
    """Everything in an open folder, in the order of keys: key, descriptor of the folder it is in, `stat`. A
    folder comes before what is in it. `gone` is called for what vanished meanwhile; the key `leave_out` is
    passed over."""
    for name, is_folder in _names(folder):
        if prefix + name == leave_out:
            continue
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            yield prefix + name, folder, found
            if not is_folder or not stat.S_ISDIR(found.st_mode):
                continue
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            gone()
            continue
        try:
            yield from walk(inner, f"{prefix}{name}/", gone)
        finally:
            os.close(inner)


def _names(folder: int) -> list[tuple[str, bool]]:
    """Names and whether they are folders, in the order that their keys have: `a.b` before `a/b`. What is no
    Unicode can't be a key."""
    found: list[tuple[str, bool]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(UnicodeEncodeError):
                entry.name.encode()
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
    return sorted(found, key=lambda each: each[0] + "/" if each[1] else each[0])
