"""What a body has written, looked at before it goes anywhere: files and folders alone.

A symlink to a file inside the same folder becomes that file; any other could let a reader out of the
storage, or means nothing on another machine, and is refused. So are FIFOs, sockets and devices.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from lakeshore.core.errors import StorageFailed

from .disk import kind, link_or_copy


def vet(source: Path, key: str, url: str) -> bool:
    """Make ready to be taken; True for a folder.

    Raises: StorageFailed, naming the part of it that can't be stored.
    """
    try:
        mode = os.lstat(source).st_mode
    except FileNotFoundError:
        raise StorageFailed(key, url, f"nothing was written: there is no {source}") from None
    if stat.S_ISREG(mode):
        return False
    if not stat.S_ISDIR(mode):
        raise StorageFailed(key, url, f"a {kind(mode)} was written; only files and folders can be stored")
    for path, what in _entries(source):
        if stat.S_ISLNK(what):
            _resolve(path, source, key, url)
        elif not stat.S_ISREG(what) and not stat.S_ISDIR(what):
            name = path.relative_to(source)
            raise StorageFailed(key, url, f"{str(name)!r} in it is a {kind(what)}, which can't be stored")
    return True


def _entries(top: Path) -> Iterator[tuple[Path, int]]:
    for folder, folders, files in os.walk(top):
        for name in [*folders, *files]:
            path = Path(folder, name)
            yield path, os.lstat(path).st_mode


def _resolve(link: Path, top: Path, key: str, url: str) -> None:
    name, target = link.relative_to(top), Path(os.path.realpath(link))  # pathlib's own raises for loops
    if not target.is_relative_to(top.resolve()) or not target.is_file():
        raise StorageFailed(
            key,
            url,
            f"{str(name)!r} in it is a symlink to {os.readlink(link)!r}: only links to files in the same "
            "folder can be stored; copy what it points to",
        )
    os.unlink(link)
    link_or_copy(target, link)


def files_of(top: Path) -> list[tuple[str, int]]:
    """Every file of a vetted folder, as a relative POSIX path and bytes, in order."""
    found = [
        (path.relative_to(top).as_posix(), path.stat().st_size)
        for path, mode in _entries(top)
        if stat.S_ISREG(mode)
    ]
    return sorted(found)


def folders_of(top: Path) -> list[str]:
    """Every folder in a vetted folder, in order."""
    return sorted(path.relative_to(top).as_posix() for path, mode in _entries(top) if stat.S_ISDIR(mode))
