"""What counts for the process that hosts a plane."""

from __future__ import annotations

import math
import os
from typing import Any

from lakeshore.storage.urls import check_storage


class HostOptions:
    """Checked options of a host.

    Raises: ValueError for a value that makes no sense.
    """

    def __init__(
        self,
        *,
        sync: str = "normal",
        retention: float = 604800,
        lease: float = 30.0,
        memory_limit: int | None = None,
        payload_limit: int = 16777216,
        storage: str | os.PathLike[str] | None = None,
    ) -> None:
        if sync not in ("normal", "full"):
            raise ValueError(f"sync={sync!r}: normal, or full to survive a power cut")
        if not 0 <= retention < math.inf:
            raise ValueError(f"retention={retention!r}: choose seconds, 0 or more, and no infinity")
        for name, value in (("memory_limit", memory_limit), ("payload_limit", payload_limit)):
            if value is not None and (not isinstance(value, int) or value < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError(f"{name}={value!r}: choose a number of bytes, 1 or more")
        self.storage: str = "" if storage is None else check_storage(storage)
        self.sync: Any = sync
        self.retention, self.lease = float(retention), float(lease)
        self.memory_limit, self.payload_limit = memory_limit, payload_limit
