"""Programs about workers: once, drain, slots, grace, hooks."""

from __future__ import annotations

import gc
from typing import Any

import anyio
from programs_world import World, program, udf

import lakeshore as dls

SLEEPY = [("sleep", 3), ("return", 1)]


@program(
    """
    plane: ran 0; ran 0; ran 1; 33.0; ran 1
    delayed: queued |  | still there
    flaky: queued running queued running succeeded | failed succeeded | 1
    next: queued running succeeded | succeeded | 1
    """
)
async def exactly_once(w: World) -> None:
    await w.work(once=True)
    await w.submit("delayed", udf("async"), SLEEPY, _delay=60)
    await w.work(once=True)
    await w.submit("flaky", udf("async", retries=2), [("raise", 30)], SLEEPY)
    await w.submit("next", udf("async"), SLEEPY)
    await w.work(once=True)
    w.say(w.now())
    await w.work(once=True)
    await w.see("delayed", "next")


@program(
    """
    plane: ran 2; 33.0
    flaky: queued running queued running succeeded | failed succeeded | 1
    delayed: queued |  | still there
    paused: queued |  | still there
    """
)
async def drained(w: World) -> None:
    await w.submit("flaky", udf("async", retries=2), [("raise", 30)], SLEEPY)
    await w.submit("delayed", udf("async"), SLEEPY, _delay=60)
    await w.submit("paused", udf("async", queue="paused"), SLEEPY)
    await w.q.queues.pause("paused")
    await w.work(drain=True)
    w.say(w.now())
    await w.see("delayed", "paused")


@program(
    """
    plane: ran 6; 9.0
    0: queued running succeeded | succeeded | None
    1: queued running succeeded | succeeded | None
    2: queued running succeeded | succeeded | None
    3: queued running succeeded | succeeded | None
    4: queued running succeeded | succeeded | None
    5: queued running succeeded | succeeded | None
    """
)
async def slots(w: World) -> None:
    for number in range(6):
        await w.submit(f"{number}", udf("async"), [("sleep", 1 + number)])
    await w.work(drain=True, slots=3)
    w.say(w.now())


@program(
    """
    plane: 12.0; ran 2
    short: queued running succeeded | succeeded | 1
    long: queued running queued running succeeded | returned succeeded | 'by the next worker'
    queued: queued running succeeded | succeeded | 1
    """
)
async def a_drain_gives_back_what_outlives_its_grace(w: World) -> None:
    await w.submit("short", udf("async"), [("sleep", 8), ("return", 1)])
    await w.submit("long", udf("async"), [("linger", 1)], [("return", "by the next worker")])
    await w.submit("queued", udf("async"), SLEEPY)
    async with w.working(slots=2, grace=10):
        await anyio.sleep(1)
    w.say(w.now())
    await w.see("short", "long", "queued")
    await w.work(drain=True)


@program(
    """
    plane: ran 1
    a: queued running queued running succeeded | returned succeeded | 2
    """
)
async def a_cancelled_worker_gives_back(w: World) -> None:
    await w.submit("a", udf("async", retries=1), [("linger", 1)], [("return", 2)])
    with anyio.move_on_after(5):
        await w.work()
    await w.see("a")
    await w.work(drain=True)


@program(
    """
    plane: 4.0
    0: queued running succeeded | succeeded | None
    1: queued running succeeded | succeeded | None
    2: queued running succeeded | succeeded | None
    3: queued running succeeded | succeeded | None
    """
)
async def two_workers(w: World) -> None:
    for number in range(4):
        await w.submit(f"{number}", udf("async"), [("sleep", 2)])
    async with w.working(), w.working():
        await w.end(*w.ids)
        w.say(w.now())


@program(
    """
    plane: ran 1; ran 1
    a: queued running succeeded | succeeded | 'a'
    b: queued running succeeded | succeeded | 'b'
    """
)
async def a_worker_of_some_queues(w: World) -> None:
    for queue in ("a", "b"):
        await w.q.queues.add(queue)
        await w.submit(queue, udf("async", queue=queue), [("return", queue)])
    await w.work(drain=True, queues=["b"])
    await w.see("a", "b")
    await w.work(drain=True)


def _picky(run: Any) -> None:
    if run.attempt == 1:
        raise ValueError("not yet")


@program(
    """
    plane: ran 6
    sync: queued running failed | failed | ValueError
    sync, retried: queued running queued running succeeded | failed succeeded | 1
    async: queued running failed | failed | ValueError
    async, retried: queued running queued running succeeded | failed succeeded | 1
    """
)
async def a_run_setup_that_fails(w: World) -> None:
    for kind in ("sync", "async"):
        await w.submit(kind, udf(kind), [("return", 1)])
        await w.submit(
            f"{kind}, retried", udf(kind, retries=1, retry_delay=0.001, retry_cap=0.001), [("return", 1)]
        )
    await w.work(drain=True, hooks=dls.Hooks(on_run_setup=_picky))


@program(
    """
    plane: ran 4
    killed: queued killed |  | InvocationKilled
    0: queued running succeeded | succeeded | 0
    1: queued running succeeded | succeeded | 1
    2: queued running succeeded | succeeded | 2
    again: queued running succeeded | succeeded | 0
    """
)
async def a_pickle_that_is_needed_late(w: World) -> None:
    kept = udf("async", timeout=5)
    await w.submit("killed", udf("async", timeout=5), [("return", 0)])
    await w.q.kill(w.ids["killed"])
    for number in range(3):  # in a file its pickle goes along with the first grant, which needs none
        await w.submit(f"{number}", kept, [("return", number)])
    gc.collect()  # the body of the killed one goes
    w.ids["again"] = await w.q.retry(w.ids["killed"])
    await w.work(drain=True)
