"""Whatever comes to a port: one clear reason, and nobody else notices."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from wires import Place, Raw, running

from lakeshore.core.framing import FRAME_LIMIT, PIECE_SIZE, encode
from lakeshore.core.messages import Answer
from lakeshore.testing.conformance.link import Heard, small
from lakeshore.transports.dialing import dial
from lakeshore.transports.listener import Listener

pytestmark = pytest.mark.anyio


class Port:
    """A listener that sends back what it gets, and why its links ended."""

    def __init__(self, place: Place, backend: Any, **options: Any) -> None:
        self.backend, self.place = backend, place
        self.listener = Listener(place.address, backend, self._on_link, place.tls, **options)
        self.reasons: list[str] = []
        self.links: set[Any] = set()
        self._changed = anyio.Event()

    def _on_link(self, link: Any) -> None:
        def closed() -> None:
            self.links.discard(link)
            self.reasons.append(link.lost_reason)
            self._changed.set()

        self.links.add(link)
        link.closed, link.receive = closed, link.send

    async def until(self, reasons: int) -> None:
        with anyio.fail_after(30):
            while len(self.reasons) < reasons:
                self._changed = anyio.Event()
                await self._changed.wait()

    async def answers(self) -> bool:
        """Whether a good client is served."""
        link = await dial(self.listener.address, self.backend, ca=self.place.ca)
        heard = Heard(link)
        link.send(small(1))
        await heard.until(messages=1)
        link.abort()
        return heard.messages == [small(1)]

    def connect(self) -> Raw:
        address = self.listener.address
        if address.scheme == "unix":
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(address.path)
        else:
            sock = socket.create_connection((address.host, address.port))
        sock.setblocking(False)
        return Raw(sock)


@pytest.fixture(params=["tcp", "unix"])
async def port(request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str) -> AsyncIterator[Port]:
    async with running() as backend:
        made = Port(Place(request.param, tmp_path), backend)
        yield made
        await made.listener.aclose()
        for link in list(made.links):
            link.abort()


BAD = {
    "a header of 4 GB": (b"\xff\xff\xff\xff\x00", "a frame of 4294967295 bytes was announced"),
    "a frame just too long": ((FRAME_LIMIT + 1).to_bytes(4, "big"), "frame of 1049601 bytes was announced"),
    "an empty frame": (bytes(4), "a frame of 0 bytes"),
    "another kind": (b"\x00\x00\x00\x02\x09\x90", "a frame of kind 9 came"),
    "no msgpack": (b"\x00\x00\x00\x02\x00\xc1", "what came is not a message"),
    "an unknown tag": (b"\x00\x00\x00\x05\x00\x91\x91\xcc\xfe", "Invalid value 254"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "speaks HTTP"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "begins with TLS"),
    "a shell": (b"uname -a; id\n", "the other end is not a Lakeshore"),
}


@pytest.mark.parametrize("what", BAD)
async def test_garbage_ends_its_link_alone(port: Port, what: str) -> None:
    data, why = BAD[what]
    bystander = await dial(port.listener.address, port.backend)
    heard = Heard(bystander)
    raw = port.connect()
    await raw.send(data)
    assert await raw.receive() == b""
    raw.sock.close()
    await port.until(reasons=1)
    assert why in port.reasons[0]
    assert "\n" not in port.reasons[0]
    bystander.send(small(1))
    await heard.until(messages=1)
    assert await port.answers()
    bystander.abort()


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 12])
async def test_a_cut_frame_ends_its_link_alone(port: Port, cut: int) -> None:
    raw = port.connect()
    await raw.send(encode([small(1)])[0][:cut])
    raw.sock.close()
    await port.until(reasons=1)
    assert port.reasons == ["the other end closed the link in the middle of a message"]
    assert await port.answers()


async def test_many_that_never_end_what_they_begin_take_little_memory(port: Port) -> None:
    raws: list[Raw] = []
    tracemalloc.start()
    try:
        for _ in range(100):
            raw = port.connect()
            raws.append(raw)
            await raw.send(FRAME_LIMIT.to_bytes(4, "big") + bytes(1000))  # a megabyte is announced
        assert await port.answers()
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
        for raw in raws:
            raw.sock.close()
    await port.until(reasons=101)


async def test_a_message_without_an_end_is_cut_at_the_limit(port: Port) -> None:
    raw = port.connect()
    piece = encode([Answer(1, bytes(2 * PIECE_SIZE))])[0]
    with anyio.fail_after(30):
        try:
            while not port.reasons:
                await raw.send(piece)
                await anyio.lowlevel.checkpoint()
        except OSError:
            await port.until(reasons=1)
    assert port.reasons == ["a message came that is longer than 17825792 bytes, the most taken here"]
    raw.sock.close()
    assert await port.answers()


@contextmanager
def started(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], bytes]]]:
    """A client in a process of its own, and what reads a line of what it prints."""
    command = [sys.executable, "-c", textwrap.dedent(_CHILD), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            yield child, child.stdout.readline
        finally:
            child.kill()


async def test_a_stopped_process_is_noticed(tmp_path: Path, anyio_backend: str) -> None:
    """Its kernel goes on acknowledging; nobody answers."""
    async with running() as backend:
        port = Port(Place("tcp", tmp_path), backend, beat=0.5)
        with started(str(port.listener.address), anyio_backend) as (child, say):
            assert await anyio.to_thread.run_sync(say) == b"there\n"
            assert port.reasons == []
            child.send_signal(signal.SIGSTOP)
            await port.until(reasons=1)
            assert port.reasons[0].startswith("nothing was heard of the other end for ")
            child.send_signal(signal.SIGCONT)  # and it finds its link gone
            assert await anyio.to_thread.run_sync(say) == b"gone\n"
        await port.listener.aclose()


_CHILD = """
    import sys
    import anyio
    from lakeshore.core.backend import current_backend
    from lakeshore.core.messages import Accepted
    from lakeshore.transports.dialing import dial

    async def main():
        backend = current_backend()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.serve)
            link = await dial(sys.argv[1], backend, beat=0.5)
            there, gone = backend.parker(), backend.parker()
            link.closed = lambda: gone.set(None)
            link.receive = there.set
            link.send(Accepted(1, b""))
            await there.wait()
            print("there", flush=True)
            await gone.wait()
            print("gone", flush=True)
            tasks.cancel_scope.cancel()

    anyio.run(main, backend=sys.argv[2])
"""
