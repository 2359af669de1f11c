"""Files of bodies, for tests: the four kinds, a plane and a store for them, and what is in that."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from planes import PATIENCE
from stored_jobs import plain, waiting, yielding, yielding_slowly

import lakeshore as dls
from lakeshore.storage.files import Files
from lakeshore.storage.folder import Folder

KINDS = [plain, waiting, yielding, yielding_slowly]
each_kind = pytest.mark.parametrize("body", KINDS, ids=lambda body: body.kind)


def in_place(body: Any, *args: Any) -> Any:
    """What a body gives that is called here."""
    if body.kind == "sync":
        return body(*args)
    if body.kind == "generator":
        return list(body(*args))

    async def run() -> Any:
        if body.kind == "async":
            return await body(*args)
        return [value async for value in body(*args)]

    return anyio.run(run)


def on_worker(q: dls.Dispatch, body: Any, *args: Any) -> Any:
    """What it gives that is submitted."""
    inv = body.submit(*args, _dispatch=q)
    assert dls.run_worker(q, once=True) == 1
    result = q.result(inv, timeout=PATIENCE)
    return list(q.stream(inv).values()) if "generator" in body.kind else result


each_plane = pytest.fixture(params=["memory on asyncio", "a file on trio"])


@contextmanager
def plane_of(request: pytest.FixtureRequest, folder: Path, **options: Any) -> Iterator[dls.Dispatch]:
    """Half of the four planes: what differs between loops and stores is tested elsewhere."""
    memory = request.param.startswith("memory")
    address, backend = (":memory:", "asyncio") if memory else (str(folder / "plane.db"), "trio")
    with dls.Dispatch(address, backend=backend, **options) as dispatch:  # type: ignore[arg-type]
        yield dispatch


@each_plane
def q(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dls.Dispatch]:
    """A plane whose workers have their files under their root."""
    with plane_of(request, tmp_path) as dispatch:
        yield dispatch


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of what runs here, and of workers that are told nothing else."""
    folder = tmp_path / "store"
    folder.mkdir()
    monkeypatch.setenv("LAKESHORE_ROOT", str(folder))
    monkeypatch.setattr("lakeshore.sdk.current._made", [])  # what other tests have left open
    return folder


def found(folder: Path) -> dict[str, str]:
    """Every file by key, but for Lakeshore's own."""
    files: dict[str, str] = {}
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != ".lakeshore"]
        for name in names:
            path = Path(where, name)
            files[str(path.relative_to(folder))] = path.read_text()
    return files


def left_over(folder: Path) -> list[Path]:
    """Files that are on their way, and folders of attempts."""
    own = folder / ".lakeshore"
    return [path for part in ("work", "staged") if (own / part).is_dir() for path in (own / part).iterdir()]


EVENTS = {name: threading.Event() for name in ("seen", "written")}


@pytest.fixture
def events() -> dict[str, threading.Event]:
    for event in EVENTS.values():
        event.clear()
    return EVENTS


def files_of(store: Path, mark: str) -> tuple[Files, Folder]:
    return Files(mark, ""), Folder(store)
