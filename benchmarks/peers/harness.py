"""What every peer's script does alike: `harness.py MODULE NAME` starts its worker, measures, prints JSON.

Run by the peer's own interpreter, so only the standard library is imported here. PEER_URL is a Redis,
PEER_FOLDER a folder for files, PEER_WAITING how the peer waits where it polls: "default" or "tuned".
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
URL, FOLDER = os.environ.get("PEER_URL", ""), os.environ.get("PEER_FOLDER", "")
TUNED = os.environ.get("PEER_WAITING") == "tuned"
CLIENTS, WARM = 500, 20
PATIENCE = 60.0  # seconds for a worker to do its first job


class Polls(NamedTuple):
    """Seconds between two looks for a result, where a peer looks."""

    jobs: float = 0.0
    serial: float = 0.0
    submits: float = 0.0


class Peer:
    """One peer. A subclass says how to submit and how to wait."""

    worker: tuple[str, ...] = ()  # arguments of the interpreter
    default = tuned = Polls()

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def submit(self) -> Any:
        """Submit one no-op job."""
        raise NotImplementedError

    async def result(self, handle: Any, poll: float) -> None:
        """Wait until it has ended well."""
        raise NotImplementedError

    async def bulk(self, n: int) -> None:
        """Submit n jobs, in the fastest way that the peer documents."""
        await in_parts(self.submit, n)

    async def settle(self) -> None:
        """Wait until what was submitted in bulk has arrived."""

    async def job(self, poll: float) -> None:
        """Submit, and wait for the result."""
        await self.result(await self.submit(), poll)


async def in_parts(call: Callable[[], Awaitable[Any]], n: int) -> None:
    """A call n times, 500 at a time: for peers without a call for many."""
    for done in range(0, n, CLIENTS):
        await asyncio.gather(*(call() for _ in range(min(CLIENTS, n - done))))


@contextlib.contextmanager
def working(peer: Peer) -> Iterator[None]:
    """The peer's worker in a process of its own; its output is kept for who looks for an error."""
    with open(Path(FOLDER) / "worker.log", "w") as log:
        worker = subprocess.Popen([sys.executable, *peer.worker], stdout=log, stderr=log, cwd=HERE)
        try:
            yield
        finally:
            worker.terminate()
            try:
                worker.wait(10)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


async def crowd(peer: Peer, clients: int, each: int, poll: float) -> float:
    """Seconds in which `clients` tasks do `each` jobs, one after another."""

    async def client() -> None:
        for _ in range(each):
            await peer.job(poll)

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return time.perf_counter() - start


async def jobs(peer: Peer, n: int, poll: float) -> dict[str, float]:
    """Each job with its own submit and its own result, from 500 tasks."""
    clients = min(CLIENTS, n)
    await crowd(peer, min(WARM, clients), 2, poll)
    return {"jobs/s": n // clients * clients / await crowd(peer, clients, n // clients, poll)}


async def serial(peer: Peer, n: int, poll: float) -> dict[str, float]:
    """One job after another."""
    times: list[float] = []
    for _ in range(n):
        start = time.perf_counter()
        await peer.job(poll)
        times.append((time.perf_counter() - start) * 1e6)
    times.sort()
    return {"p50 us": statistics.median(times), "p99 us": times[int(len(times) * 0.99)]}


async def submits(peer: Peer, n: int, poll: float) -> dict[str, float]:
    """Bulk submits alone, nobody working."""
    await peer.bulk(min(n, CLIENTS))
    await peer.settle()
    start = time.perf_counter()
    await peer.bulk(n)
    returned = time.perf_counter() - start
    await peer.settle()
    return {"submits/s": n / returned, "arrived/s": n / (time.perf_counter() - start)}


MEASUREMENTS = {"jobs": jobs, "serial": serial, "submits": submits}


async def first(peer: Peer, poll: float) -> None:
    """One of the first jobs, at most three times: a worker that starts may give it up (saq sweeps then)."""
    for left in (2, 1, 0):
        try:
            await asyncio.wait_for(peer.job(poll), PATIENCE)
            return
        except Exception:
            if not left:
                raise


async def measure(peer: Peer, name: str, n: int) -> dict[str, float]:
    """One measurement; where somebody works, after a first job."""
    poll: float = getattr(peer.tuned if TUNED else peer.default, name)
    await peer.open()
    try:
        if name == "submits":
            return await submits(peer, n, poll)
        with working(peer):
            for _ in range(3):
                await first(peer, poll)
            return await MEASUREMENTS[name](peer, n, poll)
    finally:
        await peer.close()


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", help="a module beside this file")
    parser.add_argument("name", choices=MEASUREMENTS)
    parser.add_argument("-n", type=int, default=1000, help="how many jobs")
    options = parser.parse_args()
    peer: Peer = importlib.import_module(options.peer).peer
    print(json.dumps(asyncio.run(measure(peer, options.name, options.n))))


if __name__ == "__main__":
    sys.modules["harness"] = sys.modules["__main__"]  # peers import it: the same module
    main()
