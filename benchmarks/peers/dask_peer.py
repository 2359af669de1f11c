"""Dask's `distributed`: a scheduler process takes what `Client.map` submits. No worker runs."""
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from distributed import Client
from harness import FOLDER, HERE, Peer

WHERE = Path(FOLDER) / "scheduler.json"


def nothing(number: int) -> int:
    """A body that does nothing. `map` wants an argument to map over."""
    return 1


class DaskPeer(Peer):
    """Bulk submits only."""

    async def open(self) -> None:
        WHERE.unlink(missing_ok=True)
        self.scheduler = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs yet
            [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
             "--no-dashboard", "--scheduler-file", str(WHERE)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=HERE,  # where it finds this module
        )  # fmt: skip
        self.client: Any = await Client(scheduler_file=str(WHERE), asynchronous=True, timeout=60)
        self.futures: list[Any] = []

    async def close(self) -> None:
        self.futures.clear()
        await self.client.close()
        self.scheduler.terminate()
        self.scheduler.wait()

    async def bulk(self, n: int) -> None:
        """Until `map` has returned: what it sent may still be on its way to the scheduler."""
        self.futures.append(self.client.map(nothing, range(n), pure=False))
        await asyncio.sleep(0)

    async def settle(self) -> None:
        """Until the scheduler has all of it: only then would another process find it there."""

        def tasks_of(dask_scheduler: Any) -> int:  # in here: so it travels by value
            return len(dask_scheduler.tasks)

        wanted = sum(len(part) for part in self.futures)
        while await self.client.run_on_scheduler(tasks_of) < wanted:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


peer = DaskPeer()
