"""Every file in examples/ does what it says."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

import lakeshore as dls

EXAMPLES = Path(__file__).parents[1] / "examples"


pytestmark = pytest.mark.usefixtures("home")


def run(*arguments: str) -> str:
    """What a Python command prints; it must end well and without a warning."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def load(name: str) -> ModuleType:
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three modules and one file that is none."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "small.py").write_text("# one comment\n\nx = 1\n")
    (folder / "large.py").write_text("class A:\n    def f(self):\n        async def g(): ...\n" * 20)
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("def [nonsense]:\n")
    return folder


def test_quickstart_measures_and_then_finds(folder: Path, home: Path) -> None:
    """The first run measures, the second finds everything by key."""
    command = [str(EXAMPLES / "quickstart.py"), "--folder", str(folder)]
    first, second = run(*command), run(*command)
    assert "3 measured, 1 failed; 0 found by their keys" in first
    assert "3 measured, 1 failed; 4 found by their keys" in second
    assert first.splitlines()[1:-1] == second.splitlines()[1:-1]  # the same table of the same ids
    rows = [line.split() for line in first.splitlines()]
    assert ["large.py", "60", "60", "40", "20", "1,060"] in rows
    assert ["all", "3", "61", "63", "40", "20", "1,081"] in rows
    assert "failed   builtins.SyntaxError: invalid syntax (broken.py, line 1)" in first
    assert list(home.glob("*/plane.db"))


def test_quickstart_measures_again_what_has_changed(folder: Path) -> None:
    """A changed file is another key."""
    command = [str(EXAMPLES / "quickstart.py"), "--folder", str(folder)]
    run(*command)
    (folder / "broken.py").write_text("fine = True\n")
    assert "4 measured, 0 failed; 3 found by their keys" in run(*command)


def test_quickstart_reads_this_python() -> None:
    """Without a folder it is the standard library."""
    printed = run(str(EXAMPLES / "quickstart.py"), "--limit", "30")
    assert "30 files go to the plane" in printed
    assert "_pydecimal.py" in printed
    assert "found by their keys" in printed


def test_trio_app() -> None:
    """Both bodies ran."""
    printed = run(str(EXAMPLES / "trio_app.py")).splitlines()
    assert sorted(printed) == ["done", *(f"{name} {n}" for name in ("tick", "tock") for n in range(3))]
    assert printed[-1] == "done"


def test_pytest_example(tmp_path: Path) -> None:
    """It is a test module of somebody else's."""
    printed = run("-m", "pytest", "-q", "--rootdir", str(tmp_path), "-p", "no:cacheprovider",
                  str(EXAMPLES / "pytest_example.py"))  # fmt: skip
    assert "4 passed" in printed


def test_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """Its cells run in order inside a running asyncio loop, as in a kernel."""
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell.get("outputs") for cell in notebook["cells"])

    async def kernel() -> list[Any]:
        shown: list[Any] = []
        namespace: dict[str, Any] = {"__name__": "__main__"}
        for number, source in enumerate(sources):
            tree = ast.parse(source, f"cell {number}")
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            await _evaluate(compile(tree, f"cell {number}", "exec", _TOP), namespace)
            if isinstance(last, ast.Expr):
                value = compile(ast.Expression(last.value), f"cell {number}", "eval", _TOP)
                shown.append(await _evaluate(value, namespace))
        return shown

    first, second, third, *_ = asyncio.run(kernel())
    assert len(first) == 26
    assert (second, third) == ((5, [0, 1, 4, 9, 16]), [0, 1, 2, 3])
    assert capsys.readouterr().out == "builtins.KeyError 'missing'\n"


_TOP = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


async def _evaluate(code: Any, namespace: dict[str, Any]) -> Any:
    value = eval(code, namespace)
    return await value if inspect.iscoroutine(value) else value


@pytest.fixture
def anyio_backend() -> str:
    """FastAPI is an asyncio framework."""
    return "asyncio"


@pytest.mark.anyio
async def test_fastapi_app() -> None:
    """POST gives the id, GET the result, and the stream goes on where a reader was."""
    app = load("fastapi_app").app
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        posted = await client.post("/jobs", params={"below": 12})
        assert posted.status_code == 202
        inv = posted.json()["id"]

        events = (await client.get(f"/jobs/{inv}/stream")).text
        assert events == "".join(
            f"id: {seq}\ndata: {prime}\n\n" for seq, prime in enumerate([2, 3, 5, 7, 11])
        ) + ("event: end\ndata: 5\n\n")
        rest = await client.get(f"/jobs/{inv}/stream", headers={"Last-Event-ID": "3"})
        assert rest.text == "id: 4\ndata: 11\n\nevent: end\ndata: 5\n\n"
        assert (await client.get(f"/jobs/{inv}")).json() == {
            "id": inv, "state": "succeeded", "result": 5, "error": None,
        }  # fmt: skip

        missing = await client.get("/jobs/01HZZZZZZZZZZZZZZZZZZZZZZZ")
        assert missing.status_code == 404
        waiting = await dls.udf(lambda: None).asubmit(_delay=3600)
    # the plane is a file: the next start knows both
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        assert (await client.get(f"/jobs/{inv}")).json()["result"] == 5
        assert (await client.get(f"/jobs/{waiting}")).json()["state"] == "queued"
