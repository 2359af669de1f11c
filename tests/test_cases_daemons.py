"""Stories of failures, over TCP and real processes: workers that die, hang, sleep, and are shut down."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daemon_jobs as jobs
import pytest
from anyio.from_thread import start_blocking_portal
from daemons import PATIENCE, Daemon, pipe
from heads import ServedHead, served
from planes import elsewhere

import lakeshore as dls
from lakeshore.core.framing import Decoder, encode
from lakeshore.core.messages import PROTOCOL, Knock, Minding, Welcome
from lakeshore.sdk.credentials import found_machine_token, machine_token
from lakeshore.testing.proxy import Proxy, Way

LEASE = 1.0


@pytest.fixture
def head(home: Path, tmp_path: Path, backend: str) -> Iterator[ServedHead]:
    with served(tmp_path / "plane.db", backend, lease=LEASE) as head:
        yield head


@pytest.fixture
def q(head: ServedHead) -> Iterator[dls.Dispatch]:
    with dls.Dispatch(head.url) as q:
        yield q


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "starts"


def begun(q: dls.Dispatch, inv: str, attempt: int = 1) -> int:
    """The process of a body that yields it first, in its so manieth attempt."""
    return next(frame.value for frame in q.stream(inv) if frame.attempt == attempt)


def starts(log: Path) -> int:
    return len(log.read_text().splitlines())


def test_a_job_that_kills_its_worker_ends_after_three(
    q: dls.Dispatch, head: ServedHead, home: Path, backend: str, log: Path
) -> None:
    with (
        Daemon(home, head.url, "--backend", backend) as one,
        Daemon(home, head.url, "--backend", backend) as two,
    ):
        bad = jobs.die.submit(str(log))
        good = jobs.double.submit_many(range(20))
        with pytest.raises(dls.InvocationFailed, match=r"lost 3 times.*killed by signal 9") as failed:
            q.result(bad, timeout=PATIENCE)
        assert failed.value.type == "lakeshore.WorkerLost"
        assert [q.result(inv, timeout=PATIENCE) for inv in good] == [2 * x for x in range(20)]
        attempts = q.get(bad).attempts
        assert [attempt.outcome for attempt in attempts] == ["lost"] * 3
        assert len({attempt.worker for attempt in attempts}) == 3  # another process each time
        assert all("killed by signal 9" in str(attempt.reason) for attempt in attempts)
        assert all(attempt.started_at and attempt.ended_at for attempt in attempts)
        assert starts(log) == 3
        assert (one.end(), two.end()) == (0, 0), (one.said, two.said)


def test_bodies_that_block_everything_keep_their_lease(
    q: dls.Dispatch, head: ServedHead, home: Path, backend: str, log: Path
) -> None:
    with (
        Daemon(home, head.url, "--backend", backend, "--name", "holds", "--queue", "held"),
        Daemon(home, head.url, "--backend", backend, "--name", "blocks", "--queue", "blocked"),
        Daemon(home, head.url, "--name", "hungry", "--queue", "held", "--queue", "blocked", "--slots", 4),
    ):
        held, blocked = jobs.hold.submit(str(log), 3.5 * LEASE), jobs.block.submit(str(log), 3.5 * LEASE)
        assert q.result(held, timeout=PATIENCE) == "held"
        assert q.result(blocked, timeout=PATIENCE) == "blocked"
        assert starts(log) == 2
        assert [len(q.get(inv).attempts) for inv in (held, blocked)] == [1, 1]
        assert len(q.workers.list(ended=True)) == 3  # nobody was given up


def test_a_shutdown_drains_and_gives_back(
    q: dls.Dispatch, head: ServedHead, home: Path, backend: str, log: Path, tmp_path: Path
) -> None:
    soon = pipe(tmp_path, "soon")
    options = ["--backend", backend, "--queue", "default", "--queue", "third", "--slots", 2]
    with Daemon(home, head.url, *options, "--grace", 0.5) as daemon:
        ends, stays = jobs.gate.submit(str(log), str(soon)), jobs.waits.submit()
        begun(q, ends)
        begun(q, stays)
        waiting = jobs.double.submit_many(range(4))
        daemon.signal(signal.SIGTERM)
        daemon.told("nothing more is taken")
        soon.write_text("go")
        assert q.result(ends, timeout=PATIENCE) is None
        assert daemon.ended() == 0
        record = q.get(stays)
        assert (record.state, [attempt.outcome for attempt in record.attempts]) == ("queued", ["returned"])
        assert {q.get(inv).state for inv in waiting} == {"queued"}
        assert [worker.state for worker in q.workers.list(ended=True)] == ["ended"]
    with Daemon(home, head.url, *options, "--grace", 60) as daemon:
        begun(q, stays, 2)
        daemon.signal(signal.SIGINT)
        daemon.told("stopping on SIGINT")
        daemon.signal(signal.SIGINT)
        assert daemon.ended() == 0
        assert [attempt.outcome for attempt in q.get(stays).attempts] == ["returned"] * 2


def test_a_daemon_waits_for_its_head_and_outlives_it(
    home: Path, backend: str, tmp_path: Path, log: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        url = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    opened = pipe(tmp_path, "gate")
    with (
        Daemon(home, url, "--backend", backend) as daemon,
        elsewhere(dls.Dispatch(url, connect_timeout=PATIENCE).__enter__) as opening,
    ):
        daemon.told("trying again")
        assert found_machine_token() is None  # a head makes it, which has never run
        with (
            served(tmp_path / "plane.db", backend, lease=LEASE, url=url) as head,
            opening.result(PATIENCE) as q,
        ):
            inv = jobs.gate.submit(str(log), str(opened))
            begun(q, inv)
            head.restart()
            opened.write_text("go")
            assert q.result(inv, timeout=PATIENCE) is None
            assert (starts(log), len(q.get(inv).attempts)) == (1, 1)
            assert q.result(jobs.double.submit(4), timeout=PATIENCE) == 8
            assert daemon.end() == 0


def test_two_daemons_of_one_name_work_side_by_side(
    q: dls.Dispatch, head: ServedHead, home: Path, log: Path, tmp_path: Path
) -> None:
    gates = [pipe(tmp_path, f"gate{number}") for number in range(2)]
    with Daemon(home, head.url, "--name", "twin") as one, Daemon(home, head.url, "--name", "twin") as two:
        invs = [jobs.gate.submit(str(log), str(gate)) for gate in gates]
        assert len({begun(q, inv) for inv in invs}) == 2
        first, second = q.workers.list()
        assert first.name == second.name == "twin"
        with pytest.raises(dls.Conflict, match=f"{first.id}.*{second.id}|{second.id}.*{first.id}"):
            q.workers.drain("twin")
        for gate in gates:
            gate.write_text("go")
        for inv in invs:
            q.result(inv, timeout=PATIENCE)
        q.workers.drain(first.id)
        q.workers.drain(second.id)
        assert one.ended() == two.ended() == 0


def test_a_machine_that_slept_is_fenced(
    q: dls.Dispatch, head: ServedHead, home: Path, backend: str, log: Path, tmp_path: Path
) -> None:
    first, second = pipe(tmp_path, "gate.1"), pipe(tmp_path, "gate.2")
    inv = jobs.gate.submit(str(log), str(tmp_path / "gate"))
    with Daemon(home, head.url, "--backend", backend, "--name", "sleeper") as sleeper:
        child = begun(q, inv)
        asleep = q.workers.list()[0]
        with Daemon(home, head.url, "--backend", backend, "--name", "other") as other:
            for process in (sleeper.pid, child):
                os.kill(process, signal.SIGSTOP)
            frames = iter(q.stream(inv))
            next(frames)
            assert next(frames).attempt == 2  # somebody else has begun it
            with elsewhere(first.write_text, "go"):
                for process in (child, sleeper.pid):
                    os.kill(process, signal.SIGCONT)
            assert q.get(inv).state == "running"  # whatever the first body ended with
            second.write_text("go")
            assert q.result(inv, timeout=PATIENCE) is None
            attempts = q.get(inv).attempts
            assert [attempt.outcome for attempt in attempts] == ["lost", "succeeded"]
            assert starts(log) == 2
            q.workers.drain("other")
            assert other.ended() == 0
            assert q.result(jobs.pid.submit(), timeout=PATIENCE) == child  # it came back as itself
            assert q.workers.show(asleep.id).state == "ready"


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_link_that_swallows_one_direction(
    q: dls.Dispatch, head: ServedHead, home: Path, log: Path, tmp_path: Path, way: Way
) -> None:
    first, second = pipe(tmp_path, "gate.1"), pipe(tmp_path, "gate.2")
    inv = jobs.gate.submit(str(log), str(tmp_path / "gate"))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Proxy(head.url)) as proxy,
        Daemon(home, proxy.address, "--name", "muffled", LAKESHORE_TOKEN=machine_token()),
    ):
        child = begun(q, inv)
        with Daemon(home, head.url, "--name", "other") as other:
            portal.call(proxy.swallow, way)
            begun(q, inv, 2)  # once the lease is over, elsewhere
            portal.call(proxy.resume)
            first.write_text("go")
            second.write_text("go")
            assert q.result(inv, timeout=PATIENCE) is None
            assert [attempt.outcome for attempt in q.get(inv).attempts] == ["lost", "succeeded"]
            assert starts(log) == 2
            q.workers.drain("other")
            assert other.ended() == 0
        assert q.result(jobs.pid.submit(), timeout=PATIENCE) == child  # it is back


class Mute(threading.Thread):
    """A head that lets everybody in, and then says nothing."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        self.came = threading.Semaphore(0)
        self.links: list[socket.socket] = []

    def run(self) -> None:
        while True:
            try:
                link, _ = self.server.accept()
            except OSError:
                return
            self.links.append(link)
            threading.Thread(target=self._greet, args=(link,), daemon=True).start()

    def _greet(self, link: socket.socket) -> None:
        decoder, heard = Decoder(), list[Any]()
        while not heard:
            heard += decoder.feed(link.recv(65536))
        knock = heard[0]
        assert isinstance(knock, Knock)
        welcome = Welcome(PROTOCOL, "", "p", b"h", "default", "plane", False, 0.3, 1 << 24, 100, 1 << 24, 100)
        for frame in encode([welcome]):
            link.sendall(frame)
        while knock.purpose == "daemon":
            heard += decoder.feed(link.recv(65536))
            if any(isinstance(each, Minding) for each in heard):
                self.came.release()
                return


def test_a_head_that_falls_silent_is_dialled_again(home: Path) -> None:
    mute = Mute()
    mute.start()
    with Daemon(home, mute.url, LAKESHORE_TOKEN="lks_x") as daemon:
        for _ in range(3):
            assert mute.came.acquire(timeout=PATIENCE)
        assert daemon.process.poll() is None
    mute.server.close()
    for link in mute.links:
        link.close()
