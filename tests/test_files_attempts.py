"""Files of attempts that fail, are stopped, or are overtaken, and of storages that fail."""

from __future__ import annotations

import contextvars
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from filing import (
    EVENTS,
    each_kind,
    files_of,
    found,
    in_place,
    left_over,
    on_worker,
)
from filing import events as events
from filing import q as q
from filing import store as store
from planes import PATIENCE, elsewhere
from stored_jobs import plain, waiting

import lakeshore as dls
from lakeshore.core.errors import Overtaken
from lakeshore.core.worker import Worker
from lakeshore.storage.folder import Folder


def test_a_body_that_fails_leaves_nothing_and_its_retry_begins_clean(q: dls.Dispatch, store: Path) -> None:
    paths: list[Path] = []

    @dls.udf(retries=1, retry_delay=0.01)
    def body() -> str:
        if dls.run.attempt == 2:
            assert found(store) == {}
            with pytest.raises(dls.KeyNotFound):
                dls.run.read("a")
        path = dls.run.write("a")
        assert not path.exists()
        path.write_text(f"attempt {dls.run.attempt}")
        paths.append(path)
        if dls.run.attempt == 1:
            raise ValueError("no")
        return "a"

    inv = body.submit(_dispatch=q)
    dls.run_worker(q, drain=True)
    assert q.result(inv) == "a"
    assert found(store) == {"a": "attempt 2"}
    assert paths[0] != paths[1]
    assert left_over(store) == []


@each_kind
def test_a_body_that_raises_in_place_leaves_nothing(store: Path, body: Any) -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ZeroDivisionError

    @dls.udf
    def fails() -> str:
        in_place(body, ["a"], "a")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()  # what it called in place is a part of it
    assert found(store) == {}
    assert left_over(store) == []


@dls.udf
def until_stopped() -> str:
    dls.run.write("a").write_text("x")
    EVENTS["written"].set()
    while not dls.run.cancelled:
        EVENTS["seen"].wait(0.01)
    raise InterruptedError


@dls.udf
async def until_cancelled() -> str:
    dls.run.write("a").write_text("x")
    EVENTS["written"].set()
    await anyio.sleep_forever()
    return "a"


@pytest.mark.parametrize("body", [until_stopped, until_cancelled], ids=lambda body: body.kind)
@pytest.mark.parametrize("why", ["kill", "timeout"])
def test_a_stopped_attempt_leaves_nothing_under_its_keys(
    q: dls.Dispatch, store: Path, body: Any, why: str, events: dict[str, threading.Event]
) -> None:
    inv = body.submit(_dispatch=q, _timeout=0.2 if why == "timeout" else None)
    with elsewhere(lambda: dls.run_worker(q, once=True)):
        assert events["written"].wait(PATIENCE)
        if why == "kill":
            with suppress(dls.Conflict):  # a body that looks may end by itself first
                q.kill(inv, running=True)
        with pytest.raises(dls.Unsuccessful):
            q.result(inv, timeout=PATIENCE)
    assert found(store) == {}


def test_an_attempt_that_was_overtaken_publishes_nothing(store: Path) -> None:
    files, folder = files_of(store, "old")
    files.write(folder, "a", "a", "a", folder=False).write_text("old")
    with pytest.raises(Overtaken):
        files.complete("a", lambda: False)
    files.discard()
    assert found(store) == {}
    assert left_over(store) == []


def test_an_attempt_that_is_given_up_in_the_middle_publishes_nothing(store: Path) -> None:
    files, folder = files_of(store, "old")
    files.write(folder, "a", "a", "a", folder=False).write_text("old")

    def clear() -> bool:
        files.discard()  # on another thread, say
        return False

    with pytest.raises(Overtaken):
        files.complete("a", clear)
    assert found(store) == {}
    assert left_over(store) == []
    with pytest.raises(dls.StorageFailed, match="reads and writes nothing more"):
        files.write(folder, "b", "b", "b", folder=False)


def test_of_two_that_write_one_key_the_last_complete_one_stands(store: Path) -> None:
    (one, folder), (two, _) = files_of(store, "one"), files_of(store, "two")
    one.write(folder, "a", "a", "a", folder=False).write_text("one" * 1000)
    two.write(folder, "a", "a", "a", folder=False).write_text("two")
    one.complete("a", lambda: True)
    assert found(store) == {"a": "one" * 1000}
    two.complete("a", lambda: True)
    assert found(store) == {"a": "two"}


@pytest.mark.parametrize("where", ["stage", "publish"])
@each_kind
def test_a_storage_that_fails_fails_the_invocation_and_names_the_key(
    q: dls.Dispatch, store: Path, monkeypatch: pytest.MonkeyPatch, body: Any, where: str
) -> None:
    stage = Folder.stage

    def broken(self: Folder, key: str, source: Path, mark: str) -> Any:
        if where == "stage" and key == "b":
            raise dls.StorageFailed(key, self.url, "it is broken")
        staged = stage(self, key, source, mark)
        if key == "b":
            monkeypatch.setattr(staged, "publish", lambda: broken_publish(self, key))
        return staged

    def broken_publish(self: Folder, key: str) -> None:
        raise dls.StorageFailed(key, self.url, "it is broken")

    monkeypatch.setattr(Folder, "stage", broken)
    inv = body.submit(["a", "b"], ["a", "b"], _dispatch=q)
    dls.run_worker(q, once=True)
    with pytest.raises(dls.InvocationFailed, match=r"'b' in .*store: it is broken"):
        q.result(inv)
    assert "b" not in found(store)
    assert left_over(store) == []


