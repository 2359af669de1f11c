"""The store's lock, against real processes."""

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lakeshore.core.errors import StoreError, StoreLocked
from lakeshore.store.lock import StoreLock, boot_id, read_holder

HOLD = """
import sys
from lakeshore.store.lock import StoreLock
lock = StoreLock(sys.argv[1])
lock.acquire(address="unix:///x")
print("held", flush=True)
sys.stdin.read()
lock.release()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its input ends."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    assert child.stdout
    assert child.stdout.readline() == "held\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.communicate(timeout=60)


def test_the_holder_is_named_to_a_second_process(tmp_path: Path) -> None:
    path = tmp_path / "db"
    child = hold(path)
    try:
        with pytest.raises(
            StoreLocked, match=rf"process {child.pid} on this machine .*end it first"
        ) as caught:
            StoreLock(path).acquire()
        assert caught.value.pid == child.pid
        assert str(path) in str(caught.value)
        said = read_holder(Path(f"{path}.lock"))
        assert said["pid"] == child.pid
        assert said["boot"] == boot_id()
        assert said["address"] == "unix:///x"
        assert {"host", "started", "version"} <= said.keys()
    finally:
        end(child)
    with StoreLock(path) as lock:  # released, and the file is still there
        assert lock.held


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    child = hold(tmp_path / "db")
    child.send_signal(signal.SIGKILL)
    end(child)
    with StoreLock(tmp_path / "db") as lock:
        assert read_holder(lock.path)["pid"] == os.getpid()


def test_once_in_one_process_too(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "db") as lock:
        with pytest.raises(StoreLocked, match=rf"this process \(pid {os.getpid()}\): close the other plane"):
            StoreLock(tmp_path / "db").acquire()
        with pytest.raises(StoreLocked, match="release it first"):
            lock.acquire()
    lock.release()
    assert not lock.held
    assert (tmp_path / "db.lock").read_text() == ""


def test_a_holder_elsewhere_or_unknown_is_named_as_such(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "db") as lock:
        lock.describe(host="elsewhere", pid=7)
        with pytest.raises(StoreLocked, match=r"process 7 on the machine elsewhere: work with it there"):
            StoreLock(tmp_path / "db").acquire()
        lock.path.write_text("[]")
        with pytest.raises(StoreLocked, match="did not say who") as caught:
            StoreLock(tmp_path / "db").acquire()
        assert caught.value.pid is None


def test_the_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    for umask in (0, 0o777):
        old = os.umask(umask)
        try:
            lock = StoreLock(tmp_path / f"new{umask}" / "db")
            if umask:
                (tmp_path / f"new{umask}").mkdir()
                (tmp_path / f"new{umask}").chmod(0o700)
            lock.acquire()
        finally:
            os.umask(old)
        assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(lock.path.parent.stat().st_mode) == 0o700
        lock.release()


def test_it_is_not_inherited(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "db") as lock:
        flags = [
            fcntl.fcntl(int(fd), fcntl.F_GETFD)
            for fd in os.listdir("/proc/self/fd")
            if os.path.realpath(f"/proc/self/fd/{fd}") == str(lock.path)
        ]
        assert flags == [fcntl.FD_CLOEXEC]


FORK = """
import os, sys
from lakeshore.store.lock import StoreLock
lock = StoreLock(sys.argv[1])
lock.acquire()
r, w = os.pipe()
child = os.fork()
if not child:
    os.close(w)
    assert not lock.held
    lock.release()  # must not let go of the parent's
    os.read(r, 1)
    os._exit(0)
try:
    StoreLock(sys.argv[1]).acquire()
except Exception as exc:
    print(type(exc).__name__, flush=True)
lock.release()
StoreLock(sys.argv[1]).acquire()  # though the child lives on
print("again", flush=True)
os.write(w, b"x")
os.waitpid(child, 0)
"""


def test_a_forked_child_has_no_part_in_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path / "db")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        check=False,
    )
    assert (done.stdout, done.stderr) == ("StoreLocked\nagain\n", "")


def test_release_frees_it_though_another_descriptor_is_open(tmp_path: Path) -> None:
    with StoreLock(tmp_path / "db") as lock:
        copy = os.dup(lock._file)  # as a child has it, from its fork until its hook has run
    try:
        with StoreLock(tmp_path / "db") as again:
            assert again.held
    finally:
        os.close(copy)


def test_what_can_not_be_locked_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "db.lock").mkdir()
    with pytest.raises(StoreError, match="is a folder: name a file in it"):
        StoreLock(tmp_path / "db").acquire()
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="name another path"):
        StoreLock(tmp_path / "file" / "db").acquire()
    assert json.dumps(read_holder(tmp_path / "nothing")) == "{}"
