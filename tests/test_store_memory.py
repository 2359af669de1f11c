"""The memory store: the conformance suite, and its limit."""

import pytest

from lakeshore.core.rows import BlobRow, Committed, FunctionRow, GetInvocation, KeyRow, Prune, Trim
from lakeshore.core.states import State
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.conformance import StoreConformance
from lakeshore.testing.conformance.store import NS, Q, StoreFactory, batch_of, chunk, id_of, invocation


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        return MemoryStore


def test_it_works_by_hand_without_a_loop() -> None:
    store, answers = MemoryStore(), []
    store.commit(batch_of(row := invocation(1)), answers.append)
    store.read(GetInvocation(NS, id_of(1)), answers.append)
    assert answers == [Committed(), row]
    assert answers[1] is row


def test_full_says_so_and_what_is_freed_makes_room() -> None:
    store = MemoryStore(memory_limit=50_000)
    done = invocation(1, State.SUCCEEDED, ended_at=1.0, key="k", function=b"h", result=b"r" * 500)
    big = BlobRow(NS, id_of(1), Q, "args", bytes(60_000))
    store.commit(batch_of(done, KeyRow(NS, Q, "k", id_of(1), b""), big, chunk(1, 0)), lambda _: None)
    store.commit(batch_of(chunk(5, 0), FunctionRow(b"h", b"code")), lambda _: None)
    assert "memory limit of 50000 bytes" in store.full
    store.commit(batch_of(big, chunk(1, 0)), lambda _: None)  # replaced, not added
    for _ in range(3):
        store.commit(batch_of(Prune(NS, b"", 2.0), Trim(NS, id_of(5), 1)), lambda _: None)
    assert store.full == ""
    assert store.used == 0
