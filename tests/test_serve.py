"""`lakeshore serve`: a head as a process, how it begins, and how it ends."""

import json
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cli import Done, process
from head_process import PATIENCE, Head
from planes import elsewhere, working

import lakeshore as dls
from lakeshore.cli import main
from lakeshore.sdk.logs import Lines, Text
from lakeshore.sdk.serving import release


@dls.udf
def double(x: Any) -> Any:
    return 2 * x


@dls.udf
def size(data: bytes) -> int:
    return len(data)


@dls.udf
def held(name: str) -> str:
    """Says that it began, and ends when it may."""
    Path(f"{name}.began").write_text("yes")
    Path(f"{name}.go").read_text()
    return name


@pytest.fixture(autouse=True)
def home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for the heads and the clients of a test."""
    monkeypatch.chdir(tmp_path)
    return home


def serve(*options: object, capsys: pytest.CaptureFixture[str]) -> Done:
    """A head that does not come to serve, in this process."""
    status = main(["serve", *map(str, options)])
    out, err = capsys.readouterr()
    return Done(status, out, err)


def own_path(home: Path) -> str:
    return str(home / socket.gethostname() / "plane.db")


CONFIG = """
namespace: team
providers: {mine: {kind: local, max: 2}}
queues:
  work: {kind: priority, description: ours, providerRef: mine}
  later: {state: paused}
