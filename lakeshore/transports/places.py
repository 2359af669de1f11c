"""Where a Unix socket lies: a file of its user alone, in a folder of its user alone."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import struct
from pathlib import Path

from lakeshore.core.errors import CannotListen

LONGEST = 107  # bytes of a socket's path that every Linux takes


def unix_place(path: str | os.PathLike[str]) -> str:
    """The socket of the store at `path`: `PATH.sock`, or where that is longer than a socket's path may be
    a file in this user's runtime folder, which is made. The same path always gives the same place.

    Raises: CannotListen where the runtime folder is not this user's alone.
    """
    beside = f"{os.fspath(path)}.sock"
    if len(os.fsencode(beside)) <= LONGEST:
        return beside
    name = hashlib.blake2b(os.fsencode(os.path.abspath(beside)), digest_size=16).hexdigest()
    return str(_runtime_folder() / f"{name}.sock")


def _runtime_folder() -> Path:
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(given, "lakeshore") if given and len(os.fsencode(given)) < 50 else None
    if folder is None or not folder.parent.is_dir():
        folder = Path("/tmp", f"lakeshore-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise CannotListen(
            f"{folder} can't be made ({error.strerror}): use a shorter path for the store"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise CannotListen(
            f"{folder} is not a folder of yours alone (0700): remove it, or use a shorter path for the store"
        )
    return folder


def bind_unix(path: str, replace: bool = False) -> socket.socket:
    """A socket that listens at `path`, 0600. A stale file there is replaced (one on which somebody answers
    with `replace` only), a missing folder made, 0700.

    Raises: ValueError for a path above 107 bytes; CannotListen.
    """
    if len(os.fsencode(path)) > LONGEST:
        raise ValueError(f"{path} is longer than {LONGEST} bytes, the most that a socket's path may have")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_stale(path, replace)
        sock.bind(path)
        os.chmod(path, 0o600)  # nobody can connect before `listen`
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise CannotListen(
            f"unix://{path} can't be listened on ({error.strerror}): choose another path"
        ) from error
    except BaseException:
        sock.close()
        raise
    return sock


def _remove_stale(path: str, replace: bool) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotListen(f"{path} is there and is no socket: choose another path, or remove it")
    if not replace and _answers(path):
        raise CannotListen(f"another process listens on unix://{path}: stop it, or choose another path")
    os.unlink(path)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        error = probe.connect_ex(path)
        return error in (0, errno.EAGAIN, errno.EINPROGRESS)


def peer_uid(sock: socket.socket) -> int | None:
    """The user at the other end of a Unix socket; None where the system does not say."""
    return _peer(sock)[1] if hasattr(socket, "SO_PEERCRED") else None


def peer_pid(sock: socket.socket) -> int:
    """The process at the other end, 0 where the system does not say."""
    return _peer(sock)[0] if hasattr(socket, "SO_PEERCRED") else 0


def _peer(sock: socket.socket) -> tuple[int, int, int]:
    return struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
