"""A path as an address: whoever gets its lock hosts the plane, the others are told where it is."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import anyio
from anyio.abc import TaskGroup

from lakeshore.core.about import package_version
from lakeshore.core.backend import Backend, Timed
from lakeshore.core.depot import Depot
from lakeshore.core.errors import CannotListen, LakeshoreError, StoreLocked, StoreServed, Unreachable
from lakeshore.core.framing import message_limit
from lakeshore.core.fresh import new_id
from lakeshore.core.notes import Strays
from lakeshore.core.plane import Plane
from lakeshore.core.ports import Store
from lakeshore.store.memory import MemoryStore
from lakeshore.transports.dialing import dial

from .address import MEMORY
from .janitor import Janitor
from .knocking import knock
from .options import HostOptions
from .session import There

log = logging.getLogger("lakeshore")

_LOOK_EVERY = 86400.0
_FIRST_LOOK = 60.0  # seconds until it is looked for large values that are in vain
_TIDYING = 1.0  # seconds that deleting may hold up an end


class Residence:
    """Where the plane of a path lives, as one process sees it.

    Args:
        path: ":memory:", which is always here, or an absolute path.
        served: this is `lakeshore serve`: the store is marked, and nobody else hosts it again.

    Attributes:
        plane: the plane, while it is here.
        failure: the bug that ended it.
        failed: called when a bug has ended it.
        moved: called when another process has taken it over.
        machine: the hash of the machine's own token.
    """

    def __init__(
        self, path: str, options: HostOptions, *, served: bool = False, auto_create: bool = True
    ) -> None:
        self.path, self.options, self.served, self.auto_create = path, options, served, auto_create
        self.machine = b""
        self.plane: Plane | None = None
        self.failure: BaseException | None = None
        self.failed: Callable[[], None] = lambda: None
        self.moved: Callable[[], None] = lambda: None
        self._lock: Any = None
        self._listener: Any = None
        self._folder = ""  # of the socket of a plane in memory
        self._backend: Backend
        self._tasks: TaskGroup
        self._finding: anyio.Lock
        self._trouble = ""
        self._leaving = False
        self._janitor = Janitor()
        self._looking: Timed | None = None

    async def settle(self, backend: Backend, tasks: TaskGroup) -> None:
        """Open the plane here, unless another process of this machine has it.

        Raises: StoreError and its kin.
        """
        self._backend, self._tasks, self._finding = backend, tasks, anyio.Lock()
        try:
            self._heed_mark()
            await self._move_in()
        except StoreLocked as error:
            if self.served:
                raise
            try:
                self._holder(error)
            except StoreLocked as locked:
                if locked.final:
                    raise
        except StoreServed:
            if self.served:
                raise

    async def find(self) -> There | None:
        """Where the plane is; None: here, maybe since just now.

        Raises: Unreachable or StoreLocked where that is to be tried again; StoreError.
        """
        async with self._finding:
            if self.plane is not None:
                return None
            try:
                self._heed_mark()
                await self._move_in()
            except StoreLocked as error:
                return self._holder(error)
            except StoreServed as error:
                return self._server(error)
            except LakeshoreError as error:
                self._say(f"{self.path} can't be taken over: {error}")
                raise Unreachable(str(error)) from None
            log.info("this process hosts %s now", self.path)
            return None

    async def aclose(self) -> None:
        """Close the plane if it is here, and let go of its path."""
        self._leaving = True
        plane, self.plane = self.plane, None
        try:
            if plane is not None:
                await plane.aclose()
        finally:
            await self._move_out()
            if self._looking is not None:
                self._looking.cancel()
            await self._tidy()

    async def _tidy(self) -> None:
        """Delete what is to be deleted still, but not for long."""
        tidied = self._backend.parker()

        def ended() -> None:
            with suppress(RuntimeError):  # the loop has ended
                self._backend.post(lambda: tidied.set(None))

        self._janitor.close(ended)
        with anyio.move_on_after(_TIDYING):
            await tidied.wait()

    async def _move_in(self) -> None:
        memory = self.path == MEMORY
        try:
            plane = Plane(
                self._store(),
                self._backend,
                failed=self._on_failure,
                superseded=self._on_superseded,
                local=self.auto_create,
                retention=self.options.retention,
                journal_bytes=(64 << 20) if memory else 1 << 30,
                lease=self.options.lease,
                unwanted=self._janitor.unwanted,
                storage=self.options.storage,
            )
            await plane.open()
            if not memory:
                await self._listen(plane)
        except BaseException:
            await self._move_out()
            raise
        self.plane = plane
        self._look_later(_FIRST_LOOK)

    def _look_later(self, seconds: float) -> None:
        self._looking = self._backend.later(seconds, self.look_for_strays)

    def look_for_strays(self) -> None:
        """Have large values found that nothing refers to, as whoever put them there has died. On the loop."""
        plane = self.plane
        if plane is None or self._leaving:
            return
        self._look_later(_LOOK_EVERY)
        for space in plane.head.spaces.values():
            for place in space.depot.places:
                tell = partial(self._found, plane, space.depot, place)
                self._janitor.look(place, space.depot.folder, tell)

    def _found(self, plane: Plane, depot: Depot, place: str, names: tuple[str, ...]) -> None:
        self._backend.post(lambda: plane.engine.tell(depot, Strays(place, names)))

    def _store(self) -> Store:
        if self.path == MEMORY:
            limit = self.options.memory_limit
            return MemoryStore(1 << 30 if limit is None else limit)
        from lakeshore.store.lock import StoreLock
        from lakeshore.store.sqlite import SqliteStore

        self._lock = StoreLock(self.path)
        self._lock.acquire()
        return SqliteStore(self.path, sync=self.options.sync, served=self.served)

    async def _listen(self, plane: Plane) -> None:
        from lakeshore.transports.places import unix_place

        address = f"unix://{unix_place(self.path)}"
        await self._tell_former(address)
        self._accept(plane, address)
        assert self._lock is not None
        self._lock.describe(address=address, served=self.served)

    def share(self) -> str:
        """The address at which other processes of this user reach a plane in memory.

        Raises: Unreachable where it is not here; CannotListen.
        """
        if self.plane is None:
            raise Unreachable("the plane has ended")
        listener = self._listener
        if listener is None:
            self._folder = self._folder or mkdtemp(prefix="lakeshore-")  # 0700
            listener = self._accept(self.plane, f"unix://{self._folder}/plane.sock")
        return str(listener.address)

    def _accept(self, plane: Plane, address: str) -> Any:
        from lakeshore.transports.listener import Listener

        reception = plane.let_in(
            version=package_version(),
            identity=new_id(),
            payload_limit=self.options.payload_limit,
            machine=self.machine,
            local=not self.served,
        )
        self._listener = Listener(
            address,
            self._backend,
            partial(reception.came, trusted=True),
            limit=message_limit(self.options.payload_limit),
            replace=True,
        )
        return self._listener

    async def _tell_former(self, address: str) -> None:
        """Somebody who still listens there hosted the store until now, and may not know that it is over: its
        lock file was deleted."""
        with suppress(Unreachable, CannotListen, ValueError):
            link = await dial(address, self._backend, timeout=1.0)
            link.closed, link.receive = _ignored, _ignored
            link.send(knock(new_id(), "successor", ""))
            await link.aclose()

    async def _move_out(self) -> None:
        listener, self._listener = self._listener, None
        lock, self._lock = self._lock, None
        if listener is not None:
            await listener.aclose()
        if self._folder:
            with suppress(OSError):
                os.rmdir(self._folder)
            self._folder = ""
        if lock is not None:
            lock.release()

    def _on_failure(self) -> None:
        if self.plane is not None:
            self.failure = self.plane.failure
        self.failed()

    def _on_superseded(self) -> None:
        """The store is another process's now: this one goes on as its client."""
        plane, self.plane = self.plane, None
        if plane is not None:
            self._tasks.start_soon(self._hand_over, plane)
            self.moved()

    async def _hand_over(self, plane: Plane) -> None:
        await self._move_out()
        await plane.let_go()

    def _holder(self, error: StoreLocked) -> There:
        """Where the process is that has the lock.

        Raises: StoreLocked where it can't be reached.
        """
        from lakeshore.store.lock import read_holder

        said = read_holder(Path(f"{self.path}.lock"))
        address, pid = said.get("address"), said.get("pid")
        elsewhere = said.get("host") not in (None, socket.gethostname())
        if isinstance(pid, int) and (pid == os.getpid() or elsewhere):
            error.final = True
            raise error
        if not isinstance(address, str):
            raise error
        return There(address, near=True, holder=f"process {pid}, which hosts {self.path},")

    def _heed_mark(self) -> None:
        """Keep away from the lock of a store that is `lakeshore serve`'s own: only that may take it, and
        should not find it taken for a moment."""
        if self.served or self.path == MEMORY:
            return
        from lakeshore.store.lock import read_holder
        from lakeshore.store.sqlite import is_served

        killed = read_holder(Path(f"{self.path}.lock")).get("served")  # its mark may be in the log alone
        if killed or is_served(self.path):
            raise StoreServed(
                f"{self.path} is served by `lakeshore serve`, which does not run: start it again, or clear "
                f"the mark with `lakeshore serve --release --store {self.path}`"
            )

    def _server(self, error: StoreServed) -> There:
        """Where the head of a served store is, if it runs."""
        from lakeshore.store.lock import read_holder

        said = read_holder(Path(f"{self.path}.lock"))
        address, pid = said.get("address"), said.get("pid")
        if not isinstance(address, str):
            raise Unreachable(str(error))
        return There(address, near=True, holder=f"process {pid}, which serves {self.path},")

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            log.error("%s", trouble)


def _ignored(*message: object) -> None:
    """What a former host says is of no interest."""
