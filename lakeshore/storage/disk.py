"""Files and folders on a local disk: to rename, copy, exchange, secure and remove them. By descriptors where
a name could be changed meanwhile."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_AT_FDCWD = -100
_EXCHANGE = 2  # linux/fs.h: RENAME_EXCHANGE
_STEP = 1 << 20  # bytes, where the kernel does not copy by itself
_NO_KERNEL_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF}
NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EACCES}


def kind(mode: int) -> str:
    """What a thing on disk is called, from its `st_mode`."""
    names = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "folder",
        stat.S_IFLNK: "symlink",
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
    }
    return names.get(stat.S_IFMT(mode), "device")


@contextmanager
def opened(path: str | Path, flags: int, parent: int | None = None, mode: int = 0o666) -> Generator[int]:
    """A descriptor, closed at the end; the last part of the path is never followed as a symlink."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _renameat2() -> Callable[..., int] | None:
    try:
        return ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None


_rename2: Any = _renameat2()


def exchange(one: Path, parent: int, name: str) -> bool:
    """Let two things on one file system change places in one step; False where the system can't.

    Raises: OSError, FileNotFoundError where one of them is missing.
    """
    if _rename2 is None:
        return False
    done = _rename2(_AT_FDCWD, os.fsencode(one), parent, os.fsencode(name), _EXCHANGE)
    if done == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), name)


def sync(path: str | Path) -> None:
    """Have a file, or the names in a folder, on the disk itself."""
    with opened(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


def sync_tree(top: Path) -> None:
    """`sync` for a file, or for a folder and all that is in it."""
    if top.is_dir():
        for folder, _, files in os.walk(top):
            for name in files:
                sync(os.path.join(folder, name))
            sync(folder)
    else:
        sync(top)


def copy(source: int, target: int) -> None:
    """Copy a file between descriptors; what is a hole stays one."""
    size = os.fstat(source).st_size
    os.ftruncate(target, size)
    for start, end in _extents(source, size):
        _copy_range(source, target, start, end)


def _extents(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file has data; all of it where the file system does not say."""
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
            end = os.lseek(source, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno != errno.ENXIO:  # else there is a hole up to the end
                yield end, size
            return
        yield start, end


def _copy_range(source: int, target: int, start: int, end: int) -> None:
    by_kernel = hasattr(os, "copy_file_range")
    while start < end:
        if by_kernel:
            try:
                done = os.copy_file_range(source, target, end - start, start, start)
            except OSError as error:
                if error.errno not in _NO_KERNEL_COPY:
                    raise
                by_kernel = False
                continue
        else:
            done = os.pwrite(target, os.pread(source, min(_STEP, end - start), start), start)
        if done == 0:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        start += done


def copy_in(name: str | Path, target: Path, parent: int | None = None) -> None:
    """Make a new file `target` with what a file holds."""
    with opened(name, os.O_RDONLY, parent) as source:
        mode = stat.S_IMODE(os.fstat(source).st_mode)
        with opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=mode) as made:
            copy(source, made)


def link_or_copy(name: str | Path, target: Path, parent: int | None = None) -> None:
    """A second name for a file, or a copy of it where links are not possible."""
    try:
        os.link(name, target, src_dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        copy_in(name, target, parent)


def move(source: Path, target: Path) -> None:
    """Rename a file or folder, or copy it where it lies on another file system."""
    try:
        os.rename(source, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    try:
        if source.is_dir():
            _copy_tree(source, target)
        else:
            copy_in(source, target)
    except BaseException:
        remove(target)
        raise
    remove(source)


def _copy_tree(source: Path, target: Path) -> None:
    """Of files and folders alone; the first failure comes out as it is."""
    target.mkdir()
    for folder, folders, files in os.walk(source):
        inner = target / Path(folder).relative_to(source)
        for name in folders:
            (inner / name).mkdir()
        for name in files:
            copy_in(os.path.join(folder, name), inner / name)


def remove(path: Path) -> None:
    """Delete a file, or a folder with all that is in it; done where there is none."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM):  # POSIX, macOS
            raise
        for folder, _, _ in os.walk(path):  # what was published read-only goes, too
            with suppress(OSError):
                os.chmod(folder, 0o700)
        shutil.rmtree(path)


def newest(path: Path) -> float:
    """When anything in a file or folder was last changed or moved, since 1970; 0 where there is none."""
    latest = _changed(path)
    for folder, folders, files in os.walk(path):
        for name in [*folders, *files]:
            latest = max(latest, _changed(os.path.join(folder, name)))
    return latest


def _changed(path: str | Path) -> float:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return 0.0
    return max(found.st_mtime, found.st_ctime)
