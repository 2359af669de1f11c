"""Keys, admission, tickets and turns."""

from __future__ import annotations

import itertools
import random

import pytest

from lakeshore.core import messages as m
from lakeshore.core.errors import Retry
from lakeshore.core.settings import check_patch, declare
from lakeshore.testing.hand import HandClient, HandPlane

TEXT = "x" * 600  # packs to a bit more


def plane_with_queue(**settings) -> tuple[HandPlane, HandClient]:
    plane = HandPlane()
    client = plane.client()
    answer = client.answer(client.ask(m.AddQueue, "q", declare(settings)))
    assert isinstance(answer, m.Answer), answer
    return plane, client


def queue_of(plane: HandPlane):
    return plane.head.spaces["default"].queues["q"]


def stats(client: HandClient):
    return client.answer(client.ask(m.QueueStats, "q")).value


# Keys


def test_sixty_four_submits_of_one_key_are_one_invocation_and_one_read() -> None:
    plane, client = plane_with_queue(max_depth=1)
    clients = [plane.client() for _ in range(64)]
    plane.store.hold_reads = True
    asked = [c.start(queue="q", key="k", digest=b"d") for c in clients]
    plane.settle()
    assert len(plane.store.held_reads) == 1
    plane.store.release_reads()
    answers = [c.answer(req) for c, (_, req) in zip(clients, asked, strict=True)]
    assert {answer.id for answer in answers} == {asked[0][0]}
    assert [answer.known for answer in answers] == [False] + [True] * 63
    assert all(answer.same for answer in answers)
    assert stats(client)["pending"] == 1


def test_memory_is_looked_at_again_when_a_read_returns() -> None:
    plane, client = plane_with_queue()
    first = client.submit(queue="q", key="k")
    worker = plane.worker(queues=("q",))
    plane.settle()
    worker.finish(first)
    plane.store.hold_reads = True
    _, req = client.start(queue="q", key="k")  # reads: the invocation left memory
    retry = client.ask(m.Retry, first, new := plane.new_id())
    plane.settle()
    late = plane.store.held_reads.popleft()
    while plane.store.held_reads:
        plane.store.release_reads()
        plane.settle()
    assert client.answer(retry) == m.Accepted(retry, new)
    plane.store.inner.read(*late)
    assert client.answer(req).id == new


@pytest.mark.parametrize("state", ["queued", "running", "succeeded", "failed", "killed", "crashed"])
def test_a_key_is_held_whatever_the_state(state: str) -> None:
    plane, client = plane_with_queue()
    worker = plane.worker(queues=("q",)) if state != "queued" else None
    id = client.submit(queue="q", key="k", digest=b"d")
    if worker is not None and state == "succeeded":
        worker.finish(id)
    if worker is not None and state == "failed":
        worker.fail(id, ValueError())
    if worker is not None and state == "killed":
        client.kill(id, running=True)
        plane.settle()
        worker.stop(id)
    if state == "crashed":
        plane.crash()
        client = plane.client()
    plane.settle()
    same, other = (client.start(queue="q", key="k", digest=d)[1] for d in (b"d", b"e"))
    assert client.answer(same) == m.Accepted(same, id, True, True)
    assert client.answer(other) == m.Accepted(other, id, True, False)
    strict = client.start(queue="q", key="k", digest=b"e", strict=True)[1]
    refusal = client.answer(strict)
    assert refusal.kind == "KeyConflict"
    assert len(refusal.details["id"]) == 26
    agreed = client.start(queue="q", key="k", digest=b"d", strict=True)[1]
    assert client.answer(agreed).id == id
    elsewhere = client.submit(queue="default", key="k", digest=b"d")
    assert elsewhere != id


@pytest.mark.parametrize("move", [None, "drain", "archive", "pause"])
def test_a_known_key_is_answered_where_nothing_is_admitted(move: str | None) -> None:
    _, client = plane_with_queue(max_depth=1, on_full="block")
    id = client.submit(queue="q", key="k")
    if move is not None:
        client.answer(client.ask(m.ShiftQueue, "q", move))
    for known in (True, False):
        if not known:  # not in memory any more, but in the store
            client.answer(client.kill(id))
        _, req = client.start(queue="q", key="k")
        assert client.answer(req) == m.Accepted(req, id, True, True)
    assert stats(client)["pending"] == 0
    assert stats(client)["blocked"] == 0


