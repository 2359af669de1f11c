"""What lets a worker outlive its links: it keeps what the head has not confirmed, and says it again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from .messages import Drain, Ended, Frames, Held, Logged, Progressed, Registered
from .ports import Link

if TYPE_CHECKING:
    from .worker import Worker

Key = tuple[bytes, int]  # an invocation and an attempt


class _Nowhere:
    """The link of a worker that has none. What matters of what is sent is kept elsewhere."""

    def send(self, message: Any, /) -> None:
        """Nobody hears it."""

    def close(self) -> None:
        """There is nothing to close."""


class _Waiting:
    """The link of a worker that has said hello again and was not answered yet."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, message: Any, /) -> None:
        """What is not kept anyway is sent after the answer."""
        if not isinstance(message, Frames | Logged | Progressed | Ended):
            self.messages.append(message)

    def close(self) -> None:
        """Whoever reconnects closes the link itself."""


class _Sent:
    """Frames of one attempt: how many are stored, and those that may not be."""

    __slots__ = ("frames", "stored")

    def __init__(self) -> None:
        self.stored = 0
        self.frames: deque[Frames] = deque()


class Bond:
    """The part of a leased worker that reconnects.

    Attributes:
        linked: whether the head hears it; nothing is begun meanwhile.
        lease: seconds that the head waits to hear of it, once it has said so.
        sent: frames by attempt; the worker drops what nobody will ask for again.
        took: the invocations that it was granted and has not given back unbegun, where it has a limit.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.sent: dict[Key, _Sent] = {}
        self.took: set[bytes] | None = None if worker.hello.limit is None else set()
        self._link: Link | None = None  # one that is not answered yet
        self.linked = True
        self.lease: float | None = None

    # keeping

    def keep(self, message: Frames) -> None:
        """Frames are sent."""
        self.sent.setdefault((message.id, message.attempt), _Sent()).frames.append(message)

    def confirmed(self, key: Key, index: int) -> bool:
        """Frames below `index` are stored; False where fewer are than were once."""
        sent = self.sent.get(key)
        if sent is None:
            return True
        if index < sent.stored:
            return False
        sent.stored = index
        while sent.frames and sent.frames[0].index + sent.frames[0].count <= index:
            sent.frames.popleft()
        return True

    # reconnecting

    def unlinked(self) -> None:
        """The link is gone: bodies go on."""
        self.linked, self._link = False, None
        self._worker.link = _Nowhere()

    def relinked(self, link: Link) -> None:
        """There is another: register again, with what is held."""
        self.linked, self._link = False, link
        self._worker.link = _Waiting()
        hello, held = self._worker.hello, self._held()
        limit = hello.limit
        if limit is not None and self.took is not None:
            limit = max(0, limit - len(self.took)) + len(held)
        link.send(msgspec.structs.replace(hello, again=True, held=held, limit=limit))

    def again(self) -> None:
        """The head asks for it, on the link that there is."""
        self.relinked(self._link or self._worker.link)

    def _held(self) -> tuple[Held, ...]:
        worker = self._worker
        return (*[Held(*key, begun, ended, self._stored(key)) for key, begun, ended in worker.attempts()],)

    def _stored(self, key: Key) -> int:
        sent = self.sent.get(key)
        return 0 if sent is None else sent.stored

    def registered(self, message: Registered) -> None:
        """The head knows it, and has said what it has: say the rest again, in order."""
        worker, link, waiting = self._worker, self._link, self._worker.link
        self.lease = message.lease
        if link is None:
            return  # the first time
        self._link, self.linked = None, True
        worker.link = link
        if worker.draining:
            link.send(Drain())
        for began in worker.timed():
            link.send(began)
        if isinstance(waiting, _Waiting):
            for each in waiting.messages:
                link.send(each)
        for sent in list(self.sent.values()):
            for frames in list(sent.frames):
                link.send(frames)
        for said in worker.scribe.unconfirmed():
            link.send(said)
        for report in worker.reports():
            link.send(report)
