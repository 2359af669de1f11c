"""Bad input: a named error whose sentence says what to do, and nothing that was accepted is lost."""

import inspect
import os
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from planes import PATIENCE, python, working

import lakeshore as dls
from lakeshore.sdk.choices import QueueChanges
from lakeshore.store.lock import StoreLock

UNKNOWN = "01JD2K7Q0000000000000000ZZ"


@dls.udf
def f(x: int = 1) -> int:
    return x


VERBS = {
    "result": lambda q, inv: q.result(inv),
    "result at once": lambda q, inv: q.result(inv, timeout=0),
    "get": lambda q, inv: q.get(inv),
    "stream": lambda q, inv: next(q.stream(inv)),
    "kill": lambda q, inv: q.kill(inv),
    "kill running": lambda q, inv: q.kill(inv, running=True),
    "retry": lambda q, inv: q.retry(inv),
    "why": lambda q, inv: q.jobs.why(inv),
    "show": lambda q, inv: q.jobs.show(inv),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_an_unknown_id_is_not_found_at_once(q: dls.Dispatch, verb: Any) -> None:
    kept = f.submit()
    with pytest.raises(dls.NotFound, match=r"(?s)check the id, the plane and the namespace") as missing:
        verb(q, UNKNOWN)
    assert missing.value.code == 404
    assert not isinstance(missing.value, dls.Expired)
    with pytest.raises(dls.NotFound, match="26-character ULID"):
        verb(q, "nightly")
    with pytest.raises(TypeError, match="pass what submit returned"):
        verb(q, 5)
    assert q.get(kept).state == "queued"


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_pruned_id_is_expired(q: dls.Dispatch, verb: Any) -> None:
    old, kept = f.submit(), f.submit()
    dls.run_worker(q, once=True)
    assert q.jobs.prune(0) == 1
    with pytest.raises(dls.Expired, match="retention"):
        verb(q, old)
    assert q.get(kept).state == "queued"


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_one_namespace_neither_reads_nor_kills_another_s_job(tmp_path: Path, backend: Any, verb: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as mine:
        queued, done = f.submit(1), f.submit(2)
        mine.queues.add("mine")
        with dls.Dispatch(path, namespace="theirs") as theirs:
            for inv in (queued, done):
                with pytest.raises(dls.NotFound):
                    verb(theirs, inv)
            assert theirs.jobs.list() == []
            assert [queue.name for queue in theirs.queues.ls()] == ["default"]
            assert dls.run_worker(theirs, once=True) == 0
            assert theirs.jobs.bulk_cancel() == 0
            assert theirs.jobs.prune(0) == 0
        assert dls.run_worker(mine, drain=True) == 2
        assert [mine.result(inv) for inv in (queued, done)] == [1, 2]
        with dls.Dispatch(path, namespace="theirs") as theirs, pytest.raises(dls.NotFound):
            verb(theirs, done)


@pytest.mark.parametrize("namespace", ["", "a\0b", "\ud800"])
def test_a_namespace_that_can_not_be(namespace: str) -> None:
    with pytest.raises(ValueError, match="namespace"):
        dls.Dispatch(":memory:", namespace=namespace)
    with pytest.raises(ValueError, match="namespace"):
        dls.AsyncDispatch(":memory:", namespace=namespace)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"backend": "curio"}, "asyncio or trio"),
        ({"sync": "maybe"}, "normal, or full"),
        ({"retention": -1}, "0 or more"),
        ({"retention": float("inf")}, "no infinity"),
        ({"retention": float("nan")}, "seconds"),
        ({"payload_limit": 0}, "bytes"),
        ({"memory_limit": 1.5}, "bytes"),
        ({"lease": 0}, "above 0"),
        ({"connect_timeout": float("nan")}, "finite"),
        ({"storage": "http://x"}, "http:// is no storage that is known"),
        ({"storage": "s3://key:secret@bucket"}, "without credentials"),
        ({"storage": ""}, "no storage: write"),
        ({"token": "x"}, "leave them out"),
        ({"address": ""}, "empty address"),
        ({"address": "a\0b"}, "address"),
        ({"address": "ftp://host:1"}, "not spoken here"),
        ({"address": "tcp://host:port"}, "port"),
        ({"connect_timeout": -1.0}, "connect_timeout"),
    ],
)
def test_wrong_arguments_of_a_plane(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        dls.Dispatch(**{"address": ":memory:", **options})


def test_a_value_above_the_limit(address: str, backend: Any) -> None:
    with dls.Dispatch(address, backend=backend, payload_limit=1000) as q:
        body = dls.udf(same)
        with pytest.raises(dls.PayloadTooLarge, match=r"(?s)payload limit of 1000.*pass its path or key"):
            body.submit("x" * 1000)
        fits = body.submit("x" * 900)
        grows = body.submit("x" * 900, 2)
        dls.run_worker(q, drain=True)
        assert len(q.result(fits)) == 900
        with pytest.raises(dls.InvocationFailed, match="payload limit of 1000"):
            q.result(grows)


def same(text: str, times: int = 1) -> str:
    return text * times


@dls.udf(retries=5, retry_delay=0.001)
def unsupported() -> object:
    return {"items": [object()]}


def test_an_unsupported_result_fails_with_its_path_and_is_not_retried(q: dls.Dispatch) -> None:
    inv = unsupported.submit()
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match=r"the result\['items'\]\[0\]") as failed:
        q.result(inv)
    assert failed.value.attempt == 1