@pytest.mark.parametrize("when", ["it lived", "it came and went"])
def test_a_key_whose_holder_ends_during_a_look_up_is_known(when: str) -> None:
    plane = HandPlane(seed=1)
    client, worker = plane.client(), plane.worker()
    held = client.submit(key="k1") if when == "it lived" else None
    plane.store.hold_reads = True
    _, req = client.submit_many(2, keys=["k1", "k2"])
    plane.settle()
    if held is None:
        plane.store.release_reads(1)  # nothing is known of k1, and k2 is still being read
        _, single = client.start(key="k1")
        plane.settle()
        plane.store.held_reads.rotate(1)
        plane.store.release_reads(1)
        held = client.answer(single).id
    worker.finish(held, 1)
    plane.settle()
    plane.store.hold_reads = False
    plane.store.release_reads()
    first, second = client.answer(req).results
    assert (first.id, first.known) == (held, True)
    assert not second.known
    intake = plane.head.spaces["default"].queues["default"].intake
    assert not intake._undecided
    assert not intake._former


@pytest.mark.parametrize("seed", range(60))
def test_a_key_is_one_invocation_in_every_interleaving(seed: int) -> None:
    plane, rng = HandPlane(seed=seed), random.Random(seed)
    clients = [plane.client() for _ in range(3)]
    workers = [plane.worker(slots=3) for _ in range(2)]
    asked: list[tuple[HandClient, int, list[str]]] = []
    for _ in range(120):
        client = rng.choice(clients)
        match rng.choice(("one", "many", "many", "end", "end", "reads", "hold", "commit")):
            case "one":
                key = rng.choice("abc")
                asked.append((client, client.start(key=key)[1], [key]))
            case "many":
                keys = [rng.choice("abcd") for _ in range(rng.randint(2, 4))]
                asked.append((client, client.submit_many(len(keys), keys=keys)[1], keys))
            case "end":
                worker = rng.choice(workers)
                if worker.jobs:
                    worker.finish(rng.choice(list(worker.jobs)), 1)
            case "reads":
                plane.store.release_reads(rng.randint(1, 2))
            case "hold":
                plane.store.hold_reads, plane.store.hold = rng.random() < 0.7, rng.random() < 0.3
            case _:
                plane.store.release()
        if rng.random() < 0.7:
            plane.settle()
    plane.store.hold = plane.store.hold_reads = False
    while plane.store.release() + plane.store.release_reads():
        plane.settle()
    holders: dict[str, set[bytes]] = {}
    for client, req, keys in asked:
        answer = client.answer(req)
        results = answer.results if isinstance(answer, m.SubmittedMany) else [answer]
        for key, result in zip(keys, results, strict=True):
            assert isinstance(result, m.Accepted), result
            holders.setdefault(key, set()).add(result.id)
    assert all(len(ids) == 1 for ids in holders.values()), holders
    intake = plane.head.spaces["default"].queues["default"].intake
    assert not intake._undecided
    assert not intake._former


def test_a_key_is_free_when_its_row_is_pruned() -> None:
    plane, client = plane_with_queue()
    worker = plane.worker(queues=("q",))
    id = client.submit(queue="q", key="k")
    worker.finish(id)
    plane.advance(10)
    assert client.submit(queue="q", key="k") == id
    assert client.answer(client.ask(m.PruneJobs, 5.0)).value == 1
    new = client.submit(queue="q", key="k")
    assert new != id
    assert client.state(id) == "Expired"


def test_a_retry_takes_the_key_over_with_its_digest() -> None:
    plane, client = plane_with_queue()
    worker = plane.worker(queues=("q",))
    old = client.submit(queue="q", key="k", digest=b"d", args=("x" * 3000,), priority=2.0)
    live = client.ask(m.Retry, old, plane.new_id())
    assert client.answer(live).kind == "Conflict"
    worker.fail(old, ValueError("no"))
    new = plane.new_id()
    retry = client.ask(m.Retry, old, new)
    assert client.answer(retry) == m.Accepted(retry, new)
    row = plane.stored(new)
    assert (row.call.retry_of, row.call.key, row.record.priority) == (old, "k", 2.0)
    assert worker.jobs[new].args == ("x" * 3000,)
    for _ in range(2):
        strict = client.start(queue="q", key="k", digest=b"d", strict=True)[1]
        assert client.answer(strict) == m.Accepted(strict, new, True, True)
        if new in worker.jobs:
            worker.finish(new, 1)
    assert plane.stored(old).call.key == "k"  # kept for display
    again = client.ask(m.Retry, old, newest := plane.new_id())
    assert client.answer(again).id == newest
    third = client.ask(m.Retry, new, plane.new_id())
    assert client.answer(third).kind == "Conflict"  # `newest` holds the key and lives


