"""Rounds of work, each ended by SIGKILL and checked by the program of the next round.

    PYTHONPATH=tests python -m programs.crashes --backend trio --sync full --seed 7 --rounds 1000

What a round does and how it ends follow from the seed and the round's number. Where in a moment a
kill falls is up to the machine, so a finding may take more than one run to come again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .ledger import Ledger

TESTS = Path(__file__).parents[1]
PATIENCE = 30.0  # seconds after which a round is stuck
LOOKED_AT = 25  # acknowledged ends and journals that a round looks at again, besides the newest


class Zygote:
    """The warm process that forks the programs. Leaving the block ends it."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._child = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "programs.zygote", backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])},
            bufsize=0,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._process.communicate(timeout=PATIENCE)

    def run(self, spec: dict[str, Any]) -> Iterator[bytes]:
        """What one program says, until it has ended: killed as `spec["kill"]` says, or when it is done."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps({**spec, "backend": self.backend}).encode() + b"\n")
        kill, output, rest = spec["kill"], self._process.stdout.fileno(), b""
        planned, due = False, time.monotonic() + PATIENCE
        while True:
            wait = due - time.monotonic()
            if self._child and (wait <= 0 or not select.select([output], [], [], wait)[0]):
                if not planned:
                    yield b'["stuck"]'
                self.kill()
                due = time.monotonic() + PATIENCE
            if not (data := os.read(output, 1 << 16)):
                raise RuntimeError("the zygote ended")
            *lines, rest = (rest + data).split(b"\n")
            for line in filter(None, lines):
                phase = line[2 : line.find(b'"', 2)].decode()
                if phase == "pid":
                    self._child = int(json.loads(line)[1])
                elif phase == "end":
                    self._child = 0
                if phase == kill.get("from"):
                    planned, due = True, time.monotonic() + kill["after"]
                elif phase == "done":
                    planned, due = True, 0.0
                yield line
                if phase == "end":
                    return

    def kill(self) -> None:
        """End the program now."""
        if self._child:  # it may have ended: then it is a zombie, which the zygote reaps later
            os.kill(self._child, signal.SIGKILL)


PLANS: dict[str, Callable[[random.Random], dict[str, Any]]] = {  # when a program is to end
    "at once": lambda rng: {"from": "pid", "after": rng.uniform(0, 0.1)},
    "at work": lambda rng: {"from": "working", "after": rng.uniform(0, 0.15)},
    "at an acknowledgement": lambda rng: {
        "acknowledgement": rng.choice([rng.randint(1, 20), rng.randint(1, 200)])
    },
    "at an early statement": lambda rng: {"first statement": rng.randint(1, 80)},
    "at a statement": lambda rng: {"statement": rng.randint(1, 400)},
}


class Rounds:
    """A file that is worked on and crashed. `ledger.findings` are what went wrong.

    Args:
        zygote: forks the programs.
        folder: where the file is made.
        seed: draws what the programs do and when they are killed.
        sync: of the plane.
        fault: one of `broken.FAULTS`, for the programs to have.
        plans: the kinds of ends to choose from.
    """

    def __init__(
        self,
        zygote: Zygote,
        folder: Path,
        seed: int,
        sync: str,
        fault: str = "",
        plans: Sequence[str] = tuple(PLANS),
    ) -> None:
        self._plans = plans
        self._zygote, self._seed, self._sync, self._fault = zygote, seed, sync, fault
        self.path = folder / "plane.db"
        self.ledger = Ledger()
        self.number = 0
        self._readers: list[Any] = []

    def run(self, rounds: int) -> None:
        """Run that many, the last of which ends by itself, or fewer where one finds something."""
        for number in range(1, rounds + 1):
            self.number = number
            self._round(last=number == rounds)
            if self.ledger.findings:
                return

    def _round(self, *, last: bool) -> None:
        rng = random.Random(f"{self._seed}/{self.number}")
        ledger = self.ledger
        spec = {
            "path": str(self.path),
            "sync": self._sync,
            "fault": self._fault,
            "round": self.number,
            "seed": rng.random(),
            "last": last,
            "kill": {} if last else PLANS[rng.choice(self._plans)](rng),
            "readers": self._readers,
            "keys": ledger.known_calls(LOOKED_AT),
            "open": len(ledger.open_keys),
            "results": _some(rng, list(ledger.results), last),
            "frames": [[inv, len(ledger.frames[inv])] for inv in _some(rng, list(ledger.frames), last)],
            "topics": [[name, len(frames)] for name, frames in ledger.topics.items()],
        }
        status = 0
        for line in self._zygote.run(spec):
            if not ledger.findings:
                ledger.take(line)
            if ledger.findings:
                self._zygote.kill()
            if line.startswith(b'["end"'):
                status = json.loads(line)[1]
        if not ledger.findings and status != (0 if last else -signal.SIGKILL):
            ledger.findings.append(f"the program ended with status {status}")
        self._readers = ledger.end_round()

    def report(self) -> str:
        """What was found, and how to look for it again."""
        rerun = (
            f"PYTHONPATH=tests python -m programs.crashes --backend {self._zygote.backend} "
            f"--sync {self._sync} "
            f"--seed {self._seed} --rounds {self.number}" + (f" --fault {self._fault}" if self._fault else "")
        )
        found = [f"round {self.number} of seed {self._seed}:", *self.ledger.findings[:20]]
        return "\n".join([*found, f"run it again: {rerun}", f"the file: {self.path}"])


def _some(rng: random.Random, ids: list[str], everything: bool) -> list[str]:
    if everything or len(ids) <= 2 * LOOKED_AT:
        return ids
    return ids[-LOOKED_AT:] + rng.sample(ids[:-LOOKED_AT], LOOKED_AT)


def _count(text: str) -> int:
    """A number of the command line, at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: choose 1 or more")
    return number


def main() -> int:
    """Run rounds by hand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--backend", choices=["asyncio", "trio"], default="asyncio")
    parser.add_argument("--sync", choices=["normal", "full"], default="normal")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument("--rounds", type=_count, default=100, help="(100)")
    parser.add_argument(
        "--fault", choices=["early", "pieces"], default="", help="plant this fault, which must be found"
    )
    parser.add_argument("--plan", choices=PLANS, action="append", help="an end to choose, all if not given")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="crashes-"))
    started = time.monotonic()
    with Zygote(given.backend) as zygote:
        rounds = Rounds(zygote, folder, given.seed, given.sync, given.fault, given.plan or tuple(PLANS))
        rounds.run(given.rounds)
    ledger = rounds.ledger
    print(
        f"{rounds.number} rounds in {time.monotonic() - started:.1f} s: {len(ledger.invocations)} "
        f"invocations, {len(ledger.results)} results, {sum(map(len, ledger.frames.values()))} frames"
    )
    if ledger.findings:
        print(rounds.report())
    return bool(ledger.findings)


if __name__ == "__main__":
    sys.exit(main())
