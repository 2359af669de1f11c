"""What a plane says of itself."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from planes import working

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.testing.hand import HandPlane


@dls.udf
def f() -> None: ...


def test_of_a_plane_in_this_process(q: dls.Dispatch, backend: str, address: str) -> None:
    f.submit_many(range(0))
    f.submit()
    q.queues.add("q1")
    status = q.status()
    assert (status.pid, status.host, status.backend) == (os.getpid(), socket.gethostname(), backend)
    assert (status.namespaces, status.queues, status.queued, status.running) == (1, 2, 1, 0)
    assert (status.workers, status.listen, status.store_error) == (0, (), None)
    assert status.clients >= 1
    assert status.version
    assert status.uptime_s >= 0
    assert len(status.plane) == 26
    memory = address == ":memory:"
    assert status.store == (":memory:" if memory else os.path.realpath(address))
    assert (status.sync, status.epoch) == ((None, 0) if memory else ("normal", 1))
    assert status.store_bytes > 0
    with working(q, queues=["q1"]):
        while q.status().workers == 0:
            pass
        assert q.status().queued == 1


def test_a_store_keeps_its_id(tmp_path: Path, backend: Any) -> None:
    seen: list[tuple[str, int]] = []
    for name in ("one.db", "one.db", "two.db"):
        with dls.Dispatch(tmp_path / name, backend=backend, sync="full") as q:
            status = q.status()
            assert status.sync == "full"
            seen.append((status.plane, status.epoch))
    assert seen[0][0] == seen[1][0] != seen[2][0]
    assert [epoch for _, epoch in seen] == [1, 2, 1]


@pytest.mark.anyio
async def test_as_a_coroutine(address: str) -> None:
    async with dls.AsyncDispatch(address, namespace="mine") as q:
        assert (await q.status()).queues == 1


def test_a_head_adds_what_its_host_knows() -> None:
    plane = HandPlane()
    calls: list[int] = []
    plane.head.about = {"listen": ["tcp://h:1"], "clients": lambda: calls.append(1) or len(calls)}
    client = plane.client()
    for n in (1, 2):
        value = client.answer(client.ask(m.Status)).value
        assert (value["listen"], value["clients"]) == (["tcp://h:1"], n)
    assert value["plane"] == plane.head.plane
    plane.clock.wall += 90
    assert client.answer(client.ask(m.Status)).value["uptimeS"] == 90


def test_a_failing_store_is_told() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.store.refuse = OSError("disk full")
    client.start()
    plane.settle()
    assert client.answer(client.ask(m.Status)).value["storeError"] == "disk full"
