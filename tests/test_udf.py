"""`@udf`: what may be a body, its options, binding, plain calls, which plane, and how a body travels."""

import functools
import inspect
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest
from planes import PATIENCE, python, working

import lakeshore as dls


def plain(x: int, *, y: int = 1) -> int:
    return x * 10 + y


def numbers(n: int):
    yield from range(n)
    return "end"


async def soon(x: int) -> int:
    await anyio.lowlevel.checkpoint()
    return x


async def soon_numbers(n: int):
    for i in range(n):
        yield i


class Callable_:
    def __call__(self, n: int):
        yield from range(n)


def traced(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return inner


KINDS = [
    (plain, "sync"),
    (numbers, "generator"),
    (soon, "async"),
    (soon_numbers, "async_generator"),
    (functools.partial(soon, 1), "async"),
    (functools.partial(functools.partial(numbers), 1), "generator"),
    (traced(soon_numbers), "async_generator"),
    (traced(functools.partial(numbers, 3)), "generator"),
    (Callable_(), "generator"),
    (functools.partial(Callable_(), 2), "generator"),
    (Callable_().__call__, "generator"),
    (functools.lru_cache(plain), "sync"),
    (lambda: None, "sync"),
    (len, "sync"),
    (max, "sync"),
]


@pytest.mark.parametrize(("fn", "kind"), KINDS)
def test_the_kind_is_decided_once_at_decoration(fn: Any, kind: str) -> None:
    assert dls.udf(fn).kind == kind


@pytest.mark.parametrize(
    ("fn", "says"),
    [
        (Callable_, "is a class: pass a function"),
        (3, "a int can't be called"),
        (dls.udf(plain), "udf already"),
    ],
)
def test_what_can_not_be_a_body(fn: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        dls.udf(fn)


def test_a_parameter_with_an_underscore_is_refused_at_decoration() -> None:
    with pytest.raises(TypeError, match=r"'_key'.*rename"):
        dls.udf(lambda x, _key: None)
    dls.udf(lambda *_rest, **_more: None)  # catches all, names nothing


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": "Upper"}, "lower-case"),
        ({"queue": "trailing\n"}, "lower-case"),
        ({"timeout": 0}, "above 0"),
        ({"timeout": float("inf")}, "finite"),
        ({"timeout": 10**400}, "finite"),
        ({"retries": -1}, "0 or more"),
        ({"retries": 1.5}, "whole number"),
        ({"retries": 2**63}, "whole number"),
        ({"retry_delay": 0}, "above 0"),
        ({"retry_delay": 5, "retry_cap": 1}, "raise the cap"),
        ({"priority": float("nan")}, "finite"),
        ({"by": "magic"}, "auto, ref or value"),
        ({"runner": "mpi"}, "inline"),
        ({"name": "\ud800"}, "Unicode"),
    ],
)
def test_wrong_options(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        dls.udf(plain, **options)
    with pytest.raises(ValueError, match=says):
        dls.udf(**options)(plain)


@pytest.mark.parametrize("options", [{"retry_on": int}, {"retry_on": "x"}, {"name": 3}, {"queue": 3}])
def test_options_of_a_wrong_type(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        dls.udf(plain, **options)


def test_it_looks_like_its_function() -> None:
    body: Any = dls.udf(plain, name="shown")
    assert (body.__name__, body.__wrapped__, body.name) == ("plain", plain, "shown")
    assert inspect.signature(body) == inspect.signature(plain)


# binding


BOUND = dls.udf(plain)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1}), ((1,), {"_ky": "a"})],
)
def test_a_wrong_call_fails_in_the_submitter(
    q: dls.Dispatch, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(TypeError):
        BOUND.submit(*args, **kwargs)
    assert q.jobs.list() == []


def test_the_error_names_the_function_and_its_signature(q: dls.Dispatch) -> None:
    with pytest.raises(TypeError, match=r"plain: missing .*'x'.*plain\(x: int, \*, y: int = 1\) -> int"):
        BOUND.submit()  # type: ignore[call-overload]


def test_an_unsupported_value_is_named_by_its_path(q: dls.Dispatch) -> None:
    with pytest.raises(TypeError, match=r"kwargs\.y\['items'\]\[1\]"):
        BOUND.submit(1, y={"items": [0, object()]})  # type: ignore[call-overload]


@dls.udf
def echo(*args: Any, **kwargs: Any) -> Any:
    return [list(args), kwargs]


def test_arguments_arrive_equal(q: dls.Dispatch) -> None:
    value = {1: "int key", (1, 2): {3, 4}, "big": 1 << 100, "when": datetime(2026, 1, 2, tzinfo=UTC)}
    inv = echo.submit(value, also=(1, b"x", Path("a/b")))
    dls.run_worker(q, once=True)
    assert q.result(inv) == [[value], {"also": (1, b"x", Path("a/b"))}]


@dls.udf
def double_in_place(array: np.ndarray) -> np.ndarray:
    array *= 2
    return array


def test_arrays_arrive_and_return_writable(q: dls.Dispatch) -> None:
    inv = double_in_place.submit(np.arange(6, dtype="<f4").reshape(2, 3))
    dls.run_worker(q, once=True)
    result = q.result(inv)
    result[0, 0] = 7
    assert result.dtype == np.float32
    assert result.tolist() == [[7, 2, 4], [6, 8, 10]]


# submit's own options


FORMS = [30, 30.5, timedelta(seconds=30), lambda: datetime.now(UTC) + timedelta(seconds=30)]


@pytest.mark.parametrize("form", FORMS, ids=["int", "float", "timedelta", "datetime"])
def test_a_delay_in_each_form(q: dls.Dispatch, form: Any) -> None:
    submit: Any = BOUND.submit
    inv = submit(1, _delay=form() if callable(form) else form)
    assert dls.run_worker(q, once=True) == 0
    assert "delay ends in" in q.jobs.why(inv)[0]


@pytest.mark.parametrize("form", [0, timedelta(0), datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_deadline_that_has_passed(q: dls.Dispatch, form: Any) -> None:
    with pytest.raises(dls.InvocationTimeout, match="deadline"):
        q.result(BOUND.submit(1, _deadline=form), timeout=PATIENCE)


@pytest.mark.parametrize(
    ("options", "says", "error"),
    [
        ({"_delay": datetime(2026, 1, 1)}, "time zone", ValueError),
        ({"_delay": float("nan")}, "finite", ValueError),
        ({"_delay": "5"}, "timedelta", TypeError),
        ({"_deadline": True}, "timedelta", TypeError),
        ({"_deadline": 10**400}, "finite", ValueError),
        ({"_priority": float("nan")}, "finite", ValueError),
        ({"_priority": float("inf")}, "finite", ValueError),
        ({"_timeout": 0}, "above 0", ValueError),
        ({"_key": ""}, "empty", ValueError),
        ({"_key": 5}, "string", TypeError),
        ({"_key": "\ud800"}, "Unicode", ValueError),
        ({"_kye": "x"}, "Lakeshore's", TypeError),
    ],
)
def test_wrong_submit_options(
    q: dls.Dispatch, options: dict[str, Any], says: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=says):
        BOUND.submit(1, **options)
    assert q.jobs.list() == []
    BOUND.submit(1)


@dls.udf(timeout=60)
async def forever() -> None:
    await anyio.sleep_forever()


def test_a_timeout_for_one_call(q: dls.Dispatch) -> None:
    inv = forever.submit(_timeout=0.01)
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationTimeout, match=r"0\.01 s"):
        q.result(inv)


# submit_many


def test_submit_many_takes_three_forms_of_item(q: dls.Dispatch) -> None:
    ids = BOUND.submit_many([{"x": 1, "_key": "a"}, (2,), 3, {"x": 1, "_key": "a"}])
    assert ids[0] == ids[3]
    assert dls.run_worker(q, drain=True) == 3
    assert [q.result(inv) for inv in ids] == [11, 21, 31, 11]
    assert BOUND.submit_many([]) == []


def test_submit_many_goes_in_parts_in_order(q: dls.Dispatch) -> None:
    ids = q.submit_many(plain, range(2500))
    assert len(set(ids)) == 2500
    assert q.queues.show("default").queued == 2500
    assert ids == sorted(ids)


def test_submit_many_says_which_items_were_refused(q: dls.Dispatch) -> None:
    q.queues.add("narrow", max_depth=2)
    body = dls.udf(plain, queue="narrow")
    with pytest.raises(dls.SubmitErrors, match="3 of 5 items") as refused:
        body.submit_many([1, {"z": 1}, 2, 3, object()])
    ids, errors = refused.value.ids, refused.value.errors
    assert [id is None for id in ids] == [False, True, False, True, True]
    assert {index: type(error) for index, error in errors.items()} == {
        1: TypeError,
        3: dls.QueueFull,
        4: TypeError,
    }
    assert [q.get(id).state for id in ids if id] == ["queued", "queued"]


def test_parts_before_a_closed_plane_stand(q: dls.Dispatch) -> None:
    def items():
        yield from range(1000)
        yield 1000  # the first part has left by now
        q.close()

    with pytest.raises(dls.SubmitErrors) as refused:
        BOUND.submit_many(items())
    assert len([id for id in refused.value.ids if id]) == 1000
    assert isinstance(refused.value.errors[1000], dls.PlaneClosed)


def test_large_items_travel_too(q: dls.Dispatch) -> None:
    ids = echo.submit_many([(b"x" * 700_000,) for _ in range(4)])
    assert dls.run_worker(q, drain=True) == 4
    assert all(len(q.result(inv)[0][0]) == 700_000 for inv in ids)


# plain calls


def ping(x: int) -> int:
    return x + threading.get_ident()


def test_a_bare_udf_runs_in_place() -> None:
    assert BOUND(2, y=3) == 23
    assert list(dls.udf(numbers)(3)) == [0, 1, 2]
    assert inspect.iscoroutinefunction(soon)
    assert anyio.run(dls.udf(soon), 4) == 4

    async def collect() -> list[int]:
        return [i async for i in dls.udf(soon_numbers)(3)]

    assert anyio.run(collect) == [0, 1, 2]


def test_with_a_queue_a_plain_call_submits_and_keeps_its_shape(q: dls.Dispatch) -> None:
    here = threading.get_ident()
    with working(q):
        assert dls.udf(ping, queue="away")(1) != here + 1
        assert dls.udf(ping, queue="away").local(1) == here + 1
        generator: Any = dls.udf(numbers, queue="away")(3)
        assert inspect.isgenerator(generator)
        rest: Any = generator
        ended: list[Any] = []

        def whole() -> Any:
            ended.append((yield from rest))

        assert list(whole()) == [0, 1, 2]
        assert ended == ["end"]
    assert {job.queue for job in q.jobs.list()} == {"away"}


@pytest.mark.anyio
async def test_the_same_for_async_bodies(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        await tasks.start(dls.arun_worker, q)
        call = dls.udf(soon, queue="away")(5)
        assert inspect.isawaitable(call)
        assert await call == 5
        assert [i async for i in dls.udf(soon_numbers, queue="away")(3)] == [0, 1, 2]
        assert {job.queue for job in await q.jobs.list()} == {"away"}
        tasks.cancel_scope.cancel()


def test_a_failed_plain_call_raises(q: dls.Dispatch) -> None:
    with working(q), pytest.raises(dls.InvocationFailed, match="divi"):
        dls.udf(divide, queue="away")(1, 0)


def divide(a: int, b: int) -> float:
    return a / b


@dls.udf(queue="deep")
def factorial(n: int) -> int:
    return n * factorial(n - 1) if n else 1


@dls.udf(queue="parents")
def parent(x: int) -> int:
    return child(x) + 1


@dls.udf(queue="children")
def child(x: int) -> int:
    return x * 2


def test_a_body_does_not_resubmit_itself_but_calls_others_where_they_belong(q: dls.Dispatch) -> None:
    inv = factorial.submit(4)
    dls.run_worker(q, drain=True)
    assert q.result(inv) == 24
    assert len(q.jobs.list()) == 1
    with working(q, queues=["parents"]), working(q, queues=["children"]):
        assert parent(4) == 9
    (job,) = q.jobs.list(queue="children")
    assert job.parent == q.jobs.list(queue="parents")[0].id


# which plane


@dls.udf
def spawn() -> str:
    return BOUND.submit(1)


@dls.udf
async def aspawn() -> str:
    return await BOUND.asubmit(1)


def test_inside_a_body_it_is_the_plane_it_came_from(q: dls.Dispatch) -> None:
    ids = [spawn.submit(), aspawn.submit()]
    with dls.Dispatch(":memory:") as other:  # made last, and the innermost
        for _ in ids:
            dls.run_worker(q, once=True)
        assert other.jobs.list() == []
    for inv in ids:
        job = q.get(q.result(inv))
        assert (job.state, job.parent) == ("queued", inv)


def test_named_then_innermost_then_last_made() -> None:
    first = dls.Dispatch(":memory:")
    last = dls.Dispatch(":memory:")
    inner = dls.Dispatch(":memory:")
    named = dls.Dispatch(":memory:")
    try:
        with inner:
            assert inner.get(BOUND.submit(1))
            assert named.get(BOUND.submit(1, _dispatch=named))
            assert named.get(BOUND.submit_many([1], _dispatch=named)[0])
            with first:
                assert first.get(BOUND.submit(1))
        assert named.get(BOUND.submit(1))
        named.close()
        assert last.get(BOUND.submit(1))
    finally:
        for face in (first, last, inner, named):
            face.close()


def test_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "deep" / "home"))
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "tenant")
    monkeypatch.delenv("LAKESHORE_URL", raising=False)
    with dls.Dispatch() as q:
        inv = BOUND.submit(1)
        assert q.get(inv).namespace == "tenant"
        assert Path(q.address).parent.parent == tmp_path / "deep" / "home"
        for folder in (tmp_path / "deep" / "home", Path(q.address).parent):
            assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("LAKESHORE_URL", str(tmp_path / "elsewhere.db"))
    with dls.Dispatch() as q:
        assert q.address == str(tmp_path / "elsewhere.db")


