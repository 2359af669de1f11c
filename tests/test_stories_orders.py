"""Priority, places and draws, as somebody who waits sees them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import anyio
import pytest

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.errors import Retry
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandClient, HandPlane, HandWorker

DETERMINED = ["fifo", "filo", "priority", "cold"]


def queue(kind: str, seed: int = 0, **settings: Any) -> tuple[HandPlane, HandClient]:
    """A plane with one queue, `q`. A `cold` one is boltzmann at temperature 0."""
    plane = HandPlane(seed=seed)
    client = plane.client()
    given = {"kind": "boltzmann", "temperature": 0.0} if kind == "cold" else {"kind": kind}
    answer = client.answer(client.ask(m.AddQueue, "q", declare(given | settings)))
    assert isinstance(answer, m.Answer), answer
    return plane, client


def serve(plane: HandPlane, **hello: Any) -> HandWorker:
    worker = plane.worker(queues=("q",), **hello)
    plane.settle()
    return worker


def finish_all(plane: HandPlane, worker: HandWorker) -> list[bytes]:
    """Let it run whatever there is, one after another; what was begun, in order."""
    while worker.jobs:
        plane.advance(0.02)  # bodies that are not short: nothing is granted ahead
        worker.finish(next(iter(worker.jobs)))
    return worker.started


# A high job behind low ones


@pytest.mark.parametrize("kind", ["priority", "cold"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_high_job_is_the_next_to_begin_though_links_are_slow(workers: int, kind: str) -> None:
    """Each slot that comes free after it was accepted is its own: nobody holds low ones in store."""
    plane, client = queue(kind)
    low = [client.submit(queue="q") for _ in range(50)]
    team = [serve(plane, slots=2) for _ in range(workers)]
    for _ in range(10):  # bodies as short as can be
        for worker in team:
            worker.finish(next(iter(worker.jobs)))
    assert all(worker.worker.held == 2 for worker in team)
    for worker in team:
        worker.link.hold = worker.head_link.hold = True
    high = client.submit(queue="q", priority=1.0)
    begun = sum(len(worker.started) for worker in team)
    first = team[-1]
    first.finish(next(iter(first.jobs)))
    first.link.deliver()
    plane.settle()
    first.head_link.deliver()
    assert first.started[-1] == high
    assert sum(len(worker.started) for worker in team) == begun + 1
    assert set(low) - {id for worker in team for id in worker.started}


def test_a_high_job_passes_those_granted_by_a_slow_link_only_once() -> None:
    """One grant for each free slot is on its way when it comes: those begin, and then it does."""
    plane, client = queue("priority")
    worker = serve(plane, slots=2)
    worker.head_link.hold = True
    low = [client.submit(queue="q") for _ in range(10)]
    high = client.submit(queue="q", priority=1.0)
    worker.head_link.hold = False
    worker.head_link.deliver()
    assert worker.started == low[:2]
    worker.finish(low[0])
    assert worker.started == [*low[:2], high]


@pytest.mark.parametrize("after", ["failed", "asked"])
def test_a_high_job_in_its_retry_delay_holds_up_nobody_and_is_next_when_it_is_over(after: str) -> None:
    plane, client = queue("priority", seed=3)
    high = client.submit(queue="q", priority=1.0, retries=1, retry_delay=60.0)
    low = [client.submit(queue="q") for _ in range(300)]
    worker = serve(plane)
    worker.fail(high, ValueError("no") if after == "failed" else Retry(after=20.0))
    due = client.record(high).ready_at
    assert due > plane.clock.wall + 2.0
    while high not in worker.jobs:
        plane.advance(1.0)
        worker.finish(next(iter(worker.jobs)))
    assert worker.started == [high, *low[: len(worker.started) - 2], high]
    assert 0.0 <= plane.clock.wall - due < 1.0, "it begins with the first slot after its delay"


def test_equal_priorities_begin_in_the_order_of_their_submits_also_those_that_came_back() -> None:
    plane, client = queue("priority")
    ids = [client.submit(queue="q", priority=float(n % 2), retries=1, retry_delay=5.0) for n in range(12)]
    worker = serve(plane, slots=3)
    expected = [*ids[1::2], *ids[0::2]]
    assert worker.started == expected[:3]
    worker.fail(expected[1], ValueError("back in a while"))
    worker.link.cut()  # two more come back at once
    plane.settle()
    plane.advance(10.0)
    assert finish_all(plane, serve(plane)) == expected


# A place is kept


def _by_drain(plane: HandPlane, worker: HandWorker, id: bytes) -> None:
    worker.worker.interrupt()
    worker.stop(id)
    worker.worker.leave()


BACK: dict[str, Callable[[HandPlane, HandWorker, bytes], None]] = {
    "loss": lambda plane, worker, id: worker.link.cut(),
    "crash": lambda plane, worker, id: plane.crash(),
    "drain": _by_drain,
    "leaving": lambda plane, worker, id: worker.worker.leave(),
}


def best(kind: str, entries: list[tuple[bytes, float]]) -> list[bytes]:
    """The order of a queue with these entries, in the order of their submits."""
    if kind == "fifo":
        return [id for id, _ in entries]
    if kind == "filo":
        return [id for id, _ in reversed(entries)]
    return [id for id, _ in sorted(entries, key=lambda entry: -entry[1])]


@pytest.mark.parametrize("kind", DETERMINED)
@pytest.mark.parametrize("how", list(BACK))
def test_what_comes_back_has_its_old_place_among_the_old_and_the_new(kind: str, how: str) -> None:
    plane, client = queue(kind)
    entries = [(client.submit(queue="q", priority=p), p) for p in (0.0, 2.0, 1.0, 2.0, 0.0)]
    worker = serve(plane)
    (id,) = worker.jobs
    assert id == best(kind, entries)[0]
    entries += [(client.submit(queue="q", priority=p), p) for p in (2.0, 0.0)]
    BACK[how](plane, worker, id)
    plane.settle()
    assert finish_all(plane, serve(plane)) == best(kind, entries)


@pytest.mark.parametrize("kind", DETERMINED)
def test_what_is_retried_has_its_old_place_once_its_delay_is_over(kind: str) -> None:
    plane, client = queue(kind)
    priorities = (0.0, 2.0, 1.0, 2.0, 0.0)
    entries = [(client.submit(queue="q", priority=p, retries=9), p) for p in priorities]
    worker = serve(plane)
    (id,) = worker.jobs
    worker.worker.drain()
    worker.fail(id, Retry(after=5.0))
    entries += [(client.submit(queue="q", priority=p), p) for p in (2.0, 0.0)]
    plane.advance(6.0)
    assert finish_all(plane, serve(plane)) == best(kind, entries)


@pytest.mark.parametrize("kind", DETERMINED)
def test_what_one_worker_cannot_run_has_its_old_place_for_another(kind: str) -> None:
    plane, client = queue(kind)
    entries = [
        (client.submit("rare" if n % 2 else "f", queue="q", priority=p), p)
        for n, p in enumerate((0.0, 2.0, 1.0, 2.0, 0.0))
    ]
    blind = serve(plane, unknown=["rare"])
    assert len(blind.jobs) == 1
    blind.link.cut()
    plane.settle()
    entries += [(client.submit("rare", queue="q", priority=p), p) for p in (2.0, 0.0)]
    assert finish_all(plane, serve(plane)) == best(kind, entries)


# What is no priority


@dls.udf
def plain(x: int) -> int:
    return x


@dls.udf
def stream(x: int) -> Iterator[int]:
    yield x


BAD = [math.inf, -math.inf, math.nan, 10**400, -(10**400), True, "9", b"9", [1.0], Decimal(1)]


@pytest.mark.parametrize("bad", BAD, ids=[f"{bad!r:.12}" for bad in BAD])
def test_a_priority_that_is_no_finite_number_is_refused_wherever_it_comes_in(bad: Any) -> None:
    def many(**options: Any) -> None:
        with pytest.raises(dls.SubmitErrors) as refused:
            plain.submit_many([{"x": 1, **options}])
        assert refused.value.ids == [None]
        raise refused.value.errors[0]

    async def at_once(**options: Any) -> None:
        await plain.asubmit(1, **options)

    with dls.Dispatch(":memory:") as q:
        ways: list[Callable[..., object]] = [
            lambda **options: plain.submit(1, **options),
            lambda **options: stream.submit(1, **options),
            lambda **options: q.submit(plain, 1, **options),
            lambda **options: q.submit(len, [], **options),
            lambda **options: anyio.run(partial(at_once, **options)),
            many,
        ]
        for way in ways:
            with pytest.raises(ValueError, match=r"_priority=.*finite number"):
                way(_priority=bad)
        for decorate in (lambda: dls.udf(plain.fn, priority=bad), lambda: dls.udf(priority=bad)(plain.fn)):
            with pytest.raises(ValueError, match=r"^priority=.*finite number"):
                decorate()
        assert q.jobs.list() == []
        for limit in (1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 2**63):
            assert plain.submit(1, _priority=limit)


@pytest.mark.parametrize("kind", [*DETERMINED, "boltzmann"])
def test_the_most_extreme_priorities_that_are_numbers_are_in_order(kind: str) -> None:
    plane, client = queue(kind)
    priorities = (0.0, 1.7e308, -1.7e308, 5e-324, -5e-324)
    entries = [(client.submit(queue="q", priority=p), p) for p in priorities]
    ran = finish_all(plane, serve(plane))
    if kind == "boltzmann":
        assert (ran[0], ran[-1]) == (entries[1][0], entries[2][0])
    else:
        assert ran == best(kind, entries)
