"""arq over Redis. Its worker looks for jobs, and its client for results, every 0.5 s by default."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from arq import create_pool, func
from arq.connections import RedisSettings
from harness import CLIENTS, TUNED, URL, Peer, Polls

SETTINGS = RedisSettings.from_dsn(URL or "redis://127.0.0.1/0")


async def nothing(ctx: dict[str, Any]) -> int:
    """An asynchronous body that does nothing."""
    return 1


class WorkerSettings:
    """What `arq` runs: as many jobs at once as there are clients, and no log line for each."""

    functions = (func(nothing, name="nothing"),)
    redis_settings = SETTINGS
    max_jobs = CLIENTS
    poll_delay = 0.01 if TUNED else 0.5
    log_results = False


class Arq(Peer):
    """The client's side."""

    worker = ("-m", "arq", "arq_peer.WorkerSettings")
    default = Polls(jobs=0.5, serial=0.5)
    tuned = Polls(jobs=0.1, serial=0.002)

    async def open(self) -> None:
        self.pool = await create_pool(SETTINGS)

    async def close(self) -> None:
        await self.pool.aclose()

    async def submit(self) -> Any:
        return await self.pool.enqueue_job("nothing")

    async def result(self, handle: Any, poll: float) -> None:
        await handle.result(poll_delay=poll)


peer = Arq()
