"""Where a plane is: the address a user gives, or the environment does."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from lakeshore.core.errors import StoreError

from .checks import sound

MEMORY = ":memory:"


def resolve(address: str | os.PathLike[str] | None) -> str:
    """`:memory:` or an absolute path.

    None means `LAKESHORE_URL`, else `LAKESHORE_HOME/<hostname>/plane.db` (`~/.lakeshore` by default).
    Raises: ValueError for what is no address.
    """
    if address is None:
        address = os.environ.get("LAKESHORE_URL") or default_path()
    text = os.fspath(address)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("an address is a string or a path, not bytes")
    if text == MEMORY:
        return MEMORY
    if not text or "\0" in text:
        raise ValueError('an empty address: pass ":memory:" or a file path')
    if "://" in text:
        scheme = text.partition("://")[0]
        raise ValueError(
            f'{scheme}:// addresses are not served by this version: pass ":memory:" or a file path'
        )
    return os.path.realpath(Path(text).expanduser())


def default_path() -> str:
    """The local plane of this machine and user; its folders are made, 0700.

    Raises: StoreError where they can't be.
    """
    home = Path(os.environ.get("LAKESHORE_HOME") or Path.home() / ".lakeshore").expanduser().absolute()
    folder = home / socket.gethostname()
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"{folder} can't be made ({error.strerror}): set LAKESHORE_HOME to a folder you may write to, or "
            "pass an address"
        ) from error
    return str(folder / "plane.db")


def namespace_of(namespace: str | None) -> str:
    """The namespace named, else that of the environment, else "default".

    Raises: ValueError for an empty one.
    """
    name = namespace if namespace is not None else os.environ.get("LAKESHORE_NAMESPACE") or "default"
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a namespace is a string, not {type(name).__name__}")
    if not name or "\0" in name or len(name) > 200:
        raise ValueError(f"{name!r} is not a namespace: choose 1 to 200 characters")
    return sound("a namespace", name)
