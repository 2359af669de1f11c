"""Whether the other end of a link is there: one timer a link, and none a message."""

from __future__ import annotations

from collections.abc import Callable

from lakeshore.core.backend import Backend, Timed


class Pulse:
    """Asks after `beat` seconds of silence, and gives up after as many again.

    Only time in which this process could listen counts: where a timer comes late, what came meanwhile is
    read first, and who has not said anything then is asked anew.

    Args:
        backend: the loop.
        beat: seconds.
        read: takes in what has come.
        ask: sends a Ping.
        lose: called with a sentence when nobody is there.

    Attributes:
        heard: when something came last; set it whenever something does.
    """

    __slots__ = ("_ask", "_asked", "_backend", "_beat", "_due", "_lose", "_read", "_timer", "heard")

    def __init__(
        self,
        backend: Backend,
        beat: float,
        read: Callable[[], None],
        ask: Callable[[], None],
        lose: Callable[[str], None],
    ) -> None:
        self._backend, self._beat = backend, beat
        self._read, self._ask, self._lose = read, ask, lose
        self._asked: float | None = None  # when, if there is no answer yet
        self._due = self.heard = backend.now()
        self._timer: Timed | None = None

    def begin(self) -> None:
        """Listen from now on."""
        self.heard = self._backend.now()
        self._wait(self._beat)

    def end(self) -> None:
        """Listen no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, seconds: float) -> None:
        self._due = self._backend.now() + seconds
        self._timer = self._backend.later(seconds, self._tick)

    def _tick(self) -> None:
        late = self._backend.now() - self._due > self._beat / 2
        if late or self._asked is not None:
            self._read()
            if self._timer is None:  # that was the end
                return
        if self._asked is not None and self.heard >= self._asked:  # however long ago: this may be late, too
            self._asked = None
        silence = self._backend.now() - self.heard
        if silence < self._beat:
            self._wait(self._beat - silence)
        elif late or self._asked is None:
            self._asked = self._backend.now()
            self._ask()
            if self._timer is not None:
                self._wait(self._beat)
        else:
            self._lose(f"nothing was heard of the other end for {silence:.3g} s")
