"""Links over sockets: what leaves when, what is noticed of the other end, and what is never mixed up."""

from __future__ import annotations

import socket
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest
from planes import python
from wires import SCHEMES, connected, half

from lakeshore.core.errors import PayloadTooLarge
from lakeshore.core.framing import control, encode
from lakeshore.core.messages import Answer, Ping, Pong
from lakeshore.testing.conformance.link import Heard, small
from lakeshore.transports import stream

pytestmark = pytest.mark.anyio


class Watched:
    """A channel that counts what is done to it, and takes no more than it has `room` for."""

    def __init__(self, link: stream.StreamLink, room: float = float("inf")) -> None:
        self.inner, self.room = link._channel, room
        self.sends: list[int] = []
        ours: Any = self
        link._channel = link._outbox._channel = ours

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def send(self, data: Any) -> int:
        if len(data) > self.room:
            raise BlockingIOError
        self.room -= len(data)
        self.sends.append(len(data))
        return self.inner.send(data)


async def until(raw: Any, frame: bytes) -> int:
    """How many bytes came before `frame` did."""
    got = bytearray()
    while frame not in got:
        data = await raw.receive()
        assert data, "the link ended"
        got += data
    return got.index(frame)


# sending


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_what_is_sent_in_one_turn_leaves_at_once(scheme: str, tmp_path: Path) -> None:
    async with connected(scheme, tmp_path) as (here, there):
        watched, heard = Watched(here), Heard(there)
        for number in range(500):
            here.send(small(number))
        assert watched.sends == []  # not before the turn is over
        await heard.until(messages=500)
        assert len(watched.sends) == 1


async def test_what_the_kernel_does_not_take_is_pending_until_it_does() -> None:
    async with half() as (link, raw):
        heard, levels = Heard(link), list[tuple[str, int]]()
        link.on_full = lambda: levels.append(("full", link.pending))
        link.on_drained = lambda: levels.append(("drained", link.pending))
        link.send(Answer(1, bytes(6 << 20)))
        link.send(small(2))
        with anyio.fail_after(30):
            while not levels:
                await anyio.lowlevel.checkpoint()
        assert [name for name, _ in levels] == ["full"]
        assert link.pending > stream.HIGH_WATER
        while link.pending:
            raw.decoder.feed(await raw.receive())
        assert [name for name, _ in levels] == ["full", "drained"]
        assert levels[1][1] < stream.LOW_WATER
        assert heard.closed == 0


async def test_a_message_that_is_too_large_is_known_before_it_is_sent() -> None:
    async with half(limit=300_000) as (link, raw):
        heard = Heard(link)
        assert link.check(small(1)) < 10
        with pytest.raises(PayloadTooLarge, match="above the limit of 300000"):
            link.check(Answer(1, bytes(300_000)))
        link.send(small(1))
        link.send(Answer(1, bytes(300_000)))  # who did not ask loses the link
        await heard.until(closed=1)
        assert "above the limit of 300000" in link.lost_reason
        assert await raw.receive() == b""


async def test_no_ping_waits_behind_large_messages_nor_behind_one_who_does_not_read() -> None:
    async with half() as (link, raw):
        link._channel.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        heard = Heard(link)
        for number in range(4):
            link.send(Answer(number, bytes(16 << 20)))
        await raw.receive()  # it has begun
        await raw.send(control(Ping()) + encode([small(9)])[0])
        await heard.until(messages=1)  # the ping came before that
        assert link.pending > 60 << 20
        assert await until(raw, control(Pong())) < 1 << 20


async def test_who_asks_a_lot_and_reads_nothing_gets_few_answers() -> None:
    async with half() as (link, raw):
        heard, watched = Heard(link), Watched(link, room=0)
        await raw.send(control(Ping()) * 1000 + encode([small(1)])[0])
        await heard.until(messages=1)
        for number in range(2, 10):
            await raw.send(control(Ping()) * 1000 + encode([small(number)])[0])
            await heard.until(messages=number)
        assert link.pending <= 2 * len(control(Pong()))
        watched.room = 1000
        assert await until(raw, control(Pong())) == 0


# receiving


async def test_messages_that_come_together_are_decoded_at_once_and_one_may_end_the_link() -> None:
    async with half() as (link, raw):
        heard: list[Any] = []

        def receive(message: Any) -> None:
            heard.append(message)
            if message == small(2):
                link.abort("enough")

        link.receive = receive
        await raw.send(b"".join(encode([small(number)])[0] for number in range(5)))
        assert await raw.receive() == b""
        assert heard == [small(0), small(1), small(2)]
        assert link.lost_reason == "enough"


async def test_a_frame_in_two_halves() -> None:
    async with half() as (link, raw):
        heard, data = Heard(link), encode([Answer(1, bytes(200_000))])[0]
        await raw.send(data[:100_000])
        await raw.send(data[100_000:])
        await heard.until(messages=1)
        assert heard.messages == [Answer(1, bytes(200_000))]


async def test_a_cut_frame_is_said_to_be_one() -> None:
    async with half() as (link, raw):
        heard = Heard(link)
        await raw.send(encode([small(1)])[0] + encode([small(2)])[0][:7])
        raw.sock.close()
        await heard.until(messages=1, closed=1)
        assert link.lost_reason == "the other end closed the link in the middle of a message"


async def test_a_hostile_header_closes_and_allocates_nothing() -> None:
    async with half() as (link, raw):
        heard = Heard(link)
        tracemalloc.start()
        try:
            await raw.send(encode([small(1)])[0])
            await heard.until(messages=1)
            await raw.send(b"\xff\xff\xff\xff\x00" + bytes(100))
            await heard.until(closed=1)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        assert "a frame of 4294967295 bytes was announced" in link.lost_reason
        assert heard.messages == [small(1)]
        assert await raw.receive() == b""


