"""One key, submitted by many at the same moment: one invocation, whatever the queue and whatever before."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import pytest
from planes import PATIENCE, working

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandClient, HandPlane, HandWorker

CROWD, ROUNDS = 64, 24


class Race:
    """Sixty-four clients of one queue, which answers in an order that a seed decides."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.plane, self.rng = HandPlane(seed=seed), random.Random(seed)
        self.client = self.plane.client()
        answer = self.client.answer(self.client.ask(m.AddQueue, "q", declare(settings)))
        assert isinstance(answer, m.Answer), answer
        self.crowd = [self.plane.client() for _ in range(CROWD)]

    def run(self, submit: Callable[[HandClient], int], between: Callable[[], object] = int) -> list[Any]:
        """All submit, some while others are looked up or stored; their answers."""
        store, rng, asked = self.plane.store, self.rng, list[tuple[HandClient, int]]()
        store.hold_reads, store.hold = rng.random() < 0.7, rng.random() < 0.5
        moment = rng.randrange(CROWD)
        for n, client in enumerate(rng.sample(self.crowd, CROWD)):
            asked.append((client, submit(client)))
            if n == moment:
                between()
            if rng.random() < 0.3:
                self.plane.settle()
            if rng.random() < 0.1:
                store.release_reads(1)
            if rng.random() < 0.1:
                store.release(1)
        store.hold = store.hold_reads = False
        while store.release() + store.release_reads():
            self.plane.settle()
        return [client.answer(req) for client, req in asked]

    def same(self, key: str, digest: bytes = b"d") -> Callable[[HandClient], int]:
        """Each submits the same call under the same key."""
        return lambda client: client.start(queue="q", key=key, digest=digest)[1]

    def pending(self) -> int:
        """How many are queued."""
        return self.client.answer(self.client.ask(m.QueueStats, "q")).value["pending"]

    def fill(self, count: int) -> None:
        """Queue so many others."""
        for _ in range(count):
            self.client.submit(queue="q")


def one_id(answers: list[Any]) -> bytes:
    """The id that all were given."""
    assert all(isinstance(answer, m.Accepted) for answer in answers), answers
    assert all(answer.same for answer in answers)
    (id,) = {answer.id for answer in answers}
    return id


def run_all(plane: HandPlane, worker: HandWorker) -> None:
    """Let a worker finish whatever it is given."""
    plane.settle()
    while worker.jobs:
        plane.advance(0.01)  # long enough that it never runs ahead
        worker.finish(next(iter(worker.jobs)), 1)


@pytest.mark.parametrize("on_full", ["reject", "block"])
@pytest.mark.parametrize("room", [0, 1, 5])
def test_a_crowd_with_one_key_is_one_invocation(room: int, on_full: str) -> None:
    """With room for one, none of them is refused and none waits: joining takes no place."""
    race = Race(seed=room, max_depth=5 if room else None, on_full=on_full)
    for round in range(ROUNDS):
        race.fill(5 - room if room else 0)
        before = race.pending()
        answers = race.run(race.same(f"key {round}"))
        id = one_id(answers)
        assert Counter(answer.known for answer in answers) == {False: 1, True: CROWD - 1}
        assert race.pending() == before + 1
        worker = race.plane.worker(queues=("q",))
        run_all(race.plane, worker)
        assert worker.started.count(id) == 1
        worker.link.cut()
        race.plane.settle()


def test_a_crowd_before_a_full_queue_is_one_invocation_once_there_is_room() -> None:
    race = Race(seed=1, max_depth=2, on_full="block")
    for round in range(10):
        race.fill(2)
        assert race.run(race.same(f"key {round}")) == [None] * CROWD
        asked = [(client, max(client.answers)) for client in race.crowd]
        worker = race.plane.worker(queues=("q",))
        run_all(race.plane, worker)
        answers = [client.answer(req) for client, req in asked]
        id = one_id(answers)
        assert [answer.known for answer in answers].count(False) == 1
        assert worker.started.count(id) == 1
        assert len(worker.started) == 3
        assert race.pending() == 0
        blocked = race.client.answer(race.client.ask(m.QueueStats, "q")).value["blocked"]
        assert blocked == 0
        worker.link.cut()


def test_a_held_key_is_answered_before_a_full_queue_of_those_who_wait() -> None:
    race = Race(seed=2, max_depth=1, on_full="block")
    id = race.client.submit(queue="q", key="k", digest=b"d")
    others = [race.plane.client() for _ in range(3)]
    blocked = [client.start(queue="q")[1] for client in others]
    assert one_id(race.run(race.same("k"))) == id
    assert [client.answer(req) for client, req in zip(others, blocked, strict=True)] == [None] * 3


