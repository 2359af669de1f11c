"""Programs about frames and topics."""

from __future__ import annotations

import anyio
from programs_world import World, program, udf

import lakeshore as dls

RESTARTS = (
    [("yield", "a1"), ("yield", "a2"), ("sleep", 1), ("raise", 20)],
    [("sleep", 1), ("yield", "b1"), ("sleep", 1), ("yield", "b2"), ("yield", "b3")],
)


@program(
    """
    g, after all: (0, 'a1', 1) (1, 'a2', 1) (2, 'b1', 2) (3, 'b2', 2) (4, 'b3', 2) end
    g, beyond: Gap
    g, comes back: (1, 'a2', 1) (2, 'b1', 2) (3, 'b2', 2) (4, 'b3', 2) end
    g, from the second attempt: (2, 'b1', 2) (3, 'b2', 2) (4, 'b3', 2) end
    g, from the start: (0, 'a1', 1) (1, 'a2', 1) (2, 'b1', 2) (3, 'b2', 2) (4, 'b3', 2) end
    g, joined late, two: (0, 'a1', 1) (1, 'a2', 1)
    g, stops after one: (0, 'a1', 1)
    g: queued running queued running succeeded | failed succeeded | None | a1 a2 b1 b2 b3
    """
)
async def readers_of_a_restarted_generator(w: World) -> None:
    await w.submit("g", udf("async_generator", retries=1), *RESTARTS)
    async with w.working(), anyio.create_task_group() as tasks:
        tasks.start_soon(w.read, "from the start", "g")
        cursor = await w.read("stops after one", "g", 0, 1)
        await anyio.sleep(10)
        await w.see("g")
        await w.read("joined late, two", "g", 0, 2)
        await w.end("g")
        await w.read("comes back", "g", cursor)
        await w.read("after all", "g")
        await w.read("from the second attempt", "g", 2)
        await w.read("beyond", "g", 9)


@program(
    """
    plane: ran 4
    g: queued running queued running succeeded | failed succeeded | None | a1 a2 b1 b2 b3
    second is shorter: queued running queued running succeeded | failed succeeded | None | a1 a2 b1
    """
)
async def restarts_of_bare_values(w: World) -> None:
    await w.submit("g", udf("async_generator", retries=1), *RESTARTS)
    await w.submit("second is shorter", udf("async_generator", retries=1), RESTARTS[0], [("yield", "b1")])
    await w.work(drain=True)
    for label in list(w.ids):
        stream, got = w.q.stream(w.ids[label]), []
        try:
            async for value in stream.values():
                got.append(value)  # noqa: PERF401 (to keep what came before the error)
        except dls.StreamRestarted as error:
            got.append(f"restarted as {error.attempt}")
        w.note(label, "values", *got, *[value async for value in stream.values()])
        kept = w.q.stream(w.ids[label]).values(restarts="keep")
        w.note(label, "kept", *[value async for value in kept])


@program(
    """
    fails, reader: (0, 1, 1) InvocationFailed
    killed, reader: (0, 1, 1) InvocationKilled
    no generator, reader: end
    times out, reader: (0, 1, 1) InvocationTimeout
    fails: running failed | failed | ValueError | 1
    times out: running timeout | timeout | InvocationTimeout | 1
    killed: running killed | killed | InvocationKilled | 1
    no generator: running succeeded | succeeded | 1
    """
)
async def streams_end_as_their_bodies_do(w: World) -> None:
    plans = {
        "fails": [("yield", 1), ("raise", "value")],
        "times out": [("yield", 1), ("sleep", 60)],
        "killed": [("yield", 1), ("set", "yielded"), ("linger", 0)],
        "no generator": [("return", 1)],
    }
    async with w.working(), anyio.create_task_group() as tasks:
        for label, plan in plans.items():
            kind = "async" if label == "no generator" else "async_generator"
            await w.submit(label, udf(kind, timeout=5 if label == "times out" else None), plan)
            tasks.start_soon(w.read, "reader", label)
            if label == "killed":
                await w.event("yielded").wait()
                await w.q.kill(w.ids[label], running=True)
            await w.end(label)


@program(
    """
    g: queued running succeeded | succeeded | None | 0 1 2
    """
)
async def frames_in_time(w: World) -> None:
    plan = [("yield", 0), ("sleep", 1), ("yield", 1), ("sleep", 3600), ("yield", 2)]
    await w.submit("g", udf("async_generator"), plan)
    async with w.working():
        async for frame in w.q.stream(w.ids["g"]):
            w.note("g", "frame", frame.value, w.now())


@program(
    """
    g, first: (0, 0, 1) (1, 1, 1) (2, 2, 1)
    g, last: (297, 297, 1) (298, 298, 1) (299, 299, 1) end
    g: queued running succeeded | succeeded | None | 0 1 … 299
    """
)
async def many_frames_of_threads(w: World) -> None:
    await w.submit("g", udf("generator"), [("yield", number) for number in range(300)])
    async with w.working():
        await w.read("first", "g", 0, 3)
        await w.end("g")
        await w.read("last", "g", 297)


@program(
    """
    plane: 0
    listed: news 4 True
    post: 0; 1; 2; 3; post Conflict; close done
    reader from 0: (0, {'n': 0}) (1, {'n': 1}) (2, {'n': 2}) (3, 'late') 7.0
    reader from 1: (1, {'n': 1}) (2, {'n': 2}) (3, 'late') 7.0
    reader from 2: (2, {'n': 2}) (3, 'late') 7.0
    """
)
async def topics(w: World) -> None:
    topic = w.q.topic("news")

    async def read(since: int) -> None:
        got = [(frame.seq, frame.value) async for frame in topic.stream(since)]
        w.note(f"reader from {since}", *got, w.now())

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            w.note("post", await topic.post({"n": number}))
        tasks.start_soon(read, 0)
        tasks.start_soon(read, 2)
        await anyio.sleep(7)
        w.note("post", await topic.post("late"))
        await topic.close()
    await w.refused("post", topic.post, 1)
    await w.refused("post", topic.close)
    await read(1)
    for info in await w.q.topics.list():
        w.note("listed", info.name, info.frames, info.closed)
    await w.q.topics.remove("news")
    w.say(len(await w.q.topics.list()))
