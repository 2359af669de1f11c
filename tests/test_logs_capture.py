"""How what bodies print and log is told apart, and that nobody else notices."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest
from planes import PATIENCE, python, working

import lakeshore as dls
from lakeshore.core.running import CURRENT
from lakeshore.runners.capture import Tee, capturing


class Notes:
    """What was noted."""

    def __init__(self) -> None:
        self.notes: Any = self
        self.lines: list[tuple[str, str, str]] = []
        self.written: list[tuple[str, str]] = []

    def line(self, running: Any, source: str, level: str, text: str) -> None:
        self.lines.append((source, level, text))

    def write(self, running: Any, source: str, text: str) -> None:
        self.written.append((source, text))


@pytest.fixture
def body() -> Iterator[Notes]:
    """A body runs here."""
    notes = Notes()
    token = CURRENT.set(notes)  # pyright: ignore[reportArgumentType]
    yield notes
    CURRENT.reset(token)


def outside(call: Any, *args: Any) -> None:
    """Call something where no body runs."""
    thread = threading.Thread(target=call, args=args)
    thread.start()
    thread.join()


def test_everything_is_as_before_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    streams, factory, root = (sys.stdout, sys.stderr), logging.getLogRecordFactory(), logging.root.handlers[:]
    with capturing():
        assert isinstance(sys.stdout, Tee)
        assert isinstance(sys.stderr, Tee)
        with capturing():
            pass
        assert isinstance(sys.stdout, Tee)
        assert logging.root.handlers == root
    assert (sys.stdout, sys.stderr) == streams
    assert logging.getLogRecordFactory() is factory
    with capturing(False):
        assert sys.stdout is streams[0]


def test_what_others_put_in_place_meanwhile_stays(body: Notes) -> None:
    out, factory = sys.stdout, logging.getLogRecordFactory()
    mine = io.StringIO()
    try:
        with capturing():
            sys.stdout = mine
            logging.setLogRecordFactory(logging.LogRecord)
        assert sys.stdout is mine
        assert logging.getLogRecordFactory() is logging.LogRecord
    finally:
        sys.stdout = out
        logging.setLogRecordFactory(factory)


def test_what_is_written_outside_of_bodies_goes_through_untouched(
    body: Notes, capsys: pytest.CaptureFixture[str]
) -> None:
    with capturing():
        outside(print, "outside")
        outside(logging.getLogger("x").warning, "outside")
        print("inside", flush=True)
    assert body.written == [("stdout", "inside"), ("stdout", "\n")]
    assert body.lines == []
    assert capsys.readouterr().out == "outside\ninside\n"


def test_a_stand_in_is_like_what_it_stands_for(body: Notes) -> None:
    real = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    tee = Tee(real, "stdout")
    assert (tee.encoding, tee.buffer, tee.isatty()) == ("latin-1", real.buffer, False)
    assert tee.write("é") == 1
    with pytest.raises(UnicodeEncodeError):
        tee.write("漢")
    with pytest.raises(TypeError):
        tee.write(b"x")  # pyright: ignore[reportArgumentType]
    with pytest.raises(AttributeError):
        tee.nothing  # noqa: B018
    real.seek(0)
    assert list(tee) == ["é"]
    assert "stdout" in repr(tee)


def test_logging_is_noted_once_and_the_root_logger_looks_as_it_was(
    body: Notes, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("tests.once")
    logger.propagate = False
    with capturing():
        handler = logging.StreamHandler()  # of the stand-in
        logger.addHandler(handler)
        try:
            logger.warning("careful %s", "now")
            logger.info("not enabled")
            logging.makeLogRecord({"msg": "made by hand"})
        finally:
            logger.removeHandler(handler)
            logger.propagate = True
    assert body.lines == [("logging", "warning", "tests.once: careful now")]
    assert body.written == []
    assert capsys.readouterr().err == "careful now\n"


def test_a_program_without_any_logging_set_up_sees_warnings_still(tmp_path: Path) -> None:
    said = python(
        """
        import logging, sys, subprocess
        import lakeshore as dls
        sys.stderr = sys.stdout

        @dls.udf
        def body():
            logging.getLogger("a").warning("last resort")
            logging.basicConfig(format="set up: %(message)s")
            logging.getLogger("a").warning("two")

        with dls.Dispatch(":memory:") as q:
            inv = body.submit(_dispatch=q)
            dls.run_worker(q, once=True)
            q.result(inv)
            print([(line.source, line.text) for line in q.logs(inv)])
        """,
        tmp_path,
    )
    assert said.splitlines() == [
        "last resort",
        "set up: two",
        "[('logging', 'a: last resort'), ('logging', 'a: two')]",
    ]


def test_a_worker_may_leave_it_be(q: dls.Dispatch, capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Any] = []

    @dls.udf
    def body() -> None:
        seen.append(sys.stdout)
        print("printed")
        dls.run.log("said")

    inv = body.submit(_dispatch=q)
    dls.run_worker(q, once=True, capture=False)
    q.result(inv)
    assert [line.text for line in q.logs(inv)] == ["said"]
    assert not isinstance(seen[0], Tee)
    with pytest.raises(TypeError, match="capture"):
        dls.run_worker(q, capture="no")  # pyright: ignore[reportArgumentType]


def test_a_body_may_redirect_its_own_output(q: dls.Dispatch) -> None:
    @dls.udf
    def body() -> str:
        with redirect_stdout(io.StringIO()) as mine:
            print("mine")
        print("everybody's")
        return mine.getvalue()

    inv = body.submit(_dispatch=q)
    dls.run_worker(q, once=True)
    assert q.result(inv) == "mine\n"
    assert [line.text for line in q.logs(inv)] == ["everybody's"]


def test_what_a_body_forks_is_not_its_log(tmp_path: Path) -> None:
    said = python(
        """
        import logging, os, signal, threading
        import lakeshore as dls

        held, go = threading.Event(), threading.Event()

        def hold(lock):
            with lock:
                held.set()
                go.wait()

        @dls.udf
        def body():
            print("parent", flush=True)
            lock = dls.run._body().notes._lock
            threading.Thread(target=hold, args=(lock,), daemon=True).start()
            held.wait()
            child = os.fork()
            go.set()
            if not child:
                signal.alarm(10)
                print("child", flush=True)
                dls.run.log("child")
                logging.getLogger("x").error("child")
                os._exit(0)
            assert os.wait()[1] == 0
            print("parent", flush=True)

        with dls.Dispatch(":memory:") as q:
            inv = body.submit(_dispatch=q)
            dls.run_worker(q, once=True)
            q.result(inv)
            print([line.text for line in q.logs(inv)])
        """,
        tmp_path,
        PYTHONWARNINGS="ignore",
    )
    assert said.splitlines() == ["parent", "child", "parent", "['parent', 'parent']"]


def test_in_place_a_log_line_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    running: Any = Notes()
    running.notes = None
    token = CURRENT.set(running)
    try:
        dls.run.log("said", 1, who="me")
        dls.run.progress(1, 2)
        with capturing():
            print("printed")
    finally:
        CURRENT.reset(token)
    assert capsys.readouterr() == ("printed\n", "said 1 who=me\n")


class Behind:
    """What a thread waits for that a body has left behind, and says when it is over."""

    go, done = threading.Event(), threading.Event()


def behind() -> None:
    Behind.go.wait(PATIENCE)
    print("late")
    dls.run.log("late")
    dls.run.progress(1)
    logging.getLogger("x").warning("late")
    Behind.done.set()


@dls.udf
def leaves() -> None:
    print("in time")
    threading.Thread(target=copy_context().run, args=(behind,), daemon=True).start()


def test_a_thread_that_a_body_leaves_behind_says_nothing_any_more(q: dls.Dispatch) -> None:
    Behind.go, Behind.done = threading.Event(), threading.Event()
    with working(q):
        inv = leaves.submit(_dispatch=q)
        q.result(inv)
        Behind.go.set()
        Behind.done.wait(PATIENCE)
        q.result(leaves.submit(_dispatch=q))
    assert [line.text for line in q.logs(inv)] == ["in time"]
