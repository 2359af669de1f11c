"""A head and daemons as real processes, any of which is killed at random, from a seed."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.to_thread import run_sync
from daemons import Daemon
from head_process import Head

LEASE = 2.0  # seconds: the losses of a minute are to be seen within it


def children(pid: int) -> list[int]:
    """The processes that one has started."""
    with suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Chaos:
    """One head, some daemons, and a hand that kills.

    Attributes:
        kills: what was killed, in order.
        memory: the most that a head has had, bytes.
        about: is set just before somebody is killed.
    """

    def __init__(self, home: Path, store: Path, backend: str, seed: int, daemons: int = 3) -> None:
        self._home, self._store, self._backend = home, store, backend
        self._random = random.Random(seed)
        self.kills: list[str] = []
        self.memory = 0
        self.about = anyio.Event()
        self.url = "tcp://127.0.0.1:0"
        self._head = self._begin_head()
        self.url = self._head.url
        self._daemons = [self._begin_daemon() for _ in range(daemons)]

    async def rage(self, seconds: float, pause: float) -> None:
        """Kill for so long, about every `pause` seconds one head and one worker; then nobody any more."""
        with anyio.move_on_after(seconds):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._over_and_over, self._kill_head, 1.5 * pause)
                tasks.start_soon(self._over_and_over, self._kill_worker, pause)

    async def kill_head(self) -> None:
        """Kill the head and have another one."""
        with anyio.CancelScope(shield=True):
            await run_sync(self._kill_head)

    def close(self) -> None:
        """End everything in order; no daemon has more to say than that it drains."""
        for daemon in self._daemons:
            daemon.signal(signal.SIGTERM)
        for daemon in self._daemons:
            daemon.__exit__()
        self.memory = max(self.memory, self._head.memory())
        self._head.end()
        self._head.__exit__()

    async def _over_and_over(self, kill: object, pause: float) -> None:
        while True:
            await anyio.sleep(self._random.uniform(0.2, 1.8) * pause)
            self.about.set()
            self.about = anyio.Event()
            await anyio.sleep(self._random.uniform(0.0, 0.004))
            with anyio.CancelScope(shield=True):
                await run_sync(kill)  # type: ignore[arg-type]

    def _kill_head(self) -> None:
        self.kills.append("head")
        self.memory = max(self.memory, self._head.memory())
        self._head.process.kill()
        self._head.__exit__()
        self._head = self._begin_head()

    def _kill_worker(self) -> None:
        number = self._random.randrange(len(self._daemons))
        daemon = self._daemons[number]
        pids = children(daemon.pid)
        if pids and self.kills.count("child") <= self.kills.count("daemon"):
            self.kills.append("child")
            os.kill(pids[0], signal.SIGKILL)
            return
        self.kills.append("daemon")
        for pid in (daemon.pid, *pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemon.__exit__()
        self._daemons[number] = self._begin_daemon()

    def _begin_head(self) -> Head:
        options = ("--store", self._store, "--sync", "normal", "--lease", LEASE)
        return Head(self._home, *options, backend=self._backend, listen=(self.url,))

    def _begin_daemon(self) -> Daemon:
        return Daemon(self._home, self.url, "--backend", self._backend, "--slots", 4, "--grace", 5)
