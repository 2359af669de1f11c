"""Every measurement runs, on a few: none may rot. What it measures is never asserted."""
# pyright: reportMissingImports=false

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from daemons import wait_gone

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
REDIS = ROOT / "tests" / "services" / "redis.sh"
PATIENCE = 120.0
FEW = {"imports": 1, "naps": 5, "frames": 200, "daemon": 1, "takeover": 1, "idle": 8}
FAKE = """
import asyncio
from harness import Peer, Polls, FOLDER, TUNED

class Fake(Peer):
    worker = ("-c", f"import time; open({FOLDER!r} + '/worked', 'w').close(); time.sleep(600)")
    tuned = Polls(jobs=0.5, serial=0.25)
    count = arrived = 0

    async def submit(self):
        self.count += 1

    async def result(self, handle, poll):
        assert poll == (0.5 if TUNED else 0.0), poll
        await asyncio.sleep(0)

    async def settle(self):
        self.arrived = self.count

    async def close(self):
        print(self.count, self.arrived)

peer = Fake()
"""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """The benchmarks are scripts: they import what lies beside them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a file with many queued is made once."""
    return tmp_path_factory.mktemp("cache")


def cells() -> list[tuple[str, str, str]]:
    """Whatever the table shows, each once; what starts many processes on one loop, on either in turn."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from aims import LOOPS, rows
        from measure import REMOTE
    finally:
        sys.path.remove(str(BENCHMARKS))
    only = {name: LOOPS[number % 2] for number, name in enumerate(REMOTE)}
    shown = [
        (row.name, loop, row.store)
        for row in rows()
        for loop in row.loops
        if only.get(row.name, loop) == loop
    ]
    return list(dict.fromkeys([("machine", "asyncio", "memory"), ("machine", "trio", "memory"), *shown]))


@pytest.mark.parametrize(("name", "loop", "store"), cells())
def test_each_measurement_runs(name: str, loop: str, store: str, cache: Path) -> None:
    from aims import rows
    from measure import measure

    figures = measure(name, loop, store, FEW.get(name, 20), cache)
    wanted = {row.figure for row in rows() if (row.name, row.store) == (name, store)}
    assert wanted <= set(figures)
    assert all(math.isfinite(value) for value in figures.values())


def test_every_measurement_is_in_the_table() -> None:
    from measure import MEASUREMENTS

    assert {name for name, _, _ in cells()} == set(MEASUREMENTS)


def test_one_command_prints_aims_beside_what_was_measured(tmp_path: Path) -> None:
    kept = tmp_path / "figures.json"
    options = ["-n", "20", "--repeat", "2", "--no-peers", "--only", "dispatch", "--json", str(kept)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "≥ 10,000" in done.stdout
    assert "fsync us" in done.stdout
    figures = json.loads(kept.read_text())
    runs = figures["runs"]["dispatch trio normal"]
    assert len(runs) == 2
    median = sum(run["submits/s"] for run in runs) / 2
    (line,) = figures["rows"]
    assert line["measured"]["trio"] == figures["medians"]["dispatch trio normal"]["submits/s"] == median
    assert line["aims"] == {"asyncio": 10_000, "trio": 10_000}
    assert line["met"]["trio"] == (median >= 10_000)


def row_of(name: str, store: str, figure: str) -> Any:
    """A line of the table."""
    from aims import rows

    return next(row for row in rows() if (row.name, row.store, row.figure) == (name, store, figure))


def test_a_rate_is_set_beside_the_best_of_its_peers() -> None:
    import report

    medians = {
        "jobs asyncio normal": {"jobs/s": 20_000.0},
        "jobs trio normal": {"jobs/s": 12_000.0},
        "jobs arq default": {"jobs/s": 500.0},
        "jobs arq tuned": {"jobs/s": 1_000.0},
        "jobs saq default": {"jobs/s": 800.0},
        "jobs ardiq default": {"jobs/s": 4_000.0},
        "serial arq default": {"p50 us": 9.0},
    }
    line = report.values(row_of("jobs", "normal", "jobs/s"), medians)
    assert line["met"] == {"asyncio": True, "trio": False}
    first, second = line["beside"]
    assert (first["peer"], first["times"], first["aim"]) == ("arq tuned", {"asyncio": 20.0, "trio": 12.0}, 10)
    assert (second["peer"], second["times"], second["aim"]) == ("ardiq", {"asyncio": 5.0, "trio": 3.0}, 2)


def test_of_times_the_shortest_is_the_best() -> None:
    import report

    medians = {
        "serial asyncio normal": {"p50 us": 300.0},
        "serial huey tuned": {"p50 us": 3_000.0},
        "serial huey default": {"p50 us": 90_000.0},
    }
    line = report.values(row_of("serial", "normal", "p50 us"), medians)
    assert line["measured"] == {"asyncio": 300.0}
    assert line["met"] == {"asyncio": True}
    assert line["beside"][0]["peer"] == "huey tuned"
    assert line["beside"][0]["times"] == {"asyncio": 10.0}


def test_a_peer_that_can_not_be_measured_is_told_and_tried_no_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import report
    import run
    from environments import Absent

    tried: list[str] = []

    def absent(peer: str, *others: object) -> dict[str, float]:
        tried.append(peer)
        raise Absent("needs Python 3.99")

    monkeypatch.setattr(run, "theirs", absent)
    one = run.Run(argparse.Namespace(only=["jobs"], peers=["ardiq"], quick=True, venvs=Path(), n=None))
    assert one.peers() == [("ardiq", "jobs", "default")]
    one.measure_peer("ardiq", "jobs", "default")
    one.measure_peer("ardiq", "jobs", "default")
    assert tried == ["ardiq"]
    medians = {f"machine {loop} memory": {"fsync us": 1.0} for loop in ("asyncio", "trio")}
    report.show(one.rows, medians, one.absent, {"jobs": 1})
    assert "not measured: jobs ardiq default: needs Python 3.99" in capsys.readouterr().out


def test_peers_that_poll_are_measured_both_ways() -> None:
    import run
    from aims import ALL

    one = run.Run(argparse.Namespace(only=["serial"], peers=[*ALL, "dask"]))
    waitings = {(peer, waiting) for peer, _, waiting in one.peers()}
    assert {peer for peer, _ in waitings} == set(ALL)
    assert {peer for peer, waiting in waitings if waiting == "tuned"} == set(ALL) - {"ardiq"}


def test_each_peer_has_a_script_and_what_to_install() -> None:
    from aims import ALL

    for peer in [*ALL, "dask"]:
        assert (BENCHMARKS / "peers" / f"{peer}.txt").is_file()
        compile((BENCHMARKS / "peers" / f"{peer}_peer.py").read_text(), peer, "exec")


@pytest.mark.parametrize("waiting", ["default", "tuned"])
@pytest.mark.parametrize(("name", "figure"), [("jobs", "jobs/s"), ("submits", "arrived/s")])
def test_a_peer_is_measured(name: str, figure: str, waiting: str, tmp_path: Path) -> None:
    (tmp_path / "fake_peer.py").write_text(FAKE)
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "peers" / "harness.py"), "fake_peer", name, "-n", "40"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "PEER_FOLDER": str(tmp_path),
            "PEER_WAITING": waiting,
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts, figures = done.stdout.splitlines()
    assert json.loads(figures)[figure] > 0
    submitted, arrived = map(int, counts.split())
    if name == "jobs":
        assert submitted == 3 + 2 * 20 + 40  # a first few, a warm-up, and those that count
    else:
        assert submitted == arrived == 80
        assert not (tmp_path / "worked").exists()  # nobody worked


def test_our_own_python_is_taken_where_it_is_new_enough() -> None:
    from environments import interpreter

    assert interpreter((3, 11)) == os.path.realpath(sys.executable)


def test_a_newer_python_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from environments import Absent, interpreter

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.delenv("PEER_PYTHON", raising=False)
    with pytest.raises(Absent, match="PEER_PYTHON"):
        interpreter((9, 1))
    newer = tmp_path / "versions" / "3.99.0" / "bin" / "python"
    newer.parent.mkdir(parents=True)
    newer.write_text("#!/bin/sh\nexit 0\n")
    newer.chmod(0o755)
    assert interpreter((9, 1)) == str(newer)


def redis(action: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run(
        [str(REDIS), action, str(folder)], capture_output=True, text=True, timeout=PATIENCE * 3, check=False
    )


def test_a_redis_starts_and_ends(tmp_path: Path) -> None:
    if not shutil.which("redis-server") and os.geteuid() != 0:
        pytest.skip("only root can install redis-server")
    folder = tmp_path / "redis"
    assert redis("status", folder).returncode == 1
    try:
        started = redis("start", folder)
        assert started.returncode == 0, started.stderr
        name, _, url = started.stdout.strip().partition("=")
        assert name == "REDIS_URL"
        assert url.startswith("redis://127.0.0.1:")
        assert subprocess.check_output(["redis-cli", "-u", url, "ping"], text=True).strip() == "PONG"
        assert redis("start", folder).stdout == started.stdout  # the same one
        assert redis("status", folder).returncode == 0
    finally:
        redis("stop", folder)
    assert redis("status", folder).returncode == 1
    assert not (folder / "pid").exists()


def test_stopping_hits_no_process_that_got_the_number_later(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        (tmp_path / "pid").write_text(f"{other.pid} 1\n")  # began at another time
        assert redis("status", tmp_path).returncode == 1
        assert redis("stop", tmp_path).returncode == 0
        assert other.poll() is None
        other.communicate(b"\n")
    assert other.returncode == 0


def test_a_group_of_measurements_has_one_name() -> None:
    import run
    from measure import MEASUREMENTS, REMOTE

    names = run.names(MEASUREMENTS, {"remote": REMOTE})
    assert names("serial,remote") == ["serial", *REMOTE]
    with pytest.raises(argparse.ArgumentTypeError, match=r"remot: choose from remote, machine"):
        names("remot")


def test_a_page_shows_aims_that_are_reached_in_bold() -> None:
    import report
    from aims import rows

    medians = {
        "remote_jobs asyncio normal": {"jobs/s": 16_000.0},
        "remote_jobs trio normal": {"jobs/s": 9_000.0},
        "jobs ardiq default": {"jobs/s": 4_000.0},
        "remote_serial asyncio normal": {"p50 us": 600.0, "p99 us": 2_000.0},
        "remote_serial trio normal": {"p50 us": 800.0, "p99 us": 3_000.0},
        "serial huey_redis default": {"p50 us": 900.0},
    }
    title, _, jobs, serial, tail = report.markdown(rows(), medians).splitlines()
    assert title == "| what | aim | asyncio | trio | best peer in the same run |"
    aim = "at least 15,000 / 12,000; 2 × the best peer"
    assert (
        jobs
        == f"| three processes, TCP: jobs/s | {aim} | **16,000** | 9,000 | ardiq 4,000 (**4 × / 2.25 ×**) |"
    )
    assert serial.endswith(
        "| 1 × the best peer; 2 × the best peer | 600 | 800 | huey_redis 900 (**1.5 × / 1.12 ×**) |"
    )
    assert tail == "| … p99 µs |  | 2,000 | 3,000 |  |"


def test_all_processes_of_a_measurement_end_with_it(tmp_path: Path) -> None:
    """Killed, it can't clean up: they see that it is gone."""
    code = (
        "from pathlib import Path\nfrom cast import cast\nfrom setting import Setting\n"
        "here = Path.cwd()\nwith cast(Setting('asyncio', 'normal', 1, here, here)) as players:\n"
        "    head = players.head()\n    print(head.pid, players.worker(head.url, 1).pid, flush=True)\n"
        "    head.until('never said')\n"
    )
    path = {"PYTHONPATH": str(BENCHMARKS)}
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **path},
    ) as measuring:
        assert measuring.stdout is not None
        pids = [int(pid) for pid in measuring.stdout.readline().split()]
        assert len(pids) == 2
        assert (tmp_path / "plane.db").exists()
        measuring.kill()
    for pid in pids:
        wait_gone(pid)