def test_a_retry_of_what_was_killed_before_its_first_commit_has_its_arguments() -> None:
    plane = HandPlane()
    client = plane.client()
    plane.settle()
    plane.store.hold = True
    client.start()
    plane.settle()
    id, _ = client.start(args=("y" * 5000,))
    kill = client.kill(id)
    plane.settle()
    plane.store.hold = False
    plane.store.release()
    assert client.answer(kill) == m.Answer(kill)
    retry = client.ask(m.Retry, id, new := plane.new_id())
    assert client.answer(retry).id == new
    worker = plane.worker(slots=2)
    plane.settle()
    assert worker.jobs[new].args == ("y" * 5000,)


# Depth


def test_depth_is_exact_and_counts_delayed_ones_but_not_running() -> None:
    plane, client = plane_with_queue(max_depth=3)
    client.submit(queue="q", delay=60.0)
    client.submit(queue="q")
    third = client.submit(queue="q")
    _, req = client.start(queue="q")
    refusal = client.answer(req)
    assert refusal.kind == "QueueFull"
    assert "max_depth 3" in refusal.message
    plane.worker(queues=("q",))
    plane.settle()
    assert stats(client) == {**stats(client), "pending": 2, "running": 1}
    client.submit(queue="q")
    assert client.answer(client.start(queue="q")[1]).kind == "QueueFull"
    client.answer(client.kill(third))
    client.submit(queue="q")


def test_returns_are_never_refused_and_a_lower_limit_evicts_nothing() -> None:
    plane, client = plane_with_queue(max_depth=2)
    ids = [client.submit(queue="q", retries=1) for _ in range(2)]
    worker = plane.worker(queues=("q",))
    plane.settle()
    client.submit(queue="q")
    worker.fail(ids[0], ValueError())
    plane.settle()
    assert stats(client)["pending"] + stats(client)["running"] == 3
    patch = client.ask(m.PatchQueue, "q", check_patch({"max_depth": 1}))
    client.answer(patch)
    assert stats(client)["pending"] == 2
    assert client.answer(client.start(queue="q")[1]).kind == "QueueFull"


def test_the_hint_tells_how_fast_places_come_free() -> None:
    plane, client = plane_with_queue(max_depth=1)
    worker = plane.worker(queues=("q",))
    assert client.submit(queue="q")
    for _ in range(4):
        client.submit(queue="q")
        plane.advance(2.0)
        worker.finish(next(iter(worker.jobs)))
    client.submit(queue="q")
    refusal = client.answer(client.start(queue="q")[1])
    assert refusal.details == {"retry_after": pytest.approx(2.0)}


# Blocking


def test_blocked_submitters_enter_in_the_order_of_their_arrival() -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block")
    clients = [plane.client() for _ in range(5)]
    client.submit(queue="q")
    asked = []
    for n, c in enumerate(clients):
        asked.append(c.start(queue="q", priority=float(n)))
        plane.settle()
    assert stats(client)["blocked"] == 5
    assert all(c.answers[req] == [] for c, (_, req) in zip(clients, asked, strict=True))
    worker = plane.worker(queues=("q",))
    order = []
    for _ in range(6):
        plane.advance(1.0)
        (id,) = worker.jobs
        order.append(id)
        worker.finish(id)
    assert order[1:] == [id for id, _ in asked]
    assert stats(client)["blocked"] == 0


def test_in_a_priority_queue_the_highest_enters_first() -> None:
    plane, client = plane_with_queue(kind="priority", max_depth=1, on_full="block")
    client.submit(queue="q")
    asked = [client.start(queue="q", priority=p)[0] for p in (0.0, 5.0, 0.0, 9.0)]
    worker = plane.worker(queues=("q",))
    order = []
    for _ in range(5):
        plane.advance(1.0)
        (id,) = worker.jobs
        order.append(id)
        worker.finish(id)
    assert order[1:] == [asked[3], asked[1], asked[0], asked[2]]


