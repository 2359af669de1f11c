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

class Point:
    x: int = 0

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

    async with dls.AsyncDispatch(":memory:", sync="full") as q:
        assert_type(await q.result("", type=Point), Point)
        assert_type(await q.result("", type=list[Point]), list[Point])
        assert_type(await q.result(""), Any)
        await q.queues.add("a", kind="filo", on_full="block", elasticity="fixed", min=1)
        await q.queues.patch("a", on_full="reject", max_depth=None, min=2)
        async for value in q.stream("").values(restarts="keep"): pass

with dls.Dispatch(":memory:", backend="trio", sync="normal") as q:
    assert_type(q.result("", type=Point), Point)
    assert_type(q.result("", type=list[Point], timeout=1), list[Point])
    assert_type(q.result(""), Any)
    q.result("", type=Point | None)
    q.queues.add("a", kind="boltzmann", on_full="block", elasticity="max_count", max=3)
    q.queues.patch("a", description="", rate_limit="1/s", retention=None)
    for value in q.stream("").values(restarts="keep"): pass
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
    q = dls.AsyncDispatch(":memory:")
    dls.AsyncDispatch(":memory:", sync="wrong")
    await q.queues.add("a", kind="wrong")
    await q.queues.add("a", on_full="wrong")
    await q.queues.add("a", elasticity="wrong")
    await q.queues.patch("a", max_dept=1)
    await q.queues.patch("a", max_depth="wrong")
    (await q.result("", type=int)).wrong_name_of_a_method()
    q.stream("").values(restarts="wrong")
p = dls.Dispatch(":memory:")
dls.Dispatch(":memory:", sync="wrong")
dls.Dispatch(":memory:", backend="wrong")
dls.udf(f.fn, by="wrong")
p.queues.add("a", kind="wrong")
p.queues.add("a", on_full="wrong")
p.queues.add("a", elasticity="wrong")
p.queues.patch("a", max_dept=1)
p.queues.patch("a", on_full="wrong")
p.stream("").values(restarts="wrong")
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
    lines = BAD.splitlines()
    first = lines.index('f.submit(x="wrong")') + 1
    right = ("async def", "p =", "    q =")
    wanted = [n for n, line in enumerate(lines, 1) if n >= first and not line.startswith(right)]
    assert pyright(BAD, tmp_path) == wanted
