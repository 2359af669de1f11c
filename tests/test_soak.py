"""A day of mixed work in virtual time, on both loops and both stores, after which nothing is left.

`python tests/soak_main.py --help` runs one by hand, as long and as dense as one likes.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from soak_leaks import LEAKS

LONG = "LAKESHORE_LONG" in os.environ
GAP = 10 if LONG else 60  # virtual seconds between two actions, on average
PATIENCE = 3600 if LONG else 300  # seconds
RUNS = [(backend, store) for backend in ("asyncio", "trio") for store in ("memory", "file")]


class Run:
    """A soak in a process of its own, whose memory, threads and descriptors are only its own."""

    def __init__(self, folder: Path, *options: object) -> None:
        self._said = folder / "said"
        with self._said.open("wb") as file:
            command = [sys.executable, str(Path(__file__).with_name("soak_main.py")), *map(str, options)]
            self.process = subprocess.Popen(command, stdout=file, stderr=file)

    def end(self) -> tuple[int, str]:
        """Its exit status and what it said."""
        return self.process.wait(PATIENCE), self._said.read_text()


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], Run]]:
    """All of them at once: a file's store mostly waits for its threads."""
    runs = {
        (backend, store): Run(
            tmp_path_factory.mktemp("soak"), "--backend", backend, "--store", store, "--gap", GAP
        )
        for backend, store in RUNS
    }
    yield runs
    for run in runs.values():
        run.process.kill()
        run.process.wait()


@pytest.mark.parametrize(("backend", "store"), RUNS)
def test_a_day_of_mixed_work_leaves_nothing(
    days: dict[tuple[str, str], Run], backend: str, store: str
) -> None:
    status, said = days[backend, store].end()
    assert status == 0, said


TRACES = {
    "kept_streams": "left in a table: Peer.open",
    "followed_topics": "left in a table: Topics.topics",
    "young_forever": "left in a counter: MemoryStore.used",
}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_planted_leak_is_found(tmp_path: Path, leak: str) -> None:
    status, said = Run(tmp_path, "--hours", 2, "--gap", 40, "--leak", leak).end()
    assert status == 1, said
    assert TRACES[leak] in said