def test_a_measurement_leaves_the_environment_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cast import cast
    from setting import Setting

    monkeypatch.setenv("LAKESHORE_TOKEN", "mine")
    monkeypatch.delenv("LAKESHORE_HOME", raising=False)
    before = dict(os.environ)
    with cast(Setting("asyncio", "normal", 1, tmp_path, tmp_path)):
        assert os.environ["LAKESHORE_HOME"] == str(tmp_path / "home")
        assert "LAKESHORE_TOKEN" not in os.environ
    assert dict(os.environ) == before


def test_a_player_that_ends_is_told_of_with_what_it_said(tmp_path: Path) -> None:
    from cast import cast
    from setting import Setting

    with cast(Setting("asyncio", "normal", 1, tmp_path, tmp_path)) as players:
        player = players.run(sys.executable, "-c", "print('no room')")
        with pytest.raises(AssertionError, match="said nothing more than: no room"):
            player.until("ready")


def test_bytecodes_of_a_job_are_counted_in_each_process() -> None:
    from opcodes import count

    counted = count("serial", "asyncio", 5)
    assert list(counted) == ["head", "program", "worker"]
    functions = {name: {row[0]: row for row in rows} for name, rows in counted.items()}
    _, codes, calls = functions["worker"]["lakeshore/core/worker.py:Worker._begin"]
    assert calls == 5
    assert codes > 5
    assert "lakeshore/core/worker.py:Worker._begin" not in functions["head"]
    assert functions["program"]["benchmarks/flow.py:serial"][2] > 5