@dls.udf
def odd_text() -> None:
    raise ValueError("a path that is not UTF-8: \udcff")


@dls.udf
def system_exit() -> None:
    raise SystemExit(3)


@dls.udf
async def async_exit() -> None:
    raise SystemExit(4)


@dls.udf
async def interrupt() -> None:
    raise KeyboardInterrupt


@dls.udf
async def group() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(fail, "the real error")


async def fail(text: str) -> None:
    raise LookupError(text)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (odd_text, "not UTF-8"),
        (system_exit, "SystemExit"),
        (async_exit, "SystemExit"),
        (interrupt, "KeyboardInterrupt"),
        (group, "the real error"),
    ],
)
def test_whatever_a_body_raises_fails_it_and_never_the_worker(
    q: dls.Dispatch, body: dls.UDF[[], None], says: str
) -> None:
    bad, good = body.submit(), f.submit(7)
    assert dls.run_worker(q, drain=True) == 2
    with pytest.raises(dls.InvocationFailed) as failed:
        q.result(bad)
    assert says in str(failed.value).splitlines()[0]
    assert "unhandled errors" not in str(failed.value).splitlines()[0]
    assert q.result(good) == 7
    assert q.result(f.submit(1)) if dls.run_worker(q, once=True) else True


@pytest.mark.parametrize(
    "settings",
    [
        {"max_depth": 2**70},
        {"seed": 2**70},
        {"description": "\ud800"},
        {"template": {"a": object()}},
        {"max_depth": 0},
        {"max_depth": True},
        {"on_full": "explode"},
        {"rate_limit": "many"},
        {"deadline_cutoff_s": 0},
        {"max_running": 0},
        {"max_bytes": -1},
        {"retention": float("inf")},
        {"temperature": -1},
        {"kind": "random"},
        {"elasticity": "pool-with-threshold"},
        {"min": 1},
        {"min": 3, "max": 2, "elasticity": "fixed"},
    ],
)
def test_settings_that_can_not_be(q: dls.Dispatch, settings: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)) as wrong:
        q.queues.add("x", **settings)
    assert next(iter(settings)) in str(wrong.value)
    assert [queue.name for queue in q.queues.ls()] == ["default"]
    if "kind" not in settings and "elasticity" not in settings:
        with pytest.raises((ValueError, TypeError, dls.Conflict)):
            q.queues.patch("default", **settings)
    inv = f.submit()
    dls.run_worker(q, once=True)
    assert q.result(inv) == 1


@pytest.mark.parametrize("name", ["Upper", "", "-x", "a_b", "a b", "é", "x\n"])
def test_a_queue_name_that_can_not_be(q: dls.Dispatch, name: str) -> None:
    with pytest.raises(ValueError, match="lower-case letters, digits and hyphens"):
        q.queues.add(name)
    with pytest.raises(ValueError, match="lower-case"):
        dls.run_worker(q, queues=[name])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, 10**400, 1e308, 2e11])
def test_pruning_takes_seconds(q: dls.Dispatch, value: float) -> None:
    with pytest.raises(ValueError, match="older_than"):
        q.jobs.prune(value)
    assert q.jobs.prune(1e11) == 0


@pytest.mark.parametrize(
    "filters", [{"limit": 0}, {"limit": 201}, {"offset": -1}, {"offset": 2**64}, {"state": "done"}]
)
def test_listing_takes_what_exists(q: dls.Dispatch, filters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(filters))):
        q.jobs.list(**filters)


# files


