"""A plane on a daemonic thread with a loop of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import anyio

from lakeshore.core.backend import current_backend

from .host import DRAINING, Host
from .latch import Latch
from .options import HostOptions

log = logging.getLogger("lakeshore")


class ThreadHost:
    """A plane on a daemonic thread with a loop of its own.

    Raises: what opening raises, in the caller's thread.
    """

    def __init__(self, address: str, options: HostOptions, backend: str) -> None:
        self.host = Host(address, options)
        self.host.owner = self
        self._ready = threading.Event()
        self._ended = Latch()
        self._error: BaseException | None = None
        self._stop: Callable[[float], None]
        self._thread = threading.Thread(
            target=self._run, args=(backend,), name="lakeshore plane", daemon=True
        )
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            raise self._error

    def close(self, timeout: float | None = None) -> None:
        """End the plane and wait for that, at most `timeout` seconds."""
        self._end(DRAINING if timeout is None else max(0.0, timeout - 0.5))
        if threading.get_ident() != self.host.thread:
            self._ended.wait(timeout)
            if self._ended.is_set:
                self._thread.join()  # nothing is left for it to do

    async def aclose(self) -> None:
        """The same from a coroutine of another loop."""
        self._end(DRAINING)
        await self._ended.awaited()
        self._thread.join()  # nothing is left for it to do

    def _end(self, patience: float) -> None:
        try:
            self.host.backend.post(lambda: self._stop(patience))
        except RuntimeError:  # it has ended
            return

    def _run(self, backend: str) -> None:
        try:
            anyio.run(self._serve, backend=backend)
        except BaseException as error:
            if self._ready.is_set():
                log.critical("a plane's thread ended on %r", error, exc_info=error)
            self._error = error
        finally:
            self.host.ended()
            for connection in self.host.connections:
                connection.loop_ended()
            self._ended.set()
            self._ready.set()

    async def _serve(self) -> None:
        backend = current_backend()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend.serve)
            stop = backend.parker()
            self._stop = stop.set
            self.host.on_failure = lambda: stop.set(0.0)
            try:
                await self.host.open(backend, tasks)
            except BaseException as error:
                self._error = error
                tasks.cancel_scope.cancel()
                return
            self._ready.set()
            patience = await stop.wait()
            await self.host.aclose(patience=patience)
            tasks.cancel_scope.cancel()
