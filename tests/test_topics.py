"""Topics: many publishers, unique numbers, an end for all."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from planes import PATIENCE, elsewhere

import lakeshore as dls


def values(stream: Any) -> list[Any]:
    return [frame.value for frame in stream]


def test_publishers_never_overwrite_each_other(q: dls.Dispatch) -> None:
    topic = q.topic("busy")
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda n: (topic.post(n), n), range(200)))
    topic.close()
    assert sorted(seq for seq, _ in numbers) == list(range(200))
    assert {frame.seq: frame.value for frame in topic.stream()} == dict(numbers)


def test_two_faces_of_one_file_share_a_topic(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as one, dls.Dispatch(path) as two:
        assert [one.topic("t").post("a"), two.topic("t").post("b"), one.topic("t").post("c")] == [0, 1, 2]
        two.topic("t").close()
        assert values(one.topic("t").stream()) == ["a", "b", "c"]


def test_a_reader_follows_live_until_the_end(q: dls.Dispatch) -> None:
    topic = q.topic("live")
    seen = threading.Event()
    got: list[Any] = []

    def read() -> None:
        for frame in topic.stream():
            got.append(frame.value)
            seen.set()

    with elsewhere(read) as reading:
        topic.post("first")
        assert seen.wait(PATIENCE)
        topic.post("second")
        topic.close()
        reading.result(PATIENCE)
    assert got == ["first", "second"]


def test_nothing_is_posted_after_the_end(q: dls.Dispatch) -> None:
    topic = q.topic("t")
    topic.post(1)
    topic.close()
    topic.close()
    with pytest.raises(dls.Conflict, match="closed"):
        q.topic("t").post(2)
    assert values(topic.stream()) == [1]


def test_the_end_and_the_values_are_kept(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        q.topic("open").post("a")
        q.topic("shut").post("b")
        q.topic("shut").close()
    with dls.Dispatch(path, backend=backend) as q:
        assert q.topic("open").post("c") == 1
        assert values(q.topic("shut").stream()) == ["b"]
        with pytest.raises(dls.Conflict):
            q.topic("shut").post("d")
        infos = {topic.name: (topic.frames, topic.closed) for topic in q.topics.list()}
        assert infos == {"open": (2, False), "shut": (1, True)}


def test_a_since_beyond_the_end_is_a_gap(q: dls.Dispatch) -> None:
    topic = q.topic("t")
    topic.post(1)
    with pytest.raises(dls.Gap) as gap:
        next(topic.stream(since=5))
    assert gap.value.first == 1


def test_a_topic_named_like_an_invocation(q: dls.Dispatch) -> None:
    inv = dls.udf(len).submit([1])
    topic = q.topic(inv)
    topic.post("not a frame of it")
    topic.close()
    dls.run_worker(q, once=True)
    assert values(q.stream(inv)) == []
    assert values(topic.stream()) == ["not a frame of it"]
    assert q.result(inv) == 1
    with pytest.raises(dls.NotFound):
        q.get("news")


def test_removing_ends_readers_and_frees_the_name(q: dls.Dispatch) -> None:
    topic = q.topic("t")
    topic.post(1)
    stream = topic.stream()
    assert next(stream).value == 1
    q.topics.remove("t")
    assert list(stream) == []
    assert topic.post("anew") == 0
    with pytest.raises(dls.NotFound, match=r"topics\.list"):
        q.topics.remove("never")


def test_topics_are_per_namespace(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path) as one, dls.Dispatch(path, namespace="other") as two:
        one.topic("t").post("secret")
        assert two.topics.list() == []
        two.topic("t").post("mine")
        two.topic("t").close()
        assert values(two.topic("t").stream()) == ["mine"]


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 201, "\ud800"])
def test_names_that_can_not_be(q: dls.Dispatch, name: str) -> None:
    with pytest.raises(ValueError, match=r"topic's name"):
        q.topic(name)


def test_values_that_can_not_travel(backend: Any) -> None:
    with dls.Dispatch(":memory:", backend=backend, payload_limit=1000) as q:
        with pytest.raises(TypeError, match="value"):
            q.topic("t").post(object())
        with pytest.raises(dls.PayloadTooLarge, match=r"1000"):
            q.topic("t").post("x" * 1001)
        assert q.topic("t").post("x") == 0


@pytest.mark.anyio
async def test_the_async_face(address: str, anyio_backend: Any) -> None:
    async with dls.AsyncDispatch(address) as q:
        topic = q.topic("t")
        got: list[int] = []

        async def read() -> None:
            async for frame in topic.stream():
                got.append(frame.value)
                if len(got) == 3:
                    await topic.close()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            assert [await topic.post(n) for n in range(3)] == [0, 1, 2]
        assert got == [0, 1, 2]
        with pytest.raises(dls.Conflict):
            await topic.post(4)
        assert [topic.name for topic in await q.topics.list()] == ["t"]
        await q.topics.remove("t")


def test_old_values_and_old_topics_are_pruned(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        q.topic("open").post(1)
        q.topic("shut").close()
        stream = q.topic("typo").stream()
        with elsewhere(lambda: list(stream)) as reading:
            assert {topic.name for topic in q.topics.list()} == {"open", "shut"}
            q.topic("typo").close()
            assert reading.result(PATIENCE) == []
    with dls.Dispatch(path, backend=backend, retention=0.0) as q:
        q.jobs.prune()
        assert [topic.name for topic in q.topics.list()] == ["open"]
        with pytest.raises(dls.Gap) as gap:
            next(q.topic("open").stream())
        assert gap.value.first == 1
