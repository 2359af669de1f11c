"""Runs the soak in this process: `python tests/soak_main.py --help`. Exit status 0: nothing was left.

A stretch of work, all of it ended and pruned, and a census: that is what an idle plane holds once
everything was used. Then the day, with a census each hour; its end must hold what the first did.
"""

import argparse
import gc
import logging
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import anyio
import soak_clock
from soak_census import Census, clear_caches, grown, process
from soak_leaks import LEAKS
from soak_load import ACTIONS, GAVE_UP, Load

import lakeshore as dls

HOUR = 3600.0
RETENTION = 1800.0  # seconds
BUGS = ("InternalError", "PlaneFailed", "PlaneClosed", "StoreFailed", "StoreError", "Gap", "BadRequest")
ENDS = (
    "InvocationFailed",
    "InvocationKilled",
    "InvocationTimeout",
    "TimeoutError",
    GAVE_UP,
)
BLOCKS = 5000  # of memory, that caches of Python and its libraries may still grow by


class Soak:
    """One run, and what it found wrong."""

    def __init__(self, options: argparse.Namespace, path: Path | None) -> None:
        self.options, self.path = options, path
        self.wrong: list[str] = []
        self.most: tuple[Counter[str], Counter[str]] = (Counter(), Counter())  # of each half of the day

    async def run(self, pace: soak_clock.Pace) -> None:
        """All of it, on a loop whose time is virtual."""
        address = ":memory:" if self.path is None else str(self.path)
        async with dls.AsyncDispatch(address, retention=RETENTION) as q, anyio.create_task_group() as tasks:
            load = Load(q, tasks, self.options.seed, self.options.gap)
            await load.set_up()
            await load.work(3 * HOUR)
            await load.end(4 * HOUR)
            before, held = await self._count(q)
            blocks = sys.getallocatedblocks()
            for hour in range(self.options.hours):
                await load.work(HOUR)
                most = self.most[2 * hour // self.options.hours]
                most |= Census(q).tables  # in place: of each table the larger count
            await load.end(4 * HOUR)
            after, holds = await self._count(q)
            blocks = sys.getallocatedblocks() - blocks
            self._say("left in memory", [f"{blocks} blocks"] if blocks > BLOCKS else [])
            self._is_back(before, after)
            self._say("left in the process", grown(Counter(held), Counter(holds)))
            self._stayed_flat()
            self._did_all(load.done)
            tasks.cancel_scope.cancel()

    async def _count(self, q: dls.AsyncDispatch) -> tuple[Census, dict[str, int]]:
        await q.jobs.list(state="queued")  # which brings the index of a memory store up to date
        clear_caches()
        for _ in range(3):  # what a collection finds may have to be closed by the loop
            gc.collect()
            await anyio.sleep(1)
        return Census(q), process(self.path)

    def _say(self, where: str, found: list[str]) -> None:
        self.wrong += [f"{where}: {what}" for what in found]

    def _is_back(self, before: Census, after: Census) -> None:
        self._say("left in a table", grown(before.tables, after.tables))
        self._say("left an object", grown(before.objects, after.objects))
        self._say("left in a counter", grown(before.numbers, after.numbers))

    def _stayed_flat(self) -> None:
        self._say("grew through the day", grown(*self.most, times=1.5, slack=100))

    def _did_all(self, done: Counter[str]) -> None:
        print(*[f"{count} {name}" for name, count in sorted(done.items())], sep=", ")
        self._say("a bug", [f"{done[name]} {name}" for name in BUGS if done[name]])
        self._say("was never done", [name for name in (*ACTIONS, *ENDS) if not done[name]])


class Errors(logging.Handler):
    """What Lakeshore logs as an error or worse; that bodies failed is none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.said.append(f"logged: {record.getMessage()}")


def _hours(text: str) -> int:
    """A number of the command line, at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: choose 1 or more")
    return number


def main() -> int:
    """Parse, run, print what was wrong."""
    parser = argparse.ArgumentParser(description="A day of mixed work in virtual time; nothing may be left.")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    parser.add_argument("--store", choices=("memory", "file"), default="memory")
    parser.add_argument("--hours", type=_hours, default=24, help="virtual hours (24)")
    parser.add_argument("--gap", type=float, default=20.0, help="virtual seconds between actions (20)")
    parser.add_argument("--seed", type=int, default=1, help="(1)")
    parser.add_argument("--leak", choices=tuple(LEAKS), help="plant this leak, which must be found")
    options = parser.parse_args()
    warnings.simplefilter("error")
    if options.leak:
        LEAKS[options.leak]()
    errors = Errors()
    log = logging.getLogger("lakeshore")
    log.handlers, log.propagate = [errors], False
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(options, Path(folder, "plane.db") if options.store == "file" else None)
        soak_clock.run(options.backend, soak.run)
    soak.wrong += errors.said
    print(*soak.wrong, sep="\n", file=sys.stderr)
    if options.leak:
        print(f"the planted leak {options.leak} was {'found, as above' if soak.wrong else 'NOT found'}")
    else:
        print("something was left, or went wrong: see above" if soak.wrong else "nothing was left")
    return 1 if soak.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
