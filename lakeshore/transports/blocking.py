"""A link for a plain thread: it blocks, and needs no event loop."""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Any

from lakeshore.core.errors import FramingError, Unreachable
from lakeshore.core.framing import Decoder, control, encode
from lakeshore.core.messages import Ping, Pong

from .address import Address, parse

_RECEIVE = 64 << 10  # bytes


class BlockingLink:
    """One end of a link to a head, for one thread at a time.

    Args:
        address: of a listener.
        ca: a file of certificates to trust, for `tls://`.
        timeout: seconds that connecting, and sending, may take.

    Raises: Unreachable.
    """

    def __init__(
        self, address: str | Address, *, ca: str | os.PathLike[str] | None = None, timeout: float = 5.0
    ) -> None:
        place = parse(address) if isinstance(address, str) else address
        self._timeout = timeout
        self._decoder = Decoder()
        self._came: deque[Any] = deque()
        try:
            self._sock = _connected(place, ca, timeout)
        except OSError as error:
            raise Unreachable(f"{place} can't be reached ({error})") from error

    def send(self, *messages: Any) -> None:
        """Send messages. Raises: OSError."""
        self._sock.settimeout(self._timeout)
        for frame in encode(list(messages)):
            self._sock.sendall(frame)

    def fileno(self) -> int:
        """The socket's, to wait for; who does takes what came with `receive(0)` until that is None."""
        return self._sock.fileno()

    def receive(self, timeout: float | None) -> Any:
        """The next message; None where none came within `timeout` seconds.

        Raises: EOFError where the other end has closed; OSError, FramingError.
        """
        while not self._came:
            self._sock.settimeout(timeout)
            try:
                data = self._sock.recv(_RECEIVE)
            except (TimeoutError, BlockingIOError):
                return None
            except OSError as error:
                if type(error).__name__ == "SSLWantReadError":
                    return None
                raise
            if not data:
                raise EOFError("the other end closed the link")
            self._came.extend(self._decoder.feed(data))
            if any(isinstance(each, Ping) for each in self._decoder.controls):
                self._sock.settimeout(self._timeout)
                self._sock.sendall(control(Pong()))
            self._decoder.controls.clear()
        return self._came.popleft()

    def close(self) -> None:
        """Hang up."""
        self._sock.close()


def _connected(place: Address, ca: str | os.PathLike[str] | None, timeout: float) -> socket.socket:
    if place.scheme == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        try:
            sock.connect(place.path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((place.host, place.port), timeout)
    if place.scheme != "tls":
        return sock
    from .tls import client_context  # what knows no TLS stays small

    try:
        return client_context(ca).wrap_socket(sock, server_hostname=place.host)
    except BaseException:
        sock.close()
        raise


__all__ = ["BlockingLink", "FramingError"]
