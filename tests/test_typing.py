"""What a type checker sees: every public name has a type, what is right passes, what is wrong is found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lakeshore

pytest.importorskip("pyright")

HERE = Path(__file__).parent / "typing"
CONFIG = {"typeCheckingMode": "standard", "strict": ["right.py"], "pythonVersion": "3.11"}
MARK = re.compile(r"# error: (.*)$")
Found = dict[int, set[str]]  # rules by line


def pyright(*arguments: object, folder: Path) -> dict[str, Any]:
    """What pyright says, with this interpreter's packages."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "pyright", "--outputjson", *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=folder,
        env={**os.environ, "PATH": path},
    )
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """The rules that pyright names in each file, all files in one go."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "pyrightconfig.json").write_text(json.dumps(CONFIG))
    for path in HERE.glob("*.py"):
        text = path.read_text()
        (folder / path.name).write_text(re.sub(r"\A# type: ignore.*", "", text))
    rules: dict[str, Found] = {path.name: {} for path in HERE.glob("*.py")}
    said = pyright("--pythonpath", sys.executable, "-p", folder, folder=folder)
    for one in said["generalDiagnostics"]:
        line = one["range"]["start"]["line"] + 1
        rules[Path(one["file"]).name].setdefault(line, set()).add(one.get("rule", one["message"]))
    return rules


def test_what_is_right_passes(found: dict[str, Found]) -> None:
    assert found["right.py"] == {}


def test_what_is_wrong_is_found(found: dict[str, Found]) -> None:
    lines = (HERE / "wrong.py").read_text().splitlines()
    marks = {number: MARK.search(line) for number, line in enumerate(lines, 1)}
    wanted = {number: set(mark[1].split(", ")) for number, mark in marks.items() if mark}
    assert len(wanted) > 80
    assert found["wrong.py"] == wanted


FACES = {"AsyncDispatch", "AsyncTopic", "Dispatch", "Topic"}  # their attributes are typed as they are made


def test_every_public_name_has_a_type() -> None:
    """By `pyright --verifytypes`: nothing is unknown, and what a public class has says its type."""
    said = pyright("--verifytypes", "lakeshore", "--ignoreexternal", folder=HERE)["typeCompleteness"]
    symbols = {one["name"]: one for one in said["symbols"]}
    assert {f"lakeshore.{name}" for name in lakeshore.__all__} <= symbols.keys()
    assert said["exportedSymbolCounts"]["withUnknownType"] == 0
    public = {f"{getattr(lakeshore, name).__module__}.{name}" for name in {*lakeshore.__all__} - FACES}
    own = {
        name: one["message"]
        for name, symbol in symbols.items()
        if name in public or name.rpartition(".")[0] in public
        for one in symbol["diagnostics"]
        if "missing type annotation" in one["message"]
    }
    assert own == {}