@dls.udf
def stubborn_after(keys: list[str]) -> Iterator[str]:
    """Its files can't be stored; and then it takes its time."""
    try:
        for key in keys:
            dls.run.write(key).write_text("x")
        yield keys[0]
    finally:
        EVENTS["written"].set()
        while not dls.run.cancelled:
            EVENTS["seen"].wait(0.01)


def test_a_body_whose_frame_can_not_be_stored_may_still_be_stopped(
    q: dls.Dispatch, store: Path, monkeypatch: pytest.MonkeyPatch, events: dict[str, threading.Event]
) -> None:
    def broken(self: Folder, key: str, staged: Path, is_folder: bool) -> None:
        raise dls.StorageFailed(key, self.url, "it is broken")

    monkeypatch.setattr(Folder, "publish", broken)
    inv = stubborn_after.submit(["a"], _dispatch=q)
    with elsewhere(lambda: dls.run_worker(q, once=True)):
        assert events["written"].wait(PATIENCE)
        with suppress(dls.Conflict):
            q.kill(inv, running=True)
        with pytest.raises(dls.Unsuccessful):
            q.result(inv, timeout=PATIENCE)


def test_what_is_staged_as_the_attempt_ends_goes_too(store: Path) -> None:
    files, folder = files_of(store, "old")
    files.write(folder, "a", "a", "a", folder=False).write_text("old")
    stage, begun, go = folder.stage, threading.Event(), threading.Event()

    def slow(key: str, source: Path, mark: str) -> Any:
        begun.set()
        assert go.wait(PATIENCE)
        return stage(key, source, mark)

    folder.stage = slow  # type: ignore[method-assign]
    errors: list[BaseException] = []

    def publishes() -> None:
        try:
            files.complete("a", lambda: True)
        except Overtaken as error:
            errors.append(error)

    publishing = threading.Thread(target=publishes)
    publishing.start()
    assert begun.wait(PATIENCE)
    discarding = threading.Thread(target=files.discard)
    discarding.start()
    files.close()
    go.set()
    publishing.join()
    discarding.join()
    assert len(errors) == 1
    assert (found(store), left_over(store)) == ({}, [])


def test_of_several_keys_none_is_published_once_the_attempt_is_anothers(store: Path) -> None:
    files, folder = files_of(store, "old")
    for key in ("a", "b"):
        files.write(folder, key, key, key, folder=False).write_text("old")
    publish = folder.publish

    def once(key: str, staged: Path, is_folder: bool) -> None:
        publish(key, staged, is_folder)
        files.close()

    folder.publish = once  # type: ignore[method-assign]
    with pytest.raises(Overtaken):
        files.complete(["a", "b"], lambda: True)
    files.discard()
    assert (len(found(store)), left_over(store)) == (1, [])


def test_what_a_body_leaves_behind_writes_no_files(q: dls.Dispatch, store: Path) -> None:
    errors: list[BaseException] = []
    go, done = threading.Event(), threading.Event()

    def late() -> None:
        try:
            assert go.wait(PATIENCE)
            dls.run.write("z")
        except BaseException as error:
            errors.append(error)
        done.set()

    def body() -> None:
        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(late,)).start()

    with dls.Dispatch(":memory:") as memory:
        memory.submit(body)
        dls.run_worker(memory, once=True)
    go.set()
    assert done.wait(PATIENCE)
    assert "the body has ended" in str(errors[0])


def test_a_folder_that_was_deleted_is_made_again(q: dls.Dispatch, store: Path) -> None:
    on_worker(q, plain, ["a"], "a")
    shutil.rmtree(store)
    on_worker(q, plain, ["b"], "b")
    assert found(store) == {"b": "in b"}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_worker_that_ends_lets_what_is_being_published_get_there(
    store: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It would be another attempt's meanwhile, whose files these would overwrite."""
    begun, go = threading.Event(), threading.Event()
    publish, drain = Folder.publish, Worker.drain

    def slow(self: Folder, key: str, staged: Path, is_folder: bool) -> None:
        begun.set()
        assert go.wait(PATIENCE)
        publish(self, key, staged, is_folder)

    def draining(self: Worker) -> None:
        drain(self)
        go.set()

    monkeypatch.setattr(Folder, "publish", slow)
    monkeypatch.setattr(Worker, "drain", draining)
    async with dls.AsyncDispatch(":memory:") as q:
        inv = await q.submit(plain if kind == "sync" else waiting, ["a"], "a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dls.arun_worker, q)
            await anyio.to_thread.run_sync(begun.wait, PATIENCE)
            tasks.cancel_scope.cancel()
        assert await q.result(inv, timeout=PATIENCE) == "a"
    assert found(store) == {"a": "in a"}
