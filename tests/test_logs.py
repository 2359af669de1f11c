"""What bodies say, from `dls.run.log` and `print` to `q.logs`: all kinds of body, both loops, every link."""

from __future__ import annotations

import logging
import math
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextvars import copy_context
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from heads import served
from planes import PATIENCE, working

import lakeshore as dls
from lakeshore.core.logbook import LONGEST, ROOM

log = logging.getLogger("tests.logs")


class Gate:
    """Where a body says that it began, and waits for leave to go on."""

    began, go = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.began, Gate.go = threading.Event(), threading.Event()


@dls.udf
def says() -> None:
    print("printed")
    dls.run.log("said", 1, [2], level="warning", who="me")
    log.error("logged %d", 3)
    print("to stderr", file=sys.stderr)
    print("half", end="")


@dls.udf
def counts(n: int, who: str) -> None:
    for number in range(n):
        print(f"{who} {number}")


@dls.udf
def generates(n: int, who: str) -> Iterator[int]:
    for number in range(n):
        print(f"{who} {number}")
        if number % 100 == 0:
            yield number


@dls.udf
async def counts_async(n: int, who: str) -> None:
    for number in range(n):
        print(f"{who} {number}")
        if number % 100 == 0:
            await anyio.lowlevel.checkpoint()


@dls.udf
async def generates_async(n: int, who: str) -> AsyncIterator[int]:
    for number in range(n):
        print(f"{who} {number}")
        if number % 100 == 0:
            yield number
            await anyio.lowlevel.checkpoint()


KINDS = [counts, generates, counts_async, generates_async]


@dls.udf
def held(before: str = "before", after: str = "after") -> None:
    dls.run.log(before)
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    dls.run.log(after)


@dls.udf
async def sleeps() -> None:
    print("before")
    Gate.began.set()
    try:
        await anyio.sleep_forever()
    finally:
        print("cleaned up")


@dls.udf(retries=1, retry_delay=1e-3)
def fails_once() -> None:
    print(f"attempt {dls.run.attempt}")
    dls.run.progress(dls.run.attempt, 2)
    if dls.run.attempt == 1:
        raise ValueError("again")


@dls.udf
def progresses(*args: Any, **kwargs: Any) -> None:
    dls.run.progress(*args, **kwargs)


def texts(q: dls.Dispatch, inv: str, **options: Any) -> list[str]:
    return [line.text for line in q.logs(inv, **options)]


def test_every_way_to_say_something(q: dls.Dispatch, capsys: pytest.CaptureFixture[str]) -> None:
    before = time.time()
    inv = says.submit(_dispatch=q)
    assert dls.run_worker(q, once=True) == 1
    q.result(inv)
    lines = list(q.logs(inv))
    assert [(line.source, line.level, line.text) for line in lines] == [
        ("stdout", "info", "printed"),
        ("log", "warning", "said 1 [2] who=me"),
        ("logging", "error", "tests.logs: logged 3"),
        ("stderr", "info", "to stderr"),
        ("stdout", "info", "half"),
    ]
    assert [line.seq for line in lines] == [0, 1, 2, 3, 4]
    assert {line.attempt for line in lines} == {1}
    assert all(before - 1 < line.at < time.time() + 1 for line in lines)
    assert lines[0].time.timestamp() == pytest.approx(lines[0].at, abs=1e-3)
    assert capsys.readouterr() == ("printed\nhalf", "to stderr\n")  # people see it, too
    assert q.get(inv).lines == 5
    assert texts(q, inv, since=4) == ["half"]


def test_a_body_that_says_nothing_has_an_empty_log(q: dls.Dispatch) -> None:
    inv = counts.submit(0, "nobody", _dispatch=q)
    assert texts(q, inv) == []
    dls.run_worker(q, once=True)
    assert texts(q, inv) == []
    assert (q.get(inv).lines, q.get(inv).progress) == (0, None)


