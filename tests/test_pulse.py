"""How silence is taken, on a clock that jumps."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from wires import Place, Raw, listening, running

from lakeshore.core.framing import control, encode
from lakeshore.core.messages import Ping, Pong
from lakeshore.testing.conformance.link import small
from lakeshore.transports.channel import PlainChannel, owned
from lakeshore.transports.dialing import dial
from lakeshore.transports.stream import StreamLink

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend(virtual: Any) -> Any:
    """Time is virtual: nothing here waits for a socket that is not ready."""
    return virtual


class Line:
    """A link with a beat of 10 s, and when it ended."""

    def __init__(self, link: StreamLink, raw: Raw) -> None:
        self.link, self.raw = link, raw
        self.ended: list[float] = []
        self.messages: list[Any] = []
        self.start = anyio.current_time()
        link.closed = lambda: self.ended.append(anyio.current_time() - self.start)
        link.receive = self.messages.append

    def read(self) -> list[Any]:
        """The Pings and Pongs that have been sent."""
        with suppress(BlockingIOError):
            self.raw.decoder.feed(self.raw.sock.recv(1000))
        found, self.raw.decoder.controls = self.raw.decoder.controls, []
        return found


@pytest.fixture
async def line(anyio_backend: Any) -> AsyncIterator[Line]:
    async with _line() as made:
        yield made


@asynccontextmanager
async def _line() -> AsyncIterator[Line]:
    async with running() as backend:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        link = StreamLink(PlainChannel(owned(ours)), backend, beat=10)
        yield Line(link, Raw(theirs))
        link.abort()
        theirs.close()


async def test_who_says_nothing_is_asked_after_one_beat_and_gone_after_two(line: Line) -> None:
    await anyio.sleep(9.9)
    assert line.read() == []
    await anyio.sleep(0.2)
    assert line.read() == [Ping()]
    await anyio.sleep(9.8)
    assert line.ended == []
    await anyio.sleep(0.2)
    assert line.ended == [pytest.approx(20)]
    assert line.link.lost_reason == "nothing was heard of the other end for 20 s"


async def test_who_answers_stays(line: Line) -> None:
    for _ in range(5):
        await anyio.sleep(10.1)
        assert line.read() == [Ping()]
        line.raw.sock.send(control(Pong()))
        await anyio.sleep(0.1)  # the next beat is counted from the answer
    assert line.ended == []
    await anyio.sleep(100)
    assert line.ended == [pytest.approx(5 * 10.2 - 0.1 + 20)]
    assert line.messages == []  # a Pong is nobody's business


async def test_who_answers_at_once_stays_though_the_next_look_comes_late(line: Line) -> None:
    """The answer is then as old as a beat, and more than that by as much as the loop is late."""
    await anyio.sleep(10.001)
    assert line.read() == [Ping()]
    line.raw.sock.send(control(Pong()))
    await anyio.sleep(0.001)
    line.link._pulse.heard = line.start + 10  # it came without any delay
    await anyio.sleep(10)
    assert line.ended == []
    assert line.read() == [Ping()]
    await anyio.sleep(10)
    assert line.ended == [pytest.approx(30)]


async def test_who_says_anything_is_not_asked(line: Line) -> None:
    for number in range(5):
        await anyio.sleep(9)
        line.raw.sock.send(encode([small(number)])[0])
        await anyio.sleep(0.1)
    assert line.read() == []
    assert len(line.messages) == 5


async def test_half_a_message_is_a_sign_of_life(line: Line) -> None:
    for byte in encode([small(1)])[0][:5]:
        line.raw.sock.send(bytes((byte,)))
        await anyio.sleep(9)
    assert line.ended == []


async def test_a_ping_is_answered_at_once(line: Line) -> None:
    line.raw.sock.send(control(Ping()))
    await anyio.sleep(0.01)
    assert line.read() == [Pong()]
    assert line.messages == []


async def test_a_process_that_stood_still_asks_before_it_gives_up(line: Line) -> None:
    await anyio.sleep(10.1)
    assert line.read() == [Ping()]
    line.link._pulse._due -= 100  # its timer comes 100 s too late
    await anyio.sleep(10)
    assert line.ended == []
    assert line.read() == [Ping()]
    await anyio.sleep(10)
    assert line.ended == [pytest.approx(30)]


async def test_a_process_that_stood_still_first_reads_what_came(line: Line) -> None:
    await anyio.sleep(10.1)
    reader = line.link._reader
    assert reader is not None
    reader.cancel()  # the loop had no time for it
    line.raw.sock.send(control(Pong()))
    await anyio.sleep(20)
    assert line.ended == []


async def test_a_link_that_is_closed_has_no_timer(line: Line) -> None:
    line.link.abort()
    await anyio.sleep(100)
    assert line.ended == []
    assert line.link._pulse._timer is None


def urges(link: StreamLink) -> list[bytes]:
    """The Pings and Pongs that a link sends from now on."""
    said: list[bytes] = []
    urge = link._urge

    def noted(frame: bytes) -> None:
        said.append(frame)
        urge(frame)

    link._urge = noted
    return said


async def test_of_two_that_say_nothing_only_the_one_that_dialled_asks(tmp_path: Path) -> None:
    """A head with thousands of idle links answers each, and asks none."""
    async with running() as backend, listening(Place("unix", tmp_path), backend) as (listener, links):
        near = await dial(listener.address, backend)
        near.receive = near.closed = lambda *none: None
        await anyio.sleep(0.1)
        (far,) = links
        far.receive = far.closed = lambda *none: None
        urged = {"near": urges(near), "far": urges(far)}
        await anyio.sleep(100)
        assert len(urged["near"]) == len(urged["far"]) > 9
        assert set(urged["near"]) == {control(Ping())}
        assert set(urged["far"]) == {control(Pong())}
        near.abort()
        far.abort()
