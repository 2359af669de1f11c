"""How this process introduces itself to a head."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from functools import cache

from lakeshore.core.messages import PROTOCOL, Knock


def knock(session: bytes, purpose: str, namespace: str, token: str = "", worker: bytes = b"") -> Knock:
    """The first message on a link."""
    host, pid = socket.gethostname(), os.getpid()
    return Knock(PROTOCOL, version(), session, purpose, namespace, token, worker, host, pid)


@cache
def version() -> str:
    """Of this package."""
    try:
        return importlib.metadata.version("lakeshore-queue")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def versions() -> dict[str, str]:
    """What a worker says of itself."""
    return {"python": platform.python_version(), "lakeshore": version()}