def test_a_submit_without_any_plane_opens_the_local_one(tmp_path: Path) -> None:
    out = python(
        """
        import os, sys
        os.environ["LAKESHORE_HOME"] = sys.argv[1]
        os.environ.pop("LAKESHORE_URL", None)
        import lakeshore as dls

        @dls.udf
        def f():
            return 3

        inv = f.submit()
        q = dls.Dispatch()
        dls.run_worker(q, once=True)
        print(q.result(inv))
        """,
        tmp_path,
        tmp_path / "home",
    )
    assert out == "3"


# how a body travels


def test_memory_planes_never_pickle(backend: Any) -> None:
    lock = threading.Lock()
    with dls.Dispatch(":memory:", backend=backend) as q:
        ids = [q.submit(lambda: lock.locked()), q.submit(functools.partial(plain, y=5), 1)]
        dls.run_worker(q, drain=True)
        assert [q.result(inv) for inv in ids] == [False, 15]


def test_what_can_not_be_pickled_is_refused_by_a_file(tmp_path: Path) -> None:
    lock = threading.Lock()
    with dls.Dispatch(tmp_path / "plane.db") as q:
        with pytest.raises(TypeError, match=r"lambda.*top of a module"):
            q.submit(lambda: lock.locked())
        with pytest.raises(TypeError, match="by reference"):
            dls.udf(lambda: 1, by="ref").submit()


