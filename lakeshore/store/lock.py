"""One process at a time hosts a store: `flock` on a file beside it, never broken by force."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from importlib import metadata
from pathlib import Path
from typing import Any
from weakref import WeakSet

from lakeshore.core.errors import StoreError, StoreLocked

from .files import make_parent, make_private, warn_if_log_is_gone

_held: WeakSet[StoreLock] = WeakSet()


class StoreLock:
    """The right to host the store at `path`, held from `acquire` to `release`.

    The file `PATH.lock` says as JSON who holds it: `pid`, `host`, `boot`, `started`, `version`, and
    what `describe` adds. It is never deleted: a lock on a deleted file locks nobody out.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Path = Path(f"{os.fspath(path)}.lock")
        self._file = -1
        self._text: dict[str, Any] = {}

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file >= 0

    def acquire(self, **more: Any) -> None:
        """Take the lock at once, and write who took it, with `more` beside.

        Raises: StoreLocked where anyone holds it, this process included; StoreError.
        """
        if self.held:
            raise StoreLocked(f"{self.path} is held by this very object: release it first", os.getpid())
        make_parent(self.path)
        make_private(self.path)
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise self._locked() from None
        except OSError as exc:
            os.close(file)
            raise StoreError(
                f"{self.path} can't be locked ({exc.strerror}): use a path on a local file system"
            ) from exc
        self._file = file
        _held.add(self)
        if isinstance(former := read_holder(self.path).get("pid"), int):  # else it was let go, or is new
            warn_if_log_is_gone(self.path.with_suffix(""), former)
        self._text = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "boot": boot_id(),
            "started": time.time(),
            "version": _version(),
        }
        try:
            self.describe(**more)
        except OSError as exc:
            self.release()
            raise StoreError(
                f"{self.path} can't be written ({exc.strerror}): free some space, or name another path"
            ) from exc

    def describe(self, **more: Any) -> None:
        """Write more about the holder, the address it listens at for one."""
        self._text |= more
        data = json.dumps(self._text).encode()
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))

    def release(self) -> None:
        """Let go. The file stays, empty."""
        if self.held:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, 0)
                # closing is not enough: a child just forked has the file until its hook has run
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self.abandon()

    def abandon(self) -> None:
        """Close the file without a word: in a forked child the lock is still the parent's."""
        if self.held:
            os.close(self._file)
            self._file = -1
        _held.discard(self)

    def __enter__(self) -> StoreLock:
        if not self.held:
            self.acquire()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def _locked(self) -> StoreLocked:
        holder = read_holder(self.path)
        pid, host = holder.get("pid"), holder.get("host")
        if not isinstance(pid, int):
            return StoreLocked(
                f"{self.path} is held by a process that did not say who it is: "
                f"find it with `fuser {self.path}`, and stop it or name another path"
            )
        if pid == os.getpid() and host == socket.gethostname():
            who, advice = f"this process (pid {pid})", "close the other plane on it first"
        elif host == socket.gethostname():
            who = f"process {pid} on this machine ({host})"
            advice = "end it first, or name another path"
        else:
            who = f"process {pid} on the machine {host}"
            advice = "work with it there, end it first, or name a path of this machine"
        return StoreLocked(f"{self.path.with_suffix('')} is held by {who}: {advice}", pid)


def read_holder(lock: Path) -> dict[str, Any]:
    """What a lock file says of its holder; empty where it says nothing that can be read."""
    try:
        said = json.loads(lock.read_bytes())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def boot_id() -> str:
    """Names this run of this machine's kernel, "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _version() -> str:
    try:
        return metadata.version("lakeshore-queue")
    except metadata.PackageNotFoundError:
        return ""


def _after_fork() -> None:
    for lock in list(_held):
        lock.abandon()


os.register_at_fork(after_in_child=_after_fork)
