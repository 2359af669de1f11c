"""The few things the runtime needs of an event loop."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import lakeshore as dls
from lakeshore.core.backend import TrioBackend, current_backend


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_cancelled_timers_do_not_pile_up() -> None:
    backend = current_backend()
    assert isinstance(backend, TrioBackend)
    for _ in range(10):
        backend.later(3600, lambda: None)
    for _ in range(10_000):
        backend.later(3600, lambda: None).cancel()
    assert 10 <= len(backend._timers._heap) < 200


def test_a_body_lives_as_long_as_its_invocations() -> None:
    with dls.Dispatch(":memory:") as q:

        def make() -> tuple[str, weakref.ref[Any]]:
            def body() -> int:
                return 7

            return q.submit(body), weakref.ref(body)

        inv, body = make()
        gc.collect()
        assert body() is not None
        assert dls.run_worker(q, drain=True) == 1
        assert q.result(inv) == 7
        again = q.retry(inv)
        assert dls.run_worker(q, drain=True) == 1
        assert q.result(again) == 7
        assert q.jobs.prune(older_than=0) == 2
        gc.collect()
        assert body() is None


def test_no_loop_runs_here() -> None:
    with pytest.raises(RuntimeError, match="no event loop runs here: call this from a coroutine"):
        current_backend()
