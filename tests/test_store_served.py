"""A store that `lakeshore serve` opened is marked: nobody else hosts it until the mark is cleared."""

from pathlib import Path

import pytest

from lakeshore.core.errors import StoreCorrupt, StoreError, StoreServed
from lakeshore.core.rows import LoadHead, MetaRow, QueueRow
from lakeshore.store.connection import connect
from lakeshore.store.lanes import ask
from lakeshore.store.migrations import STEPS, migrate
from lakeshore.store.sqlite import SqliteStore, release
from lakeshore.testing.conformance.store import NS, Q, batch_of, commit, opened, read

PROBE = "PRAGMA synchronous"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plane.db"


async def refused(path: Path) -> None:
    for served in (None, False):
        with pytest.raises(StoreServed, match=f"is served by `lakeshore serve`.*--release --store {path}"):
            await SqliteStore(path, served=served).open()


@pytest.mark.anyio
async def test_only_serve_opens_it_again(path: Path) -> None:
    async with opened(SqliteStore(path, served=True)) as store:
        await commit(store, batch_of(QueueRow(NS, Q, "q1", "active", {})))
    before = {each.name: each.read_bytes() for each in path.parent.iterdir()}
    await refused(path)
    after = {each.name: each.read_bytes() for each in path.parent.iterdir() if not each.name.endswith("-shm")}
    assert {name: data for name, data in after.items() if data} == before  # not written
    async with opened(SqliteStore(path, served=True)) as store:
        assert store.epoch == 2
        head = await read(store, LoadHead())
        assert [queue.name for queue in head.queues] == ["q1"]
        assert head.meta == (MetaRow("served", {"sync": "full"}),)


@pytest.mark.anyio
async def test_a_file_that_was_not_served_can_be(path: Path) -> None:
    async with opened(SqliteStore(path)) as store:
        assert (store.sync, store.epoch) == ("normal", 1)
    async with opened(SqliteStore(path, served=True)) as store:
        assert (store.sync, store.epoch) == ("full", 2)
    await refused(path)


@pytest.mark.anyio
@pytest.mark.parametrize("sync", ["normal", "full"])
async def test_it_keeps_its_sync(path: Path, sync: str) -> None:
    async with opened(SqliteStore(path, sync=sync, served=True)) as store:  # type: ignore[arg-type]
        assert store.sync == sync
    async with opened(SqliteStore(path, served=True)) as store:
        assert store.sync == sync
        assert store._writer is not None
        flag = {"normal": 1, "full": 2}[sync]
        assert await ask_writer(store) == flag
    other = "full" if sync == "normal" else "normal"
    async with opened(SqliteStore(path, sync=other, served=True)) as store:  # type: ignore[arg-type]
        assert store.sync == other
    async with opened(SqliteStore(path, served=True)) as store:
        assert store.sync == other


async def ask_writer(store: SqliteStore) -> int:
    assert store._writer is not None
    return await ask(store._writer, lambda conn: conn.execute(PROBE).fetchone()[0])


@pytest.mark.anyio
async def test_released_it_is_anybodys(path: Path) -> None:
    async with opened(SqliteStore(path, served=True)):
        pass
    assert release(path)
    assert not release(path)
    async with opened(SqliteStore(path)) as store:
        assert store.sync == "normal"
        assert (await read(store, LoadHead())).meta == ()


def test_what_can_not_be_released(path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store"):
        release(path)
    assert not path.exists()
    path.write_bytes(b"x" * 5000)
    with pytest.raises(StoreCorrupt, match="not a database"):
        release(path)
    path.unlink()
    path.touch()
    conn = connect(path)
    conn.execute("CREATE TABLE meta (name TEXT, value)")
    conn.execute("INSERT INTO meta VALUES ('served', 1)")
    conn.close()
    with pytest.raises(StoreCorrupt, match="another program"):
        release(path)


@pytest.fixture
def older(path: Path) -> Path:
    """A file of a version that knew of no mark."""
    path.touch()
    conn = connect(path)
    migrate(conn, "p", STEPS[:1])
    conn.close()
    return path


@pytest.mark.anyio
async def test_an_older_file_is_not_served(older: Path) -> None:
    assert not release(older)
    async with opened(SqliteStore(older)) as store:
        assert store.sync == "normal"
