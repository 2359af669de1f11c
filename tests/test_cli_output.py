"""What commands print: in a pipe, at a terminal, as JSON, to a reader that goes away, and under Ctrl-C."""

import dataclasses
import json
import math
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from cli import LAKESHORE, Shell, environment, process, q, sh
from planes import PATIENCE, elsewhere

import lakeshore as dls
from lakeshore.cli import printing, values, watching

__all__ = ["q", "sh"]  # fixtures


@dls.udf
def nothing() -> None:
    pass


def test_in_a_pipe_one_row_is_one_line_and_nothing_is_cut(sh: Shell, q: dls.Dispatch) -> None:
    long = "a b " * 200 + "end"
    q.queues.add("long", description=long)
    q.queues.add("odd", description="two\nlines\tand \x1b[31mred")
    lines = sh.done("queues ls").out.splitlines()
    assert len(lines) == 4
    assert [line.split()[0] for line in lines] == ["NAME", "default", "long", "odd"]
    assert lines[2].endswith(long)
    assert lines[3].endswith(r"two lines and \x1b[31mred")
    starts = {line.index(word) for line, word in zip(lines, ["KIND", *["fifo"] * 3], strict=True)}
    assert len(starts) == 1  # columns are aligned


def test_json_is_one_document(sh: Shell, q: dls.Dispatch) -> None:
    nothing.submit()
    for line in (
        "queues ls",
        "queues show default",
        "queues stats default",
        "queues events default",
        "jobs list",
        "workers list",
        "providers list",
        "topics list",
        "tokens list",
        "status",
        "jobs bulk-cancel",
    ):
        found = sh.done(line, "--json")
        assert found.out.count("\n") == 1
        assert json.loads(found.out) is not None


def test_global_options_before_and_after(q: dls.Dispatch, capsys: pytest.CaptureFixture[str]) -> None:
    from lakeshore.cli import main

    for words in (
        ["--url", q.address, "--namespace", "n", "queues", "add", "a"],
        ["queues", f"--url={q.address}", "show", "a", "--namespace=n"],
    ):
        assert main(words) == 0
    assert [queue.name for queue in q.queues.ls()] == ["default"]
    assert main(["queues", "show", "a", "--url", q.address]) == 1
    assert capsys.readouterr().err.startswith("404 NotFound: ")


def test_the_environment_names_the_plane(
    q: dls.Dispatch, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lakeshore.cli import main

    monkeypatch.setenv("LAKESHORE_URL", q.address)
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "n")
    assert main(["queues", "add", "a"]) == 0
    with dls.Dispatch(q.address, namespace="n") as other:
        assert other.queues.show("a").name == "a"
    capsys.readouterr()


def terminal(home: Path, *words: str) -> tuple[int, str]:
    """Run a command line at a terminal of 60 columns."""
    parent, child = pty.openpty()
    command = [*LAKESHORE, *words]
    env = environment(home, COLUMNS="60", TERM="xterm", NO_COLOR="")
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=env) as running:
        os.close(child)
        shown = b""
        try:
            while data := os.read(parent, 4096):
                shown += data
        except OSError:  # how Linux says that the other end has closed
            pass
        os.close(parent)
        return running.wait(PATIENCE), shown.decode()


def test_at_a_terminal(tmp_path: Path) -> None:
    path = str(tmp_path / "plane.db")
    with dls.Dispatch(path) as q:
        q.queues.add("training-h100", kind="boltzmann", description="long " * 20)
        job = nothing.submit(_dispatch=q)
        dls.run_worker(q, drain=True)
    status, shown = terminal(tmp_path, "queues", "ls", "--url", path)
    assert status == 0
    assert "\x1b[1m" in shown  # the heads
    assert "\x1b[32mactive" in shown
    assert shown.count("long") == 20  # folded, not cut
    status, shown = terminal(tmp_path, "jobs", "result", job, "--url", path)
    assert (status, shown.splitlines()[-1].endswith("None")) == (0, True)


def test_a_reader_that_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path) as q:
        q.topic("t").post("x" * 1000)
        for _ in range(300):
            q.topic("t").post("x" * 1000)
    line = f"{' '.join(LAKESHORE)} topics read t --url {path} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == ["x" * 1000, "0"]
    assert done.stderr == ""


def test_help_for_a_reader_that_goes_away_and_output_that_goes_nowhere(tmp_path: Path) -> None:
    lakeshore, url = " ".join(LAKESHORE), tmp_path / "plane.db"
    script = f"""
    {lakeshore} --help | true; echo ${{PIPESTATUS[0]}}
    {lakeshore} queues ls --url {url} >&-; echo $?
    {lakeshore} queues ls --url {url} >/dev/full; echo $?
    {lakeshore} queues show nope --url {url} 2>&-; echo $?
    """
    done = subprocess.run(
        ["bash", "-c", script],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["0", "0", "1", "1"]
    assert done.stderr == "OSError: [Errno 28] No space left on device\n"


def test_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path) as q:
        q.topic("t").post("there")
    for words, status in (("topics read t", 130), ("queues ls --watch", 0)):
        command = [*LAKESHORE, *words.split(), "--url", str(path)]
        with subprocess.Popen(
            command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            assert running.stdout is not None
            assert running.stdout.readline() != ""
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=PATIENCE)
        assert (running.returncode, err) == (status, "")


