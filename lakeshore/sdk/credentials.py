"""Tokens and logins of this user on this machine: files that only the user can read.

`LAKESHORE_HOME/credentials.json` holds what `lakeshore login` saved, by URL;
`LAKESHORE_HOME/<hostname>/token` is the machine's own token, which `lakeshore serve` makes.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from lakeshore.core.errors import LakeshoreError

PREFIX = "lks_"
_LONGEST = 1000  # characters of a token


class CredentialsError(LakeshoreError):
    """A file of tokens can't be read or written, or is not private; the message says what to do."""


class Login(Struct, frozen=True, omit_defaults=True):
    """What is saved for one URL. `insecure`: the token may cross a network in the clear."""

    token: str = ""
    namespace: str = ""
    ca: str = ""
    insecure: bool = False


class Saved(Struct, frozen=True, omit_defaults=True):
    """The whole file. `last` is the URL of the newest login."""

    last: str = ""
    logins: dict[str, Login] = {}


def home() -> Path:
    """`LAKESHORE_HOME`, `~/.lakeshore` by default. Made by whoever writes to it."""
    return Path(os.environ.get("LAKESHORE_HOME") or Path.home() / ".lakeshore").expanduser().absolute()


def machine_folder(where: Path | None = None) -> Path:
    """This machine's folder in a home, which machines may share. Makes both, 0700.

    Raises: OSError.
    """
    where = home() if where is None else where
    folder = where / socket.gethostname()
    where.parent.mkdir(parents=True, exist_ok=True)
    where.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def saved() -> Saved:
    """What logins have saved; nothing where there is no file.

    Raises: CredentialsError.
    """
    path = home() / "credentials.json"
    text = _private(path)
    if text is None:
        return Saved()
    try:
        return msgspec.json.decode(text, type=Saved)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CredentialsError(
            f"{path} is damaged ({error}): remove it, and `lakeshore login` again"
        ) from None


def save(url: str, login: Login) -> None:
    """Keep a login, as the last. Raises CredentialsError."""
    with _changing():
        before = saved()
        _write_saved(Saved(url, {**before.logins, url: login}))


def forget(url: str | None = None) -> list[str]:
    """Drop the login of a URL, or all; which were dropped. Raises CredentialsError."""
    with _changing():
        before = saved()
        dropped = [name for name in before.logins if url in (None, name)]
        if dropped:
            left = {name: login for name, login in before.logins.items() if name not in dropped}
            _write_saved(Saved("" if before.last in dropped else before.last, left))
    return dropped


def new_token() -> str:
    """A token nobody can guess: `lks_` and 256 bits."""
    return PREFIX + secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """A token as it is. Raises ValueError for what can't be one, without repeating it."""
    if not token or len(token) > _LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(
            f"this is no token: one begins with {PREFIX} and has no spaces, as `lakeshore tokens create` "
            "prints it"
        )
    return token


def hint(token: str) -> str:
    """What may be shown of a token."""
    return f"{PREFIX}…{token[-4:]}" if len(token) >= 16 else f"{PREFIX}…"


def machine_token(where: Path | str | None = None) -> str:
    """The machine's own token of a home (None: this user's): made where there is none.

    Several processes that ask at once get the same one.
    Raises: CredentialsError.
    """
    try:
        path = machine_folder(None if where is None else Path(where)) / "token"
        found = _private(path)
        if found is None:
            _write(path, new_token().encode(), replace=False)
            found = _private(path)
    except OSError as error:
        raise CredentialsError(
            f"the machine's token can't be made ({error}): set LAKESHORE_HOME to a folder you may write to"
        ) from error
    return _token_of(path, found or b"")


def found_machine_token() -> str | None:
    """The machine's own token, if `lakeshore serve` has made one. Raises CredentialsError."""
    path = home() / socket.gethostname() / "token"
    found = _private(path)
    return None if found is None else _token_of(path, found)


def _token_of(path: Path, text: bytes) -> str:
    try:
        return check_token(text.decode().strip())
    except (UnicodeDecodeError, ValueError):
        raise CredentialsError(
            f"{path} holds no token: remove it and start `lakeshore serve` again"
        ) from None


def _private(path: Path) -> bytes | None:
    """A file's bytes, None where there is none. One that others can read or have made is refused."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise CredentialsError(f"{path} is no plain file: remove it")
            if info.st_uid not in (os.geteuid(), 0):
                raise CredentialsError(f"{path} belongs to another user: remove it, or set LAKESHORE_HOME")
            if info.st_mode & 0o077:
                raise CredentialsError(
                    f"{path} can be read by other users: `chmod 600 {path}`, and replace the token in it if "
                    "they may have read it"
                )
            return file.read(1 << 20)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CredentialsError(f"{path} can't be read ({error.strerror})") from error


def _write_saved(content: Saved) -> None:
    data = msgspec.json.format(msgspec.json.encode(content), indent=2)
    _write(home() / "credentials.json", data + b"\n", replace=True)


def _write(path: Path, data: bytes, *, replace: bool) -> None:
    """Write a private file at once or not at all; without `replace` one that is there stays."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(aside, path)
        else:
            with suppress(FileExistsError):
                os.link(aside, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(aside)


@contextmanager
def _changing() -> Generator[None]:
    """One process at a time reads and writes the logins."""
    where = home()
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        where.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(where / "credentials.lock", os.O_RDWR | os.O_CREAT, 0o600), "wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise CredentialsError(
            f"logins can't be kept in {where} ({error.strerror}): set LAKESHORE_HOME to a folder you may "
            "write to"
        ) from error
