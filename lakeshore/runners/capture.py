"""What bodies print and log: told apart by the body that does it, and passed on to whom it was meant for.

While a worker runs, `sys.stdout` and `sys.stderr` are thin stand-ins, and log records are looked at as
they are made. What happens outside of bodies goes through untouched.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

from lakeshore.core.logbook import SILENCE
from lakeshore.core.running import CURRENT

_LOGGING = logging.__dict__
_STREAMS = ("stdout", "stderr")


class Tee:
    """A stream that also notes what the body of this context writes. Everything else is the stream's own."""

    def __init__(self, stream: Any, source: str) -> None:
        self._stream, self._source = stream, source

    def write(self, text: str) -> int:
        """Write, and note it."""
        running = CURRENT.get()
        if running is not None and running.notes is not None and type(text) is str and not of_logging():
            running.notes.write(running, self._source, text)
        return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Any:
        return iter(self._stream)

    def __repr__(self) -> str:
        return f"<{self._source} of Lakeshore's worker, to {self._stream!r}>"


def of_logging() -> bool:
    """Whether a handler of `logging` writes here: its record was noted when it was made."""
    try:
        frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    except ValueError:  # the interpreter itself, which tells of an error that nobody caught
        return False
    return frame.f_globals is _LOGGING


def _noted(record: logging.LogRecord) -> None:
    """Note what a body logs. A record that can't be formatted is its handlers' matter."""
    running = CURRENT.get()
    if running is None or running.notes is None or not record.name:
        return
    try:
        text = f"{record.name}: {record.getMessage()}"
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + _format.formatException(record.exc_info)
        if record.stack_info:
            text += f"\n{record.stack_info}"
    except Exception:
        return
    running.notes.line(running, "logging", record.levelname.lower(), text)


_format = logging.Formatter()


class _Capture:
    """Put in place with the first worker of this process, and taken away with the last.

    Log records are met where they are made, and not by a handler: the root logger with a handler of ours
    would look set up already to `logging.basicConfig` and to the last resort that prints warnings.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._tees: list[tuple[str, Tee, Any]] = []
        self._factory: Callable[..., logging.LogRecord] | None = None
        self._before: Callable[..., logging.LogRecord]

    def begin(self, streams: bool) -> None:
        """One worker more."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._install(streams)

    def end(self) -> None:
        """One worker less. What others have put in our place meanwhile stays."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            for name, tee, stream in self._tees:
                if getattr(sys, name) is tee:
                    setattr(sys, name, stream)
            self._tees.clear()
            if logging.getLogRecordFactory() is self._factory:
                logging.setLogRecordFactory(self._before)

    def forked(self) -> None:
        """This is a child of the process: whoever held the lock is not here."""
        self._lock = threading.Lock()

    def _install(self, streams: bool) -> None:
        for name in _STREAMS if streams else ():
            stream = getattr(sys, name)
            if stream is not None:
                tee = Tee(stream, name)
                self._tees.append((name, tee, stream))
                setattr(sys, name, tee)
        before = self._before = logging.getLogRecordFactory()

        def made(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = before(*args, **kwargs)
            _noted(record)
            return record

        self._factory = made
        logging.setLogRecordFactory(made)


_capture = _Capture()


def _after_fork() -> None:
    """What a body forks has no loop to pass anything on; its locks may be held by nobody."""
    _capture.forked()
    running = CURRENT.get()
    if running is not None and running.notes is not None:
        running.notes = SILENCE


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def capturing(on: bool = True, *, streams: bool = True) -> Generator[None]:
    """Inside, what bodies print and log is noted; without `streams`, what they log alone."""
    if not on:
        yield
        return
    _capture.begin(streams)
    try:
        yield
    finally:
        _capture.end()
