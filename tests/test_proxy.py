"""The proxy that tests put between two processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from wires import Place, running

from lakeshore.core.errors import Unreachable
from lakeshore.testing.conformance.link import Heard, large, small
from lakeshore.testing.proxy import Proxy
from lakeshore.transports.dialing import dial
from lakeshore.transports.listener import Listener
from lakeshore.transports.stream import StreamLink

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["tcp", "unix", "tls"])
async def through(
    request: pytest.FixtureRequest, tmp_path: Path, anyio_backend: str
) -> AsyncIterator[tuple[Proxy, StreamLink, StreamLink]]:
    """A link that goes through a proxy."""
    place = Place(request.param, tmp_path)
    beat = 0.2 if "noticed" in request.function.__name__ else 10.0
    async with running() as backend:
        accepted = backend.parker()
        listener = Listener(place.address, backend, accepted.set, place.tls, beat=beat, limit=32 << 20)
        async with Proxy(str(listener.address), str(tmp_path / "p")) as proxy:
            here = await dial(proxy.address, backend, ca=place.ca, beat=beat, limit=32 << 20)
            there: StreamLink = await accepted.wait()
            yield proxy, here, there
            here.abort()
            there.abort()
        await listener.aclose()


Through = tuple[Proxy, StreamLink, StreamLink]


async def test_it_passes_everything_on(through: Through) -> None:
    proxy, here, there = through
    ours, theirs = Heard(here), Heard(there)
    here.send(large(1))
    there.send(large(2))
    await ours.until(messages=1)
    await theirs.until(messages=1)
    here.send(small(3))
    here.close()
    await theirs.until(messages=2, closed=1)
    assert (ours.messages, theirs.messages) == ([large(2)], [large(1), small(3)])
    assert proxy.count == 1


async def test_it_cuts(through: Through) -> None:
    proxy, here, there = through
    ours, theirs = Heard(here), Heard(there)
    proxy.cut()
    await ours.until(closed=1)
    await theirs.until(closed=1)


async def test_it_stops_and_goes_on(through: Through) -> None:
    proxy, here, there = through
    ours, theirs = Heard(here), Heard(there)
    proxy.stop("up")
    here.send(small(1))
    there.send(small(2))
    await ours.until(messages=1)
    assert theirs.messages == []
    proxy.resume()
    await theirs.until(messages=1)


async def test_a_link_that_stands_still_is_noticed_at_both_ends(through: Through) -> None:
    proxy, here, there = through
    ours, theirs = Heard(here), Heard(there)
    proxy.stop()
    await ours.until(closed=1)
    await theirs.until(closed=1)
    assert "nothing was heard of the other end" in here.lost_reason + there.lost_reason


async def test_a_link_that_swallows_one_way_is_noticed_at_both_ends(through: Through) -> None:
    proxy, here, there = through
    ours, theirs = Heard(here), Heard(there)
    proxy.swallow("up")
    here.send(small(1))
    await theirs.until(closed=1)  # it hears nothing
    await ours.until(closed=1)  # and its pings are not answered
    assert "nothing was heard of the other end" in there.lost_reason
    assert theirs.messages == []


async def test_a_slow_link_loses_nothing(through: Through) -> None:
    proxy, here, there = through
    Heard(here)
    theirs = Heard(there)
    proxy.delay = 0.05
    for number in range(10):
        here.send(small(number))
        await anyio.lowlevel.checkpoint()
    await theirs.until(messages=10)
    assert theirs.messages == [small(number) for number in range(10)]


async def test_it_lets_nobody_in(tmp_path: Path) -> None:
    async with running() as backend:
        listener = Listener("tcp://127.0.0.1:0", backend, lambda link: None)
        async with Proxy(str(listener.address)) as proxy:
            proxy.open = False
            link = await dial(proxy.address, backend)
            heard = Heard(link)
            await heard.until(closed=1)
        with pytest.raises(Unreachable, match="nothing listens at"):
            await dial(proxy.address, backend)
        await listener.aclose()
