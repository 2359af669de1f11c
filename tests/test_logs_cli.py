"""`lakeshore jobs logs`, and progress in `jobs show`."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from cli import NO_SUCH, Shell, q, sh
from daemons import Daemon
from heads import served
from planes import PATIENCE, working

import lakeshore as dls

__all__ = ["q", "sh"]  # fixtures


class Gate:
    """Where a body says that it began, and waits for leave to go on."""

    began, go = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.began, Gate.go = threading.Event(), threading.Event()


@dls.udf(retries=1, retry_delay=1e-3)
def speaks() -> None:
    dls.run.progress(340, 1000, "files")
    if dls.run.attempt == 1:
        print("first\twith \x1b[31mcolour\x1b[0m and \x07" + "x" * 300)
        raise ValueError("again")
    dls.run.log("second", level="error")


@dls.udf
def held() -> None:
    dls.run.log("before")
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    dls.run.log("after")


@dls.udf
def prints() -> None:
    print("from a daemon", file=sys.stderr)
    dls.run.log("said there")


def ran(q: dls.Dispatch, body: dls.UDF[[], None]) -> str:
    inv = body.submit(_dispatch=q)
    dls.run_worker(q, once=True)
    q.result(inv)
    return inv


def test_logs_for_people_and_for_programs(sh: Shell, q: dls.Dispatch) -> None:
    id = ran(q, speaks)
    first, *_, last = [line for line in sh.done("jobs logs", id).out.splitlines() if "files" not in line]
    assert first.endswith("Z info first\twith colour and \\x07" + "x" * 300)
    assert last.endswith("Z [attempt 2] error second")
    found = [line for line in sh.done("jobs logs --json", id).json if line["source"] != "progress"]
    assert [line["attempt"] for line in found] == [1, 2]
    assert found[1] == {**found[1], "source": "log", "level": "error", "text": "second"}
    assert found[0]["text"].startswith("first\twith \x1b[31mcolour")
    followed = sh.done("jobs logs --follow --json --since", found[1]["seq"], id).out.splitlines()
    assert json.loads(followed[0]) == found[1]
    assert sh.done("jobs logs --json --since", 4, id).json == []


def test_show_and_why_tell_how_far_it_is(sh: Shell, q: dls.Dispatch) -> None:
    id = ran(q, speaks)
    shown = sh.done("jobs show", id).out
    assert "340/1000 (34 %) files" in shown
    assert f"(lakeshore jobs logs {id})" in shown
    found = sh.done("jobs show --json", id).json
    assert found["progress"] == {**found["progress"], "done": 340, "total": 1000, "text": "files"}
    assert found["progress"]["at"].endswith("Z")
    assert found["lines"] == 4
    (listed,) = sh.done("jobs list --json").json
    assert listed["progress"] == found["progress"]
    assert "lines" not in listed
    assert "340/1000 (34 %) files" in sh.done("jobs why", id).out


def test_a_job_without_any_says_nothing_of_it(sh: Shell, q: dls.Dispatch) -> None:
    id = held.submit(_dispatch=q)
    assert sh.done("jobs logs", id).out == ""
    assert sh.done("jobs logs --json", id).json == []
    assert "jobs logs" not in sh.done("jobs show", id).out


def test_follow_goes_on_until_the_job_ends(sh: Shell, q: dls.Dispatch) -> None:
    id = held.submit(_dispatch=q)
    with working(q):
        Gate.began.wait(PATIENCE)
        timer = threading.Timer(0.01, Gate.go.set)
        timer.start()
        lines = sh.done("jobs logs --follow", id).out.splitlines()
        timer.join()
    assert [line.split()[-1] for line in lines] == ["before", "after"]


def test_what_is_missing_is_told_and_no_failure(sh: Shell, q: dls.Dispatch) -> None:
    Gate.go.set()
    id = ran(q, held)
    found = sh("jobs logs --since 9", id)
    assert (found.status, found.out) == (0, "")
    assert found.err == "there are 2 lines, and none from number 9 on\n"
    assert sh.refused("jobs logs", NO_SUCH).startswith("404 NotFound: ")
    assert "whole number" in sh.wrong("jobs logs --since -1", id)


@pytest.mark.parametrize("flag", [(), ("--no-capture",)])
def test_bodies_of_a_daemon(tmp_path: Path, home: Path, flag: tuple[str, ...]) -> None:
    with (
        served(tmp_path / "plane.db", "asyncio") as head,
        dls.Dispatch(head.url) as q,
        Daemon(home, head.url, *flag),
    ):
        inv = prints.submit(_dispatch=q)
        q.result(inv, timeout=60)
        said = [(line.source, line.text) for line in q.logs(inv)]
    expected = [("stderr", "from a daemon"), ("log", "said there")]
    assert said == expected[len(flag) :]
