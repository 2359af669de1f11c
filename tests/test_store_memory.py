"""The memory store: the conformance suite, and its limit."""

import random
from typing import Any

import msgspec
import pytest

from lakeshore.core.rows import (
    Attempt,
    BlobRow,
    Committed,
    Failure,
    FunctionRow,
    GetInvocation,
    InvocationRow,
    KeyRow,
    ListInvocations,
    Prune,
    Trim,
)
from lakeshore.core.states import State
from lakeshore.store import memory
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.conformance import StoreConformance
from lakeshore.testing.conformance.store import NS, Q2, Q, StoreFactory, W, batch_of, chunk, id_of, invocation


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


def test_lists_are_the_same_however_late_rows_are_indexed(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(5)
    filters = [
        ListInvocations(NS, queue, states, worker, limit=5)
        for queue in (None, Q, Q2)
        for states in ((), (State.QUEUED,), (State.FAILED, State.RUNNING))
        for worker in (None, W)
    ]
    for backlog in (0, 7, 10_000):
        monkeypatch.setattr(memory, "BACKLOG", backlog)
        store, known, answers = MemoryStore(), dict[bytes, InvocationRow](), list[Any]()
        for _ in range(300):
            row = invocation(
                rng.randint(1, 40), rng.choice(list(State)), queue=rng.choice((Q, Q2)),
                worker=rng.choice((None, W)), ended_at=rng.choice((1.0, 9.0)),
            )  # fmt: skip
            batch = batch_of(updates=(row,)) if row.id in known else batch_of(row)
            if rng.random() < 0.1:
                batch = batch_of(Prune(NS, b"", 5.0))
                for old in [old for old in known.values() if old.state.terminal and old.record.ended_at == 1]:
                    del known[old.id]
            else:
                known[row.id] = row
            store.commit(batch, answers.append)
            for query in rng.sample(filters, 2) if rng.random() < 0.3 else ():
                store.read(query, answers.append)
                matches = [
                    row
                    for _, row in sorted(known.items(), reverse=True)
                    if query.queue in (None, row.queue)
                    and query.worker in (None, row.worker)
                    and row.state in (query.states or State)
                ]
                assert answers[-1] == matches[:5]
            (space,) = store._spaces.values()
            assert len(space.changed) <= backlog


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


def test_what_is_counted_is_what_there_is_whatever_a_row_became() -> None:
    rng = random.Random(7)
    store = MemoryStore()
    made = [
        lambda: {"result": b"r" * rng.randrange(900)},
        lambda: {"error": Failure("E", "m" * rng.randrange(50), "t" * rng.randrange(50))},
        lambda: {"attempts": tuple(Attempt(number, W, 0.0) for number in range(rng.randrange(4)))},
        dict,
    ]
    for number in range(1, 40):
        row = invocation(number)
        store.commit(batch_of(row), lambda _: None)
        for _ in range(rng.randrange(6)):
            record = msgspec.structs.replace(invocation(number).record, **rng.choice(made)())
            store.commit(batch_of(updates=(msgspec.structs.replace(row, record=record),)), lambda _: None)
        record = msgspec.structs.replace(row.record, ended_at=1.0)
        ended = msgspec.structs.replace(row, state=State.FAILED, record=record)
        store.commit(batch_of(updates=(ended,)), lambda _: None)
    store.commit(batch_of(Prune(NS, b"", 2.0)), lambda _: None)
    assert store.used == 0
