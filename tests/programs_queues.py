"""Programs about orders, admission, keys and the states of queues."""

from __future__ import annotations

from typing import Any

import anyio
from programs_world import World, program, udf

import lakeshore as dls


async def _in_order(w: World, kind: Any, **options: Any) -> None:
    await w.q.queues.add("q", kind=kind, **options)
    for number, priority in enumerate((0, 5, -1, 5, 0, float(2), 0)):
        await w.submit(f"{number}", udf("async", queue="q"), [("sleep", 1)], _priority=priority)
    await w.work(drain=True, queues=["q"])
    order = sorted(w.ids, key=lambda label: w.seen(label)[-1][1])
    w.say("in order", *order)


@program(
    """
    plane: ran 7; in order 0 1 2 3 4 5 6
    0: queued running succeeded | succeeded | None
    1: queued running succeeded | succeeded | None
    2: queued running succeeded | succeeded | None
    3: queued running succeeded | succeeded | None
    4: queued running succeeded | succeeded | None
    5: queued running succeeded | succeeded | None
    6: queued running succeeded | succeeded | None
    """
)
async def fifo(w: World) -> None:
    await _in_order(w, "fifo")


@program(
    """
    plane: ran 7; in order 6 5 4 3 2 1 0
    0: queued running succeeded | succeeded | None
    1: queued running succeeded | succeeded | None
    2: queued running succeeded | succeeded | None
    3: queued running succeeded | succeeded | None
    4: queued running succeeded | succeeded | None
    5: queued running succeeded | succeeded | None
    6: queued running succeeded | succeeded | None
    """
)
async def filo(w: World) -> None:
    await _in_order(w, "filo")


@program(
    """
    plane: ran 7; in order 1 3 5 0 4 6 2
    0: queued running succeeded | succeeded | None
    1: queued running succeeded | succeeded | None
    2: queued running succeeded | succeeded | None
    3: queued running succeeded | succeeded | None
    4: queued running succeeded | succeeded | None
    5: queued running succeeded | succeeded | None
    6: queued running succeeded | succeeded | None
    """
)
async def priority(w: World) -> None:
    await _in_order(w, "priority")


@program(
    """
    plane: ran 7; in order 3 1 6 5 0 4 2
    0: queued running succeeded | succeeded | None
    1: queued running succeeded | succeeded | None
    2: queued running succeeded | succeeded | None
    3: queued running succeeded | succeeded | None
    4: queued running succeeded | succeeded | None
    5: queued running succeeded | succeeded | None
    6: queued running succeeded | succeeded | None
    """
)
async def boltzmann(w: World) -> None:
    await _in_order(w, "boltzmann", temperature=1.0, seed=7)


@program(
    """
    plane: ran 7; in order 1 3 5 0 4 6 2
    0: queued running succeeded | succeeded | None
    1: queued running succeeded | succeeded | None
    2: queued running succeeded | succeeded | None
    3: queued running succeeded | succeeded | None
    4: queued running succeeded | succeeded | None
    5: queued running succeeded | succeeded | None
    6: queued running succeeded | succeeded | None
    """
)
async def boltzmann_without_temperature(w: World) -> None:
    await _in_order(w, "boltzmann", temperature=0.0)


@program(
    """
    plane: ran 6
    a: queued running queued running succeeded | failed succeeded | None
    b: queued running queued running succeeded | failed succeeded | None
    c: queued running queued running succeeded | failed succeeded | None
    """
)
async def a_retry_keeps_its_place(w: World) -> None:
    for label in ("a", "b", "c"):
        await w.submit(label, udf("async", retries=1), [("sleep", 1), ("raise", 1.5)], [("sleep", 1)])
    await w.work(drain=True)


@program(
    """
    plane: ran 1
    c: refused QueueFull
    d: refused QueueFull
    f: refused QueueFull
    a: queued |  | still there
    b: queued running succeeded | succeeded | 1
    e: queued |  | still there
    """
)
async def a_full_queue_rejects(w: World) -> None:
    await w.q.queues.add("q", max_depth=2)
    body = udf("async", queue="q")
    for label in ("a", "b", "c", "d"):
        await w.submit(label, body, [("return", 1)], _delay=60 if label == "a" else None)
    await w.work(once=True)
    await w.submit("e", body, [("return", 1)])
    await w.q.queues.patch("q", max_depth=1)
    await w.submit("f", body, [("return", 1)])


