"""What is asked of a plane in its last moment."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest

from lakeshore.core.backend import current_backend
from lakeshore.core.errors import PlaneClosed
from lakeshore.sdk import dispatch
from lakeshore.sdk.host import Host
from lakeshore.sdk.options import HostOptions

pytestmark = pytest.mark.anyio


class Ending:
    """A loop that takes what is posted to it after its last turn, and ends."""

    def post(self, call: Callable[[], None]) -> None:
        """It is lost."""


@asynccontextmanager
async def ended() -> AsyncGenerator[Host]:
    """A host whose plane is closed and whose loop has had its last turn, but still takes posts."""
    async with anyio.create_task_group() as tasks:
        backend = current_backend()
        tasks.start_soon(backend.serve)
        host = Host(":memory:", HostOptions())
        await host.open(backend, tasks)
        await host.aclose()
        loop: Any = Ending()
        host.backend, host.thread = loop, 0
        yield host
        tasks.cancel_scope.cancel()


async def run_there(host: Host) -> None:
    async def call() -> None:
        """Never reached."""

    await host.on_loop(call)


async def connect_from_a_loop(host: Host) -> None:
    await dispatch.connect_async(host, dispatch.Dispatch(":memory:"))


async def connect_from_a_thread(host: Host) -> None:
    connect = dispatch._connect  # pyright: ignore[reportPrivateUsage]
    await anyio.to_thread.run_sync(partial(connect, host, dispatch.Dispatch(":memory:")))


@pytest.mark.parametrize("ask", [run_there, connect_from_a_loop, connect_from_a_thread])
async def test_what_a_loop_that_ends_no_longer_sees_is_answered(ask: Any) -> None:
    async with ended() as host:
        with anyio.fail_after(10.0), pytest.raises(PlaneClosed):
            await ask(host)


async def test_who_is_not_connected_yet_when_the_plane_is_closed_is_told() -> None:
    """The head takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with anyio.create_task_group() as tasks:
            backend = current_backend()
            tasks.start_soon(backend.serve)
            host = Host(f"tcp://127.0.0.1:{silent.getsockname()[1]}", HostOptions())
            await host.open(backend, tasks)
            made = backend.parker()
            host.connect("default", made.set, patience=None)
            accepted, _ = await anyio.to_thread.run_sync(silent.accept)
            with accepted:
                await host.aclose()
            with anyio.fail_after(10.0):
                assert isinstance(await made.wait(), PlaneClosed)
            tasks.cancel_scope.cancel()
