"""A non-blocking socket as a link uses it: plain here, or with TLS between (`tls.TlsChannel`)."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any, Protocol
from weakref import WeakSet

RECEIVE = 256 << 10  # bytes taken at once
NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


class _Room(threading.local):
    """One buffer a thread: what is received is decoded before anything else is."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE))
        self.plain = memoryview(bytearray(RECEIVE + (64 << 10)))  # what TLS makes of it


room = _Room()


class LinkSocket(socket.socket):
    """A socket that is closed without a warning where its loop ended first, and that a forked child lets
    go of at once, without a word to the other end: the parent goes on using it."""

    def __del__(self) -> None:
        self.close()


_open: WeakSet[LinkSocket] = WeakSet()


def owned(sock: socket.socket) -> LinkSocket:
    """The same socket, non-blocking; `sock` is of no more use."""
    family, kind, proto = sock.family, sock.type, sock.proto
    ours = LinkSocket(family, kind, proto, fileno=sock.detach())
    ours.setblocking(False)
    _open.add(ours)
    return ours


def _after_fork() -> None:
    for sock in list(_open):
        number = sock.detach()
        if number >= 0:
            os.close(number)  # whatever loop watches it is the parent's too: it is not told
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)


class Channel(Protocol):
    """What a link needs of its connection. All raise BlockingIOError where they'd wait, and OSError
    (`ssl.SSLError` is one) where the connection is broken."""

    sock: socket.socket

    @property
    def unsent(self) -> int:
        """Bytes taken by `send` that the kernel has not taken yet."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether something can be received that the socket will not tell of."""
        ...

    def send(self, data: Any) -> int:
        """How many bytes were taken."""
        ...

    def receive(self) -> memoryview:
        """What came, to be used at once; empty at the end."""
        ...

    def flush(self) -> None:
        """Give the kernel what is unsent."""
        ...

    def finish(self) -> None:
        """Tell the other end that nothing follows."""
        ...


class PlainChannel:
    """The socket itself."""

    __slots__ = ("_send", "sock")

    unsent = 0
    waiting = False

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._send = sock.send

    def send(self, data: Any) -> int:
        """Straight to the kernel."""
        return self._send(data, NO_SIGNAL)

    def receive(self) -> memoryview:
        """Straight from the kernel."""
        view = room.view
        return view[: self.sock.recv_into(view)]

    def flush(self) -> None:
        """Nothing is ever unsent here."""

    def finish(self) -> None:
        """Shut one direction."""
        self.sock.shutdown(socket.SHUT_WR)


def tune(sock: socket.socket) -> None:
    """Small messages leave at once, and no more than a little waits in the kernel before a `Ping`."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 512 << 10)
