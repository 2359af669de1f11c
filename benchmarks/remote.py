"""What goes on between processes: a head, a program and a worker, or two that share a path.

The program is the measuring process itself; the head is `lakeshore serve`, on loopback TCP.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import flow
from bodies import nothing
from cast import Cast, Player, cast, children, proportional
from setting import SLOTS, Figures, Setting

import lakeshore as dls

MB = 1e6
WARM = 200
Measured = Callable[[dls.AsyncDispatch, int], Awaitable[Figures]]


def over_tcp(measured: Measured, *, working: bool = True) -> Callable[[Setting], Figures]:
    """Run it in a program whose plane is in a head of its own, and whose worker is a third process."""

    def measure(setting: Setting) -> Figures:
        with cast(setting) as players:
            head = players.head()
            others = {"head": head}
            if working:
                others["worker"] = players.worker(head.url, SLOTS)
            return setting.run(program, measured, setting, head.url, others)

    return measure


async def program(measured: Measured, setting: Setting, url: str, others: dict[str, Player]) -> Figures:
    """The program's part, and what each of the others took for one."""
    async with dls.AsyncDispatch(url, sync=setting.sync) as q:
        if "worker" in others:
            await warm(q)
        before = {name: player.cpu() for name, player in others.items()}
        figures = await measured(q, setting.n)
        for name, player in others.items():
            figures[f"{name} CPU us"] = (player.cpu() - before[name]) / setting.n * 1e6
    return figures


async def warm(q: dls.AsyncDispatch) -> None:
    """The first jobs are others' first, too."""
    for inv in await q.submit_many(nothing, [{}] * WARM):
        await q.result(inv)


def shared_serial(setting: Setting) -> Figures:
    """One job after another between two processes that have opened the same path, in either order."""
    figures = setting.run(_program_hosts, setting)
    with cast(setting) as players:
        path = str(setting.folder / "other.db")
        worker = players.worker(path, SLOTS)
        there = setting.run(_program_joins, setting, path, worker)
    return figures | {f"worker hosts {name}": value for name, value in there.items()}


async def _program_hosts(setting: Setting) -> Figures:
    path = setting.address
    with cast(setting) as players:
        async with dls.AsyncDispatch(path, sync=setting.sync) as q:
            starting = players.play("work", setting.loop, path, setting.sync, SLOTS)
            await warm(q)  # it needs this loop to get in
            starting.until("ready")
            return await flow.serial(q, setting.n)


async def _program_joins(setting: Setting, path: str, worker: Player) -> Figures:
    async with dls.AsyncDispatch(path, sync=setting.sync) as q:
        if (await q.status()).pid != worker.pid:
            raise AssertionError("the worker does not host its path")
        await warm(q)
        return await flow.serial(q, setting.n)


def daemon(setting: Setting) -> Figures:
    """Daemons, one after another: from the start of one to its first job done, and its memory then."""
    with cast(setting) as players:
        head = players.head()
        return setting.run(_daemons, players, head.url, setting.n)


async def _daemons(players: Cast, url: str, n: int) -> Figures:
    async with dls.AsyncDispatch(url) as q:
        await _daemon(players, q, url, "process")  # whose modules may have to be compiled
        runs = [
            await _daemon(players, q, url, "inline") | await _daemon(players, q, url, "process")
            for _ in range(n)
        ]
    return {figure: sorted(run[figure] for run in runs)[n // 2] for figure in runs[0]}


async def _daemon(players: Cast, q: dls.AsyncDispatch, url: str, runner: str) -> Figures:
    inv = await q.submit(nothing)
    start = time.perf_counter()
    parent = players.daemon(url, "--runner", runner)
    await q.result(inv, timeout=60.0)
    elapsed = time.perf_counter() - start
    (child,) = children(parent.pid)
    memory = {"parent MB": proportional(parent.pid) / MB, "child MB": proportional(child) / MB}
    if runner == "process":
        bodies = sum(proportional(pid) for pid in children(child)) / MB
        memory = {"process start s": elapsed, "process MB": sum(memory.values()) + bodies, "body MB": bodies}
    else:
        memory |= {"start s": elapsed, "MB": sum(memory.values())}
    parent.end()
    return memory
