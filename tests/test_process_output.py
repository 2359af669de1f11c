"""What processes of bodies write: whose it is, and where it is shown."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from planes import PATIENCE

from lakeshore.core.logbook import SILENCE
from lakeshore.core.running import CURRENT
from lakeshore.runners.processes import outlets
from lakeshore.runners.processes.descriptors import PipeReader, _Piped
from lakeshore.runners.processes.limits import Limits
from lakeshore.runners.processes.pool import Pool

ROOM = outlets._ROOM


class Notes:
    """What was noted."""

    def __init__(self) -> None:
        self.notes: Any = self
        self.text = ""

    def write(self, running: Any, source: str, text: str) -> None:
        self.text += text


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Its write end is closed here, its read end by whoever reads it."""
    ours, theirs = os.pipe()
    yield ours, theirs
    os.close(theirs)


def test_what_was_written_is_its_bodys_though_nobody_reads_it_where_it_is_shown(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlets, "_STUCK", 0.01)
    unread, shown = os.pipe()
    outlet = outlets.Outlet(shown)
    reader = PipeReader({"stdout": pipe[0]}, {"stdout": outlet})
    os.write(pipe[1], b"nobody's\n")
    bodies: list[Any] = [Notes() for _ in range(5)]
    for number, body in enumerate(bodies):
        reader.turn_to(body)
        for _ in range(10):
            outlets.write_all(pipe[1], b"%d" % number * 60_000)
    reader.turn_to(None)
    assert [body.text == str(number) * 600_000 for number, body in enumerate(bodies)] == [True] * 5
    assert outlet._size < ROOM + (1 << 17)
    assert outlet._dropped
    reader.finish(0)
    assert reader.join(PATIENCE)
    os.close(unread)
    outlet.close(time.monotonic() + PATIENCE)


def test_half_a_character_and_half_a_line(pipe: tuple[int, int]) -> None:
    reader = PipeReader({"stdout": pipe[0]})
    one: Any = Notes()
    two: Any = Notes()
    reader.turn_to(one)
    os.write(pipe[1], "é \udcff".encode("utf-8", "surrogateescape") + b"\n" + "é".encode()[:1])
    assert reader.turn_to(two) is False
    os.write(pipe[1], b"two")
    assert reader.turn_to(None) is False
    assert (one.text, two.text) == ("é \\xff\n", "two")
    os.write(pipe[1], b"from whatever it has left")
    assert reader.turn_to(None) is True
    assert reader.turn_to(None) is False
    reader.finish(PATIENCE)


def test_an_endless_writer_holds_nothing_up(pipe: tuple[int, int]) -> None:
    reader = PipeReader({"stdout": pipe[0]})
    with subprocess.Popen(["yes"], stdout=pipe[1]) as endless:
        while not reader.turn_to(None):
            pass
        for _ in range(100):
            reader.turn_to(None)
        endless.kill()
    reader.finish(0)
    assert reader.join(PATIENCE)


def test_what_keeps_a_pipe_open_keeps_no_thread(pipe: tuple[int, int]) -> None:
    reader = PipeReader({"stdout": pipe[0]})
    assert not reader.join(0)
    reader.finish(0.01)
    assert reader.join(PATIENCE)
    with pytest.raises(BrokenPipeError):
        os.write(pipe[1], b"x")
    reader.finish(0.01)


def test_what_is_shown_waits_for_whoever_reads_it() -> None:
    """Also where that is a terminal, or a pipe, that somebody has made not to wait."""
    seen, shown = os.pipe()
    os.set_blocking(shown, False)
    outlet = outlets.Outlet(shown)
    pieces, found = [bytes([65 + number % 26]) * 50_000 for number in range(100)], bytearray()

    def read() -> None:
        while piece := os.read(seen, 4096):
            found.extend(piece)

    reading = threading.Thread(target=read)
    reading.start()
    for piece in pieces:
        outlet.put(piece)
        outlet.wait()
    outlet.close(time.monotonic() + PATIENCE)
    reading.join(PATIENCE)
    os.close(seen)
    assert found == b"".join(pieces)


def test_what_was_not_shown_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, shown = os.pipe()
    fcntl.fcntl(shown, 1031, 4096)  # F_SETPIPE_SZ
    outlet = outlets.Outlet(shown)
    outlet.put(b"x" * (ROOM + 5))
    outlet.put(b"lost")
    assert len(os.read(seen, 1)) == 1
    with os.fdopen(seen, "rb") as rest:
        assert len(rest.read(ROOM + 4)) == ROOM + 4
        while outlet._size:
            pass
        outlet.put(b"more")
        outlet.close(time.monotonic() + PATIENCE)
        assert rest.read() == b"\n(4 bytes are missing here: nobody read them in time)\nmore"


def test_an_output_that_a_worker_has_not_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be anything's by now."""
    monkeypatch.setattr(sys, "__stdout__", None)
    found = outlets.outlets()
    for outlet in found.values():
        outlet.close(time.monotonic() + PATIENCE)
    assert "stdout" not in found
    kept = outlets.duplicate("stdout")
    assert os.path.samestat(os.fstat(kept), os.stat(os.devnull))
    os.close(kept)


def test_a_thread_of_a_body_that_is_over_prints_around_the_next_one(pipe: tuple[int, int]) -> None:
    seen, saved = os.pipe()
    stream = _Piped(pipe[1], saved)
    token = CURRENT.set(SimpleNamespace(notes=SILENCE))  # type: ignore[arg-type]
    print("late", file=stream)
    CURRENT.reset(token)
    print("in time", file=stream)
    assert os.read(pipe[0], 100) == b"in time\n"
    assert os.read(seen, 100) == b"late\n"
    for end in (seen, saved, pipe[0]):
        os.close(end)


def test_an_error_that_nobody_catches_is_written(tmp_path: Path) -> None:
    code = (
        "import os; from lakeshore.runners.processes.descriptors import print_through\n"
        "print_through({'stdout': os.dup(1), 'stderr': os.dup(2)})\n"
        "raise ValueError('the real one')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ValueError: the real one" in done.stderr


@pytest.mark.anyio
async def test_a_pool_ends_once_all_is_shown() -> None:
    seen, shown = os.pipe()
    owner: Any = None
    pool = Pool(owner, Limits(), "nothing", owner, lambda why: None)
    pool._tee["stdout"] = outlets.Outlet(shown)
    pool._tee["stdout"].put(b"x" * 500_000)
    found: list[int] = []

    def read() -> None:
        with os.fdopen(seen, "rb") as file:
            found.append(len(file.read()))

    reading = threading.Thread(target=read)
    reading.start()
    await pool.aclose()
    reading.join(PATIENCE)
    assert found == [500_000]
