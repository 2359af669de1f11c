"""Arguments, results and frames that are too large for a message, in a storage."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from filing import each_plane, plane_of
from heads import served
from planes import PATIENCE

import lakeshore as dls
from lakeshore.core.away import AWAY_BYTES, Away, away_in, folder_of, pack_away
from lakeshore.core.values import pack, unpack
from lakeshore.sdk import verbs
from lakeshore.storage.folder import Folder
from lakeshore.storage.values import bring_back, put_away

LARGE = 2 * AWAY_BYTES


@dls.udf
def echo(value: Any) -> Any:
    return value


@dls.udf
async def echo_later(value: Any) -> Any:
    return value


@dls.udf
def each(values: list[Any]) -> Iterator[Any]:
    yield from values
    return len(values)


@dls.udf
async def each_later(values: list[Any]) -> AsyncIterator[Any]:
    for value in values:
        yield value


@dls.udf
def fails(value: Any) -> None:
    raise ValueError(len(value))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@each_plane
def q(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dls.Dispatch]:
    """A plane with a storage, in which no message may be large."""
    with plane_of(request, tmp_path, storage=tmp_path / "store", payload_limit=AWAY_BYTES) as dispatch:
        yield dispatch


def objects(store: Path) -> list[Path]:
    """The large values that are there."""
    return [path for path in (store / ".lakeshore" / "values").rglob("*") if path.is_file()]


def text(letter: str) -> str:
    return letter * LARGE


@pytest.mark.parametrize("body", [echo, echo_later], ids=lambda body: body.kind)
def test_arguments_and_results(q: dls.Dispatch, store: Path, body: Any) -> None:
    inv = body.submit(text("a"), _dispatch=q)
    assert len(objects(store)) == 1
    assert dls.run_worker(q, once=True) == 1
    assert q.result(inv) == text("a")
    assert q.result(inv) == text("a")  # as often as one likes
    assert len(objects(store)) == 2


@pytest.mark.parametrize("body", [each, each_later], ids=lambda body: body.kind)
def test_frames(q: dls.Dispatch, store: Path, body: Any) -> None:
    values = ["small", text("a"), {"deep": text("b")}, "small"]
    inv = body.submit(values, _dispatch=q)
    dls.run_worker(q, once=True)
    assert list(q.stream(inv).values()) == values
    assert [frame.value for frame in q.stream(inv, since=2)] == values[2:]
    assert len(objects(store)) == 3
    q.jobs.prune(older_than=0)


def test_what_is_small_travels_as_it_is(q: dls.Dispatch, store: Path) -> None:
    inv = echo.submit("x" * (AWAY_BYTES - 100), _dispatch=q)
    dls.run_worker(q, once=True)
    assert len(q.result(inv)) == AWAY_BYTES - 100
    assert objects(store) == []


def test_a_frame_that_can_not_be_had_is_not_lost(q: dls.Dispatch, store: Path) -> None:
    values = ["small", text("a"), "small"]
    inv = each.submit(values, _dispatch=q)
    dls.run_worker(q, once=True)
    things = {thing: thing.read_bytes() for thing in objects(store)}
    for thing in things:
        thing.unlink()
    stream = q.stream(inv)
    assert next(stream).value == "small"
    with pytest.raises(dls.StorageFailed):
        next(stream)
    assert stream.cursor == 1
    for thing, data in things.items():
        thing.write_bytes(data)
    assert [frame.value for frame in stream] == values[1:]


def test_a_result_is_kept_where_the_storage_was_changed_meanwhile(q: dls.Dispatch, store: Path) -> None:
    inv = echo.submit(text("a"), _dispatch=q)
    q.run(verbs.set_storage(str(store.parent / "other")))
    dls.run_worker(q, once=True)
    assert q.result(inv) == text("a")
    q.jobs.prune(older_than=0)
    q.close()
    assert objects(store) == objects(store.parent / "other") == []


def test_without_a_storage_the_error_stays(address: str, backend: Any) -> None:
    with dls.Dispatch(address, backend=backend, payload_limit=AWAY_BYTES) as q:
        with pytest.raises(dls.PayloadTooLarge, match=r"the arguments of test_large_values\.echo"):
            echo.submit(text("a"), _dispatch=q)
        with pytest.raises(dls.SubmitErrors) as caught:
            echo.submit_many(["x", text("a"), "y"], _dispatch=q)
        assert [type(error) for error in caught.value.errors.values()] == [dls.PayloadTooLarge]
        assert [id is None for id in caught.value.ids] == [False, True, False]
        dls.run_worker(q, drain=True)

        inv = q.submit(lambda: "x" * LARGE)
        dls.run_worker(q, once=True)
        with pytest.raises(dls.InvocationFailed, match="the result is"):
            q.result(inv)


def test_many(q: dls.Dispatch, store: Path) -> None:
    values = [text(letter) for letter in "abc"]
    ids = echo.submit_many([*values, "small"], _dispatch=q)
    assert len(objects(store)) == 3
    dls.run_worker(q, drain=True)
    assert [q.result(id) for id in ids] == [*values, "small"]


def test_a_queue_with_a_storage_of_its_own(q: dls.Dispatch, store: Path, tmp_path: Path) -> None:
    q.queues.add("own", storage=str(tmp_path / "other"))
    inv = dls.udf(echo.fn, queue="own").submit(text("a"), _dispatch=q)
    dls.run_worker(q, once=True)
    assert q.result(inv) == text("a")
    assert (len(objects(store)), len(objects(tmp_path / "other"))) == (0, 2)


def test_they_are_pruned_with_the_last_that_has_them(q: dls.Dispatch, store: Path) -> None:
    first = fails.submit(text("a"), _dispatch=q)
    dls.run_worker(q, once=True)
    again = q.retry(first)  # it has the same arguments
    assert len(objects(store)) == 1
    assert q.jobs.prune(older_than=0) == 1
    assert len(objects(store)) == 1
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match=str(LARGE)):
        q.result(again)
    assert q.jobs.prune(older_than=0) == 1
    q.close()  # it waits for what is being deleted
    assert objects(store) == []


def test_frames_and_results_are_pruned(q: dls.Dispatch, store: Path) -> None:
    each.submit([text("a"), text("b")], _dispatch=q)
    echo.submit(text("a"), _dispatch=q)
    dls.run_worker(q, drain=True)
    assert len(objects(store)) == 5
    assert q.jobs.prune(older_than=0) == 2
    q.close()
    assert objects(store) == []


@pytest.mark.parametrize("body", [echo, echo_later], ids=lambda body: body.kind)
def test_arguments_that_are_gone(q: dls.Dispatch, store: Path, body: Any) -> None:
    inv = body.submit(text("a"), _dispatch=q)
    (thing,) = objects(store)
    thing.unlink()
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match="this large value is gone"):
        q.result(inv)


@pytest.mark.parametrize("body", [echo, echo_later], ids=lambda body: body.kind)
def test_a_result_that_can_not_be_stored(
    q: dls.Dispatch, store: Path, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inv = body.submit(text("a"), _dispatch=q)

    def put(self: Folder, key: str, data: bytes) -> None:
        raise dls.StorageFailed(key, self.url, "no space left")

    monkeypatch.setattr(Folder, "put", put)
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match="no space left"):
        q.result(inv)
    with pytest.raises(dls.StorageFailed, match="no space left"):
        body.submit(text("a"), _dispatch=q)


def test_a_value_that_was_changed_is_not_taken(store: Path) -> None:
    folder = folder_of("plane", "default")
    away = away_in(put_away(pack(text("a")), str(store), folder))
    assert away is not None
    (thing,) = objects(store)
    for wrong in (pack(text("b")), b"short"):
        thing.write_bytes(wrong)
        with pytest.raises(dls.StorageFailed, match="not what was put there"):
            bring_back(away)


def test_references(store: Path) -> None:
    away = Away("s3://bucket", "name", 3, bytes(32))
    assert away_in(pack_away(away)) == away
    assert unpack(pack_away(away)) == away
    long = Away("s3://bucket", "n" * 1000, 3, bytes(32))
    assert away_in(pack_away(long)) == long
    for plain in (b"", None, b"\xc7", pack([1]), pack(1 << 80), pack(b"x" * 70000), pack(2j)):
        assert away_in(plain) is None
    assert away_in(pack(away)) is None  # nobody makes one by hand


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: Away(a.place, "users/file", a.size, a.digest), "no place for large values"),
        (lambda a: Away(a.place, a.name + "/../../x", a.size, a.digest), "no place for large values"),
        (lambda a: Away(a.place, a.name.rpartition("/")[0] + "/x", a.size, a.digest), "no place for large"),
        (lambda a: Away("s3://elsewhere", a.name, a.size, a.digest), "no place for large values"),
        (lambda a: b"\xc7\x01\x2b\xc0", "can't be read"),
    ],
    ids=["another's file", "a way out", "another name", "another storage", "nonsense"],
)
def test_a_head_takes_no_reference_to_what_is_not_a_large_value(
    q: dls.Dispatch, store: Path, change: Callable[[Away], Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would delete that with the invocation."""

    def put(data: bytes, where: str, folder: str) -> bytes:
        away = away_in(put_away(data, where, folder))
        assert away is not None
        changed = change(away)
        return changed if isinstance(changed, bytes) else pack_away(changed)

    monkeypatch.setattr("lakeshore.storage.values.put_away", put)
    with pytest.raises(dls.BadRequest, match=says):
        echo.submit(text("a"), _dispatch=q)
    with pytest.raises(dls.SubmitErrors):
        echo.submit_many([text("a")], _dispatch=q)