def test_a_crowd_that_does_not_agree_has_one_winner() -> None:
    """Half asks for another call under the key; half of those insists on it."""
    for round in range(ROUNDS):
        race = Race(seed=round)

        def submit(client: HandClient) -> int:
            turn = race.crowd.index(client)  # noqa: B023
            digest = (b"d", b"e")[turn % 2]
            return client.start(queue="q", key="k", digest=digest, strict=turn % 4 > 1)[1]

        answers = race.run(submit)
        accepted = [answer for answer in answers if isinstance(answer, m.Accepted)]
        (id,) = {answer.id for answer in accepted}
        refused = [answer for answer in answers if isinstance(answer, m.Refusal)]
        assert {answer.kind for answer in refused} <= {"KeyConflict"}
        assert len({answer.details["id"] for answer in refused}) <= 1
        assert [answer.known for answer in accepted].count(False) == 1
        assert len(refused) == CROWD // 4  # those who insist on what the winner is not
        assert sum(not answer.same for answer in accepted) == CROWD // 4
        assert race.pending() == 1
        assert race.client.state(id) == "queued"


def _end(race: Race, worker: HandWorker, id: bytes, how: str) -> None:
    match how:
        case "success":
            worker.finish(id, 1)
        case "failure":
            worker.fail(id, ValueError("no"))
        case _:
            race.client.kill(id, running=True)
            race.plane.settle()
            worker.stop(id)


@pytest.mark.parametrize("how", ["success", "failure", "kill"])
def test_a_crowd_around_the_end_of_the_holder_gets_the_holder(how: str) -> None:
    for round in range(ROUNDS):
        race = Race(seed=round, max_depth=1)
        worker = race.plane.worker(queues=("q",))
        id = race.client.submit(queue="q", key="k", digest=b"d")
        answers = race.run(race.same("k"), lambda: _end(race, worker, id, how))  # noqa: B023
        assert one_id(answers) == id
        assert one_id(race.run(race.same("k"))) == id  # and afterwards
        assert worker.started == [id]
        assert race.pending() == 0


def test_a_crowd_around_the_pruning_of_the_holder_gets_one_new_one_at_most() -> None:
    mixed = 0
    for round in range(ROUNDS):
        race = Race(seed=round)
        worker = race.plane.worker(queues=("q",))
        old = race.client.submit(queue="q", key="k", digest=b"d")
        worker.finish(old, 1)
        race.plane.advance(1.0)
        prune = [0]

        def ask(race: Race = race, prune: list[int] = prune) -> None:
            prune[0] = race.client.ask(m.PruneJobs, 0.0)

        answers = race.run(race.same("k"), ask)
        assert isinstance(race.client.answer(prune[0]), m.Answer)
        ids = {answer.id for answer in answers}
        assert len(ids - {old}) <= 1, "two new ones have the key"
        mixed += len(ids) > 1
        for id in ids - {old}:
            assert race.client.state(id) == "running"
        now = one_id(race.run(race.same("k")))
        assert now != old
        assert not ids - {old} or ids - {old} == {now}
        assert worker.started == [old, now]
    assert mixed, "the prune was never in the middle of it"


@dls.udf
def note(log: str, n: int) -> int:
    RUNS[log, n] += 1
    return n


RUNS: Counter[tuple[str, int]] = Counter()


def test_sixty_four_threads_and_one_key_a_round(q: dls.Dispatch, request: pytest.FixtureRequest) -> None:
    name, rounds = request.node.name, 8
    q.queues.add("q", max_depth=1)
    body = dls.udf(note.fn, queue="q")
    barrier, ids = threading.Barrier(CROWD), [set[str]() for _ in range(rounds)]

    def one(_: int) -> None:
        for n in range(rounds):
            barrier.wait(PATIENCE)
            ids[n].add(q.submit(body, name, n, _key=f"key {n}"))
            if barrier.wait(PATIENCE) == 0:
                with working(q) as worker:
                    q.result(next(iter(ids[n])), timeout=PATIENCE)
                assert worker.result() == 1

    with ThreadPoolExecutor(CROWD) as pool:
        list(pool.map(one, range(CROWD)))
    assert [len(found) for found in ids] == [1] * rounds
    assert [RUNS[name, n] for n in range(rounds)] == [1] * rounds
    assert len(q.jobs.list()) == rounds


@pytest.mark.anyio
async def test_sixty_four_tasks_and_one_key_a_round(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q:
        for n in range(20):
            ids: Counter[str] = Counter()

            async def submit(n: int = n, ids: Counter[str] = ids) -> None:
                ids[await q.submit(note, "tasks", n, _key=f"key {n}")] += 1

            async with anyio.create_task_group() as tasks:
                for _ in range(CROWD):
                    tasks.start_soon(submit)
            assert list(ids.values()) == [CROWD]
        assert len(await q.jobs.list()) == 20
