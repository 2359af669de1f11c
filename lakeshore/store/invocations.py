"""The invocations of one namespace in memory, and lists of them newest first under any filter."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from heapq import nlargest
from itertools import chain, islice

from lakeshore.core.rows import InvocationRow, ListInvocations
from lakeshore.core.states import State

BACKLOG = 1024  # changed rows at the most that are not indexed yet; what ends soon is indexed once

_States = defaultdict[State, set[bytes]]
_Index = defaultdict[bytes, _States]


def _index() -> _Index:
    return defaultdict(lambda: defaultdict(set))


class Invocations:
    """Rows by id. Who writes does so in these tables, then calls `fold` once `changed` is long.

    Attributes:
        rows: every invocation.
        ids: theirs, sorted.
        changed: of rows that differ from what is indexed, what they were then (None: not there).
    """

    __slots__ = ("_by_queue", "_by_worker", "changed", "ids", "rows")

    def __init__(self) -> None:
        self.rows: dict[bytes, InvocationRow] = {}
        self.ids: list[bytes] = []
        self.changed: dict[bytes, InvocationRow | None] = {}
        self._by_queue, self._by_worker = _index(), _index()

    def add(self, row: InvocationRow) -> None:
        """Store a first row whose id is not the newest; those that are go straight into the tables."""
        self.rows[row.id] = row
        insort(self.ids, row.id)
        self.changed.setdefault(row.id, None)

    def remove(self, row: InvocationRow) -> None:
        """Forget a row, but for its id in `ids`: they go many at a time."""
        del self.rows[row.id]
        self.changed.setdefault(row.id, row)

    def after(self, id: bytes) -> Iterator[InvocationRow]:
        """The rows after an id, in order."""
        ids, rows = self.ids, self.rows
        return (rows[each] for each in islice(ids, bisect_right(ids, id), None))

    def fold(self) -> None:
        """Bring the index up to date."""
        rows, by_queue, by_worker = self.rows, self._by_queue, self._by_worker
        for id, old in self.changed.items():
            if old is not None:
                _discard(by_queue, old.queue, old)
                if old.worker is not None:
                    _discard(by_worker, old.worker, old)
            row = rows.get(id)
            if row is not None:
                by_queue[row.queue][row.state].add(id)
                if row.worker is not None:
                    by_worker[row.worker][row.state].add(id)
        self.changed.clear()

    def list(self, query: ListInvocations) -> list[InvocationRow]:
        """Newest first."""
        rows, ids = self.rows, self.ids
        offset = min(query.offset, len(ids))
        end = offset + query.limit
        below = len(ids) if query.before is None else bisect_left(ids, query.before)
        newest = map(ids.__getitem__, range(below - 1, -1, -1))
        if query.queue is None and query.worker is None and not query.states:
            return [rows[id] for id in islice(newest, offset, end)]
        self.fold()
        sets, few = self._candidates(query), 1000 + 10 * end
        if sum(map(len, sets)) > few:  # then most often some of the newest rows will do
            found: list[InvocationRow] = []
            for id in islice(newest, few):
                row = rows[id]
                if _matches(query, row):
                    found.append(row)
                    if len(found) == end:
                        return found[offset:]
        matches: Iterable[bytes] = chain.from_iterable(sets)
        if query.worker is not None and query.queue is not None:
            matches = (id for id in matches if rows[id].queue == query.queue)
        if (before := query.before) is not None:
            matches = (id for id in matches if id < before)
        return [rows[id] for id in nlargest(end, matches)[offset:]]

    def _candidates(self, query: ListInvocations) -> list[set[bytes]]:
        """Sets of ids that together are the matches, where a worker is asked for those of any queue."""
        groups: Iterable[Mapping[State, set[bytes]]] = self._by_queue.values()
        if query.worker is not None:
            groups = [self._by_worker.get(query.worker, {})]
        elif query.queue is not None:
            groups = [self._by_queue.get(query.queue, {})]
        wanted = frozenset(query.states or State)
        return [ids for states in groups for state, ids in states.items() if state in wanted]


def _matches(query: ListInvocations, row: InvocationRow) -> bool:
    return (
        (query.queue is None or row.queue == query.queue)
        and (query.worker is None or row.worker == query.worker)
        and (not query.states or row.state in query.states)
    )


def _discard(index: _Index, key: bytes, row: InvocationRow) -> None:
    states = index[key]
    ids = states[row.state]
    ids.discard(row.id)
    if not ids:
        del states[row.state]
        if not states:
            del index[key]
