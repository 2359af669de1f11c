"""How long a worker in another process may be silent, and what is charged when it was for too long."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from lakeshore.core import messages as m
from lakeshore.core.notes import Overdue
from lakeshore.testing.hand import HandPlane, HandWorker

LEASE, TICK, AWAY = 30.0, 1.0, 10.0


def placed(**hello: Any) -> tuple[HandPlane, Any, HandWorker]:
    plane = HandPlane()
    return plane, plane.client(), plane.worker(leased=True, **hello)


def sleep(plane: HandPlane, seconds: float) -> None:
    """The head's process stands still: its clocks go on."""
    plane.clock.now += seconds
    plane.clock.wall += seconds


def beating(plane: HandPlane, worker: HandWorker, seconds: float, every: float = 10.0) -> None:
    for _ in range(round(seconds / every)):
        plane.advance(every)
        assert worker.beat()


def losses(client: Any, id: bytes) -> list[str]:
    return [each.reason for each in client.record(id).attempts if each.outcome == "lost"]


def test_a_silent_worker_is_lost_after_its_lease_and_no_sooner() -> None:
    plane, client, _worker = placed()
    id = client.submit()
    plane.advance(LEASE)
    assert client.state(id) == "running"
    plane.advance(TICK)
    assert client.record(id).losses == 1
    assert losses(client, id) == ["it was not heard of for 30 s"]


def test_whatever_it_sends_renews_its_lease() -> None:
    plane, client, worker = placed(slots=2)
    id = client.submit()
    other = client.submit(kind="generator")
    for _ in range(10):
        plane.advance(20)
        worker.give(other, "alive")
    assert client.state(id) == "running"


def test_beats_renew_its_lease() -> None:
    plane, client, worker = placed()
    id = client.submit()
    beating(plane, worker, 300)
    assert client.state(id) == "running"
    plane.advance(LEASE + TICK)
    assert losses(client, id) == ["it was not heard of for 30 s"]


def test_a_closed_connection_shortens_the_lease() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    plane.advance(AWAY)
    assert client.state(id) == "running"
    plane.advance(TICK)
    assert client.state(id) == "queued"
    assert losses(client, id) == ["its connection closed and it did not come back within 10 s"]


def test_a_closed_connection_makes_no_lease_longer() -> None:
    plane, client, worker = placed()
    id = client.submit()
    plane.advance(25)
    worker.cut()
    plane.advance(LEASE + TICK - 25)
    assert losses(client, id) == ["it was not heard of for 30 s"]


def test_one_that_beats_without_a_connection_keeps_what_it_has() -> None:
    """A body that blocks the worker's loop breaks the link, and is still alive."""
    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    plane.advance(5)
    assert worker.beat()
    beating(plane, worker, 120)
    worker.relink()
    worker.finish(id, 1)
    assert client.result(id) == 1
    assert worker.started == [id]


def test_a_head_that_stood_still_loses_nobody() -> None:
    plane, client, worker = placed()
    away = plane.worker(leased=True)
    id, other = client.submit(), client.submit()
    plane.advance(0.5)
    away.cut()
    plane.settle()
    sleep(plane, 300)
    plane.settle()
    away.relink()
    plane.advance(9)
    assert (client.state(id), client.state(other)) == ("running", "running")
    worker.finish(id, 1)
    away.finish(other, 2)
    assert (client.result(id), client.result(other)) == (1, 2)
    assert len(worker.started + away.started) == 2


def test_what_came_while_the_head_stood_still_is_heard_first() -> None:
    plane, client, worker = placed()
    id = client.submit()
    plane.advance(LEASE - 1)
    sleep(plane, 40)
    worker.beat()
    plane.advance(LEASE - 1)
    assert client.state(id) == "running"


def test_a_head_that_is_late_all_the_time_counts_only_the_time_it_listens() -> None:
    plane, client, _worker = placed()
    id = client.submit()
    for _ in range(14):  # a second of listening, then four of something else
        plane.advance(1)
        sleep(plane, 4)
    assert client.record(id).losses == 0
    plane.advance(LEASE)
    assert client.record(id).losses == 1


