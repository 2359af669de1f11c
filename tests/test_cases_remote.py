"""Stories of heads, programs and workers that lose each other, over TCP and on both loops."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import daemon_jobs
import pytest
import shared_path
from chaos import children
from daemons import Daemon, pipe
from heads import ServedHead, served
from planes import PATIENCE, elsewhere, working
from through import Through, beats, through

import lakeshore as dls
from lakeshore.core.framing import Decoder, encode
from lakeshore.core.messages import PROTOCOL, Knock, Welcome
from lakeshore.sdk import session
from lakeshore.testing.proxy import Way

BEAT = 0.2
LEASE = 1.0


@pytest.fixture
def head(home: Path, tmp_path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServedHead]:
    beats(monkeypatch, BEAT)
    with served(tmp_path / "plane.db", backend) as running:
        yield running


@pytest.fixture
def q(head: ServedHead, backend: Any) -> Iterator[dls.Dispatch]:
    with dls.Dispatch(head.url, backend=backend) as dispatch:
        yield dispatch


@pytest.fixture
def way(head: ServedHead) -> Iterator[Through]:
    with through(head.url) as proxy:
        yield proxy


# a link that swallows what it gets

WAYS: list[tuple[Way, ...]] = [("up",), ("down",)]


@pytest.mark.parametrize("ways", WAYS, ids=["up", "down"])
def test_a_link_that_swallows_one_direction_of_a_program(
    q: dls.Dispatch, way: Through, ways: tuple[Way, ...], backend: Any
) -> None:
    with dls.Dispatch(way.url, backend=backend) as far:
        done = far.submit(shared_path.double, 1)
        way.came()
        way.swallow(*ways)
        with (
            elsewhere(far.submit, shared_path.double, 2, _key="k") as submitting,
            elsewhere(far.result, done) as waiting,
            elsewhere(lambda: [frame.value for frame in far.stream(done)]) as reading,
        ):
            way.came(2)  # it noticed, more than once: nobody closes these links
            way.cut()  # no real one goes on with a hole in it
            way.resume()
            inv = submitting.result(PATIENCE)
            assert q.submit(shared_path.double, 2, _key="k") == inv
            assert dls.run_worker(q, drain=True) == 2
            assert (waiting.result(PATIENCE), reading.result(PATIENCE)) == (2, [])
    assert [job.id for job in q.jobs.list()] == [inv, done]


@pytest.mark.parametrize("ways", WAYS, ids=["up", "down"])
def test_a_link_that_swallows_one_direction_of_a_worker(
    q: dls.Dispatch, way: Through, ways: tuple[Way, ...], backend: Any, tmp_path: Path
) -> None:
    first, log = pipe(tmp_path, "first"), tmp_path / "starts"
    with dls.Dispatch(way.url, backend=backend) as far, working(far):
        inv = q.submit(daemon_jobs.gate, str(log), str(first))
        stream = iter(q.stream(inv))
        assert next(stream).value == os.getpid()
        way.came(3)  # the program, its worker, and what beats
        way.swallow(*ways)
        first.write_text("go")  # the end of it is swallowed, or its acknowledgement
        more = q.submit(shared_path.double, 5)
        way.came(2)
        way.cut()
        way.resume()
        assert (q.result(inv), q.result(more)) == (None, 10)
        assert [frame.value for frame in stream] == []
    for job in map(q.get, (inv, more)):
        outcomes = [attempt.outcome for attempt in job.attempts]
        assert (outcomes[-1], {*outcomes[:-1]} <= {"returned"}) == ("succeeded", True)
    assert log.read_text().count("\n") == 1


# a head that lets in and then says nothing


class Mute:
    """A head that answers each hello, and nothing else, not even whether it is there."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.came = threading.Semaphore(0)
        self._links = ExitStack()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                link = self._links.enter_context(self._server.accept()[0])
                decoder, heard = Decoder(), list[Any]()
                while not heard:
                    heard += decoder.feed(link.recv(65536))
                assert isinstance(heard[0], Knock)
                limits = (1 << 24, 100, 1 << 24, 100)
                link.sendall(
                    b"".join(encode([Welcome(PROTOCOL, "", "p", b"h", "x", "plane", False, 9.0, *limits)]))
                )
                self.came.release()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._links.close()


