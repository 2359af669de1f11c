"""The whole plane inside a trio program: `python examples/trio_app.py`.

The same lines run on asyncio, where `anyio.create_task_group()` takes the nursery's place.
"""

from collections.abc import AsyncIterator
from functools import partial

import trio

import dreamlake.lakeshore as dls


@dls.udf
async def ticks(name: str, count: int) -> AsyncIterator[str]:
    """An asynchronous body is a task of the worker's own loop: here, trio's."""
    for number in range(count):
        await trio.sleep(0.01)
        yield f"{name} {number}"


async def show(q: dls.AsyncDispatch, inv: str) -> None:
    """Print what a body yields, while it runs."""
    async for value in q.stream(inv).values():
        print(value)


async def main() -> None:
    """Two bodies at once, and two readers."""
    async with dls.AsyncDispatch(":memory:") as q, trio.open_nursery() as nursery:
        stop = trio.Event()
        await nursery.start(partial(dls.arun_worker, q, slots=2, stop=stop))
        async with trio.open_nursery() as readers:
            for name in ("tick", "tock"):
                readers.start_soon(show, q, await ticks.asubmit(name, count=3))
        stop.set()
    print("done")


if __name__ == "__main__":
    trio.run(main)
