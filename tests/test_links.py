"""Links of every kind do the same."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from wires import connected

from lakeshore.core.backend import current_backend
from lakeshore.testing.conformance import LinkConformance
from lakeshore.testing.conformance.link import Pair
from lakeshore.testing.faults import faulty_pair
from lakeshore.transports.memory import memory_pair, thread_pair


class TestMemoryLink(LinkConformance):
    @pytest.fixture
    async def pair(self, anyio_backend: Any) -> Pair:
        return memory_pair()


class TestThreadLink(LinkConformance):
    @pytest.fixture
    async def pair(self, anyio_backend: Any) -> Pair:
        backend = current_backend()
        return thread_pair(backend.post, backend.post)


class TestFaultyLink(LinkConformance):
    @pytest.fixture
    async def pair(self, anyio_backend: Any) -> Pair:
        return faulty_pair()


class _SocketLink(LinkConformance):
    scheme: str

    @pytest.fixture
    async def pair(self, anyio_backend: Any, tmp_path: Path) -> AsyncIterator[Pair]:
        async with connected(self.scheme, tmp_path, limit=32 << 20) as pair:
            yield pair


class TestTcpLink(_SocketLink):
    scheme = "tcp"


class TestTlsLink(_SocketLink):
    scheme = "tls"


class TestUnixLink(_SocketLink):
    scheme = "unix"


@pytest.mark.anyio
async def test_a_link_between_two_threads_hears_on_the_other_thread() -> None:
    here = current_backend()
    ready, done = threading.Event(), threading.Event()
    heard: list[tuple[Any, int]] = []
    links: list[Any] = []

    async def elsewhere() -> None:
        backend = current_backend()
        finished = backend.parker()
        ours, theirs = thread_pair(here.post, backend.post)

        def receive(message: Any) -> None:
            heard.append((message, threading.get_ident()))
            if message == 99:
                finished.set(None)

        theirs.receive = receive
        links.append(ours)
        ready.set()
        await finished.wait()
        done.set()

    thread = threading.Thread(target=anyio.run, args=(elsewhere,), kwargs={"backend": here.name})
    thread.start()
    await anyio.to_thread.run_sync(ready.wait)
    for number in range(100):
        links[0].send(number)
    await anyio.to_thread.run_sync(done.wait)
    await anyio.to_thread.run_sync(thread.join)
    assert [message for message, _ in heard] == list(range(100))
    assert {ident for _, ident in heard} == {thread.ident}
    links[0].send("nobody is there")  # its loop has ended: nothing happens
