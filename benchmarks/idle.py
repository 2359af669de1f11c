"""Many idle daemons and clients on one head: what they cost it, and those who work beside them.

They are played by a few processes that speak the protocol: `idle.py play URL DAEMONS CLIENTS`. A daemon has
the three links of a real one (its worker's, its bodies', its parent's) and beats; a client has one.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import sys
import threading
from typing import Any

import anyio
import flow
import remote
from cast import Cast, Player, cast, proportional
from setting import SLOTS, Figures, Setting

import lakeshore as dls
from lakeshore.core.backend import Backend, current_backend
from lakeshore.core.messages import Beat, Hello, Minding, Sorry, Welcome
from lakeshore.core.plane import new_id
from lakeshore.sdk.credentials import machine_token
from lakeshore.sdk.knocking import knock, versions
from lakeshore.transports.dialing import dial
from lakeshore.transports.stream import StreamLink

PROCESSES, QUEUE = 4, "idle"
WINDOW, SERIAL = 0.025, 1.0  # seconds of idling, and serial jobs, for each of them


def idle(setting: Setting) -> Figures:
    """n idle daemons, and as many clients."""
    with cast(setting) as players:
        head = players.head()
        players.worker(head.url, SLOTS)
        return setting.run(_measure, players, head, setting.n)


async def _measure(players: Cast, head: Player, n: int) -> Figures:
    parts = [n // PROCESSES + (number < n % PROCESSES) for number in range(PROCESSES)]
    async with dls.AsyncDispatch(head.url) as q:
        await q.queues.add(QUEUE)
        await remote.warm(q)
        alone = await flow.serial(q, int(SERIAL * n))
        small, few = proportional(head.pid), await q.status()
        crowds = [players.play("play", head.url, part, part, script="idle.py") for part in parts if part]
        for crowd in crowds:
            await anyio.to_thread.run_sync(crowd.until, "ready")
        await anyio.sleep(WINDOW * n / 10)  # the work of letting them in is over
        before, window = head.cpu(), WINDOW * n
        await anyio.sleep(window)
        share, large = (head.cpu() - before) / window * 100, proportional(head.pid)
        among, many = await flow.serial(q, int(SERIAL * n)), await q.status()
    for crowd in crowds:
        crowd.tell("end")
        if (told := json.loads(crowd.until('{"links"')))["lost"]:
            raise AssertionError(f"idle links were lost: {told}")
    if (many.workers - few.workers, many.clients - few.clients) != (n, 3 * n):
        raise AssertionError(f"there should be {n} more daemons and clients than in {few}: {many}")
    return {
        "MB": large / remote.MB,
        "CPU %": share,
        "x p50": among["p50 us"] / alone["p50 us"],
        "p50 us": among["p50 us"],
        "alone p50 us": alone["p50 us"],
        "KB each": (large - small) / 1e3 / (2 * n),
    }


class Idle:
    """Some daemons and clients in one process."""

    def __init__(self, url: str, backend: Backend) -> None:
        self._url, self._backend, self._token = url, backend, machine_token()
        self._parents: dict[bytes, StreamLink] = {}
        self._lease = 0.0
        self.links, self.lost = 0, list[str]()

    async def daemon(self, name: str) -> None:
        """A worker that waits, and a parent that says it lives."""
        id = new_id()
        hello = Hello(
            id,
            name,
            socket.gethostname(),
            os.getpid(),
            (QUEUE,),
            follow_all=False,
            slots=1,
            process=f"idle {name}",
            versions=versions(),
            leased=True,
            daemon=True,
        )
        await self.link("client")
        (await self.link("worker", id)).send(hello)
        parent = self._parents[id] = await self.link("daemon", id)
        parent.send(Minding(id))
        parent.send(Beat(id))

    async def link(self, purpose: str, worker: bytes = b"") -> StreamLink:
        """A link that is let in, however often it has to ask."""
        while True:
            link = await dial(self._url, self._backend)
            answered = self._backend.parker()
            link.closed = lambda link=link: self.lost.append(link.lost_reason)
            link.receive = answered.set
            link.send(knock(new_id(), purpose, "", self._token, worker))
            answer = await answered.wait()
            if type(answer) is Welcome:
                self._lease, link.receive = answer.lease, _ignore
                self.links += 1
                return link
            if type(answer) is not Sorry or answer.retry_after is None:
                raise AssertionError(f"not let in: {answer}")
            link.closed = _ignore
            link.abort()
            await asyncio.sleep(answer.retry_after)

    async def beat(self) -> None:
        """One daemon after another, so that each beats three times a lease."""
        while True:
            for id, parent in list(self._parents.items()):
                parent.send(Beat(id))
                await asyncio.sleep(self._lease / 3 / len(self._parents))
            await asyncio.sleep(0)


def _ignore(message: Any = None) -> None:
    """An idle one does nothing about it."""


async def play(url: str, daemons: int, clients: int) -> None:
    """Come in, stay until a line is read, and say what was lost."""
    backend = current_backend()
    ended = backend.parker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        crowd = Idle(url, backend)
        for number in range(daemons):
            await crowd.daemon(f"idle-{os.getpid()}-{number}")
        for _ in range(clients):
            await crowd.link("client")
        tasks.start_soon(crowd.beat)
        threading.Thread(target=_listen, args=(backend, ended), daemon=True).start()
        print("ready", flush=True)
        await ended.wait()
        print(json.dumps({"links": crowd.links, "lost": crowd.lost}), flush=True)
        os._exit(0)


def _listen(backend: Backend, ended: Any) -> None:
    if not sys.stdin.readline():
        os._exit(0)
    backend.post(lambda: ended.set(None))


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    anyio.run(play, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