def test_a_worker_whose_machine_slept_is_fenced_and_registers_anew() -> None:
    plane, client, worker = placed()
    other = plane.worker(leased=True)
    id = client.submit()
    asleep, awake = (worker, other) if worker.started else (other, worker)
    asleep.link.hold = asleep.head_link.hold = True
    beating(plane, awake, 300)
    assert awake.started == [id]  # the other's attempt is its own now
    awake.finish(id, "new")
    late = asleep.jobs[id]
    asleep.worker.ended(late, late.succeeded("old", 1.0))
    asleep.link.hold = asleep.head_link.hold = False
    asleep.head_link.deliver()
    asleep.link.deliver()
    plane.settle()
    assert client.result(id) == "new"
    assert asleep.worker.held == 0
    assert any(isinstance(each, m.Anew) for each in asleep.received)
    third, fourth = client.submit(), client.submit()
    assert {*asleep.started, *awake.started} >= {third, fourth}  # both work again


def test_one_that_was_lost_stops_the_bodies_of_its_lost_attempts() -> None:
    plane, client, worker = placed()
    id = client.submit()
    plane.advance(LEASE + TICK)
    plane.settle()
    assert worker.cancelled == [(id, "stale")]
    assert worker.started == [id, id]  # it registered anew, and is as good as any
    worker.finish(id, 1)
    assert client.result(id) == 1
    assert [each.outcome for each in client.record(id).attempts] == ["lost", "succeeded"]


def test_only_as_many_as_it_has_slots_are_charged() -> None:
    plane, client, worker = placed(slots=2)
    for _ in range(8):
        worker.finish(client.submit(), 0)  # short bodies: it is granted ahead
    ids = [client.submit() for _ in range(6)]
    assert worker.worker.held == 6
    worker.cut()
    plane.advance(AWAY + TICK)
    assert [client.record(id).losses for id in ids] == [1, 1, 0, 0, 0, 0]
    assert {client.state(id) for id in ids} == {"queued"}


def test_a_process_that_died_is_lost_at_once_and_says_why() -> None:
    _plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    worker.die("killed by signal 9")
    assert client.state(id) == "queued"
    assert losses(client, id) == ["killed by signal 9"]


def test_what_it_sent_before_it_died_is_heard_first() -> None:
    _plane, client, worker = placed()
    id = client.submit()
    worker.link.hold = True
    worker.finish(id, 1)
    worker.die("exited with status 1")
    assert client.state(id) == "running"
    worker.link.deliver()
    worker.cut()
    assert client.result(id) == 1
    assert client.record(id).losses == 0


def test_one_that_died_behind_a_silent_link_is_waited_for_a_tick() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.link.hold = True
    worker.die("killed by signal 11")
    plane.advance(TICK)
    assert losses(client, id) == ["killed by signal 11"]


def test_the_third_loss_fails_the_job_with_the_last_reason() -> None:
    plane = HandPlane()
    client = plane.client()
    id, harmless = client.submit(retries=5), [client.submit() for _ in range(20)]
    for number, reason in enumerate(("killed by signal 9", "killed by signal 9", "out of memory")):
        worker = plane.worker(leased=True, name="one", host="there", pid=number + 1)
        plane.settle()
        assert worker.started == [id]
        worker.cut()
        worker.die(reason)
    outcome = client.outcome(id)
    assert (outcome.state, outcome.error.type) == ("failed", "lakeshore.WorkerLost")
    assert "lost 3 times" in outcome.error.message
    assert "out of memory" in outcome.error.message
    record = client.record(id)
    assert losses(client, id) == ["killed by signal 9", "killed by signal 9", "out of memory"]
    assert [each.pid for each in record.attempts] == [1, 2, 3]
    assert record.retries == 0
    last = plane.worker(leased=True, name="one", host="there", pid=4)
    plane.settle()
    for each in harmless:
        last.finish(each, 0)
    assert {client.state(each) for each in harmless} == {"succeeded"}


def test_a_worker_started_again_under_the_same_name_is_another() -> None:
    plane, client, worker = placed(name="one", host="there")
    id = client.submit()
    again = plane.worker(leased=True, name="one", host="there")
    plane.settle()
    assert again.started == []  # the first one may still live
    worker.cut()
    plane.advance(AWAY + TICK)
    assert again.started == [id]
    again.finish(id, 1)
    assert client.result(id) == 1


def test_a_worker_that_says_goodbye_is_charged_nothing() -> None:
    plane, client, worker = placed()
    id = client.submit()
    worker.worker.leave()
    worker.link.close()
    plane.settle()
    assert (client.state(id), client.record(id).losses) == ("queued", 0)


