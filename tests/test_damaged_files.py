"""Files that a crash or a person damaged: what was committed survives, or a sentence says why not."""

# ruff: noqa: ASYNC240 (a test may block: nothing else runs on its loop)

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

import lakeshore as dls
from lakeshore.store.migrations import STEPS

COUNT = 12

_SOCKETS = shutil.ignore_patterns("*.sock")


@dls.udf
async def echo(number: int, pad: bytes = b"") -> int:
    return number


@dataclass
class Crashed:
    """What a process that was killed leaves: its files, each id, and the length of the log with it."""

    folder: Path
    ids: list[str]
    ends: list[int]

    def copy(self, folder: Path) -> Path:
        """A fresh copy of the files; the path of the database."""
        return Path(shutil.copytree(self.folder, folder, ignore=_SOCKETS)) / "plane.db"


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Crashed:
    """The files of an open plane, copied while nothing is written: as SIGKILL leaves them."""
    folder = tmp_path_factory.mktemp("crashed")

    async def make() -> Crashed:
        path = folder / "live" / "plane.db"
        ids: list[str] = []
        ends: list[int] = []
        async with dls.AsyncDispatch(path) as q:
            for number in range(COUNT):
                ids.append(await q.submit(echo, number, b"x" * 6_000, _key=f"key-{number}"))
                ends.append(Path(f"{path}-wal").stat().st_size)
            shutil.copytree(path.parent, folder / "left", ignore=_SOCKETS)
        return Crashed(folder / "left", ids, ends)

    return anyio.run(make)


async def survivors(path: Path, crashed: Crashed) -> int:
    """How many are in the file: the first ones, whole, and the plane goes on from there."""
    async with dls.AsyncDispatch(path) as q:
        found = [job.id for job in await q.jobs.list()][::-1]
        assert found == crashed.ids[: len(found)]
        assert await dls.arun_worker(q, drain=True) == len(found)
        for number, inv in enumerate(found):
            assert await q.result(inv) == number
            assert await q.submit(echo, number, b"x" * 6_000, _key=f"key-{number}") == inv
        new = await q.submit(echo, COUNT)
        await dls.arun_worker(q, once=True)
    async with dls.AsyncDispatch(path) as q:
        assert await q.result(new) == COUNT
        assert len(await q.jobs.list()) == len(found) + 1
    return len(found)


async def fails(path: Path, error: type[dls.StoreError], *words: str) -> None:
    """Opening raises this, on both faces, and touches none of the files."""
    before = {file: file.read_bytes() for file in path.parent.glob("plane.db*") if file.suffix != ".lock"}
    with pytest.raises(error) as first:
        await dls.AsyncDispatch(path).__aenter__()
    with pytest.raises(error) as second:
        dls.Dispatch(path).queues.ls()
    for caught in (first, second):
        assert not [word for word in (str(path), *words) if word not in str(caught.value)], caught.value
    assert before == {file: file.read_bytes() for file in before}


# The log


def cut(log: Path, at: int) -> None:
    """As long as that."""
    os.truncate(log, at)


def zeros(log: Path, at: int) -> None:
    """Blocks that were allocated and never written."""
    size = log.stat().st_size
    os.truncate(log, at)
    os.truncate(log, size)


def garbage(log: Path, at: int) -> None:
    """What another file left there."""
    log.write_bytes(log.read_bytes()[:at] + os.urandom(log.stat().st_size - at))


def one_bit(log: Path, at: int) -> None:
    """One bit of one byte."""
    data = bytearray(log.read_bytes())
    data[at] ^= 1
    log.write_bytes(data)


@pytest.mark.anyio
@pytest.mark.parametrize("damage", [cut, zeros, garbage, one_bit])
async def test_of_a_torn_log_the_committed_part_survives(
    crashed: Crashed, tmp_path: Path, damage: Callable[[Path, int], None]
) -> None:
    last, page = crashed.ends[-1], 4096 + 24
    places = [40, crashed.ends[0] - 1, crashed.ends[4], crashed.ends[4] + 10, last - page, last - 1]
    for at in places:
        path = crashed.copy(tmp_path / str(at))
        damage(Path(f"{path}-wal"), at)
        whole = [end for end in crashed.ends if end <= at]
        assert await survivors(path, crashed) == len(whole), at


