"""Random programs against a small model: every message that leaves is checked against the disk, and
every step against what is promised."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lakeshore.core import messages as m
from lakeshore.core.rows import Batch
from lakeshore.core.settings import declare
from lakeshore.core.values import unpack_frames
from lakeshore.testing.hand import HandClient, HandPlane, HandWorker

TERMINAL = ("succeeded", "failed", "killed", "timeout")
QUEUES = ("default", "urgent")


class Reader:
    """One open stream: what it has been given."""

    def __init__(self, client: HandClient, req: int, id: bytes, since: int) -> None:
        self.client, self.req, self.id, self.next, self.consumed = client, req, id, since, 0
        self.over = False


class World:
    """A plane, what was said by it, and what must be true of it."""

    def __init__(self, seed: int = 0) -> None:
        self.plane = HandPlane(seed=seed)
        self.plane.store.watch = self._stored
        self.disk: dict[bytes, tuple[str, int]] = {}  # newest row of each: state and attempt
        self.chunks: dict[bytes, dict[int, tuple[int, list[object]]]] = defaultdict(dict)
        self.counts: dict[tuple[bytes, int], int] = defaultdict(int)  # frames stored of an attempt
        self.asked: dict[tuple[int, int], tuple[str, bytes, str]] = {}  # what a request was about
        self.acknowledged: dict[bytes, str] = {}  # and in which queue
        self.told: dict[bytes, tuple[str, int]] = {}  # how it ended, as somebody was told
        self.keys: dict[tuple[str, str], bytes] = {}
        self.readers: list[Reader] = []
        self.workers: list[HandWorker] = []
        self.shifted = False  # a queue was paused at some time
        self.client = self._client()
        for name in QUEUES[1:]:
            made = self.client.ask(m.AddQueue, name, declare({"kind": "priority"}))
            assert isinstance(self.client.answer(made), m.Answer)

    # what reaches the disk

    def _stored(self, batch: Batch) -> None:
        for row in (*batch.inserts.values(), *batch.updates.values()):
            state, attempt = self.disk.get(row.id, ("", 0))
            assert state not in TERMINAL, f"{state} and then {row.state}"
            assert row.record.attempt >= attempt
            numbers = [a.number for a in row.record.attempts]
            assert numbers == sorted(set(numbers))
            self.disk[row.id] = (str(row.state), row.record.attempt)
            if row.state == "running":
                assert row.record.attempts[-1].number == row.record.attempt
                assert row.record.attempts[-1].ended_at is None
        for chunk in batch.chunks:
            values = unpack_frames(chunk.data)[1]
            ended = self.disk[chunk.owner][0] in TERMINAL
            assert not ended or (chunk.namespace, chunk.owner) in batch.updates
            for n, value in enumerate(values):
                assert chunk.seq + n == len(self.chunks[chunk.owner]), "frames are consecutive"
                assert value == f"{chunk.attempt}:{self.counts[chunk.owner, chunk.attempt]}", "none twice"
                self.chunks[chunk.owner][chunk.seq + n] = (chunk.attempt, value)
                self.counts[chunk.owner, chunk.attempt] += 1

    # what leaves the head

    def _client(self) -> HandClient:
        client = self.plane.client()
        receive = client.link.receive

        def checked(message: object) -> None:
            self._reaches_client(client, message)
            receive(message)

        client.link.receive = checked
        return client

    def _reaches_client(self, client: HandClient, message: object) -> None:
        about = self.asked.get((id(client), getattr(message, "req", 0)))
        if about is None:
            return
        kind, job, more = about
        if isinstance(message, m.Accepted):
            assert message.id in self.disk, "accepted and not stored"
            self.acknowledged.setdefault(message.id, more.split("/")[0])
            if more.split("/")[1]:
                key = (more.split("/")[0], more.split("/")[1])
                assert self.keys.setdefault(key, message.id) == message.id, "one key, two invocations"
            else:
                assert message.id == job
        elif isinstance(message, m.Outcome):
            assert self.disk[job] == (message.state, message.attempt)
            assert self.told.setdefault(job, (message.state, message.attempt)) == self.disk[job]
        elif isinstance(message, m.Answer) and kind == "kill":
            assert self.disk[job][0] == "killed"
        elif isinstance(message, m.Described):
            ((row, _),) = message.rows
            state, attempt = self.disk[job]
            assert attempt >= row.record.attempt
            assert row.state not in TERMINAL or (row.state, row.record.attempt) == (state, attempt)
        elif isinstance(message, m.Chunk):
            assert message.seq + message.count <= len(self.chunks[job])
        elif isinstance(message, m.StreamEnd):
            assert message.outcome is not None
            assert self.disk[job] == (message.outcome.state, message.outcome.attempt)
            assert message.next_seq == len(self.chunks[job])
        elif isinstance(message, m.Refusal):
            assert message.kind in {"StoreFailed", "Conflict", "NotFound"}, message
            if message.kind == "NotFound":
                assert job not in self.acknowledged, "an acknowledged invocation is gone"

    def _reaches_worker(self, worker: HandWorker, message: object) -> None:
        if isinstance(message, m.Grant):
            row = self.plane.stored(message.id)
            assert row is not None
            mine = [a for a in row.record.attempts if a.number == message.attempt]
            assert [a.worker for a in mine] == [worker.worker.hello.worker]
        elif isinstance(message, m.EndedAck):
            state, attempt = self.disk[message.id]
            assert attempt >= message.attempt
            assert message.state not in TERMINAL or state == message.state
        elif isinstance(message, m.FramesAck):
            assert self.counts[message.id, message.attempt] >= message.index
        elif isinstance(message, m.Quiet) and not worker.quiet:
            assert not worker.jobs
            if worker.worker.hello.limit is not None and worker.started:
                assert len(set(worker.started)) == 1
                row = self.plane.stored(worker.started[0])
                assert row is not None
                last = row.record.attempts[-1]
                here = last.worker == worker.worker.hello.worker and last.outcome == "failed"
                assert row.state in TERMINAL or not here or self.shifted, "its retry is still to come"
        elif isinstance(message, m.Stop) and message.why == "kill":
            row = self.plane.stored(message.id)
            assert row is not None
            assert row.record.killing or row.state in TERMINAL

    # what a test may do

    def ids(self) -> list[bytes]:
        return sorted({job for kind, job, _ in self.asked.values() if kind == "submit"})

    def submit(self, queue: str, function: str = "f", *, key: str = "", **options: Any) -> bytes:
        id_, req = self.client.start(function, queue=queue, key=key, **options)
        self.asked[id(self.client), req] = ("submit", id_, f"{queue}/{key}")
        return id_

    def ask(self, kind: str, job: bytes, *, running: bool = False) -> None:
        if kind == "kill":
            req = self.client.kill(job, running=running)
        else:
            req = self.client.ask(m.Wait if kind == "wait" else m.Get, job)
        self.asked[id(self.client), req] = (kind, job, "")

    def follow(self, job: bytes, since: int, credit: int) -> None:
        since = min(since, len(self.chunks[job]))
        req = self.client.follow(job, since, credit)
        self.asked[id(self.client), req] = ("follow", job, "")
        self.readers.append(Reader(self.client, req, job, since))

    def consume(self, index: int, frames: int) -> None:
        if self.readers:
            reader = self.readers[index % len(self.readers)]
            reader.client.consume(reader.req, frames)

    def shift(self, queue: str, move: str) -> None:
        self.shifted |= move == "pause"
        self.client.ask(m.ShiftQueue, queue, move)

    def bulk(self, queue: str | None) -> None:
        self.client.ask(m.BulkCancel, queue)

    def hire(self, slots: int, **hello: Any) -> HandWorker | None:
        if len(self.workers) >= 3:
            return None
        worker = self.plane.worker(slots=slots, **hello)
        receive = worker.link.receive

        def checked(message: object) -> None:
            self._reaches_worker(worker, message)
            receive(message)

        worker.link.receive = checked
        self.workers.append(worker)
        return worker

    def lose(self, index: int) -> None:
        if self.workers:
            self.workers.pop(index % len(self.workers)).link.cut()

    def work(self, index: int, what: str) -> None:
        jobs = [(worker, job) for worker in self.workers for job in worker.jobs.values()]
        if not jobs:
            return
        worker, job = jobs[index % len(jobs)]
        if job.why:
            worker.stop(job.id)
        elif what == "give":
            worker.give(job.id, *(f"{job.attempt}:{job.sent + n}" for n in range(1 + index % 3)))
        elif what == "fail":
            worker.fail(job.id, ValueError("no"))
        else:
            worker.finish(job.id, "done")

    def hold(self) -> None:
        self.plane.store.hold = True

    def release(self, count: int | None) -> None:
        self.plane.store.hold = count is not None
        self.plane.store.release(count)

    def fail_commits(self, count: int) -> None:
        self.plane.store.failures.extend([OSError("full")] * count)

    def advance(self, seconds: float) -> None:
        self.plane.advance(seconds)

    def jump(self, seconds: float) -> None:
        self.plane.clock.wall += seconds

    def crash(self, unsaid: bool) -> None:
        store = self.plane.store
        if unsaid and store.held:
            store.lose_answer()
        store.hold = False
        store.failures.clear()
        self._read_all()
        self.plane.crash()
        self.workers.clear()
        self.readers.clear()
        self.client = self._client()

    # what must be true after every step

    def _read_all(self) -> None:
        for reader in self.readers:
            for seq, attempt, value in reader.client.arrived(reader.req)[reader.consumed :]:
                reader.consumed += 1
                assert seq == reader.next, "a frame was lost or doubled"
                assert self.chunks[reader.id][seq] == (attempt, value)
                reader.next += 1
            last = reader.client.answers[reader.req][-1:]
            if last and isinstance(last[0], m.StreamEnd):
                assert reader.next == last[0].next_seq, "the end came before the last frame"

    def check(self) -> None:
        plane = self.plane
        plane.settle()
        self._read_all()
        for id_ in self.acknowledged:
            assert id_ in self.disk
            row = plane.stored(id_)
            assert row is not None
            assert (row.state, row.record.attempt) == self.disk[id_]
        (space,) = plane.head.spaces.values()
        for id_, entry in space.live.items():
            assert id_ == entry.id
            backlog = entry.queue.backlog
            places = (backlog._claimable, backlog._delayed)
            queued = sum(entry.place in place for place in places)
            assert queued == (entry.state == "queued")
            assert (id_ in entry.queue.running) == (entry.state == "running")
            if entry.state == "running" and entry.member is not None:
                assert entry.member.grants[id_] == (entry.queue, entry.attempt)
        for queue in space.queues.values():
            assert all(space.live.get(id_) is not None for id_ in queue.running)
            assert queue.backlog.bytes == sum(entry.args_size for entry in queue.backlog)
            assert queue.backlog.retrying == sum(entry.retrying for entry in queue.backlog._delayed.values())
        for worker in [worker for worker in self.workers if worker.quiet]:
            worker.worker.drain()  # nothing is left for it: it ends
            if not worker.worker.held:
                worker.worker.leave()
                worker.link.cut()
                self.workers.remove(worker)
        plane.settle()
        for worker in self.workers:
            member = space.members[worker.worker.hello.worker]
            assert len(worker.jobs) <= worker.worker.hello.slots
            assert len(member.grants) <= max(16, 4 * member.hello.slots)
            if not plane.store.hold and plane.engine.store_error is None:
                self._check_idle(worker)
        if plane.engine.idle and plane.engine.store_error is None:
            for id_, (state, _) in self.disk.items():
                assert (state not in TERMINAL) == (id_ in space.live)

    def _check_idle(self, worker: HandWorker) -> None:
        """No work waits while a worker has room, and one that waits for the end of work is told."""
        member = self.plane.head.spaces["default"].members[worker.worker.hello.worker]
        open_ = [queue for queue in member.queues if queue.state in ("active", "draining")]
        mine = [
            entry
            for queue in open_
            for entry in queue.backlog._claimable
            if entry.call.options.function.name not in worker.unknown
        ]
        retrying = [queue for queue in open_ if queue.backlog.retrying]
        if member.credit > 0:
            assert mine == [], "work waits while a worker has room"
        once = worker.worker.hello.limit is not None
        if worker.worker.hello.quiet and not (member.grants or mine) and (once or not retrying):
            first = worker.started[0] if worker.started else None
            if not once or first is None or self.disk[first][0] in TERMINAL:
                assert worker.quiet >= 1, "nothing is left, and nobody says so"

    def finish(self) -> None:
        """Let everything come to its end, one after the other, and look at the order."""
        plane = self.plane
        plane.store.failures.clear()
        self.release(None)
        plane.advance(10.0)
        while self.workers:
            self.lose(0)
        plane.advance(2000.0)
        for name in QUEUES:
            self.shift(name, "resume")
        self.check()
        (space,) = plane.head.spaces.values()
        for name in QUEUES:
            queue = space.queues[name]
            entries = list(queue.backlog)
            key = (lambda e: e.place) if name == "default" else (lambda e: (-e.priority, e.place))
            expected = [entry.id for entry in sorted(entries, key=key)]
            worker = self.hire(1, queues=(name,))
            assert worker is not None
            plane.settle()
            order = []
            while worker.jobs:
                (job,) = worker.jobs.values()
                order.append(job.id)
                if job.why:
                    worker.stop(job.id)
                else:
                    plane.advance(0.02)
                    worker.finish(job.id, "done")
            assert order == expected
        waits = {}
        for id_ in self.acknowledged:
            waits[id_] = req = self.client.ask(m.Wait, id_)
            self.asked[id(self.client), req] = ("wait", id_, "")
        self.check()
        for id_, req in waits.items():
            (answer,) = self.client.answers[req]
            assert isinstance(answer, m.Outcome)
            stream = self.client.follow(id_)
            frames = self.client.frames(stream)
            assert [(seq, (a, v)) for seq, a, v in frames] == sorted(self.chunks[id_].items())
            end = self.client.end(stream)
            assert isinstance(end, m.StreamEnd)
            self.client.close(stream, id_)
        plane.settle()
        assert space.live == {}
        assert all(queue.intake.keys == {} for queue in space.queues.values())


def random_step(world: World, rng: random.Random) -> None:
    ids = world.ids()
    job = rng.choice(ids) if ids else world.plane.new_id()
    if rng.random() < 0.02:
        job = world.plane.new_id()
    steps = [
        (
            20,
            lambda: world.submit(
                rng.choice(QUEUES),
                rng.choice("fffg"),
                key=rng.choice(("", "", "", "a", "b", "c")),
                priority=float(rng.randint(0, 2)),
                delay=rng.choice((None, None, 1.0, 50.0)),
                deadline=rng.choice((None, None, 5.0, 100.0)),
                retries=rng.randint(0, 2),
                retry_delay=rng.choice((0.0, 3.0)),
                timeout=rng.choice((None, 4.0)),
                kind="generator",
                args=("x" * rng.choice((1, 2000)),),
            ),
        ),
        (40, lambda: world.work(rng.randint(0, 9), rng.choice(("give", "give", "fail", "finish")))),
        (4, lambda: world.hire(rng.randint(1, 3))),
        (2, lambda: world.hire(rng.randint(1, 2), unknown=["g"])),
        (2, lambda: world.hire(rng.randint(1, 2), quiet=True)),
        (3, lambda: world.hire(1, quiet=True, limit=1)),
        (3, lambda: world.lose(rng.randint(0, 2))),
        (6, lambda: world.ask("kill", job, running=rng.random() < 0.5)),
        (5, lambda: world.ask(rng.choice(("wait", "get")), job)),
        (8, lambda: world.follow(job, rng.randint(0, 6), rng.choice((1, 5, 1000)))),
        (8, lambda: world.consume(rng.randint(0, 99), rng.randint(1, 9))),
        (4, world.hold),
        (8, lambda: world.release(rng.choice((1, 2, None)))),
        (1, lambda: world.fail_commits(rng.randint(1, 4))),
        (6, lambda: world.advance(rng.choice((0.01, 0.5, 4.0, 20.0)))),
        (2, lambda: world.jump(rng.choice((-5000.0, -1.0, 5000.0)))),
        (1, lambda: world.crash(rng.random() < 0.5)),
        (2, lambda: world.shift(rng.choice(QUEUES), rng.choice(("pause", "resume", "resume")))),
        (1, lambda: world.bulk(rng.choice((None, *QUEUES)))),
    ]
    rng.choices([step for _, step in steps], [weight for weight, _ in steps])[0]()


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_keep_every_promise(seed: int) -> None:
    rng = random.Random(seed)
    world = World(seed)
    for _ in range(200):
        random_step(world, rng)
        if rng.random() < 0.7:
            world.check()
    world.finish()


class Machine(RuleBasedStateMachine):
    """The same world, driven by hypothesis, which shrinks what it finds."""

    @initialize(slots=st.integers(1, 3))
    def begin(self, slots: int) -> None:
        self.world = World()
        self.world.hire(slots)

    def _job(self, index: int) -> bytes:
        ids = self.world.ids()
        return ids[index % len(ids)] if ids else self.world.plane.new_id()

    @rule(
        queue=st.sampled_from(QUEUES),
        function=st.sampled_from("ffg"),
        key=st.sampled_from(("", "", "a", "b")),
        delay=st.sampled_from((None, 1.0, 50.0)),
        deadline=st.sampled_from((None, 5.0, 100.0)),
        retries=st.integers(0, 2),
        retry_delay=st.sampled_from((0.0, 3.0)),
        timeout=st.sampled_from((None, 4.0)),
        priority=st.sampled_from((0.0, 1.0)),
        args=st.sampled_from((("x",), ("x" * 2000,))),
    )
    def submit(self, queue: str, function: str, key: str, **options: object) -> None:
        self.world.submit(queue, function, key=key, kind="generator", **options)

    @rule(index=st.integers(0, 9), what=st.sampled_from(("give", "fail", "finish")))
    def work(self, index: int, what: str) -> None:
        self.world.work(index, what)

    @rule(slots=st.integers(1, 3), unknown=st.sampled_from(((), ("g",))), quiet=st.booleans())
    def hire(self, slots: int, unknown: tuple[str, ...], quiet: bool) -> None:
        self.world.hire(slots, unknown=unknown, quiet=quiet)

    @rule()
    def hire_once(self) -> None:
        self.world.hire(1, quiet=True, limit=1)

    @rule(index=st.integers(0, 2))
    def lose(self, index: int) -> None:
        self.world.lose(index)

    @rule(index=st.integers(0, 9), running=st.booleans())
    def kill(self, index: int, running: bool) -> None:
        self.world.ask("kill", self._job(index), running=running)

    @rule(index=st.integers(0, 9), kind=st.sampled_from(("wait", "get")))
    def ask(self, index: int, kind: str) -> None:
        self.world.ask(kind, self._job(index))

    @rule(index=st.integers(0, 9), since=st.integers(0, 5), credit=st.sampled_from((1, 5, 1000)))
    def follow(self, index: int, since: int, credit: int) -> None:
        self.world.follow(self._job(index), since, credit)

    @rule(index=st.integers(0, 99), frames=st.integers(1, 9))
    def consume(self, index: int, frames: int) -> None:
        self.world.consume(index, frames)

    @rule()
    def hold(self) -> None:
        self.world.hold()

    @rule(count=st.sampled_from((1, 2, None)))
    def release(self, count: int | None) -> None:
        self.world.release(count)

    @rule(count=st.integers(1, 3))
    def fail_commits(self, count: int) -> None:
        self.world.fail_commits(count)

    @rule(seconds=st.sampled_from((0.01, 0.5, 4.0, 20.0)))
    def advance(self, seconds: float) -> None:
        self.world.advance(seconds)

    @rule(seconds=st.sampled_from((-5000.0, 5000.0)))
    def jump(self, seconds: float) -> None:
        self.world.jump(seconds)

    @rule(unsaid=st.booleans())
    def crash(self, unsaid: bool) -> None:
        self.world.crash(unsaid)

    @rule(queue=st.sampled_from(QUEUES), move=st.sampled_from(("pause", "resume")))
    def shift(self, queue: str, move: str) -> None:
        self.world.shift(queue, move)

    @rule(queue=st.sampled_from((None, *QUEUES)))
    def bulk(self, queue: str | None) -> None:
        self.world.bulk(queue)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.finish()


Machine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestMachine = Machine.TestCase