"""


def test_a_head_serves_what_its_file_says(
    home: Path, tmp_path: Path, backend: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "lakeshore.yaml"
    config.write_text(CONFIG)
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.settimeout(PATIENCE)
    notified.bind(str(tmp_path / "notify"))
    with (
        notified,
        Head(home, "--config", config, backend=backend, NOTIFY_SOCKET=str(tmp_path / "notify")) as head,
    ):
        assert notified.recv(100) == b"READY=1"
        head.told("mine")
        with dls.Dispatch(head.url, namespace="team", backend=backend) as q:
            found = {queue.name: queue for queue in q.queues.ls()}
            assert (found["work"].kind, found["work"].provider_ref) == ("priority", "mine")
            assert found["later"].state == "paused"
            inv = double.submit(21, _dispatch=q)
            assert dls.run_worker(q, once=True) == 1
            assert q.result(inv) == 42
            with pytest.raises(dls.NotFound, match="wark"):  # a head makes no queue on first use
                dls.udf(double.fn, queue="wark").submit(1, _dispatch=q)
            for where in (head.url, own_path(home)):  # whoever has the path goes through the head too
                assert main(["--url", where, "status", "--json"]) == 0
                status = json.loads(capsys.readouterr().out)
                assert (status["pid"], status["listen"]) == (head.pid, head.urls)
                assert (status["backend"], status["sync"]) == (backend, "full")
                assert status["clients"] >= 2
                assert status["storeBytes"] > 0
            assert main(["--url", head.url, "status"]) == 0
            assert head.url in capsys.readouterr().out
        assert head.end() == 0
        assert notified.recv(100) == b"STOPPING=1"
        before = [record["message"] for record in head.records()]
    with Head(home, "--config", config, backend=backend) as head:  # again: nothing is to do
        assert head.end() == 0
        after = [record["message"] for record in head.records()]
    assert any("work" in text for text in before)
    assert not any("work" in text for text in after)


def test_a_file_that_can_not_be_carried_out(
    home: Path, tmp_path: Path, backend: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "lakeshore.yaml"
    config.write_text("queues: {work: {providerRef: none}, other: {}}")
    with Head(home, "--config", config, backend=backend, ready=False) as head:
        assert head.ended() == 1
        assert "none" in head.told("404 NotFound")
        last = head.records()[-1]
    assert (last["level"], "1 of 2 failed" in last["message"]) == ("error", True)
    config.write_text("queues: {work: {kind: lifo}}")
    done = serve("--config", config, capsys=capsys)
    assert (done.status, done.out) == (2, "")
    assert "lakeshore.yaml:1: queues.work.kind" in done.err
    config.write_text("namespace: team")
    done = serve("--config", config, "--namespace", "other", capsys=capsys)
    assert (done.status, "team" in done.err) == (2, True)


def test_options_of_a_head(home: Path, backend: Any) -> None:
    options = ("--auto-create", "--payload-limit", 20 << 20, "--insecure-loopback", "--lease", 7)
    nobody = str(home / "nobody")
    with Head(home, *options, "--sync", "normal", backend=backend, NOTIFY_SOCKET=nobody) as head:
        assert nobody in head.told("the service manager was not told READY=1")
        (home / socket.gethostname() / "token").unlink()  # this machine's clients have none now
        with dls.Dispatch(head.url, backend=backend) as q:
            large, some = b"x" * (19 << 20), dls.udf(double.fn, queue="made")
            ids = [size.submit(large, _dispatch=q), some.submit("y" * (9 << 20), _dispatch=q)]
            with pytest.raises(dls.PayloadTooLarge, match=str(20 << 20)):
                double.submit(b"x" * (21 << 20), _dispatch=q)
            assert dls.run_worker(q, drain=True, queues=["default", "made"]) == 2
            assert q.result(ids[0]) == 19 << 20
            assert len(q.result(ids[1])) == 18 << 20
            assert q.status().sync == "normal"


def test_a_path_that_another_process_holds(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Head(home) as head:
        path = own_path(home)
        done = process(home, "serve", "--listen", "tcp://127.0.0.1:0", "--store", path)
        assert (done.status, done.out) == (1, "")
        assert str(head.pid) in done.err.splitlines()[-1]
        with pytest.raises(dls.StoreLocked):
            release(path)
        done = serve("--release", "--store", path, capsys=capsys)
        assert (done.status, str(head.pid) in done.err) == (1, True)
        port = head.url.rpartition(":")[2]
        done = process(home, "serve", "--listen", f"tcp://127.0.0.1:{port}", "--store", home / "other.db")
        assert (done.status, f":{port}" in done.err) == (1, True)


def test_a_served_store_waits_for_its_head_until_it_is_released(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Head(home) as head:
        assert head.end() == 0
    path = own_path(home)
    with (
        pytest.raises(dls.Unreachable, match="serve --release"),
        dls.Dispatch(path, connect_timeout=0) as q,
    ):
        q.queues.ls()
    done = serve("--release", capsys=capsys)
    assert (done.status, done.out) == (0, f"{path} is not marked as served any more\n")
    assert serve("--release", capsys=capsys).out == f"{path} was not marked as served\n"
    with dls.Dispatch(path) as q:
        assert len(q.queues.ls()) == 1
    done = serve("--release", "--store", home / "none.db", capsys=capsys)
    assert (done.status, "there is no store" in done.err) == (1, True)


def test_what_waits_and_what_runs_goes_on_while_a_head_restarts(
    home: Path, tmp_path: Path, backend: Any
) -> None:
    for what in ("began", "go"):
        os.mkfifo(tmp_path / f"job.{what}")
    with Head(home, backend=backend) as head, dls.Dispatch(head.url, backend=backend) as q:
        inv = held.submit(str(tmp_path / "job"), _dispatch=q)
        with working(q):
            assert (tmp_path / "job.began").read_text() == "yes"
            assert head.end() == 0
            with Head(home, backend=backend, listen=(head.url,)):
                (tmp_path / "job.go").write_text("on")
                assert q.result(inv, timeout=PATIENCE) == str(tmp_path / "job")
                (attempt,) = q.get(inv).attempts
                assert attempt.outcome == "succeeded"


def test_a_head_that_is_busy_ends_in_order(home: Path, backend: Any) -> None:
    """What comes while it ends is asked again; nothing that it took is lost, and nothing is there twice."""
    stop = threading.Event()
    with Head(home, backend=backend) as head, dls.Dispatch(head.url, backend=backend) as q:

        def flood() -> list[str]:
            ids: list[str] = []
            while not stop.is_set():
                ids += double.submit_many(range(500), _dispatch=q)
            return ids

        with elsewhere(flood) as flooding:
            while q.status().queued < 500:
                pass
            assert head.end() == 0
            with Head(home, backend=backend, listen=(head.url,)):
                stop.set()
                ids = flooding.result(PATIENCE)
                assert q.status().queued == len(ids) == len(set(ids))


def test_a_head_whose_store_another_takes_over(home: Path, backend: Any) -> None:
    with Head(home, backend=backend) as first:
        os.unlink(own_path(home) + ".lock")
        with Head(home, backend=backend) as second:
            assert first.ended() == 1  # it is told by its successor, though nobody asks it for anything
            assert "another process has taken" in first.records()[-1]["message"]
            with dls.Dispatch(second.url) as q:
                assert q.topics.list() == []
            assert second.end() == 0


def test_a_second_signal_ends_at_once(home: Path, backend: Any) -> None:
    hangs = """