def test_nobody_knows_a_worker_that_is_lost() -> None:
    plane, _client, worker = placed()
    worker.cut()
    plane.advance(AWAY + TICK)
    assert not worker.beat()
    worker.relink()
    plane.settle()
    assert worker.beat()


def test_an_in_process_worker_has_no_lease() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    plane.advance(10_000)
    assert client.state(id) == "running"
    worker.link.cut()
    plane.settle()
    assert client.state(id) == "queued"


def test_a_removed_worker_is_told_once_its_jobs_are_killed() -> None:
    from lakeshore.core.notes import Removal

    plane, client, worker = placed(slots=2)
    ids = [client.submit(), client.submit()]
    plane.store.hold = True
    member = plane.head.space("default").members[worker.worker.hello.worker]
    plane.engine.tell(member, Removal("its daemon was removed"))
    plane.settle()
    assert worker.dismissed == []
    plane.store.hold = False
    plane.store.release()
    plane.settle()
    assert worker.dismissed == ["its daemon was removed"]
    assert {why for _, why in worker.cancelled} == {"stale"}
    assert worker.worker.held == 0
    outcomes = [client.outcome(id) for id in ids]
    assert [(each.state, each.reason) for each in outcomes] == [("killed", "its daemon was removed")] * 2
    assert worker.worker.hello.worker not in plane.head.space("default").members


def test_a_removed_worker_that_was_away_is_told_when_it_comes_back() -> None:
    from lakeshore.core.notes import Removal

    plane, client, worker = placed()
    id = client.submit()
    worker.cut()
    member = plane.head.space("default").members[worker.worker.hello.worker]
    plane.engine.tell(member, Removal("its daemon was removed"))
    plane.settle()
    assert client.state(id) == "killed"
    worker.relink()
    plane.settle()
    assert worker.dismissed == ["its daemon was removed"]
    assert worker.cancelled == [(id, "stale")]
    client.submit()
    assert worker.started == [id]


@pytest.mark.parametrize("stop", [False, True])
def test_beats_that_are_late_and_lost_start_nothing_twice(stop: bool) -> None:
    """A body of a minute, five hungry workers, beats delayed and one in four lost."""
    lease = 6.0
    every = lease / 6
    for seed in range(200):
        plane = HandPlane(seed=seed, lease=lease)
        chance, client = random.Random(seed), plane.client()
        first = plane.worker(leased=True)
        id = client.submit()
        others = [plane.worker() for _ in range(5)]
        plane.settle()
        stopped, heard, lost = chance.uniform(5, 40) if stop else 1e9, 0.0, 0
        beats: list[float] = []
        for n in range(60):
            lost = chance.randrange(4) if n % 4 == 0 else lost
            if n % 4 != lost and n * every < stopped:
                beats.append(n * every + chance.uniform(0, 2 * every))
        for at in sorted(beats):
            plane.advance(at - plane.clock.now)
            first.beat()
            heard = at
        plane.advance(lease + TICK if stop else 0)
        starts = [worker for worker in others if worker.started]
        if not stop:
            assert (starts, first.started, client.state(id)) == ([], [id], "running"), seed
            first.finish(id, 1)
            continue
        assert [worker.started for worker in starts] == [[id]], seed
        begun = client.record(id).attempts[1].started_at - 1_700_000_000.0
        assert lease <= begun - heard <= lease + TICK + 1e-5, seed


def test_a_worker_in_the_process_of_its_head_may_be_silent() -> None:
    plane, client, worker = placed(near=True)
    id = client.submit()
    plane.advance(1000)
    worker.finish(id, 1)
    assert (client.result(id), worker.started) == (1, [id])
    next = client.submit()
    worker.cut()
    worker.worker.hello = msgspec.structs.replace(worker.worker.hello, near=False)
    worker.relink()  # to a head in another process
    plane.advance(LEASE + TICK)
    assert client.record(next).losses == 1


def test_a_worker_looked_at_before_the_clock_after_a_sleep_was_not_silent() -> None:
    """What is in the mail when the head goes on comes before its clock has had a look."""
    plane, client, worker = placed()
    id = client.submit()
    plane.advance(5)
    sleep(plane, 10 * LEASE)
    (member,) = plane.head.space("default").members.values()
    plane.engine.tell(member, Overdue())
    plane.settle()
    assert losses(client, id) == []
    worker.finish(id, 1)
    assert client.result(id) == 1
