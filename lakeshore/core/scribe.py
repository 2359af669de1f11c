"""What the bodies of one worker say, on its way to the head: numbered, and kept until it is stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from .logbook import ROOM
from .messages import Logged, LoggedAck, Progressed
from .rows import Progress

if TYPE_CHECKING:
    from .worker import Worker

Key = tuple[bytes, int]  # an invocation and an attempt
Timer = Callable[[float, Callable[[], None]], Any]  # seconds from now, what to call; has cancel()

PROGRESS_EVERY = 0.2  # seconds between two words of how far a body is
_PAUSE = 0.01  # seconds that lines gather after some have left: a body that says a lot wakes nobody for each


class Source(Protocol):
    """Where the lines of one attempt gather. Threads fill it, the worker's loop empties it."""

    key: Key

    def take(self) -> tuple[int, bytes] | None:
        """A chunk: how many lines, and packed; None where none waits."""
        ...

    def take_progress(self, *, last: bool = False) -> Progress | None:
        """How far the body is, if it has said so since this was asked. `last`: nothing follows."""
        ...

    def awake(self) -> bool:
        """Say at once when there is something from now on; whether something has come since it was heard."""
        ...

    def close(self) -> None:
        """The attempt is over: take in what is half a line, and nothing more from now on."""
        ...


class _Said:
    """One attempt: what has left and may not be stored."""

    __slots__ = ("ahead", "flight", "index", "pause", "progress", "source", "timer")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.flight: deque[Logged] = deque()
        self.index = self.ahead = 0  # the number of the next line; bytes on their way
        self.progress: Progressed | None = None  # the last that was sent
        self.timer: Any = None  # until the next word of how far it is
        self.pause: Any = None

    def cancel(self) -> None:
        """It is over."""
        for timer in (self.timer, self.pause):
            if timer is not None:
                timer.cancel()


class Scribe:
    """The part of a worker that passes on what bodies say. All of it runs on the worker's loop."""

    def __init__(self, worker: Worker, timer: Timer) -> None:
        self._worker, self._timer = worker, timer
        self.said: dict[Key, _Said] = {}

    def hear(self, source: Source) -> None:
        """A body has said something."""
        said = self.said.get(source.key)
        if said is None:
            if not self._worker.runs(source.key):  # left behind by its body
                source.close()
                return
            said = self.said[source.key] = _Said(source)
        if said.timer is None:
            self._progress(source.key, said)
        self._send(source.key, said)
        said.pause = self._timer(_PAUSE, lambda: self._listen(said))

    def ended(self, key: Key, source: Source) -> None:
        """A body that has said something is over: its last words leave before its report."""
        source.close()
        said = self.said.get(key)
        if said is None:
            said = self.said[key] = _Said(source)
        said.cancel()
        self._tell(key, said, source.take_progress(last=True))
        self._send(key, said, at_once=True)

    def forget(self, key: Key) -> None:
        """The head wants nothing more of an attempt."""
        said = self.said.pop(key, None)
        if said is not None:
            said.source.close()
            said.cancel()

    def unconfirmed(self) -> list[Any]:
        """What the head may not have, in order: to be said again on a new link."""
        messages: list[Any] = []
        for said in self.said.values():
            messages += said.flight
            if said.progress is not None:
                messages.append(said.progress)
        return messages

    def on_ack(self, message: LoggedAck) -> None:
        """Lines are stored: there is room for others."""
        key = (message.id, message.attempt)
        said = self.said.get(key)
        if said is None:
            return
        flight = said.flight
        while flight and flight[0].index + flight[0].count <= message.index:
            said.ahead -= len(flight.popleft().data)
        self._send(key, said)

    def _send(self, key: Key, said: _Said, *, at_once: bool = False) -> None:
        while (at_once or said.ahead < ROOM) and (chunk := said.source.take()) is not None:
            message = Logged(*key, said.index, *chunk)
            said.index += message.count
            said.ahead += len(message.data)
            said.flight.append(message)
            self._worker.link.send(message)

    def _progress(self, key: Key, said: _Said) -> None:
        """Say how far the body is; what it says before some time has passed waits."""
        progress = said.source.take_progress()
        if progress is not None:
            self._tell(key, said, progress)
            said.timer = self._timer(PROGRESS_EVERY, lambda: self._again(key, said))

    def _again(self, key: Key, said: _Said) -> None:
        said.timer = None
        if self.said.get(key) is said:
            self._progress(key, said)
            self._send(key, said)

    def _listen(self, said: _Said) -> None:
        if said.source.awake():
            self.hear(said.source)

    def _tell(self, key: Key, said: _Said, progress: Progress | None) -> None:
        if progress is not None:
            said.progress = Progressed(*key, progress)
            self._worker.link.send(said.progress)