@pytest.mark.anyio
async def test_a_log_that_was_being_copied_back_mends_the_file(crashed: Crashed, tmp_path: Path) -> None:
    path = crashed.copy(tmp_path / "copy")
    log = Path(f"{path}-wal").read_bytes()
    frames = range(32, len(log), 4096 + 24)
    pages = {int.from_bytes(log[frame : frame + 4]) for frame in frames} - {1}  # the first has the header
    data = bytearray(path.read_bytes())
    torn = [page for page in pages if page * 4096 <= len(data)]
    assert len(torn) > 3
    for page in torn:
        data[page * 4096 - 2048 : page * 4096] = os.urandom(2048)
    path.write_bytes(data)
    assert await survivors(path, crashed) == COUNT


@pytest.mark.anyio
async def test_the_index_of_the_log_is_made_anew(crashed: Crashed, tmp_path: Path) -> None:
    for name, damage in [
        ("missing", Path.unlink),
        ("garbage", lambda index: index.write_bytes(os.urandom(32768))),
    ]:
        path = crashed.copy(tmp_path / name)
        damage(Path(f"{path}-shm"))
        assert await survivors(path, crashed) == COUNT


@pytest.mark.anyio
async def test_a_missing_log_is_said(
    crashed: Crashed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = crashed.copy(tmp_path / "crashed")
    Path(f"{path}-wal").unlink()
    with caplog.at_level(logging.WARNING, "lakeshore"):
        assert await survivors(path, crashed) == 0  # what the file alone has, and nothing half
    (record,) = caplog.records  # by the first opening alone: then it was closed
    assert f"process {os.getpid()} ended without closing {path}" in record.getMessage()
    assert f"no log {path}-wal" in record.getMessage()


# The database


@pytest.mark.anyio
async def test_a_log_without_its_file_is_kept(crashed: Crashed, tmp_path: Path) -> None:
    path = crashed.copy(tmp_path / "copy")
    whole = path.read_bytes()
    path.write_bytes(b"")
    await fails(path, dls.StoreCorrupt, "is empty", f"{path}-wal", "move the log away")
    path.unlink()
    await fails(path, dls.StoreCorrupt, "is missing", f"{path}-wal", "put plane.db back")
    assert not path.exists()
    path.write_bytes(whole)
    assert await survivors(path, crashed) == COUNT


@pytest.mark.anyio
async def test_an_empty_file_is_a_new_plane(crashed: Crashed, tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    path.touch()
    assert await survivors(path, crashed) == 0


@pytest.mark.anyio
async def test_what_is_not_a_plane_is_not_touched(crashed: Crashed, tmp_path: Path) -> None:
    for name, damage, error, words in [
        ("garbage", lambda path: path.write_bytes(os.urandom(50_000)), dls.StoreCorrupt, "is not a database"),
        ("half", lambda path: os.truncate(path, 20_000), dls.StoreCorrupt, "is damaged"),
        ("theirs", _theirs, dls.StoreCorrupt, "another program"),
        ("newer", _newer, dls.StoreTooNew, "upgrade lakeshore"),
    ]:
        path = crashed.copy(tmp_path / name)
        async with dls.AsyncDispatch(path):
            pass  # copies the log back
        damage(path)
        await fails(path, error, words)


def _theirs(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE theirs (x)")
    conn.close()


def _newer(path: Path) -> None:
    with sqlite3.connect(path) as conn:
        conn.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    conn.close()


@pytest.mark.anyio
async def test_a_large_file_that_is_damaged_is_said(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    async with dls.AsyncDispatch(path) as q:
        await q.submit_many(echo, [(number, b"x" * 30_000) for number in range(300)])
    data = path.read_bytes()
    middle = len(data) // 8192 * 4096
    path.write_bytes(data[:middle] + os.urandom(2_000_000) + data[middle + 2_000_000 :])
    with pytest.raises(dls.StoreCorrupt, match="is damaged") as first:
        await dls.AsyncDispatch(path).__aenter__()
    with pytest.raises(dls.StoreCorrupt, match="is damaged") as second:
        dls.Dispatch(path).queues.ls()
    assert all(str(path) in str(caught.value) for caught in (first, second))
