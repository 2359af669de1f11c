"""Links inside one process: between two actors on one loop, or between two threads' loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakeshore.core.backend import Lane

Post = Callable[[Callable[[], None]], Any]


class MemoryLink:
    """One end. Set `receive` and `closed` before anything is sent to it."""

    def __init__(self) -> None:
        self._other: MemoryLink
        self._open = True
        self.receive: Callable[[Any], None] = _nowhere
        self.closed: Callable[[], None] = lambda: None

    def send(self, message: Any, /) -> None:
        """Hand over at once."""
        if self._open:
            self._other.receive(message)

    def close(self) -> None:
        """Tell the other end, once."""
        if self._open:
            other = self._other
            self._open = other._open = False
            other.closed()


def memory_pair() -> tuple[MemoryLink, MemoryLink]:
    """Two ends of one link, both on one loop."""
    a, b = MemoryLink(), MemoryLink()
    a._other, b._other = b, a  # pyright: ignore[reportPrivateUsage]
    return a, b


class _Close:
    __slots__ = ()


_CLOSE = _Close()


class ThreadLink:
    """One end of a link between two loops; each end calls back on its own loop only."""

    def __init__(self) -> None:
        self._lane: Lane[Any]
        self._open = True
        self.receive: Callable[[Any], None] = _nowhere
        self.closed: Callable[[], None] = lambda: None

    def send(self, message: Any, /) -> None:
        """Hand over to the other loop; a loop that has ended hears nothing."""
        if self._open:
            try:
                self._lane.put(message)
            except RuntimeError:
                self._open = False

    def close(self) -> None:
        """Tell the other end, once."""
        if self._open:
            self.send(_CLOSE)
            self._open = False

    def _arrived(self, message: Any) -> None:
        if message is not _CLOSE:
            self.receive(message)
        elif self._open:
            self._open = False
            self.closed()


def thread_pair(post_a: Post, post_b: Post) -> tuple[ThreadLink, ThreadLink]:
    """Two ends: the first called back through `post_a`, the second through `post_b`."""
    a, b = ThreadLink(), ThreadLink()
    a._lane = Lane(post_b, b._arrived)  # pyright: ignore[reportPrivateUsage]
    b._lane = Lane(post_a, a._arrived)  # pyright: ignore[reportPrivateUsage]
    return a, b


def _nowhere(message: Any) -> None:
    """What arrives before anybody listens is a bug."""
    raise RuntimeError(f"a message before the link was connected: {message!r}")
