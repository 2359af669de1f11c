"""What a child can be told to do wrong: end at a statement, or have a fault that the ledger must find."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from typing import Any

from lakeshore.core.rows import Committed
from lakeshore.store.sqlite import SqliteStore

STATEMENTS = [0]  # SQL statements until this process ends; 0: it does not


def apply(spec: dict[str, Any]) -> None:
    """Patch this process as `spec` says."""
    kill = spec["kill"]
    STATEMENTS[0] = kill.get("first statement", 0)
    if STATEMENTS[0] or "statement" in kill:
        _count_statements()
    if spec.get("fault"):
        FAULTS[spec["fault"]]()


def _count_statements() -> None:
    """End before the last of them, of whatever thread, is carried out."""

    def count(_: str) -> None:
        STATEMENTS[0] -= 1
        if not STATEMENTS[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    connect = sqlite3.connect

    def traced(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        conn = connect(*args, **kwargs)
        conn.set_trace_callback(count)
        return conn

    sqlite3.connect = traced


def _acknowledge_early() -> None:
    """A commit is said to be done when it has only begun."""
    commit = SqliteStore.commit

    def early(self: SqliteStore, batch: Any, done: Callable[[Any], None]) -> None:
        commit(self, batch, lambda _: None)
        done(Committed((), tuple([None for _ in batch.prunes])))  # pyright: ignore[reportArgumentType]

    SqliteStore.commit = early


def _commit_in_pieces() -> None:
    """Each statement is a transaction of its own."""
    connect = sqlite3.connect

    def pieces(*args: Any, factory: Any, **kwargs: Any) -> sqlite3.Connection:
        class Pieces(factory):
            def executemany(self, *args: Any) -> sqlite3.Cursor:
                done = super().executemany(*args)
                if self.in_transaction:
                    self.execute("COMMIT")
                    self.execute("BEGIN IMMEDIATE")
                return done

        return connect(*args, factory=Pieces, **kwargs)

    sqlite3.connect = pieces


FAULTS: dict[str, Callable[[], None]] = {
    "early": _acknowledge_early,
    "pieces": _commit_in_pieces,
}