def test_by_value_to_a_later_process(tmp_path: Path) -> None:
    module = tmp_path / "jobs.py"
    module.write_text(
        "import lakeshore as dls\n"
        "def plain(x): return ['plain', x]\n"
        "@dls.udf\ndef by_ref(x): return ['ref', x, by_ref.kind]\n"
    )
    ids = python(
        """
        import functools, sys
        import lakeshore as dls
        import jobs

        base = 100

        @dls.udf
        def main_body(x):
            return base + x

        @dls.udf
        def recursive(n):
            return 1 if n < 2 else n * recursive(n - 1)

        @dls.udf(retries=1, retry_delay=0.001)
        async def gen(n):
            for i in range(n):
                yield i + base

        q = dls.Dispatch(sys.argv[1])
        offset = 7
        keyed = dls.udf(lambda x: x + offset)
        ids = [
            main_body.submit(1),
            recursive.submit(5),
            jobs.by_ref.submit(2),
            q.submit(jobs.plain, 3),
            q.submit(lambda x: x - offset, 10),
            keyed.submit(1, _key="k"),
            gen.submit(2),
        ]
        assert keyed.submit(1, _key="k") == ids[5]
        print(*ids)
        """,
        tmp_path,
        tmp_path / "plane.db",
    ).split()
    out = python(
        """
        import sys
        import lakeshore as dls
        q = dls.Dispatch(sys.argv[1], backend="trio")
        dls.run_worker(q, drain=True)
        print([q.result(inv) for inv in sys.argv[2:8]], [f.value for f in q.stream(sys.argv[8])])
        """,
        tmp_path,
        tmp_path / "plane.db",
        *ids,
    )
    assert out == "[101, 120, ['ref', 2, 'async_generator'], ['plain', 3], 3, 8] [100, 101]".replace(
        "async_generator", "sync"
    )


