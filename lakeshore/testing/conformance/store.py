"""What every `ports.Store` must do.

    class TestMyStore(StoreConformance):
        durable = True

        @pytest.fixture
        def store_factory(self, tmp_path):
            return lambda: MyStore(tmp_path / "db")

Each call of the factory gives a store on the same place, not open yet.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

import anyio
import pytest
from msgspec.structs import replace

from lakeshore.core.ids import floor
from lakeshore.core.ports import Store
from lakeshore.core.rows import (
    Attempt,
    Batch,
    BlobRow,
    Call,
    ChunkRow,
    Committed,
    EventRow,
    Failure,
    Function,
    FunctionRow,
    GetBlob,
    GetChunks,
    GetExtent,
    GetFunction,
    GetInvocation,
    GetKey,
    GetMarks,
    GetWorkers,
    InvocationRow,
    KeyRow,
    ListEvents,
    ListInvocations,
    ListWorkers,
    LiveRow,
    LoadHead,
    LoadLive,
    MetaRow,
    Missing,
    ObjectRow,
    Options,
    ProviderRow,
    Prune,
    Query,
    QueueRow,
    Record,
    TokenRow,
    TopicRow,
    Trim,
    WantedObjects,
    WorkerRow,
    log_of,
)
from lakeshore.core.states import State

StoreFactory = Callable[[], Store]

_S = TypeVar("_S", bound=Store)


def id_of(number: int) -> bytes:
    """A 16-byte id that rises with its number."""
    return number.to_bytes(16, "big")


NS, OTHER = "default", "über-space"
Q, Q2, W, W2 = id_of(901), id_of(902), id_of(801), id_of(802)
TIMEOUT = 60.0  # seconds before a test that waits for `done` fails


def invocation(
    number: int,
    state: State = State.QUEUED,
    *,
    namespace: str = NS,
    queue: bytes = Q,
    worker: bytes | None = None,
    place: int = 0,
    key: str = "",
    function: bytes = b"",
    attempt: int = 0,
    ended_at: float | None = None,
    result: bytes | None = None,
) -> InvocationRow:
    """A row with the fields that matter to a test."""
    options = Options(Function("work", ref="mod:work", value=function), timeout=2.5, retries=3)
    record = Record(submitted_at=1.5, attempt=attempt, ended_at=ended_at, result=result)
    call = Call(options, b"args", "scenes/0007", key)
    return InvocationRow(namespace, id_of(number), queue, state, place, worker, call, record)


def chunk(number: int, seq: int, count: int = 1, *, data: bytes = b"frames", attempt: int = 1) -> ChunkRow:
    """A chunk of the journal of `invocation(number)`."""
    return ChunkRow(NS, id_of(number), Q, seq, count, attempt, data)


def batch_of(*rows: Any, updates: tuple[InvocationRow, ...] = ()) -> Batch:
    """A batch of first rows of invocations, later rows, and whatever else there is."""
    batch = Batch()
    for row in rows:
        match row:
            case InvocationRow():
                batch.insert(row)
            case Trim():
                batch.trim(row)
            case Prune():
                batch.prune(row)
            case _:
                batch.put(row)
    for row in updates:
        batch.update(row)
    return batch


async def commit(store: Store, batch: Batch) -> Committed:
    """Commit and wait; raises what `done` was given as an exception."""
    return await _answer(lambda done: store.commit(batch, done))


async def read(store: Store, query: Query) -> Any:
    """Read and wait; raises what `done` was given as an exception."""
    return await _answer(lambda done: store.read(query, done))


async def _answer(ask: Callable[[Callable[[Any], None]], None]) -> Any:
    answers: list[Any] = []
    answered = anyio.Event()
    loop_thread = threading.get_ident()

    def done(answer: Any) -> None:
        assert threading.get_ident() == loop_thread, "done was called on another thread"
        answers.append(answer)
        answered.set()

    ask(done)
    with anyio.fail_after(TIMEOUT):
        await answered.wait()
    assert len(answers) == 1, "done was called twice"
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


@asynccontextmanager
async def opened(store: _S) -> AsyncGenerator[_S]:
    """The store, open inside the block."""
    await store.open()
    try:
        yield store
    finally:
        await store.aclose()


def numbers(rows: list[InvocationRow]) -> list[int]:
    """The numbers that the rows' ids were made of."""
    return [int.from_bytes(row.id, "big") for row in rows]


