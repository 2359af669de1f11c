"""`lakeshore jobs`."""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli import NO_SUCH, Shell, q, sh
from planes import PATIENCE, working

import lakeshore as dls

__all__ = ["q", "sh"]  # fixtures


class Gate:
    """Where a body says that it began, and waits for leave to go on."""

    began, go = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.began, Gate.go = threading.Event(), threading.Event()


@dls.udf
def held() -> str:
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    return "done"


@dls.udf
def double(x: int) -> int:
    return 2 * x


@dls.udf
def fails() -> None:
    raise LookupError("nothing\nthere")


@dls.udf
def counts(n: int) -> Iterator[int]:
    yield from range(n)
    if n > 3:
        raise LookupError("too far")


def test_list_is_newest_first_with_limit_and_offset(sh: Shell, q: dls.Dispatch) -> None:
    ids = [double.submit(x) for x in range(60)][::-1]
    assert [job["id"] for job in sh.done("jobs list --json").json] == ids[:50]
    assert [job["id"] for job in sh.done("jobs list --limit 20 --offset 20 --json").json] == ids[20:40]
    assert [job["id"] for job in sh.done("jobs list --limit 200 --json").json] == ids
    assert sh.done("jobs list --offset 60 --json").json == []
    head, *rows = sh.done("jobs list --limit 2").rows
    assert head[:5] == ["ID", "STATE", "QUEUE", "FUNCTION", "WORKER"]
    assert [row[:3] for row in rows] == [[id, "queued", "default"] for id in ids[:2]]


def test_list_filters(sh: Shell, q: dls.Dispatch) -> None:
    q.queues.add("other")
    done, failed = double.submit(1), fails.submit()
    with working(q, name="w", queues=["default"], drain=True):
        with pytest.raises(dls.InvocationFailed):
            q.result(failed, timeout=PATIENCE)
        q.result(done, timeout=PATIENCE)
    waits, killed = double.submit(2), dls.udf(double.fn, queue="other").submit(3)
    q.kill(killed)

    def listed(flags: str) -> set[str]:
        return {job["id"] for job in sh.done(f"jobs list {flags} --json").json}

    assert listed("--state queued") == {waits}
    assert listed("--state queued --state killed") == {waits, killed}
    assert listed("--state succeeded --state failed") == {done, failed}
    assert listed("--state running --state timeout") == set()
    assert listed("--queue other") == {killed}
    assert listed(f"--queue {q.queues.show('other').id} --state queued") == set()
    worker = sh.done("workers list --ended --json").json[0]
    assert listed(f"--worker {worker['id']}") == {done, failed}
    assert listed("--worker w --state failed") == {failed}
    assert sh.refused("jobs list --queue nope").startswith("404 NotFound: ")
    fields = {"id", "queue", "namespace", "state", "worker", "workerPid", "function", "key", "priority"}
    fields |= {"attempt", "submittedAt", "startedAt", "endedAt", "error", "reason", "parent", "retryOf"}
    assert fields | {"progress"} <= sh.done("jobs list --json").json[0].keys()
    assert "attempts" not in sh.done("jobs list --json").json[0]


def test_show_has_every_attempt(sh: Shell, q: dls.Dispatch) -> None:
    failed = fails.submit(_key="k")
    dls.run_worker(q, drain=True)
    found = sh.done(f"jobs show {failed} --json").json
    assert (found["state"], found["key"], found["attempt"]) == ("failed", "k", 1)
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["failed"]
    lines = sh.done(f"jobs show {failed}").out.splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert (shown["state"], shown["error"]) == ("failed", "builtins.LookupError: nothing there")
    assert lines[lines.index("") + 1].split()[0] == "ATTEMPT"
    assert "failed" in lines[-1]


def test_kill(sh: Shell, q: dls.Dispatch) -> None:
    job = double.submit(1)
    assert sh.done(f"jobs kill {job}").out == f"job {job} killed\n"
    assert sh.done(f"jobs kill {job} --json").json["state"] == "killed"  # again is no error
    running, ended = held.submit(), double.submit(2)
    with working(q):
        assert Gate.began.wait(PATIENCE)
        line = sh.refused(f"jobs kill {running}")
        assert line.startswith("409 Conflict: ")
        assert running in line
        Gate.go.set()
        q.result(running, timeout=PATIENCE)
        q.result(ended, timeout=PATIENCE)
    assert sh.refused(f"jobs kill {ended}").startswith("409 Conflict: ")


