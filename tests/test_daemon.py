"""`lakeshore daemon`: two processes, one worker; commands on its machine; how it ends."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import daemon_jobs as jobs
import pytest
from cli import LAKESHORE, Done, environment, process
from daemons import PATIENCE, Daemon, pipe, wait_gone
from heads import served

import lakeshore as dls
from lakeshore.cli import main
from lakeshore.cli.ahead import starts_daemon
from lakeshore.core.about import installed, package_version
from lakeshore.core.messages import Exec, ExecEnd, ExecOutput, Refusal, Welcome
from lakeshore.sdk.credentials import machine_token
from lakeshore.sdk.daemons import early
from lakeshore.sdk.daemons.minded import Child
from lakeshore.sdk.daemons.options import DaemonOptions, hand_over, take_over
from lakeshore.sdk.knocking import knock
from lakeshore.transports.blocking import BlockingLink


@dataclass
class Place:
    """A head and a daemon that works for it."""

    home: Path
    url: str
    q: dls.Dispatch
    daemon: Daemon
    worker: Any
    backend: str

    def run(self, *words: object) -> Done:
        """A command line of `daemon`."""
        return process(self.home, "--url", self.url, "daemon", *words)

    def link(self) -> BlockingLink:
        """A link of a client, let in."""
        link = BlockingLink(self.url)
        link.send(knock(b"c" * 16, "client", "default", machine_token()))
        assert type(link.receive(PATIENCE)) is Welcome
        return link


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp(f"daemon-{request.param}")
    home = folder / "home"
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LAKESHORE_")]:
            patch.delenv(name)
        patch.setenv("LAKESHORE_HOME", str(home))
        options = ["--backend", request.param, "--name", "d1", "--slots", 2, "--label", "rack=7"]
        options += ["--hooks", "daemon_jobs:hooks"]
        with (
            served(folder / "plane.db", request.param) as head,
            Daemon(home, head.url, *options) as daemon,
            dls.Dispatch(head.url) as q,
        ):
            q.result(jobs.double.submit(1), timeout=PATIENCE)
            yield Place(home, head.url, q, daemon, q.workers.show("d1"), request.param)


def test_it_says_what_it_is(place: Place) -> None:
    worker = place.worker
    assert (worker.name, worker.slots, worker.queues, worker.daemon) == ("d1", 2, (), True)
    assert worker.labels == {"rack": "7"}
    assert worker.versions.keys() >= {"python", "lakeshore", "msgspec"}
    pid = place.q.result(jobs.pid.submit(), timeout=PATIENCE)
    assert worker.pid == pid != place.daemon.pid  # the child works
    assert place.q.result(jobs.environ.submit("SET_UP"), timeout=PATIENCE) == "yes"
    listed = place.run("list", "--json").json
    assert [row["id"] for row in listed] == [worker.id]
    assert "commands" not in listed[0]


def test_pickles_are_not_run(place: Place) -> None:
    said = threading.Event()

    def heard(record: logging.LogRecord) -> bool:
        if "this worker takes none (allow_pickle)" in record.getMessage():
            said.set()
        return True

    log = logging.getLogger("lakeshore")
    log.addFilter(heard)
    try:
        inv = place.q.submit(lambda: 1)
        assert said.wait(PATIENCE)
    finally:
        log.removeFilter(heard)
    assert place.q.get(inv).state == "queued"
    place.q.kill(inv)


def test_a_command_runs_there(place: Place) -> None:
    script = "echo $LAKESHORE_WORKER_PID; echo oops >&2; exit 7"
    done = place.run("exec", "d1", "--", "sh", "-c", script)
    assert done == Done(7, f"{place.worker.pid}\n", "oops\n")
    assert place.run("exec", place.worker.id, "sh", "-c", "kill -9 $$").status == 137
    missing = place.run("exec", "d1", "--", "no-such-command", "--url")
    assert missing == Done(127, "", "no-such-command: No such file or directory\n")
    nobody = place.run("exec", "d2", "--", "ls")
    assert (nobody.status, nobody.out, nobody.err[:9]) == (1, "", "404 NotFo")
    shown = place.run("show", "d1", "--json").json["commands"]
    assert [command["status"] for command in shown][-3:] == [7, -9, 127]
    assert shown[-1]["command"] == "no-such-command --url"
    assert f"at {place.worker.host} (pid " in shown[-1]["by"]
    assert "no-such-command --url" in place.run("show", "d1").out


def test_no_more_output_comes_than_was_asked_for(place: Place) -> None:
    link = place.link()
    link.send(Exec(1, "d1", ("head", "-c", "1000000", "/dev/zero"), 1000))
    came = 0
    while came < 1000:
        message = link.receive(PATIENCE)
        assert type(message) is ExecOutput
        came += len(message.data)
    assert came == 1000
    link.send(Exec(2, "d1", ("true",), 1))  # its end comes before anything more of the other
    message = link.receive(PATIENCE)
    assert message == ExecEnd(2, 0)
    link.close()


def test_who_goes_away_takes_the_command_along(place: Place) -> None:
    link = place.link()
    link.send(Exec(1, "d1", ("sh", "-c", "echo $$; sleep 1000 & wait"), 1000))
    message = link.receive(PATIENCE)
    assert type(message) is ExecOutput
    link.close()
    wait_gone(int(message.data))


def test_ctrl_c_ends_it(place: Place) -> None:
    words = [*LAKESHORE, "--url", place.url, "daemon", "exec", "d1", "--", "sh", "-c", "echo $$; sleep 1000"]
    client = subprocess.Popen(words, env=environment(place.home), stdout=subprocess.PIPE, text=True)
    with client:
        assert client.stdout is not None
        pid = int(client.stdout.readline())
        client.send_signal(signal.SIGINT)
        assert client.wait(PATIENCE) == 130
    wait_gone(pid)


def test_admins_alone_may(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    token = place.q.tokens.create(role="submit").token
    done = process(place.home, "--url", place.url, "daemon", "exec", "d1", "--", "ls", LAKESHORE_TOKEN=token)
    assert (done.status, done.out, done.err[:13]) == (1, "", "403 Forbidden")


def test_what_is_no_daemon_runs_no_commands(place: Place) -> None:
    from planes import working

    with working(place.q, name="plain", queues=["else"]):
        place.q.result(jobs.double.submit(2), timeout=PATIENCE)
        done = place.run("exec", "plain", "--", "ls")
        assert (done.status, done.err[:12]) == (1, "409 Conflict")
        assert "daemon start" in done.err


def test_a_lost_parent_ends_the_command_and_the_child(place: Place) -> None:
    with Daemon(place.home, place.url, "--name", "d3", "--queue", "third") as daemon:
        inv = place.q.submit(jobs.waits)
        child = next(iter(place.q.stream(inv))).value
        link = place.link()
        link.send(Exec(1, "d3", ("sh", "-c", "echo $$; sleep 1000"), 1000))
        started = link.receive(PATIENCE)
        assert type(started) is ExecOutput
        daemon.signal(signal.SIGKILL)
        ended = link.receive(PATIENCE)
        assert type(ended) is Refusal
        assert (ended.kind, "daemon broke" in ended.message) == ("OutcomeUnknown", True)
        wait_gone(child)
        assert place.q.get(inv).attempts[0].outcome == "returned"  # it had the time to give it back
        os.kill(int(started.data), signal.SIGKILL)
        link.close()
        place.q.kill(inv)


def test_removed_it_ends_for_good(place: Place) -> None:
    with Daemon(place.home, place.url, "--name", "d4", "--queue", "third") as daemon:
        inv = place.q.submit(jobs.waits)
        next(iter(place.q.stream(inv)))
        assert place.run("remove", "d4") == Done(0, "daemon d4 removed\n", "")
        assert daemon.ended() == 3
        with pytest.raises(dls.InvocationKilled):
            place.q.result(inv, timeout=PATIENCE)


def test_what_can_not_be_stopped_is_killed(place: Place, tmp_path: Path) -> None:
    if place.backend == "trio":
        pytest.skip("the loop is not what hangs, and it takes its time")
    with Daemon(place.home, place.url, "--name", "d5", "--queue", "third") as daemon:
        held = pipe(tmp_path, "held")
        inv = place.q.submit(jobs.wedged, str(held))
        held.read_text()
        assert place.run("exec", "d5", "--", "echo", "here").out == "here\n"  # the parent is well
        place.q.workers.remove("d5")
        assert daemon.ended() == 3
        daemon.told("does not end: it is killed")
        with pytest.raises(dls.InvocationKilled):
            place.q.result(inv, timeout=PATIENCE)


def test_a_child_that_ends_by_itself_is_replaced(place: Place) -> None:
    with Daemon(place.home, place.url, "--name", "d6", "--queue", "third") as daemon:
        inv = place.q.submit(jobs.leave, 9)
        assert place.q.result(inv, timeout=PATIENCE) is None
        first, second = place.q.get(inv).attempts
        assert (first.reason, second.outcome) == ("exit status 9", "succeeded")
        assert first.worker != second.worker
        done = place.run("drain", "d6", "--wait")
        assert done == Done(0, "daemon d6 has ended\n", "")
        assert daemon.ended() == 0


def test_what_a_head_refuses_ends_it(place: Place) -> None:
    with Daemon(place.home, place.url, LAKESHORE_TOKEN="lks_wrong") as daemon:
        assert daemon.ended() == 1
        daemon.told("Unauthorized: ")
        assert not any("trying again" in said for said in daemon.said)
    with Daemon(place.home, place.url, "--hooks", "daemon_jobs:double") as daemon:
        assert daemon.ended() == 1
        daemon.told("name a dls.Hooks(...)")
    for name, said in (("nosuch:x", "there is no module nosuch"), ("daemon_jobs:nosuch", "has no nosuch")):
        with Daemon(place.home, place.url, "--hooks", name) as daemon:
            assert daemon.ended() == 1
            assert said in daemon.told(f"--hooks {name}: ")
            assert not any("Traceback" in line for line in daemon.said)


def test_a_queue_that_is_not_there_is_told_of(place: Place, tmp_path: Path) -> None:
    with (
        served(tmp_path / "plane.db", place.backend, auto_create=False) as head,
        dls.Dispatch(head.url) as q,
        Daemon(place.home, head.url, "--queue", "later", "--queue", "default") as daemon,
    ):
        daemon.told("the head has no queue later: it is served once it is added")
        q.queues.add("later")
        inv = q.submit(jobs.later)
        assert q.result(inv, timeout=PATIENCE) == q.workers.list()[0].pid
        assert not any("no queue default" in line for line in daemon.said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--runner", "threads"], "inline"),
        (["--runner", "inline", "--gpus", "2"], "processes of their own"),
        (["--slots", "3", "--gpus", "2"], "each slot has one GPU"),
        (["--memory", "2X"], "is not a size"),
        (["--memory", "1K"], "--memory=1024: choose 16777216"),
        (["--recycle-age", "0"], "--recycle-age=0.0: choose seconds above 0"),
        (["--label", "x"], "NAME=VALUE"),
        (["--label", "x=1", "--label", "x=2"], "twice"),
        (["--slots", "0"], "whole number"),
        (["--slots", "2000000"], "at most 1000000"),
        (["--hooks", "x"], "module:name"),
        (["--queue", "A"], "'A' is not a queue name"),
        (["--grace", "-1"], "at least 0"),
        (["--url", ":memory:"], ":memory:"),
    ],
)
def test_wrong_usage(
    words: list[str], said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def spawning(title: str, loop: str) -> early.Spawned:
        child = spawn(title, loop)
        begun.append(child.pid)
        return child

    spawn = early.spawn
    monkeypatch.setattr(early, "spawn", spawning)
    assert main(["daemon", "start", *words]) == 2
    found = capfd.readouterr()
    assert said in found.err
    assert found.err.count("\n") == 1
    (pid,) = begun
    with pytest.raises(ProcessLookupError):  # the child that began meanwhile has ended, and is no zombie
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("daemon start", True),
        ("--url=x daemon --token y start --slots 0", True),
        ("daemon start --hooks x -- --help", True),
        ("daemon start --help", False),
        ("-h daemon start", False),
        ("daemon list", False),
        ("daemon", False),
        ("--url daemon start", False),
        ("daemon exec start -- daemon start", False),
    ],
)
def test_which_lines_start_a_child_at_once(line: str, starts: bool) -> None:
    assert starts_daemon(line.split()) is starts


_HANGS = """
import sys, time
from lakeshore.cli import app, main
from lakeshore.sdk.daemons.early import ahead