import sys, anyio
from lakeshore.cli import main
from lakeshore.sdk.host import Host
async def aclose(self, *, patience=0.0): await anyio.sleep_forever()
Host.aclose = aclose
sys.exit(main())
"""
    with Head(home, backend=backend, command=(sys.executable, "-c", hangs)) as head:
        head.process.terminate()
        head.told("stopping on SIGTERM")
        head.process.terminate()
        assert head.ended() == -signal.SIGTERM


def test_a_plane_that_ends_on_a_bug(home: Path, backend: Any) -> None:
    broken = """
import sys
from lakeshore.cli import main
from lakeshore.core.topics import Topics
def list(self, message, sender): raise ZeroDivisionError("a bug of ours")
Topics._on_list = list
sys.exit(main())
"""
    with Head(home, backend=backend, command=(sys.executable, "-c", broken)) as head:
        with (
            dls.Dispatch(head.url, backend=backend) as q,
            pytest.raises(dls.InternalError, match="a bug of ours"),
        ):
            q.topics.list()
        assert head.ended() == 1
        records = head.records()
    (bug,) = [record for record in records if "exception" in record]
    assert bug["level"] == "critical"
    assert "ZeroDivisionError: a bug of ours" in bug["exception"]
    assert "a bug of ours" in records[-1]["message"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--listen", "tcp://0.0.0.0:0"), "tls://0.0.0.0:0"),
        (("--listen", "tls://127.0.0.1:0"), "--tls-cert"),
        (("--listen", "tls://127.0.0.1:0", "--tls-cert", "c.pem"), "--tls-key"),
        (("--tls-cert", "c.pem", "--tls-key", "k.pem"), "--listen tls://"),
        (("--listen", "http://127.0.0.1"), "is not an address"),
        (("--listen", "tcp://127.0.0.1:70000"), "65535"),
        (("--store", "tcp://127.0.0.1:1"), "--store"),
        (("--store", ":memory:"), "--store"),
        (("--url", "tcp://127.0.0.1:1"), "--url"),
        (("--token", "lks_x"), "--token"),
        (("--namespace", ""), "namespace"),
        (("--config", "none.yaml"), "none.yaml"),
        (("--backend", "uvloop"), "asyncio"),
        (("--sync", "off"), "normal"),
        (("--log-format", "xml"), "json"),
        (("--lease", "0"), "at least 1"),
        (("--retention", "-1"), "-1"),
        (("--payload-limit", "1.5"), "whole number"),
        (("somewhere",), "somewhere"),
    ],
)
def test_wrong_usage(options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    done = serve(*options, capsys=capsys)
    assert (done.status, done.out) == (2, "")
    assert says in done.err
    assert not os.path.exists(own_path(Path(os.environ["LAKESHORE_HOME"])))


def test_files_that_are_no_certificate(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key.pem").write_text("no key")
    done = serve(
        *("--listen", "tls://127.0.0.1:0", "--tls-cert", "none.pem", "--tls-key", "key.pem"), capsys=capsys
    )
    assert (done.status, done.out) == (1, "")
    assert "none.pem and key.pem can't be used" in done.err
    assert done.err.count("\n") == 1
    assert not os.path.exists(own_path(home) + "-wal")


def test_logs_of_a_line() -> None:
    """What a stranger puts into a message stays on its line."""
    record = logging.LogRecord("lakeshore", logging.INFO, "f", 1, "%s", ("two\nlines",), None)
    record.created = 0.25
    assert Text().format(record) == "1970-01-01T00:00:00.250Z INFO lakeshore: two lines"
    assert json.loads(Lines().format(record)) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "info",
        "logger": "lakeshore",
        "message": "two\nlines",
    }
    try:
        raise ValueError("why")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = Lines().format(record)
    assert "\n" not in line
    assert json.loads(line)["exception"].endswith("ValueError: why")
    assert Text().format(record).endswith("\nValueError: why")