@pytest.mark.anyio
class StoreConformance:
    """Subclass it, and give the fixture `store_factory`."""

    durable: ClassVar[bool] = False  # whether another store on the same place has what was committed

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """Makes stores that are not open yet, all on one place. To be overridden."""
        raise NotImplementedError("define the fixture store_factory in your subclass")

    @pytest.fixture
    async def store(self, store_factory: StoreFactory) -> AsyncIterator[Store]:
        """An open, empty store."""
        async with opened(store_factory()) as store:
            yield store

    async def test_an_empty_store_has_nothing(self, store: Store) -> None:
        assert store.full == ""
        assert await read(store, GetInvocation(NS, id_of(1))) == Missing()
        assert await read(store, GetBlob(NS, id_of(1), "args")) is None
        assert await read(store, GetKey(NS, Q, "k")) is None
        assert await read(store, GetFunction(b"hash")) is None
        assert await read(store, GetChunks(NS, id_of(1), 0)) == []
        assert await read(store, GetExtent(NS, id_of(1))) == (0, 0, 0)
        assert await read(store, ListInvocations(NS)) == []
        assert await read(store, ListInvocations(NS, queue=Q, states=(State.FAILED,), worker=W)) == []
        assert await read(store, ListWorkers(NS)) == []
        assert await read(store, LoadLive()) == []
        head = await read(store, LoadHead())
        assert (head.queues, head.topics, head.workers) == ((), (), ())
        assert await commit(store, Batch()) == Committed()

    async def test_a_row_comes_back_equal(self, store: Store) -> None:
        cause = Failure("a.B", "why", notes=("note",))
        error = Failure("x.Y", "what", "Traceback …", ("one", "two"), cause, (cause, cause))
        full = InvocationRow(
            NS,
            id_of(1),
            Q,
            State.FAILED,
            2**40,
            W,
            Call(
                Options(Function("n", "l", "m:q", b"v", b"s"), "generator", None, 2, 0.5, 9.0),
                None,
                "a/b",
                "schlüssel",
                id_of(2),
                id_of(3),
            ),
            Record(
                1.25, -3.5, 2.5, 3.5, 2,
                (Attempt(1, W, 1.0, 2.0, "lost", "silent"), Attempt(2, W2, 3.0)),
                1, 1, True, 4.5, b"\x00result", error, "because", 77, 9000, 2.75,
            ),
        )  # fmt: skip
        await commit(store, batch_of(full, invocation(5)))
        assert await read(store, GetInvocation(NS, id_of(1))) == full
        assert await read(store, GetInvocation(NS, id_of(5))) == invocation(5)
        assert await read(store, GetInvocation(OTHER, id_of(1))) == Missing()

    async def test_an_update_replaces_what_changes(self, store: Store) -> None:
        await commit(store, batch_of(invocation(1), invocation(2)))
        running = invocation(1, State.RUNNING, worker=W, place=7, attempt=1)
        await commit(store, batch_of(updates=(running,)))
        assert await read(store, GetInvocation(NS, id_of(1))) == running
        assert await read(store, GetInvocation(NS, id_of(2))) == invocation(2)
        ended = invocation(1, State.SUCCEEDED, worker=W, place=7, attempt=1, ended_at=3.0, result=b"r")
        await commit(store, batch_of(updates=(ended,)))
        assert await read(store, GetInvocation(NS, id_of(1))) == ended
        await commit(store, batch_of(updates=(invocation(9, State.RUNNING),)))
        assert await read(store, GetInvocation(NS, id_of(9))) == Missing()

    async def test_an_insert_and_its_update_are_one_row(self, store: Store) -> None:
        running = invocation(1, State.RUNNING, worker=W, attempt=1)
        assert await commit(store, batch_of(invocation(1), updates=(running,))) == Committed()
        assert await read(store, GetInvocation(NS, id_of(1))) == running

    async def test_a_taken_id_is_lost_with_all_that_came_with_it(self, store: Store) -> None:
        first = invocation(1, key="k1")
        key, blob = KeyRow(NS, Q, "k1", id_of(1), b"d1"), BlobRow(NS, id_of(1), Q, "args", b"one")
        await commit(store, batch_of(first, key, blob, chunk(1, 0)))
        second = batch_of(
            invocation(2),
            invocation(1, State.RUNNING, worker=W, key="k2"),
            invocation(1, namespace=OTHER),
            KeyRow(NS, Q, "k1", id_of(1), b"d2"),
            KeyRow(NS, Q, "k2", id_of(1), b"d2"),
            BlobRow(NS, id_of(1), Q, "args", b"two"),
            BlobRow(NS, id_of(2), Q, "args", b"two"),
            chunk(1, 0, data=b"other"),
            chunk(1, 1, data=b"other"),
            Trim(NS, id_of(1), 1),
        )
        assert (await commit(store, second)).lost == ((NS, id_of(1)),)
        assert await read(store, GetInvocation(NS, id_of(1))) == first
        assert await read(store, GetInvocation(NS, id_of(2))) == invocation(2)
        assert await read(store, GetInvocation(OTHER, id_of(1))) == invocation(1, namespace=OTHER)
        assert await read(store, GetKey(NS, Q, "k1")) == KeyRow(NS, Q, "k1", id_of(1), b"d1")
        assert await read(store, GetKey(NS, Q, "k2")) is None
        assert await read(store, GetBlob(NS, id_of(1), "args")) == b"one"
        assert await read(store, GetBlob(NS, id_of(2), "args")) == b"two"
        assert await read(store, GetChunks(NS, id_of(1), 0)) == [chunk(1, 0)]

    async def test_a_key_can_be_taken_over(self, store: Store) -> None:
        await commit(store, batch_of(invocation(1, key="k"), KeyRow(NS, Q, "k", id_of(1), b"d")))
        await commit(store, batch_of(invocation(2, key="k"), KeyRow(NS, Q, "k", id_of(2), b"d")))
        assert await read(store, GetKey(NS, Q, "k")) == KeyRow(NS, Q, "k", id_of(2), b"d")
        assert await read(store, GetKey(NS, Q2, "k")) is None

    async def test_blobs_of_any_size(self, store: Store) -> None:
        data = bytes(range(256)) * 20_000
        await commit(
            store,
            batch_of(BlobRow(NS, id_of(1), Q, "args", data), BlobRow(NS, id_of(1), Q, "result", b"")),
        )
        assert await read(store, GetBlob(NS, id_of(1), "args")) == data
        assert await read(store, GetBlob(NS, id_of(1), "result")) == b""
        await commit(store, batch_of(BlobRow(NS, id_of(1), Q, "result", b"again")))
        assert await read(store, GetBlob(NS, id_of(1), "result")) == b"again"

    async def test_chunks_come_in_order_from_the_one_that_holds_since(self, store: Store) -> None:
        chunks = [chunk(1, seq, 3, attempt=1 + seq // 6) for seq in range(0, 12, 3)]
        await commit(store, batch_of(*chunks[2:], chunk(2, 0)))
        await commit(store, batch_of(*chunks[:2]))
        assert await read(store, GetExtent(NS, id_of(1))) == (0, 12, 2)
        for since, first in ((0, 0), (2, 0), (3, 1), (5, 1), (11, 3), (12, 4), (99, 4)):
            assert await read(store, GetChunks(NS, id_of(1), since)) == chunks[first:]
        assert await read(store, GetChunks(NS, id_of(1), 0, frames=6)) == chunks[:2]
        assert await read(store, GetChunks(NS, id_of(1), 0, frames=7)) == chunks[:2]
        assert await read(store, GetChunks(NS, id_of(1), 4, frames=1)) == chunks[1:2]
        assert await read(store, GetChunks(NS, id_of(1), 0, bytes=12)) == chunks[:2]
        assert await read(store, GetChunks(NS, id_of(1), 0, bytes=1)) == chunks[:1]

    async def test_marks_are_ends_and_bytes_of_neighbours(self, store: Store) -> None:
        await commit(store, batch_of(*[chunk(1, seq, 3) for seq in range(0, 15, 3)], chunk(2, 0)))
        for fields, marks in (
            ((0, 15, 0), [(3, 6), (6, 6), (9, 6), (12, 6), (15, 6)]),
            ((0, 15, 13), [(6, 12), (12, 12), (15, 6)]),
            ((6, 12, 99), [(12, 12)]),
            ((0, 15, 99, 2), [(6, 12)]),
            ((15, 99, 9), []),
        ):
            assert await read(store, GetMarks(NS, id_of(1), *fields)) == marks
        assert await read(store, GetMarks(OTHER, id_of(1), 0, 15, 1)) == []

    async def test_a_trim_drops_whole_chunks_below(self, store: Store) -> None:
        chunks = [chunk(1, seq, 3) for seq in range(0, 12, 3)]
        await commit(store, batch_of(*chunks, chunk(2, 0)))
        await commit(store, batch_of(Trim(NS, id_of(1), 8)))
        assert await read(store, GetExtent(NS, id_of(1))) == (6, 12, 1)
        assert await read(store, GetChunks(NS, id_of(1), 0)) == chunks[2:]
        await commit(store, batch_of(Trim(NS, id_of(1), 99)))
        assert await read(store, GetExtent(NS, id_of(1))) == (0, 0, 0)
        assert await read(store, GetExtent(NS, id_of(2))) == (0, 1, 1)

    async def test_lists_are_newest_first_under_any_filter(self, store: Store) -> None:
        rows = [
            invocation(
                n,
                list(State)[n % 6],
                queue=(Q, Q2)[n % 2],
                worker=None if n % 6 == 0 else (W, W2)[n % 5 % 2],
            )
            for n in range(1, 61)
        ]
        await commit(store, batch_of(*rows[30:], invocation(7, namespace=OTHER)))
        await commit(store, batch_of(*rows[:30]))  # ids are not always stored in order
        for states in ((), (State.QUEUED,), (State.RUNNING,), (State.FAILED, State.RUNNING), tuple(State)):
            for queue in (None, Q, Q2, id_of(5)):
                for worker in (None, W, W2, id_of(5)):
                    wanted = [
                        row
                        for row in reversed(rows)
                        if (not states or row.state in states)
                        and queue in (None, row.queue)
                        and worker in (None, row.worker)
                    ]
                    for limit, offset in ((50, 0), (3, 0), (4, 2), (50, 55)):
                        query = ListInvocations(NS, queue, states, worker, limit, offset)
                        assert await read(store, query) == wanted[offset : offset + limit], query
        assert numbers(await read(store, ListInvocations(OTHER))) == [7]

    async def test_lists_follow_updates(self, store: Store) -> None:
        await commit(store, batch_of(*[invocation(n) for n in range(1, 5)]))
        await commit(store, batch_of(updates=(invocation(2, State.RUNNING, worker=W),)))
        assert numbers(await read(store, ListInvocations(NS, states=(State.QUEUED,)))) == [4, 3, 1]
        assert numbers(await read(store, ListInvocations(NS, worker=W))) == [2]
        await commit(store, batch_of(updates=(invocation(2, State.SUCCEEDED, worker=W2),)))
        assert numbers(await read(store, ListInvocations(NS, states=(State.RUNNING,)))) == []
        assert numbers(await read(store, ListInvocations(NS, worker=W))) == []
        assert numbers(await read(store, ListInvocations(NS, worker=W2, states=(State.SUCCEEDED,)))) == [2]

    async def test_the_head_is_loaded(self, store: Store) -> None:
        queue = QueueRow(NS, Q, "renders", "active", {"kind": "fifo", "rate": [1, 2.5, None], "on": True})
        topic = TopicRow(NS, id_of(5), "news", 4, 1, 99, True, marks=((2, 1.5), (4, 2.5)))
        worker = WorkerRow(NS, W, {"name": "w", "labels": {"gpu": "1"}})
        ended = WorkerRow(NS, W2, {}, ended_at=5.0)
        await commit(store, batch_of(queue, topic, worker, ended))
        head = await read(store, LoadHead())
        assert (head.queues, head.topics, head.workers) == ((queue,), (topic,), (worker,))
        assert await read(store, ListWorkers(NS)) == [ended, worker]
        assert await read(store, ListWorkers(OTHER)) == []
        paused = QueueRow(NS, Q, "renders", "paused", {})
        await commit(store, batch_of(paused, WorkerRow(NS, W, {}, ended_at=6.0)))
        head = await read(store, LoadHead())
        assert (head.queues, head.workers) == ((paused,), ())

    async def test_what_belongs_to_no_namespace_is_loaded(self, store: Store) -> None:
        token = TokenRow(id_of(1), b"h" * 32, NS, "submit", 1.5, None, "laptop")
        provider = ProviderRow(id_of(2), "gpu", "slurm", {"gres": "gpu:1", "deep": [1, {"n": None}]}, 3)
        meta = MetaRow("plane", {"id": "x", "n": [1, None]})
        others = (
            TokenRow(id_of(3), b"i" * 32, OTHER, "admin", 2.5, 3.5),
            ProviderRow(id_of(4), "b", "local", {}),
        )
        await commit(store, batch_of(token, provider, meta, *others, MetaRow("gone", 1)))
        await commit(store, batch_of(MetaRow("gone", None)))
        head = await read(store, LoadHead())
        assert (head.tokens, head.providers, head.meta) == (
            (token, others[0]),
            (provider, others[1]),
            (meta,),
        )
        used, changed = replace(token, last_used_at=9.0), replace(provider, max=None, state="held")
        gone = replace(others[0], removed=True), replace(others[1], removed=True)
        await commit(store, batch_of(used, changed, MetaRow("plane", "y"), *gone))
        head = await read(store, LoadHead())
        assert (head.tokens, head.providers, head.meta) == ((used,), (changed,), (MetaRow("plane", "y"),))

    async def test_several_rows_of_one_thing_are_the_last(self, store: Store) -> None:
        token = TokenRow(id_of(1), b"h" * 32, NS, "read", 1.0)
        event = EventRow(NS, Q, id_of(2), {"n": 1})
        removed, later = replace(token, removed=True), replace(event, data={"n": 2})
        await commit(store, batch_of(token, removed, event, later, MetaRow("m", 1), MetaRow("m", 2)))
        head = await read(store, LoadHead())
        assert (head.tokens, head.meta) == ((), (MetaRow("m", 2),))
        assert await read(store, ListEvents(NS, Q)) == [later]

    async def test_events_are_newest_first_by_queue(self, store: Store) -> None:
        events = [
            EventRow(NS, (Q, Q2)[n % 2], id_of(n), {"n": n, "why": "ü"}, noop=n % 3 == 0)
            for n in range(1, 20)
        ]
        await commit(store, batch_of(*reversed(events), EventRow(OTHER, Q, id_of(30), {})))
        for queue in (Q, Q2):
            mine = [event for event in reversed(events) if event.queue == queue]
            done = [event for event in mine if not event.noop]
            assert await read(store, ListEvents(NS, queue)) == done
            assert await read(store, ListEvents(NS, queue, noops=True)) == mine
            assert await read(store, ListEvents(NS, queue, 2)) == done[:2]
            assert await read(store, ListEvents(NS, queue, 3, noops=True)) == mine[:3]
        assert await read(store, ListEvents(OTHER, Q)) == [EventRow(OTHER, Q, id_of(30), {})]
        assert await read(store, ListEvents(OTHER, Q2)) == []
        assert await read(store, ListEvents("nowhere", Q)) == []

    async def test_an_event_may_stand_for_an_earlier_one(self, store: Store) -> None:
        await commit(store, batch_of(*[EventRow(NS, Q, id_of(n), {"n": n}, noop=n > 1) for n in (1, 2)]))
        await commit(store, batch_of(EventRow(NS, Q, id_of(3), {"n": 3}, noop=True, replaces=id_of(2))))
        kept = [EventRow(NS, Q, id_of(3), {"n": 3}, noop=True), EventRow(NS, Q, id_of(1), {"n": 1})]
        assert await read(store, ListEvents(NS, Q, noops=True)) == kept
        again = EventRow(NS, Q, id_of(3), {"n": 4}, noop=True)
        await commit(store, batch_of(again))
        assert await read(store, ListEvents(NS, Q, noops=True)) == [again, kept[1]]

    async def test_prune_ends_with_old_events(self, store: Store) -> None:
        def event(at: float, namespace: str = NS) -> EventRow:
            return EventRow(namespace, Q, floor(at), {})

        await commit(store, batch_of(event(9.999), event(10.0), event(1.0), event(1.0, OTHER)))
        await commit(store, batch_of(Prune(NS, b"", 10.0)))
        assert await read(store, ListEvents(NS, Q)) == [event(10.0)]
        assert await read(store, ListEvents(OTHER, Q)) == [event(1.0, OTHER)]

    async def test_an_object_is_wanted_until_the_last_that_has_it_is_pruned(self, store: Store) -> None:
        rows = [
            invocation(1, State.SUCCEEDED, ended_at=1.0),
            invocation(2, State.SUCCEEDED, ended_at=2.0),
            invocation(3, State.RUNNING, worker=W),
        ]
        objects = [
            ObjectRow(NS, id_of(1), "s3://b", "one"),
            ObjectRow(NS, id_of(1), "s3://b", "shared"),
            ObjectRow(NS, id_of(1), "s3://b", "shared"),  # said twice
            ObjectRow(NS, id_of(2), "s3://b", "shared"),
            ObjectRow(NS, id_of(3), "s3://c", "kept"),
            ObjectRow(OTHER, id_of(1), "s3://b", "one"),
        ]
        await commit(store, batch_of(*rows, *objects))
        names = WantedObjects(NS, ("one", "shared", "kept", "never"))
        assert await read(store, names) == {"one", "shared", "kept"}
        (first,) = (await commit(store, batch_of(Prune(NS, b"", 1.5)))).pruned
        assert (first.ids, first.objects) == ((id_of(1),), (("s3://b", "one"),))
        assert await read(store, names) == {"shared", "kept"}
        (second,) = (await commit(store, batch_of(Prune(NS, b"", 99.0)))).pruned
        assert second.objects == (("s3://b", "shared"),)
        assert await read(store, names) == {"kept"}
        assert await read(store, WantedObjects(OTHER, ("one",))) == {"one"}
        assert await read(store, WantedObjects("nowhere", ("one",))) == frozenset()

    async def test_objects_of_an_id_that_was_taken_are_not_kept(self, store: Store) -> None:
        await commit(store, batch_of(invocation(1)))
        again = batch_of(invocation(1), ObjectRow(NS, id_of(1), "s3://b", "one"))
        assert (await commit(store, again)).lost
        assert await read(store, WantedObjects(NS, ("one",))) == frozenset()

    async def test_workers_are_read_by_their_ids(self, store: Store) -> None:
        workers = [WorkerRow(NS, W, {"name": "a"}), WorkerRow(NS, W2, {"name": "b"}, ended_at=1.0)]
        await commit(store, batch_of(*workers, WorkerRow(OTHER, id_of(5), {})))
        found = await read(store, GetWorkers(NS, (W2, W, id_of(5), id_of(6))))
        assert sorted(found, key=lambda row: row.id) == workers
        assert await read(store, GetWorkers("nowhere", (W,))) == []

    async def test_lists_go_on_below_an_id(self, store: Store) -> None:
        rows = [
            invocation(n, list(State)[n % 6], queue=(Q, Q2)[n % 2], worker=None if n % 6 == 0 else W)
            for n in range(1, 41)
        ]
        await commit(store, batch_of(*rows))
        for before in (1, 2, 20, 40, 41, 99):
            for queue, states, worker in (
                (None, (), None),
                (Q, (), None),
                (None, (State.QUEUED, State.FAILED), None),
                (Q2, tuple(State), W),
            ):
                wanted = [
                    row
                    for row in reversed(rows)
                    if row.id < id_of(before)
                    and queue in (None, row.queue)
                    and (not states or row.state in states)
                    and worker in (None, row.worker)
                ]
                for limit, offset in ((50, 0), (3, 0), (3, 2)):
                    query = ListInvocations(NS, queue, states, worker, limit, offset, id_of(before))
                    assert await read(store, query) == wanted[offset : offset + limit], query

    async def test_what_is_removed_takes_along_what_is_its(self, store: Store) -> None:
        queues = [QueueRow(NS, id, id.hex(), "active", {}) for id in (Q, Q2)]
        topics = [TopicRow(NS, id_of(n), str(n)) for n in (5, 6)]
        keys = [KeyRow(NS, id, "k", id_of(1), b"") for id in (Q, Q2)]
        await commit(store, batch_of(*queues, *topics, *keys, chunk(5, 0), chunk(6, 0)))
        removed = batch_of(
            QueueRow(NS, Q, "", "active", {}, removed=True), TopicRow(NS, id_of(5), "", removed=True)
        )
        await commit(store, removed)
        head = await read(store, LoadHead())
        assert (head.queues, head.topics) == ((queues[1],), (topics[1],))
        assert await read(store, GetKey(NS, Q, "k")) is None
        assert await read(store, GetKey(NS, Q2, "k")) == keys[1]
        assert await read(store, GetChunks(NS, id_of(5), 0)) == []
        assert await read(store, GetChunks(NS, id_of(6), 0)) == [chunk(6, 0)]

    async def test_live_rows_load_by_pages(self, store: Store) -> None:
        rows = [
            invocation(1, key="k"),
            invocation(2, State.SUCCEEDED, ended_at=1.0),
            invocation(3, State.RUNNING, worker=W, queue=Q2, attempt=1, key="taken"),
            invocation(4, queue=Q2, attempt=2),
            invocation(2, namespace=OTHER),
        ]
        keys = [KeyRow(NS, Q, "k", id_of(1), b"digest"), KeyRow(NS, Q2, "taken", id_of(2), b"other")]
        log = replace(chunk(4, 2, 5, attempt=1), owner=log_of(id_of(4)))
        await commit(store, batch_of(*rows, *keys, chunk(4, 6, 2, attempt=2), chunk(4, 3, 3), log))
        wanted = [
            LiveRow(rows[0], digest=b"digest"),
            LiveRow(rows[2]),
            LiveRow(rows[3], 3, 8, 2, log=(2, 7, 1)),
            LiveRow(rows[4]),
        ]
        assert await read(store, LoadLive()) == wanted
        after, pages = None, list[LiveRow]()
        while page := await read(store, LoadLive(after, 2)):
            pages += page
            after = (page[-1].row.namespace, page[-1].row.id)
        assert pages == wanted
        await commit(store, batch_of(updates=(invocation(1, State.KILLED, key="k", ended_at=1.0),)))
        assert await read(store, LoadLive(limit=1)) == wanted[1:2]

    async def test_no_key_has_no_digest(self, store: Store) -> None:
        await commit(store, batch_of(invocation(1), KeyRow(NS, Q, "", id_of(1), b"digest")))
        assert await read(store, LoadLive()) == [LiveRow(invocation(1))]

    async def test_prune_deletes_what_ended_before(self, store: Store) -> None:
        rows = [
            invocation(1, State.SUCCEEDED, ended_at=10.0, key="gone"),
            invocation(2, State.FAILED, ended_at=20.0),  # not before
            invocation(3, State.RUNNING, worker=W),
            invocation(4, State.TIMEOUT, queue=Q2, ended_at=20.0),  # its queue keeps less
            invocation(5, State.KILLED, ended_at=19.0, key="kept"),
            invocation(1, State.KILLED, namespace=OTHER, ended_at=1.0),
        ]
        keys = [KeyRow(NS, Q, "gone", id_of(1), b""), KeyRow(NS, Q, "kept", id_of(3), b"")]
        blobs = [BlobRow(NS, id_of(n), Q, part, b"b") for n in (1, 2) for part in ("args", "result")]
        logs = [replace(chunk(n, 0), owner=log_of(id_of(n))) for n in (1, 2)]
        await commit(store, batch_of(*rows, *keys, *blobs, chunk(1, 0), chunk(2, 0), *logs))
        pruned = (await commit(store, batch_of(Prune(NS, b"", 20.0, {Q2: 30.0})))).pruned
        assert [(p.ids, p.cursor) for p in pruned] == [((id_of(1), id_of(4), id_of(5)), None)]
        assert numbers(await read(store, ListInvocations(NS))) == [3, 2]
        assert numbers(await read(store, ListInvocations(NS, states=(State.KILLED,)))) == []
        assert numbers(await read(store, ListInvocations(OTHER))) == [1]
        assert await read(store, GetInvocation(NS, id_of(1))) == Missing(expired=True)
        assert await read(store, GetInvocation(NS, id_of(5))) == Missing(expired=True)
        assert await read(store, GetInvocation(NS, id_of(6))) == Missing(expired=False)
        assert await read(store, GetInvocation(OTHER, id_of(2))) == Missing(expired=False)
        assert await read(store, GetKey(NS, Q, "gone")) is None
        assert await read(store, GetKey(NS, Q, "kept")) == keys[1]
        for part in ("args", "result"):
            assert await read(store, GetBlob(NS, id_of(1), part)) is None
            assert await read(store, GetBlob(NS, id_of(2), part)) == b"b"
        for gone, kept in ((id_of(1), id_of(2)), (log_of(id_of(1)), log_of(id_of(2)))):
            assert await read(store, GetExtent(NS, gone)) == (0, 0, 0)
            assert await read(store, GetExtent(NS, kept)) == (0, 1, 1)

    async def test_prune_says_how_long_nothing_else_is_due(self, store: Store) -> None:
        rows = [
            invocation(1, State.FAILED, ended_at=1.0),
            invocation(2, State.FAILED, ended_at=25.0),
            invocation(3, State.FAILED, queue=Q2, ended_at=33.0),
            invocation(4, State.RUNNING, worker=W),
        ]
        await commit(store, batch_of(*rows))
        for after, wait in ((0, 3.0), (2, 3.0), (3, 76.0), (4, float("inf"))):
            prune = Prune(NS, id_of(after), 20.0, {Q2: 30.0}, now=96.0)
            (pruned,) = (await commit(store, batch_of(prune))).pruned
            assert pruned.wait == wait

    async def test_prune_goes_by_small_steps(self, store: Store) -> None:
        odd = [invocation(n, (State.SUCCEEDED, State.QUEUED)[n % 2], ended_at=1.0) for n in range(1, 8)]
        await commit(store, batch_of(*odd))
        after: bytes | None = b""
        steps: list[tuple[list[int], int | None]] = []
        while after is not None:
            (pruned,) = (await commit(store, batch_of(Prune(NS, after, 9.0, limit=3)))).pruned
            after = pruned.cursor
            ids = [int.from_bytes(id, "big") for id in pruned.ids]
            steps.append((ids, None if after is None else int.from_bytes(after, "big")))
        assert steps == [([2], 3), ([4, 6], 6), ([], None)]

    async def test_prune_ends_with_ended_workers(self, store: Store) -> None:
        workers = [
            WorkerRow(NS, W, {}, ended_at=1.0),
            WorkerRow(NS, W2, {}),
            WorkerRow(OTHER, id_of(803), {}, 1.0),
        ]
        await commit(store, batch_of(*workers))
        await commit(store, batch_of(Prune(NS, b"", 1.0)))
        assert await read(store, ListWorkers(NS)) == [workers[1], workers[0]]
        await commit(store, batch_of(Prune(NS, b"", 1.5)))
        assert await read(store, ListWorkers(NS)) == [workers[1]]
        assert await read(store, ListWorkers(OTHER)) == [workers[2]]

    async def test_a_function_stays_while_it_is_used(self, store: Store) -> None:
        done = invocation(1, State.SUCCEEDED, function=b"h1", ended_at=1.0)
        kept = invocation(2, State.SUCCEEDED, function=b"h1", ended_at=5.0)
        functions = [FunctionRow(b"h1", b"code"), FunctionRow(b"h2", b"unused")]
        await commit(store, batch_of(*functions, done, kept))
        await commit(store, batch_of(FunctionRow(b"h1", b"is written once")))
        assert await read(store, GetFunction(b"h1")) == b"code"
        await commit(store, batch_of(Prune(NS, b"", 3.0)))
        assert await read(store, GetFunction(b"h2")) == b"unused"  # perhaps its submit is on the way
        await commit(store, batch_of(Prune(NS, b"", 3.0)))
        assert await read(store, GetFunction(b"h2")) is None
        assert await read(store, GetFunction(b"h1")) == b"code"
        await commit(store, batch_of(Prune(NS, b"", 9.0)))
        await commit(store, batch_of(invocation(3, State.SUCCEEDED, function=b"h1", ended_at=20.0)))
        for _ in range(3):
            await commit(store, batch_of(Prune(NS, b"", 9.0)))
        assert await read(store, GetFunction(b"h1")) == b"code"
        for _ in range(3):
            await commit(store, batch_of(Prune(NS, b"", 30.0)))
        assert await read(store, GetFunction(b"h1")) is None

    async def test_commits_are_done_in_order_and_then_seen(self, store: Store) -> None:
        seen: list[int] = []
        finished = anyio.Event()

        def committed(number: int, answer: Any) -> None:
            assert isinstance(answer, Committed)
            store.read(GetInvocation(NS, id_of(number)), lambda row: was_read(number, row))
            if number < 200:
                go(number + 1)

        def was_read(number: int, row: Any) -> None:
            assert isinstance(row, InvocationRow)
            seen.append(number)
            if number == 200:
                finished.set()

        def go(number: int) -> None:
            store.commit(batch_of(invocation(number)), lambda answer: committed(number, answer))

        go(1)
        with anyio.fail_after(TIMEOUT):
            await finished.wait()
        assert sorted(seen) == list(range(1, 201))

    async def test_it_leaves_no_thread(self, store_factory: StoreFactory) -> None:
        before = set(threading.enumerate())
        async with opened(store_factory()) as store:
            await commit(store, batch_of(invocation(1)))
            assert numbers(await read(store, ListInvocations(NS))) == [1]
        assert set(threading.enumerate()) <= before
        await store.aclose()  # twice is once

    async def test_it_can_be_opened_again(self, store_factory: StoreFactory) -> None:
        first = store_factory()
        async with opened(first):
            await commit(first, batch_of(invocation(1)))
        async with opened(first):
            assert await read(first, GetInvocation(NS, id_of(1))) == invocation(1)

    async def test_another_store_on_the_same_place_has_it_all(self, store_factory: StoreFactory) -> None:
        if not self.durable:
            pytest.skip("it is not durable")
        parts = (chunk(1, 0, 5), BlobRow(NS, id_of(1), Q, "args", b"a" * 5000), FunctionRow(b"h", b"code"))
        topic = TopicRow(NS, id_of(5), "news")
        rows = (invocation(1, State.RUNNING, worker=W, attempt=1, function=b"h"), invocation(2))
        async with opened(store_factory()) as store:
            await commit(store, batch_of(*rows, *parts, topic, QueueRow(NS, Q, "q", "active", {})))
            await commit(store, batch_of(updates=(invocation(2, State.KILLED, ended_at=1.0),)))
            await commit(store, batch_of(Prune(NS, b"", 2.0)))
        async with opened(store_factory()) as store:
            assert await read(store, LoadLive()) == [LiveRow(rows[0], 0, 5, 1)]
            assert (await read(store, LoadHead())).topics == (topic,)
            assert await read(store, GetBlob(NS, id_of(1), "args")) == b"a" * 5000
            assert await read(store, GetFunction(b"h")) == b"code"
            assert await read(store, GetInvocation(NS, id_of(2))) == Missing(expired=True)
