# type: ignore  # noqa: PGH003 (the test takes this line out)
"""What a type checker must find: each marked line, by that rule, and nothing else."""

# ruff: noqa: B007, B018, F841

from collections.abc import AsyncIterator, Iterator

import dreamlake.lakeshore as other
import lakeshore as dls


@dls.udf
def sync(x: int, *, y: str = "") -> float:
    return x


@dls.udf(retries=1)
def generator(n: int) -> Iterator[int]:
    yield n


@dls.udf
async def coroutine(x: int) -> str:
    return ""


@dls.udf(queue="q")
async def async_generator(x: int) -> AsyncIterator[bytes]:
    yield b""


@other.udf
def elsewhere(x: int) -> str:
    return ""


# arguments of a body

sync("1")  # error: reportArgumentType
sync.local("1")  # error: reportArgumentType
sync.submit()  # error: reportCallIssue
sync.submit("1")  # error: reportArgumentType
sync.submit(x="1")  # error: reportArgumentType
sync.submit(1, "a")  # error: reportCallIssue
sync.submit(1, z="a")  # error: reportCallIssue
generator("1")  # error: reportArgumentType
generator.submit(m=1)  # error: reportCallIssue
coroutine.submit()  # error: reportCallIssue
async_generator.submit("1")  # error: reportArgumentType
elsewhere.submit(x="1")  # error: reportArgumentType
sync.submit_many(5)  # error: reportArgumentType

# options of a submit

sync.submit(1, _key=5)  # error: reportArgumentType
sync.submit(1, _priority="high")  # error: reportArgumentType
sync.submit(1, _delay="soon")  # error: reportArgumentType
sync.submit(1, _timeout="1 s")  # error: reportArgumentType
sync.submit(1, _kee="k")  # error: reportCallIssue
sync.submit(1, _dispatch=":memory:")  # error: reportArgumentType

# options of a body

dls.udf(sync.fn, retries="many")  # error: reportArgumentType
dls.udf(sync.fn, by="wrong")  # error: reportArgumentType
dls.udf(sync.fn, timeout="1 s")  # error: reportArgumentType
dls.udf(sync.fn, retry_on="OSError")  # error: reportArgumentType
dls.udf(sync.fn, retry=3)  # error: reportCallIssue
dls.udf(5)  # error: reportArgumentType

# results

result: str = sync(1)  # error: reportAssignmentType
sync.local(1).upper()  # error: reportAttributeAccessIssue
number: int = sync.submit(1)  # error: reportAssignmentType
for value in generator(1):
    value.upper()  # error: reportAttributeAccessIssue
for letter in coroutine(1):  # error: reportGeneralTypeIssues
    pass


def blocking(q: dls.Dispatch) -> None:
    q.result("", type=int).upper()  # error: reportAttributeAccessIssue
    q.result("", type=list[int]).lower()  # error: reportAttributeAccessIssue
    q.result(5)  # error: reportArgumentType
    q.result("", 5)  # error: reportCallIssue
    q.result("", timeout="1 s")  # error: reportArgumentType
    q.get("").stat  # error: reportAttributeAccessIssue
    q.get("").state = "failed"  # error: reportAttributeAccessIssue
    q.kill("", True)  # error: reportCallIssue
    await_me = q.submit(sync, 1)
    await_me.result()  # error: reportAttributeAccessIssue
    frames: dls.Stream[int] = q.stream("")
    for frame in frames:
        frame.value.upper()  # error: reportAttributeAccessIssue
        frame.upper()  # error: reportAttributeAccessIssue
        frame.seq = 5  # error: reportAttributeAccessIssue
    for text in frames.values():
        text.upper()  # error: reportAttributeAccessIssue
    wrong: dls.Stream[str] = frames  # error: reportAssignmentType
    q.stream("", 5)  # error: reportCallIssue
    q.stream("", since="start")  # error: reportArgumentType
    q.stream("").values(restarts="wrong")  # error: reportArgumentType
    q.topic("news").post()  # error: reportCallIssue
    q.topic(5)  # error: reportArgumentType
    dls.Dispatch(":memory:", sync="wrong")  # error: reportArgumentType
    dls.Dispatch(":memory:", backend="wrong")  # error: reportArgumentType
    dls.Dispatch(":memory:", retain=5)  # error: reportCallIssue
    q.queues.add("a", kind="wrong")  # error: reportArgumentType
    q.queues.add("a", on_full="wrong")  # error: reportArgumentType
    q.queues.add("a", elasticity="wrong")  # error: reportArgumentType
    q.queues.patch("a", max_dept=1)  # error: reportCallIssue
    q.queues.patch("a", on_full="wrong")  # error: reportArgumentType
    q.queues.patch("a", max_depth="wrong")  # error: reportArgumentType
    q.jobs.list(limit="5")  # error: reportArgumentType
    dls.run_worker(q, slot=2)  # error: reportCallIssue
    dls.run_worker(":memory:")  # error: reportArgumentType
    dls.run_worker(q, stop=True)  # error: reportArgumentType
    dls.Hooks(on_setup=print)  # error: reportCallIssue
    dls.run.atempt  # error: reportAttributeAccessIssue
    dls.scope(5)  # error: reportArgumentType
    dls.Nothing  # error: reportAttributeAccessIssue


async def asynchronous(q: dls.AsyncDispatch) -> None:
    q.submit(sync, 1)  # error: reportUnusedCoroutine
    q.result("")  # error: reportUnusedCoroutine
    sync.asubmit(1)  # error: reportUnusedCoroutine
    dls.arun_worker(q)  # error: reportUnusedCoroutine
    coroutine(1)  # error: reportUnusedCoroutine
    await sync.submit(1)  # error: reportGeneralTypeIssues
    await q.stream("")  # error: reportGeneralTypeIssues
    await sync.asubmit("1")  # error: reportArgumentType
    await coroutine.asubmit(y=1)  # error: reportCallIssue
    (await coroutine(1)).real  # error: reportAttributeAccessIssue
    coroutine(1).upper()  # error: reportAttributeAccessIssue
    (await q.result("", type=int)).upper()  # error: reportAttributeAccessIssue
    (q.get("")).state  # error: reportAttributeAccessIssue
    for _ in q.stream(""):  # error: reportGeneralTypeIssues
        pass
    async for value in async_generator(1):
        value.encode()  # error: reportAttributeAccessIssue
    async for frame in q.stream("").values(restarts="wrong"):  # error: reportArgumentType
        pass
    points: dls.AsyncStream[int] = q.stream("")
    async for point in points:
        point.value.upper()  # error: reportAttributeAccessIssue
    await q.queues.add("a", kind="wrong")  # error: reportArgumentType
    await q.queues.patch("a", max_dept=1)  # error: reportCallIssue
    dls.AsyncDispatch(":memory:", sync="wrong")  # error: reportArgumentType
    dls.AsyncDispatch(":memory:", backend="trio")  # error: reportCallIssue
    blocking: dls.Stream[int] = dls.Dispatch().stream("")
    async for _ in blocking:  # error: reportGeneralTypeIssues
        pass
    with q:  # error: reportGeneralTypeIssues
        pass
