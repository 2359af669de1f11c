"""The head is killed at every commit: what was acknowledged is there, and goes on as promised."""

from __future__ import annotations

import contextlib

import pytest

from lakeshore.core import messages as m
from lakeshore.core.errors import Retry
from lakeshore.core.rows import LoadLive
from lakeshore.core.settings import declare
from lakeshore.core.values import unpack
from lakeshore.testing.hand import HandPlane


class Stopped(Exception):
    """The program got as far as it was to go."""


class Program:
    """One program, which the head's death may end after any of its commits.

    `seen` holds what the clients were told; `check` compares it with what is there after a restart.
    """

    def __init__(self, stop_after: int, how: str) -> None:
        self.plane = HandPlane(seed=7)
        self.stop_after, self.how, self.count = stop_after, how, 0
        self.accepted: list[bytes] = []
        self.ended: dict[bytes, m.Outcome] = {}
        self.frames: list[object] = []
        self.posts: list[int] = []
        self.plane.store.watch = lambda batch: self._count()
        self.client, self.worker = self.plane.client(), self.plane.worker(slots=2)
        self.ids: list[bytes] = []

    def _count(self) -> None:
        self.count += 1
        if self.count == self.stop_after:
            self.plane.store.hold = True  # this one is stored, the next one never

    def step(self) -> None:
        self.plane.settle()
        if self.plane.store.held:
            if self.how == "unsaid":  # stored, but nobody was told
                self.plane.store.lose_answer()
            raise Stopped

    def submit(self, **options) -> bytes:
        id, req = self.client.start(**options)
        self.ids.append(id)
        self.step()
        assert isinstance(self.client.answers[req][-1], m.Accepted)
        self.accepted.append(id)
        wait = self.client.ask(m.Wait, id)
        self.client.answers[wait] = answers = _Told(self, id)
        self.client.client._waiting[wait] = answers.append
        self.step()
        return id

    def run(self) -> None:
        keyed = self.submit(key="k", digest=b"d", args=("x" * 2000,))
        stream = self.submit(kind="generator", retries=2, retry_delay=0.0)
        follow = self.client.follow(stream)
        waiting = [self.submit() for _ in range(4)]
        self.submit(delay=100.0, deadline=500.0)
        for value in ("a", "b"):
            self.worker.give(stream, value)
            self.step()
            self.frames = [v for _, _, v in self.client.arrived(follow)]
        self.worker.finish(keyed, "y" * 2000)
        self.step()
        self.worker.fail(stream, ValueError("again"))
        self.step()
        if stream in self.worker.jobs:
            self.worker.give(stream, "c")
            self.step()
            self.frames = [v for _, _, v in self.client.arrived(follow)]
        for value in range(2):
            post = self.client.post("t", value)
            self.step()
            self.posts.append(self.client.answers[post][-1].value)
        kill = self.client.kill(waiting[3])
        self.step()
        assert self.client.answers[kill]
        for id in list(self.worker.jobs):
            self.worker.finish(id, 1)
            self.step()


class _Told(list):
    def __init__(self, program: Program, id: bytes) -> None:
        super().__init__()
        self.program, self.id = program, id

    def append(self, answer: object) -> None:
        if isinstance(answer, m.Outcome):
            assert self.id not in self.program.ended
            self.program.ended[self.id] = answer


def how_many_commits() -> int:
    program = Program(10**9, "lost")
    program.run()
    return program.count