def test_kill_of_a_running_one_where_asked(sh: Shell, q: dls.Dispatch) -> None:
    @dls.udf
    async def forever() -> None:
        Gate.began.set()
        import anyio

        await anyio.sleep_forever()

    running = forever.submit()
    with working(q):
        assert Gate.began.wait(PATIENCE)
        sh.done(f"jobs kill {running} --running")
    assert q.get(running).state == "killed"


def test_bulk_cancel_touches_only_what_is_queued(sh: Shell, q: dls.Dispatch) -> None:
    q.queues.add("other")
    running = held.submit()
    with working(q):
        assert Gate.began.wait(PATIENCE)
        q.queues.pause("default")
        q.queues.pause("other")
        queued = [double.submit(x) for x in range(3)]
        elsewhere = dls.udf(double.fn, queue="other").submit(1)
        assert sh.done("jobs bulk-cancel --queue other").out == "1 cancelled\n"
        assert q.get(elsewhere).state == "killed"
        assert sh.done("jobs bulk-cancel --json").json == {"cancelled": 3}
        assert {q.get(job).state for job in queued} == {"killed"}
        assert q.get(running).state == "running"
        assert sh.done("jobs bulk-cancel").out == "0 cancelled\n"
        Gate.go.set()
    assert sh.refused("jobs bulk-cancel --queue nope").startswith("404 NotFound: ")


def test_result(sh: Shell, q: dls.Dispatch) -> None:
    done, failed, killed = double.submit(21), fails.submit(), double.submit(1)
    q.kill(killed)
    assert sh.refused(f"jobs result {done} --no-wait").startswith("408 Timeout: ")
    assert sh.refused(f"jobs result {done} --timeout 0.01").startswith("408 Timeout: ")
    dls.run_worker(q, drain=True)
    assert sh.done(f"jobs result {done}").out == "42\n"
    assert sh.done(f"jobs result {done} --no-wait --json").json == 42
    assert sh.refused(f"jobs result {failed}") == "InvocationFailed: builtins.LookupError: nothing there"
    assert sh.refused(f"jobs result {killed} --json").startswith("InvocationKilled: ")


def test_result_waits(sh: Shell, q: dls.Dispatch) -> None:
    job = held.submit()
    threading.Thread(target=lambda: Gate.began.wait(PATIENCE) and Gate.go.set(), daemon=True).start()
    with working(q):
        assert sh.done(f"jobs result {job} --timeout {PATIENCE}").out == "done\n"


def test_stream_follows(sh: Shell, q: dls.Dispatch) -> None:
    job, breaks = counts.submit(3), counts.submit(4)
    dls.run_worker(q, drain=True)
    assert sh.done(f"jobs stream {job}").out == "0\n1\n2\n"
    lines = [json.loads(line) for line in sh.done(f"jobs stream {job} --since 1 --json").out.splitlines()]
    assert [(line["seq"], line["value"], line["attempt"]) for line in lines] == [(1, 1, 1), (2, 2, 1)]
    found = sh(f"jobs stream {breaks} --since 2")
    assert (found.status, found.out) == (1, "2\n3\n")
    assert found.err == "InvocationFailed: builtins.LookupError: too far\n"
    assert sh.refused(f"jobs stream {job} --since 9").startswith("Gap: ")


def test_stream_says_where_an_attempt_begins_anew(sh: Shell, q: dls.Dispatch) -> None:
    @dls.udf(retries=1, retry_delay=0.001)
    def breaks_once() -> Iterator[int]:
        yield 1
        if not Gate.began.is_set():
            Gate.began.set()
            raise LookupError("once")
        yield 2

    job = breaks_once.submit()
    dls.run_worker(q, once=True)
    found = sh(f"jobs stream {job}")
    assert (found.status, found.out) == (0, "1\n1\n2\n")
    assert found.err == "attempt 2 began anew: what follows is not a continuation\n"


def test_retry(sh: Shell, q: dls.Dispatch) -> None:
    job = double.submit(4)
    assert sh.refused(f"jobs retry {job}").startswith("409 Conflict: ")
    q.kill(job)
    new = sh.done(f"jobs retry {job}").out.strip()
    assert q.get(new).retry_of == job
    other = sh.done(f"jobs retry {job} --json").json["id"]
    assert other not in (job, new)


def test_why(sh: Shell, q: dls.Dispatch) -> None:
    job = double.submit(4)
    sentences = sh.done(f"jobs why {job} --json").json
    assert sentences == q.jobs.why(job)
    assert sh.done(f"jobs why {job}").out.splitlines() == sentences