def test_ten_thousand_lines_of_eight_slots_are_in_order_and_each_has_the_right_id(
    q: dls.Dispatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = {
        f"{kind.__name__}-{n}": kind.submit(1250, f"{kind.__name__}-{n}", _dispatch=q)
        for n in (1, 2)
        for kind in KINDS
    }
    dls.run_worker(q, drain=True, slots=8)
    for who, inv in ids.items():
        q.result(inv)
        assert texts(q, inv) == [f"{who} {number}" for number in range(1250)]
    assert len(capsys.readouterr().out.splitlines()) == 10_000


def test_threads_of_a_body_say_something_with_its_context(q: dls.Dispatch) -> None:
    def speak(who: int) -> None:
        for number in range(200):
            dls.run.log(who, number)
            print("printed", who, number)

    @dls.udf
    def body() -> None:
        threads = [
            threading.Thread(target=copy_context().run, args=(speak, who), daemon=True) for who in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    inv = body.submit(_dispatch=q)
    dls.run_worker(q, once=True)
    q.result(inv)
    said = defaultdict[str, list[int]](list)
    for line in q.logs(inv):
        if line.source == "log":
            who, number = line.text.split()
            said[who].append(int(number))
    assert said == {str(who): list(range(200)) for who in range(8)}


def test_follow_reads_along_until_the_end(q: dls.Dispatch) -> None:
    inv = held.submit("one\ntwo", "three", _dispatch=q)
    with working(q):
        with q.logs(inv, follow=True) as lines:
            assert [next(lines).text, next(lines).text] == ["one", "two"]
            assert lines.cursor == 2
            assert texts(q, inv) == ["one", "two"]
            Gate.go.set()
            assert [line.text for line in lines] == ["three"]
        assert texts(q, inv, since=1, follow=True) == ["two", "three"]
        with q.logs(inv) as lines:
            assert next(lines).seq == 0
        assert list(lines) == []


def test_lines_of_every_attempt_are_kept(q: dls.Dispatch) -> None:
    inv = fails_once.submit(_dispatch=q)
    dls.run_worker(q, once=True)
    q.result(inv)
    said = [(line.attempt, line.text) for line in q.logs(inv) if line.source == "stdout"]
    assert said == [(1, "attempt 1"), (2, "attempt 2")]
    found = q.get(inv).progress
    assert found is not None
    assert (found.done, found.total, str(found)) == (2, 2, "2/2 (100 %)")


@pytest.mark.parametrize("how", ["kill", "timeout"])
def test_a_body_that_is_stopped_keeps_what_was_said(q: dls.Dispatch, how: str) -> None:
    inv = sleeps.submit(_dispatch=q, _timeout=0.05 if how == "timeout" else None)
    with working(q):
        Gate.began.wait(PATIENCE)
        if how == "kill":
            q.kill(inv, running=True)
        with pytest.raises(dls.Unsuccessful):
            q.result(inv)
        assert texts(q, inv) == ["before", "cleaned up"]


def test_a_body_that_prints_a_lot_is_neither_held_up_nor_loses_its_end(
    backend: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    most = 0

    @dls.udf
    def prints() -> None:
        nonlocal most
        notes = dls.run._body()  # pyright: ignore[reportPrivateUsage]
        for number in range(20):
            sys.stdout.write(f"{number} {'x' * 98}\n" * 5000)
            for _ in range(1000):
                print(number, "y" * 500)
            most = max(most, notes.notes._draft.size)
        print("the end")

    with dls.Dispatch(":memory:", backend=backend) as q:
        inv = prints.submit(_dispatch=q)
        dls.run_worker(q, once=True)
        q.result(inv)
        assert len(capsys.readouterr().out) > 19_000_000
        assert ROOM / 2 < most <= ROOM
        try:
            lines = list(q.logs(inv))
        except dls.Gap as gap:
            lines = list(q.logs(inv, since=gap.first))
        assert lines[-1].text == "the end"
        assert sum(len(line.text) for line in lines) < 2 << 20
        total = sum(
            int(found[1].replace(",", ""))
            if (found := re.match(r"([\d,]+) lines were dropped", line.text))
            else 1
            for line in lines
        )
        assert lines[0].seq or total == 20 * 6000 + 1  # each line is there, or counted


def test_strange_text_is_kept_safe(q: dls.Dispatch) -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd \udcff"

    @dls.udf
    def body() -> None:
        dls.run.log(Odd(), "\0", "\x1b[1m")
        dls.run.log()
        dls.run.log("x" * (LONGEST + 1))
        sys.stdout.write("\r10 %\r100 %\n")
        sys.stdout.writelines(["a\n", "b\n"])
        log.warning("broken %d", "x")
        try:
            raise LookupError("real")
        except LookupError:
            log.exception("with a traceback")
        dls.run.log("end")

    logging.raiseExceptions, before = False, logging.raiseExceptions
    try:
        inv = body.submit(_dispatch=q)
        dls.run_worker(q, once=True)
        q.result(inv)
    finally:
        logging.raiseExceptions = before
    lines = list(q.logs(inv))
    found = [line.text for line in lines]
    assert found[:6] == [
        "odd \\udcff \0 \x1b[1m",
        "",
        "x" * LONGEST + "… (1 more characters were cut)",
        "100 %",
        "a",
        "b",
    ]
    assert "tests.logs: with a traceback" in found
    assert "LookupError: real" in found
    assert all("\n" not in text for text in found)
    assert found[-1] == "end"


@pytest.mark.parametrize(
    ("done", "total", "shown"),
    [(1, None, "1"), (0.5, 2, "0.5/2 (25 %)"), (Decimal("0.5"), None, "0.5"), (1 << 70, None, "1.18059e+21")],
)
def test_progress_takes_numbers(done: Any, total: Any, shown: str) -> None:
    q = dls.Dispatch(":memory:")
    inv = progresses.submit(done, total, "at  \n the   end", _dispatch=q)
    dls.run_worker(q, once=True)
    q.result(inv)
    found = q.get(inv).progress
    assert found is not None
    assert str(found) == f"{shown} at the end"
    assert found.at.tzinfo is not None
    assert q.jobs.list()[0].progress == found
    assert [line.source for line in q.logs(inv)] == ["progress"]
    q.close()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("1",), TypeError),
        ((True,), TypeError),
        ((None,), TypeError),
        ((1j,), TypeError),
        ((-1,), ValueError),
        ((math.nan,), ValueError),
        ((math.inf,), ValueError),
        ((10**400,), ValueError),
        ((1, -1), ValueError),
        ((1, "2"), TypeError),
        ((1, 2, 3), TypeError),
    ],
)
def test_bad_progress_is_refused(args: tuple[Any, ...], error: type[Exception]) -> None:
    @dls.udf
    def body() -> None:
        with pytest.raises(error):
            dls.run.progress(*args)
        with pytest.raises(ValueError, match="choose from debug"):
            dls.run.log("x", level="loud")  # pyright: ignore[reportArgumentType]

    with dls.Dispatch(":memory:") as q:
        inv = body.submit(_dispatch=q)
        dls.run_worker(q, once=True)
        q.result(inv)


