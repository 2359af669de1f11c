"""A store in one SQLite file."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio

from lakeshore.core.errors import StoreError, StoreServed
from lakeshore.core.rows import Batch, Committed, LoadHead, MetaRow, Query

from .answers import answer
from .connection import Connection, checkpoint, connect, raise_epoch
from .files import make_parent, make_private, warn_if_remote
from .lanes import Lane, TrioLane, ask, lane_type
from .migrations import check, damaged, explain, migrate, served_mark
from .statements import apply, put_meta, sweep

CHECKPOINT = 16 << 20  # bytes of log to begin copying back at
CHECK_BELOW = 4 << 20  # bytes of a file that is checked whole at open, as that takes milliseconds
MEASURE = 64  # rows and commits at the most until the log is measured again
SWEEP = 64  # rows that ended one by one, to be indexed together
HANDLING = 60.0  # seconds that open and close, which can't be cancelled half-way, may take
_log = logging.getLogger("lakeshore")


class SqliteStore:
    """Keeps rows in the file `path`, made where missing, readable by its owner only.

    Commits have a thread and a connection of their own, reads another: a read never waits behind a
    commit, and sees every commit whose `done` was called. Opening the file raises its epoch, after
    which a store that opened it earlier can't commit any more (`StoreLocked`).

    Args:
        path: the file; its folder is made where missing.
        sync: "normal" keeps every commit when the process is killed, "full" also when power is cut.
            None: as the file was served last, else "full" where it is `served`, else "normal".
        served: this is `lakeshore serve`. It marks the file, which nobody else can open from then on.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sync: Literal["normal", "full"] | None = None,
        served: bool | None = None,
    ) -> None:
        if sync not in ("normal", "full", None):
            raise ValueError(f"sync={sync!r}: choose 'normal' or 'full'")
        self.path: Path = Path(path).absolute()
        self.sync: Literal["normal", "full"] = sync or ("full" if served else "normal")
        self._sync_given, self._served = sync is not None, bool(served)
        self._wal_path = f"{self.path}-wal"
        self._wal = 0  # bytes of log, as of the last commit at which it was measured
        self._unmeasured = 0  # what was put since then
        self._unswept = False  # there are enough rows to be indexed
        self._due = CHECKPOINT  # bytes of log to begin the next checkpoint at
        self._copying = False  # a checkpoint is under way
        self._lagging = False  # commits outran it: the writer is to copy the small rest
        self._epoch: int | None = None
        self._lane: type[Lane] = TrioLane
        self._writer: Lane | None = None
        self._reader: Lane | None = None
        self._keeper: Lane | None = None  # for checkpoints, so that reads don't wait behind one

    @property
    def epoch(self) -> int:
        """How often the file was opened, this time included; 0 before."""
        return self._epoch or 0

    @property
    def full(self) -> str:
        """Always empty: a full disk is an error of the commit that met it."""
        return ""

    async def open(self) -> None:
        """Make, check and migrate the file. Raises `StoreError`; a file that is not ours stays as is.
        `StoreServed` where it is marked and this is not `lakeshore serve`: it is not written then."""
        if self._writer is not None:
            raise StoreError(f"{self.path} is open already: use this store, or close it first")
        make_parent(self.path)
        make_private(self.path)
        warn_if_remote(self.path)
        self._lane = lane_type()
        writer, reader = self._start(readonly=False), self._start(readonly=True)
        with anyio.fail_after(HANDLING, shield=True):
            try:
                self._epoch = await ask(writer, self._prepare)
                await ask(reader, lambda conn: answer(conn, LoadHead()))
            except BaseException as exc:
                await reader.aclose()
                await writer.aclose()
                if isinstance(exc, sqlite3.Error):
                    raise explain(exc, str(self.path)) from exc
                raise
        self._writer, self._reader = writer, reader

    def commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        """Store a batch in one transaction on the writer's thread."""
        if self._writer is None:
            done(self._closed())
        else:
            self._writer.run(partial(self._apply, batch), partial(self._committed, done))

    def read(self, query: Query, done: Callable[[Any], None]) -> None:
        """Answer a query on the reader's thread."""
        if self._reader is None:
            done(self._closed())
        else:
            self._reader.run(partial(self._answer, query), done)

    async def aclose(self) -> None:
        """Finish what was handed over, copy the log into the file, end the threads."""
        writer, reader, keeper = self._writer, self._reader, self._keeper
        self._writer = self._reader = self._keeper = None
        with anyio.move_on_after(HANDLING, shield=True):
            for lane in (keeper, reader):
                if lane:
                    await lane.aclose()
            if writer:
                with suppress(sqlite3.Error):  # the next to open the file does it
                    await ask(writer, partial(sweep, epoch=self._epoch))
                    await ask(writer, lambda conn: checkpoint(conn, "TRUNCATE"))
                await writer.aclose()

    def _start(self, *, readonly: bool) -> Lane:
        lane = self._lane(partial(connect, self.path, self.sync, readonly))
        lane.start()
        return lane

    def _closed(self) -> StoreError:
        return StoreError(f"the store {self.path} is not open: open it first")

    # On the reader's thread

    def _answer(self, query: Query, conn: Connection) -> Any:
        try:
            return answer(conn, query)
        except sqlite3.Error as error:  # damage that was not met at open, a disk that fails
            raise explain(error, str(self.path)) from error

    # On the writer's thread

    def _prepare(self, conn: Connection) -> int:
        path = str(self.path)
        self._heed_mark(conn)
        new = migrate(conn, path) == 0
        if conn.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreError(f"{path} can't have a write-ahead log where it is: name a path on a local disk")
        if not new and self.path.stat().st_size <= CHECK_BELOW:
            verdict = conn.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise damaged(path, " ".join(verdict.split()))
        epoch = raise_epoch(conn)
        if self._served:
            put_meta(conn, MetaRow("served", {"sync": self.sync}))
        return epoch

    def _heed_mark(self, conn: Connection) -> None:
        mark = served_mark(conn)
        if mark is not None and not self._served:
            raise StoreServed(
                f"{self.path} is served by `lakeshore serve`: start it again, or clear the mark with "
                f"`lakeshore serve --release --store {self.path}`, and every process here may host it"
            )
        if mark is not None and not self._sync_given:
            self.sync = "normal" if mark.get("sync") == "normal" else "full"
        conn.execute(f"PRAGMA synchronous = {self.sync.upper()}")

    def _apply(self, batch: Batch, conn: Connection) -> Committed:
        committed = apply(conn, batch, self._epoch)
        self._unswept = len(conn.swept_later) >= SWEEP
        self._unmeasured += batch.size + 1
        if self._unmeasured > MEASURE or batch.blobs or batch.chunks:
            self._unmeasured = 0
            with suppress(OSError, sqlite3.Error):
                self._measure(conn)
        return committed

    def _measure(self, conn: Connection) -> None:
        if self._lagging:
            self._lagging = False
            checkpoint(conn)
        before, self._wal = self._wal, os.stat(self._wal_path).st_size
        if self._wal < before:  # all was copied, so the log began anew
            self._due = CHECKPOINT

    # On the loop

    def _committed(self, done: Callable[[Any], None], committed: Any) -> None:
        if self._wal > self._due and not self._copying and self._writer is not None:
            self._copy_back()
        if self._unswept and self._writer is not None:
            self._unswept = False
            self._writer.run(partial(sweep, epoch=self._epoch), lambda _: None)  # else the next does it
        done(committed)

    def _copy_back(self) -> None:
        self._copying = True
        try:
            if self._keeper is None:
                self._keeper = self._start(readonly=False)
            self._keeper.run(checkpoint, self._copied)
        except RuntimeError as error:  # no thread can be started now
            self._copied(error)

    def _copied(self, answer: Any) -> None:
        self._copying = False
        self._due = self._wal + CHECKPOINT
        if isinstance(answer, Exception):
            _log.warning("the log of %s was not copied into it (%s): tried again later", self.path, answer)
        self._lagging = self._wal > 4 * CHECKPOINT


def is_served(path: str | os.PathLike[str]) -> bool:
    """Whether a file has the mark of `lakeshore serve`, as far as can be told without its lock and its log:
    a mark that is in the log alone is missed. Nothing is written, and no file is made."""
    where = Path(path).absolute()
    if not where.is_file():
        return False
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{where.as_uri()}?immutable=1", uri=True)) as conn:
        return served_mark(conn) is not None
    return False


def release(path: str | os.PathLike[str]) -> bool:
    """Clear the mark that `lakeshore serve` left in a file, so that any process may host it; whether
    there was one. The caller holds the file's lock. Raises `StoreError` where the file is none of ours.
    """
    where = Path(path).absolute()
    if not where.is_file():
        raise StoreError(f"there is no store at {where}: name the path that was served")
    try:
        with closing(connect(where)) as conn:
            check(conn, str(where))
            if served_mark(conn) is None:
                return False
            put_meta(conn, MetaRow("served", None))
            return True
    except sqlite3.Error as error:
        raise explain(error, str(where)) from error
