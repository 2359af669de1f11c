"""saq over Redis: its worker blocks on a list; `Queue.apply` looks for the result every 0.5 s by default.

`Job.refresh(until_complete)` waits for a message instead of looking. It reads the job first and subscribes
after that, so it sleeps through the end of a job as short as these: `apply` it is.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import redis.asyncio
from harness import URL, Peer, Polls
from saq.queue.redis import RedisQueue

FULL_SPEED = 100  # requests and jobs at once: the default of 20 and 10 is for small machines


def connect() -> Any:
    """A queue."""
    return RedisQueue(redis.asyncio.from_url(URL or "redis://127.0.0.1/0"), max_concurrent_ops=FULL_SPEED)


async def nothing(ctx: dict[str, Any]) -> int:
    """An asynchronous body that does nothing."""
    return 1


settings = {
    "queue": connect(),
    "functions": [nothing],
    "concurrency": FULL_SPEED,
    "timers": {"sweep": 600},  # a sweep aborts jobs that it meets between their claim and their start
}


class Saq(Peer):
    """The client's side."""

    worker = ("-m", "saq", "saq_peer.settings", "--quiet")
    default = Polls(jobs=0.5, serial=0.5)
    tuned = Polls(jobs=0.1, serial=0.002)

    async def open(self) -> None:
        self.queue = connect()
        await self.queue.connect()

    async def close(self) -> None:
        await self.queue.disconnect()

    async def submit(self) -> Any:
        return await self.queue.enqueue("nothing")

    async def job(self, poll: float) -> None:
        await self.queue.apply("nothing", poll_interval=poll)


peer = Saq()