def test_prune(sh: Shell, q: dls.Dispatch) -> None:
    for x in range(3):
        q.kill(double.submit(x))
    assert sh.done("jobs prune --json").json == {"pruned": 0}
    assert sh.done("jobs prune --older-than 0").out == "3 deleted\n"
    assert sh.done("jobs list --json").json == []


@pytest.mark.parametrize("verb", ["show", "kill", "result", "stream", "retry", "why"])
@pytest.mark.parametrize("id", [NO_SUCH, "nope"])
def test_a_job_that_does_not_exist(sh: Shell, verb: str, id: str) -> None:
    assert sh.refused(f"jobs {verb} {id}").startswith("404 NotFound: ")


def test_submit_of_what_only_workers_can_import(
    sh: Shell, q: dls.Dispatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sh("jobs submit cli_far_away:double --arg x=21")
    assert (found.status, found.out.count("\n"), found.err.count("\n")) == (0, 1, 1)
    assert "cli_far_away can't be imported here" in found.err
    job = found.out.strip()
    assert (q.get(job).state, q.get(job).function) == ("queued", "cli_far_away.double")
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / "cli_far_away.py").write_text(
        "import lakeshore as dls\n\n@dls.udf\ndef double(x, *, times=2):\n    return times * x\n"
    )
    monkeypatch.syspath_prepend(folder)
    dls.run_worker(q, drain=True)
    assert q.result(job) == 42


NEAR = """
import lakeshore as dls

@dls.udf(queue="near", retries=2)
def show(a, b="-"):
    return [a, b]

def plain(a):
    return a

class Holds:
    @dls.udf
    def inner():
        return "inner"
"""


def test_submit_of_what_can_be_imported_is_checked(
    sh: Shell, q: dls.Dispatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cli_near.py").write_text(NEAR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    for name in ("near", "eval"):
        q.queues.add(name, kind="priority")
    assert "missing a required argument: 'a'" in sh.wrong("jobs submit cli_near:show")
    assert "unexpected keyword argument 'c'" in sh.wrong("jobs submit cli_near:show --arg a=1 --arg c=2")
    assert "has no nothing" in sh.wrong("jobs submit cli_near:nothing")
    options = "--queue eval --key k --priority 2.5 --timeout 9"
    job = sh.done(f"jobs submit cli_near:show --arg a=[1,null] --arg b=x=y {options} --json").json["id"]
    found = q.get(job)
    assert (found.queue, found.key, found.priority) == ("eval", "k", 2.5)
    assert sh.done(f"jobs submit cli_near:show --arg a=[1,null] --arg b=x=y {options}").out.strip() == job
    late = sh.done("jobs submit cli_near:show --arg a=-1 --delay 1000").out.strip()
    inner = sh.done("jobs submit cli_near:Holds.inner").out.strip()
    plain = sh("jobs submit cli_near:plain --arg a=1")
    assert plain.err == "cli_near:plain is not a @udf: only a worker that trusts cli_near will run it\n"
    assert q.get(late).queue == "near"
    assert dls.run_worker(q, drain=True) == 2
    assert q.result(job) == [[1, None], "x=y"]
    assert q.result(inner) == "inner"
    assert (q.get(late).state, q.get(plain.out.strip()).state) == ("queued", "queued")


@pytest.mark.parametrize(
    "words",
    [
        *("nothing", "a:", ":b", "a.b", "a:b:c", "a b:c", "1:b"),
        *("a:b --arg x", "a:b --arg =1", "a:b --arg 1=1", "a:b --arg _key=1", "a:b --arg x=1 --arg x=2"),
        *("a:b --delay -1", "a:b --delay nan", "a:b --timeout 0", "a:b --priority inf", "a:b --queue A"),
    ],
)
def test_submit_of_nonsense(sh: Shell, words: str) -> None:
    sh.wrong(f"jobs submit {words}")


def test_arguments_are_json_where_they_parse() -> None:
    from lakeshore.cli.submitting import arguments

    given = [
        "a=1",
        "b=1.5",
        "c=true",
        "d=null",
        'e="x"',
        "f=x",
        "g=",
        'h={"y": [1]}',
        "i=01",
        "j=-2",
        "k=NaN",
    ]
    found: dict[str, Any] = {"a": 1, "b": 1.5, "c": True, "d": None, "e": "x", "f": "x", "g": ""}
    assert arguments(given) == found | {"h": {"y": [1]}, "i": "01", "j": -2, "k": "NaN"}
