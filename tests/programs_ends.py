"""Programs about kills, timeouts, waits, retries by hand, and pruning."""

from __future__ import annotations

from datetime import timedelta

import anyio
from programs_world import World, program, udf

LONG = [("set", "begun"), ("linger", 1)]


@program(
    """
    plane: ran 0
    a: queued killed |  | InvocationKilled
    delayed: queued killed |  | InvocationKilled
    """
)
async def kills_of_what_is_queued(w: World) -> None:
    await w.submit("a", udf("async"), [("return", 1)])
    await w.submit("delayed", udf("async"), [("return", 2)], _delay=60)
    for label in ("a", "delayed"):
        await w.refused(label, w.q.kill, w.ids[label])
        await w.refused(label, w.q.kill, w.ids[label])
    await w.work(drain=True)


@program(
    """
    async: running killed | killed | InvocationKilled
    agen: running killed | killed | InvocationKilled | 1
    next: running succeeded | succeeded | 1
    """
)
async def kills_of_what_runs(w: World) -> None:
    async with w.working():
        await w.submit("async", udf("async", retries=3), LONG)
        await w.event("begun").wait()
        await w.refused("async", w.q.kill, w.ids["async"])
        await w.see("async")
        await w.refused("async", w.q.kill, w.ids["async"], running=True)
        w.note("async", "dead at", w.now())
        await w.refused("async", w.q.kill, w.ids["async"], running=True)
        await w.submit("agen", udf("async_generator"), [("yield", 1), ("set", "yielded"), ("linger", 1)])
        await w.event("yielded").wait()
        await w.refused("agen", w.q.kill, w.ids["agen"], running=True)
        await w.submit("next", udf("async"), [("return", 1)])
        await w.end("next")
        await w.refused("next", w.q.kill, w.ids["next"], running=True)


@program(
    """
    a: running queued killed | failed | InvocationKilled
    """
)
async def a_kill_in_a_retry_delay(w: World) -> None:
    async with w.working():
        await w.submit("a", udf("async", retries=3), [("raise", 50)])
        await anyio.sleep(1)
        await w.see("a")
        await w.refused("a", w.q.kill, w.ids["a"])


@program(
    """
    returns: running succeeded | succeeded | 'done'
    raises: running failed | failed | ValueError
    obeys: running killed | killed | InvocationKilled
    """
)
async def a_body_outruns_its_kill(w: World) -> None:
    plan = [("set", "begun"), ("wait", "killed"), ("return", "never")]
    async with w.working():
        for label, last in (("returns", ("return", "done")), ("raises", ("raise", "value"))):
            await w.submit(label, stubborn, last)
            await w.event("begun").wait()
            await w.refused(label, w.q.kill, w.ids[label], running=True)
            w.forget("begun")
        await w.submit("obeys", udf("async"), plan)
        await w.event("begun").wait()
        await w.refused("obeys", w.q.kill, w.ids["obeys"], running=True)


async def stubborn(last: tuple[str, object]) -> object:
    """Swallows its cancel and ends in its own way."""
    from programs_world import ERRORS, here

    assert here is not None
    here.event("begun").set()
    with anyio.CancelScope() as scope:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            scope.cancel()
    if last[0] == "raise":
        raise ERRORS[str(last[1])]()
    return last[1]


@program(
    """
    in time: running succeeded | succeeded | 1
    too long: running timeout | timeout | InvocationTimeout
    cleans up: running timeout | timeout | InvocationTimeout
    cleans up too long: running timeout | timeout | InvocationTimeout
    shorter: queued running timeout | timeout | InvocationTimeout
    yields: queued running timeout | timeout | InvocationTimeout | 1 2
    """
)
async def timeouts(w: World) -> None:
    async with w.working():
        for label, options, plan in (
            ("in time", {"timeout": 5}, [("sleep", 4), ("return", 1)]),
            ("too long", {"timeout": 5, "retries": 3}, [("sleep", 6)]),
            ("cleans up", {"timeout": 5}, [("linger", 2)]),
            ("cleans up too long", {"timeout": 5}, [("linger", 60)]),
        ):
            await w.submit(label, udf("async", **options), plan)
            await w.end(label)
            w.note(label, "over at", w.now())
        await w.submit("shorter", udf("async", timeout=50), [("sleep", 6)], _timeout=2)
        await w.submit(
            "yields",
            udf("async_generator", timeout=5),
            [("yield", 1), ("sleep", 3), ("yield", 2), ("sleep", 3)],
        )
        await w.end("shorter", "yields")


@program(
    """
    sync: running timeout | timeout | InvocationTimeout
    generator: running timeout | timeout | InvocationTimeout
    """
)
async def timeouts_on_threads(w: World) -> None:
    w.deaf = True  # virtual time does not wait for threads: a body may be stopped before it begins
    async with w.working():
        for kind in ("sync", "generator"):
            await w.submit(kind, udf(kind, timeout=1), [("spin", 0), ("return", 1)])
            await anyio.sleep(1.5)
            with w.standstill():
                await w.end(kind)