async def _submit(w: World, label: str, **options: Any) -> None:
    inv = await w.submit(label, udf("async", queue="q"), [("sleep", 2), ("return", 1)], **options)
    if inv:
        w.say(label, "at", w.now())


@program(
    """
    plane: first at 0.0; high at 4.0; low at 6.0; low too at 8.0
    first: queued running succeeded | succeeded | 1
    low: queued running succeeded | succeeded | 1
    high: queued running succeeded | succeeded | 1
    low too: queued running succeeded | succeeded | 1
    """
)
async def a_full_queue_blocks(w: World) -> None:
    await w.q.queues.add("q", max_depth=1, on_full="block", kind="priority")
    await _submit(w, "first")
    async with anyio.create_task_group() as tasks:
        for label, priority in (("low", 0), ("high", 9), ("low too", 0), ("given up", 5)):
            if label == "given up":
                with anyio.move_on_after(1):
                    await _submit(w, label, _priority=priority)
            else:
                tasks.start_soon(lambda a, b: _submit(w, a, _priority=b), label, priority)
                await anyio.sleep(1)
        async with w.working():
            await anyio.sleep(30)
        tasks.cancel_scope.cancel()


@program(
    """
    plane: first at 0.0; ran 1
    blocked: refused QueueClosed
    first: queued running succeeded | succeeded | 1
    """
)
async def a_blocked_submit_of_a_queue_that_closes(w: World) -> None:
    await w.q.queues.add("q", max_depth=1, on_full="block")
    await _submit(w, "first")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: _submit(w, "blocked"))
        await anyio.sleep(1)
        await w.q.queues.drain("q")
    await w.work(drain=True)


@program(
    """
    plane: 0 at 0.0; 3 at 1.2; ran 2
    1: refused QueueFull
    2: refused QueueFull
    0: queued running succeeded | succeeded | 1
    3: queued running succeeded | succeeded | 1
    """
)
async def a_rate_rejects(w: World) -> None:
    await w.q.queues.add("q", rate_limit="60/m")
    for number in range(4):
        await _submit(w, f"{number}")
        await anyio.sleep(0.4)
    await w.work(drain=True)


@program(
    """
    plane: 0 at 0.0; 1 at 0.0; 2 at 0.5; 3 at 1.0; 4 at 1.5; 5 at 2.0; ran 6
    0: queued running succeeded | succeeded | 1
    1: queued running succeeded | succeeded | 1
    2: queued running succeeded | succeeded | 1
    3: queued running succeeded | succeeded | 1
    4: queued running succeeded | succeeded | 1
    5: queued running succeeded | succeeded | 1
    """
)
async def a_rate_blocks(w: World) -> None:
    await w.q.queues.add("q", rate_limit=2, on_full="block")
    for number in range(6):
        await _submit(w, f"{number}")
    await w.work(drain=True)


@program(
    """
    plane: 0 at 0.0; 1 at 0.0; 2 at 0.0; 3 at 0.0; 4 at 0.0; ran 5; 6.0
    0: queued running succeeded | succeeded | 1
    1: queued running succeeded | succeeded | 1
    2: queued running succeeded | succeeded | 1
    3: queued running succeeded | succeeded | 1
    4: queued running succeeded | succeeded | 1
    """
)
async def at_most_so_many_at_once(w: World) -> None:
    await w.q.queues.add("q", max_running=2)
    for number in range(5):
        await _submit(w, f"{number}")
    await w.work(drain=True, slots=4)
    w.say(w.now())