def test_a_turn_is_reserved_for_ten_seconds_and_then_passed_on() -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block")
    first = client.submit(queue="q")
    slow, quick = plane.client(), plane.client()
    _, lost = slow.start(queue="q")
    plane.settle()
    id, req = quick.start(queue="q")
    plane.settle()
    slow.link.hold = True  # its payload does not come
    client.answer(client.kill(first))
    assert client.answer(client.start(queue="q")[1]) is None  # the reserved place is nobody else's
    plane.advance(9.9)
    assert quick.answers[req] == []
    plane.advance(0.2)
    assert quick.answer(req) == m.Accepted(req, id)
    slow.link.hold = False
    slow.link.deliver()
    assert slow.answer(lost) is None  # too late: it waits anew, behind the one that came meanwhile
    assert stats(client)["blocked"] == 2


@pytest.mark.parametrize("how", ["withdrawn", "cut"])
@pytest.mark.parametrize("when", ["waiting", "turn"])
def test_who_goes_away_makes_room(how: str, when: str) -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block", rate_limit=1000)
    first = client.submit(queue="q")
    leaver, next_one = plane.client(), plane.client()
    _, gone = leaver.start(queue="q")
    plane.settle()
    id, req = next_one.start(queue="q")
    plane.settle()
    leaver.head_link.hold = when == "turn"
    if when == "turn":
        client.answer(client.kill(first))
        assert next_one.answers[req] == []
    if how == "cut":
        leaver.link.cut()
    else:
        leaver.close(gone)
    plane.settle()
    if when == "waiting":
        assert stats(client)["blocked"] == 1
        client.answer(client.kill(first))
    assert next_one.answer(req) == m.Accepted(req, id)
    assert queue_of(plane).intake._reserved == {}


def test_a_withdrawn_turn_gives_its_token_back() -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block", rate_limit=1)
    first = client.submit(queue="q")  # takes the one token there is
    plane.advance(5.0)  # one token again, no more
    leaver, next_one = plane.client(), plane.client()
    _, gone = leaver.start(queue="q")
    plane.settle()
    _, req = next_one.start(queue="q")
    plane.settle()
    leaver.link.hold = leaver.head_link.hold = True
    client.answer(client.kill(first))
    leaver.link.hold = leaver.head_link.hold = False
    leaver.close(gone)
    assert isinstance(next_one.answer(req), m.Accepted)  # at once


def test_a_waiter_that_withdraws_during_its_key_read_leaves_no_ticket() -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block")
    client.submit(queue="q")
    plane.store.hold_reads = True
    _, req = client.start(queue="q", key="k")
    plane.settle()
    client.close(req)
    plane.settle()
    plane.store.release_reads()
    assert stats(client)["blocked"] == 0


def test_blocked_submitters_are_woken_with_the_reason() -> None:
    for move in ("drain", "archive"):
        plane, client = plane_with_queue(max_depth=1, on_full="block")
        client.submit(queue="q")
        _, req = client.start(queue="q")
        _, many = client.submit_many(3, queue="q")
        plane.settle()
        client.answer(client.ask(m.ShiftQueue, "q", move))
        assert client.answer(req).kind == "QueueClosed"
        (result,) = client.answer(many).results
        assert result.kind == "QueueClosed"


@pytest.mark.parametrize("how", ["room", "archive"])
def test_three_thousand_who_wait_are_served_in_steps(how: str) -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block")
    client.submit(queue="q")
    asked = [client.start(queue="q")[1] for _ in range(3000)]
    plane.settle()
    assert stats(client)["blocked"] == 3000
    left = [3000]
    if how == "room":
        client.ask(m.PatchQueue, "q", check_patch({"max_depth": 10_000}))
    else:
        client.ask(m.ShiftQueue, "q", "archive")
    while plane.engine.pump(1):
        left.append(queue_of(plane).intake.blocked)
    plane.settle()
    left.append(queue_of(plane).intake.blocked)
    assert max(before - after for before, after in itertools.pairwise(left)) == 1000
    assert left[-1] == 0
    kinds = {client.answers[req][-1].kind if how == "archive" else "Accepted" for req in asked}
    assert kinds == {"QueueClosed" if how == "archive" else "Accepted"}
    if how == "room":
        assert all(isinstance(client.answer(req), m.Accepted) for req in asked)
        assert not queue_of(plane).intake._reserved
        plane.advance(10.0)
        assert not queue_of(plane).intake._lapses


