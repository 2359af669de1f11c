"""What is written to the descriptors 1 and 2 of a process by whatever means: by C code, or by its children.

Whoever has the other ends of its pipes reads them, and misses nothing of a process that crashes. Such a
process runs one body at a time.
"""

from __future__ import annotations

import codecs
import fcntl
import io
import os
import selectors
import sys
import termios
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from lakeshore.core.logbook import SILENCE
from lakeshore.core.running import CURRENT, Running
from lakeshore.runners.capture import of_logging

from .outlets import Outlet, write_all

_PIECE = 1 << 16  # bytes read at once, which is what a pipe holds


class PipeReader:
    """A thread that reads pipes until they are closed, and notes what comes for the body that runs.

    Args:
        pipes: read ends, by what they are the source of: "stdout" and "stderr". They are closed at the end.
        tee: where what comes from a source is shown, too; by source.

    Raises: OSError, RuntimeError where there are no more descriptors or threads; the pipes are as before.
    """

    def __init__(self, pipes: Mapping[str, int], tee: Mapping[str, Outlet] | None = None) -> None:
        self._running: Running | None = None
        self._pipes, self._tee = dict(pipes), dict(tee or {})
        self._decoders = {source: _decoder() for source in pipes}
        self._lock = threading.Lock()  # held while something is read and noted
        self._next = threading.Lock()  # who has it is the next to have that
        self._strays = False  # something was written while no body ran
        self._until: float | None = None  # when it ends, whoever may have a pipe still
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._read, name="lakeshore output", daemon=True)
        for pipe in pipes.values():
            os.set_blocking(pipe, False)
        try:
            self._thread.start()
        except RuntimeError:
            for end in self._wake:
                os.close(end)
            raise

    def turn_to(self, running: Running | None) -> bool:
        """Another body begins, or none; what is in the pipes by now is the last one's, half a line, too.

        Returns whether somebody wrote while there was no body, or goes on writing.
        """
        with self._next, self._lock:
            for source, pipe in self._pipes.items():
                if size := _waiting(pipe):
                    self._note(source, _from(pipe, size) or b"")
            strays = self._strays or any(map(_waiting, self._pipes.values()))
            self._decoders = {source: _decoder() for source in self._decoders}
            self._running, self._strays = running, False
        return strays

    def finish(self, seconds: float) -> None:
        """The process is gone: read to the end, and for no longer than that where something that it has
        started keeps a pipe open."""
        with self._next, self._lock:
            if self._pipes:
                self._until = time.monotonic() + seconds
                os.write(self._wake[1], b"\0")

    def join(self, seconds: float | None = None) -> bool:
        """Wait until every pipe is closed, at most so long; whether they are."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _read(self) -> None:
        with selectors.DefaultSelector() as ready:
            for source, pipe in self._pipes.items():
                ready.register(pipe, selectors.EVENT_READ, source)
            ready.register(self._wake[0], selectors.EVENT_READ, "")
            while self._pipes and (self._until is None or time.monotonic() < self._until):
                left = None if self._until is None else max(0.0, self._until - time.monotonic())
                for key, _ in ready.select(left):
                    if not self._take(key.data, key.fd):
                        ready.unregister(key.fd)
        with self._lock:
            for end in (*self._pipes.values(), *self._wake):
                os.close(end)
            self._pipes.clear()

    def _take(self, source: str, pipe: int) -> bool:
        """Read once; False at the end."""
        if not source:
            return False  # it has been woken, once
        with self._next:
            self._lock.acquire()
        try:
            data = _from(pipe, _PIECE)
            if data:
                self._note(source, data)
            elif data is not None:
                os.close(self._pipes.pop(source))
        finally:
            self._lock.release()
        if data and source in self._tee:
            self._tee[source].wait()  # nobody waits for that but who writes
        return data != b""

    def _note(self, source: str, data: bytes) -> None:
        running = self._running
        if running is None:
            self._strays = True
        elif running.notes is not None:
            running.notes.write(running, source, self._decoders[source].decode(data))
        if source in self._tee:
            self._tee[source].put(data)


def print_through(saved: Mapping[str, int]) -> None:
    """In a process whose descriptors 1 and 2 are pipes: what Python prints goes through them, line by line.

    What handlers of `logging` print goes to where `saved` goes, by source: their records are noted as they
    are made. So does what a body prints that is over, from a thread that it has left behind.
    """
    for number, source in ((1, "stdout"), (2, "stderr")):
        setattr(sys, source, _Piped(number, saved[source]))


class _Piped(io.TextIOWrapper):
    """A stream on a pipe, with a way around it."""

    def __init__(self, number: int, saved: int) -> None:
        raw = open(number, "wb", closefd=False)  # noqa: SIM115
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        self._saved = saved

    def write(self, text: str) -> int:
        """Write to the one or to the other."""
        running = CURRENT.get()
        if not of_logging() and (running is None or running.notes is not SILENCE):
            return super().write(text)
        write_all(self._saved, text.encode("utf-8", "backslashreplace"))
        return len(text)


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("backslashreplace")


def _waiting(pipe: int) -> int:
    """How many bytes there are to read."""
    size = bytearray(4)
    with suppress(OSError):
        fcntl.ioctl(pipe, termios.FIONREAD, size)
    return int.from_bytes(size, sys.byteorder)


def _from(pipe: int, size: int) -> bytes | None:
    """What there is to read, so much of it; empty at the end, None where there is nothing now."""
    try:
        return os.read(pipe, size)
    except BlockingIOError:
        return None
    except OSError:
        return b""
