"""One measurement in a process of its own: `python benchmarks/measure.py NAME LOOP STORE`.

Prints one JSON object. `benchmarks/run.py` starts these and prints the table.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import apart
import flow
import idle
import process
import remote
import size
import takeover
from machine import machine
from setting import Figures, Setting


class Measurement(NamedTuple):
    """What is called, and with how many: usually, and for a quick look."""

    run: Callable[[Setting], Figures]
    usual: int
    quick: int
    scaled: bool = False  # 1,000,000 only where asked for


MILLION = 1_000_000
MEASUREMENTS: dict[str, Measurement] = {
    "machine": Measurement(machine, 10_000, 2_000),
    "jobs": Measurement(flow.on_plane(flow.jobs), 50_000, 5_000),
    "sync_jobs": Measurement(flow.on_plane(flow.sync_jobs), 20_000, 3_000),
    "many": Measurement(flow.on_plane(flow.many), 40_000, 6_000),
    "submits": Measurement(flow.on_plane(flow.submits), 100_000, 20_000),
    "serial": Measurement(flow.on_plane(flow.serial), 3_000, 500),
    "frames": Measurement(flow.on_plane(flow.frames), 300_000, 50_000),
    "first_frame": Measurement(flow.on_plane(flow.first_frame), 500, 100),
    "naps": Measurement(flow.naps, 1_000, 1_000),
    "dispatch": Measurement(process.dispatch, 10_000, 2_000),
    "worker_process": Measurement(process.worker_process, 10_000, 10_000),
    "imports": Measurement(process.imports, 9, 5),
    "bytes": Measurement(size.bytes_per_job, 100_000, 50_000, scaled=True),
    **{
        f"drain_{kind}": Measurement(size.drain(kind), 100_000, 20_000, scaled=True)
        for kind in ("fifo", "filo", "priority", "boltzmann")
    },
    "reopen": Measurement(size.reopen, 100_000, 50_000, scaled=True),
    "listing": Measurement(size.listing, 100_000, 50_000, scaled=True),
    "remote_jobs": Measurement(remote.over_tcp(flow.jobs), 50_000, 5_000),
    "remote_serial": Measurement(remote.over_tcp(flow.serial), 3_000, 500),
    "shared_serial": Measurement(remote.shared_serial, 3_000, 500),
    "daemon": Measurement(remote.daemon, 5, 3),
    "processes": Measurement(apart.processes, 2_000, 300),
    "remote_frames": Measurement(remote.over_tcp(flow.frames), 300_000, 50_000),
    "idle": Measurement(idle.idle, 1_000, 200),
    "takeover": Measurement(takeover.takeover, 10_000, 1_000),
    "remote_submits": Measurement(remote.over_tcp(flow.submits, working=False), 100_000, 20_000),
}
REMOTE = (  # between processes
    "remote_jobs",
    "remote_serial",
    "shared_serial",
    "daemon",
    "remote_frames",
    "idle",
    "takeover",
    "remote_submits",
)
GROUPS = {"remote": REMOTE}  # several by one name


def measure(name: str, loop: str, store: str, n: int, cache: Path | None = None) -> Figures:
    """One measurement, in this process."""
    with tempfile.TemporaryDirectory(prefix="lakeshore-bench-") as folder:
        setting = Setting(loop, store, n, Path(folder), cache or Path(folder))
        return MEASUREMENTS[name].run(setting)


def main() -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=MEASUREMENTS)
    parser.add_argument("loop", choices=["asyncio", "trio"])
    parser.add_argument("store", choices=["memory", "normal", "full"])
    parser.add_argument("-n", type=int, default=None, help="how many jobs or frames")
    parser.add_argument("--cache", type=Path, default=None, help="a folder for files to use again")
    options = parser.parse_args()
    n = options.n or MEASUREMENTS[options.name].usual
    print(json.dumps(measure(options.name, options.loop, options.store, n, options.cache)))


if __name__ == "__main__":
    main()
