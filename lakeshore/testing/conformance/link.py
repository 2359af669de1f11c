"""What every pair of `ports.LinkEnd` must do.

    class TestMyLink(LinkConformance):
        @pytest.fixture
        async def pair(self):
            yield my_pair()

The fixture gives two connected ends; it may keep tasks running for them meanwhile.
"""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from lakeshore.core.ports import LinkEnd

Pair = tuple[LinkEnd, LinkEnd]


class Heard:
    """Listens at one end."""

    def __init__(self, end: LinkEnd) -> None:
        self.messages: list[Any] = []
        self.closed = 0
        self.threads: set[int] = set()
        self._changed = anyio.Event()
        end.receive, end.closed = self._receive, self._closed

    async def until(self, messages: int = 0, closed: int = 0) -> None:
        """Wait for that much to be heard."""
        with anyio.fail_after(30):
            while len(self.messages) < messages or self.closed < closed:
                self._changed = anyio.Event()
                await self._changed.wait()

    def _receive(self, message: Any) -> None:
        self.threads.add(threading.get_ident())
        self.messages.append(message)
        self._changed.set()

    def _closed(self) -> None:
        self.closed += 1
        self._changed.set()


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
            pair[0].send(("down", number))
            pair[1].send(("up", number))
        await ends[1].until(messages=100)
        await ends[0].until(messages=100)
        assert ends[1].messages == [("down", number) for number in range(100)]
        assert ends[0].messages == [("up", number) for number in range(100)]

    async def test_each_end_hears_on_its_own_loop(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        pair[0].send(1)
        pair[1].send(2)
        await ends[0].until(messages=1)
        await ends[1].until(messages=1)
        assert ends[0].threads == ends[1].threads == {threading.get_ident()}

    async def test_a_close_is_told_once_after_all_that_was_sent(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        for number in range(3):
            pair[0].send(number)
        pair[0].close()
        pair[0].close()
        await ends[1].until(messages=3, closed=1)
        pair[1].close()
        assert ends[1].messages == [0, 1, 2]
        assert (ends[0].closed, ends[1].closed) == (0, 1)

    async def test_what_is_sent_after_a_close_goes_nowhere(self, pair: Pair) -> None:
        ends = [Heard(end) for end in pair]
        pair[0].close()
        pair[0].send("late")
        await ends[1].until(closed=1)
        pair[1].send("late too")
        await anyio.lowlevel.checkpoint()
        assert ends[0].messages == ends[1].messages == []
