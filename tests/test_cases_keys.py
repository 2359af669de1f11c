"""One key at the same moment in several processes, over TCP and links that are cut; and again afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import key_crowd
import pytest
import shared_path
from heads import ServedHead, served
from planes import PATIENCE, working
from through import Through, through

import lakeshore as dls

LONG = "LAKESHORE_LONG" in os.environ


@pytest.fixture
def head(home: Path, tmp_path: Path, backend: Any) -> Iterator[ServedHead]:
    with served(tmp_path / "plane.db", backend) as running:
        yield running


@pytest.fixture
def q(head: ServedHead, backend: Any) -> Iterator[dls.Dispatch]:
    with dls.Dispatch(head.url, backend=backend) as dispatch:
        yield dispatch


PROCESSES, TASKS, ROUNDS = 4, 16, 200 if LONG else 8


class Crowd:
    """Tasks of several processes, each behind a proxy of its own."""

    def __init__(self, head: ServedHead, backend: str, stack: ExitStack) -> None:
        self.ways: list[Through] = [stack.enter_context(through(head.url)) for _ in range(PROCESSES)]
        script = Path(key_crowd.__file__)
        self._processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(script), way.url, backend, str(TASKS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for way in self.ways
        ]
        stack.callback(self._end)
        for process in self._processes:
            assert self._line(process) == "ready"

    def begin(self, log: Path, number: int) -> None:
        """All submit."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(json.dumps([str(log), number]) + "\n")
            process.stdin.flush()

    def ids(self) -> Counter[str]:
        """What they were given."""
        found: Counter[str] = Counter()
        for process in self._processes:
            found.update(json.loads(self._line(process)))
        return found

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def _end(self) -> None:
        for process in self._processes:
            process.kill()


def test_one_key_at_the_same_moment_from_four_processes(
    head: ServedHead, q: dls.Dispatch, backend: Any, tmp_path: Path
) -> None:
    log = tmp_path / "runs"
    q.queues.add("narrow", max_depth=1)
    with ExitStack() as stack:
        crowd = Crowd(head, backend, stack)
        for number in range(ROUNDS):
            q.queues.pause("narrow")  # so that it is full with the one
            if number % 3 == 1:  # asked, and cut before the answer comes
                for way in crowd.ways:
                    way.swallow("down")
            crowd.begin(log, number)
            if number % 3 == 1:
                while q.queues.show("narrow").queued == 0:
                    pass
                for way in crowd.ways:
                    way.cut()
                    way.resume()
            elif number % 3 == 2:  # at any moment
                for way in crowd.ways:
                    way.cut()
            ids = crowd.ids()
            assert list(ids.values()) == [PROCESSES * TASKS]
            (inv,) = ids
            with working(q, queues=("narrow",)):
                q.queues.resume("narrow")
                assert q.result(inv, timeout=PATIENCE) == number
            crowd.begin(log, number)  # once more, as it has ended
            assert crowd.ids() == ids
    assert sorted(map(int, log.read_text().split())) == list(range(ROUNDS))
    assert q.queues.show("narrow").queued == 0


def test_the_same_key_again_in_every_state(q: dls.Dispatch, backend: Any, tmp_path: Path) -> None:
    gate = tmp_path / "one.gate"
    os.mkfifo(gate)

    def again(inv: str, *args: Any, body: Any = shared_path.meet) -> None:
        assert q.submit(body, *args, _key="k") == inv
        with pytest.raises(dls.KeyConflict, match=inv):
            q.submit(body, "other", "arguments", _key="k", _strict_key=True)

    first = str(tmp_path), "one"
    inv = q.submit(shared_path.meet, *first, _key="k")
    again(inv, *first)
    with working(q):
        while not (tmp_path / "one.began").exists():
            os.sched_yield()
        again(inv, *first)
        gate.write_text("done")
        assert q.result(inv) == "done"
    again(inv, *first)
    new = q.retry(inv)
    q.kill(new)
    again(new, *first)  # it took the key over, and has it still
    q.queues.add("other")
    other = dls.udf(shared_path.meet.fn, queue="other").submit(*first, _key="k", _dispatch=q)
    assert other not in (inv, new)  # keys are of their queue
    assert len(q.jobs.list()) == 3
