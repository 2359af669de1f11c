"""Reading: one query, one snapshot. Every statement here is an indexed one, which a test proves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from lakeshore.core.rows import (
    ChunkRow,
    EventRow,
    GetBlob,
    GetChunks,
    GetExtent,
    GetFunction,
    GetInvocation,
    GetKey,
    GetMarks,
    GetWorkers,
    InvocationRow,
    KeyRow,
    ListEvents,
    ListInvocations,
    ListWorkers,
    LiveRow,
    Loaded,
    LoadHead,
    LoadLive,
    MetaRow,
    Missing,
    Query,
    WantedObjects,
    WorkerRow,
    log_of,
)
from lakeshore.core.states import LIVE, State

from .codec import (
    NUMBER,
    PART,
    STATE,
    decode_any,
    decode_call,
    decode_provider,
    decode_queue,
    decode_record,
    decode_token,
    decode_topic,
    decode_worker,
    marks_of,
)
from .connection import Connection

_T = TypeVar("_T")
_END = b"\xff" * 17  # above every id
_FAR = 1 << 62  # rows that no list has; more can't be counted to
_COLUMNS = "id, queue, state, place, worker, options, call, record"
_TOGETHER = 100  # rows fetched by one statement
_FETCH = f"SELECT {_COLUMNS} FROM invocations WHERE n = ? AND id IN ({','.join('?' * _TOGETHER)}) ORDER BY id"


def answer(conn: Connection, query: Query) -> Any:
    """What is committed, as the query's comment in `rows` types it."""
    conn.execute("BEGIN")
    try:
        return _ANSWER[type(query)](conn, query)
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _rows(conn: Connection, namespace: str, found: Iterable[tuple[Any, ...]]) -> list[InvocationRow]:
    """Invocations from their columns."""
    return [
        InvocationRow(
            namespace, id, queue, STATE[int(state)], place, worker,
            decode_call(conn.options(options), call), decode_record(record),
        )
        for id, queue, state, place, worker, options, call, record in found
    ]  # fmt: skip


def _get_invocation(conn: Connection, query: GetInvocation) -> InvocationRow | Missing:
    if (n := conn.space(query.namespace)) is None:
        return Missing()
    found = conn.execute(
        f"SELECT {_COLUMNS} FROM invocations WHERE n = ? AND id = ?", (n, query.id)
    ).fetchone()
    if found:
        return _rows(conn, query.namespace, [found])[0]
    pruned = conn.execute("SELECT pruned FROM namespaces WHERE n = ?", (n,)).fetchone()[0]
    return Missing(pruned is not None and query.id <= pruned)


def _get_blob(conn: Connection, query: GetBlob) -> bytes | None:
    found = conn.execute(
        "SELECT data FROM blobs WHERE n = ? AND id = ? AND part = ?",
        (conn.space(query.namespace), query.id, PART[query.part]),
    ).fetchone()
    return found and found[0]


def _get_key(conn: Connection, query: GetKey) -> KeyRow | None:
    found = conn.execute(
        "SELECT id, digest FROM keys WHERE n = ? AND queue = ? AND key = ?",
        (conn.space(query.namespace), query.queue, query.key),
    ).fetchone()
    return found and KeyRow(query.namespace, query.queue, query.key, *found)


def _wanted_objects(conn: Connection, query: WantedObjects) -> frozenset[str]:
    n, wanted = conn.space(query.namespace), "SELECT 1 FROM objects WHERE n = ? AND name = ? LIMIT 1"
    return frozenset(name for name in query.names if conn.execute(wanted, (n, name)).fetchone())


def _get_function(conn: Connection, query: GetFunction) -> bytes | None:
    found = conn.execute("SELECT data FROM functions WHERE hash = ?", (query.hash,)).fetchone()
    return found and found[0]


def _get_chunks(conn: Connection, query: GetChunks) -> list[ChunkRow]:
    owner, since = (conn.space(query.namespace), query.owner), query.since
    holder = conn.execute(
        "SELECT seq, count FROM chunks WHERE n = ? AND owner = ? AND seq <= ? ORDER BY seq DESC LIMIT 1",
        (*owner, since),
    ).fetchone()
    if holder and sum(holder) > since:
        since = holder[0]
    rows = conn.execute(
        "SELECT owner, queue, seq, count, attempt, data FROM chunks "
        "WHERE n = ? AND owner = ? AND seq >= ? ORDER BY seq",
        (*owner, since),
    )
    chunks: list[ChunkRow] = []
    frames = size = 0
    for row in rows:
        chunk = ChunkRow(query.namespace, *row)
        frames, size = frames + chunk.count, size + len(chunk.data)
        if chunks and (frames > query.frames or size > query.bytes):
            break
        chunks.append(chunk)
    rows.close()
    return chunks


def _get_extent(conn: Connection, query: GetExtent) -> tuple[int, int, int]:
    return _extent(conn, conn.space(query.namespace), query.owner)


