"""A bar for who waits at a terminal while something large is moved; elsewhere nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

LARGE = 64 << 20  # bytes: what is smaller has no bar
PATIENCE = 1.0  # seconds before one is shown

Advance = Callable[[int], None]
Show = Callable[[str, int], tuple[Advance, Callable[[], None]]]  # what, bytes: to advance it, to end it


@contextmanager
def transfer(
    what: str, total: int, *, show: Show | None = None, clock: Callable[[], float] = time.monotonic
) -> Generator[Advance]:
    """Gives what to call with the bytes that were moved, from any thread.

    Args:
        what: a few words, for example "up models/large.bin".
        total: bytes in all.
        show: begins a bar; None is one of rich's on stderr, if that is a terminal.
    """
    if show is None:
        show = _bars.show if sys.stderr.isatty() else None
    if show is None or total < LARGE:
        yield _ignore
        return
    moving = _Transfer(what, total, show, clock)
    try:
        yield moving.advance
    finally:
        moving.end()


def _ignore(count: int) -> None:
    pass


class _Transfer:
    def __init__(self, what: str, total: int, show: Show, clock: Callable[[], float]) -> None:
        self._what, self._total, self._show, self._clock = what, total, show, clock
        self._lock = threading.Lock()
        self._begun, self._moved = clock(), 0
        self._bar: tuple[Advance, Callable[[], None]] | None = None

    def advance(self, count: int) -> None:
        with self._lock:
            self._moved += count
            if self._bar is not None:
                self._bar[0](count)
            elif self._clock() - self._begun >= PATIENCE:
                self._bar = self._show(self._what, self._total)
                self._bar[0](self._moved)

    def end(self) -> None:
        with self._lock:
            if self._bar is not None:
                self._bar[1]()


class _Bars:
    """One display for all bars of the process: rich has one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._display: Any = None
        self._count = 0

    def show(self, what: str, total: int) -> tuple[Advance, Callable[[], None]]:
        with self._lock:
            if self._display is None:
                self._display = _display()
                self._display.start()
            self._count += 1
            display, task = self._display, self._display.add_task(what, total=total)

        def end() -> None:
            with self._lock:
                display.remove_task(task)
                self._count -= 1
                if self._count == 0:
                    display.stop()
                    self._display = None

        return lambda count: display.advance(task, count), end


def _display() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        console=Console(stderr=True),
        transient=True,
    )


_bars = _Bars()
