"""A path is an address: several processes, one plane, whoever hosts it."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import shared_path
from heads import served
from planes import working
from players import Cast, cast

import lakeshore as dls
from lakeshore.core import messages
from lakeshore.store.lock import StoreLock, read_holder


@pytest.fixture
def play() -> Iterator[Cast]:
    with cast() as players:
        yield players


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "plane.db"


def holder(path: Path) -> int:
    return read_holder(Path(f"{path}.lock"))["pid"]


def gate(folder: Path, name: str) -> Path:
    place = folder / f"{name}.gate"
    os.mkfifo(place)
    return place


def wait_for(place: Path) -> None:
    """Until a file is there; another process makes it."""
    while not place.exists():
        os.sched_yield()


def test_a_client_in_another_process(play: Cast, path: Path, backend: Any) -> None:
    play("open", path, backend).ready()
    play("worker", path, backend).ready()
    with dls.Dispatch(path, backend=backend) as q:
        assert holder(path) != os.getpid()
        inv = q.submit(shared_path.double, 21)
        assert q.result(inv) == 42
        assert q.get(inv).attempt == 1
        stream = q.stream(q.submit(shared_path.count, 3000))
        assert [frame.value for frame in stream] == list(range(3000))
        topic = q.topic("news")
        assert [topic.post(each) for each in "abc"] == [0, 1, 2]
        topic.close()
        assert [frame.value for frame in topic.stream()] == ["a", "b", "c"]
        assert [worker.pid for worker in q.workers.list()] == [q.get(inv).worker_pid]


def test_a_large_value_goes_both_ways(play: Cast, path: Path, backend: Any) -> None:
    play("open", path, backend).ready()
    with dls.Dispatch(path, backend=backend) as q:
        inv = q.submit(shared_path.same, b"x" * (15 << 20))
        dls.run_worker(q, once=True)
        assert q.result(inv) == b"x" * (15 << 20)
        with pytest.raises(dls.PayloadTooLarge, match="limit"):
            q.submit(shared_path.same, b"x" * (17 << 20))


def test_a_worker_takes_over_when_the_host_is_killed(play: Cast, path: Path, backend: Any) -> None:
    host = play("open", path, backend).ready()
    worker = play("worker", path, backend).ready()
    with dls.Dispatch(path, backend=backend) as q:
        ids = shared_path.double.submit_many(range(300), _dispatch=q)
        host.kill()
        assert [q.result(inv, timeout=30) for inv in ids] == [2 * number for number in range(300)]
        assert holder(path) in (worker.pid, os.getpid())
        outcomes = [[each.outcome for each in q.get(inv).attempts] for inv in ids]
        assert all(
            each[-1] == "succeeded" and {*each[:-1]} <= {"returned"} for each in outcomes
        )  # none is lost


def test_the_next_caller_takes_over_when_the_host_has_left(play: Cast, path: Path, backend: Any) -> None:
    host = play("open", path, backend).ready()
    with dls.Dispatch(path, backend=backend) as q:
        inv = q.submit(shared_path.double, 1)
        host.kill()
        assert q.get(inv).state == "queued"
        assert holder(path) == os.getpid()
        dls.run_worker(q, drain=True)
        assert q.result(inv) == 2


def test_a_body_goes_on_while_its_plane_moves(play: Cast, path: Path, tmp_path: Path, backend: Any) -> None:
    host = play("open", path, backend).ready()
    play("worker", path, backend).ready()
    opened = gate(tmp_path, "one")
    with dls.Dispatch(path, backend=backend) as q:
        inv = q.submit(shared_path.meet, str(tmp_path), "one")
        wait_for(tmp_path / "one.began")
        results: list[Any] = []
        waiting = threading.Thread(target=lambda: results.append(q.result(inv, timeout=60)))
        waiting.start()
        host.kill()
        assert q.get(inv).state == "running"
        opened.write_text("go")
        waiting.join()
        assert results == ["go"]
        job = q.get(inv)
        assert (job.attempt, [each.outcome for each in job.attempts]) == (1, ["succeeded"])


def test_bodies_in_a_dead_host_die_with_it(play: Cast, path: Path, tmp_path: Path, backend: Any) -> None:
    worker = play("worker", path, backend).ready()  # it hosts the plane too
    with dls.Dispatch(path, backend=backend) as q:
        assert holder(path) == worker.pid
        first = gate(tmp_path, "one")
        inv = q.submit(shared_path.meet, str(tmp_path), "one")
        wait_for(tmp_path / "one.began")
        worker.kill()
        (tmp_path / "one.began").unlink()
        with working(q):
            wait_for(tmp_path / "one.began")
            first.write_text("again")
            assert q.result(inv, timeout=60) == "again"
        assert [each.outcome for each in q.get(inv).attempts] == ["lost", "succeeded"]


def test_a_stopped_host_is_named(
    play: Cast, path: Path, backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    host = play("open", path, backend).ready()
    host.signal(signal.SIGSTOP)
    with caplog.at_level(logging.WARNING, "lakeshore"):
        q = dls.Dispatch(path, backend=backend, connect_timeout=2.5)
        with pytest.raises(dls.LakeshoreError, match=f"process {host.pid}.*says nothing"):
            q.queues.ls()
        assert f"process {host.pid}" in caplog.text
        host.signal(signal.SIGCONT)
        assert [queue.name for queue in q.queues.ls()] == ["default"]
        q.close()


def test_a_deleted_lock_file_makes_no_second_host(play: Cast, path: Path, backend: Any) -> None:
    with dls.Dispatch(path, backend=backend) as q:
        inv = q.submit(shared_path.double, 1)
        os.unlink(f"{path}.lock")
        other = play("open", path, backend).ready()
        more = q.submit(shared_path.double, 2)  # it finds out, and goes on as a client
        assert q.status().pid == other.pid
        dls.run_worker(q, drain=True)
        assert [q.result(each) for each in (inv, more)] == [2, 4]


def test_a_copied_folder_is_a_plane_of_its_own(play: Cast, tmp_path: Path, backend: Any) -> None:
    (tmp_path / "one").mkdir()
    here, there = tmp_path / "one" / "plane.db", tmp_path / "two" / "plane.db"
    host = play("submit", here, backend, 3).ready()
    ids = host.lines()
    host.signal(signal.SIGSTOP)  # nothing is written while it is copied
    shutil.copytree(
        here.parent, there.parent, ignore=lambda folder, names: [n for n in names if n.endswith(".sock")]
    )
    host.signal(signal.SIGCONT)
    with dls.Dispatch(there, backend=backend) as q:
        assert q.status().pid == os.getpid()
        assert sorted(job.id for job in q.jobs.list()) == ids
        dls.run_worker(q, drain=True)
    with dls.Dispatch(here, backend=backend) as q:
        assert q.status().pid == host.pid
        assert {job.state for job in q.jobs.list()} == {"queued"}


def test_a_forked_child_does_not_hold_the_path(play: Cast, path: Path, backend: Any) -> None:
    q = dls.Dispatch(path, backend=backend)
    inv = q.submit(shared_path.double, 1)
    read, write = os.pipe()
    child = os.fork()
    if not child:  # it lives longer than its parent has the plane
        os.read(read, 1)
        os._exit(0)
    q.close()
    other = play("open", path, backend).ready()
    with dls.Dispatch(path, backend=backend) as q:
        assert q.status().pid == other.pid
        assert q.get(inv).state == "queued"
    os.write(write, b"x")
    os.waitpid(child, 0)
    os.close(read)
    os.close(write)


def test_a_forked_child_has_a_link_of_its_own(path: Path, backend: Any) -> None:
    with dls.Dispatch(path, backend=backend) as q:
        ids = [q.submit(shared_path.double, 1)]
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(write, q.submit(shared_path.double, 2).encode())
            finally:
                os._exit(0)
        ids.append(os.read(read, 100).decode())
        os.waitpid(child, 0)
        os.close(read)
        os.close(write)
        ids.append(q.submit(shared_path.double, 3))
        dls.run_worker(q, drain=True)
        assert [q.result(inv) for inv in ids] == [2, 4, 6]


def test_a_long_path(play: Cast, tmp_path: Path, backend: Any) -> None:
    folder = tmp_path
    while len(str(folder)) < 200:
        folder /= "a-folder-with-a-long-name"
    path = folder / "plane.db"
    host = play("open", path, backend).ready()
    with dls.Dispatch(path, backend=backend) as q:
        assert q.status().pid == host.pid
        address = read_holder(Path(f"{path}.lock"))["address"]
        place = Path(address.removeprefix("unix://"))
        assert len(str(place)) < 108
        assert place.stat().st_mode & 0o777 == 0o600
        assert place.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_kept_out(play: Cast, path: Path, backend: Any) -> None:
    host = play("open", path, backend).ready()
    for folder in (path.parent, *path.parent.parents):
        if len(folder.parts) > 2:
            folder.chmod(0o755)
    with dls.Dispatch(path, backend=backend) as q:
        assert q.status().pid == host.pid  # and all modules are there for a child that can't read them
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            for attempt in (lambda: dls.Dispatch(path, backend=backend).queues.ls(), lambda: knock(path)):
                try:
                    os.write(write, f"{attempt()}\n".encode())
                except Exception as error:
                    os.write(write, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as said:
        opened, knocked = said.read().splitlines()
    assert opened.startswith("StoreError: ")
    assert "permissions" in opened
    assert knocked.startswith("PermissionError: ")
    assert host.process.poll() is None


def knock(path: Path) -> None:
    """Connect to a plane's socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(f"{path}.sock")


