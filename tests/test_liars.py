"""Peers that lie: whatever a head lets in from outside, the plane goes on, and it can all be stored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace
from wire_values import IDS, LIMIT, MESSAGES, QUEUES, TOPICS, WORKERS, message

from lakeshore.core import messages as m
from lakeshore.core.credit import Limits
from lakeshore.core.guest import Guest
from lakeshore.core.ids import text_of
from lakeshore.core.rows import Batch, Committed, Failure, Query
from lakeshore.core.vetting import HEADS_ALONE
from lakeshore.core.vetting.workers import MOVES
from lakeshore.store.answers import answer
from lakeshore.store.connection import Connection, connect
from lakeshore.store.memory import MemoryStore
from lakeshore.store.migrations import migrate
from lakeshore.store.statements import apply
from lakeshore.testing.faults import FaultyLink, faulty_pair
from lakeshore.testing.hand import HandPlane, call_of

KINDS = sorted((kind for kind in MESSAGES if kind not in HEADS_ALONE), key=lambda kind: kind.__name__)
LIES = st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 32))
UNUSUAL = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
SILENT = settings(deadline=None, derandomize=True, max_examples=120, suppress_health_check=UNUSUAL)


MOST_READS = 3000
LIAR, FEW, REQ = st.sampled_from([0, 1]), st.integers(0, 2), st.integers(0, 6)
QUEUE = st.sampled_from(QUEUES)
ID, KEY = st.sampled_from(IDS), st.sampled_from(["", "", "one"])


class Strict:
    """A store in SQLite that answers at once, and takes no value that it can't keep."""

    full = ""

    def __init__(self) -> None:
        self.conn: Connection = connect(":memory:")
        self.reads = 0
        migrate(self.conn, ":memory:")

    def commit(self, batch: Batch, done: Any) -> None:
        committed: Committed = apply(self.conn, batch)  # what it raises ends the plane here
        done(committed)

    def read(self, query: Query, done: Any) -> None:
        self.reads += 1
        assert self.reads < MOST_READS, "it asks for ever"
        try:
            found = answer(self.conn, query)
        except Exception as error:
            raise AssertionError(f"{query} can't be answered") from error
        done(found)

    async def open(self) -> None:
        """It is."""

    async def aclose(self) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        self.conn.close()


class Liar:
    """A link from outside whose other end sends what it likes. One that is cut is there again."""

    def __init__(self, plane: HandPlane) -> None:
        self.plane = plane
        self.heard: list[Any] = []
        self.cuts = 0
        self.open()

    def open(self) -> None:
        plane = self.plane
        self.link: FaultyLink
        self.link, ours = faulty_pair()
        self.guest = Guest(
            plane.engine,
            plane.head.space("default"),
            ours,
            role="plane",
            limits=Limits(),
            payload_limit=LIMIT,
            cut=self._cut,
        )
        ours.receive, ours.closed = self.guest.receive, self.guest.closed
        self.link.receive = self.heard.append
        plane.links.append(ours)

    def _cut(self, guest: Guest, why: str) -> None:
        assert why
        self.cuts += 1
        self.link.cut()
        self.open()

    def send(self, message: Any) -> None:
        self.link.send(message)


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def world(store: Strict) -> HandPlane:
    """A plane where there is something of everything to lie about."""
    plane = HandPlane(store=store)
    client = plane.client()
    for name, declared in {
        "full": {"admission": {"max_depth": 1, "on_full": "block"}},
        "priority": {"kind": "priority"},
        "drawn": {"kind": "boltzmann", "temperature": 1.0},
    }.items():
        client.ask(m.AddQueue, name, declared)
    for name in TOPICS[:2]:
        client.post(name, 1)
    client.ask(m.CloseTopic, "closed")
    plane.settle()
    client.submit(id=IDS[0])
    worker = plane.worker(worker=WORKERS[0], queues=("default",), slots=1)
    plane.settle()
    worker.finish(IDS[0], 1)
    client.submit(id=IDS[1], kind="generator", retries=2, timeout=5.0)
    client.submit(id=IDS[2], delay=60.0, key="one")
    for id, queue in zip(IDS[3:], ("full", "priority", "drawn"), strict=False):
        client.submit(id=id, queue=queue)
    worker.give(IDS[1], 1, 2)
    plane.settle()
    return plane


def check(plane: HandPlane) -> None:
    """The plane lives, and does what it is for."""
    for link in list(plane.links):
        link.cut()
    plane.settle()
    plane.advance(120.0)
    assert plane.failure is None
    client = plane.client()
    client.ask(m.AddQueue, "afterwards", {})
    worker = plane.worker(queues=("afterwards",))
    id = client.submit(queue="afterwards")
    worker.finish(id, 42)
    assert client.result(id) == 42


@SILENT
@given(st.lists(LIES, min_size=1, max_size=40))
def test_no_message_from_outside_ends_a_plane(quiet: None, lies: list[Any]) -> None:
    with closing(Strict()) as store:
        plane = world(store)
        liar = Liar(plane)
        for kind, seed in lies:
            liar.send(message(kind, seed))
            plane.settle()
        check(plane)


