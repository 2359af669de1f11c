"""Running the `lakeshore` command: in this process, and as a process of its own."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from planes import PATIENCE, working

from lakeshore import Dispatch, udf
from lakeshore.cli import main

LAKESHORE = (sys.executable, "-m", "lakeshore")
NO_SUCH = "01K2Z7M3Q4W5E6R7T8Y9ZABCDE"  # an id of nothing
_COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "compiled"


@dataclass(frozen=True)
class Done:
    """What a command line came to."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one document it printed."""
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of a table."""
        return [line.split() for line in self.out.splitlines()]


class Shell:
    """Runs command lines in this process, against one plane."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.url, self._capsys = url, capsys

    def __call__(self, line: str, *words: object) -> Done:
        """Run a line, and words after it, whatever comes of it."""
        self._capsys.readouterr()
        status = main(["--url", self.url, *shlex.split(line), *map(str, words)])
        out, err = self._capsys.readouterr()
        return Done(status, out, err)

    def done(self, line: str, *words: object) -> Done:
        """Run it; it does what is asked, without a remark."""
        found = self(line, *words)
        assert (found.status, found.err) == (0, "")
        return found

    def refused(self, line: str, *words: object) -> str:
        """Run it; it is refused. The line on stderr."""
        return self._failed(1, line, words)

    def wrong(self, line: str, *words: object) -> str:
        """Run it; it is wrong usage. The line on stderr."""
        found = self._failed(2, line, words)
        assert found.startswith("usage: ")
        return found.removeprefix("usage: ")

    def _failed(self, status: int, line: str, words: tuple[object, ...]) -> str:
        found = self(line, *words)
        assert (found.status, found.out) == (status, ""), found
        text, end, rest = found.err.partition("\n")
        assert (end, rest) == ("\n", "")
        return text


def environment(home: Path, **more: str) -> dict[str, str]:
    """For a process of its own: a home that is not the user's, and compiled modules, which tests share."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKESHORE_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    kept.pop("PYTHONUNBUFFERED", None)
    return {**kept, "LAKESHORE_HOME": str(home), "PYTHONPYCACHEPREFIX": str(_COMPILED), **more}


def process(home: Path, *words: object, **more: str) -> Done:
    """Run a command line as a process of its own."""
    done = subprocess.run(
        [*LAKESHORE, *map(str, words)],
        env=environment(home, **more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@contextmanager
def serving(q: Dispatch, *queues: str, **options: Any) -> Generator["Future[int]"]:
    """A worker that has registered: it has run a job of its first queue, which no other may serve."""
    with working(q, queues=queues, **options) as worker:
        q.result(udf(_nothing, queue=queues[0] if queues else None).submit(_dispatch=q), timeout=PATIENCE)
        yield worker


def _nothing() -> None:
    """A body."""


@pytest.fixture
def q(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dispatch]:
    """A plane in a file that this process has open, so that it shares it with the commands it runs."""
    for name in [name for name in os.environ if name.startswith("LAKESHORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "home"))
    with Dispatch(tmp_path / "plane.db") as dispatch:
        yield dispatch


@pytest.fixture
def sh(q: Dispatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Command lines against it."""
    return Shell(q.address, capsys)
