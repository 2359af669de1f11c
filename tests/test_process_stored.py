"""Bodies in processes of their own: their files, their large values, and what they say."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stored_jobs as jobs
from planes import PATIENCE
from processes import processes

import lakeshore as dls
from lakeshore.core.away import AWAY_BYTES

LARGE = "x" * (AWAY_BYTES + 1)


@pytest.fixture(params=["asyncio", "trio"], scope="module")
def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dls.Dispatch, Path]]:
    """One plane and one worker for many bodies, and the folder of its storage."""
    folder = tmp_path_factory.mktemp("plane")
    with (
        dls.Dispatch(folder / "plane.db", backend=request.param, storage=folder / "store") as q,
        processes(q),
    ):
        yield q, folder / "store"


@pytest.fixture
def q(plane: tuple[dls.Dispatch, Path]) -> dls.Dispatch:
    return plane[0]


@pytest.fixture
def store(plane: tuple[dls.Dispatch, Path], request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder of the storage for this test, which is the scope of what it submits."""
    with dls.scope(request.node.name.replace("/", "-")) as prefix:
        yield plane[1] / prefix


def found(store: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in store.rglob("*") if path.is_file()}


def left_over(store: Path) -> list[Path]:
    own = store.parent / ".lakeshore"
    return [path for part in ("work", "staged") for path in (own / part).iterdir()]


def lines(q: dls.Dispatch, inv: str) -> list[tuple[str, str]]:
    return [(line.source, line.text) for line in q.logs(inv)]


@pytest.mark.parametrize(
    "body", [jobs.plain, jobs.waiting, jobs.yielding, jobs.yielding_slowly], ids=lambda body: body.kind
)
def test_files(q: dls.Dispatch, store: Path, body: Any) -> None:
    inv = body.submit(["a", "b"], ["a", "b"], _dispatch=q)
    q.result(inv, timeout=PATIENCE)
    assert found(store) == {"a": "in a", "b": "in b"}
    assert left_over(store) == []


def test_the_rule_is_the_same(q: dls.Dispatch, store: Path) -> None:
    with pytest.raises(dls.InvocationFailed, match="written and not returned: 'b'") as caught:
        q.result(jobs.plain.submit(["a", "b"], "a", _dispatch=q), timeout=PATIENCE)
    assert caught.value.type == "lakeshore.core.errors.KeysNotReturned"
    assert found(store) == {}


def test_large_values(q: dls.Dispatch, store: Path) -> None:
    inv = jobs.echo.submit(LARGE, _dispatch=q)
    assert q.result(inv, timeout=PATIENCE) == LARGE
    inv = jobs.frames.submit(["small", LARGE], _dispatch=q)
    assert list(q.stream(inv).values()) == ["small", LARGE]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        pytest.param("exit", "exit code 3", id="exit"),
        pytest.param("segfault", r"SIGSEGV \(segmentation fault\)", id="segfault"),
    ],
)
def test_a_body_that_dies_leaves_its_last_words_and_no_files(
    q: dls.Dispatch, store: Path, how: str, says: str
) -> None:
    inv = jobs.dies.submit(how, _dispatch=q)
    with pytest.raises(dls.InvocationFailed, match=says):
        q.result(inv, timeout=PATIENCE)
    said = lines(q, inv)
    assert ("stdout", "last words") in said
    if how == "segfault":
        assert any("Segmentation fault" in text for source, text in said if source == "stderr")
    assert q.result(jobs.echo.submit(1, _dispatch=q), timeout=PATIENCE) == 1
    assert found(store) == {}


def test_a_killed_body_has_shown_what_it_yielded_alone(q: dls.Dispatch, store: Path) -> None:
    inv = jobs.written_then_stuck.submit(_dispatch=q)
    assert next(iter(q.stream(inv))).value == "shown"
    q.kill(inv, running=True)  # not lost, though a file was being published just before
    assert found(store) == {"shown": "in shown"}
    with pytest.raises(dls.InvocationKilled):
        q.result(inv, timeout=PATIENCE)


def test_everything_that_a_body_says(q: dls.Dispatch, store: Path) -> None:
    inv = jobs.talks.submit(_dispatch=q)
    assert q.result(inv, timeout=PATIENCE) == inv
    said = lines(q, inv)
    by_pipe = [line for line in said if line[0] in ("stdout", "stderr")]
    assert [text for source, text in by_pipe if source == "stdout"] == [
        "printed",
        "half a line",
        "by hand",
        "by a child",
        "no end",
    ]
    assert ("stderr", "to stderr") in said
    assert [line for line in said if line not in by_pipe] == [
        ("logging", "mine: logged 1"),
        ("log", "said n=2"),
        ("progress", "1/4 (25 %)"),
    ]
    shown = q.get(inv).progress
    assert shown is not None
    assert (shown.done, shown.total) == (1, 4)


def test_each_line_is_its_own_bodys(q: dls.Dispatch, store: Path) -> None:
    texts = [f"line {number}" for number in range(60)]
    ids = jobs.says.submit_many(texts, _dispatch=q)
    for text, inv in zip(texts, ids, strict=True):
        assert q.result(inv, timeout=PATIENCE) == text
        assert lines(q, inv) == [("stdout", text)]


def test_a_body_that_prints_a_lot_keeps_its_end(
    q: dls.Dispatch, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    inv = jobs.prints.submit(20, _dispatch=q)
    q.result(inv, timeout=PATIENCE)
    capfd.readouterr()
    first = 0
    try:
        said = lines(q, inv)
    except dls.Gap as gap:
        first = gap.first
        said = [(line.source, line.text) for line in q.logs(inv, since=first)]
    assert said[-1] == ("stdout", "the last line")


def test_what_a_body_left_behind_disturbs_nobody(q: dls.Dispatch, store: Path, tmp_path: Path) -> None:
    inv = jobs.leaves_a_talker.submit(str(tmp_path), _dispatch=q)
    talker = q.result(inv, timeout=PATIENCE)
    try:
        for number in range(3):
            assert q.result(jobs.echo.submit(number, _dispatch=q), timeout=PATIENCE) == number
    finally:
        os.kill(talker, signal.SIGKILL)
