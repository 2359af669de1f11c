"""`Dispatch`: one face for many threads, loops and processes."""

import asyncio
import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import trio
from planes import PATIENCE, elsewhere, python, working

import lakeshore as dls
from lakeshore.core.ids import IdMaker
from lakeshore.sdk import verbs
from lakeshore.sdk.streams import AsyncStream


class Gate:
    go, began = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.go, Gate.began = threading.Event(), threading.Event()


@dls.udf
def f(x: int = 1) -> int:
    return x + 1


@dls.udf
def held() -> str:
    Gate.began.set()
    Gate.go.wait(PATIENCE)
    return "done"


def test_sixteen_threads_share_one(q: dls.Dispatch) -> None:
    def work(base: int) -> list[int]:
        ids = [f.submit(base * 100 + n) for n in range(20)]
        return [q.result(inv, timeout=PATIENCE) for inv in ids]

    with working(q, slots=4), ThreadPoolExecutor(16) as pool:
        results = list(pool.map(work, range(16)))
    assert results == [[base * 100 + n + 1 for n in range(20)] for base in range(16)]


def test_threads_that_open_at_once_open_one_plane(address: str, backend: Any) -> None:
    q = dls.Dispatch(address, backend=backend)
    barrier = threading.Barrier(16)

    def submit(_: int) -> str:
        barrier.wait()
        return f.submit(_dispatch=q)

    with q, ThreadPoolExecutor(16) as pool:
        ids = list(pool.map(submit, range(16)))
        assert {job.id for job in q.jobs.list()} == set(ids)


def test_faces_of_one_path_that_open_at_once_are_one_plane(tmp_path: Path, backend: Any) -> None:
    faces = [dls.Dispatch(tmp_path / "plane.db", backend=backend) for _ in range(8)]
    barrier = threading.Barrier(8)

    def submit(face: dls.Dispatch) -> str:
        barrier.wait()
        return f.submit(_dispatch=face)

    try:
        with ThreadPoolExecutor(8) as pool:
            ids = list(pool.map(submit, faces))
        assert {job.id for job in faces[0].jobs.list()} == set(ids)
        assert len({id(face.host()) for face in faces}) == 1
    finally:
        for face in faces:
            face.close()


def test_a_path_may_be_closed_and_opened_over_and_over(tmp_path: Path, backend: Any) -> None:
    def churn(n: int) -> str:
        with dls.Dispatch(tmp_path / "plane.db", backend=backend) as face:
            return f.submit(n, _dispatch=face)

    with ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(churn, range(40)))
    with dls.Dispatch(tmp_path / "plane.db") as q:
        assert {job.id for job in q.jobs.list(limit=200)} == set(ids)


def test_the_last_face_ends_the_plane(tmp_path: Path, backend: Any) -> None:
    one = dls.Dispatch(tmp_path / "plane.db", backend=backend)
    two = dls.Dispatch(str(tmp_path / "x" / ".." / "plane.db"))
    other = dls.Dispatch(tmp_path / "plane.db", namespace="other")
    inv = f.submit(5, _dispatch=one)
    assert two.get(inv).state == "queued"
    assert other.jobs.list() == []
    one.close()
    dls.run_worker(two, once=True)
    assert two.result(inv) == 6
    two.close()
    other.close()
    assert not [thread for thread in threading.enumerate() if "lakeshore" in thread.name.lower()]


def test_every_memory_plane_is_its_own(backend: Any) -> None:
    with dls.Dispatch(":memory:", backend=backend) as one, dls.Dispatch(":memory:") as two:
        inv = f.submit(_dispatch=one)
        with pytest.raises(dls.NotFound):
            two.get(inv)


# waiting


def test_a_wait_that_runs_out_leaves_the_invocation_alone(q: dls.Dispatch) -> None:
    inv = f.submit()
    for timeout in (0.01, 0, -1):
        with pytest.raises(TimeoutError, match="goes on"):
            q.result(inv, timeout=timeout)
    assert q.get(inv).state == "queued"
    dls.run_worker(q, once=True)
    assert q.result(inv, timeout=0) == 2
    assert q.result(inv, timeout=PATIENCE) == 2


