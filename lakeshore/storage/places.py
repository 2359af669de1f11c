"""Where this machine keeps what is its own: nothing here is shared with another machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def machine_folder() -> Path:
    """`LAKESHORE_HOME/<hostname>` (`~/.lakeshore/<hostname>` by default); not made by this."""
    home = os.environ.get("LAKESHORE_HOME")
    return (Path(home).expanduser() if home else Path.home() / ".lakeshore") / socket.gethostname()


def made(folder: Path) -> Path:
    """The folder, made if need be with those above it, for its owner alone."""
    if not folder.parent.exists():
        made(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