@pytest.mark.parametrize("how", ["lost", "unsaid"])
@pytest.mark.parametrize("stop_after", range(1, how_many_commits() + 1))
def test_a_head_killed_after_any_commit_keeps_what_it_said(stop_after: int, how: str) -> None:
    program = Program(stop_after, how)
    plane = program.plane
    with contextlib.suppress(Stopped):
        program.run()
    before = {id: plane.stored(id) for id in program.ids}
    plane.store.hold = False
    plane.crash()
    client = plane.client()
    queue = plane.head.spaces["default"].queues["default"]
    for id in program.accepted:
        row = plane.stored(id)
        assert row is not None, "an acknowledged submit is gone"
        if id in program.ended:
            told = program.ended[id]
            outcome = client.outcome(id)
            assert (outcome.state, outcome.attempt, outcome.result) == (
                told.state,
                told.attempt,
                told.result,
            )
        elif not before[id].state.terminal:
            assert client.state(id) == "queued"
    for id, row in before.items():
        if row is None:
            assert client.state(id) == "NotFound"
        elif row.state == "running":
            last = client.record(id).attempts[-1]
            assert (last.outcome, last.reason) == ("lost", "its process ended")
            assert client.record(id).losses == row.record.losses + 1
    if len(program.ids) > 1 and before[program.ids[1]] is not None:
        stream = program.ids[1]
        follow = client.follow(stream)
        frames = [v for _, _, v in client.frames(follow)]
        assert frames[: len(program.frames)] == program.frames
        assert frames == ["a", "b", "c"][: len(frames)]
    if program.ids and before[program.ids[0]] is not None:
        again = client.start(key="k", digest=b"d", strict=True)[1]
        assert client.answer(again).id == program.ids[0]
    # and it goes on to its end, in order, once each
    live = [entry.id for entry in sorted(queue.backlog, key=lambda entry: entry.place)]
    assert live == [id for id in program.ids if id in set(live)]
    worker = plane.worker()
    plane.settle()
    order = []
    for _ in range(20):
        for id in list(worker.jobs):
            order.append(id)
            plane.advance(0.02)
            worker.finish(id, 2)
    plane.advance(100.0)
    for id in list(worker.jobs):
        order.append(id)
        worker.finish(id, 2)
    assert order == live
    for id in program.ids:
        if plane.stored(id) is not None:
            assert plane.stored(id).state.terminal
            if plane.stored(id).state == "succeeded" and id not in program.ended and id in live:
                assert unpack(client.outcome(id).result) == 2
    post = client.post("t", "next")
    assert client.answer(post).value >= len(program.posts)


def test_at_most_slots_losses_are_charged_for_one_worker_of_the_former_host() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=2)
    ids = [client.submit() for _ in range(40)]
    for id in ids[:8]:
        worker.finish(id)
    plane.crash()
    client = plane.client()
    assert [client.record(id).losses for id in ids[8:26]] == [1, 1] + [0] * 16
    assert {client.state(id) for id in ids[8:]} == {"queued"}
    rows = client.answer(client.ask(m.ListWorkers, True)).value
    assert [row["state"] for row in rows] == ["ended"]


def test_the_third_loss_by_crash_is_the_last() -> None:
    plane = HandPlane()
    client = plane.client()
    id = client.submit(kind="generator", timeout=60.0)
    for n in range(3):
        worker = plane.worker()
        plane.settle()
        worker.give(id, n)
        plane.settle()
        plane.crash()
    client = plane.client()
    outcome = client.outcome(id)
    assert (outcome.state, outcome.error.type) == ("failed", "lakeshore.WorkerLost")
    assert "its process ended" in outcome.error.message
    stream = client.follow(id)
    assert client.frames(stream) == [(0, 1, 0), (1, 2, 1), (2, 3, 2)]
    assert client.end(stream).outcome.state == "failed"
    plane.crash()
    assert plane.client().state(id) == "failed"


def test_delays_and_deadlines_survive_as_the_time_that_remains() -> None:
    plane = HandPlane()
    client = plane.client()
    delayed, due = client.submit(delay=100.0), client.submit(deadline=200.0)
    plane.advance(40.0)
    plane.crash()
    client, worker = plane.client(), plane.worker(queues=("other",))
    plane.advance(59.9)
    queue = plane.head.spaces["default"].queues["default"]
    assert queue.backlog.claimable == 1
    plane.advance(0.2)
    assert queue.backlog.claimable == 2
    plane.advance(99.8)
    assert client.state(due) == "queued"
    plane.advance(0.2)
    assert client.state(due) == "timeout"
    assert client.state(delayed) == "queued"
    assert not worker.jobs


@pytest.mark.parametrize("what", ["delay", "deadline", "retry"])
@pytest.mark.parametrize("jump", [-10_000.0, 10_000.0])
def test_a_jump_of_the_wall_clock_never_makes_it_longer_than_asked(what: str, jump: float) -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    if what == "retry":
        plane.advance(1000.0)
        id = client.submit(retries=1)
        worker.fail(id, Retry(after=50.0))
    else:
        shift = client.ask(m.ShiftQueue, "default", "pause")
        client.answer(shift)
        id = client.submit("f", **{what: 50.0})
    plane.advance(10.0)
    plane.clock.wall += jump
    plane.crash()
    client, worker = plane.client(), plane.worker()
    client.answer(client.ask(m.ShiftQueue, "default", "resume"))
    if what == "deadline":
        client.answer(client.ask(m.ShiftQueue, "default", "pause"))
        worker.link.cut()
        plane.advance(50.0)
        assert client.state(id) in ("timeout", "queued")
        plane.advance(0.1)
        assert client.state(id) == "timeout"
        return
    assert (id in worker.jobs) == (jump > 0)
    plane.advance(49.9)
    assert (id in worker.jobs) == (jump > 0)
    plane.advance(0.2)
    assert id in worker.jobs


