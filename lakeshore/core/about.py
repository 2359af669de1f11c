"""What a plane says of the process that runs it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from .backend import Backend
from .ports import Store


@cache
def package_version() -> str:
    """The version of this package, empty where it is not installed."""
    found = installed("lakeshore-queue")
    if found:
        return found["lakeshore-queue"]
    from importlib.metadata import PackageNotFoundError, version  # slow, and a client has no use for it

    try:
        return version("lakeshore-queue")
    except PackageNotFoundError:
        return ""


def installed(*names: str) -> dict[str, str]:
    """Versions of those of these packages that have a folder of metadata.

    Its name says what `importlib.metadata` would read in it, which takes longer to load than a client.
    """
    wanted = {name.lower().replace("-", "_"): name for name in names}
    found: dict[str, str] = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:  # not a folder, or none that may be read
            continue
        for entry in entries:
            name, dash, version = entry.removesuffix(".dist-info").partition("-")
            if dash and entry.endswith(".dist-info") and (known := wanted.get(name.lower())):
                found.setdefault(known, version)
    return found


def about(store: Store, backend: Backend, clients: Callable[[], int]) -> dict[str, Any]:
    """What the status says beside what the head knows; functions are called for each answer."""
    path: Path | None = getattr(store, "path", None)
    return {
        "version": package_version(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "backend": backend.name,
        "store": ":memory:" if path is None else str(path),
        "sync": getattr(store, "sync", None),
        "epoch": getattr(store, "epoch", 0),
        "clients": clients,
        "listen": [],
        "storeBytes": lambda: getattr(store, "used", 0) if path is None else _size(path),
    }


def _size(path: Path) -> int:
    total = 0
    for name in (path, f"{path}-wal"):
        try:
            total += os.stat(name).st_size
        except OSError:
            continue
    return total
