"""The tables of a store file, in numbered steps that a newer Lakeshore adds to.

`PRAGMA user_version` counts the steps a file has had, `PRAGMA application_id` says it is ours.
A step that was released is never changed. All missing steps are one transaction.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from lakeshore.core.errors import StoreCorrupt, StoreError, StoreTooNew

from .codec import decode_any

APPLICATION_ID = 0x4C616B65  # "Lake"

# Options are the same for every call of a body, so an invocation names them by a number; a file keeps
# no more than a few thousand such, and what comes after is in the invocation's own row.
#
# Why these indexes of invocations, given three writes a job (queued, running, terminal) and lists
# that are newest first under any filter:
# - fresh rows (those that run, and those that ended just now) are few: one small index has their ids,
#   and any filter may look at every one. While little goes on a commit of an end then changes one page,
#   not four; the rows it leaves are moved on by the hundred.
# - the others enter the two larger ones once per state they rest in, not once per write.
# - state comes first: what is rare is found at once, and per state there are few queues to merge.
_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('epoch', 0);
CREATE TABLE namespaces (n INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, pruned BLOB);
CREATE TABLE invocations (
    n INTEGER NOT NULL, id BLOB NOT NULL, queue BLOB NOT NULL, state INTEGER NOT NULL, place INTEGER NOT NULL,
    worker BLOB, options NOT NULL, call BLOB NOT NULL, record BLOB NOT NULL, fresh INTEGER NOT NULL,
    PRIMARY KEY (n, id)
) WITHOUT ROWID;
CREATE TABLE options (number INTEGER PRIMARY KEY, data BLOB NOT NULL UNIQUE);
CREATE INDEX invocations_fresh ON invocations (n, id) WHERE fresh = 1;
CREATE INDEX invocations_state ON invocations (n, state, queue, id) WHERE fresh = 0;
CREATE INDEX invocations_worker ON invocations (n, worker, state, queue, id)
    WHERE worker IS NOT NULL AND fresh = 0;
CREATE TABLE blobs (
    n INTEGER NOT NULL, id BLOB NOT NULL, part INTEGER NOT NULL, queue BLOB NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (n, id, part)
);
CREATE TABLE keys (
    n INTEGER NOT NULL, queue BLOB NOT NULL, key TEXT NOT NULL, id BLOB NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (n, queue, key)
) WITHOUT ROWID;
CREATE TABLE chunks (
    n INTEGER NOT NULL, owner BLOB NOT NULL, seq INTEGER NOT NULL, count INTEGER NOT NULL,
    attempt INTEGER NOT NULL, queue BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (n, owner, seq)
);
CREATE TABLE queues (n INTEGER NOT NULL, id BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (n, id))
    WITHOUT ROWID;
CREATE TABLE topics (n INTEGER NOT NULL, id BLOB NOT NULL, data BLOB NOT NULL, PRIMARY KEY (n, id))
    WITHOUT ROWID;
CREATE TABLE workers (
    n INTEGER NOT NULL, id BLOB NOT NULL, ended_at REAL, data BLOB NOT NULL, PRIMARY KEY (n, id)
) WITHOUT ROWID;
CREATE INDEX workers_live ON workers (n, id) WHERE ended_at IS NULL;
CREATE TABLE functions (hash BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE uses (hash BLOB PRIMARY KEY, uses INTEGER NOT NULL, idle INTEGER NOT NULL) WITHOUT ROWID;
"""

# Events are listed per queue and pruned by age; those in which something was done are the few.
_2 = """
CREATE TABLE events (
    n INTEGER NOT NULL, id BLOB NOT NULL, queue BLOB NOT NULL, noop INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (n, id)
) WITHOUT ROWID;
CREATE INDEX events_queue ON events (n, queue, id);
CREATE INDEX events_done ON events (n, queue, id) WHERE noop = 0;
CREATE TABLE tokens (id BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE providers (id BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
"""

# Large values that are objects of a storage: who has which, and who else has it.
_3 = """
CREATE TABLE objects (n INTEGER NOT NULL, id BLOB NOT NULL, name TEXT NOT NULL, place TEXT NOT NULL,
    PRIMARY KEY (n, id, name)) WITHOUT ROWID;
CREATE INDEX objects_name ON objects (n, name);
"""

STEPS: tuple[str, ...] = (_1, _2, _3)


def migrate(conn: sqlite3.Connection, path: str, steps: tuple[str, ...] = STEPS) -> int:
    """Bring an open file up to date, in one transaction, and return the version it had (0: new).

    Raises: StoreTooNew, or StoreCorrupt for a database that is not ours; the file is not changed.
    """
    version = check(conn, path, len(steps))
    if version == len(steps):
        return version
    conn.execute("BEGIN IMMEDIATE")
    try:
        version = check(conn, path, len(steps))  # again: another process may have been first
        for step in steps[version:]:
            for statement in filter(str.strip, step.split(";")):
                conn.execute(statement)
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        conn.execute(f"PRAGMA user_version = {len(steps)}")
        conn.execute("COMMIT")
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise
    return version


def served_mark(conn: sqlite3.Connection) -> dict[str, Any] | None:
    """What `lakeshore serve` left in a file it serves. Writes nothing, in whatever file this is."""
    if _pragma(conn, "application_id") != APPLICATION_ID:
        return None
    found = conn.execute("SELECT value FROM meta WHERE name = 'served'").fetchone()
    return None if found is None else decode_any(found[0])


def check(conn: sqlite3.Connection, path: str, newest: int = len(STEPS)) -> int:
    """The version of an open file, 0 where it is empty. Raises as `migrate`."""
    application, version = _pragma(conn, "application_id"), _pragma(conn, "user_version")
    if application != APPLICATION_ID:
        if application or version or conn.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            raise StoreCorrupt(
                f"{path} is a database of another program: it was not touched; name another path"
            )
        return 0
    if version > newest:
        raise StoreTooNew(
            f"{path} was written by a newer Lakeshore (store version {version}, this one knows up to "
            f"{newest}): it was not touched; upgrade lakeshore here, or name another path"
        )
    return version


def _pragma(conn: sqlite3.Connection, name: str) -> int:
    return int(conn.execute(f"PRAGMA {name}").fetchone()[0])


def explain(exc: sqlite3.Error, path: str) -> StoreError:
    """The named error, with advice, for what SQLite raised while a file was opened."""
    code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return StoreCorrupt(
            f"{path} is not a database: it was not touched; name another path, or move that file away"
        )
    if code == sqlite3.SQLITE_BUSY:
        return StoreError(f"{path} is in use by another program ({exc}): close that program and try again")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(f"can't write {path} ({exc}): change its permissions or name another path")
    if code == sqlite3.SQLITE_FULL:
        return StoreError(f"no room left for {path} ({exc}): free some space and try again")
    if code == sqlite3.SQLITE_IOERR:
        return StoreError(f"the disk of {path} failed ({exc}): check it, and try again or name another path")
    return damaged(path, str(exc))


def damaged(path: str, why: str) -> StoreCorrupt:
    """The error for a store file that can't be trusted."""
    return StoreCorrupt(
        f"{path} is damaged ({why}): it was left as it is; put a copy back, or move it and {path}-wal away "
        f'to begin anew (`sqlite3 {path} ".recover"` may save what is in it)'
    )
