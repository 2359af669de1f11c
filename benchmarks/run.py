"""Prints what this machine does: `python benchmarks/run.py [--repeat 3] [--only jobs,serial]`.

Each number is the median of whole processes, one after another. Times are never asserted: compare
two versions on one quiet machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
CELLS = [(loop, store) for store in ("memory", "normal", "full") for loop in ("asyncio", "trio")]
NAMES = ["jobs", "sync_jobs", "submits", "many", "serial", "frames", "first_frame", "naps"]


def one(name: str, loop: str, store: str) -> dict[str, float]:
    """One measurement in a process of its own."""
    command = [sys.executable, str(HERE / "measure.py"), name, loop, store]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="processes per number")
    parser.add_argument("--only", default=",".join(NAMES), help="measurements, with commas")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name in options.only.split(","):
        for loop, store in CELLS:
            runs = [one(name, loop, store) for _ in range(options.repeat)]
            for unit in runs[0]:
                median = statistics.median(run[unit] for run in runs)
                results.setdefault(f"{name}: {unit}", {})[f"{store} {loop}"] = median
    if options.json:
        print(json.dumps(results))
        return
    table = Table("what", *(f"{store}\n{loop}" for loop, store in CELLS))
    for what, cells in results.items():
        table.add_row(what, *(f"{cells[f'{store} {loop}']:,.4g}" for loop, store in CELLS))
    Console().print(table)


if __name__ == "__main__":
    main()
