"""A link over a socket, by callbacks: nothing here waits, and nothing is done once a message."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from lakeshore.core.backend import Backend, Timed
from lakeshore.core.errors import FramingError, PayloadTooLarge
from lakeshore.core.framing import MESSAGE_LIMIT, Decoder, check, control, encode
from lakeshore.core.messages import Ping, Pong

from .channel import RECEIVE, Channel
from .outbox import Outbox
from .pulse import Pulse

BEAT = 10.0  # seconds of silence before a Ping; after twice that a link is dead
LINGER = 3.0  # seconds that a closed link may still send what it has
HIGH_WATER, LOW_WATER = 4 << 20, 1 << 20  # bytes
_RECEIVES = 4  # in one turn of the loop, so that no link holds up the others

_OPEN, _CLOSING, _CLOSED = range(3)
_PING, _PONG = control(Ping()), control(Pong())


class StreamLink:
    """One end of a link between processes. It reads from when `receive` is set: set `closed` before that.

    Args:
        channel: the connection.
        backend: the loop it lives on, and on which it calls back.
        beat: after so many seconds of silence the other end is asked whether it is there, after twice as
            many it is not.
        limit: the longest message sent or taken, bytes.
        peer: who is at the other end, for people.

    Attributes:
        closed: called once, when the other end has closed or is lost, after every message that came of it.
        lost_reason: why the link ended, for people; empty while it is open and where this end closed it.
        on_full, on_drained: called when `pending` goes above `HIGH_WATER`, then below `LOW_WATER`.
        enter, leave: called around what is received together.
        flush_later: calls back when what was sent is to leave; in the next turn of the loop unless set.
    """

    def __init__(
        self,
        channel: Channel,
        backend: Backend,
        *,
        beat: float = BEAT,
        limit: int = MESSAGE_LIMIT,
        peer: str = "",
    ) -> None:
        self.closed: Callable[[], None] = _nothing
        self.on_full: Callable[[], None] = _nothing
        self.on_drained: Callable[[], None] = _nothing
        self.enter: Callable[[], None] = _nothing
        self.leave: Callable[[], None] = _nothing
        self.flush_later: Callable[[Callable[[], None]], None] = backend.soon
        self.lost_reason, self.peer = "", peer
        self._channel, self._backend, self._limit = channel, backend, limit
        self._decoder, self._outbox = Decoder(limit), Outbox(channel)
        self._pulse = Pulse(backend, beat, self._read, lambda: self._urge(_PING), self._lose)
        self._state = _OPEN
        self._receive: Callable[[Any], None] = _nowhere
        if TYPE_CHECKING:
            self.receive: Callable[[Any], None] = _nowhere
        self._out: list[Any] = []  # sent in this turn of the loop
        self._full = False
        self._reader: Timed | None = None
        self._writer: Timed | None = None
        self._linger: Timed | None = None
        self._ended: list[Callable[[Any], None]] = []
        _links.add(self)

    if not TYPE_CHECKING:  # for whom it is an attribute, as `LinkEnd` has it

        @property
        def receive(self):
            """Called with each message that comes. Setting it begins to read."""
            return self._receive

        @receive.setter
        def receive(self, receive):
            self._receive = receive
            if self._state == _OPEN and self._reader is None:
                self._read_on()
                self._pulse.begin()

    @property
    def limit(self) -> int:
        """The longest message sent or taken, bytes. Lower it for one who is not let in yet."""
        return self._decoder.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = self._decoder.limit = limit

    @property
    def pending(self) -> int:
        """Bytes handed over in earlier turns that the kernel has not taken yet."""
        return self._outbox.pending

    def check(self, message: Any) -> int:
        """How many bytes a message takes.

        Raises: PayloadTooLarge where it is too large to be sent.
        """
        return check(message, self._limit)

    def send(self, message: Any, /) -> None:
        """Hand over one message; it leaves in the next turn of the loop, with all others of this turn. One
        that is too large (see `check`) breaks the link."""
        if self._state == _OPEN:
            if not self._out:
                self.flush_later(self._flush)
            self._out.append(message)

    def close(self) -> None:
        """What was sent still leaves, for some seconds; then the other end is told."""
        if self._state == _OPEN:
            self._state = _CLOSING
            self._pulse.end()
            self._linger = self._backend.later(LINGER, self._end)
            self._encode()
            if self._writer is None:
                self._push()
            if self._state == _CLOSING:
                self._read_on()  # until the other end has read everything and closes

    def abort(self, reason: str = "") -> None:
        """End the link at once: nothing more leaves, and this end hears nothing more."""
        if self._state != _CLOSED:
            self.lost_reason = reason
            self._end()

    async def aclose(self) -> None:
        """Close, and wait until everything has left."""
        self.close()
        if self._state != _CLOSED:
            parker = self._backend.parker()
            self._ended.append(parker.set)
            await parker.wait()

    # sending

    def _flush(self) -> None:
        """What was sent in this turn leaves."""
        if not self._out:
            return
        self._encode()
        if self._writer is None:
            self._push()
        if self.pending > HIGH_WATER and not self._full:
            self._full = True
            self.on_full()

    def _encode(self) -> None:
        batch, self._out = self._out, []
        try:
            self._outbox.add(encode(batch, self._limit))
        except PayloadTooLarge as error:
            self._lose(str(error))
        except Exception as error:  # a bug, but nothing may get lost in silence
            self._lose(f"a message can't be encoded: {error}")
            raise

    def _push(self) -> None:
        """Give the kernel what it takes now, and the rest when it is ready for more."""
        if self._state == _CLOSED:
            return
        try:
            more = self._outbox.send()
            if not more and self._state == _CLOSING:
                self._channel.finish()
        except (BlockingIOError, InterruptedError):
            more = True
        except OSError:
            self._cannot_send()
            return
        if not more:
            self._stop_writing()
        elif self._writer is None:
            self._writer = self._backend.writable(self._channel.sock, self._push)
        if self._full and self.pending < LOW_WATER:
            self._full = False
            self.on_drained()

    def _cannot_send(self) -> None:
        """The other end takes nothing any more; what it sent before that is read first."""
        if self._state == _CLOSING:
            self._end()
        else:
            self._stop_writing()
            self._outbox.drop()
            if self._reader is not None:
                self._backend.soon(self._read)

    def _urge(self, frame: bytes) -> None:
        self._outbox.urge(frame)
        if self._writer is None:
            self._push()

    # receiving

    def _read_on(self) -> None:
        if self._reader is None:
            self._reader = self._backend.readable(self._channel.sock, self._read)
            if self._channel.waiting:
                self._backend.soon(self._read)

    def _read(self) -> None:
        leave = self.leave  # what is received may set another
        self.enter()
        try:
            self._read_some()
        finally:
            leave()

    def _read_some(self) -> None:
        for _ in range(_RECEIVES):
            if self._state == _CLOSED:
                return
            try:
                data = self._channel.receive()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(f"the link broke: {error.strerror or error}")
                return
            if not data:
                cut = " in the middle of a message" if self._decoder.buffered else ""
                self._lose(f"the other end closed the link{cut}")
                return
            self._pulse.heard = self._backend.now()
            if self._state == _OPEN:
                self._deliver(data)
            if len(data) < RECEIVE:
                return

    def _deliver(self, data: memoryview) -> None:
        decoder = self._decoder
        try:
            found = decoder.feed(data)
        except FramingError as error:
            self._lose(str(error))
            return
        if decoder.controls:
            if any(isinstance(each, Ping) for each in decoder.controls):
                self._urge(_PONG)
            decoder.controls.clear()
        try:
            for message in found:
                if self._state != _OPEN:
                    return
                self._receive(message)  # which may set another
        except BaseException as error:  # a bug, but the rest of the batch may not get lost in silence
            self._lose(f"a message was not handled: {error!r}")
            raise

    # the end

    def _lose(self, reason: str) -> None:
        told = self._state == _OPEN
        self._end()
        if told:
            self.lost_reason = reason
            self.closed()

    def _end(self) -> None:
        if self._state == _CLOSED:
            return
        self._state = _CLOSED
        self._pulse.end()
        if self._linger is not None:
            self._linger.cancel()
        self._stop_writing()
        self._outbox.drop()
        self._out.clear()
        if self._reader is not None:
            self._reader.cancel()
        self._channel.sock.close()
        ended, self._ended = self._ended, []
        for call in ended:
            call(None)

    def _stop_writing(self) -> None:
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None

    def forget(self) -> None:
        """In a forked child: this link is the parent's, and so is its loop. Its socket is gone already."""
        self._state = _CLOSED


_links: WeakSet[StreamLink] = WeakSet()


def _after_fork() -> None:
    for link in list(_links):
        link.forget()


os.register_at_fork(after_in_child=_after_fork)


def _nothing() -> None:
    """Nobody wants to know."""


def _nowhere(message: Any) -> None:
    raise RuntimeError(f"a message before the link was connected: {message!r}")
