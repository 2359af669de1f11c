"""The SQLite store: the conformance suite on both loops, and what only a file can suffer."""

# ruff: noqa: ASYNC220, ASYNC240 (a test may block: nothing else runs on its loop)

import logging
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import aiosqlite
import anyio
import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lakeshore.core.errors import StoreCorrupt, StoreError, StoreLocked, StoreTooNew
from lakeshore.core.rows import (
    Batch,
    BlobRow,
    Committed,
    EventRow,
    FunctionRow,
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
    LoadHead,
    LoadLive,
    MetaRow,
    Missing,
    ProviderRow,
    Prune,
    Query,
    QueueRow,
    TokenRow,
    TopicRow,
    Trim,
    WorkerRow,
)
from lakeshore.core.states import State
from lakeshore.store import connection, files, lanes, sqlite
from lakeshore.store.answers import answer
from lakeshore.store.connection import Connection, connect, raise_epoch
from lakeshore.store.memory import MemoryStore
from lakeshore.store.migrations import APPLICATION_ID, STEPS, migrate
from lakeshore.store.sqlite import SqliteStore
from lakeshore.store.statements import apply, sweep
from lakeshore.testing.conformance import StoreConformance
from lakeshore.testing.conformance.store import (
    NS,
    OTHER,
    Q2,
    TIMEOUT,
    W2,
    Q,
    StoreFactory,
    W,
    batch_of,
    chunk,
    commit,
    id_of,
    invocation,
    numbers,
    opened,
    read,
)

ROOT = Path(__file__).parent.parent


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


class TestSqliteStore(StoreConformance):
    durable = True

    @pytest.fixture(params=["normal", "full"])
    def store_factory(self, path: Path, request: pytest.FixtureRequest) -> StoreFactory:
        return lambda: SqliteStore(path, sync=request.param)


def made(path: Path | str) -> Connection:
    """A connection to a new, migrated file."""
    if path != ":memory:":
        files.make_private(Path(path))
    conn = connect(path)
    migrate(conn, str(path))
    return conn


# The file


