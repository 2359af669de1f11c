"""What a file store says when it can't be opened, and what a memory store lists of very many."""

from __future__ import annotations

import errno
import fcntl
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lakeshore.core.errors import StoreCorrupt, StoreError
from lakeshore.core.rows import ListInvocations
from lakeshore.store import lock
from lakeshore.store.files import make_parent
from lakeshore.store.migrations import explain
from lakeshore.testing.hand import HandPlane


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (sqlite3.SQLITE_NOTADB, StoreCorrupt, "p.db is not a database: it was not touched"),
        (sqlite3.SQLITE_BUSY, StoreError, "close that program and try again"),
        (sqlite3.SQLITE_READONLY, StoreError, "change its permissions or name another path"),
        (sqlite3.SQLITE_READONLY_DBMOVED, StoreError, "change its permissions or name another path"),
        (sqlite3.SQLITE_CANTOPEN, StoreError, "change its permissions or name another path"),
        (sqlite3.SQLITE_FULL, StoreError, "free some space and try again"),
        (sqlite3.SQLITE_IOERR_WRITE, StoreError, "check it, and try again or name another path"),
        (sqlite3.SQLITE_CORRUPT, StoreCorrupt, "p.db"),
    ],
)
def test_each_error_of_an_open_comes_with_advice(code: int, kind: type[StoreError], advice: str) -> None:
    error = sqlite3.OperationalError("what SQLite says")
    error.sqlite_errorcode = code
    said = explain(error, "p.db")
    assert type(said) is kind
    assert advice in str(said)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"can't make the folder .*: name another path|is not a folder"):
        make_parent(tmp_path / "file" / "folder" / "plane.db")


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    held = lock.StoreLock(tmp_path / "plane.db")
    with pytest.raises(StoreError, match=r"can't be locked \(No locks available\): use a path on a local"):
        held.acquire()
    monkeypatch.undo()
    held.acquire()  # nothing was left behind
    held.release()


def test_a_list_of_a_few_among_very_many_is_the_newest_first() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    first = client.submit()
    worker.finish(first)
    ids = [id for _ in range(30) for id in client.submit_many(100)[0]]
    plane.settle()
    queue = plane.head.spaces["default"].queues["default"].id

    def found(limit: int, offset: int = 0, *states: Any) -> list[bytes]:
        rows: list[Any] = []
        query = ListInvocations("default", queue, states, limit=limit, offset=offset)
        plane.store.inner.read(query, rows.extend)
        return [row.id for row in rows]

    assert found(5) == ids[:-6:-1]
    assert found(3, 4) == ids[-5:-8:-1]
    assert found(5, 0, "running") == [ids[0]]
    assert found(5, 0, "succeeded") == [first]  # older than the newest that are looked at
    assert found(3, 0, "queued", "succeeded") == ids[:-4:-1]
