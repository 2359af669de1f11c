"""Writing: one batch, one transaction. Plain functions on a connection, for whatever thread has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from lakeshore.core.errors import StoreLocked
from lakeshore.core.ids import floor
from lakeshore.core.rows import (
    Batch,
    Committed,
    EventRow,
    InvocationRow,
    MetaRow,
    ProviderRow,
    Prune,
    Pruned,
    TokenRow,
    log_of,
)

from .codec import NUMBER, PART, STATE, decode_call, decode_record, encode, encode_call
from .connection import Connection, epoch_of


def apply(conn: Connection, batch: Batch, epoch: int | None = None) -> Committed:
    """Store a batch in one transaction.

    Raises: StoreLocked where `epoch` is not the file's, sqlite3.Error; then nothing was stored.
    """
    if epoch is not None and _apply_one(conn, batch, epoch):
        return Committed()
    try:
        return _apply(conn, batch, epoch, one_by_one=False)
    except _TakenError:  # rare: some id exists already, and executemany does not say which
        return _apply(conn, batch, epoch, one_by_one=True)


class _TakenError(Exception):
    pass


_EPOCH = "(SELECT value FROM meta WHERE name = 'epoch')"
_VALUES = "?, ?, ?, ?, ?, nullif(?, x''), ?, ?, ?, ?"
_INSERT = f"INSERT INTO invocations VALUES ({_VALUES}) ON CONFLICT DO NOTHING"
_INSERT_ONE = f"INSERT INTO invocations SELECT {_VALUES} WHERE {_EPOCH} = ? ON CONFLICT DO NOTHING"
_CHANGES = "UPDATE invocations SET state = ?, place = ?, worker = nullif(?, x''), record = ?"
_UPDATE = f"{_CHANGES}, fresh = ? WHERE n = ? AND id = ?"
_UPDATE_ONE = f"{_UPDATE} AND {_EPOCH} = ?"
_END_ONE = f"{_CHANGES} WHERE n = ? AND id = ? AND {_EPOCH} = ?"


def _apply_one(conn: Connection, batch: Batch, epoch: int) -> bool:
    """Whether all of a batch could be stored by one statement, as it can most often while little
    goes on: that is a transaction of its own, in half the time."""
    if len(batch.inserts) + len(batch.updates) != 1 or (
        batch.blobs or batch.objects or batch.keys or batch.chunks or batch.trims or batch.functions
        or batch.queues or batch.topics or batch.workers or batch.admin or batch.prunes
    ):  # fmt: skip
        return False
    for row in batch.updates.values():
        n = conn.space(row.namespace)
        if n is None:
            return False
        if not row.state.terminal:
            values = (*_changes(row), n, bytearray(row.id), epoch)
            return conn.execute(_UPDATE_ONE, values).rowcount == 1
        if conn.execute(_END_ONE, (*_changes(row)[:-1], n, bytearray(row.id), epoch)).rowcount != 1:
            return False
        conn.swept_later.append((n, bytearray(row.id)))
        return True
    for row in batch.inserts.values():
        n, options = conn.space(row.namespace), conn.numbers.get(encode(row.call.options))
        if n is None or options is None or row.call.options.function.value:
            return False
        return conn.execute(_INSERT_ONE, (n, *_columns(row, options), epoch)).rowcount == 1
    return False


def sweep(conn: Connection, epoch: int | None) -> None:
    """Move rows that ended on from the index of fresh ones to those that keep them."""
    if not conn.swept_later:
        return
    conn.execute("BEGIN IMMEDIATE")
    try:
        if epoch_of(conn) == epoch:
            _sweep(conn)
        conn.execute("COMMIT")
    except BaseException:
        conn.roll_back()
        raise
    conn.swept_later.clear()


def _sweep(conn: Connection) -> None:
    conn.executemany(
        "UPDATE invocations SET fresh = 0 WHERE n = ? AND id = ? AND state > 1", conn.swept_later
    )


def _apply(conn: Connection, batch: Batch, epoch: int | None, *, one_by_one: bool) -> Committed:
    conn.execute("BEGIN IMMEDIATE")
    try:
        if epoch is not None and epoch_of(conn) != epoch:
            raise StoreLocked("another process took this store over: close this plane and open it anew")
        lost = _insert(conn, batch.inserts.values(), one_by_one) if batch.inserts else frozenset[Any]()
        if batch.updates:
            conn.executemany(
                _UPDATE,
                [
                    (*_changes(row), conn.make_space(row.namespace), bytearray(row.id))
                    for row in batch.updates.values()
                ],
            )
        _put_parts(conn, batch, lost)
        _put_others(conn, batch)
        pruned = tuple([_prune(conn, prune) for prune in batch.prunes])
        if conn.swept_later:
            _sweep(conn)
        conn.execute("COMMIT")
    except BaseException:
        conn.roll_back()
        raise
    conn.swept_later.clear()
    return Committed(tuple(key for key in batch.inserts if key in lost) if lost else (), pruned)


# The module `sqlite3` looks for an adapter of every parameter but int, float, str and bytearray, in
# vain: for bytes, None and bool that takes longer than all the rest, so there are none of them here.


def _columns(row: InvocationRow, options: int | bytes) -> tuple[Any, ...]:
    state = NUMBER[row.state]
    return (
        bytearray(row.id), bytearray(row.queue), state, row.place, bytearray(row.worker or b""), options,
        bytearray(encode_call(row.call)), bytearray(encode(row.record)), 1 if state == 1 else 0,
    )  # fmt: skip


def _changes(row: InvocationRow) -> tuple[Any, ...]:
    state = NUMBER[row.state]
    return (
        state, row.place, bytearray(row.worker or b""), bytearray(encode(row.record)), 1 if state == 1 else 0
    )  # fmt: skip


def _insert(
    conn: Connection, rows: Collection[InvocationRow], one_by_one: bool
) -> frozenset[tuple[str, bytes]]:
    """Insert first rows, and return the keys of those whose id was taken."""
    packed: list[tuple[Any, ...]] = []
    namespace, last, n, options = None, None, 0, 0
    for row in rows:
        if row.namespace is not namespace:
            n = conn.make_space(namespace := row.namespace)
        if row.call.options is not last:
            last = row.call.options
            options = conn.number_options(encode(last))
        packed.append((n, *_columns(row, options)))
    lost: set[tuple[str, bytes]] = set()
    if one_by_one:
        for row, values in zip(rows, packed, strict=True):
            if not conn.execute(_INSERT, values).rowcount:
                lost.add((row.namespace, row.id))
    elif conn.executemany(_INSERT, packed).rowcount < len(packed):
        raise _TakenError
    hashes = [
        row.call.options.function.value
        for row in rows
        if row.call.options.function.value and (row.namespace, row.id) not in lost
    ]
    if hashes:
        conn.executemany(
            "INSERT INTO uses VALUES (?1, ?2, 0) ON CONFLICT DO UPDATE SET uses = uses + ?2, idle = 0",
            list(Counter(hashes).items()),
        )
    return frozenset(lost)


def _put_parts(conn: Connection, batch: Batch, lost: Collection[tuple[str, bytes]]) -> None:
    """What belongs to invocations; a lost id's parts would be written over another's."""
    if batch.blobs:
        conn.executemany(
            "INSERT OR REPLACE INTO blobs VALUES (?, ?, ?, ?, ?)",
            [
                (conn.make_space(r.namespace), r.id, PART[r.part], r.queue, r.data)
                for r in batch.blobs
                if (r.namespace, r.id) not in lost
            ],
        )
    if batch.objects:
        conn.executemany(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)",
            [
                (conn.make_space(r.namespace), r.id, r.name, r.place)
                for r in batch.objects
                if (r.namespace, r.id) not in lost
            ],
        )
    if batch.keys:
        conn.executemany(
            "INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?, ?)",
            [
                (conn.make_space(r.namespace), r.queue, r.key, r.id, r.digest)
                for r in batch.keys.values()
                if (r.namespace, r.id) not in lost
            ],
        )
    if batch.chunks:
        conn.executemany(
            "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (conn.make_space(r.namespace), r.owner, r.seq, r.count, r.attempt, r.queue, r.data)
                for r in batch.chunks
                if (r.namespace, r.owner) not in lost
            ],
        )
    if batch.trims:
        conn.executemany(
            "DELETE FROM chunks WHERE n = ?1 AND owner = ?2 AND seq < ?3 AND seq + count <= ?3",
            [
                (conn.make_space(t.namespace), t.owner, t.below)
                for t in batch.trims
                if (t.namespace, t.owner) not in lost
            ],
        )


def _put_others(conn: Connection, batch: Batch) -> None:
    for queue in batch.queues.values():
        n = conn.make_space(queue.namespace)
        if queue.removed:
            conn.execute("DELETE FROM queues WHERE n = ? AND id = ?", (n, queue.id))
            conn.execute("DELETE FROM keys WHERE n = ? AND queue = ?", (n, queue.id))
        else:
            conn.execute("INSERT OR REPLACE INTO queues VALUES (?, ?, ?)", (n, queue.id, encode(queue)))
    for topic in batch.topics.values():
        n = conn.make_space(topic.namespace)
        if topic.removed:
            conn.execute("DELETE FROM topics WHERE n = ? AND id = ?", (n, topic.id))
            conn.execute("DELETE FROM chunks WHERE n = ? AND owner = ?", (n, topic.id))
        else:
            conn.execute("INSERT OR REPLACE INTO topics VALUES (?, ?, ?)", (n, topic.id, encode(topic)))
    for worker in batch.workers.values():
        conn.execute(
            "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?)",
            (conn.make_space(worker.namespace), worker.id, worker.ended_at, encode(worker)),
        )
    for function in batch.functions.values():
        conn.execute(
            "INSERT INTO functions VALUES (?, ?) ON CONFLICT DO NOTHING", (function.hash, function.data)
        )
        conn.execute("INSERT INTO uses VALUES (?, 0, 0) ON CONFLICT DO UPDATE SET idle = 0", (function.hash,))
    for row in batch.admin.values():
        if isinstance(row, EventRow):
            _put_event(conn, row)
        elif isinstance(row, TokenRow | ProviderRow):
            _put_plain(conn, "tokens" if isinstance(row, TokenRow) else "providers", row)
        else:
            put_meta(conn, row)


def _put_event(conn: Connection, event: EventRow) -> None:
    n = conn.make_space(event.namespace)
    if event.replaces:
        conn.execute("DELETE FROM events WHERE n = ? AND id = ?", (n, event.replaces))
    conn.execute(
        "INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)",
        (n, event.id, event.queue, int(event.noop), encode(event.data)),
    )


def _put_plain(conn: Connection, table: str, row: TokenRow | ProviderRow) -> None:
    if row.removed:
        conn.execute(f"DELETE FROM {table} WHERE id = ?", (row.id,))
    else:
        conn.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (row.id, encode(row)))


def put_meta(conn: Connection, row: MetaRow) -> None:
    """Remember something of the file as a whole."""
    if row.value is None:
        conn.execute("DELETE FROM meta WHERE name = ?", (row.name,))
    else:
        conn.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (row.name, encode(row.value)))


def _prune(conn: Connection, prune: Prune) -> Pruned:
    n = conn.make_space(prune.namespace)
    rows = conn.execute(
        "SELECT id, queue, state, options, call, record FROM invocations "
        "WHERE n = ? AND id > ? ORDER BY id LIMIT ?",
        (n, prune.after, prune.limit),
    ).fetchall()
    ids: list[bytes] = []
    keys: list[tuple[int, bytes, str, bytes]] = []
    hashes: Counter[bytes] = Counter()
    wait = float("inf")
    for id, queue, state, options, packed, record in rows:
        ended_at = decode_record(record).ended_at if STATE[int(state)].terminal else None
        before = prune.queues.get(queue, prune.ended_before)
        if ended_at is None or ended_at >= before:
            wait = min(wait, (prune.now if ended_at is None else ended_at) - before)
            continue
        ids.append(id)
        call = decode_call(conn.options(options), packed)
        if call.key:
            keys.append((n, queue, call.key, id))
        if call.options.function.value:
            hashes[call.options.function.value] += 1
    objects = _delete(conn, n, ids, keys, hashes.items()) if ids else ()
    if len(rows) == prune.limit:
        return Pruned(tuple(ids), rows[-1][0], wait, objects)
    conn.execute("DELETE FROM workers WHERE n = ? AND ended_at < ?", (n, prune.ended_before))
    if prune.events:
        conn.execute("DELETE FROM events WHERE n = ? AND id < ?", (n, floor(prune.ended_before)))
    conn.execute("DELETE FROM functions WHERE hash IN (SELECT hash FROM uses WHERE uses = 0 AND idle = 1)")
    conn.execute("DELETE FROM uses WHERE uses = 0 AND idle = 1")
    conn.execute("UPDATE uses SET idle = 1 WHERE uses = 0")
    return Pruned(tuple(ids), None, wait, objects)


def _delete(
    conn: Connection,
    n: int,
    ids: list[bytes],
    keys: list[tuple[int, bytes, str, bytes]],
    hashes: Iterable[tuple[bytes, int]],
) -> tuple[tuple[str, str], ...]:
    """Delete invocations with all that is theirs; the objects that nothing has any more."""
    pairs = [(n, id) for id in ids]
    conn.executemany("DELETE FROM invocations WHERE n = ? AND id = ?", pairs)
    conn.executemany("DELETE FROM blobs WHERE n = ? AND id = ?", pairs)
    owners = pairs + [(n, log_of(id)) for id in ids]
    conn.executemany("DELETE FROM chunks WHERE n = ? AND owner = ?", owners)
    conn.executemany("DELETE FROM keys WHERE n = ? AND queue = ? AND key = ? AND id = ?", keys)
    conn.executemany("UPDATE uses SET uses = uses - ?2 WHERE hash = ?1", hashes)
    conn.execute("UPDATE namespaces SET pruned = max(coalesce(pruned, x''), ?) WHERE n = ?", (ids[-1], n))
    return _unwanted(conn, pairs)


def _unwanted(conn: Connection, pairs: list[tuple[int, bytes]]) -> tuple[tuple[str, str], ...]:
    found: dict[tuple[int, str], str] = {}
    for n, id in pairs:
        for name, place in conn.execute("SELECT name, place FROM objects WHERE n = ? AND id = ?", (n, id)):
            found[n, name] = place
    if not found:
        return ()
    conn.executemany("DELETE FROM objects WHERE n = ? AND id = ?", pairs)
    wanted = "SELECT 1 FROM objects WHERE n = ? AND name = ? LIMIT 1"
    return tuple((place, key[1]) for key, place in found.items() if not conn.execute(wanted, key).fetchone())
