"""What every pair of `ports.LinkEnd` must do.

    class TestMyLink(LinkConformance):
        @pytest.fixture
        async def pair(self):
            yield my_pair()

The fixture gives two connected ends that take messages of 20 MiB; it may keep tasks running for them
meanwhile.
"""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from lakeshore.core.messages import Accepted, Answer
from lakeshore.core.ports import LinkEnd

Pair = tuple[LinkEnd, LinkEnd]
LARGE = 20 << 20  # bytes


class Heard:
    """Listens at one end."""

    def __init__(self, end: LinkEnd) -> None:
        self.messages: list[Any] = []
        self.closed = 0
        self.threads: set[int] = set()
        self._changed = anyio.Event()
        end.closed = self._closed
        end.receive = self._receive

    async def until(self, messages: int = 0, closed: int = 0) -> None:
        """Wait for that much to be heard."""
        with anyio.fail_after(30):
            while len(self.messages) < messages or self.closed < closed:
                self._changed = anyio.Event()
                await self._changed.wait()

    def _receive(self, message: Any) -> None:
        assert not self.closed, "a message after the end"
        self.threads.add(threading.get_ident())
        self.messages.append(message)
        self._changed.set()

    def _closed(self) -> None:
        self.closed += 1
        self._changed.set()


def small(number: int) -> Accepted:
    """A message that can be told from others."""
    return Accepted(number, b"")


def large(number: int, fill: bytes = b"x") -> Answer:
    """A message of 20 MiB."""
    return Answer(number, fill * LARGE)


@pytest.mark.anyio
class LinkConformance:
    """Subclass it with a `pair` fixture."""

    @pytest.fixture
    async def pair(self) -> Pair:
        """Two connected ends."""
        raise NotImplementedError("override the `pair` fixture")

    async def test_messages_arrive_in_order_both_ways(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        for number in range(100):
            pair[0].send(small(number))
            pair[1].send(small(1000 + number))
        await ends[1].until(messages=100)
        await ends[0].until(messages=100)
        assert ends[1].messages == [small(number) for number in range(100)]
        assert ends[0].messages == [small(1000 + number) for number in range(100)]

    async def test_each_end_hears_on_its_own_loop(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        pair[0].send(small(1))
        pair[1].send(small(2))
        await ends[0].until(messages=1)
        await ends[1].until(messages=1)
        assert ends[0].threads == ends[1].threads == {threading.get_ident()}

    async def test_an_answer_may_be_sent_while_a_message_is_heard(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        heard = ends[1]._receive  # pyright: ignore[reportPrivateUsage]

        def answer(message: Any) -> None:
            heard(message)
            pair[1].send(message)

        pair[1].receive = answer
        for number in range(10):
            pair[0].send(small(number))
        await ends[0].until(messages=10)
        assert ends[0].messages == ends[1].messages == [small(number) for number in range(10)]

    async def test_a_burst_arrives_whole_and_in_order(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        for number in range(10_000):
            pair[0].send(small(number))
        await ends[1].until(messages=10_000)
        assert [message.req for message in ends[1].messages] == list(range(10_000))

    async def test_large_messages_both_ways_at_once(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        for end, fill in zip(pair, (b"a", b"b"), strict=True):
            end.send(small(1))
            end.send(large(2, fill))
            end.send(small(3))
        await ends[0].until(messages=3)
        await ends[1].until(messages=3)
        assert ends[0].messages == [small(1), large(2, b"b"), small(3)]
        assert ends[1].messages == [small(1), large(2, b"a"), small(3)]

    async def test_a_close_is_told_once_after_all_that_was_sent(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        for number in range(3):
            pair[0].send(small(number))
        pair[0].close()
        pair[0].close()
        await ends[1].until(messages=3, closed=1)
        pair[1].close()
        assert ends[1].messages == [small(number) for number in range(3)]
        assert (ends[0].closed, ends[1].closed) == (0, 1)

    async def test_a_close_waits_for_what_is_large(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        pair[0].send(large(1))
        pair[0].close()
        await ends[1].until(messages=1, closed=1)
        assert ends[1].messages == [large(1)]
        assert ends[0].closed == 0

    async def test_a_close_delivers_though_the_other_end_goes_on_sending(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        pair[1].send(large(1))
        pair[0].send(small(2))
        pair[0].close()
        pair[1].send(small(3))
        await ends[1].until(messages=1, closed=1)
        assert ends[1].messages == [small(2)]
        assert ends[0].closed == 0

    async def test_both_ends_may_close_at_once(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        pair[0].close()
        pair[1].close()
        await anyio.lowlevel.checkpoint()
        assert ends[0].closed == 0

    async def test_what_is_sent_after_a_close_goes_nowhere(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        pair[0].close()
        pair[0].send(small(1))
        await ends[1].until(closed=1)
        pair[1].send(small(2))
        await anyio.lowlevel.checkpoint()
        assert ends[0].messages == ends[1].messages == []
