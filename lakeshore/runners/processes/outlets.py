"""Showing what bodies write where their worker writes, too, without waiting for whoever reads that."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections import deque
from contextlib import suppress

_ROOM = 1 << 20  # bytes that wait for a reader; what comes beyond that is dropped
_STUCK = 1.0  # seconds without a byte taken until nobody waits for room any more
_STREAMS = {"stdout": 1, "stderr": 2}


def is_own(source: str) -> bool:
    """Whether this process was started with such an output: else its number may be anything's by now."""
    stream = sys.__stdout__ if source == "stdout" else sys.__stderr__
    with suppress(OSError, ValueError):  # it was closed
        return stream is not None and stream.fileno() == _STREAMS[source]
    return False


def duplicate(source: str) -> int:
    """Another descriptor for an output of this process; for nothing, where it has none. Raises OSError."""
    return os.dup(_STREAMS[source]) if is_own(source) else os.open(os.devnull, os.O_WRONLY)


def outlets() -> dict[str, Outlet]:
    """One for each output that this process has, by source. Raises OSError, RuntimeError."""
    return {source: Outlet(duplicate(source)) for source in _STREAMS if is_own(source)}


def write_all(descriptor: int, data: bytes) -> bool:
    """Write, and wait for whoever reads; False where nobody does any more."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            room = select.poll()
            room.register(descriptor, select.POLLOUT)
            room.poll()
        except OSError:
            return False
    return True


class Outlet:
    """A thread that writes to one descriptor, which is its own from now on.

    Raises: RuntimeError where there can't be another thread.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._size = self._dropped = 0  # bytes
        self._stuck = self._closed = False
        self._thread = threading.Thread(target=self._work, name="lakeshore outlet", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            os.close(descriptor)
            raise

    def put(self, data: bytes) -> None:
        """Have it written, unless too much waits. Waits for nothing."""
        with self._turn:
            if self._size >= _ROOM:
                self._dropped += len(data)
                return
            if self._dropped:
                said = f"\n({self._dropped:,} bytes are missing here: nobody read them in time)\n"
                self._add(said.encode())
                self._dropped = 0
            self._add(data)

    def _add(self, data: bytes) -> None:
        self._waiting.append(data)
        self._size += len(data)
        self._turn.notify_all()

    def wait(self) -> None:
        """Wait until there is room, as long as somebody reads: so that a fast printer loses nothing."""
        with self._turn:
            while self._size >= _ROOM // 2 and not (self._stuck or self._closed):
                before = self._size
                self._turn.wait(_STUCK)
                self._stuck = self._size >= before

    def close(self, until: float) -> None:
        """Nothing more comes: what waits is written, until a time of `time.monotonic`."""
        with self._turn:
            self._closed = True
            self._turn.notify_all()
        self._thread.join(max(0.0, until - time.monotonic()))

    def _work(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    break
                data = self._waiting.popleft()
            write_all(self._descriptor, data)
            with self._turn:
                self._size -= len(data)
                self._stuck = False
                self._turn.notify_all()
        os.close(self._descriptor)
