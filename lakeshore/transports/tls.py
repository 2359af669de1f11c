"""TLS between a link and its socket, in memory: the same callbacks as without."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from lakeshore.core.backend import Backend, Timed
from lakeshore.core.errors import CannotListen, Unreachable

from .channel import NO_SIGNAL, room

SECONDS = 10.0  # for a client to shake hands
ALERT = b"\x15\x03\x01\x00\x02\x02\x46"  # fatal: another protocol version
_PLAIN = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"}


def server_context(certificate: str | os.PathLike[str], key: str | os.PathLike[str]) -> ssl.SSLContext:
    """What a `Listener` on a `tls://` address needs, from two PEM files.

    Raises: CannotListen where they can't be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    try:
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CannotListen(
            f"{os.fspath(certificate)} and {os.fspath(key)} can't be used ({why}): name a certificate and "
            "its unencrypted key as PEM files"
        ) from error
    return context


def client_context(ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """What checks a server's certificate: against the file `ca`, or against the system's.

    Raises: Unreachable where the file can't be used.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        raise Unreachable(
            f"the certificates in {ca} can't be read ({error.strerror or error}): name a PEM file"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


class TlsChannel:
    """A socket with TLS, which is a server's without a `hostname`. `shake` comes first."""

    __slots__ = ("_in", "_out", "_tls", "_told", "_unsent", "sock")

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, hostname: str | None = None) -> None:
        self.sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = hostname is None
        self._tls = context.wrap_bio(self._in, self._out, server_side=server, server_hostname=hostname)
        self._unsent = memoryview(b"")
        self._told = False  # the other end knows that nothing follows

    @property
    def unsent(self) -> int:
        """Bytes encrypted and not taken by the kernel."""
        return len(self._unsent) + self._out.pending

    @property
    def waiting(self) -> bool:
        """Whether something came along with the end of the handshake."""
        return self._in.pending > 0

    def shake(self) -> bool:
        """Go on with the handshake; whether it is done. OSError where it failed."""
        while True:
            try:
                self._tls.do_handshake()
                return True
            except ssl.SSLWantReadError:
                pass
            finally:  # an alert leaves too
                with contextlib.suppress(BlockingIOError):
                    self.flush()
            try:
                size = self.sock.recv_into(room.view)
            except (BlockingIOError, InterruptedError):
                return False
            if not size:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "closed during the handshake")
            self._in.write(room.view[:size])

    def send(self, data: Any) -> int:
        """Encrypt all of it, once what was encrypted before has left."""
        self.flush()
        view, taken = memoryview(data), 0
        while taken < len(view):
            taken += self._tls.write(view[taken:])
        with contextlib.suppress(BlockingIOError, InterruptedError):
            self.flush()
        return taken

    def flush(self) -> None:
        """Give the kernel what is encrypted."""
        while True:
            if not self._unsent:
                if not self._out.pending:
                    return
                self._unsent = memoryview(self._out.read())
            self._unsent = self._unsent[self.sock.send(self._unsent, NO_SIGNAL) :]

    def receive(self) -> memoryview:
        """All that can be decrypted."""
        try:
            size = self.sock.recv_into(room.view)
        except (BlockingIOError, InterruptedError):
            if not self.waiting:
                raise
            size = -1
        if self._told:
            return room.view[: max(0, size)]  # nobody reads it
        if size > 0:
            self._in.write(room.view[:size])
        got, ended = self._decrypt(room.plain)
        with contextlib.suppress(BlockingIOError, InterruptedError):
            self.flush()  # an answer to a change of keys
        if got or ended or not size:
            return room.plain[:got]
        raise BlockingIOError

    def _decrypt(self, plain: memoryview) -> tuple[int, bool]:
        got: int = 0
        try:
            while got < len(plain):
                size: Any = self._tls.read(len(plain) - got, cast(Any, plain[got:]))
                if not size:
                    return got, True
                got += size
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            return got, True
        return got, False

    def finish(self) -> None:
        """Say in TLS that nothing follows, then shut one direction."""
        if not self._told:
            self._told = True
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
        self.flush()
        self.sock.shutdown(socket.SHUT_WR)


class Handshake:
    """Shakes hands by callbacks; `done` is called once, with None or with what went wrong, which it is too
    after `seconds`. `cancel` ends it without a call.
    """

    def __init__(
        self,
        channel: TlsChannel,
        backend: Backend,
        done: Callable[[OSError | None], None],
        seconds: float | None = None,
    ) -> None:
        self._channel, self._done = channel, done
        self._on = True
        self._watch: Timed = backend.readable(channel.sock, self._step)
        self._timer: Timed | None = None
        if seconds is not None:
            self._timer = backend.later(seconds, self._too_late)
        backend.soon(self._step)

    def cancel(self) -> None:
        """Never mind."""
        if self._on:
            self._on = False
            if self._timer is not None:
                self._timer.cancel()
            if self._channel.sock.fileno() >= 0:  # in a forked child the loop is the parent's
                self._watch.cancel()

    def _step(self) -> None:
        if not self._on:
            return
        try:
            if not self._channel.shake():
                return
        except OSError as error:
            self._end(error)
        else:
            self._end(None)

    def _too_late(self) -> None:
        self._end(TimeoutError("it took too long"))

    def _end(self, error: OSError | None) -> None:
        if self._on:
            self.cancel()
            self._done(error)


def speaks_plain(error: OSError) -> bool:
    """Whether the other end does not speak TLS at all."""
    return getattr(error, "reason", None) in _PLAIN


def seen_by_server(error: OSError) -> str:
    """What a failed handshake says of the client."""
    reason = getattr(error, "reason", None) or ""
    if speaks_plain(error):
        return "it does not speak TLS: a client of this port needs a tls:// address"
    if "ALERT" in reason and ("CA" in reason or "CERTIFICATE" in reason):
        return "it does not trust this certificate: give it the CA (LAKESHORE_CA)"
    return f"no TLS handshake: {reason.replace('_', ' ').lower() or error.strerror or error}"


def seen_by_client(place: object, error: OSError) -> str:
    """What a failed handshake says of the server, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {place} is not trusted ({error.verify_message}): pass its CA as ca= or "
            "LAKESHORE_CA, and use the name that it was made for"
        )
    reason = getattr(error, "reason", None) or ""
    if speaks_plain(error) or isinstance(error, ssl.SSLEOFError | ConnectionError):
        return f"{place} does not speak TLS, or gave up: is it a tcp:// address?"
    return (
        f"{place} can't be reached over TLS ({reason.replace('_', ' ').lower() or error.strerror or error})"
    )
