"""Every async test runs on both event loops."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeshore import Dispatch
from lakeshore.testing import virtual_backend


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of a test marked `anyio`."""
    return request.param


@pytest.fixture(params=["asyncio", "trio"])
def virtual(request: pytest.FixtureRequest) -> object:
    """Override `anyio_backend` with this in a module whose time is virtual."""
    return virtual_backend(request.param)


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """The event loop of a blocking plane."""
    return request.param


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A LAKESHORE_HOME of its own, and nothing else in the environment."""
    for name in [name for name in os.environ if name.startswith("LAKESHORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(params=[":memory:", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A plane in memory, and one in a file."""
    return request.param if request.param == ":memory:" else str(tmp_path / "plane.db")


@pytest.fixture
def q(address: str, backend: Any) -> Iterator[Dispatch]:
    """A blocking plane, closed after the test."""
    with Dispatch(address, backend=backend) as dispatch:
        yield dispatch


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 4 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)