def _extent(conn: Connection, n: int | None, owner: bytes) -> tuple[int, int, int]:
    last = conn.execute(
        "SELECT seq + count, attempt FROM chunks WHERE n = ? AND owner = ? ORDER BY seq DESC LIMIT 1",
        (n, owner),
    ).fetchone()
    if not last:
        return 0, 0, 0
    first = conn.execute(
        "SELECT seq FROM chunks WHERE n = ? AND owner = ? ORDER BY seq LIMIT 1", (n, owner)
    ).fetchone()
    return first[0], *last


def _get_marks(conn: Connection, query: GetMarks) -> list[tuple[int, int]]:
    rows = conn.execute(
        "SELECT seq + count, length(data) FROM chunks "
        "WHERE n = ? AND owner = ? AND seq >= ? AND seq < ? ORDER BY seq LIMIT ?",
        (conn.space(query.namespace), query.owner, query.since, query.until, query.limit),
    ).fetchall()
    return marks_of(rows, query.grain)


def _list_invocations(conn: Connection, query: ListInvocations) -> list[InvocationRow]:
    if (n := conn.space(query.namespace)) is None:
        return []
    states = frozenset(query.states or State)
    if len(states) == len(State) and query.queue is None and query.worker is None:
        rows = conn.execute(
            f"SELECT {_COLUMNS} FROM invocations WHERE n = ? AND id < ? ORDER BY id DESC LIMIT ? OFFSET ?",
            (n, query.before or _END, query.limit, query.offset),
        )
        return _rows(conn, query.namespace, rows)
    offset = min(query.offset, _FAR)
    end = offset + query.limit
    sources = _sources(conn, n, states, query.queue, query.worker)
    found = _merged(conn, sources, end, newest_first=True, bound=query.before or _END)
    ids = list(islice(found, offset, end))
    rows = _rows(conn, query.namespace, _fetch(conn, n, ids[::-1]))
    rows.reverse()
    return rows


_Source = tuple[str, tuple[Any, ...]]


def _sources(
    conn: Connection, n: int, states: frozenset[State], queue: bytes | None, worker: bytes | None
) -> Iterator[_Source]:
    """Index ranges that together hold the ids wanted, each in id order: FROM … WHERE …, and values."""
    numbers = sorted(NUMBER[state] for state in states)
    where, values = "INDEXED BY invocations_fresh WHERE n = ? AND fresh = 1", [n]
    if len(numbers) < len(State):
        where = f"{where} AND state IN ({', '.join(map(str, numbers))})"
    if queue is not None:
        where, values = f"{where} AND queue = ?", [*values, queue]
    if worker is not None:
        where, values = f"{where} AND worker = ?", [*values, worker]
    yield where, tuple(values)  # fresh rows are few, so every filter may look at each
    for state in numbers:
        if worker is None:
            where, values = "INDEXED BY invocations_state WHERE n = ? AND state = ? AND fresh = 0", [n, state]
        else:
            where = "INDEXED BY invocations_worker WHERE n = ? AND worker = ? AND state = ? AND fresh = 0"
            values = [n, worker, state]
        for each in [queue] if queue is not None else _queues(conn, where, values):
            yield f"{where} AND queue = ?", (*values, each)


def _queues(conn: Connection, where: str, values: list[Any]) -> Iterator[bytes]:
    """The queues that occur in an index range: one seek each, from one to the next."""
    statement = f"SELECT queue FROM invocations {where} AND queue > ? ORDER BY queue LIMIT 1"
    queue = b""
    while found := conn.execute(statement, (*values, queue)).fetchone():
        queue = found[0]
        yield queue