def test_an_asynchronous_program(address: str, backend: str, store: Path) -> None:
    @dls.udf
    async def parent(value: str) -> str:
        return await echo.asubmit(value)

    async def main() -> None:
        async with dls.AsyncDispatch(address, storage=store, payload_limit=AWAY_BYTES) as q:
            first = await echo.asubmit(text("a"), _dispatch=q)
            ids = await each_later.asubmit_many([([text("b"), "c"],)], _dispatch=q)
            child = await parent.asubmit(text("d"), _dispatch=q)
            await dls.arun_worker(q, drain=True)
            assert await q.result(first) == text("a")
            assert await q.result(first, timeout=PATIENCE) == text("a")
            assert [value async for value in q.stream(ids[0]).values()] == [text("b"), "c"]
            assert await q.result(await q.result(child)) == text("d")
            inv = await fails.asubmit(text("e"), _dispatch=q)
            await dls.arun_worker(q, once=True)
            with pytest.raises(dls.InvocationFailed, match=str(LARGE)):
                await q.result(inv)

    anyio.run(main, backend=backend)


def test_a_plain_call_of_a_udf_with_a_queue(q: dls.Dispatch) -> None:
    from planes import working

    called = dls.udf(echo.fn, queue="default")
    later = dls.udf(echo_later.fn, queue="default")
    with q, working(q):
        assert called(text("a")) == text("a")
        assert anyio.run(later, text("b")) == text("b")


