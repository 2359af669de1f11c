"""What bodies say, gathered from whatever thread says it: one wake-up of the loop for many lines."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from lakeshore.core.logbook import Draft, Notes, Partial, pack_line, told
from lakeshore.core.rows import Progress
from lakeshore.core.running import Running
from lakeshore.core.scribe import Scribe

_PROGRESS_LINES = 5.0  # seconds between two lines of progress

Post = Callable[[Callable[[], None]], object]


class Notebook:
    """Where the bodies of one worker say the first thing; whoever does gets `Lines` of its own.

    Args:
        scribe: the worker's, which passes it on.
        post: calls back on the worker's loop, from any thread.
        wall: seconds since 1970.
        tells: whether words of progress become lines, too, now and then.
    """

    def __init__(
        self, scribe: Scribe, post: Post, wall: Callable[[], float] = time.time, *, tells: bool = True
    ) -> None:
        self.scribe, self.post, self.wall, self.tells = scribe, post, wall, tells
        self._lock = threading.RLock()  # a signal handler, or a destructor, may print in the middle

    def line(self, running: Running, source: str, level: str, text: str) -> None:
        """Lines that are whole."""
        self._of(running).line(running, source, level, text)

    def write(self, running: Running, source: str, text: str) -> None:
        """Something written to a stream."""
        self._of(running).write(running, source, text)

    def progress(self, running: Running, done: float, total: float | None, text: str) -> None:
        """How far it is."""
        self._of(running).progress(running, done, total, text)

    def forward(self, running: Running, count: int, data: bytes) -> None:
        """Lines of a body in another process."""
        self._of(running).forward(running, count, data)

    def _of(self, running: Running) -> Notes:
        with self._lock:
            if running.notes is self:
                running.notes = Lines(self, (running.id, running.attempt))
            return running.notes


class Lines:
    """What one attempt has said and its worker not passed on yet."""

    def __init__(self, book: Notebook, key: tuple[bytes, int]) -> None:
        self.key = key
        self._book, self._wall = book, book.wall
        self._lock = threading.RLock()
        self._draft = Draft()
        self._partials: dict[str, Partial] = {}
        self._progress: Progress | None = None
        self._fresh = self._closed = False
        self._posted = self._woken = False  # the loop will look; there is something new for it
        self._lined_at = 0.0  # when the last line of progress was written
        self._lined: Progress | None = None

    # from any thread

    def line(self, running: Running, source: str, level: str, text: str) -> None:
        """Lines that are whole."""
        at = self._wall()
        packed = [pack_line(at, source, level, each) for each in text.split("\n")]
        with self._lock:
            self._add(packed)

    def write(self, running: Running, source: str, text: str) -> None:
        """Something written to a stream: whole lines leave, the rest waits for its end."""
        with self._lock:
            partial = self._partials.get(source)
            if partial is None:
                partial = self._partials[source] = Partial()
            skipped, whole = partial.feed(text)
            if skipped and not self._closed:
                self._draft.drop(skipped)
            if whole:
                at = self._wall()
                self._add([pack_line(at, source, "info", each) for each in whole])

    def progress(self, running: Running, done: float, total: float | None, text: str) -> None:
        """How far it is; only the newest word counts."""
        progress = Progress(done, total, self._wall(), text)
        with self._lock:
            if self._closed:
                return
            waiting = self._fresh  # the loop will ask by itself
            self._progress, self._fresh = progress, True
            if not waiting:
                self._wake()

    def forward(self, running: Running, count: int, data: bytes) -> None:
        """Lines of a body in another process."""
        with self._lock:
            if not self._closed:
                self._draft.forward(count, data)
                self._wake()

    def _add(self, lines: list[bytes]) -> None:
        if self._closed:
            return
        for line in lines:
            self._draft.add(line)
        self._wake()

    def _wake(self) -> None:
        self._woken = True
        if not self._posted:
            self._posted = True
            with suppress(RuntimeError):  # the loop has ended
                self._book.post(self._arrived)

    # on the worker's loop

    def _arrived(self) -> None:
        self._book.scribe.hear(self)

    def awake(self) -> bool:
        """Wake the loop again from now on, unless something has come meanwhile."""
        with self._lock:
            self._posted = self._woken and not self._closed
            self._woken = False
            return self._posted

    def take(self) -> tuple[int, bytes] | None:
        """A chunk of lines."""
        with self._lock:
            self._woken = False
            return self._draft.take(self._wall())

    def take_progress(self, *, last: bool = False) -> Progress | None:
        """The newest word of how far it is. Now and then it becomes a line, too."""
        with self._lock:
            progress, fresh, self._fresh = self._progress, self._fresh, False
            if progress is None:
                return None
            due = progress is not self._lined and self._book.tells
            if due and (last or progress.at - self._lined_at >= _PROGRESS_LINES):
                self._lined, self._lined_at = progress, progress.at
                self._draft.add(pack_line(progress.at, "progress", "info", told(progress)))
            return progress if fresh else None

    def close(self) -> None:
        """The attempt is over."""
        with self._lock:
            if not self._closed:
                at = self._wall()
                for source, partial in self._partials.items():
                    if text := partial.rest():
                        self._draft.add(pack_line(at, source, "info", text))
                self._partials.clear()
                self._closed = True
