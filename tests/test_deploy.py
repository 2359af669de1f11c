"""What is in deploy/ starts what there is, and the commands of the operators' page run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli import environment
from head_process import PATIENCE, Head

import lakeshore as dls
from lakeshore.cli.app import app
from lakeshore.sdk.manifest import load
from lakeshore.sdk.serving import release

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))


def settings(unit: Path) -> dict[str, str]:
    """The newest value of each setting of a unit."""
    text = unit.read_text().replace("\\\n", " ")
    return dict(line.split("=", 1) for line in text.splitlines() if re.match(r"\w+=", line))


def parses(words: list[str]) -> None:
    """A command line names a command and options that are there."""
    command, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    assert command.__module__.startswith("lakeshore.cli."), bound


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_a_unit_starts(unit: Path) -> None:
    found = settings(unit)
    program, *words = shlex.split(found["ExecStart"])
    assert program.endswith("/bin/lakeshore")
    parses(words)
    state = f"/var/lib/{found['StateDirectory']}"
    assert found["Environment"] == f"LAKESHORE_HOME={state}"
    assert found["Restart"] == "on-failure"
    if "serve" in words:
        assert found["Type"] == "notify"
        assert words[words.index("--store") + 1].startswith(state)
        assert float(found["TimeoutStopSec"]) > 10
    else:
        grace = float(words[words.index("--grace") + 1])
        assert float(found["TimeoutStopSec"]) > grace


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/lakeshore/bin/lakeshore", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert unit.name not in done.stdout + done.stderr
    assert done.returncode == 0, done.stderr


def test_what_an_image_starts() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    entry, command = (
        json.loads(re.findall(rf"^{name} (\[.*\])$", text, re.MULTILINE)[0]) for name in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["lakeshore"]
    parses(command)
    assert re.findall(r"^FROM (\S+)$", text, re.MULTILINE) == ["python:3.13-slim"]
    assert text.index("USER lakeshore") < text.index("ENTRYPOINT")
    for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_its_lakeshore_yaml() -> None:
    assert set(load(str(DEPLOY / "lakeshore.yaml")).queues) == {"default", "eval"}


def test_the_commands_of_the_operators_page(tmp_path: Path) -> None:
    """In their order, against a head that is started as its unit does."""
    page = (ROOT / "docs" / "operators.md").read_text()
    state, elsewhere, bin = (tmp_path / name for name in ("state", "elsewhere", "bin"))
    bin.mkdir()
    (bin / "lakeshore").write_text(f'#!/bin/sh\nexec {sys.executable} -m lakeshore "$@"\n')
    (bin / "lakeshore").chmod(0o755)
    path = f"{bin}{os.pathsep}{os.environ['PATH']}"
    options = ("--config", DEPLOY / "lakeshore.yaml", "--store", state / "plane.db")
    with Head(state, *options) as head:
        said: list[str] = []
        for block in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            for shown, real in (
                ("/var/lib/lakeshore", str(state)),
                ("tcp://127.0.0.1:7420", head.url),
                ("tls://head.example.org:7420", head.url),
            ):
                block = block.replace(shown, real)
            home = elsewhere if "login" in block else state
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=tmp_path,
                env=environment(home, PATH=path),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
            assert done.returncode == 0, block + done.stderr
            said.append(done.stdout)
        assert head.end() == 0
    assert str(head.pid) in said[0]
    assert "eval" in said[0]
    assert "gpu-1" in said[1]
    assert "default" in said[2]
    assert "revoked" in said[3]
    assert json.loads(said[4])["listen"] == head.urls
    with (
        pytest.raises(dls.Unreachable, match="serve --release"),
        dls.Dispatch(tmp_path / "backup.db", connect_timeout=0) as q,
    ):
        q.queues.ls()  # a served store's copy waits for a head, too
    assert release(str(tmp_path / "backup.db"))
    with dls.Dispatch(tmp_path / "backup.db") as q:
        assert {queue.name for queue in q.queues.ls()} == {"default", "eval"}
        assert {token.name for token in q.tokens.list("research")} == {"gpu-1"}
