"""The newest outcomes are answered without a read, and no more of them are kept than said."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.recent import LARGEST, Recent
from lakeshore.core.rows import Failure, GetInvocation
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.hand import HandPlane


def outcome(number: int, result: bytes | None = b"\xc0", error: Failure | None = None) -> m.Outcome:
    return m.Outcome(0, number.to_bytes(16, "big"), "succeeded", 1, result, error)


def test_the_last_512_are_always_there_and_never_more_than_1024() -> None:
    recent = Recent()
    for number in range(5000):
        recent.add(outcome(number))
        for back in (0, 1, 511):
            id = max(number - back, 0).to_bytes(16, "big")
            assert recent.answer(id, 7) == m.Outcome(7, id, "succeeded", 1, b"\xc0")
        assert recent.answer((number - 1024).to_bytes(16, "big", signed=True), 7) is None


@pytest.mark.parametrize("large", [outcome(1, b"x" * (LARGEST + 1)), outcome(1, None, Failure("E", "m"))])
def test_large_results_and_errors_are_left_to_the_store(large: m.Outcome) -> None:
    recent = Recent()
    recent.add(large)
    assert recent.answer(large.id, 1) is None
    recent.add(outcome(2, b"x" * LARGEST))
    assert recent.answer((2).to_bytes(16, "big"), 1) is not None


class Reads(MemoryStore):
    """Counts looked up invocations."""

    count = 0

    def read(self, query: Any, done: Any) -> None:
        self.count += isinstance(query, GetInvocation)
        super().read(query, done)


def test_a_wait_after_the_end_reads_nothing() -> None:
    store = Reads()
    plane = HandPlane(store=store)
    client, worker = plane.client(), plane.worker(slots=4)
    ids = [client.submit() for _ in range(3)]
    for number, id in enumerate(ids):
        worker.finish(id, number)
    assert [client.result(id) for id in ids] == [0, 1, 2]
    assert store.count == 0


def test_what_was_pruned_is_expired_for_a_wait_too() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    worker.finish(id)
    plane.advance(10.0)
    client.answer(client.ask(m.PruneJobs, 1.0))
    refused = client.answer(client.ask(m.Wait, id))
    assert isinstance(refused, m.Refusal)
    assert refused.kind == "Expired"
