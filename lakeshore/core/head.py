"""A whole plane without a loop: an engine, its namespaces, and how they come back from a store."""

from __future__ import annotations

from collections.abc import Callable

from .archive import Step
from .engine import Engine
from .entry import Entry
from .peer import Peer
from .ports import Link
from .queue import Queue
from .rows import LiveRow, Loaded, LoadHead, LoadLive, Prune, Pruned, WorkerRow
from .space import Space
from .states import State

_LOST = "its process ended"


class Head:
    """Namespaces over one engine.

    Args:
        local: make queues on first use.
        retention: seconds that terminal invocations are kept.
        journal_bytes: what one journal may keep.
    """

    def __init__(
        self, engine: Engine, *, local: bool = True, retention: float = 604800.0, journal_bytes: int = 1 << 30
    ) -> None:
        self.engine = engine
        self.local, self.retention, self.journal_bytes = local, retention, journal_bytes
        self.spaces: dict[str, Space] = {}
        self._loaded = Loaded()
        engine.pruned = self._pruned
        engine.lost_ids = self._lost

    def space(self, name: str) -> Space:
        """The namespace of that name, made on first use."""
        space = self.spaces.get(name)
        if space is None:
            space = self.spaces[name] = Space(
                self.engine,
                name,
                local=self.local,
                retention=self.retention,
                journal_bytes=self.journal_bytes,
            )
            space.restore(self._loaded)
            space.ensure_default()
        return space

    def connect(self, link: Link, namespace: str) -> Peer:
        """Serve one link; the caller passes what it receives to `Peer.receive`."""
        return Peer(self.engine, self.space(namespace), link)

    def open(self, done: Callable[[BaseException | None], None]) -> None:
        """Rebuild the plane from its store's rows, then call `done` (with what went wrong)."""
        Opening(self, done)

    def close(self) -> None:
        """Let go of every invocation. Rows and messages aren't looked at for cycles by the collector, so
        a closed plane would stay in memory with them."""
        self.engine.close()
        for space in self.spaces.values():
            for queue in {*space.queues.values(), *space.by_id.values()}:
                queue.close()
            space.live.clear()

    def adopt(self, loaded: Loaded) -> None:
        """Take the stored queues and topics."""
        self._loaded = loaded
        for name in {row.namespace for row in (*loaded.queues, *loaded.topics)}:
            self.space(name)
        self._loaded = Loaded()

    def _pruned(self, prune: Prune, pruned: Pruned) -> None:
        self.engine.tell(self.space(prune.namespace).archive, Step(prune, pruned))

    def _lost(self, lost: tuple[tuple[str, bytes], ...]) -> None:
        for namespace, id in lost:
            entry = self.space(namespace).live.pop(id, None)
            if entry is not None:
                entry.queue.disown(entry)


class Opening:
    """One pass over the store: first the head's rows, then live invocations page by page."""

    def __init__(self, head: Head, done: Callable[[BaseException | None], None]) -> None:
        self._head, self._done = head, done
        self._running: list[tuple[Queue, Entry]] = []
        self._slots: dict[bytes, int] = {}
        self._workers: tuple[WorkerRow, ...] = ()
        head.engine.store.read(LoadHead(), self._head_loaded)

    def _head_loaded(self, loaded: Loaded | BaseException) -> None:
        if isinstance(loaded, BaseException):
            self._done(loaded)
            return
        self._workers = loaded.workers
        self._slots = {row.id: int(row.info.get("slots", 1)) for row in loaded.workers}
        self._head.adopt(loaded)
        self._head.engine.store.read(LoadLive(), self._page)

    def _page(self, rows: list[LiveRow] | BaseException) -> None:
        if isinstance(rows, BaseException):
            self._done(rows)
            return
        for live in rows:
            row = live.row
            queue = self._head.space(row.namespace).owner(row.queue)
            entry = queue.restore(live)
            if entry.state is State.RUNNING:
                self._running.append((queue, entry))
        if rows:
            last = rows[-1].row
            self._head.engine.store.read(LoadLive((last.namespace, last.id)), self._page)
        else:
            self._finish()

    def _finish(self) -> None:
        """What ran in the process that hosted this store before is lost: its lock was free."""
        batch, wall = self._head.engine.batch, self._head.engine.wall()
        self._running.sort(key=lambda pair: pair[1].attempts[-1].started_at)
        charged: dict[bytes, int] = {}
        for queue, entry in self._running:
            worker = entry.attempts[-1].worker
            charged[worker] = charged.get(worker, 0) + 1
            queue.orphaned(entry, _LOST, charge=charged[worker] <= self._slots.get(worker, 1))
        for row in self._workers:
            batch.put(WorkerRow(row.namespace, row.id, row.info, wall))
        self._done(None)