@program(
    """
    later: queued running succeeded | succeeded | 1
    in a minute: queued running succeeded | succeeded | 1
    now: queued running succeeded | succeeded | 1
    missed: queued timeout |  | InvocationTimeout
    met: queued running succeeded | succeeded | 1
    delayed past it: queued timeout |  | InvocationTimeout
    """
)
async def delays_and_deadlines(w: World) -> None:
    woke = [("sleep", 0), ("return", 1)]
    await w.submit("later", udf("async"), woke, _delay=30)
    await w.submit("in a minute", udf("async"), woke, _delay=timedelta(minutes=1))
    await w.submit("now", udf("async"), woke)
    await w.submit("missed", udf("async"), woke, _deadline=20)
    await w.submit("met", udf("async"), woke, _deadline=200)
    await w.submit("delayed past it", udf("async"), woke, _delay=40, _deadline=35)
    await w.see("later", "missed")
    await anyio.sleep(25)
    async with w.working():
        await w.end(*w.ids)


@program(
    """
    plane: 38.0
    first: queued running queued timeout | failed | InvocationTimeout
    second: queued running succeeded | succeeded | None
    third: queued timeout |  | InvocationTimeout
    """
)
async def a_cutoff_of_a_queue(w: World) -> None:
    await w.q.queues.add("cut", deadline_cutoff_s=10)
    body = udf("async", queue="cut", retries=1)
    await w.submit("first", body, [("sleep", 8), ("raise", 9)], [("sleep", 1)])
    await w.submit("second", body, [("sleep", 30)])
    await w.submit("third", body, [("sleep", 1)])
    async with w.working():
        await w.end("first", "second", "third")
    w.say(w.now())


@program(
    """
    a: queued running succeeded | succeeded | 1
    """
)
async def waits_that_run_out(w: World) -> None:
    await w.submit("a", udf("async"), [("sleep", 10), ("return", 1)])
    await w.refused("a", w.q.result, w.ids["a"], timeout=5)
    await w.refused("a", w.q.result, w.ids["a"], timeout=0)
    async with w.working():
        with anyio.move_on_after(5):
            await w.q.result(w.ids["a"])
        with anyio.move_on_after(1):
            await w.read("cancelled", "a")
        w.note("a", "goes on at", w.now())
        await w.refused("a", w.q.result, w.ids["a"], timeout=60)
        w.note("a", "ended at", w.now())


@program(
    """
    plane: ran 3; ran 4
    done by key: is done again
    failed by key: is failed again
    killed by key: is killed again
    timed out by key: is timed out again
    done: queued running succeeded | succeeded | 1
    failed: queued running failed | failed | ValueError
    timed out: queued running timeout | timeout | InvocationTimeout
    killed: queued killed |  | InvocationKilled
    done again: queued running succeeded | succeeded | 1
    failed again: queued running failed | failed | ValueError
    timed out again: queued running timeout | timeout | InvocationTimeout
    killed again: queued running succeeded | succeeded | 2
    """
)
async def retries_by_hand(w: World) -> None:
    ends = ([("return", 1)], [("raise", "value")], [("sleep", 9)])
    for label, plan in zip(("done", "failed", "timed out"), ends, strict=True):
        await w.submit(label, udf("async", timeout=5), plan, _key=label, _priority=2)
    await w.submit("killed", udf("async"), [("return", 2)], _key="killed")
    await w.q.kill(w.ids["killed"])
    for label in list(w.ids):
        if label != "killed":
            await w.refused(label, w.q.retry, w.ids[label])
    await w.work(drain=True)
    for label in list(w.ids):
        w.ids[f"{label} again"] = await w.q.retry(w.ids[label])
        await w.submit(f"{label} by key", udf("async"), [("return", 1)], _key=label)
    await w.work(drain=True)


@program(
    """
    plane: ran 1; 2; ran 2; 0
    c again: is c
    a: queued killed |  | Expired
    b: queued running succeeded |  | Expired
    c: queued running succeeded | succeeded | None | c
    a again: queued running succeeded | succeeded | 1
    """
)
async def pruned(w: World) -> None:
    for label in ("a", "b", "c"):
        await w.submit(label, udf("async_generator"), [("yield", label)], _key=label)
    await w.q.kill(w.ids["a"])
    await w.work(once=True)
    w.say(await w.q.jobs.prune(0))
    await w.submit("a again", udf("async"), [("return", 1)], _key="a")
    await w.submit("c again", udf("async"), [("return", 1)], _key="c")
    await w.work(drain=True)
    w.say(await w.q.jobs.prune(3600))


@program(
    """
    async: queued running queued killed | returned | InvocationKilled
    async_generator: queued running queued killed | returned | InvocationKilled
    """
)
async def a_worker_without_grace(w: World) -> None:
    for kind in ("async", "async_generator"):
        await w.submit(kind, udf(kind), LONG)
    async with w.working(slots=2, grace=0):
        await anyio.sleep(1)
    await w.see("async", "async_generator")
    for kind in ("async", "async_generator"):
        await w.q.kill(w.ids[kind])
