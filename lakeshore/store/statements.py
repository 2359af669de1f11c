"""Writing: one batch, one transaction. Plain functions on a connection, for whatever thread has it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable
from os import PathLike
from typing import Any, Literal

from lakeshore.core.errors import StoreLocked
from lakeshore.core.rows import Batch, Committed, InvocationRow, Prune, Pruned

from .answers import answer
from .codec import NUMBER, PART, STATE, decode_call, decode_record, encode

__all__ = ["Connection", "answer", "apply", "checkpoint", "connect", "raise_epoch"]

LOG_KEEPS = 4 << 20  # bytes that a log keeps of its size once it was wholly copied back
BUSY = 5.0  # seconds to wait for another connection, which only ever holds the file for moments


class Connection(sqlite3.Connection):
    """A connection that remembers the numbers of the namespaces it met."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spaces: dict[str, int] = {}

    def space(self, name: str) -> int | None:
        """The number of a stored namespace, None where nothing was ever stored in it."""
        number = self.spaces.get(name)
        if number is None:
            found = self.execute("SELECT n FROM namespaces WHERE name = ?", (name,)).fetchone()
            if found is None:
                return None
            self.spaces[name] = number = int(found[0])
        return number

    def make_space(self, name: str) -> int:
        """The number of a namespace, stored first where it is new."""
        number = self.space(name)
        if number is None:
            number = self.execute("INSERT INTO namespaces (name) VALUES (?)", (name,)).lastrowid
            assert number is not None
            self.spaces[name] = number
        return number


def connect(
    path: str | PathLike[str], sync: Literal["normal", "full"] = "normal", readonly: bool = False
) -> Connection:
    """Open an existing file; the caller's thread owns the connection. It is not migrated here."""
    conn = sqlite3.connect(path, timeout=BUSY, isolation_level=None, factory=Connection)
    try:
        conn.execute(f"PRAGMA synchronous = {'FULL' if sync == 'full' else 'NORMAL'}")
        conn.execute("PRAGMA wal_autocheckpoint = 0")  # an fsync in a commit's way; see SqliteStore
        conn.execute(f"PRAGMA journal_size_limit = {LOG_KEEPS}")
        conn.execute("PRAGMA secure_delete = OFF")
        conn.execute("PRAGMA cache_size = -16384")
        if readonly:
            conn.execute("PRAGMA query_only = ON")
    except BaseException:
        conn.close()
        raise
    return conn


