"""What accepts links at an address."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial

from lakeshore.core.backend import Backend, Timed
from lakeshore.core.errors import CannotListen
from lakeshore.core.framing import MESSAGE_LIMIT

from .address import Address, parse
from .channel import NO_SIGNAL, Channel, LinkSocket, PlainChannel, owned, tune
from .places import bind_unix, peer_pid, peer_uid
from .stream import BEAT, StreamLink
from .tls import ALERT, SECONDS, Handshake, TlsChannel, seen_by_server, speaks_plain

_log = logging.getLogger("lakeshore")
_BURST = 64  # connections accepted in one turn of the loop
_PAUSE = 1.0  # seconds without accepting where the process has no descriptors left
_OUT_OF_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener:
    """Accepts links at an address from the moment it is made until `aclose`.

    Args:
        address: where; port 0 takes a free one.
        backend: the loop.
        on_link: called with each new `StreamLink`; it sets `closed` and `receive` before it returns.
        tls: a server's context (`tls.server_context`), for a `tls://` address.
        beat, limit: see `StreamLink`.
        replace: take the place of whoever listens on a Unix socket; for one who knows that it is stale.

    Attributes:
        address: with the port that was taken.

    Raises: ValueError for what can't be an address; CannotListen.
    """

    def __init__(
        self,
        address: str | Address,
        backend: Backend,
        on_link: Callable[[StreamLink], None],
        tls: ssl.SSLContext | None = None,
        *,
        beat: float = BEAT,
        limit: int = MESSAGE_LIMIT,
        replace: bool = False,
    ) -> None:
        self.address: Address = parse(address) if isinstance(address, str) else address
        if (self.address.scheme == "tls") != (tls is not None):
            raise ValueError(f"{self.address}: a tls:// address needs a certificate, and no other takes one")
        self._backend, self._on_link, self._tls = backend, on_link, tls
        self._beat, self._limit = beat, limit
        self._file: tuple[int, int] | None = None  # which file a Unix socket is
        self._complained = False
        self._socks = [owned(sock) for sock in self._bind(replace)]
        self._watches: list[Timed] = []
        self._pause: Timed | None = None
        self._shaking: dict[TlsChannel, Handshake] = {}
        self._watch()

    async def aclose(self) -> None:
        """Accept no more; links that were accepted go on."""
        if any(sock.fileno() < 0 for sock in self._socks):  # in a forked child all of it is the parent's
            return
        self._unwatch()
        for sock in self._socks:
            sock.close()
        self._socks.clear()
        for channel, handshake in self._shaking.items():
            handshake.cancel()
            channel.sock.close()
        self._shaking.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                found = os.lstat(self.address.path)
                if (found.st_dev, found.st_ino) == self._file:  # else it is a successor's
                    os.unlink(self.address.path)
            self._file = None

    def _bind(self, replace: bool) -> list[socket.socket]:
        if self.address.scheme == "unix":
            sock = bind_unix(self.address.path, replace)
            found = os.lstat(self.address.path)
            self._file = found.st_dev, found.st_ino
            return [sock]
        socks: list[socket.socket] = []
        try:
            for family, host in _places(self.address):
                socks.append(_bind_tcp(family, host, self.address.port))
                if not self.address.port:
                    port = socks[0].getsockname()[1]
                    self.address = Address(self.address.scheme, self.address.host, port)
        except OSError as error:
            for sock in socks:
                sock.close()
            raise CannotListen(_why(self.address, error)) from error
        return socks

    def _watch(self) -> None:
        self._pause = None
        self._watches = [self._backend.readable(sock, partial(self._accept, sock)) for sock in self._socks]

    def _unwatch(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()

    def _accept(self, sock: LinkSocket) -> None:
        for _ in range(_BURST):
            if not self._watches:  # closed meanwhile
                return
            try:
                accepted, _ = sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_ROOM:
                    self._rest(error)
                    return
                continue  # that one connection broke before it was accepted
            self._complained = False
            self._welcome(owned(accepted))

    def _rest(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            _log.error(
                "%s accepts nobody for the moment (%s): raise the limit of open files (ulimit -n)",
                self.address,
                error.strerror,
            )
        self._unwatch()
        self._pause = self._backend.later(_PAUSE, self._watch)

    def _welcome(self, sock: LinkSocket) -> None:
        peer = self._describe(sock)
        if peer is None:
            sock.close()
            return
        tune(sock)
        if self._tls is None:
            self._link(PlainChannel(sock), peer)
            return
        channel = TlsChannel(sock, self._tls)
        self._shaking[channel] = Handshake(
            channel, self._backend, partial(self._shaken, channel, peer), SECONDS
        )

    def _shaken(self, channel: TlsChannel, peer: str, error: OSError | None) -> None:
        del self._shaking[channel]
        if error is None:
            self._link(channel, peer)
        else:
            with contextlib.suppress(OSError):
                if speaks_plain(error):
                    channel.sock.send(ALERT, NO_SIGNAL)  # so that it knows what this is
            channel.sock.close()
            _log.warning("%s refused %s: %s", self.address, peer, seen_by_server(error))

    def _link(self, channel: Channel, peer: str) -> None:
        self._on_link(StreamLink(channel, self._backend, beat=self._beat, limit=self._limit, peer=peer))

    def _describe(self, sock: LinkSocket) -> str | None:
        """Who is there; None for one who may not come in."""
        try:
            if self.address.scheme != "unix":
                host, port = sock.getpeername()[:2]
                return str(Address(self.address.scheme, host, port))
            uid = peer_uid(sock)
            if uid is None or uid == os.geteuid():
                return f"process {peer_pid(sock)}"
            _log.warning("%s refused a process of another user (uid %d)", self.address, uid)
        except OSError:  # it is gone again
            pass
        return None


def _places(address: Address) -> list[tuple[int, str]]:
    """Every address that a host's name stands for, each once."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(place[0])) for family, _, _, _, place in found))


def _bind_tcp(family: int, host: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, host != "::")
        sock.bind((host, port))
        sock.listen(1024)
    except BaseException:
        sock.close()
        raise
    return sock


def _why(address: Address, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"another process listens on {address}: stop it, or choose another port"
    if error.errno == errno.EACCES:
        return f"{address} may not be listened on by this user: choose a port above 1023"
    return f"{address} can't be listened on ({error.strerror}): choose another address"
