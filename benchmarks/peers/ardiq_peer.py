"""ardiq: a Rust core over Redis streams. It waits for results by itself; nothing to set."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

from ardiq import Ardiq
from harness import CLIENTS, PATIENCE, URL, Peer

PART = 1_000
app = Ardiq(URL or None, queue_name="bench", concurrency=CLIENTS, prefetch=2 * CLIENTS)


@app.task()
async def nothing() -> int:
    """An asynchronous body that does nothing."""
    return 1


class ArdiqPeer(Peer):
    """The client's side."""

    worker = ("-m", "ardiq", "run", "ardiq_peer:app")

    async def submit(self) -> Any:
        return await nothing.enqueue()

    async def result(self, handle: Any, poll: float) -> None:
        await handle.result(timeout=PATIENCE)

    async def bulk(self, n: int) -> None:
        for done in range(0, n, PART):
            await app.enqueue_many([nothing.prepare() for _ in range(min(PART, n - done))])


peer = ArdiqPeer()
