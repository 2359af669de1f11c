"""What a worker and the process of a body say to each other, over a socket pair of their own.

Most of it is what a head and a worker say; the rest stays between the two. A message is a length (4
bytes, big-endian) and msgpack. Both ends are one version of one program, and trust each other.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from lakeshore.core.backend import Backend, Timed
from lakeshore.core.messages import (
    Cleared,
    Ended,
    Frames,
    FramesAck,
    GaveBack,
    Grant,
    Logged,
    LoggedAck,
    Progressed,
    Publish,
    Stop,
)

WANTS_DIED, WANTS_MEMORY = 1, 2  # bits of `Begun.retries`

_READ = 256 << 10  # bytes
_HEADER = 4  # bytes


class Charge(Struct, frozen=True, array_like=True):
    """What a child is, told first.

    Attributes:
        backend: its event loop.
        path: its `sys.path`.
        cleanup: seconds that a stopped body may go on for.
        memory: bytes that its process group may take; 0: as much as there is.
        address: the plane that its bodies submit to; empty: `plane_error` says why there is none.
        namespace: the one named; empty: the token's own.
        hooks: `module:name` of a `Hooks`.
        setup: a pickled `on_run_setup`.
        log_format: how it logs on stderr; empty: as Python does by itself.
    """

    backend: str
    path: tuple[str, ...]
    payload_limit: int
    cleanup: float
    memory: int = 0
    root: str | None = None
    allow_pickle: bool = False
    trust: tuple[str, ...] = ()
    strict_source: bool = False
    address: str = ""
    namespace: str = ""
    token: str = ""
    ca: str = ""
    plane_error: str = ""
    hooks: str = ""
    setup: bytes = b""
    log_format: str = ""


class Run(Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Run this. `trusted`: its function is the parent's own."""

    grant: Grant
    trusted: bool


class Quit(Struct, frozen=True, array_like=True, gc=False, tag=2):
    """End."""


class Ready(Struct, frozen=True, array_like=True, gc=False, tag=3):
    """The child has loaded, and takes jobs."""


class Begun(Struct, frozen=True, array_like=True, gc=False, tag=4):
    """The body begins now. `retries`: what its `retry_on` would say to the death of its process."""

    id: bytes
    attempt: int
    retries: int


class Published(Struct, frozen=True, array_like=True, gc=False, tag=7):
    """The files that a frame names are where they belong: the body may be stopped again."""

    id: bytes
    attempt: int


class Denied(Struct, frozen=True, array_like=True, gc=False, tag=8):
    """The answer to `Publish` where the attempt is over: its files are not to be published."""

    id: bytes
    attempt: int


class Left(Struct, frozen=True, array_like=True, gc=False, tag=9):
    """The body that ends now has left `what` in its process, which would disturb the next one."""

    what: str


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode_charge: Callable[[bytes], Charge] = msgspec.msgpack.Decoder(Charge).decode
_decode: Callable[[bytes | memoryview], Any] = msgspec.msgpack.Decoder(
    Run
    | Quit
    | Stop
    | FramesAck
    | Ready
    | Begun
    | Frames
    | Ended
    | GaveBack
    | Logged
    | LoggedAck
    | Progressed
    | Publish
    | Published
    | Cleared
    | Denied
    | Left
).decode


def framed(message: Any) -> bytes:
    """A message as it travels."""
    data = encode(message)
    return len(data).to_bytes(_HEADER, "big") + data


def taken(buffer: bytearray) -> list[Any]:
    """Remove and decode every complete message."""
    found: list[Any] = []
    at, end = 0, len(buffer)
    with memoryview(buffer) as view:
        while end - at >= _HEADER:
            stop = at + _HEADER + int.from_bytes(view[at : at + _HEADER], "big")
            if stop > end:
                break
            found.append(_decode(view[at + _HEADER : stop]))
            at = stop
    del buffer[:at]
    return found


def exactly(sock: socket.socket, size: int) -> bytes:
    """So many bytes of a blocking socket. Raises EOFError."""
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError("the worker of this process has ended")
        data += part
    return bytes(data)


def receive_charge(sock: socket.socket) -> Charge:
    """Wait for what one is to be. Raises EOFError, OSError."""
    return decode_charge(exactly(sock, int.from_bytes(exactly(sock, _HEADER), "big")))


class Wire:
    """One end of the socket pair, by callbacks, on one loop. It reads from the beginning.

    Args:
        sock: is this object's from now on.
        receive: called with each message.
        closed: called once when the other end has closed or is lost, after all that came of it.
    """

    def __init__(
        self,
        sock: socket.socket,
        backend: Backend,
        receive: Callable[[Any], None],
        closed: Callable[[], None],
    ) -> None:
        sock.setblocking(False)
        self._sock, self._backend = sock, backend
        self._receive, self._closed = receive, closed
        self._out: list[bytes] = []
        self._rest: memoryview | None = None  # of what did not leave at once
        self._buffer = bytearray()
        self._found: deque[Any] = deque()
        self._flushing = False
        self._open = True
        self._writer: Timed | None = None
        self._reader: Timed = backend.readable(sock, self.read)

    def send(self, message: Any, /) -> None:
        """Hand over one message, which leaves at once."""
        self.send_raw(framed(message))

    def send_raw(self, data: bytes) -> None:
        """The same for one that is encoded."""
        if self._open:
            self._out.append(data)
            if self._writer is None:
                self._flush()

    def send_soon(self, message: Any) -> None:
        """One that nobody waits for: it leaves with the next that somebody does, or in the next turn of the
        loop."""
        if self._open:
            self._out.append(framed(message))
            if not self._flushing and self._writer is None:
                self._flushing = True
                self._backend.soon(self._flush)

    def close(self) -> None:
        """No more, either way."""
        if self._open:
            self._open = False
            self._reader.cancel()
            if self._writer is not None:
                self._writer.cancel()
            self._sock.close()
            self._out.clear()
            self._rest = None

    def forget(self) -> None:
        """In a forked child: the loop that watches the socket is another's."""
        self._open = False
        self._sock.close()

    def _flush(self) -> None:
        self._flushing = False
        try:
            while self._open and (self._out or self._rest):
                if not self._rest:
                    out, self._out = self._out, []
                    self._rest = memoryview(out[0] if len(out) == 1 else b"".join(out))
                self._rest = self._rest[self._sock.send(self._rest) :]
        except (BlockingIOError, InterruptedError):
            if self._writer is None:
                self._writer = self._backend.writable(self._sock, self._flush)
            return
        except OSError:  # the reader hears of it, after what the other end had said
            self._out.clear()
            self._rest = None
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None

    def read(self) -> None:
        """Take in everything that has come. `receive` may call this for what comes after its message."""
        self._hand_on()
        while self._open:
            try:
                data = self._sock.recv(_READ)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                self._closed()
                return
            self._buffer += data
            try:
                self._found += taken(self._buffer)
            except msgspec.MsgspecError:  # a body has written to what is not its own
                self.close()
                self._closed()
                return
            self._hand_on()
            if len(data) < _READ:
                return

    def _hand_on(self) -> None:
        while self._found:
            self._receive(self._found.popleft())


__all__ = [
    "WANTS_DIED",
    "WANTS_MEMORY",
    "Begun",
    "Charge",
    "Denied",
    "Left",
    "Published",
    "Quit",
    "Ready",
    "Run",
    "Wire",
    "framed",
    "receive_charge",
    "taken",
]
