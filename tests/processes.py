"""Workers whose bodies run in processes of their own, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from planes import working

import lakeshore as dls
from lakeshore.runners.processes import pool, process, runner
from lakeshore.sdk import worker_options


@contextmanager
def hurried() -> Iterator[None]:
    """What ignores its stop is ended soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_options, "CLEANUP", 0.2)
        patch.setattr(process, "TERMINATED", 0.1)
        patch.setattr(runner, "_MARGIN", 0.05)
        patch.setattr(pool, "_HURRY", 2.0)
        yield


@contextmanager
def processes(q: Any, slots: int | None = None, **options: Any) -> Iterator[Any]:
    """A worker on a thread."""
    with hurried(), working(q, slots=slots, runner=dls.Processes(**options)) as worker:
        yield worker
