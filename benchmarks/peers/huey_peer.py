"""huey with SQLite: a file, as ours. Consumer and client poll, with delays that grow from 0.1 s on."""
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import os
from typing import Any

from harness import FOLDER, TUNED, Peer, Polls
from huey import SqliteHuey
from huey.contrib.asyncio import aget_result

huey = SqliteHuey("bench", filename=os.path.join(FOLDER, "huey.db"), fsync=False)  # fsync=False: sync=normal
POLLS = ("-d", "0.005", "-m", "0.01") if TUNED else ()


@huey.task()
def nothing() -> int:
    """A body that does nothing. huey has no asynchronous ones."""
    return 1


class HueyPeer(Peer):
    """The client's side: blocking calls, waited for with huey's own helper for asyncio."""

    worker = ("-m", "huey.bin.huey_consumer", "huey_peer.huey", "-k", "thread", "-w", "4", *POLLS, "-q")
    tuned = Polls(jobs=0.05, serial=0.002)

    async def submit(self) -> Any:
        return nothing()

    async def result(self, handle: Any, poll: float) -> None:
        if not poll:
            await aget_result(handle)
            return
        while handle.get() is None:  # noqa: ASYNC110 - there is nothing to wait for
            await asyncio.sleep(poll)

    async def bulk(self, n: int) -> None:
        nothing.map([()] * n)


peer = HueyPeer()
