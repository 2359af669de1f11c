"""A proxy between two processes, for links that are cut, stand still, swallow what they get, or are slow."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Literal

import anyio
from anyio.abc import ByteStream, ObjectReceiveStream, SocketAttribute

from lakeshore.transports.address import Address, parse

Way = Literal["up", "down"]  # towards the target, and back
WAYS: tuple[Way, Way] = ("up", "down")


class Proxy:
    """Passes bytes between whoever connects to `address` and the target. Enter it with `async with`.

    Args:
        target: a `tcp://` (or `tls://`) or `unix://` address.
        path: where to listen, for a `unix://` target; else a free port is taken.

    Attributes:
        address: where to connect instead.
        delay: seconds that each piece of either way takes; several are under way at once.
        open: new connections are let through; else they are closed at once.
        count: connections that there were.
    """

    def __init__(self, target: str, path: str = "") -> None:
        self.target: Address = parse(target)
        self.address = ""
        self.delay = 0.0
        self.open = True
        self.count = 0
        self._path = path
        self._running: dict[Way, anyio.Event] = {}
        self._swallowed: set[Way] = set()
        self._scopes: set[anyio.CancelScope] = set()
        self._stack = AsyncExitStack()
        self.resume()

    async def __aenter__(self) -> Proxy:
        if self.target.scheme == "unix":
            listener = await anyio.create_unix_listener(self._path)
            self.address = f"unix://{self._path}"
        else:
            multi = await anyio.create_tcp_listener(local_host="127.0.0.1")
            listener = multi.listeners[0]
            port = listener.extra(SocketAttribute.local_port)
            self.address = f"{self.target.scheme}://127.0.0.1:{port}"
        tasks = anyio.create_task_group()
        await self._stack.enter_async_context(listener)
        await self._stack.enter_async_context(tasks)
        self._stack.callback(tasks.cancel_scope.cancel)
        tasks.start_soon(listener.serve, self._pass_on)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)

    def cut(self) -> None:
        """Break every connection at once: what is under way is lost."""
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    def stop(self, *ways: Way) -> None:
        """Nothing passes (one way, or both), until `resume`; nothing is lost."""
        for way in ways or WAYS:
            if self._running[way].is_set():
                self._running[way] = anyio.Event()

    def swallow(self, *ways: Way) -> None:
        """What comes (one way, or both) is read and dropped, until `resume`."""
        self._swallowed.update(ways or WAYS)

    def resume(self) -> None:
        """Everything passes again."""
        self._swallowed.clear()
        for way in WAYS:
            if way in self._running:
                self._running[way].set()
            else:
                self._running[way] = anyio.Event()
                self._running[way].set()

    async def _pass_on(self, client: ByteStream) -> None:
        self.count += 1
        with anyio.CancelScope() as scope:
            async with client:
                if self.open:
                    self._scopes.add(scope)
                    with suppress(OSError):
                        async with await self._connect() as server, anyio.create_task_group() as tasks:
                            tasks.start_soon(self._pump, client, server, "up")
                            tasks.start_soon(self._pump, server, client, "down")
        self._scopes.discard(scope)

    async def _connect(self) -> ByteStream:
        if self.target.scheme == "unix":
            return await anyio.connect_unix(self.target.path)
        return await anyio.connect_tcp(self.target.host, self.target.port)

    async def _pump(self, source: ByteStream, target: ByteStream, way: Way) -> None:
        """One way, until its end, which is passed on too."""
        under_way, arriving = anyio.create_memory_object_stream[tuple[float, bytes]](16)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._deliver, arriving, target, way)
            async with under_way:
                with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                    while True:
                        data = await source.receive(1 << 16)
                        if way not in self._swallowed:
                            await under_way.send((anyio.current_time() + self.delay, data))

    async def _deliver(
        self, arriving: ObjectReceiveStream[tuple[float, bytes]], target: ByteStream, way: Way
    ) -> None:
        with suppress(anyio.BrokenResourceError, OSError):
            async with arriving:
                async for due, data in arriving:
                    await anyio.sleep_until(due)
                    await self._running[way].wait()
                    await target.send(data)
            await self._running[way].wait()
            if way not in self._swallowed:
                await target.send_eof()
