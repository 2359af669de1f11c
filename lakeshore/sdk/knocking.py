"""How this process introduces itself to a head."""

from __future__ import annotations

import os
import platform
import socket

from lakeshore.core.about import package_version
from lakeshore.core.messages import PROTOCOL, Knock


def knock(session: bytes, purpose: str, namespace: str, token: str = "", worker: bytes = b"") -> Knock:
    """The first message on a link."""
    host, pid = socket.gethostname(), os.getpid()
    return Knock(PROTOCOL, package_version(), session, purpose, namespace, token, worker, host, pid)


def versions() -> dict[str, str]:
    """What a worker says of itself."""
    return {"python": platform.python_version(), "lakeshore": package_version()}
