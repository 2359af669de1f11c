"""Links that go through a proxy, which a test in another thread has in its hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from anyio.abc import ByteStream
from anyio.from_thread import BlockingPortal, start_blocking_portal
from planes import PATIENCE

from lakeshore.testing.proxy import Proxy, Way
from lakeshore.transports.dialing import dial
from lakeshore.transports.listener import Listener


class Counting(Proxy):
    """Says when somebody comes."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.came = threading.Semaphore(0)

    async def _connect(self) -> ByteStream:
        self.came.release()
        return await super()._connect()


class Through:
    """A way to a head.

    Attributes:
        url: where to connect.
    """

    def __init__(self, portal: BlockingPortal, proxy: Counting) -> None:
        self._portal, self._proxy = portal, proxy
        self.url = proxy.address

    def came(self, count: int = 1) -> None:
        """Until so many more connections have been made."""
        for _ in range(count):
            assert self._proxy.came.acquire(timeout=PATIENCE)

    def cut(self) -> None:
        """Break all links."""
        self._portal.call(self._proxy.cut)

    def swallow(self, *ways: Way) -> None:
        """Nothing passes, one way or both, and nobody is told."""
        self._portal.call(self._proxy.swallow, *ways)

    def stop(self, *ways: Way) -> None:
        """Nothing passes until `resume`."""
        self._portal.call(self._proxy.stop, *ways)

    def resume(self) -> None:
        """Everything passes again."""
        self._portal.call(self._proxy.resume)

    def delay(self, seconds: float) -> None:
        """Each piece takes so long."""
        self._proxy.delay = seconds


@contextmanager
def through(target: str) -> Iterator[Through]:
    """A proxy before a head, for a block."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Counting(target)) as proxy:
        yield Through(portal, proxy)  # pyright: ignore[reportArgumentType]


def beats(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """How soon links that are made from here on notice that nobody is there, at either end."""
    made: Any
    for made in (dial, Listener.__init__):
        patch.setitem(made.__kwdefaults__, "beat", seconds)