def test_waits_are_forgotten(q: dls.Dispatch) -> None:
    inv = f.submit()
    for _ in range(20):
        with pytest.raises(TimeoutError):
            q.result(inv, timeout=0.001)
    q.get(inv)
    entry = q.host().hosted.head.space("default").live[next(iter(q.host().hosted.head.space("default").live))]
    assert not entry.waiters
    assert not q.connection().client()._waiting  # pyright: ignore[reportPrivateUsage]


def test_many_wait_for_one(q: dls.Dispatch) -> None:
    inv = f.submit()
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(q.result, inv, timeout=PATIENCE) for _ in range(20)]
        dls.run_worker(q, once=True)
        assert [future.result() for future in waiting] == [2] * 20


def test_a_wait_can_be_interrupted(tmp_path: Path) -> None:
    out = python(
        """
        import os, signal, threading
        import lakeshore as dls
        q = dls.Dispatch(":memory:")
        inv = q.submit(len, [])
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            q.result(inv)
        except KeyboardInterrupt:
            print("interrupted", q.get(inv).state)
        """,
        tmp_path,
    )
    assert out == "interrupted queued"


# loops


@pytest.mark.anyio
async def test_in_a_notebook_cell(address: str, backend: Any, anyio_backend: Any) -> None:
    with dls.Dispatch(address, backend=backend) as q:  # another loop runs in this thread
        with working(q):
            assert q.result(f.submit(1)) == 2
            inv = await f.asubmit(2)
            assert q.result(inv, timeout=PATIENCE) == 3
            assert [frame.value for frame in q.stream(q.submit(letters))] == ["a", "b"]
        with pytest.raises(dls.WouldDeadlock, match="arun_worker"):
            dls.run_worker(q, once=True)
        f.submit(3)
        assert await dls.arun_worker(q, once=True) == 1


def letters():
    yield "a"
    yield "b"


@pytest.mark.anyio
async def test_blocking_on_the_plane_s_own_loop_is_refused(tmp_path: Path, anyio_backend: Any) -> None:
    path = tmp_path / "plane.db"
    async with dls.AsyncDispatch(path):
        with dls.Dispatch(path) as q:
            for call in (
                lambda: q.submit(f),
                lambda: q.submit_many(f, [1]),
                lambda: f.submit(),
                lambda: q.result("01JD2K7Q0000000000000000ZZ"),
                lambda: next(q.stream("01JD2K7Q0000000000000000ZZ")),
                lambda: q.jobs.list(),
                lambda: dls.udf(f.fn, queue="x")(1),
                lambda: dls.run_worker(q, once=True),
            ):
                with pytest.raises(dls.WouldDeadlock, match="await"):
                    call()
            assert len(await f.asubmit_many([1, 2], _dispatch=q)) == 2


@dls.udf
async def blocks() -> str:
    try:
        f.submit()
    except dls.WouldDeadlock as error:
        return str(error)
    return ""


@dls.udf
async def blocks_in_a_thread() -> int:
    inv = await anyio.to_thread.run_sync(f.submit)
    return len(inv)


def test_blocking_inside_an_async_body_is_refused(q: dls.Dispatch) -> None:
    ids = [blocks.submit(), blocks_in_a_thread.submit()]
    for _ in ids:
        dls.run_worker(q, once=True)
    assert "asubmit" in q.result(ids[0])
    assert q.result(ids[1]) == 26


@dls.udf
def child_and_wait(x: int) -> Any:
    return dls.udf(f.fn, queue="children")(x)


def test_a_sync_body_may_block(q: dls.Dispatch) -> None:
    inv = child_and_wait.submit(4)
    with working(q, slots=2):
        assert q.result(inv, timeout=PATIENCE) == 5


# closing


def test_after_close_every_verb_says_so(q: dls.Dispatch) -> None:
    inv = f.submit()
    q.close()
    q.close()
    for call in (
        lambda: q.get(inv),
        lambda: q.submit(f),
        lambda: q.jobs.list(),
        lambda: q.topic("t").post(1),
    ):
        with pytest.raises(dls.PlaneClosed, match="make a new Dispatch"):
            call()


def test_close_wakes_those_who_wait(q: dls.Dispatch) -> None:
    inv = f.submit()
    with elsewhere(q.result, inv) as waiting:
        q.jobs.list()
        q.close()
        with pytest.raises(dls.PlaneClosed):
            waiting.result(PATIENCE)


