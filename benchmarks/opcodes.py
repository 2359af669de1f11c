"""What a job costs a head, a program and a worker, in bytecodes: `opcodes.py jobs|serial|… [asyncio|trio]`.

Unlike a time this hardly moves from run to run. It says where Python is executed, not how long that takes:
what C does (SQLite, msgspec, sockets) is counted as the call of it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import anyio
import flow
import player
import remote
from bodies import nothing
from cast import Cast, Player, cast
from rich.console import Console
from rich.table import Table
from setting import SLOTS, Setting

import lakeshore as dls

ROOT = Path(__file__).resolve().parent.parent
RESET, TELL = signal.SIGUSR1, signal.SIGUSR2
WHERE = "BENCHMARK_COUNTS"  # names the folder for what was counted
Row = tuple[str, int, int]  # a function, its bytecodes, its calls


async def submits(q: dls.AsyncDispatch, n: int) -> None:
    """Bulk submits to a queue that is paused."""
    if not any(queue.name == "bulk" for queue in await q.queues.ls()):
        await q.queues.add("bulk")
        await q.queues.pause("bulk")
    await q.submit_many(dls.udf(nothing.fn, queue="bulk"), [{}] * n)


KINDS: dict[str, Callable[[dls.AsyncDispatch, int], Awaitable[Any]]] = {
    "jobs": flow.jobs,
    "serial": flow.serial,
    "submits": submits,
    "frames": flow.frames,
}


class Counter:
    """Counts bytecodes and calls (of a coroutine: every time it goes on) of all functions, in all threads."""

    def __init__(self) -> None:
        self._cells: dict[CodeType, list[int]] = {}
        self._locals: dict[CodeType, Callable[..., Any]] = {}
        self._looking = False  # at the cells: nothing new may come in

    def begin(self) -> None:
        """From now on, for what is called from now on."""
        signal.signal(RESET, lambda *_: self._reset())
        signal.signal(TELL, lambda *_: self._tell())
        threading.settrace(self._called)
        sys.settrace(self._called)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        local = self._locals.get(code)
        if local is None:
            if self._looking:
                return None
            local = self._counting(code)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._cells[code][1] += 1
        return local

    def _counting(self, code: CodeType) -> Callable[..., Any]:
        cell = self._cells[code] = [0, 0]

        def count(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            if event == "opcode":
                cell[0] += 1
            return count

        self._locals[code] = count
        return count

    def _reset(self) -> None:
        self._looking = True
        for cell in self._cells.values():
            cell[:] = 0, 0
        self._looking = False
        os.write(1, b"reset\n")

    def _tell(self) -> None:
        self._looking = True
        counted = [(code, *cell) for code, cell in self._cells.items()]
        rows = [(_name(code), *cell) for code, *cell in counted if cell[0]]
        Path(os.environ[WHERE], str(os.getpid())).write_text(json.dumps(rows))
        os.write(1, b"told\n")


def _name(code: CodeType) -> str:
    path = Path(code.co_filename)
    short = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path(*path.parts[-2:])
    return f"{short}:{code.co_qualname}"


def program(kind: str, loop: Any, url: str, n: str) -> None:
    """The program's part: get warm, wait for a line, do n jobs."""

    async def main() -> None:
        async with dls.AsyncDispatch(url) as q:
            await remote.warm(q)
            await KINDS[kind](q, min(int(n), flow.CLIENTS))
            player.say("ready")
            await anyio.to_thread.run_sync(sys.stdin.readline)
            await KINDS[kind](q, int(n))
            player.say("done")
            await anyio.to_thread.run_sync(sys.stdin.readline)

    anyio.run(main, backend=loop)


def count(kind: str, loop: str, n: int) -> dict[str, list[Row]]:
    """The functions of each process, most bytecodes first, for all n jobs."""
    with tempfile.TemporaryDirectory(prefix="lakeshore-bench-") as folder:
        os.environ[WHERE] = folder
        setting = Setting(loop, "normal", n, Path(folder), Path(folder))
        with cast(setting, Path(__file__).name) as players:
            return _count(players, kind, n)


def _count(players: Cast, kind: str, n: int) -> dict[str, list[Row]]:
    head = players.head()
    worker = players.worker(head.url, SLOTS)
    asking = players.play("program", kind, players.setting.loop, head.url, n)
    asking.until("ready")
    each = {"head": head, "program": asking, "worker": worker}
    _signal(each, RESET, "reset")
    asking.tell("go")
    asking.until("done")
    _signal(each, TELL, "told")
    return {name: _counted(one) for name, one in each.items()}


def _signal(players: dict[str, Player], number: int, answer: str) -> None:
    for one in players.values():
        os.kill(one.pid, number)
        one.until(answer)


def _counted(one: Player) -> list[Row]:
    rows = [tuple(row) for row in json.loads(Path(os.environ[WHERE], str(one.pid)).read_text())]
    return sorted(rows, key=lambda row: -row[1])


def by_file(rows: list[Row]) -> list[Row]:
    """The same, added up by file."""
    files: dict[str, Row] = {}
    for where, taken, called in rows:
        file = where.partition(":")[0]
        _, before, calls = files.get(file, (file, 0, 0))
        files[file] = (file, before + taken, calls + called)
    return sorted(files.values(), key=lambda row: -row[1])


def load() -> None:
    """Import beforehand what nobody wants to have counted."""
    for name in ("lakeshore.cli.serve", "lakeshore.sdk.serving", "lakeshore.store.sqlite"):
        importlib.import_module(name)
    for name in dls.__all__:
        getattr(dls, name)


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("loop", choices=["asyncio", "trio"], nargs="?", default="asyncio")
    parser.add_argument("-n", type=int, default=2_000, help="how many jobs, or frames")
    parser.add_argument("--top", type=int, default=10, help="how many functions of each process")
    parser.add_argument("--files", action="store_true", help="add the functions of each file up")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    for name, rows in count(options.kind, options.loop, options.n).items():
        codes = sum(taken for _, taken, _ in rows) / options.n
        calls = sum(called for _, _, called in rows) / options.n
        table = Table(f"{name}: {codes:,.0f} bytecodes each", "bytecodes", f"calls (of {calls:,.0f})")
        for where, taken, called in (by_file(rows) if options.files else rows)[: options.top]:
            table.add_row(where, f"{taken / options.n:,.1f}", f"{called / options.n:,.2f}")
        console.print(table)


if __name__ == "__main__":
    roles = {**player.ROLES, "program": program}
    if len(sys.argv) > 1 and sys.argv[1] in roles:
        load()
        Counter().begin()
        roles[sys.argv[1]](*sys.argv[2:])
    else:
        main()
