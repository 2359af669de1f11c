"""What a type checker sees: a body's signature carries through `udf` to `submit`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = """
from typing import assert_type
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any
import lakeshore as dls

@dls.udf
def f(x: int, *, y: str = "") -> float: return 1.0

@dls.udf(retries=3, queue="q")
def g(n: int) -> Iterator[int]: yield n

@dls.udf
async def a(x: int) -> str: return ""

@dls.udf
async def ag(x: int) -> AsyncIterator[int]: yield x

h = dls.udf(lambda x: x, queue="q")
assert_type(f(1), float)
assert_type(f.local(1, y="a"), float)
assert_type(g(1), Iterator[int])
assert_type(f.submit(x=1), str)
f.submit(1, y="a")
f.submit(x=1, _key="k")
f.submit(x=1, _key="k", _strict_key=True)
f.submit(x=1, _priority=2.0)
f.submit(x=1, _delay=3)
f.submit(x=1, _timeout=None)
f.submit_many([1, 2])

async def main() -> None:
    assert_type(await a(1), str)
    assert_type(await f.asubmit(x=1), str)
    await f.asubmit(1, _key="k")
    async for i in ag(1):
        assert_type(i, int)
    async with dls.AsyncDispatch(":memory:") as q:
        await q.submit(f, x=1, _key="k")
        async for frame in q.stream(""):
            frame.seq + 1

with dls.Dispatch(":memory:") as q:
    q.submit(f, 1)
    f.submit(1, _dispatch=q)
    for frame in q.stream(""):
        frame.seq + 1
"""

BAD = """
import lakeshore as dls

@dls.udf
def f(x: int) -> float: return 1.0

@dls.udf(retries=1)
def g(x: int) -> float: return 1.0

h = dls.udf(f.fn, queue="q")

f.submit(x="wrong")
f.submit()
f.submit(z=1)
f.submit(x=1, _key=5)
g.submit(x="wrong")
h.submit(x="wrong")
f(x="wrong")
dls.udf(f.fn, retries="many")
async def main() -> None:
    await f.asubmit(x="wrong")
"""


def pyright(source: str, folder: Path) -> list[int]:
    path = folder / "checked.py"
    path.write_text(source)
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", folder]
    out = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=120, check=False
    ).stdout
    found = json.loads(out)["generalDiagnostics"]
    errors = [item for item in found if item["severity"] == "error" and "Lambda" not in item.get("rule", "")]
    return sorted({item["range"]["start"]["line"] + 1 for item in errors})


@pytest.fixture(scope="module", autouse=True)
def needs_pyright() -> None:
    pytest.importorskip("pyright")


def test_what_is_right_passes(tmp_path: Path) -> None:
    assert pyright(GOOD, tmp_path) == []


def test_what_is_wrong_is_an_error(tmp_path: Path) -> None:
    first = BAD.splitlines().index('f.submit(x="wrong")') + 1
    assert pyright(BAD, tmp_path) == [*range(first, first + 8), first + 9]