def test_a_running_plane_does_not_look_at_the_wall_clock() -> None:
    plane = HandPlane()
    client = plane.client()
    delayed = client.submit(delay=10.0)
    due = client.submit(deadline=20.0)
    worker = plane.worker(queues=("none",))
    plane.clock.wall -= 86_400.0
    plane.advance(10.0)
    assert plane.head.spaces["default"].queues["default"].backlog.claimable == 2
    plane.clock.wall += 2 * 86_400.0
    plane.advance(9.9)
    assert client.state(due) == "queued"
    plane.advance(0.1)
    assert client.state(due) == "timeout"
    assert client.state(delayed) == "queued"
    assert not worker.jobs


def test_large_arguments_are_there_after_a_return_before_the_first_commit() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    plane.settle()
    plane.store.hold = True
    client.start(queue="other")
    plane.settle()  # a commit is in flight
    id, req = client.start(args=("z" * 5000,))
    plane.settle()
    worker.link.cut()  # claimed, never granted
    plane.settle()
    plane.store.release(1)
    second = plane.worker()
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    assert client.answer(req) == m.Accepted(req, id)
    assert second.jobs[id].args == ("z" * 5000,)
    second.link.cut()
    plane.settle()
    queue = plane.head.spaces["default"].queues["default"]
    assert [entry.args for entry in queue.backlog] == [None]  # on disk, not in memory
    third = plane.worker()
    plane.settle()
    assert third.jobs[id].args == ("z" * 5000,)


def test_large_arguments_count_after_a_restart_and_leave_memory_again() -> None:
    plane = HandPlane()
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "q", declare({"max_bytes": 10_000})))
    id = client.submit(queue="q", args=("z" * 9000,))
    plane.crash()
    client = plane.client()
    queue = plane.head.spaces["default"].queues["q"]
    assert queue.backlog.bytes > 9000
    assert client.answer(client.start(queue="q", args=("z" * 9000,))[1]).kind == "QueueFull"
    worker = plane.worker(queues=("q",))
    plane.settle()
    assert queue.backlog.bytes == 0
    assert worker.jobs[id].args == ("z" * 9000,)
    worker.link.cut()
    plane.settle()
    assert [(entry.args, entry.args_size > 9000) for entry in queue.backlog] == [(None, True)]


def test_why_an_attempt_failed_is_known_after_a_restart() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit(retries=3)
    worker.fail(id, Retry(after=100.0))
    before = client.record(id).error
    plane.crash()
    client = plane.client()
    assert before is not None
    assert client.record(id).error == before
    last = client.answer(client.ask(m.Why, id)).value[-1]
    assert last.startswith("attempt 1 at worker 'hand' (")
    assert " failed: " in last


def test_queues_and_their_settings_survive() -> None:
    plane = HandPlane()
    client = plane.client()
    settings = {"kind": "priority", "max_depth": 3, "on_full": "block", "description": "d"}
    client.answer(client.ask(m.AddQueue, "q", declare(settings)))
    client.answer(client.ask(m.ShiftQueue, "q", "pause"))
    ids = [client.submit(queue="q", priority=p) for p in (1.0, 3.0, 2.0)]
    before = client.answer(client.ask(m.ShowQueue, "q")).value
    plane.crash()
    client = plane.client()
    assert client.answer(client.ask(m.ShowQueue, "q")).value == before
    _, blocked = client.start(queue="q")
    assert client.answer(blocked) is None
    client.answer(client.ask(m.ShiftQueue, "q", "resume"))
    worker = plane.worker(queues=("q",), slots=3)
    plane.settle()
    assert worker.started[:3] == [ids[1], ids[2], ids[0]]
    assert isinstance(client.answer(blocked), m.Accepted)


def test_a_failed_open_says_so() -> None:
    plane = HandPlane()
    plane.client().submit()
    read = plane.store.inner.read

    def broken(query, done) -> None:
        if isinstance(query, LoadLive):
            done(OSError("bad sector"))
        else:
            read(query, done)

    plane.store.inner.read = broken
    with pytest.raises(OSError, match="bad sector"):
        plane.crash()
    plane.store.inner.read = read
    plane.crash()
    assert len(plane.head.spaces["default"].live) == 1