def test_a_pickle_outlives_the_pruning_of_its_invocations(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path) as q:
        body = dls.udf(lambda x: x + 1)
        for _ in range(3):
            inv = body.submit(1)
            dls.run_worker(q, once=True)
            q.jobs.prune(0)
        inv = body.submit(2)
    code = "import sys, lakeshore as dls; q = dls.Dispatch(sys.argv[1]); dls.run_worker(q, once=True)"
    python(code, tmp_path, path)
    with dls.Dispatch(path) as q:
        assert q.result(inv, timeout=PATIENCE) == 3


def test_a_body_nobody_can_find_is_given_back_free(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "vanishing.py").write_text("import lakeshore as dls\n@dls.udf\ndef f(): return 1\n")
    path = tmp_path / "plane.db"
    code = "import sys, lakeshore as dls, vanishing; dls.Dispatch(sys.argv[1]); print(vanishing.f.submit())"
    inv = python(code, tmp_path, path)
    (tmp_path / "vanishing.py").unlink()
    with dls.Dispatch(path) as q:
        good = BOUND.submit(1)
        assert dls.run_worker(q, drain=True) == 1
        assert q.result(good) == 11
        job = q.get(inv)
        assert (job.state, job.attempts) == ("queued", ())
        with working(q):
            assert q.result(BOUND.submit(2), timeout=PATIENCE) == 21
            assert "vanishing.f" in " ".join(q.jobs.why(inv))
    assert any("vanishing.f" in record.getMessage() for record in caplog.records)


def test_a_timeout_of_its_own_at_each_call_keeps_nothing(q: dls.Dispatch) -> None:
    body = dls.udf(plain)
    body.submit_many([{"x": 1, "_timeout": 1 + n / 1000} for n in range(500)])
    assert len(body._options) < 100  # pyright: ignore[reportPrivateUsage]