def start(tokens):
    print(ahead().pid, flush=True)
    time.sleep(1000)

app.start = start
sys.exit(main(["daemon", "start"]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_the_command_line_ends_the_child_too(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-c", _HANGS]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment(tmp_path), **pipes) as line:
        assert line.stdout is not None
        pid = int(line.stdout.readline())
        line.send_signal(number)
        assert line.communicate(timeout=PATIENCE) == ("", "")  # which the child has open, too
        assert line.returncode == (130 if number == signal.SIGINT else -number)
    wait_gone(pid)


def test_a_parent_adopts_the_child_that_has_begun() -> None:
    options = DaemonOptions("tcp://127.0.0.1:1", "d")
    spawned = early.spawn("worker d", "asyncio")
    found, adopted = take_over(hand_over(options, spawned))
    spawned.control.detach()
    assert found == options
    assert adopted is not None
    child = Child(b"w" * 16, options, adopted)
    assert (child.pid, child.status()) == (spawned.pid, None)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.status() == child.status() == -signal.SIGKILL
    assert "SIGKILL" in child.how(-signal.SIGKILL)
    child.kill()  # of nobody else
    child.close()


def test_a_parent_may_have_been_told_to_ignore_its_children() -> None:
    code = (
        "import os, signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "from lakeshore.sdk.daemons.minded import Child\n"
        "from lakeshore.sdk.daemons.options import DaemonOptions\n"
        "child = Child(bytes(16), DaemonOptions('x', 'd')); child.kill(); child.control.recv(1)\n"
        "while child.status() is None: os.sched_yield()\n"
        "print(child.status())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_sigterm_right_after_the_start(place: Place) -> None:
    with Daemon(place.home, place.url, "--name", "d7", "--queue", "third") as daemon:
        daemon.told("works for")
        assert daemon.end() == 0
        assert not any("Traceback" in said for said in daemon.said)


def test_no_more_than_one_child(place: Place) -> None:
    pid = place.daemon.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert children == [str(place.worker.pid)]
    assert b"worker d1" in Path(f"/proc/{place.worker.pid}/cmdline").read_bytes().split(b"\0")


def test_versions_are_those_of_the_metadata() -> None:
    names = {found.name: found.version for found in importlib.metadata.distributions()}
    assert names.keys() >= {"lakeshore-queue", "msgspec"}
    assert installed(*names, "no-such-package") == names
    assert package_version() == names["lakeshore-queue"]


def test_the_parent_loads_little() -> None:
    unwanted = "anyio asyncio trio ssl sqlite3 importlib.metadata subprocess tempfile"
    code = (
        "import sys, lakeshore.sdk.daemons.parent, lakeshore.sdk.daemons.reporter;"
        f"print(*set({unwanted.split()}) & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
