"""A store that can't be read, or lacks something: who asked hears it, and nothing else breaks."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.rows import (
    Call,
    Function,
    FunctionRow,
    GetBlob,
    GetChunks,
    GetExtent,
    GetFunction,
    GetKey,
    GetMarks,
    ListInvocations,
    LoadHead,
    LoadLive,
    Options,
)
from lakeshore.core.values import pack_call
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.hand import HandPlane

LARGE = b"x" * 5000  # a row of its own
ROTTEN = OSError(5, "Input/output error")


def spoil(plane: HandPlane, kind: type[Any], answer: Any = ROTTEN) -> None:
    """From now on every read of a kind gets `answer`."""
    healthy = plane.store.inner.read
    plane.store.inner.read = lambda query, done: (  # type: ignore[method-assign]
        done(answer) if isinstance(query, kind) else healthy(query, done)
    )


def ended(**options: Any) -> tuple[HandPlane, Any, bytes]:
    """A plane with one invocation that has succeeded with a large result and has left memory."""
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(**options)
    worker.give(id, 1)
    worker.finish(id, LARGE)
    plane.crash()  # nor is its end among those remembered
    return plane, plane.client(), id


def refused(answer: Any) -> str:
    assert isinstance(answer, m.Refusal), answer
    assert answer.kind == "StoreFailed"
    return answer.message


@pytest.mark.parametrize(
    ("answer", "why"), [(ROTTEN, "Input/output error"), (None, "the result is not in the store")]
)
def test_a_result_that_cannot_be_read(answer: Any, why: str) -> None:
    plane, client, id = ended()
    spoil(plane, GetBlob, answer)
    assert why in refused(client.outcome(id))
    assert client.state(id) == "succeeded"


@pytest.mark.parametrize(
    ("answer", "why"), [(ROTTEN, "Input/output error"), (None, "the arguments are not in the store")]
)
def test_a_retry_whose_arguments_cannot_be_read(answer: Any, why: str) -> None:
    plane, client, id = ended(args=(LARGE,))
    spoil(plane, GetBlob, answer)
    new = plane.new_id()
    assert why in refused(client.answer(client.ask(m.Retry, id, new)))
    assert plane.stored(new) is None


def test_a_retry_whose_key_cannot_be_read() -> None:
    plane, client, id = ended(key="k")
    spoil(plane, GetKey)
    new = plane.new_id()
    assert "Input/output error" in refused(client.answer(client.ask(m.Retry, id, new)))
    assert plane.stored(new) is None


def test_a_stream_of_what_has_ended_that_cannot_be_read() -> None:
    plane, client, id = ended()
    spoil(plane, GetExtent)
    assert "Input/output error" in refused(client.end(client.follow(id)))


def test_a_list_that_cannot_be_read() -> None:
    plane, client, _ = ended()
    spoil(plane, ListInvocations)
    assert "Input/output error" in refused(client.answer(client.ask(m.ListJobs)))


@pytest.mark.parametrize(("answer", "why"), [(ROTTEN, "Input/output error"), (None, "not in the store")])
def test_a_job_whose_arguments_cannot_be_read_fails_and_frees_its_slot(answer: Any, why: str) -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(args=(LARGE,))
    plane.crash()
    client = plane.client()
    spoil(plane, GetBlob, answer)
    worker = plane.worker()
    plane.settle()
    outcome = client.outcome(id)
    assert outcome.state == "failed"
    assert why in outcome.error.message
    assert worker.started == []
    after = client.submit()
    assert worker.started == [after]


def test_arguments_that_cannot_be_read_for_one_who_has_left_fail_nothing() -> None:
    plane = HandPlane()
    id = plane.client().submit(args=(LARGE,))
    plane.crash()
    client, worker = plane.client(), plane.worker()
    plane.store.hold_reads = True
    plane.settle()
    assert client.state(id) == "running"
    worker.link.cut()  # and with it the attempt that the read was for
    plane.settle()
    plane.store.hold_reads = False
    (blob,) = [done for query, done in plane.store.held_reads if isinstance(query, GetBlob)]
    plane.store.held_reads.clear()
    blob(ROTTEN)
    plane.settle()
    assert client.state(id) == "queued"
    plane.worker()
    plane.settle()
    assert client.state(id) == "running"


def test_a_pickled_function_that_cannot_be_read_fails_its_job() -> None:
    plane = HandPlane()
    client, id = plane.client(), plane.new_id()
    call = Call(Options(Function("f", "elsewhere:1", "", b"#")), pack_call((LARGE,), {}))
    client.ask(m.Submit, id, "default", call, function=FunctionRow(b"#", b"a pickle"))
    plane.settle()
    plane.crash()
    client, _ = plane.client(), spoil(plane, GetFunction)
    worker = plane.worker()
    plane.settle()
    outcome = client.outcome(id)
    assert (outcome.state, worker.started) == ("failed", [])
    assert "Input/output error" in outcome.error.message


def test_a_reader_that_lags_hears_that_the_store_cannot_be_read() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(kind="generator")
    worker.give(id, 1)
    plane.settle()
    spoil(plane, GetChunks)
    stream = client.follow(id)
    assert "Input/output error" in refused(client.end(stream))
    live = client.follow(id, since=1)
    worker.give(id, 2)
    assert client.frames(live) == [(1, 1, 2)]  # a reader that keeps up needs no disk


@pytest.mark.parametrize("kind", [LoadHead, LoadLive])
def test_an_open_that_cannot_read_its_rows_says_so(kind: type[Any]) -> None:
    store = MemoryStore()
    healthy = store.read
    store.read = lambda query, done: (  # type: ignore[method-assign]
        done(ROTTEN) if isinstance(query, kind) else healthy(query, done)
    )
    with pytest.raises(OSError, match="Input/output error"):
        HandPlane(store=store)


def test_a_journal_whose_size_cannot_be_read_is_measured_at_its_next_frame() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(kind="generator", retries=1, retry_delay=0.0)
    for n in range(5000):  # more chunks than one read looks at
        worker.give(id, n)
        plane.settle()
    plane.options["journal_bytes"] = 10_000  # from now on it may keep less
    plane.crash()
    spoil(plane, GetMarks)
    client, worker = plane.client(), plane.worker()
    plane.settle()
    worker.give(id, "first")
    plane.settle()
    stored = plane.store.inner
    before = bytes_of(stored, id)
    assert before > 50_000
    del stored.read  # the disk is well again
    worker.give(id, "second")
    plane.settle()
    assert 5000 < bytes_of(stored, id) <= 10_000


def bytes_of(store: Any, id: bytes) -> int:
    found: list[Any] = []
    store.read(GetChunks("default", id, 0, 1 << 30, 1 << 30), found.extend)
    return sum(len(row.data) for row in found)
