"""The store's place on disk: made private, and checked for what would go wrong there."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from lakeshore.core.errors import StoreCorrupt, StoreError

_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "ceph", "glusterfs", "beegfs", "orangefs", "pvfs", "afs",
            "9p", "ncpfs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.gcsfuse",
            "fuse.juicefs", "fuse.rclone", "fuse.beegfs")  # fmt: skip
_warned: set[str] = set()
_log = logging.getLogger("lakeshore")


def make_parent(path: Path) -> None:
    """Make the folder of `path`, for its owner only, and check that files can be made in it.

    Raises: StoreError.
    """
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name a file in it, such as {path / 'lakeshore.db'}")
    folder = path.parent
    try:
        for missing in reversed([p for p in (folder, *folder.parents) if not p.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"can't make the folder {folder} ({exc.strerror}): name another path") from exc
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder, so {path} can't be in it: name another path")
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        raise StoreError(
            f"{folder} is on a file system that is read-only: mount it for writing, or name another path"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreError(
            f"{folder} can't be written to, and a store needs files of its own beside {path.name}: "
            "change its permissions or name another path"
        )


def make_private(path: Path) -> None:
    """Make the file where it is missing, readable by its owner only, whatever the umask.

    Raises: StoreError where it can't be made, read or written; StoreCorrupt where it is missing or
        empty and its log is there.
    """
    _check_log(path)
    try:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        else:
            os.fchmod(handle, 0o600)
            os.close(handle)
    except OSError as exc:
        raise StoreError(
            f"can't open {path} for reading and writing ({exc.strerror}): "
            "change its permissions or name another path"
        ) from exc


def _check_log(path: Path) -> None:
    log = Path(f"{path}-wal")
    if _size(log) and not _size(path):  # SQLite would delete the log
        raise StoreCorrupt(
            f"{path} is {'empty' if path.exists() else 'missing'}, and its log {log} is there, with what was "
            f"accepted last: put {path.name} back beside it, or move the log away to begin anew"
        )


def warn_if_log_is_gone(path: Path, holder: int) -> None:
    """Say that what process `holder` accepted last may be missing: it ended without closing the file."""
    log = Path(f"{path}-wal")
    if _size(path) and not log.exists():
        _log.warning(
            "process %d ended without closing %s, and there is no log %s: if that was removed, or left "
            "behind when the file was moved, put it back before you go on: what was accepted last is in it",
            holder, path, log,
        )  # fmt: skip


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def file_system(path: Path, mounts: str = "/proc/self/mounts") -> str:
    """The type of the file system that `path` is on, "" where that can't be told."""
    try:
        lines = Path(mounts).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    wanted, best, kind = path.resolve(), -1, ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = Path(fields[1].replace("\\040", " "))
        if wanted.is_relative_to(point) and len(point.parts) >= best:  # a later mount covers an earlier
            best, kind = len(point.parts), fields[2]
    return kind


def warn_if_remote(path: Path, mounts: str = "/proc/self/mounts") -> None:
    """Say once that SQLite's locks and shared memory can't be trusted on a network file system."""
    kind = file_system(path, mounts)
    if not kind.startswith(_NETWORK) or str(path) in _warned:
        return
    _warned.add(str(path))
    _log.warning(
        "%s is on a network file system (%s), where a store may be damaged or slow: use a local path "
        "such as /var/tmp/%s, which one process of one machine has open at a time",
        path, kind, path.name,
    )  # fmt: skip
