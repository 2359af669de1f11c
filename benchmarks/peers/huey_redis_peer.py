"""huey with Redis: its consumer blocks on a list, and a blocking `get` waits for a message."""
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
from typing import Any

from harness import PATIENCE, URL, Peer, Polls
from huey import RedisHuey
from huey.contrib.asyncio import aget_result

huey = RedisHuey("bench", url=URL or "redis://127.0.0.1/0", notify_result=True)
HELPER, MESSAGE = -1.0, 0.0  # how to wait, instead of looking again after so many seconds


@huey.task()
def nothing() -> int:
    """A body that does nothing. huey has no asynchronous ones."""
    return 1


class HueyRedisPeer(Peer):
    """The client's side. One job after another: the blocking wait, which nobody is kept from working by.
    Many at once: huey's own helper for asyncio, which looks again and again, or a fixed delay."""

    worker = ("-m", "huey.bin.huey_consumer", "huey_redis_peer.huey", "-k", "thread", "-w", "4", "-q")
    default = Polls(jobs=HELPER, serial=MESSAGE)
    tuned = Polls(jobs=0.05, serial=MESSAGE)

    async def submit(self) -> Any:
        return nothing()

    async def result(self, handle: Any, poll: float) -> None:
        if poll == MESSAGE:
            handle.get(blocking=True, timeout=PATIENCE)
        elif poll == HELPER:
            await aget_result(handle)
        else:
            while handle.get() is None:  # noqa: ASYNC110 - there is nothing to wait for
                await asyncio.sleep(poll)

    async def bulk(self, n: int) -> None:
        nothing.map([()] * n)


peer = HueyRedisPeer()