def test_a_tiny_rate_is_said_in_a_short_sentence() -> None:
    plane, client = plane_with_queue(rate_limit=1e-300)
    client.submit(queue="q")
    refused = client.answer(client.start(queue="q")[1])
    plane.settle()
    assert refused.kind == "QueueFull"
    assert len(refused.message) < 120


def test_submit_many_goes_on_in_order_where_it_was_blocked() -> None:
    plane, client = plane_with_queue(max_depth=3, on_full="block")
    ids, req = client.submit_many(10, queue="q")
    plane.settle()
    other, late = client.start(queue="q")
    assert client.answer(req) is None
    assert stats(client)["pending"] == 3
    worker = plane.worker(queues=("q",))
    order = []
    plane.settle()
    while worker.jobs:
        (id,) = worker.jobs
        order.append(id)
        plane.advance(0.1)
        worker.finish(id)
    assert [result.id for result in client.answer(req).results] == ids
    assert client.answer(late).id == other
    assert [id for id in order if id != other] == ids


@pytest.mark.parametrize("reads_held", [False, True])
def test_keyed_items_of_a_submit_many_wait_for_room_like_others(reads_held: bool) -> None:
    plane, client = plane_with_queue(max_depth=2, on_full="block")
    known = client.submit(queue="q", key="k0")
    plane.store.hold_reads = reads_held
    keys = ["", "k0", "k1", "", "k1", "k2"]
    ids, req = client.submit_many(6, queue="q", keys=keys)
    plane.settle()
    worker = plane.worker(queues=("q",))
    plane.settle()
    order = []
    for _ in range(20):
        plane.store.release_reads()
        plane.settle()
        for id in list(worker.jobs):
            order.append(id)
            plane.advance(0.1)
            worker.finish(id)
    results = client.answer(req).results
    assert [result.id for result in results] == [ids[0], known, ids[2], ids[3], ids[2], ids[5]]
    assert order == [known, ids[0], ids[2], ids[3], ids[5]]


def test_a_cancelled_submit_many_leaves_what_was_admitted_and_frees_its_ticket() -> None:
    plane, client = plane_with_queue(max_depth=2, on_full="block")
    ids, req = client.submit_many(5, queue="q")
    plane.settle()
    other = plane.client()
    later, second = other.start(queue="q")
    plane.settle()
    client.close(req)
    assert stats(client)["blocked"] == 1
    client.answer(client.kill(ids[0]))
    assert other.answer(second) == m.Accepted(second, later)
    assert [client.state(id) for id in ids] == ["killed", "queued"] + ["NotFound"] * 3


def test_items_that_are_refused_leave_the_others() -> None:
    _, client = plane_with_queue(max_depth=2)
    ids, req = client.submit_many(4, queue="q")
    results = client.answer(req).results
    assert [type(result).__name__ for result in results] == ["Accepted"] * 2 + ["Refusal"] * 2
    assert [client.state(id) for id in ids[:2]] == ["queued"] * 2


# Rate, bytes, cut-off, running


def test_the_rate_limit_is_a_bucket_of_one_second() -> None:
    plane, client = plane_with_queue(rate_limit=5)
    answers = [client.answer(client.start(queue="q")[1]) for _ in range(7)]
    assert [isinstance(answer, m.Accepted) for answer in answers] == [True] * 5 + [False] * 2
    assert answers[-1].details == {"retry_after": pytest.approx(0.2)}
    client.answer(client.ask(m.ShiftQueue, "q", "pause"))  # is no way around it
    client.answer(client.ask(m.PatchQueue, "q", check_patch({"description": "new"})))
    assert client.answer(client.start(queue="q")[1]).kind == "QueueFull"
    plane.advance(0.2)
    assert isinstance(client.answer(client.start(queue="q")[1]), m.Accepted)
    assert client.answer(client.start(queue="q")[1]).kind == "QueueFull"