def test_a_plane_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a store " * 1000)
    found = process(tmp_path, "queues", "ls", LAKESHORE_URL=str(tmp_path / "text.db"))
    assert (found.status, found.out, found.err.count("\n")) == (1, "", 1)
    assert found.err.startswith("StoreCorrupt: ")


class Stopped(Exception):
    """Ends a watch of a test."""


def watched(monkeypatch: pytest.MonkeyPatch, *changes: Callable[[], object]) -> None:
    """Between two looks, one change after another; then Ctrl-C."""
    left = list(changes)

    def pause() -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    monkeypatch.setattr(watching, "pause", pause)


def test_watch_prints_what_changed(sh: Shell, q: dls.Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [
        lambda: None,
        lambda: q.queues.pause("default"),
        lambda: None,
        lambda: q.queues.resume("default"),
    ]
    watched(monkeypatch, *steps)
    lines = sh.done("queues ls --watch --json").out.splitlines()
    assert [json.loads(line)[0]["state"] for line in lines] == ["active", "paused", "active"]
    watched(monkeypatch, *steps)
    lines = sh.done("queues ls --watch").out.splitlines()
    assert [line.split()[2] for line in lines if line.startswith("default")] == ["active", "paused", "active"]
    assert len([line for line in lines if not line]) == 2


@pytest.mark.parametrize(
    "line",
    ["queues ls", "queues stats default", "queues events default", "jobs list", "workers list"],
)
def test_what_can_be_watched(sh: Shell, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    watched(monkeypatch, lambda: None)
    found = sh.done(line, ["--watch", "--json"][0], "--json")
    assert len(found.out.splitlines()) == 1
    json.loads(found.out)


def test_watch_redraws_at_a_terminal(sh: Shell, q: dls.Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "terminal", lambda: True)
    watched(monkeypatch, lambda: q.queues.pause("default"))
    found = sh.done("queues ls --watch").out
    assert "paused" in found


def test_a_watch_ends_when_its_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and not at the next change, which may never come."""
    monkeypatch.setattr(watching, "PERIOD", PATIENCE)
    reading, writing = os.pipe()
    with open(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        with elsewhere(watching.pause) as pausing:
            os.close(reading)
            with pytest.raises(BrokenPipeError):
                pausing.result(PATIENCE / 2)


def test_a_pause_is_never_short() -> None:
    assert watching.PERIOD >= 1


class Colour(Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Row(msgspec.Struct):
    name: str


@pytest.mark.parametrize(
    ("value", "document", "text"),
    [
        ("a\nb", "a\nb", "a\nb"),
        (None, None, "None"),
        (True, True, "True"),
        (2**70, 2**70, str(2**70)),
        (1.5, 1.5, "1.5"),
        (math.nan, None, "nan"),
        (math.inf, None, "inf"),
        (b"ab", "YWI=", "b'ab'"),
        ([1, (2, {3})], [1, [2, [3]]], "[1, (2, {3})]"),
        (
            {1: "a", (1, 2): "b", None: 0},
            {"1": "a", "[1,2]": "b", "null": 0},
            "{1: 'a', (1, 2): 'b', None: 0}",
        ),
        (date(2026, 8, 6), "2026-08-06", "datetime.date(2026, 8, 6)"),
        (datetime(2026, 8, 6, tzinfo=UTC), "2026-08-06T00:00:00+00:00", None),
        (timedelta(minutes=1), 60.0, "datetime.timedelta(seconds=60)"),
        (Decimal("1.10"), "1.10", "Decimal('1.10')"),
        (1 + 2j, "(1+2j)", "(1+2j)"),
        (Path("/a/b"), "/a/b", "PosixPath('/a/b')"),
        (np.arange(4).reshape(2, 2), [[0, 1], [2, 3]], None),
        (np.float32(1.5), 1.5, None),
        (Colour.RED, "red", None),
        (Point(1, math.inf), {"x": 1, "y": None}, "Point(x=1, y=inf)"),
        (Row("n"), {"name": "n"}, "Row(name='n')"),
        (range(3), [0, 1, 2], "range(0, 3)"),
    ],
)
def test_values_as_json_and_as_text(value: Any, document: Any, text: str | None) -> None:
    found = values.jsonable(value)
    assert json.loads(json.dumps(found)) == document
    assert values.text(value) == (text if text is not None else repr(value))


def test_half_a_surrogate_can_be_printed() -> None:
    assert values.jsonable("a\ud800") == "a\\ud800"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((None, "-"), ("", "-"), ((), "-"), ([], "-"), ({}, "-"), (True, "yes"), (False, "no"), (0, "0")),
        *((0.25, "0.25"), (("a", "b"), "a,b"), ({"a": 1, "b": None}, "a=1"), ({"a": None}, "-")),
        (datetime(2026, 8, 6, 1, 2, 3, 999, UTC), "2026-08-06T01:02:03Z"),
    ],
)
def test_cells(value: Any, shown: str) -> None:
    assert printing.cell(value) == shown