def raise_epoch(conn: Connection) -> int:
    """Make every earlier holder of the file unable to commit, and return the new epoch."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        conn.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")
        epoch = _epoch(conn)
        conn.execute("COMMIT")
    except BaseException:
        _roll_back(conn)
        raise
    return epoch


def checkpoint(conn: Connection, mode: Literal["PASSIVE", "TRUNCATE"] = "PASSIVE") -> None:
    """Copy the log back into the file, as far as readers and writers let it."""
    conn.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()


def apply(conn: Connection, batch: Batch, epoch: int | None = None) -> Committed:
    """Store a batch in one transaction.

    Raises: StoreLocked where `epoch` is not the file's, sqlite3.Error; then nothing was stored.
    """
    try:
        return _apply(conn, batch, epoch, one_by_one=False)
    except _TakenError:  # rare: some id exists already, and executemany does not say which
        return _apply(conn, batch, epoch, one_by_one=True)


class _TakenError(Exception):
    pass


def _apply(conn: Connection, batch: Batch, epoch: int | None, *, one_by_one: bool) -> Committed:
    conn.execute("BEGIN IMMEDIATE")
    try:
        if epoch is not None and _epoch(conn) != epoch:
            raise StoreLocked("another process took this store over: close this plane and open it anew")
        lost = _insert(conn, batch.inserts.values(), one_by_one) if batch.inserts else frozenset[Any]()
        if batch.updates:
            conn.executemany(
                "UPDATE invocations SET state = ?, place = ?, worker = ?, record = ? WHERE n = ? AND id = ?",
                [
                    (NUMBER[r.state], r.place, r.worker, encode(r.record), conn.make_space(r.namespace), r.id)
                    for r in batch.updates.values()
                ],
            )
        _put_parts(conn, batch, lost)
        _put_others(conn, batch)
        pruned = tuple([_prune(conn, prune) for prune in batch.prunes])
        conn.execute("COMMIT")
    except BaseException:
        _roll_back(conn)
        raise
    return Committed(tuple(key for key in batch.inserts if key in lost) if lost else (), pruned)


def _roll_back(conn: Connection) -> None:
    conn.spaces.clear()  # some may have been made just now
    with contextlib.suppress(sqlite3.Error):
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _epoch(conn: Connection) -> int:
    return int(conn.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()[0])


_INSERT = "INSERT INTO invocations VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"


def _insert(
    conn: Connection, rows: Collection[InvocationRow], one_by_one: bool
) -> frozenset[tuple[str, bytes]]:
    """Insert first rows, and return the keys of those whose id was taken."""
    packed = [
        (
            conn.make_space(r.namespace), r.id, r.queue, NUMBER[r.state], r.place, r.worker,
            encode(r.call), encode(r.record),
        )
        for r in rows
    ]  # fmt: skip
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


def _prune(conn: Connection, prune: Prune) -> Pruned:
    n = conn.make_space(prune.namespace)
    rows = conn.execute(
        "SELECT id, queue, state, call, record FROM invocations WHERE n = ? AND id > ? ORDER BY id LIMIT ?",
        (n, prune.after, prune.limit),
    ).fetchall()
    ids: list[bytes] = []
    keys: list[tuple[int, bytes, str, bytes]] = []
    hashes: Counter[bytes] = Counter()
    wait = float("inf")
    for id, queue, state, packed, record in rows:
        ended_at = decode_record(record).ended_at if STATE[int(state)].terminal else None
        before = prune.queues.get(queue, prune.ended_before)
        if ended_at is None or ended_at >= before:
            wait = min(wait, (prune.now if ended_at is None else ended_at) - before)
            continue
        ids.append(id)
        call = decode_call(packed)
        if call.key:
            keys.append((n, queue, call.key, id))
        if call.options.function.value:
            hashes[call.options.function.value] += 1
    if ids:
        _delete(conn, n, ids, keys, hashes.items())
    if len(rows) == prune.limit:
        return Pruned(tuple(ids), rows[-1][0], wait)
    conn.execute("DELETE FROM workers WHERE n = ? AND ended_at < ?", (n, prune.ended_before))
    conn.execute("DELETE FROM functions WHERE hash IN (SELECT hash FROM uses WHERE uses = 0 AND idle = 1)")
    conn.execute("DELETE FROM uses WHERE uses = 0 AND idle = 1")
    conn.execute("UPDATE uses SET idle = 1 WHERE uses = 0")
    return Pruned(tuple(ids), None, wait)


def _delete(
    conn: Connection,
    n: int,
    ids: list[bytes],
    keys: list[tuple[int, bytes, str, bytes]],
    hashes: Iterable[tuple[bytes, int]],
) -> None:
    pairs = [(n, id) for id in ids]
    conn.executemany("DELETE FROM invocations WHERE n = ? AND id = ?", pairs)
    conn.executemany("DELETE FROM blobs WHERE n = ? AND id = ?", pairs)
    conn.executemany("DELETE FROM chunks WHERE n = ? AND owner = ?", pairs)
    conn.executemany("DELETE FROM keys WHERE n = ? AND queue = ? AND key = ? AND id = ?", keys)
    conn.executemany("UPDATE uses SET uses = uses - ?2 WHERE hash = ?1", hashes)
    conn.execute("UPDATE namespaces SET pruned = max(coalesce(pruned, x''), ?) WHERE n = ?", (ids[-1], n))
