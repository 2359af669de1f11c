"""What a body leaves in its process that would disturb the next one."""

from __future__ import annotations

import os
import sys
import threading

_KEPT = (  # threads that wait for more work, and do nothing by themselves
    "lakeshore",
    "asyncio_",
    "AnyIO worker thread",
    "Trio thread",
    "Dummy-",  # threads of C code that have called Python
    "tqdm_monitor",
)


class Leftovers:
    """Compares what there is before a body with what there is after it."""

    _before: tuple[set[threading.Thread], list[object]] | None = None

    def begin(self) -> None:
        """A body begins now."""
        self._before = _threads(), _outputs()

    def found(self) -> str:
        """It is over: what it has left, in words; empty where nothing of that kind."""
        before, self._before = self._before, None
        if before is None:
            return ""
        threads = sorted(thread.name for thread in _threads() - before[0])
        if threads:
            return f"{len(threads)} threads ({', '.join(threads)[:100]})"
        return "" if _outputs() == before[1] else "another output"


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if not thread.name.startswith(_KEPT)}


def _outputs() -> list[object]:
    found: list[object] = [sys.stdout, sys.stderr]
    for number in (1, 2):
        try:
            status = os.fstat(number)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return found