def test_another_version_is_told_which_end_to_upgrade(
    play: Cast, path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    play("open", path, backend).ready()
    for protocol, end in ((0, "other end"), (messages.PROTOCOL + 1, "head")):
        monkeypatch.setattr("lakeshore.sdk.knocking.PROTOCOL", protocol)
        q = dls.Dispatch(path, backend=backend)
        with pytest.raises(dls.LakeshoreError, match=f"protocol {protocol}.*upgrade the {end}"):
            q.queues.ls()
        q.close()


def test_no_acknowledged_job_is_lost_or_doubled_by_takeovers(play: Cast, path: Path, backend: Any) -> None:
    ids: set[str] = set()
    play("worker", path, backend).ready()
    for number in range(6):
        submitter = play("submit", path, backend, 40, f"key-{number}").ready()
        for _ in range(20):
            ids.add(submitter.line())
        os.kill(holder(path), signal.SIGKILL)  # the worker at first, then whoever hosts it
        if number % 2 == 0:
            play("worker", path, backend).ready()
    with dls.Dispatch(path, backend=backend) as q:
        again = {
            shared_path.double.submit(n, _key=f"key-{k}-{n}", _dispatch=q)
            for k in range(6)
            for n in range(40)
        }
        assert ids <= again
        assert len(again) == 240
        dls.run_worker(q, drain=True)
        for inv in again:
            q.result(inv, timeout=60)
        assert {q.get(inv).state for inv in again} == {"succeeded"}


def test_a_served_store_is_left_to_its_head(
    path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKESHORE_HOME", str(path.parent / "home"))
    with served(path, backend) as head, dls.Dispatch(path, backend=backend) as q:
        inv = q.submit(shared_path.double, 1)  # through its socket, without a token
        head.stop()
        with (
            pytest.raises(dls.Unreachable, match=r"served by `lakeshore serve`, which does not run"),
            dls.Dispatch(f"{path.parent}/./{path.name}", backend=backend, connect_timeout=0) as other,
        ):
            other.queues.ls()
        with StoreLock(path):  # nobody else takes it, not even for a moment
            pass
        head.start()
        assert q.get(inv).state == "queued"
        assert q.status().listen == (head.url,)


def test_a_host_that_waits_learns_that_another_has_its_store(play: Cast, path: Path, backend: Any) -> None:
    with dls.Dispatch(path, backend=backend) as q:
        inv = q.submit(shared_path.double, 21)
        os.unlink(f"{path}.lock")
        play("worker", path, backend).ready()
        assert q.result(inv, timeout=30) == 42  # it commits nothing meanwhile


def test_many_that_open_a_path_at_the_same_moment(play: Cast, path: Path, backend: Any) -> None:
    players = [play("submit", path, backend, 3) for _ in range(5)]
    ids = [line for player in players for line in player.ready().lines()]
    with dls.Dispatch(path, backend=backend) as q:
        assert sorted(job.id for job in q.jobs.list()) == sorted(ids)
