"""Prints what this machine does, and what the peers do on it: `python benchmarks/run.py`.

Each figure is the median of whole processes, one after another, ours and the peers' in turn. Times are
never asserted: compare figures of one run, or of runs whose calibration agrees.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import report
from aims import ALL, LOOPS, REDIS, rows
from environments import PEERS, Absent, python_of, redis
from measure import GROUPS, MEASUREMENTS, MILLION

HERE = Path(__file__).resolve().parent
POLLING = ("arq", "saq", "taskiq", "huey", "huey_redis")
WORK = {"jobs": 5_000, "serial": 200, "submits": 20_000}  # of a peer; a tenth for a quick look
PATIENCE = 600  # seconds for one process
Runs = dict[str, list[dict[str, float]]]


def ours(name: str, loop: str, store: str, n: int, cache: str) -> dict[str, float]:
    """One measurement of ours in a process of its own."""
    return _json(
        [sys.executable, str(HERE / "measure.py"), name, loop, store, "-n", str(n), "--cache", cache], {}
    )


def theirs(peer: str, name: str, n: int, waiting: str, venvs: Path) -> dict[str, float]:
    """One measurement of a peer in a process of its own, with a fresh Redis where it wants one."""
    with tempfile.TemporaryDirectory(prefix="lakeshore-peer-") as folder:
        given = {"PEER_FOLDER": folder, "PEER_WAITING": waiting}
        command = [python_of(peer, venvs), str(PEERS / "harness.py"), f"{peer}_peer", name, "-n", str(n)]
        if peer not in REDIS:
            return _json(command, given)
        with redis(Path(folder) / "redis") as url:
            return _json(command, {**given, "PEER_URL": url})


def _json(command: list[str], given: dict[str, str]) -> dict[str, float]:
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **given},
        start_new_session=True,  # so that all it started ends with it
    ) as process:
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Absent(f"{' '.join(command)} took more than {PATIENCE} s") from None
        finally:
            if (status := process.poll()) is None or status < 0:  # killed, it has ended nothing itself
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise Absent(f"{' '.join(command)} failed:\n{errors[-2000:]}")
    return json.loads(out.splitlines()[-1])


class Run:
    """All figures of one run: ours by "name loop store", the peers' by "name peer waiting"."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.runs = options, Runs()
        self.absent: dict[str, str] = {}
        names = options.only or list(MEASUREMENTS)
        self.rows = [row for row in rows() if row.name in names]

    def n(self, name: str) -> int:
        """How many."""
        options, measurement = self.options, MEASUREMENTS[name]
        if options.n:
            return min(options.n, measurement.usual)
        if measurement.scaled and options.million:
            return MILLION
        return measurement.quick if options.quick else measurement.usual

    def all(self) -> None:
        """Measure everything, `repeat` times, in turn."""
        with tempfile.TemporaryDirectory(prefix="lakeshore-bench-") as cache:
            for number in range(self.options.repeat):
                report.progress(f"round {number + 1} of {self.options.repeat}")
                for loop in LOOPS:
                    self.measure("machine", loop, "memory", cache)
                for name, loop, store in self.cells():
                    self.measure(name, loop, store, cache)
                for peer, name, waiting in self.peers():
                    self.measure_peer(peer, name, waiting)

    def cells(self) -> list[tuple[str, str, str]]:
        """What of ours to measure, each once."""
        return list(dict.fromkeys((row.name, loop, row.store) for row in self.rows for loop in row.loops))

    def peers(self) -> list[tuple[str, str, str]]:
        """What of the peers to measure, each once."""
        wanted: dict[tuple[str, str, str], None] = {}
        for beside in (beside for row in self.rows for beside in row.beside):
            for peer in beside.peers:
                for waiting in self.waitings(peer, beside.measurement):
                    wanted[peer, beside.measurement, waiting] = None
        return [cell for cell in wanted if cell[0] in self.options.peers]

    def waitings(self, peer: str, name: str) -> tuple[str, ...]:
        """A peer that polls is measured as it comes, and with shorter delays."""
        return ("default", "tuned") if peer in POLLING and name != "submits" else ("default",)

    def measure(self, name: str, loop: str, store: str, cache: str) -> None:
        """One of ours."""
        self.keep(f"{name} {loop} {store}", lambda: ours(name, loop, store, self.n(name), cache))

    def measure_peer(self, peer: str, name: str, waiting: str) -> None:
        """One of theirs."""
        n = max(1, WORK[name] // (10 if self.options.quick else 1))
        self.keep(f"{name} {peer} {waiting}", lambda: theirs(peer, name, n, waiting, self.options.venvs))

    def keep(self, key: str, measurement: Callable[[], dict[str, float]]) -> None:
        """Measure; what fails is told at the end and tried no more, and the others go on."""
        if key in self.absent:
            return
        report.progress(key)
        try:
            self.runs.setdefault(key, []).append(measurement())
        except Absent as error:
            self.absent[key] = str(error)

    def medians(self) -> dict[str, dict[str, float]]:
        """The median of each figure."""
        return {
            key: {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
            for key, runs in self.runs.items()
            if runs
        }

    def json(self) -> dict[str, Any]:
        """Everything, for a file."""
        medians = self.medians()
        return {
            "python": platform.python_version(),
            "repeat": self.options.repeat,
            "n": {name: self.n(name) for name in MEASUREMENTS},
            "rows": [report.values(row, medians) for row in self.rows],
            "medians": medians,
            "runs": self.runs,
            "absent": self.absent,
        }


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--repeat", type=_count, default=3, help="processes per figure (3)")
    parser.add_argument("--only", type=names(MEASUREMENTS, GROUPS), help="measurements, with commas")
    parser.add_argument("--peers", type=names([*ALL, "dask"]), default=[*ALL, "dask"], help="with commas")
    parser.add_argument("--no-peers", dest="peers", action="store_const", const=[], help="only ours")
    parser.add_argument("--quick", action="store_true", help="fewer of everything: a rough look")
    parser.add_argument("--million", action="store_true", help="queue 1,000,000, not 100,000")
    parser.add_argument("-n", type=_count, default=None, help="at most so many of everything of ours")
    parser.add_argument("--json", type=Path, default=None, help="a file to write all figures to")
    parser.add_argument(
        "--markdown", type=Path, default=None, help="a file to write the table to, for a page"
    )
    parser.add_argument("--venvs", type=Path, default=home / "lakeshore-benchmarks", help="for the peers")
    given = parser.parse_args()
    for option, file in (("--json", given.json), ("--markdown", given.markdown)):
        if file and not file.parent.is_dir():
            parser.error(f"{option} {file}: there is no folder {file.parent}")
    return given


def _count(text: str) -> int:
    """A number of the command line, at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: choose 1 or more")
    return number


def names(known: Iterable[str], groups: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Any:
    """Names with commas, or the name of a group for all of its own."""

    def chosen(text: str) -> list[str]:
        given = [name for word in text.split(",") for name in groups.get(word, (word,))]
        if unknown := set(given) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown)) or 'nothing'}: choose from {', '.join([*groups, *known])}"
            )
        return given

    return chosen


def main() -> None:
    """Measure everything and print a table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a Redis and files are cleaned up
    run = Run(options())
    run.all()
    if run.options.json:
        run.options.json.write_text(json.dumps(run.json(), indent=1) + "\n")
    if run.options.markdown:
        run.options.markdown.write_text(report.markdown(run.rows, run.medians()))
    report.show(run.rows, run.medians(), run.absent, {name: run.n(name) for name in MEASUREMENTS})
    if any(key.split()[1] in LOOPS for key in run.absent):
        raise SystemExit("some of ours failed: see above")


if __name__ == "__main__":
    main()
