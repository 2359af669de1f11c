"""Links over real sockets, for tests."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import trustme

from lakeshore.core import framing
from lakeshore.core.backend import Backend, current_backend
from lakeshore.transports.channel import PlainChannel, owned
from lakeshore.transports.dialing import dial
from lakeshore.transports.listener import Listener
from lakeshore.transports.stream import StreamLink
from lakeshore.transports.tls import server_context

SCHEMES = ["tcp", "tls", "unix"]
_authority = trustme.CA()


class Place:
    """Where a test listens: its address, and the files of its certificate."""

    def __init__(self, scheme: str, folder: Path) -> None:
        self.address = f"unix://{folder / 's'}" if scheme == "unix" else f"{scheme}://127.0.0.1:0"
        self.ca, self.tls = folder / "ca.pem", None
        if scheme == "tls":
            _authority.cert_pem.write_to_path(str(self.ca))
            made = _authority.issue_cert("127.0.0.1")
            made.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
            made.private_key_pem.write_to_path(str(folder / "key.pem"))
            self.tls = server_context(folder / "cert.pem", folder / "key.pem")


@asynccontextmanager
async def running() -> AsyncIterator[Backend]:
    """The backend, served."""
    backend = current_backend()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        yield backend
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def listening(
    place: Place, backend: Backend, **options: Any
) -> AsyncIterator[tuple[Listener, list[Any]]]:
    """A listener, and the links that it was given so far."""
    links: list[Any] = []
    listener = Listener(place.address, backend, links.append, place.tls, **options)
    try:
        yield listener, links
    finally:
        await listener.aclose()
        for link in links:
            link.abort()


@asynccontextmanager
async def connected(
    scheme: str, folder: Path, **options: Any
) -> AsyncIterator[tuple[StreamLink, StreamLink]]:
    """Two ends of one link: of who dialled, of who listened."""
    place = Place(scheme, folder)
    async with running() as backend:
        accepted = backend.parker()
        listener = Listener(place.address, backend, accepted.set, place.tls, **options)
        here = await dial(listener.address, backend, ca=place.ca, **options)
        with anyio.fail_after(30):
            there: StreamLink = await accepted.wait()
        try:
            yield here, there
        finally:
            await listener.aclose()
            here.abort()
            there.abort()


class Raw:
    """The other end of a link, byte by byte. `kernel` is how much the kernel keeps of either direction."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.decoder = framing.Decoder()

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        with anyio.fail_after(30):
            while view:
                try:
                    view = view[self.sock.send(view) :]
                except BlockingIOError:
                    await anyio.wait_writable(self.sock)

    async def receive(self) -> bytes:
        """What there is; empty at the end."""
        with anyio.fail_after(30):
            while True:
                try:
                    return self.sock.recv(1 << 16)
                except BlockingIOError:
                    await anyio.wait_readable(self.sock)
                except ConnectionError:
                    return b""


@asynccontextmanager
async def half(**options: Any) -> AsyncIterator[tuple[StreamLink, Raw]]:
    """A link, and what plays its other end."""
    async with running() as backend:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        link = StreamLink(PlainChannel(owned(ours)), backend, **options)
        try:
            yield link, Raw(theirs)
        finally:
            link.abort()
            theirs.close()
