"""A connection to a store file, and what is done with it as a whole."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from os import PathLike
from typing import Any, Literal

from lakeshore.core.rows import Options

from .codec import decode_options

LOG_KEEPS = 4 << 20  # bytes that a log keeps of its size once it was wholly copied back
OPTIONS = 4096  # how many different ones a file numbers
BUSY = 5.0  # seconds to wait for another connection, which only ever holds the file for moments


class Connection(sqlite3.Connection):
    """A connection that remembers the numbers of the namespaces and options it met.

    Attributes:
        swept_later: rows that ended and are still fresh.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spaces: dict[str, int] = {}
        self.numbers: dict[bytes, int] = {}
        self.swept_later: list[tuple[int, bytearray]] = []
        self._options: dict[int, Options] = {}
        self._numbered_all = False  # there is no room for the numbers of more

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

    def number_options(self, data: bytes) -> int | bytes:
        """What to store for encoded options: their number, themselves where too many have one."""
        number = self.numbers.get(data)
        if number is not None:
            return number
        if self._numbered_all:
            return data
        found = self.execute("SELECT number FROM options WHERE data = ?", (data,)).fetchone()
        if found is None:
            if _count_options(self) >= OPTIONS:
                self._numbered_all = True  # until the file is opened again
                return data
            last = self.execute("INSERT INTO options (data) VALUES (?)", (data,)).lastrowid
            found = (last,)
        self.numbers[data] = number = int(found[0] or 0)
        return number

    def options(self, stored: int | bytes) -> Options:
        """The options that an invocation names; equal ones are one object."""
        if isinstance(stored, bytes):
            return decode_options(stored)
        options = self._options.get(stored)
        if options is None:
            found = self.execute("SELECT data FROM options WHERE number = ?", (stored,)).fetchone()
            if found is None:
                raise sqlite3.DatabaseError(f"options {stored} of an invocation are missing")
            self._options[stored] = options = decode_options(found[0])
        return options

    def roll_back(self) -> None:
        """End a transaction that failed, and forget what may have been made in it."""
        self.spaces.clear()
        self.numbers.clear()
        self._options.clear()
        self._numbered_all = False
        with suppress(sqlite3.Error):
            if self.in_transaction:
                self.execute("ROLLBACK")


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


def _count_options(conn: Connection) -> int:
    return int(conn.execute("SELECT count(*) FROM options").fetchone()[0])


def raise_epoch(conn: Connection) -> int:
    """Make every earlier holder of the file unable to commit, and return the new epoch."""
    conn.execute("BEGIN IMMEDIATE")
    try:
        conn.execute(
            "UPDATE invocations INDEXED BY invocations_fresh SET fresh = 0 WHERE fresh = 1 AND state > 1"
        )
        if _count_options(conn) > OPTIONS // 2:  # each process has its own, so most are of no use any more
            conn.execute(  # but the last, so that no number is ever used again
                "DELETE FROM options WHERE number NOT IN (SELECT options FROM invocations) "
                "AND number < (SELECT max(number) FROM options)"
            )
        conn.execute("UPDATE meta SET value = value + 1 WHERE name = 'epoch'")
        epoch = epoch_of(conn)
        conn.execute("COMMIT")
    except BaseException:
        conn.roll_back()
        raise
    return epoch


def checkpoint(conn: Connection, mode: Literal["PASSIVE", "TRUNCATE"] = "PASSIVE") -> None:
    """Copy the log back into the file, as far as readers and writers let it."""
    conn.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()


def epoch_of(conn: Connection) -> int:
    """The epoch of the file."""
    return int(conn.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()[0])