@program(
    """
    plane: ran 2; ran 1
    after: is a
    after failure: is fails
    differs: is a
    joins: is a
    strict: refused KeyConflict
    a: queued running succeeded | succeeded | 1
    elsewhere: queued running succeeded | succeeded | 3
    fails: queued running failed | failed | ValueError
    """
)
async def keys(w: World) -> None:
    body = udf("async")
    await w.submit("a", body, [("return", 1)], _key="k")
    await w.submit("joins", body, [("return", 1)], _key="k")
    await w.submit("differs", body, [("return", 2)], _key="k")
    await w.submit("strict", body, [("return", 2)], _key="k", _strict_key=True)
    await w.submit("elsewhere", udf("async", queue="other"), [("return", 3)], _key="k")
    await w.work(drain=True)
    await w.submit("after", body, [("return", 1)], _key="k")
    await w.submit("fails", body, [("raise", "value")], _key="f")
    await w.work(drain=True)
    await w.submit("after failure", body, [("raise", "value")], _key="f")


@program("")
async def states_of_a_queue(w: World) -> None:
    await w.q.queues.add("q")
    await _submit(w, "before")
    for move in (
        "pause",
        "pause",
        "resume",
        "drain",
        "resume",
        "archive",
        "pause",
        "unarchive",
        "drain",
        "unarchive",
    ):
        await w.refused("queue", getattr(w.q.queues, move), "q")
        await _submit(w, f"after {move}" if f"after {move}" not in w.ids else f"after {move} again")
    await w.work(drain=True)


@program(
    """
    plane: a at 0.0; ran 0
    a: queued running succeeded | succeeded | 1
    """
)
async def a_paused_queue_hands_out_nothing(w: World) -> None:
    await w.q.queues.add("q")
    await w.q.queues.pause("q")
    await _submit(w, "a")
    await w.work(drain=True)
    await w.see("a")
    async with w.working():
        await anyio.sleep(5)
        await w.q.queues.resume("q")
        await w.end("a")


@program(
    """
    plane: runs at 0.0; queued at 0.0
    queue: rm done; show NotFound
    runs: queued running succeeded | succeeded | 1
    queued: queued killed |  | InvocationKilled
    flaky: queued killed |  | InvocationKilled
    """
)
async def a_removed_queue(w: World) -> None:
    await w.q.queues.add("q")
    await _submit(w, "runs")
    await _submit(w, "queued")
    await w.submit("flaky", udf("async", queue="q", retries=1), [("raise", 5)])
    async with w.working():
        await anyio.sleep(1)
        await w.refused("queue", w.q.queues.rm, "q")
        await w.see("runs", "queued")
        await w.end("runs", "queued", "flaky")
        await w.refused("queue", w.q.queues.show, "q")


@program(
    """
    plane: runs at 0.0; a at 0.0; b at 0.0; 2
    runs: queued running succeeded | succeeded | 1
    a: queued killed |  | InvocationKilled
    b: queued killed |  | InvocationKilled
    elsewhere: queued running succeeded | succeeded | None
    """
)
async def bulk_cancel(w: World) -> None:
    await w.q.queues.add("q")
    for label in ("runs", "a", "b"):
        await _submit(w, label)
    await w.submit("elsewhere", udf("async"), [("sleep", 3)])
    async with w.working(slots=2):
        await anyio.sleep(1)
        w.say(await w.q.jobs.bulk_cancel("q"))
        await w.end("runs", "elsewhere")


@program(
    """
    plane: errors (1, 'TypeError') (5, 'QueueFull'); ran 4
    0: queued running succeeded | succeeded | 1
    2: queued running succeeded | succeeded | 2
    3: queued running succeeded | succeeded | 3
    4: queued running succeeded | succeeded | 3
    """
)
async def many_at_once(w: World) -> None:
    await w.q.queues.add("q", max_depth=4)
    items: list[Any] = [([("return", 1)],), {"plan": 1}, ([("return", 2)],), *[([("return", 3)],)] * 3]
    try:
        await w.q.submit_many(udf("async", queue="q"), items)
    except dls.SubmitErrors as error:
        kinds = [(number, type(one).__name__) for number, one in sorted(error.errors.items())]
        w.say("errors", *kinds)
        w.ids.update({f"{number}": inv for number, inv in enumerate(error.ids) if inv})
    await w.work(drain=True)