def _merged(
    conn: Connection, sources: Iterable[_Source], need: int, *, newest_first: bool, bound: bytes
) -> Iterator[bytes]:
    """The ids of all sources in order from `bound` on; `need` is about how many will be taken."""
    known = list(sources)
    page = max(16, min(need, 2 * need // max(1, len(known))))
    return merge(*[_paged(conn, source, page, newest_first, bound) for source in known], reverse=newest_first)


def _paged(conn: Connection, source: _Source, page: int, newest_first: bool, last: bytes) -> Iterator[bytes]:
    """The ids of one source. By pages: an open cursor each would be a statement to prepare each."""
    where, values = source
    if newest_first:
        statement = f"SELECT id FROM invocations {where} AND id < ? ORDER BY id DESC LIMIT ?"
    else:
        statement = f"SELECT id FROM invocations {where} AND id > ? ORDER BY id LIMIT ?"
    while True:
        rows = conn.execute(statement, (*values, last, page)).fetchall()
        for (last,) in rows:
            yield last
        if len(rows) < page:
            return


def _fetch(conn: Connection, n: int, ids: list[bytes]) -> Iterator[tuple[Any, ...]]:
    """The rows of rising ids."""
    for start in range(0, len(ids), _TOGETHER):
        some = ids[start : start + _TOGETHER]
        yield from conn.execute(_FETCH, (n, *some, *[None] * (_TOGETHER - len(some)))).fetchall()


def _list_events(conn: Connection, query: ListEvents) -> list[EventRow]:
    index, where = ("events_queue", "") if query.noops else ("events_done", "AND noop = 0")
    rows = conn.execute(
        f"SELECT id, data, noop FROM events INDEXED BY {index} WHERE n = ? AND queue = ? {where} "
        "ORDER BY id DESC LIMIT ?",
        (conn.space(query.namespace), query.queue, query.limit),
    )
    return [
        EventRow(query.namespace, query.queue, id, decode_any(data), bool(noop)) for id, data, noop in rows
    ]


def _list_workers(conn: Connection, query: ListWorkers) -> list[WorkerRow]:
    rows = conn.execute(
        "SELECT data FROM workers WHERE n = ? ORDER BY id DESC", (conn.space(query.namespace),)
    )
    return [decode_worker(data) for (data,) in rows]


def _get_workers(conn: Connection, query: GetWorkers) -> list[WorkerRow]:
    ids = ",".join("?" * len(query.ids))
    rows = conn.execute(
        f"SELECT data FROM workers WHERE n = ? AND id IN ({ids})", (conn.space(query.namespace), *query.ids)
    )
    return [decode_worker(data) for (data,) in rows]


def _load_head(conn: Connection, query: LoadHead) -> Loaded:
    def every(table: str, decode: Callable[[bytes], _T], where: str = "") -> tuple[_T, ...]:
        rows = conn.execute(
            f"SELECT data FROM {table} CROSS JOIN namespaces USING (n) {where} ORDER BY name, id"
        )
        return tuple([decode(data) for (data,) in rows])

    return Loaded(
        every("queues", decode_queue),
        every("topics", decode_topic),
        every("workers INDEXED BY workers_live", decode_worker, "WHERE ended_at IS NULL"),
        tuple([decode_token(data) for (data,) in conn.execute("SELECT data FROM tokens ORDER BY id")]),
        tuple([decode_provider(data) for (data,) in conn.execute("SELECT data FROM providers ORDER BY id")]),
        tuple(meta_of(conn)),
    )


def meta_of(conn: Connection) -> list[MetaRow]:
    """What is known of the file as a whole, but its epoch."""
    rows = conn.execute("SELECT name, value FROM meta WHERE name != 'epoch' ORDER BY name")
    return [MetaRow(name, decode_any(value)) for name, value in rows]


def _load_live(conn: Connection, query: LoadLive) -> list[LiveRow]:
    name, id = query.after or ("", b"")
    spaces = conn.execute("SELECT n, name FROM namespaces WHERE name >= ? ORDER BY name", (name,)).fetchall()
    live: list[LiveRow] = []
    for n, namespace in spaces:
        wanted = query.limit - len(live)
        if wanted <= 0:
            break
        rows = _live_rows(conn, n, id if namespace == name else b"", wanted)
        live += [
            LiveRow(row) if not (row.record.attempt or row.call.key) else _live(conn, n, row)
            for row in _rows(conn, namespace, rows)
        ]
    return live


def _live_rows(conn: Connection, n: int, after: bytes, wanted: int) -> list[tuple[Any, ...]]:
    """The live rows after an id. Where most rows are live the table itself is the fastest index."""
    rows = conn.execute(
        f"SELECT * FROM (SELECT {_COLUMNS} FROM invocations WHERE n = ? AND id > ? ORDER BY id LIMIT ?) "
        "WHERE state <= 1 LIMIT ?",
        (n, after, 4 * wanted, wanted),
    ).fetchall()
    rest = wanted - len(rows)
    if rest:
        after = rows[-1][0] if rows else after
        found = _merged(conn, _sources(conn, n, LIVE, None, None), rest, newest_first=False, bound=after)
        rows += _fetch(conn, n, list(islice(found, rest)))
    return rows


def _live(conn: Connection, n: int, row: InvocationRow) -> LiveRow:
    digest = b""
    if row.call.key:
        found = conn.execute(
            "SELECT digest FROM keys WHERE n = ? AND queue = ? AND key = ? AND id = ?",
            (n, row.queue, row.call.key, row.id),
        ).fetchone()
        digest = found[0] if found else b""
    if not row.record.attempt:  # only an attempt writes frames
        return LiveRow(row, digest=digest)
    return LiveRow(row, *_extent(conn, n, row.id), digest, _extent(conn, n, log_of(row.id)))


_ANSWER: dict[type, Callable[[Connection, Any], Any]] = {
    GetInvocation: _get_invocation,
    GetBlob: _get_blob,
    GetKey: _get_key,
    WantedObjects: _wanted_objects,
    GetChunks: _get_chunks,
    GetExtent: _get_extent,
    GetMarks: _get_marks,
    GetFunction: _get_function,
    ListInvocations: _list_invocations,
    ListEvents: _list_events,
    ListWorkers: _list_workers,
    GetWorkers: _get_workers,
    LoadHead: _load_head,
    LoadLive: _load_live,
}
