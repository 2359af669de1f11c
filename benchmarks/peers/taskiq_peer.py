"""taskiq with taskiq-redis: acknowledged streams. It looks for a result every 0.2 s by default."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from harness import CLIENTS, URL, Peer, Polls
from taskiq.serializers import ORJSONSerializer
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

broker = (
    RedisStreamBroker(URL or "redis://127.0.0.1/0", consumer_id="0")
    .with_result_backend(RedisAsyncResultBackend(URL or "redis://127.0.0.1/0", result_ex_time=3600))
    .with_serializer(ORJSONSerializer())
)


@broker.task
async def nothing() -> int:
    """An asynchronous body that does nothing."""
    return 1


class Taskiq(Peer):
    """The client's side. One worker process, as for everybody here."""

    worker = ("-m", "taskiq", "worker", "taskiq_peer:broker", "--workers", "1", "--max-async-tasks",
              str(CLIENTS), "--max-prefetch", str(CLIENTS), "--log-level", "ERROR")  # fmt: skip
    default = Polls(jobs=0.2, serial=0.2)
    tuned = Polls(jobs=0.5, serial=0.002)

    async def open(self) -> None:
        await broker.startup()

    async def close(self) -> None:
        await broker.shutdown()

    async def submit(self) -> Any:
        return await nothing.kiq()

    async def result(self, handle: Any, poll: float) -> None:
        await handle.wait_result(check_interval=poll)


peer = Taskiq()