def test_through_a_head(tmp_path: Path, backend: Any, home: Path) -> None:
    with (
        served(tmp_path / "plane.db", backend, storage=str(tmp_path / "store")) as head,
        dls.Dispatch(head.url) as q,
    ):
        inv = echo.submit(text("a"), _dispatch=q)
        dls.run_worker(q, once=True)
        assert q.result(inv) == text("a")
    assert len(objects(tmp_path / "store")) == 2


def test_large_values_of_a_submit_that_never_came_are_found(
    tmp_path: Path, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever put them there has died before it could submit."""
    monkeypatch.setattr("lakeshore.sdk.janitor.STRAY_AGE", -1.0)
    with dls.Dispatch(tmp_path / "plane.db", backend=backend, storage=tmp_path / "store") as q:
        echo.submit(text("a"), _dispatch=q)
        (wanted,) = objects(tmp_path / "store")
        (wanted.parent / "stray").write_bytes(b"in vain")
        host = q.host()
        residence = host._residence  # pyright: ignore[reportPrivateUsage]
        assert residence is not None
        removed, remove = threading.Event(), Folder.remove

        def removing(self: Folder, key: str) -> None:
            remove(self, key)
            removed.set()

        monkeypatch.setattr(Folder, "remove", removing)
        host.backend.post(residence.look_for_strays)
        assert removed.wait(PATIENCE)
        assert objects(tmp_path / "store") == [wanted]