async def test_who_is_not_let_in_yet_may_send_little() -> None:
    async with half() as (link, raw):
        link.limit = 1000
        assert link.limit == 1000
        heard = Heard(link)
        await raw.send(encode([small(1)])[0])
        await heard.until(messages=1)
        await raw.send(encode([Answer(2, bytes(1000))])[0])
        await heard.until(closed=1)
        assert "at most 1000 are taken" in link.lost_reason
        assert heard.messages == [small(1)]


async def test_a_reset_is_heard_of() -> None:
    async with half() as (link, raw):
        heard = Heard(link)
        link.send(small(1))
        with anyio.fail_after(30):
            await anyio.wait_readable(raw.sock)
        raw.sock.close()  # with something unread, which the kernel tells
        await heard.until(closed=1)
        assert link.lost_reason == "the link broke: Connection reset by peer"


async def test_what_came_before_a_broken_pipe_is_still_heard() -> None:
    async with half() as (link, raw):
        await raw.send(encode([small(1)])[0])
        raw.sock.close()
        heard = Heard(link)
        link.send(small(2))  # nobody takes it
        await heard.until(messages=1, closed=1)
        assert heard.messages == [small(1)]


async def test_a_bug_in_who_listens_ends_the_link() -> None:
    async with half() as (link, raw):
        told: list[str] = []
        link.closed = lambda: told.append(link.lost_reason)

        def receive(message: Any) -> None:
            raise ZeroDivisionError("a bug")

        link._receive = receive  # by hand, as the loop would be told
        await raw.send(encode([small(1)])[0])
        with pytest.raises(ZeroDivisionError):
            link._read()
        assert told == ["a message was not handled: ZeroDivisionError('a bug')"]


async def test_a_bug_in_who_sends_ends_the_link() -> None:
    async with half() as (link, _):
        heard = Heard(link)
        link._out.append(object())
        with pytest.raises(TypeError, match="object"):
            link._flush()
        assert heard.closed == 1
        assert link.lost_reason.startswith("a message can't be encoded: ")


# the end


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_aclose_waits_until_everything_has_left(scheme: str, tmp_path: Path) -> None:
    async with connected(scheme, tmp_path) as (here, there):
        heard = Heard(there)
        for number in range(4):
            here.send(Answer(number, bytes(4 << 20)))
        await here.aclose()
        await here.aclose()
        assert here.pending == 0
        await heard.until(messages=4, closed=1)
        assert there.lost_reason == "the other end closed the link"
        assert here.lost_reason == ""


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_an_abort_ends_both(scheme: str, tmp_path: Path) -> None:
    async with connected(scheme, tmp_path) as (here, there):
        ours, theirs = Heard(here), Heard(there)
        here.send(small(1))
        here.abort("cut by a test")
        here.send(small(2))
        here.close()
        await theirs.until(closed=1)
        assert theirs.messages == []
        assert ours.closed == 0
        assert here.lost_reason == "cut by a test"


async def test_a_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "LINGER", 0.05)
    async with half() as (link, raw):
        link.send(Answer(1, bytes(8 << 20)))
        await link.aclose()  # nobody reads, nobody closes
        while await raw.receive():
            pass


# in a forked child


async def test_a_forked_child_leaves_links_alone(tmp_path: Path, anyio_backend: str) -> None:
    out = python(
        f"""
        import os, sys
        import anyio
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from wires import connected
        from lakeshore.testing.conformance.link import Heard, small

        async def main():
            for scheme in ("tcp", "tls", "unix"):
                folder = Path({str(tmp_path)!r}, scheme)
                folder.mkdir()
                async with connected(scheme, folder) as (here, there):
                    ours, theirs = Heard(here), Heard(there)
                    here.send(small(1))
                    await theirs.until(messages=1)
                    pid = os.fork()
                    if pid == 0:
                        assert here._channel.sock.fileno() == there._channel.sock.fileno() == -1
                        here.send(small(2))
                        here.close()
                        there.abort()
                        os._exit(0)
                    assert os.waitpid(pid, 0)[1] == 0
                    here.send(small(3))
                    there.send(small(4))
                    await theirs.until(messages=2)
                    await ours.until(messages=1)
                    print([each.req for each in theirs.messages], ours.closed, theirs.closed)

        anyio.run(main, backend={anyio_backend!r})
        """,
        tmp_path,
    )
    assert out.splitlines() == ["[1, 3] 0 0"] * 3


async def test_a_forked_child_leaves_listeners_alone(tmp_path: Path, anyio_backend: str) -> None:
    out = python(
        f"""
        import os, sys
        import anyio
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from pathlib import Path
        from wires import Place, running
        from lakeshore.transports.listener import Listener

        async def main():
            for scheme in ("tcp", "unix"):
                async with running() as backend:
                    listener = Listener(Place(scheme, Path({str(tmp_path)!r})).address, backend, print)
                    pid = os.fork()
                    if pid == 0:
                        assert [sock.fileno() for sock in listener._socks] == [-1]
                        try:
                            listener.aclose().send(None)
                        except StopIteration:
                            os._exit(0)
                    assert os.waitpid(pid, 0)[1] == 0
                    if scheme == "unix":
                        print(os.path.exists(listener.address.path))
                    await listener.aclose()
                    if scheme == "unix":
                        print(os.path.exists(listener.address.path))

        anyio.run(main, backend={anyio_backend!r})
        """,
        tmp_path,
    )
    assert out.splitlines() == ["True", "False"]
