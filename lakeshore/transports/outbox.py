"""What a link has still to send: frames in order, and before them a Ping or a Pong."""

from __future__ import annotations

from collections import deque

from .channel import Channel

_TURN = 1 << 20  # bytes sent in one turn of the loop, so that no link holds up the others


class Outbox:
    """Gives the kernel one frame after the other, so that what is urgent waits for one frame at most.

    Attributes:
        pending: bytes that the kernel has not taken yet.
    """

    __slots__ = ("_channel", "_current", "_frames", "_urgent", "pending")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frames: deque[bytes] = deque()
        self._urgent: list[bytes] = []
        self._current: bytes | memoryview = b""  # what is left of the frame that is being sent
        self.pending = 0

    def add(self, frames: list[bytes]) -> None:
        """To be sent in order."""
        self._frames += frames
        self.pending += sum(map(len, frames))

    def urge(self, frame: bytes) -> None:
        """To be sent next. One that waits already is sent once: who asks a lot gets one answer."""
        if frame not in self._urgent:
            self._urgent.append(frame)
            self.pending += len(frame)

    def send(self) -> bool:
        """Give the kernel one turn's worth; whether anything is left.

        Raises: BlockingIOError where the kernel takes no more; OSError where the connection is broken.
        """
        channel, frames, room = self._channel, self._frames, _TURN
        channel.flush()
        while room > 0:
            frame = self._current
            if not frame:
                if self._urgent:
                    frame = self._urgent.pop(0)
                elif frames:
                    frame = frames.popleft()
                else:
                    return channel.unsent > 0
                self._current = frame
            sent = channel.send(frame)
            self._current = b"" if sent == len(frame) else memoryview(frame)[sent:]
            self.pending -= sent
            room -= sent
        return True

    def drop(self) -> None:
        """Nothing of it will be sent."""
        self._frames.clear()
        self._urgent.clear()
        self._current, self.pending = b"", 0
