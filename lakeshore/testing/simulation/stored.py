"""The store of a simulated plane: it remembers what it was given, and who opened it last."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from lakeshore.core.errors import StoreLocked
from lakeshore.core.rows import Batch, Committed
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.faults import FaultyStore


class SimStore(FaultyStore):
    """Remembers what was stored, so that a suffix can be lost, and when it was handed over."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(MemoryStore())
        self.now = now
        self.handed: deque[tuple[int, float]] = deque(maxlen=4)
        self.log: list[tuple[Batch, Committed]] = []
        self.owner: Any = None  # the engine that opened it last

    def commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        """Note when a batch was handed over first."""
        if not self.handed or self.handed[-1][0] != id(batch):
            self.handed.append((id(batch), self.now()))
        super().commit(batch, done)

    def _commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        engine = getattr(done, "__self__", None)
        if self.owner is not None and engine is not self.owner:
            done(StoreLocked("another process took this store over"))
        else:
            super()._commit(batch, done)

    def lose(self, commits: int) -> None:
        """Power goes: the newest commits were never there."""
        del self.log[len(self.log) - commits :]
        self.inner = MemoryStore()
        for batch, _ in self.log:
            self.inner.commit(batch, lambda result: None)