class Liars(RuleBasedStateMachine):
    """Two peers that know too much: every id, and what each other does."""

    def __init__(self) -> None:
        super().__init__()
        logging.disable()
        self.store = Strict()
        self.plane = world(self.store)
        self.liars = [Liar(self.plane), Liar(self.plane)]
        self.hello(0, 1, False, False, 2)
        self.plane.settle()

    def teardown(self) -> None:
        check(self.plane)
        self.store.close()
        logging.disable(logging.NOTSET)

    @rule(who=LIAR, worker=st.sampled_from(WORKERS), leased=st.booleans(), quiet=st.booleans(), slots=FEW)
    def hello(self, who: int, worker: Any, leased: bool, quiet: bool, slots: int) -> None:
        worker = WORKERS[worker] if isinstance(worker, int) else worker
        held = tuple(m.Held(id, slots) for id in IDS[:slots])
        limit = 2 if quiet else None
        self.liars[who].send(
            m.Hello(worker, "liar", "h", 1, (), True, slots + 1, "", limit, quiet, leased=leased, held=held)
        )

    @rule(who=LIAR, id=ID, attempt=FEW, move=st.sampled_from(MOVES), retryable=st.booleans())
    def ended(self, who: int, id: bytes, attempt: int, move: str, retryable: bool) -> None:
        result, error = (b"\1", None) if move == "succeed" else (None, Failure("E", "m"))
        self.liars[who].send(m.Ended(id, attempt, move, result, error, retryable))

    @rule(who=LIAR, id=ID, attempt=FEW, index=st.sampled_from([0, 1, 2, 1 << 62]), count=st.integers(1, 6))
    def frames(self, who: int, id: bytes, attempt: int, index: int, count: int) -> None:
        self.liars[who].send(m.Frames(id, attempt, index, count, b"frames"))

    @rule(who=LIAR, id=ID, attempt=FEW, index=st.sampled_from([0, 1, 2, 1 << 62]), count=st.integers(1, 4))
    def lines(self, who: int, id: bytes, attempt: int, index: int, count: int) -> None:
        self.liars[who].send(m.Logged(id, attempt, index, count, b"lines"))
        self.liars[who].send(m.Progressed(id, attempt, m.Progress(index, count, 0.0)))

    @rule(who=LIAR, id=ID, attempt=FEW, kind=st.sampled_from([m.Began, m.Kept]))
    def report(self, who: int, id: bytes, attempt: int, kind: Any) -> None:
        self.liars[who].send(kind(id, attempt))

    @rule(who=LIAR, id=ID, attempt=FEW, begun=st.booleans(), unresolved=st.booleans())
    def gave_back(self, who: int, id: bytes, attempt: int, begun: bool, unresolved: bool) -> None:
        self.liars[who].send(m.GaveBack(id, attempt, "a reason", begun, unresolved))

    @rule(who=LIAR, goodbye=st.sampled_from([m.Drain(), m.Bye(), m.Died(WORKERS[1], "so it is said")]))
    def leave(self, who: int, goodbye: Any) -> None:
        self.liars[who].send(goodbye)

    @rule(who=LIAR, req=REQ, frames=st.sampled_from([0, 1, 1 << 62]))
    def credit(self, who: int, req: int, frames: int) -> None:
        self.liars[who].send(m.Credit(req, frames, frames))

    @rule(who=LIAR, req=REQ, id=st.just(b"") | ID)
    def drop(self, who: int, req: int, id: bytes) -> None:
        self.liars[who].send(m.Drop(req, id))

    @rule(who=LIAR, req=REQ, id=ID, kind=st.sampled_from([m.Wait, m.Get, m.Why, m.Kill]))
    def ask(self, who: int, req: int, id: bytes, kind: Any) -> None:
        self.liars[who].send(kind(req, id))

    @rule(who=LIAR, req=REQ, id=ID, new=ID, running=st.booleans())
    def kill_or_retry(self, who: int, req: int, id: bytes, new: bytes, running: bool) -> None:
        self.liars[who].send(m.Kill(req, id, True) if running else m.Retry(req, id, new))

    @rule(who=LIAR, req=REQ, id=ID, topic=st.booleans(), since=FEW, credit=FEW)
    def follow(self, who: int, req: int, id: bytes, topic: bool, since: int, credit: int) -> None:
        kind: Any = m.FollowTopic if topic else m.Follow
        self.liars[who].send(kind(req, TOPICS[0] if topic else id, since, credit))

    @rule(who=LIAR, req=REQ, id=ID, queue=QUEUE, key=KEY, ticket=st.booleans(), again=FEW)
    def submit(self, who: int, req: int, id: bytes, queue: str, key: str, ticket: bool, again: int) -> None:
        call = call_of("f", {"key": key, "kind": "generator", "retries": 1, "timeout": 1.0})
        one = m.Submit(req, id, queue, call, ticket=ticket, again=again == 1)
        self.liars[who].send(one if again else m.SubmitMany(req, (one, one)))

    @rule(
        who=LIAR,
        req=REQ,
        name=QUEUE,
        move=st.sampled_from(["drain", "archive", "unarchive"]),
    )
    def shift(self, who: int, req: int, name: str, move: str) -> None:
        self.liars[who].send(m.ShiftQueue(req, name, move))

    @rule(who=LIAR, req=REQ, name=QUEUE)
    def remove(self, who: int, req: int, name: str) -> None:
        self.liars[who].send(m.RemoveQueue(req, name, True))

    @rule(seconds=st.sampled_from([0.0, 0.0, 1.0, 12.0]))
    def wait(self, seconds: float) -> None:
        self.plane.advance(seconds)

    @rule(who=LIAR)
    def cut(self, who: int) -> None:
        self.liars[who].link.cut()
        self.liars[who].open()

    @invariant()
    def lives(self) -> None:
        assert self.plane.failure is None


