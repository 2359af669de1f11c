"""Fixtures for tests of your own bodies; pytest finds them once the package is installed.

- `lakeshore_dispatch`: a fresh blocking `:memory:` plane.
- `lakeshore_plane`: a fresh native one, in anyio tests (`@pytest.mark.anyio`), on the test's loop.
- `lakeshore_virtual_backend`: asyncio, then trio, with a clock that jumps. To use it, let your
  `conftest.py` define `anyio_backend` as a fixture that returns it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lakeshore import AsyncDispatch, Dispatch


@pytest.fixture
def lakeshore_dispatch() -> Iterator[Dispatch]:
    """A blocking plane in memory, closed after the test."""
    from lakeshore import Dispatch

    with Dispatch(":memory:") as dispatch:
        yield dispatch


@pytest.fixture
async def lakeshore_plane(anyio_backend: Any) -> AsyncIterator[AsyncDispatch]:
    """A native plane in memory on the loop of the test, closed after it."""
    from lakeshore import AsyncDispatch

    async with AsyncDispatch(":memory:") as plane:
        yield plane


@pytest.fixture(params=["asyncio", "trio"])
def lakeshore_virtual_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Both loops, with a clock that jumps to the next deadline when nothing is ready."""
    from .clock import virtual_backend

    return virtual_backend(request.param)