@pytest.mark.anyio
@pytest.mark.parametrize("umask", [0, 0o777])
async def test_every_file_is_private(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "made" / "for it" / "store.db"
    if umask:
        path.parent.mkdir(parents=True)
    old = os.umask(umask)
    try:
        store = SqliteStore(path)
        await store.open()
        await commit(store, batch_of(invocation(1)))
    finally:
        os.umask(old)
    modes = {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("store.db", "store.db-wal", "store.db-shm"), "0o600")
    if not umask:
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await store.aclose()
    assert [file.name for file in path.parent.iterdir()] == ["store.db"]


@pytest.mark.anyio
async def test_nothing_is_left_open(path: Path) -> None:
    async with opened(SqliteStore(path)) as store:
        await commit(store, batch_of(invocation(1)))
    targets = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert not [target for target in targets if target.startswith(str(path))]


async def refused(path: Path, error: type[StoreError], match: str) -> None:
    """Opening fails so, leaves no thread, and leaves the file alone."""
    before = path.read_bytes() if path.is_file() else None
    threads = set(threading.enumerate())
    with pytest.raises(error, match=match):
        await SqliteStore(path).open()
    assert set(threading.enumerate()) <= threads
    if before is not None:
        assert path.read_bytes() == before


@pytest.mark.anyio
async def test_a_newer_file_is_refused(path: Path) -> None:
    conn = made(path)
    conn.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    conn.close()
    await refused(
        path, StoreTooNew, rf"newer Lakeshore \(store version {len(STEPS) + 1}, .*upgrade lakeshore"
    )


@pytest.mark.anyio
async def test_a_file_that_is_no_store_is_refused(path: Path) -> None:
    path.write_text("name,size\n" * 500)
    await refused(path, StoreCorrupt, "is not a database: it was not touched")
    path.write_text("short")
    await refused(path, StoreCorrupt, "is damaged|is not a database")
    path.unlink()
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE theirs (x)")
    conn.close()
    await refused(path, StoreCorrupt, "a database of another program")


@pytest.mark.anyio
async def test_a_damaged_file_is_refused(path: Path) -> None:
    async with opened(SqliteStore(path)) as store:
        await commit(store, batch_of(*[invocation(n) for n in range(1, 2000)]))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    await refused(path, StoreCorrupt, r"is damaged .*put a copy back")
    path.write_bytes(whole[:8192] + b"\xa5" * 8192 + whole[16384:])
    await refused(path, StoreCorrupt, "is damaged .*left as it is")
    path.write_bytes(whole)
    async with opened(SqliteStore(path)) as store:
        assert len(await read(store, ListInvocations(NS, limit=5000))) == 1999


@pytest.mark.anyio
async def test_a_place_where_no_file_can_be_is_an_error(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await refused(tmp_path, StoreError, "is a folder: name a file in it")
    (tmp_path / "file").write_text("x")
    await refused(tmp_path / "file" / "store.db", StoreError, "name another path")
    monkeypatch.setattr(os, "access", lambda *args: False)  # root may write where nobody else may
    await refused(path, StoreError, "can't be written to.*change its permissions")
    assert not path.exists()
    with pytest.raises(ValueError, match="choose 'normal' or 'full'"):
        SqliteStore(path, sync="extra")  # pyright: ignore[reportArgumentType]


@pytest.mark.anyio
async def test_a_locked_file_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BUSY", 0.0)
    conn = made(path)
    conn.execute("BEGIN EXCLUSIVE")
    await refused(path, StoreError, "in use by another program")
    conn.close()


@pytest.mark.anyio
async def test_a_network_file_system_is_warned_of_once(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert files.file_system(path, str(mounts)) == "nfs4"
    assert files.file_system(Path("/elsewhere"), str(mounts)) == "ext4"
    assert files.file_system(path, str(tmp_path / "none")) == ""
    real = files.file_system
    monkeypatch.setattr(files, "file_system", lambda path, _: real(path, str(mounts)))
    with caplog.at_level(logging.WARNING, "lakeshore"):
        for _ in range(2):
            async with opened(SqliteStore(path)):
                pass
    (record,) = caplog.records
    assert "network file system (nfs4)" in record.getMessage()
    assert f"/var/tmp/{path.name}" in record.getMessage()


# Migrations


def test_a_file_is_migrated_step_by_step_and_keeps_its_rows(path: Path) -> None:
    conn = made(path)
    assert conn.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    apply(conn, batch_of(row := invocation(1)))
    newer = (*STEPS, "ALTER TABLE keys ADD COLUMN x; CREATE TABLE y (z)", "DROP TABLE y")
    assert migrate(conn, "p", newer) == len(STEPS)
    assert conn.execute("PRAGMA user_version").fetchone() == (len(newer),)
    assert migrate(conn, "p", newer) == len(newer)
    assert answer(conn, GetInvocation(NS, id_of(1))) == row
    with pytest.raises(StoreTooNew):
        migrate(conn, "p")
    conn.close()


def test_a_step_that_fails_changes_nothing(path: Path) -> None:
    conn = made(path)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        migrate(conn, "p", (*STEPS, "CREATE TABLE y (z); DROP TABLE absent"))
    assert conn.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
    assert migrate(conn, "p") == len(STEPS)
    conn.close()


@pytest.mark.parametrize("version", range(1, len(STEPS) + 1))
def test_every_older_version_can_be_migrated(path: Path, version: int) -> None:
    path.touch()
    conn = connect(path)
    migrate(conn, "p", STEPS[:version])
    migrate(conn, "p")
    fresh = made(path.with_name("fresh.db"))
    schema = "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY 1, 2"
    assert conn.execute(schema).fetchall() == fresh.execute(schema).fetchall()
    conn.close()
    fresh.close()


# Commits


@pytest.mark.anyio
async def test_a_store_that_was_taken_over_can_not_commit(path: Path) -> None:
    async with opened(SqliteStore(path)) as old, opened(SqliteStore(path)) as new:
        with pytest.raises(StoreLocked, match="took this store over"):
            await commit(old, batch_of(invocation(1)))
        await commit(new, batch_of(invocation(2)))
        assert numbers(await read(old, ListInvocations(NS))) == [2]


@pytest.mark.anyio
async def test_a_closed_store_answers_with_an_error(path: Path) -> None:
    store = SqliteStore(path)
    answers: list[Any] = []
    store.commit(Batch(), answers.append)
    store.read(LoadHead(), answers.append)
    assert [type(answer) for answer in answers] == [StoreError, StoreError]
    async with opened(store):
        with pytest.raises(StoreError, match="open already"):
            await store.open()


@pytest.mark.anyio
async def test_what_is_in_flight_at_close_is_stored_and_done(path: Path) -> None:
    done: list[Any] = []
    async with opened(SqliteStore(path)) as store:
        for number in range(1, 50):
            store.commit(batch_of(invocation(number)), done.append)
        store.read(ListInvocations(NS), done.append)
    assert len(done) == 50
    async with opened(SqliteStore(path)) as store:
        assert len(await read(store, ListInvocations(NS))) == 49


def test_a_failed_batch_stores_nothing_of_it() -> None:
    conn = made(":memory:")
    good = [invocation(1, namespace="new"), BlobRow("new", id_of(1), Q, "args", b"x")]
    with pytest.raises(sqlite3.IntegrityError):
        apply(conn, batch_of(*good, FunctionRow(b"h", None)))  # pyright: ignore[reportArgumentType]
    assert answer(conn, GetInvocation("new", id_of(1))) == Missing()
    assert answer(conn, GetBlob("new", id_of(1), "args")) is None
    assert apply(conn, batch_of(*good)) == Committed()
    assert answer(conn, GetInvocation("new", id_of(1))) == good[0]
    conn.close()


@pytest.mark.anyio
async def test_a_full_disk_fails_commits_until_there_is_room(small_disk: Path) -> None:
    path, ballast = small_disk / "store.db", small_disk / "ballast"
    async with opened(SqliteStore(path)) as store:
        await commit(store, batch_of(invocation(1)))
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(4 << 20))
        too_much = batch_of(invocation(2), BlobRow(NS, id_of(2), Q, "args", bytes(500_000)))
        for _ in range(2):
            with pytest.raises(sqlite3.OperationalError, match=r"full|disk"):
                await commit(store, too_much)
        assert await read(store, GetInvocation(NS, id_of(2))) == Missing()
        assert await read(store, GetInvocation(NS, id_of(1))) == invocation(1)
        ballast.unlink()
        assert await commit(store, too_much) == Committed()
    async with opened(SqliteStore(path)) as store:
        assert numbers(await read(store, ListInvocations(NS))) == [2, 1]


@pytest.mark.anyio
async def test_a_file_at_its_limit_fails_commits_until_it_is_raised(path: Path) -> None:
    def limit(conn: Connection, pages: int) -> None:
        conn.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    async with opened(store := SqliteStore(path)):
        assert store._writer
        await commit(store, batch_of(invocation(1)))
        await lanes.ask(store._writer, lambda conn: limit(conn, 1))  # it goes no lower than the file is
        too_much = batch_of(invocation(2), BlobRow(NS, id_of(2), Q, "args", bytes(500_000)))
        with pytest.raises(sqlite3.OperationalError, match="full"):
            await commit(store, too_much)
        assert await read(store, GetInvocation(NS, id_of(2))) == Missing()
        await lanes.ask(store._writer, lambda conn: limit(conn, 10_000))
        assert await commit(store, too_much) == Committed()


COMMIT_FOREVER = """
import sys, anyio
from lakeshore.store.sqlite import SqliteStore
from lakeshore.testing.conformance.store import batch_of, commit, invocation, id_of, chunk
from lakeshore.core.states import State

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    for n in range(1, 1_000_000):
        await commit(store, batch_of(invocation(n), chunk(n, 0)))
        await commit(store, batch_of(updates=(invocation(n, State.SUCCEEDED, ended_at=1.0),)))
        print(n, flush=True)

anyio.run(main, backend=sys.argv[2])
"""


@pytest.mark.anyio
@pytest.mark.parametrize("after", [1, 300])
async def test_sigkill_loses_nothing_that_was_acknowledged(
    path: Path, anyio_backend: str, after: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", COMMIT_FOREVER, str(path), anyio_backend],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stdout
        for _ in range(after):
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        acknowledged = after + len(child.stdout.read().splitlines())
    async with opened(SqliteStore(path)) as store:
        rows = await read(store, ListInvocations(NS, states=(State.SUCCEEDED,), limit=1_000_000))
        assert numbers(rows)[-acknowledged:] == list(range(acknowledged, 0, -1))
        assert await read(store, GetChunks(NS, id_of(acknowledged), 0)) == [chunk(acknowledged, 0)]


def lane_threads() -> set[threading.Thread]:
    """All threads but those that trio keeps for later use."""
    return {thread for thread in threading.enumerate() if not thread.name.startswith("Trio thread")}


@pytest.mark.anyio
async def test_the_log_is_copied_back_beside_the_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT", 1 << 16)
    before = lane_threads()
    async with opened(SqliteStore(path)) as store:
        number = shrank = largest = 0
        with anyio.fail_after(TIMEOUT):  # how much is written meanwhile depends on the disk
            while shrank < 2:
                number += 1
                blob = BlobRow(NS, id_of(number), Q, "args", bytes(40_000))
                await commit(store, batch_of(invocation(number), blob))
                size = Path(f"{path}-wal").stat().st_size
                shrank, largest = (shrank + 1, size) if size < largest else (shrank, size)
        assert len(lane_threads() - before) == 3
    assert lane_threads() <= before
    async with opened(SqliteStore(path)) as store:
        assert len(await read(store, ListInvocations(NS, limit=number + 1))) == number


# What rests where


def fresh(conn: Connection) -> list[int]:
    """The invocations that are in the small index."""
    rows = conn.execute("SELECT id FROM invocations INDEXED BY invocations_fresh WHERE n = 1 AND fresh = 1")
    return [int.from_bytes(id, "big") for (id,) in rows]


ENDED = [invocation(number, State.FAILED, worker=W, ended_at=1.0) for number in (1, 2, 3)]


def with_fresh(path: Path, epoch: int = 0) -> Connection:
    """A store in which three that ran ended one by one, and one runs."""
    conn = made(path)
    apply(conn, batch_of(*[invocation(number, State.RUNNING, worker=W) for number in (1, 2, 3, 4)]), epoch)
    for row in ENDED:
        apply(conn, batch_of(updates=(row,)), epoch)
    assert fresh(conn) == [1, 2, 3, 4]
    return conn


@pytest.mark.parametrize(
    "then",
    [
        lambda conn: sweep(conn, 0),
        lambda conn: apply(conn, batch_of(invocation(5), invocation(6)), 0),
        lambda conn: (conn.swept_later.clear(), raise_epoch(conn)),  # as after a crash
    ],
)
def test_rows_that_ended_one_by_one_are_listed_and_moved_on(
    path: Path, then: Callable[[Connection], object]
) -> None:
    conn = with_fresh(path)
    for query in (ListInvocations(NS, Q, (State.FAILED,)), ListInvocations(NS, None, (State.FAILED,), W)):
        assert answer(conn, query) == ENDED[::-1]
    then(conn)
    assert fresh(conn) == [4]
    for query in (ListInvocations(NS, Q, (State.FAILED,)), ListInvocations(NS, None, (State.FAILED,), W)):
        assert answer(conn, query) == ENDED[::-1]
    conn.close()


def test_a_store_that_was_taken_over_moves_nothing(path: Path) -> None:
    conn = with_fresh(path)
    conn.execute("UPDATE meta SET value = 7 WHERE name = 'epoch'")
    sweep(conn, 0)
    assert fresh(conn) == [1, 2, 3, 4]
    conn.close()


@pytest.mark.anyio
async def test_rows_are_moved_on_by_the_hundred_and_at_close(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "SWEEP", 3)
    async with opened(store := SqliteStore(path)):
        assert store._writer
        await commit(store, batch_of(*[invocation(n, State.RUNNING, worker=W) for n in range(1, 8)]))
        for number in range(1, 6):
            await commit(store, batch_of(updates=(invocation(number, State.FAILED, ended_at=1.0),)))
        assert await lanes.ask(store._writer, fresh) == [4, 5, 6, 7]
    conn = connect(path)
    assert fresh(conn) == [6, 7]
    conn.close()


@pytest.mark.parametrize(
    "batch",
    [
        batch_of(invocation(9)),
        batch_of(updates=(invocation(4, State.QUEUED, worker=W),)),
        batch_of(updates=(invocation(4, State.RUNNING, worker=W2, attempt=2),)),
        batch_of(updates=(invocation(4, State.SUCCEEDED, worker=W, ended_at=2.0),)),
        batch_of(invocation(9), invocation(10)),
    ],
    ids=["submit", "return", "claim", "end", "several"],
)
def test_a_store_that_was_taken_over_stores_nothing_one_by_one(path: Path, batch: Batch) -> None:
    conn = with_fresh(path)  # what it numbers is known by now
    before = conn.execute("SELECT * FROM invocations ORDER BY id").fetchall()
    conn.execute("UPDATE meta SET value = 7 WHERE name = 'epoch'")
    with pytest.raises(StoreLocked):
        apply(conn, batch, 0)
    assert conn.execute("SELECT * FROM invocations ORDER BY id").fetchall() == before
    conn.close()


def test_an_id_that_is_taken_is_told_of_one_row_too(path: Path) -> None:
    conn = with_fresh(path)
    assert apply(conn, batch_of(invocation(4)), 0).lost == ((NS, id_of(4)),)
    assert answer(conn, GetInvocation(NS, id_of(4))) == invocation(4, State.RUNNING, worker=W)
    conn.close()


@pytest.mark.anyio
async def test_commits_go_on_where_no_thread_copies_the_log_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT", 0)
    async with opened(store := SqliteStore(path)):
        store._due = 0

        def start(*, readonly: bool) -> Any:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(store, "_start", start)
        for first in range(1, 400, 100):
            batch = batch_of(*[invocation(number) for number in range(first, first + 100)])
            assert await commit(store, batch) == Committed()
    assert "was not copied into it (can't start new thread)" in caplog.text


def test_an_invocation_without_its_options_is_damage(path: Path) -> None:
    conn = with_fresh(path)
    conn.execute("DELETE FROM options")
    other = connect(path)
    with pytest.raises(sqlite3.DatabaseError, match="options 1 of an invocation are missing"):
        answer(other, ListInvocations(NS))
    conn.close()
    other.close()


def test_options_are_kept_once_and_only_so_many(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "OPTIONS", 2)
    conn, rows = made(path), [invocation(number, function=bytes([number // 2])) for number in range(8)]
    for row in rows:
        apply(conn, batch_of(row), 0)
    stored = conn.execute("SELECT options FROM invocations ORDER BY id").fetchall()
    assert [type(options) for (options,) in stored] == [int] * 4 + [bytes] * 4
    assert conn.execute("SELECT count(*) FROM options").fetchone() == (2,)
    conn.close()
    conn = connect(path)
    found = answer(conn, ListInvocations(NS))
    assert found == rows[::-1]
    assert found[-1].call.options is found[-2].call.options
    conn.close()


def test_options_that_nothing_names_make_room_at_open(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conn, rows = made(path), [invocation(number, function=bytes([number])) for number in range(1, 5)]
    apply(conn, batch_of(*rows), 0)
    conn.execute("DELETE FROM invocations WHERE id < ?", (rows[2].id,))
    monkeypatch.setattr(connection, "OPTIONS", 9)
    connection.raise_epoch(conn)
    assert conn.execute("SELECT count(*) FROM options").fetchone() == (4,)
    monkeypatch.setattr(connection, "OPTIONS", 4)
    epoch = connection.raise_epoch(conn)
    assert conn.execute("SELECT number FROM options").fetchall() == [(3,), (4,)]
    conn.close()
    conn = connect(path)
    new = invocation(9, function=b"new")
    apply(conn, batch_of(new), epoch)
    assert answer(conn, ListInvocations(NS)) == [new, rows[3], rows[2]]
    conn.close()


def test_options_of_a_batch_that_failed_are_forgotten(path: Path) -> None:
    conn = made(path)
    with pytest.raises(sqlite3.IntegrityError):
        apply(conn, batch_of(invocation(1, function=b"a"), FunctionRow(b"h", None)))  # pyright: ignore[reportArgumentType]
    rows = [invocation(2, function=b"b"), invocation(3, function=b"a")]
    apply(conn, batch_of(*rows), 0)
    other = connect(path)
    assert answer(other, ListInvocations(NS)) == rows[::-1]
    conn.close()
    other.close()


# The thread


def test_aiosqlite_is_the_version_that_was_read() -> None:
    assert aiosqlite.__version__.startswith("0.22."), "read aiosqlite/core.py, then lanes.AsyncioLane"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_commit_is_one_hop_through_aiosqlite(path: Path) -> None:
    async with opened(store := SqliteStore(path)):
        lane = store._writer
        assert isinstance(lane, lanes.AsyncioLane)
        assert type(lane._tx) is SimpleQueue
        hops: list[Any] = []

        class Counting:
            def put_nowait(self, item: Any) -> None:
                hops.append(item)
                real.put_nowait(item)

        real, lane._tx = lane._tx, Counting()  # pyright: ignore[reportAttributeAccessIssue]
        await commit(store, batch_of(invocation(1)))
        assert len(hops) == 1
        assert hops[0][0] is None  # no future: that would be a second turn of the loop
        where = await lanes.ask(lane, lambda conn: (threading.current_thread(), type(conn)))
        assert where == (lane._thread, Connection)
        with pytest.raises(ZeroDivisionError):
            await lanes.ask(lane, lambda conn: 1 / 0)
        assert lane._thread.daemon
        lane._tx = real


@pytest.mark.anyio
async def test_an_abandoned_store_does_not_stop_the_program(path: Path, anyio_backend: str) -> None:
    code = f"""
import anyio, warnings
from lakeshore.store.sqlite import SqliteStore
warnings.simplefilter("ignore")
async def main():
    global store
    store = SqliteStore({str(path)!r})
    await store.open()
anyio.run(main, backend={anyio_backend!r})
print("ended")
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = await anyio.run_process([sys.executable, "-c", code], env=env)
    assert done.stdout == b"ended\n"


# Plans

NEWEST_FIRST = [
    ListInvocations(NS, queue, states, worker)
    for queue in (None, Q)
    for states in ((), (State.RUNNING,), (State.QUEUED, State.FAILED))
    for worker in (None, W)
]
READS: list[Query] = [
    *NEWEST_FIRST,
    GetInvocation(NS, id_of(1)),
    GetInvocation(NS, id_of(99)),
    GetBlob(NS, id_of(1), "args"),
    GetKey(NS, Q, "k"),
    GetChunks(NS, id_of(1), 0),
    GetExtent(NS, id_of(1)),
    GetMarks(NS, id_of(1), 0, 9, 9),
    GetFunction(b"h"),
    ListInvocations(NS, Q, before=id_of(30)),
    ListInvocations(NS, before=id_of(30)),
    ListEvents(NS, Q),
    ListEvents(NS, Q, noops=True),
    GetWorkers(NS, (W, id_of(5))),
    ListWorkers(NS),
    LoadLive(),
    LoadLive((NS, id_of(1))),
]


def plans(conn: Connection, statements: list[str]) -> dict[str, list[str]]:
    """What SQLite would do for each statement."""
    found: dict[str, list[str]] = {}
    for statement in statements:
        if statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT")):
            found[statement] = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}")]
    return found


def test_every_statement_is_a_search_of_an_index() -> None:
    conn, statements = made(":memory:"), list[str]()
    rows = [
        invocation(n, list(State)[n % 6], queue=(Q, Q2)[n % 2], worker=W, key="k", ended_at=1.0, attempt=1)
        for n in range(1, 40)
    ]
    others = [
        *(chunk(1, seq) for seq in range(3)),
        KeyRow(NS, Q, "k", id_of(1), b""),
        QueueRow(NS, Q, "", "active", {}, removed=True),
        TopicRow(NS, id_of(5), "", removed=True),
        Trim(NS, id_of(1), 1),
        WorkerRow(NS, W, {}),
        EventRow(NS, Q, id_of(7), {}, replaces=id_of(6)),
        TokenRow(id_of(8), b"h", NS, "read", 1.0),
        ProviderRow(id_of(9), "gpu", "local", {}, removed=True),
        MetaRow("plane", "x"),
        MetaRow("served", None),
    ]
    apply(conn, batch_of(*rows))
    conn.set_trace_callback(statements.append)
    for query in READS:
        answer(conn, query)
    apply(conn, batch_of(*others, Prune(NS, b"", 5.0, limit=10), updates=(rows[0], rows[20])))
    apply(conn, batch_of(invocation(50)), 0)
    apply(conn, batch_of(updates=(rows[30],)), 0)
    conn.set_trace_callback(None)
    found = plans(conn, statements)
    assert len(found) > 40
    steps = {(statement, step) for statement, plan in found.items() for step in plan}
    bad = [
        (statement, step)
        for statement, step in steps
        if "TEMP B-TREE" in step
        or (step.startswith("SCAN") and "(subquery" not in step and "CONSTANT" not in step)
    ]
    assert bad == []
    conn.close()


# Against the memory store

SPACES, IDS = st.sampled_from([NS, OTHER]), st.integers(1, 12)
QUEUES, WORKERS = st.sampled_from([Q, Q2]), st.sampled_from([None, W, W2])
HASHES, KEYS = st.sampled_from([b"", b"h1", b"h2"]), st.sampled_from(["", "k1", "k2"])
TIMES, SEQS = st.integers(0, 9).map(float), st.integers(0, 9)


class BothStores(RuleBasedStateMachine):
    """Any history gives the same answers from both stores."""

    def __init__(self) -> None:
        super().__init__()
        self.conn, self.memory, self.batch = made(":memory:"), MemoryStore(), Batch()
        self.known: dict[tuple[str, bytes], InvocationRow] = {}

    def teardown(self) -> None:
        self.conn.close()

    @rule(
        space=SPACES, number=IDS, queue=QUEUES, state=st.sampled_from(State), worker=WORKERS,
        hash=HASHES, key=KEYS, ended_at=TIMES,
    )  # fmt: skip
    def insert(self, space: str, number: int, state: State, key: str, hash: bytes, **more: Any) -> None:
        if (space, id_of(number)) in self.batch.inserts:
            return
        ended_at = more.pop("ended_at") if state.terminal else more.pop("ended_at") and None
        attempt = int(state is not State.QUEUED)
        row = invocation(
            number, state, namespace=space, key=key, function=hash, attempt=attempt, ended_at=ended_at, **more
        )
        self.batch.insert(row)
        if key:
            self.batch.put(KeyRow(space, row.queue, key, row.id, b"d"))

    @rule(at=st.integers(0, 50), state=st.sampled_from(State), worker=WORKERS, ended_at=TIMES)
    def update(self, at: int, state: State, worker: bytes | None, ended_at: float) -> None:
        if not self.known:
            return
        old = self.known[sorted(self.known)[at % len(self.known)]]
        if (old.namespace, old.id) in self.batch.inserts:
            return
        row = invocation(
            int.from_bytes(old.id, "big"),
            state,
            namespace=old.namespace,
            queue=old.queue,
            worker=worker,
            place=at,
            key=old.call.key,
            function=old.call.options.function.value,
            attempt=1,
            ended_at=ended_at if state.terminal else None,
        )
        self.batch.update(row)

    @rule(space=SPACES, number=IDS, queue=QUEUES, part=st.sampled_from(["args", "result"]), data=st.binary())
    def blob(self, space: str, number: int, queue: bytes, part: str, data: bytes) -> None:
        self.batch.put(BlobRow(space, id_of(number), queue, part, data))

    @rule(space=SPACES, queue=QUEUES, key=KEYS, number=IDS)
    def key(self, space: str, queue: bytes, key: str, number: int) -> None:
        self.batch.put(KeyRow(space, queue, key, id_of(number), b"taken over"))

    @rule(number=st.integers(90, 93), seq=SEQS)  # of topics: an invocation's need an attempt
    def chunk(self, number: int, seq: int) -> None:
        self.batch.put(chunk(number, 3 * seq, 3, data=bytes(seq)))

    @rule(at=st.integers(0, 50), seq=SEQS)
    def frames(self, at: int, seq: int) -> None:
        able = [row for row in self.known.values() if row.record.attempt and row.namespace == NS]
        if able:
            self.batch.put(chunk(int.from_bytes(able[at % len(able)].id, "big"), seq))

    @rule(number=st.integers(90, 93) | IDS, below=st.integers(0, 30))
    def trim(self, number: int, below: int) -> None:
        self.batch.trim(Trim(NS, id_of(number), below))

    @rule(space=SPACES, queue=QUEUES, removed=st.booleans(), state=st.sampled_from(["active", "paused"]))
    def queue(self, space: str, queue: bytes, removed: bool, state: str) -> None:
        self.batch.put(QueueRow(space, queue, "name", state, {"kind": "fifo"}, removed))

    @rule(number=st.integers(90, 93), seq=SEQS, removed=st.booleans())
    def topic(self, number: int, seq: int, removed: bool) -> None:
        self.batch.put(TopicRow(NS, id_of(number), "topic", seq, removed=removed))

    @rule(space=SPACES, worker=st.sampled_from([W, W2]), ended_at=st.none() | TIMES)
    def worker(self, space: str, worker: bytes, ended_at: float | None) -> None:
        self.batch.put(WorkerRow(space, worker, {"name": "w"}, ended_at))

    @rule(hash=st.sampled_from([b"h1", b"h2", b"h3"]), data=st.binary(max_size=3))
    def function(self, hash: bytes, data: bytes) -> None:
        self.batch.put(FunctionRow(hash, data))

    @rule(space=SPACES, after=IDS, before=TIMES, own=TIMES, limit=st.sampled_from([1, 3, 1000]))
    def prune(self, space: str, after: int, before: float, own: float, limit: int) -> None:
        self.batch.prune(Prune(space, id_of(after - 1), before, {Q2: own}, limit))

    @rule()
    def commit(self) -> None:
        batch, self.batch = self.batch, Batch()
        answers: list[Any] = []
        self.memory.commit(batch, answers.append)
        assert apply(self.conn, batch, 0) == answers[0]
        self.known = {
            (row.namespace, row.id): row
            for space in (NS, OTHER)
            for row in self.ask(ListInvocations(space, limit=100))
        }

    def ask(self, query: Query) -> Any:
        """The answer that both give."""
        answers: list[Any] = []
        self.memory.read(query, answers.append)
        assert answer(self.conn, query) == answers[0], query
        return answers[0]

    @invariant()
    def loads_are_equal(self) -> None:
        head, live = self.ask_head(), self.ask(LoadLive(limit=100))
        assert head
        assert self.ask(LoadLive(limit=2)) == live[:2]
        if live:
            self.ask(LoadLive((live[0].row.namespace, live[0].row.id), 3))

    def ask_head(self) -> Any:
        return self.ask(LoadHead())

    @rule(
        space=SPACES, number=IDS, queue=QUEUES, key=KEYS, seq=st.integers(0, 30), frames=st.integers(1, 9),
        size=st.integers(1, 20), hash=st.sampled_from([b"h1", b"h2", b"h3"]), topic=st.integers(90, 93),
    )  # fmt: skip
    def look_up(self, space: str, number: int, queue: bytes, key: str, hash: bytes, **more: int) -> None:
        self.ask(GetInvocation(space, id_of(number)))
        self.ask(GetBlob(space, id_of(number), "args"))
        self.ask(GetBlob(space, id_of(number), "result"))
        self.ask(GetKey(space, queue, key))
        self.ask(GetFunction(hash))
        self.ask(ListWorkers(space))
        for owner in (number, more["topic"]):
            self.ask(GetExtent(NS, id_of(owner)))
            self.ask(GetMarks(NS, id_of(owner), 0, 1 << 40, 50))
            self.ask(GetChunks(NS, id_of(owner), more["seq"], more["frames"], more["size"]))

    @rule(
        space=SPACES, queue=st.none() | QUEUES, worker=WORKERS,
        limit=st.integers(0, 9), offset=st.integers(0, 9),
        states=st.lists(st.sampled_from(State), unique=True).map(tuple),
    )  # fmt: skip
    def list(self, space: str, **filters: Any) -> None:
        self.ask(ListInvocations(space, **filters))


BothStores.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestBothStores = BothStores.TestCase