def test_a_blocking_rate_limit_lets_in_one_after_the_other() -> None:
    plane, client = plane_with_queue(rate_limit=2, on_full="block")
    _, req = client.submit_many(6, queue="q")
    times = []
    for _ in range(40):
        plane.advance(0.1)
        times.append(stats(client)["pending"])
    assert times[3] == 2
    assert times[5] == 3
    assert times[-1] == 6
    assert times.index(6) == pytest.approx(20, abs=1)
    assert len(client.answer(req).results) == 6


def test_max_bytes_is_exact_also_for_those_who_waited() -> None:
    plane, client = plane_with_queue(max_bytes=2000, on_full="block")
    sizes = []

    def watch() -> None:
        sizes.append(queue_of(plane).backlog.bytes)

    asked = [client.start(queue="q", args=(TEXT,)) for _ in range(8)]
    plane.settle()
    watch()
    assert stats(client)["pending"] == 3
    worker = plane.worker(queues=("q",))
    order = []
    plane.settle()
    while worker.jobs:
        watch()
        (id,) = worker.jobs
        order.append(id)
        plane.advance(0.1)
        worker.finish(id)
    assert max(sizes) <= 2000
    assert order == [id for id, _ in asked]
    assert queue_of(plane).backlog.bytes == 0
    _, req = client.start(queue="q", args=(TEXT * 4,))
    assert client.answer(req).kind == "QueueFull"  # it would wait for ever


def test_max_running_is_exact() -> None:
    plane, client = plane_with_queue(max_running=2)
    ids = [client.submit(queue="q", retries=1, retry_delay=0.0) for _ in range(6)]
    workers = [plane.worker(queues=("q",), slots=2) for _ in range(3)]
    plane.settle()

    def running() -> list[bytes]:
        return [id for worker in workers for id in worker.jobs]

    assert sorted(running()) == ids[:2]
    for worker in workers:
        if ids[0] in worker.jobs:
            worker.fail(ids[0], ValueError())
        elif ids[1] in worker.jobs:
            worker.finish(ids[1])
    seen = set()
    for _ in range(12):
        assert len(running()) <= 2
        seen |= set(running())
        for worker in workers:
            for id in list(worker.jobs)[:1]:
                worker.finish(id)
    assert seen >= set(ids[2:])
    assert {client.state(id) for id in ids} == {"succeeded"}
    more = [client.submit(queue="q") for _ in range(6)]
    plane.settle()
    client.answer(client.ask(m.PatchQueue, "q", check_patch({"max_running": 5})))
    plane.settle()
    assert len(running()) == 5
    assert set(running()) <= set(more)


def test_the_cut_off_counts_claimable_time() -> None:
    plane, client = plane_with_queue(deadline_cutoff_s=10.0)
    now, delayed = client.submit(queue="q"), client.submit(queue="q", delay=20.0)
    own = client.submit(queue="q", deadline=4.0)
    wait = client.ask(m.Wait, now)
    plane.advance(4.0)
    assert client.state(own) == "timeout"
    plane.advance(5.9)
    assert client.state(now) == "queued"
    plane.advance(0.1)
    assert (client.answer(wait).state, client.answer(wait).attempt) == ("timeout", 0)
    plane.advance(19.9)
    assert client.state(delayed) == "queued"
    plane.advance(0.1)
    assert client.state(delayed) == "timeout"


@pytest.mark.parametrize("how", ["crash", "lost", "unresolved", "retry"])
def test_a_return_does_not_begin_the_cut_off_anew_and_running_does_not_count(how: str) -> None:
    plane, client = plane_with_queue(deadline_cutoff_s=10.0)
    id = client.submit(queue="q", retries=3)
    plane.advance(6.0)
    if how == "crash":
        plane.crash()
        client = plane.client()
    else:
        worker = plane.worker(queues=("q",), unknown=["f"] if how == "unresolved" else [])
        plane.settle()
        if how == "unresolved":
            assert not worker.jobs
        else:
            plane.advance(30.0)
            assert client.state(id) == "running"
            if how == "retry":
                worker.worker.drain()
                worker.fail(id, Retry(after=20.0))
                plane.advance(20.0)
            else:
                worker.link.cut()
    plane.settle()
    plane.advance(3.9)
    assert client.state(id) == "queued"
    plane.advance(0.2)
    assert client.state(id) == "timeout"