@pytest.fixture
def mute(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mute]:
    beats(monkeypatch, 0.05)
    head = Mute()
    yield head
    head.close()


def test_a_head_that_answers_the_hello_and_then_nothing(
    mute: Mute, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "OUTAGE", 0.5)
    q = dls.Dispatch(mute.url, backend=backend, token="lks_x", namespace="x")
    with elsewhere(q.result, "01K2Z7M3Q4W5E6R7T8Y9ZABCDE") as waiting:
        for ask in (lambda: q.submit(shared_path.double, 1), q.queues.ls, lambda: q.kill("0" * 26)):
            with pytest.raises(dls.OutcomeUnknown, match="may have been done or not"):
                ask()
        with pytest.raises(dls.OutcomeUnknown):
            q.queues.add("narrow")
        for _ in range(5):
            assert mute.came.acquire(timeout=PATIENCE)
        assert not waiting.done()
        q.close()
        with pytest.raises(dls.PlaneClosed):
            waiting.result(PATIENCE)


def test_a_worker_of_a_head_that_says_nothing_stops_when_told(mute: Mute, backend: Any) -> None:
    q = dls.Dispatch(mute.url, backend=backend, token="lks_x", namespace="x")
    stop = threading.Event()
    with elsewhere(dls.run_worker, q, stop=stop) as ran:
        for _ in range(4):
            assert mute.came.acquire(timeout=PATIENCE)
        stop.set()
        assert ran.result(PATIENCE) == 0
    q.close()


# tokens


def test_a_worker_whose_token_is_revoked(head: ServedHead, q: dls.Dispatch, backend: Any) -> None:
    made = q.tokens.create("work", name="works")
    with (
        dls.Dispatch(head.url, backend=backend, token=made.token) as far,
        elsewhere(dls.run_worker, far) as ran,
    ):
        assert q.result(q.submit(shared_path.double, 1)) == 2
        q.tokens.remove("works")
        with pytest.raises(dls.Unauthorized, match="removed"):
            ran.result(PATIENCE)
    inv = q.submit(shared_path.double, 2)
    assert q.get(inv).state == "queued"  # it is given nothing more


# a worker that is started again


def test_a_worker_restarted_under_the_same_host_name(
    home: Path, tmp_path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, log = pipe(tmp_path, "gate.1"), pipe(tmp_path, "gate.2"), tmp_path / "starts"
    with (
        served(tmp_path / "plane.db", backend, lease=LEASE) as head,
        dls.Dispatch(head.url, backend=backend) as q,
    ):
        inv = q.submit(daemon_jobs.gate, str(log), str(tmp_path / "gate"))
        stream = iter(q.stream(inv))
        with Daemon(home, head.url, "--backend", backend, "--name", "node7") as old:
            assert next(stream).attempt == 1
            (before,) = q.workers.list()
            for pid in (*children(old.pid), old.pid):
                os.kill(pid, signal.SIGKILL)
        with Daemon(home, head.url, "--backend", backend, "--name", "node7") as new:
            assert next(stream).attempt == 2  # which is not the old one's, whatever it is called
            (now,) = q.workers.list()
            assert now.name == before.name == "node7"
            assert now.id != before.id
            assert q.workers.show("node7").id == now.id
            assert q.workers.show(before.id).state == "ended"
            second.write_text("go")
            assert q.result(inv, timeout=PATIENCE) is None
            attempts = q.get(inv).attempts
            assert [(each.worker, each.outcome) for each in attempts] == [
                (before.id, "lost"),
                (now.id, "succeeded"),
            ]
            assert new.end() == 0
    assert log.read_text().count("\n") == 2
    first.unlink()