def test_outside_of_a_body_it_says_so() -> None:
    with pytest.raises(RuntimeError, match="no body runs here"):
        dls.run.log("x")
    with pytest.raises(RuntimeError, match="no body runs here"):
        dls.run.progress(1)


def test_ids_that_are_unknown_or_pruned(q: dls.Dispatch) -> None:
    inv = says.submit(_dispatch=q)
    dls.run_worker(q, once=True)
    q.result(inv)
    assert texts(q, inv)
    while not q.jobs.prune(0):  # it has ended this very moment
        pass
    with pytest.raises(dls.Expired):
        texts(q, inv)
    with pytest.raises(dls.NotFound):
        texts(q, "01M8NYTSQR50YJB9QDVKQNPG1A", follow=True)
    with pytest.raises(dls.NotFound):
        q.logs("no id")
    with pytest.raises(TypeError):
        q.logs(inv, since="0")  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        q.logs(inv, follow=1)  # pyright: ignore[reportArgumentType]


def test_lines_beyond_the_last_are_a_gap(q: dls.Dispatch) -> None:
    inv = says.submit(_dispatch=q)
    dls.run_worker(q, once=True)
    q.result(inv)
    assert texts(q, inv, since=5) == []
    with pytest.raises(dls.Gap) as caught:
        texts(q, inv, since=6)
    assert caught.value.first == 5


@pytest.mark.anyio
async def test_the_asynchronous_face(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        inv = await counts_async.asubmit(300, "it", _dispatch=q)
        tasks.start_soon(lambda: dls.arun_worker(q, once=True))
        followed = [line.text async for line in q.logs(inv, follow=True)]
        assert followed == [f"it {number}" for number in range(300)]
        async with q.logs(inv, since=298) as lines:
            assert [line.text async for line in lines] == followed[298:]
            assert lines.cursor == 300
    assert type(sys.stdout).__name__ != "Tee"


@pytest.mark.parametrize("scheme", ["tcp", "unix"])
def test_over_links_and_over_a_new_head(tmp_path: Path, backend: Any, home: Path, scheme: str) -> None:
    url = f"unix://{tmp_path / 's'}" if scheme == "unix" else ""
    with (
        served(tmp_path / "plane.db", backend, url=url) as head,
        dls.Dispatch(head.url, backend=backend) as q,
    ):
        inv = held.submit("before", "after", _dispatch=q)
        with working(q):
            lines = q.logs(inv, follow=True)
            assert next(lines).text == "before"
            head.restart()
            Gate.go.set()
            q.result(inv, timeout=PATIENCE)
            assert [line.text for line in lines] == ["after"]
            assert texts(q, inv) == ["before", "after"]
        if scheme == "tcp":
            token = q.tokens.create("read").token
            with dls.Dispatch(head.url, token=token, backend=backend) as reader:
                assert texts(reader, inv) == ["before", "after"]
