"""Bodies in processes of their own: what they give, and how they end."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import process_jobs as jobs
import pytest
from daemons import wait_gone
from planes import PATIENCE
from processes import processes

import lakeshore as dls


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def q(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dls.Dispatch]:
    """A plane in memory, or in a file, and two slots that work for it."""
    file = str(tmp_path_factory.mktemp("process") / "plane.db")
    address = ":memory:" if request.param == "asyncio" else file
    with dls.Dispatch(address, backend=request.param) as q, processes(q, 2):
        yield q


def once(q: dls.Dispatch) -> None:
    """Where the loop makes no difference."""
    if q.backend == "trio":
        pytest.skip("the loop has no part in it")


def result(q: dls.Dispatch, fn: Any, *args: object, **options: Any) -> Any:
    return q.result(q.submit(fn, *args, **options), timeout=PATIENCE)


def failure(q: dls.Dispatch, fn: Any, *args: object) -> tuple[str, str]:
    """How a body failed."""
    with pytest.raises(dls.InvocationFailed) as found:
        result(q, fn, *args)
    return found.value.type, found.value.message


def test_the_four_kinds(q: dls.Dispatch) -> None:
    assert result(q, jobs.double, 21) == 42
    pids = {result(q, jobs.pid), result(q, jobs.apid)}
    assert os.getpid() not in pids
    for body in (jobs.gen, jobs.agen):
        inv = q.submit(body, 3000)  # more than may be ahead of the store
        assert [frame.value for frame in q.stream(inv)] == list(range(3000))
    assert q.result(inv) is None
    with dls.scope("here"):
        inv = q.submit(jobs.about)
    assert q.result(inv, timeout=PATIENCE) == (inv, 1, "default", "here", os.getcwd())


def test_functions_without_a_name_travel_by_value(q: dls.Dispatch) -> None:
    there = 40
    assert result(q, lambda x: there + x, 2) == 42
    module = ModuleType("made_by_hand")  # which nobody can import
    sys.modules[module.__name__] = module
    exec("import lakeshore\nsome = 1\n@lakeshore.udf\ndef body(x): return x + some", module.__dict__)
    assert result(q, module.body, 41) == 42
    del sys.modules[module.__name__]
    once(q)  # in a file it would have been pickled by the submit
    lock = threading.Lock()
    kind, message = failure(q, lambda: lock.locked())
    assert (kind, "can't be stored with its plane" in message) == ("builtins.TypeError", True)


def test_it_fails_as_in_place(q: dls.Dispatch) -> None:
    kind, message = failure(q, jobs.lock)
    assert kind == "builtins.TypeError"
    assert "the result" in message
    assert failure(q, jobs.double, None)[0] == "builtins.TypeError"


@pytest.mark.parametrize(
    ("body", "args", "says"),
    [
        (jobs.leave, (3,), "the process of the body ended with exit code 3"),
        (jobs.segfault, (), "the process of the body was killed by SIGSEGV (segmentation fault)"),
        (jobs.closes, (), "the body closed the descriptors by which its process is minded"),
    ],
)
def test_a_crash_is_the_bodys_own(
    q: dls.Dispatch, body: Any, args: tuple[Any, ...], says: str, caplog: pytest.LogCaptureFixture
) -> None:
    once(q)
    assert failure(q, body, *args) == ("lakeshore.ProcessDied", says)
    assert "ended before it began" not in caplog.text  # it would have run twice


@pytest.mark.parametrize(
    ("number", "body"),
    [
        (signal.SIGKILL, jobs.sees_it),
        (signal.SIGTERM, jobs.sees_it),
        (signal.SIGINT, jobs.sees_it),
        (signal.SIGINT, jobs.waits),
    ],
)
def test_a_signal_from_outside_kills(q: dls.Dispatch, number: signal.Signals, body: Any) -> None:
    inv = q.submit(body)
    pid = next(iter(q.stream(inv))).value
    assert q.get(inv).worker_pid == pid
    os.kill(pid, number)
    with pytest.raises(dls.InvocationKilled):
        q.result(inv, timeout=PATIENCE)
    shown = q.get(inv)
    assert shown.reason == f"its process {pid} was ended by {number.name} from outside"
    assert shown.attempts[0].worker_pid == pid


def test_a_crash_is_retried_where_that_is_wanted(q: dls.Dispatch) -> None:
    assert result(q, jobs.leaves_once) == 2
    once(q)
    for body in (jobs.leaves_for_good, jobs.leaves_with_memory):
        inv = q.submit(body)
        with pytest.raises(dls.InvocationFailed, match="exit code 1"):
            q.result(inv, timeout=PATIENCE)
        assert len(q.get(inv).attempts) == 1


def test_what_ignores_its_stop_is_made_to_end(q: dls.Dispatch) -> None:
    inv = q.submit(jobs.stubborn, _timeout=0.5)
    pids = next(iter(q.stream(inv))).value
    with pytest.raises(dls.InvocationTimeout, match=r"timeout of 0\.5 s"):
        q.result(inv, timeout=PATIENCE)
    for pid in pids:  # what it has started, too
        wait_gone(pid)


def test_a_kill_stops_what_listens_and_keeps_its_process(q: dls.Dispatch) -> None:
    inv = q.submit(jobs.waits)
    pid = next(iter(q.stream(inv))).value
    q.kill(inv, running=True)
    with pytest.raises(dls.InvocationKilled):
        q.result(inv, timeout=PATIENCE)
    while (found := result(q, jobs.cleaned))[0] != pid:  # there are two
        pass
    assert found[1] == 1
    inv = q.submit(jobs.sees_it)
    next(iter(q.stream(inv)))
    with pytest.raises(dls.Conflict, match="succeeded"):  # it has heard of it, and made the best of it
        q.kill(inv, running=True)


@pytest.mark.parametrize("how", ["thread", "stdout", "closed", "sys.stdout"])
def test_a_process_in_which_a_body_has_left_something_has_no_other_job(q: dls.Dispatch, how: str) -> None:
    once(q)
    inv = q.submit(jobs.leaves_behind, how)
    pid = q.result(inv, timeout=PATIENCE)
    for _ in range(3):
        other = q.submit(jobs.says_pid)
        assert q.result(other, timeout=PATIENCE) != pid
        assert [line.text for line in q.logs(other)] == ["pid"]
    wait_gone(pid)


def test_threads_of_loops_are_no_leftovers(q: dls.Dispatch) -> None:
    pids = {result(q, jobs.uses_threads) for _ in range(6)}
    assert len(pids) <= 2  # there are two processes


def test_an_idle_process_that_dies_is_replaced(q: dls.Dispatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lakeshore"):
        pid = result(q, jobs.pid)
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)
        assert result(q, jobs.double, 2) == 4
        while "another takes" not in caplog.text:
            assert result(q, jobs.pid) != pid
    assert f"process of bodies, {pid}, was killed by SIGKILL" in caplog.text or "before it" in caplog.text


def test_a_body_that_prints_a_lot(q: dls.Dispatch) -> None:
    assert result(q, jobs.prints, 1 << 24) == 1 << 24


def test_two_at_once(q: dls.Dispatch, tmp_path: Any) -> None:
    folder = str(tmp_path)
    invs = [q.submit(jobs.meets, folder, "a", "b"), q.submit(jobs.meets, folder, "b", "a")]
    assert len({q.result(inv, timeout=PATIENCE) for inv in invs}) == 2


def test_bodies_submit_to_the_plane_they_came_from(q: dls.Dispatch) -> None:
    for body in (jobs.submits, jobs.asubmits):
        inv = q.submit(body, 4)
        child = q.result(inv, timeout=PATIENCE)
        assert q.result(child, timeout=PATIENCE) == 8
        assert q.get(child).parent == inv


def test_a_body_may_name_its_runner(q: dls.Dispatch) -> None:
    assert result(q, jobs.inside) == os.getpid()
    assert result(q, jobs.apart) != os.getpid()
