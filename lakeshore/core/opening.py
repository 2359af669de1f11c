"""How a plane comes back from its store: the one way in, after an end of whatever kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .entry import Entry
from .queue import Queue
from .rows import LiveRow, Loaded, LoadHead, LoadLive, WorkerRow
from .states import State

if TYPE_CHECKING:
    from .head import Head
    from .member import Member

_LOST = "its process ended"


class Opening:
    """One pass over the store: first the head's rows, then live invocations page by page.

    What ran in the process that hosted this store before is lost: its lock was free. A worker in
    another process has one lease to come back with what it holds.
    """

    def __init__(self, head: Head, done: Callable[[BaseException | None], None]) -> None:
        self._head, self._done = head, done
        self._running: list[tuple[Queue, Entry]] = []
        self._workers: dict[tuple[str, bytes], WorkerRow] = {}
        head.engine.store.read(LoadHead(), self._head_loaded)

    def _head_loaded(self, loaded: Loaded | BaseException) -> None:
        if isinstance(loaded, BaseException):
            self._done(loaded)
            return
        self._workers = {(row.namespace, row.id): row for row in loaded.workers}
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
        members = self._adopt_workers()
        self._running.sort(key=lambda pair: pair[1].attempts[-1].started_at)
        charged: dict[bytes, int] = {}
        for queue, entry in self._running:
            worker = entry.attempts[-1].worker
            key = (queue.space.name, worker)
            if key in members:
                entry.member = members[key]
                members[key].adopt(queue, entry.id, entry.attempt)
                continue
            slots = self._workers[key].info.get("slots", 1) if key in self._workers else 1
            charged[worker] = charged.get(worker, 0) + 1
            queue.orphaned(entry, _LOST, charge=charged[worker] <= slots)
        self._done(None)

    def _adopt_workers(self) -> dict[tuple[str, bytes], Member]:
        """Those that may still live are members again; the others have ended."""
        batch, wall = self._head.engine.batch, self._head.engine.wall()
        members: dict[tuple[str, bytes], Member] = {}
        for key, row in self._workers.items():
            if row.info.get("leased"):
                members[key] = self._head.space(row.namespace).roster.adopt(row)
            else:
                batch.put(WorkerRow(row.namespace, row.id, row.info, wall))
        return members