TestLiars = Liars.TestCase
TestLiars.settings = settings(SILENT, max_examples=60, stateful_step_count=40)


def test_what_is_refused_is_not_kept() -> None:
    with closing(Strict()) as store:
        liar = Liar(world(store))
        for req in range(1, 1000):
            liar.send(m.Wait(req, b"no id"))
            liar.send(m.SubmitMany(req, ()))
        assert liar.guest.open == {}
        assert len(liar.heard) == 2 * 999
        assert {answer.kind for answer in liar.heard} == {"BadRequest"}


def test_a_retry_takes_no_id_of_another() -> None:
    with closing(Strict()) as store:
        plane = world(store)
        client = plane.client()
        assert client.answer(client.ask(m.Retry, IDS[0], IDS[2])).kind == "Conflict"
        accepted = client.answer(client.ask(m.Retry, IDS[0], IDS[11]))
        assert client.answer(client.ask(m.Retry, IDS[0], IDS[11])).id == accepted.id == IDS[11]
        assert client.state(IDS[2]) == "queued"


def test_a_queue_that_is_being_removed_is_not_changed() -> None:
    with closing(Strict()) as store:
        plane = world(store)
        client = plane.client()
        queue = plane.head.space("default").queues["priority"]
        worker = plane.worker(queues=("priority",))
        plane.settle()
        assert client.answer(client.ask(m.RemoveQueue, "priority", True)).value["name"] == "priority"
        for request in (m.PatchQueue, {"description": "x"}), (m.ShiftQueue, "unarchive"):
            kind, change = request
            assert client.answer(client.ask(kind, text_of(queue.id), change)).kind == "Conflict"
        assert worker.jobs
        plane.crash()
        assert "priority" not in plane.head.space("default").queues


def test_a_body_that_begins_for_ever_takes_no_memory() -> None:
    with closing(Strict()) as store:
        plane = world(store)
        liar = Liar(plane)
        liar.send(m.Hello(WORKERS[1], "liar", "h", 1, ("slow",), False, 1))
        id = plane.client().submit(queue="slow", timeout=100.0)
        for _ in range(5000):
            liar.send(m.Began(id, 1))
        plane.settle()
        assert len(plane.head.space("default").queues["slow"].reports.backstops) < 2000
        plane.advance(111.0)
        assert plane.client().state(id) == "timeout"


def test_a_peer_that_waits_twice_for_room_has_one_place() -> None:
    with closing(Strict()) as store:
        plane = world(store)
        liar, client = Liar(plane), plane.client()
        client.ask(m.PatchQueue, "full", {"max_bytes": 100})
        submit = m.Submit(5, IDS[10], "full", call_of("f", {"args": b"x" * 60}))
        liar.send(submit)
        client.kill(IDS[3])
        plane.settle()
        assert isinstance(liar.heard[-1], m.Turn)
        liar.send(submit)
        plane.advance(30.0)
        assert client.submit(queue="full", id=IDS[11], args=b"x" * 60) == IDS[11]


def test_a_link_has_one_worker() -> None:
    with closing(Strict()) as store:
        liar = Liar(world(store))
        hello = m.Hello(WORKERS[1], "liar", "h", 1, (), True, 1)
        liar.send(hello)
        liar.send(replace(hello, worker=WORKERS[2]))
        assert liar.cuts == 1
        liar.send(replace(hello, worker=WORKERS[0]))  # which is there
        assert liar.cuts == 2


@pytest.mark.parametrize("states", [(), ("queued",)])
def test_a_page_beyond_all_rows_is_empty(states: tuple[str, ...]) -> None:
    for store in (Strict(), MemoryStore()):
        client = HandPlane(store=store).client()
        client.submit()
        answer = client.answer(client.ask(m.ListJobs, None, states, None, 200, (1 << 63) - 1))
        assert answer == m.Described(answer.req, ())
        if isinstance(store, Strict):
            store.close()
