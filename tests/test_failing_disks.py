"""A disk that fails, is read-only, full or gone: what was acknowledged is there, and the rest is said."""

# ruff: noqa: ASYNC240 (a test may block: nothing else runs on its loop)

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

import lakeshore as dls


@dls.udf
async def echo(number: int, pad: bytes = b"") -> int:
    return number


async def refused(q: dls.AsyncDispatch, tasks: anyio.abc.TaskGroup) -> tuple[str, list[str]]:
    """Submit until one is refused: what was said, and the ids of those that the bad disk caught first."""
    caught: list[str] = []

    async def one() -> None:
        caught.append(await q.submit(echo, 7, b"x" * 6_000))

    async def first() -> None:
        with suppress(dls.StoreFailed):  # where a commit of the plane's own failed before
            await one()

    tasks.start_soon(first)  # if it was taken it waits, and nobody has its id yet
    for _ in range(10):
        await anyio.lowlevel.checkpoint()
    with anyio.fail_after(30):
        while True:
            with anyio.move_on_after(0.1):
                try:
                    await one()
                except dls.StoreFailed as error:
                    return str(error), caught


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """The log can't grow: writing beyond its end is an error, as of a disk that fails."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (Path(f"{path}-wal").stat().st_size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.anyio
async def test_a_disk_that_fails_for_a_while_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    begun, go_on = anyio.Event(), anyio.Event()

    @dls.udf
    async def counting() -> AsyncIterator[int]:
        begun.set()
        await go_on.wait()
        for number in range(5):
            yield number

    seen: list[tuple[int, int]] = []

    async def read(inv: str) -> None:
        seen.extend([(frame.seq, frame.value) async for frame in q.stream(inv)])

    async with dls.AsyncDispatch(path) as q, anyio.create_task_group() as tasks:
        inv = await q.submit(counting)
        await q.topic("t").post("before")
        tasks.start_soon(dls.arun_worker, q)
        async with anyio.create_task_group() as meanwhile:
            meanwhile.start_soon(read, inv)
            await begun.wait()
            with failing(path):
                said, caught = await refused(q, meanwhile)
                with pytest.raises(dls.StoreFailed, match="not posted: the store can't be written"):
                    await q.topic("t").post("meanwhile")
                go_on.set()
                for _ in range(50):
                    await anyio.lowlevel.checkpoint()
                assert (seen, caught) == ([], [])  # what is not stored is told nobody
        assert "can't be written" in said
        assert "try again" in said
        with anyio.fail_after(30):  # by itself
            await q.result(inv)
            assert [await q.result(late) for late in caught] == [7] * len(caught) != []
            assert await q.topic("t").post("after") == 1
        tasks.cancel_scope.cancel()
    assert seen == [(number, number) for number in range(5)]


@pytest.mark.anyio
@pytest.mark.parametrize("sync", ["normal", "full"])
async def test_a_disk_that_is_gone_takes_back_at_most_what_was_not_synced(
    ext4: Callable[[], Path], sync: Any
) -> None:
    folder = ext4()
    async with dls.AsyncDispatch(folder / "plane.db", sync=sync) as q:
        before = [await q.submit(echo, number) for number in range(10)]
        await dls.arun_worker(q, once=True)
        assert await q.result(before[0]) == 0
        remount(folder, "abort")  # as the kernel does when a disk fails: it is read-only from now on,
        async with anyio.create_task_group() as tasks:  # and what was not synced is lost, as by a power cut
            said, caught = await refused(q, tasks)
            tasks.cancel_scope.cancel()
        assert "can't be written" in said
        assert caught == []
    folder = ext4()
    async with dls.AsyncDispatch(folder / "plane.db", sync=sync) as q:
        found = [job.id for job in await q.jobs.list()][::-1]
        assert found == before[: len(found)]
        if sync == "full":
            assert found == before
            assert (await q.get(before[0])).state == "succeeded"
        await dls.arun_worker(q, drain=True)
        assert [await q.result(inv) for inv in found] == list(range(len(found)))


def remount(folder: Path, option: str) -> None:
    """Mount again with an option."""
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Mounts a small disk of ext4, each time anew."""
    image, folder = tmp_path / "image", tmp_path / "ext4"
    image.write_bytes(bytes(8 << 20))
    folder.mkdir()

    def run(*command: object) -> bool:
        try:
            return not subprocess.run([*map(str, command)], capture_output=True, check=False).returncode
        except OSError:
            return False

    def mount() -> Path:
        run("umount", folder)
        if not run("mount", "-o", "loop", image, folder):
            pytest.skip("only root can mount a disk from a file")
        return folder

    if not run("mkfs.ext4", "-q", image):
        pytest.skip("mkfs.ext4 is not here")
    yield mount
    run("umount", folder)


@pytest.mark.anyio
async def test_a_disk_that_is_read_only_or_full_at_opening_is_said(small_disk: Path) -> None:
    path = small_disk / "plane.db"
    async with dls.AsyncDispatch(path) as q:
        inv = await q.submit(echo, 3)
    remount(small_disk, "ro")
    await fails_at(path, "read-only", "mount it for writing")
    remount(small_disk, "rw")
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(bytes(8 << 20))
    await fails_at(path, "free some space")
    (small_disk / "ballast").unlink()
    async with dls.AsyncDispatch(path) as q:
        await dls.arun_worker(q, drain=True)
        assert await q.result(inv) == 3


@pytest.mark.anyio
async def test_what_may_not_be_written_is_said(nobody: Path) -> None:
    path = nobody / "plane.db"
    async with dls.AsyncDispatch(path) as q:
        inv = await q.submit(echo, 3)
    for file in (path, Path(f"{path}.lock")):
        file.chmod(0o400)
        await fails_at(path, str(file), "change its permissions")
        file.chmod(0o600)
    nobody.chmod(0o500)
    await fails_at(path, f"{nobody} can't be written to", "change its permissions")
    nobody.chmod(0o700)
    async with dls.AsyncDispatch(path) as q:
        assert (await q.get(inv)).state == "queued"


async def fails_at(path: Path, *words: str) -> None:
    """Opening says so, and can be tried again."""
    for _ in range(2):
        with pytest.raises(dls.StoreError) as caught:
            await dls.AsyncDispatch(path).__aenter__()
        assert type(caught.value) is dls.StoreError
        assert not [word for word in (str(path.parent), *words) if word not in str(caught.value)], (
            caught.value
        )


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder of a user who is not root, which the test is meanwhile: root may write anywhere."""
    folder = Path(tempfile.mkdtemp())
    root = os.getuid() == 0
    if root:
        os.chown(folder, 65534, -1)
        os.setresuid(65534, 65534, 0)
    yield folder
    if root:
        os.setresuid(0, 0, 0)
    shutil.rmtree(folder)