def test_a_file_that_is_no_store(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, not a database. " * 100)
    with pytest.raises(dls.StoreCorrupt, match=r"notes\.txt"):
        dls.Dispatch(path, backend=backend).jobs.list()
    assert path.read_text().startswith("these are my notes")


@pytest.mark.anyio
async def test_the_real_error_is_raised_not_a_group(tmp_path: Path, anyio_backend: Any) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, not a database. " * 100)
    with pytest.raises(dls.StoreCorrupt):
        async with dls.AsyncDispatch(path):
            pass
    with dls.Dispatch(":memory:") as q:  # the one that failed is not the default plane
        assert q.get(f.submit())


def test_a_damaged_file_says_so(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend):
        inv = f.submit()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(path.read_bytes())
    good = bytes(data)
    data[100:4096] = b"\xff" * 3996
    path.write_bytes(data)
    with pytest.raises(dls.StoreError):
        dls.Dispatch(path, backend=backend).jobs.list()
    path.write_bytes(good)  # from the backup
    with dls.Dispatch(path, backend=backend) as q:
        assert q.get(inv).state == "queued"


def test_a_folder_is_no_store(tmp_path: Path, backend: Any) -> None:
    with pytest.raises(dls.StoreError):
        dls.Dispatch(tmp_path, backend=backend).jobs.list()


def test_a_read_only_folder(tmp_path: Path, backend: Any) -> None:
    folder = Path("/sys")  # not even root may write here
    if os.geteuid():
        folder = tmp_path
        folder.chmod(0o500)
    with pytest.raises(dls.StoreError, match="permissions or name another path"):
        dls.Dispatch(folder / "plane.db", backend=backend).jobs.list()


def test_a_folder_that_can_not_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(dls.StoreError):
        dls.Dispatch(tmp_path / "file" / "plane.db").jobs.list()
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "file"))
    monkeypatch.delenv("LAKESHORE_URL", raising=False)
    with pytest.raises(dls.StoreError, match="LAKESHORE_HOME"):
        dls.Dispatch()


def test_a_plane_that_did_not_open_is_not_the_default(tmp_path: Path) -> None:
    with dls.Dispatch(":memory:") as q:
        with pytest.raises(dls.StoreError), dls.Dispatch(tmp_path):
            pass
        assert q.get(f.submit())


def test_a_process_that_holds_the_file_and_does_not_listen_is_named(tmp_path: Path, backend: Any) -> None:
    """An older Lakeshore does so, and one that is just opening the file."""
    path = tmp_path / "plane.db"
    with StoreLock(path):
        out = python(
            """
            import sys
            import lakeshore as dls
            try:
                dls.Dispatch(sys.argv[1], backend=sys.argv[2], connect_timeout=0.5).jobs.list()
            except dls.StoreLocked as error:
                print(error.pid, error)
            """,
            tmp_path,
            path,
            backend,
        )
        assert out.startswith(str(os.getpid()))
        assert "end it first, or name another path" in out


# seen to go wrong


def test_a_malformed_payload_fails_its_job_only(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend):
        bad, good = f.submit(11), f.submit(22)
    with sqlite3.connect(path) as connection:
        changed = 0
        for id, data in connection.execute("SELECT id, call FROM invocations").fetchall():
            damaged = data.replace(b"\x92\x91\x0b\x80", b"\x92\x91\xc1\x80")  # [[11], {}]
            connection.execute("UPDATE invocations SET call = ? WHERE id = ?", (damaged, id))
            changed += damaged != data
    connection.close()
    assert changed == 1
    with dls.Dispatch(path, backend=backend) as q:
        assert dls.run_worker(q, drain=True) == 2
        with pytest.raises(dls.InvocationFailed, match="not a packed value"):
            q.result(bad)
        assert q.result(good) == 22


@dls.udf(retries=20, retry_delay=0.02, retry_cap=0.02)
def stubborn() -> None:
    raise ValueError


def test_a_failing_job_does_not_spin(q: dls.Dispatch) -> None:
    inv = stubborn.submit()
    others = f.submit_many(range(5))
    with working(q), pytest.raises(dls.InvocationFailed):
        q.result(inv, timeout=PATIENCE)
    attempts = q.get(inv).attempts
    assert len(attempts) == 21
    assert all(q.get(other).attempts[0].started_at < attempts[-1].started_at for other in others)
    assert (attempts[-1].started_at - attempts[0].started_at).total_seconds() > 0.02


@dls.udf(retries=1, retry_delay=0.001)
def second_time():
    yield dls.run.attempt
    if dls.run.attempt == 1:
        raise ValueError("of the first attempt")


def test_the_stream_and_the_result_are_of_one_mind(q: dls.Dispatch) -> None:
    inv = second_time.submit()
    dls.run_worker(q, once=True)
    assert [frame.value for frame in q.stream(inv)] == [1, 2]
    assert q.result(inv) is None
    assert q.get(inv).error is None