def test_close_under_fire_hangs_nobody(address: str, backend: Any) -> None:
    for _ in range(5):
        q = dls.Dispatch(address, backend=backend)
        stopped = []

        def hammer() -> None:
            try:
                while True:
                    f.submit(_dispatch=q)  # noqa: B023
            except dls.PlaneClosed:
                stopped.append(True)  # noqa: B023

        threads = [threading.Thread(target=hammer) for _ in range(8)]
        for thread in threads:
            thread.start()
        q.close()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(stopped) == 8


def test_close_lets_a_worker_finish(q: dls.Dispatch) -> None:
    inv = held.submit()
    with elsewhere(dls.run_worker, q) as worker:
        assert Gate.began.wait(PATIENCE)
        with elsewhere(q.result, inv) as result:
            q.get(inv)
            with elsewhere(q.close) as closing:
                Gate.go.set()
                closing.result(PATIENCE)
            assert result.result(PATIENCE) == "done"
        assert worker.result(PATIENCE) == 1


def test_a_memory_plane_that_was_never_used_closes(backend: Any) -> None:
    dls.Dispatch(":memory:", backend=backend).close()
    with dls.Dispatch(":memory:", backend=backend):
        pass


SCRIPT = """
import sys, threading, time
import lakeshore as dls

q = dls.Dispatch(sys.argv[1], backend=sys.argv[2])

def stuck():
    time.sleep(60)

inv = q.submit(stuck)
threading.Thread(target=dls.run_worker, args=(q,), daemon=sys.argv[3] == "daemon").start()
while q.get(inv).state == "queued":
    time.sleep(0.01)
print(time.time())
"""


@pytest.mark.parametrize("thread", ["daemon", "joined by the interpreter"])
def test_exit_closes_within_two_seconds(address: str, backend: Any, tmp_path: Path, thread: str) -> None:
    began = float(python(SCRIPT, tmp_path, address, backend, thread))
    assert time.time() - began < 4  # 2 s, and the interpreter's own end


@pytest.mark.parametrize("body", ["idle", "async"])
def test_exit_ends_a_worker_on_a_thread_that_is_no_daemon(
    address: str, backend: Any, tmp_path: Path, body: str
) -> None:
    script = """
    import subprocess, sys, threading, time
    import anyio
    import lakeshore as dls

    if len(sys.argv) == 4:
        done = subprocess.run([sys.executable, __file__, *sys.argv[1:], ""], capture_output=True, text=True)
        print(repr(done.stderr), done.stdout)
        sys.exit(done.returncode)
    q = dls.Dispatch(sys.argv[1], backend=sys.argv[2])

    async def stuck():
        await anyio.sleep(60)

    threading.Thread(target=dls.run_worker, args=(q,)).start()
    while not q.workers.list():
        time.sleep(0.01)
    if sys.argv[3] == "async":
        inv = q.submit(stuck)
        while q.get(inv).state == "queued":
            time.sleep(0.01)
    print(time.time())
    """
    stderr, began = python(script, tmp_path, address, backend, body).split()
    assert stderr == "''"
    assert time.time() - float(began) < 4


@pytest.mark.anyio
async def test_a_cancel_is_not_replaced_by_the_end_of_the_plane(
    address: str, backend: Any, anyio_backend: Any
) -> None:
    q = dls.Dispatch(address, backend=backend)
    inv = await f.asubmit(_dispatch=q)
    connection, verb, ends = q.connection(), verbs.result(inv), []
    stream = AsyncStream[Any](connection, verbs.known(inv), 0, ())

    async def wait(call: Any, *args: Any) -> None:
        try:
            await call(*args)
        except BaseException as error:
            ends.append(type(error))
            raise

    async with anyio.create_task_group() as waits:
        waits.start_soon(wait, connection.call, verb.make(connection.number()), verb.id)
        waits.start_soon(wait, stream.__anext__)
        await anyio.sleep(0.1)
        waits.cancel_scope.cancel()
        q.close()
    assert ends == [anyio.get_cancelled_exc_class()] * 2