@pytest.mark.parametrize("jump", [-10_000.0, 10_000.0])
def test_the_cut_off_is_never_longer_than_asked(jump: float) -> None:
    plane, client = plane_with_queue(deadline_cutoff_s=10.0)
    id = client.submit(queue="q")
    plane.clock.wall += jump
    plane.crash()
    client = plane.client()
    plane.settle()
    plane.advance(10.0)
    assert client.state(id) == "timeout"


def test_expiry_makes_room_for_those_who_wait() -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block", deadline_cutoff_s=10.0)
    client.submit(queue="q")
    id, req = client.start(queue="q")
    plane.advance(10.0)
    assert client.answer(req) == m.Accepted(req, id)


def test_a_once_worker_that_takes_its_retry_makes_room() -> None:
    plane, client = plane_with_queue(max_depth=1, on_full="block")
    once = plane.worker(queues=("q",), quiet=True, limit=1)
    first = client.submit(queue="q", retries=1, retry_delay=0.0)
    id, req = client.start(queue="q")
    assert client.answer(req) == m.Accepted(req, id)
    third, waits = client.start(queue="q")
    assert client.answer(waits) is None
    client.answer(client.kill(id))
    assert client.answer(waits) == m.Accepted(waits, third)
    fourth, waits = client.start(queue="q")
    assert client.answer(waits) is None
    client.answer(client.ask(m.PatchQueue, "q", check_patch({"max_depth": 2})))
    assert client.answer(waits) == m.Accepted(waits, fourth)
    _, waits = client.start(queue="q")
    once.fail(first, ValueError())
    assert once.started == [first, first]
    assert client.answer(waits) is None
    client.answer(client.kill(third))
    assert isinstance(client.answer(waits), m.Accepted)


def test_a_full_memory_store_refuses_and_keeps_what_it_has() -> None:
    from lakeshore.store.memory import MemoryStore

    plane = HandPlane(store=MemoryStore(memory_limit=40_000))
    client = plane.client()
    answers = [client.answer(client.start(args=(TEXT,))[1]) for _ in range(100)]
    accepted = [answer for answer in answers if isinstance(answer, m.Accepted)]
    assert 10 < len(accepted) < 50
    assert answers[-1].kind == "QueueFull"
    assert "memory limit" in answers[-1].message
    assert {client.state(answer.id) for answer in accepted} == {"queued"}


@pytest.mark.parametrize("count", [5, 2500])
@pytest.mark.parametrize("many", [False, True])
def test_who_waits_with_a_key_is_answered_once_another_has_it(count: int, many: bool) -> None:
    plane = HandPlane()
    admin = plane.client()
    admin.answer(admin.ask(m.AddQueue, "q", declare({"max_depth": 1, "on_full": "block"})))
    admin.submit(queue="q")
    clients = [plane.client() for _ in range(count if not many else 3)]
    if many:
        asked = [client.submit_many(1, queue="q", keys=["k"], digest=b"d")[1] for client in clients]
    else:
        asked = [client.start(queue="q", key="k", digest=b"d")[1] for client in clients]
    plane.settle()
    other = admin.start(queue="q")[1]
    worker = plane.worker(queues=("q",))  # it takes the first: a place comes free, for one of them
    answers = [client.answer(req) for client, req in zip(clients, asked, strict=True)]
    ids = {getattr(answer, "results", (answer,))[0].id for answer in answers}
    assert len(ids) == 1
    assert admin.answer(other) is None  # there is no room
    intake = plane.head.spaces["default"].queues["q"].intake
    assert (len(intake._tickets), intake._same, intake._joining) == (1, {}, [])
    worker.finish(worker.started[0])
    assert admin.answer(other) is not None


def test_a_key_that_is_withdrawn_leaves_nothing() -> None:
    plane = HandPlane()
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "q", declare({"max_depth": 1, "on_full": "block"})))
    client.submit(queue="q")
    for _ in range(3):
        client.client.drop(client.start(queue="q", key="k")[1])
    plane.settle()
    intake = plane.head.spaces["default"].queues["q"].intake
    assert (intake._tickets, intake._numbers, intake._same) == ({}, {}, {})
