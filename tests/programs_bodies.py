"""Programs about the four kinds of body, retries, and what bodies submit."""

from __future__ import annotations

from typing import Any

from programs_errors import KINDS
from programs_world import World, program, udf

import lakeshore as dls


@program(
    """
    sync: queued running succeeded | succeeded | ['sync', 1]
    generator: queued running succeeded | succeeded | ['generator', 1]
    async: queued running succeeded | succeeded | ['async', 1]
    async_generator: queued running succeeded | succeeded | None | async_generator
    """
)
async def four_kinds_succeed(w: World) -> None:
    for kind in KINDS:
        plan = [("yield", kind)] if kind == "async_generator" else [("return", [kind, 1])]
        await w.submit(kind, udf(kind), plan)
    await w.see(*KINDS)
    async with w.working():
        await w.end(*KINDS)


@program(
    """
    generator 0: running succeeded | succeeded | None
    generator 1: running succeeded | succeeded | None | 1 None
    generator 2: running failed | failed | ValueError | 1
    generator 3: running failed | failed | RuntimeError
    async_generator 0: running succeeded | succeeded | None
    async_generator 1: running succeeded | succeeded | None | 1 None
    async_generator 2: running failed | failed | ValueError | 1
    async_generator 3: running failed | failed | RuntimeError
    value: running succeeded | succeeded | {'a': 1} | 1
    """
)
async def generators_return_raise_and_yield_nothing(w: World) -> None:
    async with w.working():
        for kind in ("generator", "async_generator"):
            for number, plan in enumerate(
                ([], [("yield", 1), ("yield", None)], [("yield", 1), ("raise", "value")], [("raise", "stop")])
            ):
                await w.submit(f"{kind} {number}", udf(kind), plan)
                await w.end(f"{kind} {number}")
        await w.submit("value", udf("generator"), [("yield", 1), ("return", {"a": 1})])
        await w.end("value")


@program("")
async def every_kind_is_retried(w: World) -> None:
    async with w.working():
        for kind in KINDS:
            last = ("yield", "third") if kind == "async_generator" else ("return", "third")
            plans = [("raise", "os")], [("raise", 5)], [last]
            await w.submit(kind, udf(kind, retries=3, retry_delay=0.001, retry_cap=0.001), *plans)
            await w.end(kind)
            await w.see(kind)


@program("")
async def retries_with_delays(w: World) -> None:
    slow = udf("async", retries=4, retry_delay=2, retry_cap=6)
    await w.submit(
        "jitter",
        slow,
        [("sleep", 0), ("raise", "os")],
        *[[("sleep", 1), ("raise", "os")]] * 3,
        [("sleep", 0)],
    )
    await w.submit("asked", slow, [("see", 0), ("raise", 100)], [("sleep", 0), ("see", 0), ("return", 1)])
    await w.submit("other", udf("async"), [("sleep", 0), ("return", 2)])
    async with w.working():
        await w.end("other")
        await w.see("jitter", "asked")
        await w.end("jitter", "asked")


def _only_odd(error: BaseException) -> bool:
    return int(str(error)) % 2 == 1


@program("")
async def which_errors_are_retried(w: World) -> None:
    async with w.working():
        for error in ("value", "os", "exit", "os group", "mixed group", "group"):
            for name, retry_on in (
                ("os", OSError),
                ("two", (KeyError, ValueError)),
                ("predicate", _only_odd),
            ):
                body = udf("async", retries=1, retry_delay=0.5, retry_cap=0.5, retry_on=retry_on)
                await w.submit(f"{error} on {name}", body, [("raise", error)])
                await w.end(f"{error} on {name}")
        await w.submit("none left", udf("async"), [("raise", 5)])
        await w.end("none left")


@program(
    """
    parent: queued running succeeded | succeeded | 'parent'
    child: running succeeded | succeeded | 'child'
    grandchild: running succeeded | succeeded | 'grandchild'
    """
)
async def bodies_submit_children(w: World) -> None:
    grandchild = [("return", "grandchild")]
    child = [("submit", ("grandchild", [grandchild])), ("return", "child")]
    await w.submit("parent", udf("async"), [("submit", ("child", [child])), ("return", "parent")])
    async with w.working(slots=2):
        await w.end("parent", "child", "grandchild")


@dls.udf(queue="through")
async def doubled(x: int) -> int:
    return 2 * x


async def calls_through(x: int) -> Any:
    return await doubled(x) + 1


@program(
    """
    plane: 1
    caller: queued running succeeded | succeeded | 9
    called: running succeeded | succeeded | 8
    """
)
async def a_body_calls_another_through_its_queue(w: World) -> None:
    await w.submit("caller", calls_through, 4)
    async with w.working(slots=2):
        await w.end("caller")
        found = await w.q.jobs.list(queue="through")
        w.ids["called"] = found[0].id
    w.say(len(found))


@program(
    """
    plane: ran 4
    in: queued running succeeded | succeeded | 1
    nested: queued running succeeded | succeeded | None
    out: queued running succeeded | succeeded | 3
    child: queued running succeeded | succeeded | 2
    """
)
async def scopes_travel(w: World) -> None:
    with dls.scope("a/b"):
        await w.submit("in", udf("async"), [("return", 1)])
        with dls.scope("../c"):
            await w.submit("nested", udf("async"), [("submit", ("child", [[("return", 2)]]))])
    await w.submit("out", udf("async"), [("return", 3)])
    await w.work(drain=True)
