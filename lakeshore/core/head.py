"""A whole plane without a loop: an engine, its namespaces, and how they come back from a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .archive import Step
from .engine import Engine
from .office import Office
from .opening import Opening
from .peer import Peer
from .ports import Link
from .rows import Loaded, Prune, Pruned
from .space import Space


class Head:
    """Namespaces over one engine.

    Args:
        local: make queues on first use.
        retention: seconds that terminal invocations are kept.
        journal_bytes: what one journal may keep.
        lease: seconds that a worker in another process may be silent.
        storage: where files are by key; empty: under each worker's root.

    Attributes:
        about: what the status says beside what the head knows itself; a function is called for it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        local: bool = True,
        retention: float = 604800.0,
        journal_bytes: int = 1 << 30,
        lease: float = 30.0,
        storage: str = "",
    ) -> None:
        self.engine = engine
        self.local, self.retention, self.journal_bytes = local, retention, journal_bytes
        self.lease, self.storage = lease, storage
        self.spaces: dict[str, Space] = {}
        self.about: dict[str, Any] = {}
        self.started_at = engine.wall()
        self.office = Office(engine, self)
        self._loaded = Loaded()
        engine.pruned = self._pruned
        engine.lost_ids = self._lost

    @property
    def plane(self) -> str:
        """The id of the store."""
        return self.office.plane

    def known_namespaces(self) -> frozenset[str]:
        """Those that exist: from their first token, apply or use by an admin."""
        return frozenset(self.spaces)

    def space(self, name: str) -> Space:
        """The namespace of that name, made on first use."""
        space = self.spaces.get(name)
        if space is None:
            space = self.spaces[name] = Space(
                self.engine,
                name,
                office=self.office,
                local=self.local,
                retention=self.retention,
                journal_bytes=self.journal_bytes,
                lease=self.lease,
                storage=self.storage,
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
        """Take the stored queues and topics, and what belongs to the whole plane."""
        self._loaded = loaded
        self.office.restore(loaded)
        for name in {row.namespace for row in (*loaded.queues, *loaded.topics, *loaded.tokens)}:
            self.space(name)
        self._loaded = Loaded()

    def _pruned(self, prune: Prune, pruned: Pruned) -> None:
        self.engine.tell(self.space(prune.namespace).archive, Step(prune, pruned))

    def _lost(self, lost: tuple[tuple[str, bytes], ...]) -> None:
        for namespace, id in lost:
            entry = self.space(namespace).live.pop(id, None)
            if entry is not None:
                entry.queue.disown(entry)