def test_nothing_is_left_behind(address: str, backend: Any) -> None:
    before = set(threading.enumerate())
    with dls.Dispatch(address, backend=backend) as q:
        inv = f.submit()
        dls.run_worker(q, once=True)
        q.result(inv)
        list(q.stream(inv))
    assert set(threading.enumerate()) <= before


# ids and forks


def test_an_id_is_above_those_that_other_threads_were_given() -> None:
    now, made = 1, list[bytes]()

    def entropy(count: int) -> bytes:  # in the middle of the first id another thread wants one
        nonlocal now
        if now == 1:
            now = 2
            other.start()
            other.join(0.2)
        return bytes(count)

    make = IdMaker(lambda: now, entropy, threading.Lock)
    other = threading.Thread(target=lambda: made.append(make()))
    first = make()
    other.join(PATIENCE)
    assert first < made[0] < make()


def test_a_forked_child_makes_ids_of_its_own(tmp_path: Path) -> None:
    out = python(
        """
        import os, time
        from lakeshore.core import plane
        from lakeshore.sdk import forks, functions

        plane.new_id._clock_ms = lambda: 1 << 45  # time stands still
        last, mark, count = plane.new_id(), functions.process_mark(), forks.count
        read, write = os.pipe()
        pid = os.fork()
        mine = [plane.new_id() for _ in range(1000)]
        assert mine == sorted(mine) and mine[0] > last
        if pid == 0:
            assert functions.process_mark() != mark and forks.count == count + 1
            os.write(write, b"".join(mine))
            os._exit(0)
        assert functions.process_mark() == mark and forks.count == count
        theirs = os.read(read, 16_000)
        assert os.waitpid(pid, 0)[1] == 0
        print(len({*mine, *(theirs[n : n + 16] for n in range(0, len(theirs), 16))}))
        """,
        tmp_path,
    )
    assert out == "2000"


def test_a_forked_child(tmp_path: Path, backend: Any) -> None:
    out = python(
        """
        import os, sys
        import lakeshore as dls

        @dls.udf
        def f(x):
            return x + 1

        def child(check):
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    text = check()
                except BaseException as error:
                    text = f"{type(error).__name__}: {error}"
                os.write(write, str(text).encode())
                os._exit(0)
            os.close(write)
            os.waitpid(pid, 0)
            return os.read(read, 10_000).decode()

        memory = dls.Dispatch(":memory:", backend=sys.argv[2])
        memory.jobs.list()
        print(child(memory.jobs.list))
        fresh = dls.Dispatch(":memory:", backend=sys.argv[2])
        print(child(lambda: len(fresh.jobs.list())))
        file = dls.Dispatch(sys.argv[1], backend=sys.argv[2])
        inv = f.submit(1, _dispatch=file)
        print(child(lambda: file.get(inv)).replace(str(os.getpid()), "PARENT"))
        file.close()
        late = dls.Dispatch(sys.argv[1])

        def whole():
            with late:
                ids = [inv, f.submit(5)]
                dls.run_worker(late, drain=True)
                return [late.result(i) for i in ids]

        print(child(whole))
        print(late.result(inv))
        memory.close()
        """,
        tmp_path,
        tmp_path / "plane.db",
        backend,
    ).splitlines()
    assert out[0].startswith("ForkedPlane: ")
    assert "share a file path" in out[0]
    assert out[1] == "0"
    assert out[2].startswith("Invocation(")  # through a socket: the plane is the parent's
    assert out[3] == "[2, 6]"
    assert out[4] == "2"


def test_a_dropped_plane_frees_what_it_held(backend: Any) -> None:
    with dls.Dispatch(":memory:", backend=backend) as q:
        for x in range(50):
            f.submit(x)
        dls.run_worker(q, drain=True)
        q.jobs.list()
        assert not q.host().hosted.head.space("default").live
    gc.collect()


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_it_works_on_a_loop_that_anyio_did_not_start(loop: str, address: str) -> None:
    async def main() -> int:
        async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
            await tasks.start(dls.arun_worker, q)
            result = await q.result(await q.submit(soon, 4))
            tasks.cancel_scope.cancel()
        return result

    assert (trio.run(main) if loop == "trio" else asyncio.run(main())) == 5


async def soon(x: int) -> int:
    await anyio.lowlevel.checkpoint()
    return x + 1
