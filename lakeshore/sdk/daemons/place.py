"""Where the head of an address listens, for those who only ever reach it by a link."""

from __future__ import annotations

import json
from pathlib import Path

from lakeshore.core.errors import Unreachable


def place_of(address: str) -> str:
    """A URL is its own; that of a path is in its lock file.

    Raises: Unreachable where nobody hosts the path.
    """
    if "://" in address:
        return address
    try:
        said = json.loads(Path(f"{address}.lock").read_bytes())
        return str(said["address"])
    except (OSError, ValueError, KeyError, TypeError):
        raise Unreachable(f"nobody hosts {address} just now") from None
