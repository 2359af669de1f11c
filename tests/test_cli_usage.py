"""Wrong usage ends with status 2 and one line, before any plane is opened; what every command has."""

import io
import re
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli import NO_SUCH, Shell
from cyclopts import App
from planes import PATIENCE, elsewhere

from lakeshore.cli import app as tree
from lakeshore.cli import errors, main, plane
from lakeshore.core.errors import InternalError, NotFound, StoreLocked


@pytest.fixture
def sh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    """Command lines against a plane that must not be opened."""
    yield Shell(str(tmp_path / "plane.db"), capsys)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line",
    [
        "queues add",
        "queues add a b",
        "queues add A",
        "queues add a --kind lifo",
        "queues add a --elasticity none",
        "queues add a --elasticity fixed --min 5 --max 2",
        "queues add a --elasticity fixed --min -1",
        "queues add a --elasticity fixed --min 1.5",
        "queues add a --elasticity fixed --max 1000000001",
        "queues add a --elasticity fixed --threshold 1.01",
        "queues add a --elasticity fixed --threshold -0.1",
        "queues add a --elasticity fixed --threshold nan",
        "queues add a --threshold 0.5",
        "queues add a --max-depth 0",
        "queues add a --max-depth 9223372036854775808",
        "queues add a --max-depth 1e3",
        "queues add a --max-depth 0x10",
        "queues add a --on-full drop",
        "queues add a --runner threads",
        "queues add a --name b",
        "queues add a --temperature 2",
        "queues add a --json=perhaps",
        "queues add a --no-json",
        "queues add --kind",
        "queues add a --kind fifo --kind filo",
        "queues ls extra",
        "queues ls --state gone",
        "queues ls --jsn",
        "queues patch a",
        "queues patch a --min 3 --max 2",
        "queues patch a --kind fifo",
        "queues patch a --threshold 2",
        "queues patch a --max-depth -1",
        "queues events a --limit 0",
        "queues events a --limit -5",
        "queues events a --limit many",
        "queues rm a --forced",
        "queues frobnicate",
        "frobnicate",
        "pause",
        "pause A",
        "resume a b",
        "jobs list --limit 0",
        "jobs list --limit 201",
        "jobs list --limit 1.5",
        "jobs list --limit ''",
        "jobs list --offset -1",
        "jobs list --offset 9223372036854775808",
        "jobs list --state done",
        "jobs list --state queued running",
        "jobs list --queue A_B",
        "jobs show",
        f"jobs show {NO_SUCH} {NO_SUCH}",
        f"jobs result {NO_SUCH} --timeout -1",
        f"jobs result {NO_SUCH} --timeout inf",
        f"jobs stream {NO_SUCH} --since -1",
        f"jobs stream {NO_SUCH} --since x",
        "jobs kill",
        f"jobs kill {NO_SUCH} --force",
        "jobs bulk-cancel a",
        "jobs bulk-cancel --queue A",
        "jobs prune --older-than -1",
        "jobs prune --older-than yesterday",
        "workers list --state ready",
        "workers show",
        "providers add p",
        "providers add p --kind balloon",
        "providers add p --kind local --max 0",
        "providers add p --kind local --set key",
        "providers add p --kind local --set =v",
        "providers add p --kind local --set a=1 --set a=2",
        "providers patch p",
        "topics read",
        "topics read t --since -1",
        "tokens create",
        "tokens create --role root",
        "completion powershell",
        "status now",
        "queues ls --namespace",
        "queues ls --namespace --json",
        "queues ls --namespace a --namespace=b",
        "--nonsense queues ls",
    ],
)
def test_wrong_usage(sh: Shell, line: str) -> None:
    assert re.fullmatch(r"\S.+", sh.wrong(line))


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("", "ftp://host/x", "tcp://", "tcp://host:port", "localhost:7420"):
        assert main(["queues", "ls", "--url", url]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n"), err[:7]) == ("", 1, "usage: ")


def commands(app: App = tree.app, *path: str) -> Iterator[tuple[str, ...]]:
    """Every command there is."""
    for name in app:
        if not name.startswith("-"):
            found = (*path, name)
            yield found
            yield from commands(app[name], *found)


@pytest.mark.parametrize("path", [*commands()], ids=" ".join)
def test_every_command_has_help_with_an_example_that_parses(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*path, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "--url" in out
    app = tree.app
    for name in path:
        app = app[name]
    if len(list(commands(app))):
        return
    example = re.search(r"^Example: (lakeshore .*?)\n\n", out, re.MULTILINE | re.DOTALL)
    assert example is not None
    words = shlex.split(example[1])[1:]
    assert tuple(words[: len(path)]) == path
    monkeypatch.setattr(plane, "opened", _raising(NotFound("parsed")))
    if path[0] not in WITHOUT_A_PLANE:
        assert main(words) == 1
        assert capsys.readouterr().err.endswith("404 NotFound: parsed\n")


WITHOUT_A_PLANE = {"completion", "config", "login", "logout", "apply", "serve", "daemon"}  # or not at once


def test_the_verbs_are_those_that_are_documented() -> None:
    groups = {"queues", "pause", "resume", "jobs", "workers", "providers", "topics", "tokens", "status"}
    assert groups <= {path[0] for path in commands()}
    verbs = [path[1] for path in commands() if path[0] == "queues" and len(path) == 2]
    assert verbs == ["add", "ls", "show", "patch", "drain", "archive", "unarchive", "rm", "events", "stats"]
    documented = {
        "list",
        "logs",
        "show",
        "kill",
        "bulk-cancel",
        "submit",
        "result",
        "stream",
        "retry",
        "why",
        "prune",
    }
    assert documented == {path[1] for path in commands() if path[0] == "jobs" and len(path) == 2}


def test_help_without_a_command_and_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    bare = capsys.readouterr()
    assert main(["--help"]) == 0
    assert capsys.readouterr() == bare
    assert "╭" not in bare.out
    assert main(["--version"]) == 0
    assert re.fullmatch(r"\d+\.\d+\S*\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (NotFound("no queue 'x'"), 1, "404 NotFound: no queue 'x'"),
        (InternalError("bug"), 1, "500 InternalError: bug"),
        (StoreLocked("held by 7", 7), 1, "StoreLocked: held by 7"),
        (TimeoutError("it runs still"), 1, "408 Timeout: it runs still"),
        (
            PermissionError(13, "Permission denied", "/x"),
            1,
            "PermissionError: [Errno 13] Permission denied: '/x'",
        ),
        (ValueError("two\nlines\x1b[31m"), 2, r"usage: two lines\x1b[31m"),
        (
            KeyError("x"),
            1,
            "500 InternalError: KeyError: 'x'; this is a bug in Lakeshore: set LAKESHORE_DEBUG=1",
        ),
    ],
)
def test_errors_are_one_line(error: Exception, status: int, line: str) -> None:
    found, text = errors.explain(error)
    assert (found, text[: len(line)], "\n" in text) == (status, line, False)


def _raising(error: BaseException) -> Any:
    def run(*args: object, **kwargs: object) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "err"),
    [
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(3), 3, ""),
        (SystemExit("no"), 1, ""),
        (NotFound("gone"), 1, "404 NotFound: gone\n"),
    ],
)
def test_how_a_command_ends(
    error: BaseException,
    status: int,
    err: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(type(tree.app), "__call__", _raising(error))
    assert main(["status"]) == status
    assert capsys.readouterr() == ("", err)


def test_a_traceback_only_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(tree.app), "__call__", _raising(KeyError("x")))
    assert main(["status"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    monkeypatch.setenv("LAKESHORE_DEBUG", "1")
    assert main(["status"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_what_an_encoding_cannot_say_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(data, encoding="ascii"))
    monkeypatch.setattr(type(tree.app), "__call__", lambda *args, **kwargs: print("ä"))
    assert main(["status"]) == 0
    assert data.getvalue() == b"\\xe4\n"


def test_no_head_running(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        closed = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        for url in (closed, f"unix://{tmp_path}/none.sock"):
            assert main(["queues", "ls", "--url", url]) == 1
            out, err = capsys.readouterr()
            assert (out, err.count("\n")) == ("", 1)
            assert err.startswith("503 Unreachable: ")
            assert url in err


def test_what_answers_is_no_head(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            link, _ = other.accept()
            with link:
                link.recv(4096)
                link.sendall(b"SSH-2.0-OpenSSH_9.6\r\n" * 100)

        with elsewhere(answer) as answered:
            assert main(["status", "--url", f"tcp://127.0.0.1:{other.getsockname()[1]}"]) == 1
            answered.result(PATIENCE)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("503 Unreachable: ")