def test_waiting_results_do_not_starve_a_claim(q: dls.Dispatch) -> None:
    import threading

    inv = f.submit(3)
    got: list[int] = []
    threads = [
        threading.Thread(target=lambda: got.append(q.result(inv, timeout=PATIENCE))) for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    with working(q):
        for thread in threads:
            thread.join(PATIENCE)
    assert got == [3] * 40


# every administration verb, with what its parameters are not

WRONG = [None, 5, [], {}, b"x", 1e308, float("nan"), "NO SUCH", object(), "\ud800", -1, 2**70, True]
NAMED = (TypeError, ValueError, dls.Refused)


def _administration(q: Any) -> Iterator[tuple[str, Any, dict[str, Any], str]]:
    """Each verb, what it is given to be right, and each of its parameters."""
    inv = UNKNOWN
    right = {"name": "default", "inv": inv}
    for part in (q.queues, q.jobs, q.workers, q.topics, q):
        names = [name for name in dir(part) if not name.startswith("_")]
        if part is q:
            names = ["result", "get", "kill", "retry", "topic", "stream"]
        for name in names:
            verb = getattr(part, name)
            parameters = inspect.signature(verb).parameters
            base = {key: value for key, value in right.items() if key in parameters}
            if name == "add":
                base = {"name": "made"}
            wanted = [key for key in parameters if key not in ("changes", "type")]
            if name == "patch":
                base["description"] = "x"
                wanted += list(QueueChanges.__annotations__)
            for key in wanted:
                yield f"{name}({key}=)", verb, base, key


def _judge(what: str, value: object, error: BaseException | None) -> None:
    if error is not None:
        assert isinstance(error, NAMED), (what, value, repr(error))
        bugs = (dls.InternalError, dls.PlaneFailed, dls.PlaneClosed)
        assert not isinstance(error, bugs), (what, value, error)
        assert len(str(error)) > 15, (what, value, error)


def test_administration_takes_no_wrong_argument(q: dls.Dispatch) -> None:
    for what, verb, base, key in _administration(q):
        for value in WRONG:
            error = None
            try:
                verb(**{**base, key: value})
            except BaseException as raised:
                error = raised
            _judge(what, value, error)
            q.queues.ls()
    with working(q):
        assert q.result(f.submit(2, _dispatch=q), timeout=PATIENCE) == 2


@pytest.mark.anyio
async def test_asynchronous_administration_takes_no_wrong_argument(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        for what, verb, base, key in _administration(q):
            for value in WRONG:
                error = None
                try:
                    found = verb(**{**base, key: value})
                    if inspect.isawaitable(found):
                        await found
                except Exception as raised:
                    error = raised
                _judge(what, value, error)
                await q.queues.ls()


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), "x", True, [], 10**400])
def test_a_wait_takes_seconds(q: dls.Dispatch, timeout: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"timeout=.*seconds, or None"):
        q.result(UNKNOWN, timeout=timeout)


@pytest.mark.parametrize("plane", [5, 0, "q", dls.Dispatch])
def test_a_submit_takes_a_plane(plane: Any) -> None:
    for call in (lambda: f.submit(_dispatch=plane), lambda: f.submit_many([1], _dispatch=plane)):
        with pytest.raises(TypeError, match="pass a Dispatch"):
            call()
    for run in (dls.run_worker, lambda q: anyio.run(dls.arun_worker, q)):
        with pytest.raises(TypeError, match="pass a Dispatch"):
            run(plane)


@pytest.mark.parametrize("value", ["no", 1, None])
def test_strict_is_true_or_false(q: dls.Dispatch, value: Any) -> None:
    with pytest.raises(TypeError, match=r"_strict_key.*True or False"):
        f.submit(_key="k", _strict_key=value, _dispatch=q)


@pytest.mark.parametrize("name", ["_delay", "_deadline"])
def test_a_time_is_bounded(q: dls.Dispatch, name: str) -> None:
    for value in (1e308, 2e11, timedelta.max):
        with pytest.raises(ValueError, match=f"{name}=.*within"):
            f.submit(**{name: value}, _dispatch=q)  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize(
    "options",
    [
        {"grace": "x"},
        {"grace": float("nan")},
        {"grace": 1e308},
        {"slots": 2**70},
        {"slots": 0},
        {"slots": True},
        {"slots": 1.5},
        {"name": b"x"},
        {"name": "\ud800"},
        {"labels": {"a": object()}},
        {"labels": {1: "a"}},
        {"labels": ["a"]},
        {"labels": {"a": "\ud800"}},
        {"queues": 5},
        {"queues": "q"},
        {"queues": b"q"},
        {"once": "yes"},
        {"drain": 1},
        {"allow_pickle": None},
        {"hooks": print},
        {"stop": 5},
    ],
)
def test_wrong_arguments_of_a_worker(q: dls.Dispatch, options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=rf"(?s){name}.*(pass|choose|replace) "):
        dls.run_worker(q, **{"once": True, **options})
    assert q.workers.list(ended=True) == []


@pytest.mark.parametrize("wrong", [{"n": 1}, "ab", b"ab", 3], ids=["dict", "str", "bytes", "int"])
def test_submit_many_takes_a_list_of_calls(wrong: Any) -> None:
    with dls.Dispatch(":memory:") as q:
        with pytest.raises(TypeError, match="takes a list of calls"):
            q.submit_many(len, wrong)
        assert q.jobs.list() == []
