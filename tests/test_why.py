"""`jobs why`: what an invocation waits for and what would end that, or where it ran."""

import threading
from pathlib import Path
from typing import Any

import pytest
from planes import PATIENCE, working

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.ids import text_of
from lakeshore.core.rows import Call, Function, Options
from lakeshore.core.settings import declare
from lakeshore.core.values import pack_call
from lakeshore.testing.hand import HandPlane


class Gate:
    go, began = threading.Event(), threading.Event()


@pytest.fixture(autouse=True)
def gate() -> None:
    Gate.go, Gate.began = threading.Event(), threading.Event()


@dls.udf
def f(x: int = 1) -> int:
    return x


@dls.udf
def held() -> None:
    Gate.began.set()
    Gate.go.wait(PATIENCE)


def divide(a: int, b: int) -> float:
    return a / b


# through the public layer


def test_no_worker_a_pause_and_a_limit(q: dls.Dispatch) -> None:
    inv = f.submit()
    assert q.jobs.why(inv) == [
        "no worker serves queue 'default': start one, with `lakeshore daemon start --queue default` or "
        "run_worker in Python",
        "none of the 1 that could be handed out comes before it (fifo: oldest first)",
    ]
    q.queues.pause("default")
    assert "is paused and hands out nothing: `lakeshore resume default` ends that" in q.jobs.why(inv)[0]
    q.queues.archive("default")
    assert "archived and hands out nothing: `lakeshore queues unarchive default`" in q.jobs.why(inv)[0]
    q.queues.unarchive("default")
    q.queues.patch("default", max_running=1)
    blocker = held.submit(_timeout=60)
    q.kill(inv)
    with working(q, slots=2, name="w1"):
        assert Gate.began.wait(PATIENCE)
        inv = f.submit()
        worker = q.workers.show("w1").id
        running, timeout = q.jobs.why(blocker)
        assert running.startswith(f"attempt 1 is running, at worker 'w1' ({worker}) on ")
        assert timeout == "its timeout is 60 s from when its body begins"
        assert "max_running is 1: one has to end, or the limit to be raised" in q.jobs.why(inv)[0]
        Gate.go.set()
        q.result(inv, timeout=PATIENCE)
    first, attempt = q.jobs.why(inv)
    assert first == "it is succeeded"
    assert attempt.startswith(f"attempt 1 at worker 'w1' ({worker}) from 2")
    assert attempt.endswith(" s) succeeded")


def test_where_it_failed_and_what_to_do(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        inv = dls.udf(divide, retries=1, retry_delay=0.001).submit(1, 0)
        dls.run_worker(q, once=True, name="mine")
    with dls.Dispatch(path, backend=backend) as q:
        first, remedy, *attempts = q.jobs.why(inv)
    assert first == "it is failed: builtins.ZeroDivisionError: division by zero"
    assert remedy == f"`lakeshore jobs retry {inv}` submits it anew"
    assert len(attempts) == 2
    for number, attempt in enumerate(attempts, 1):
        assert attempt.startswith(f"attempt {number} at worker 'mine' (")
        assert attempt.endswith(" s) failed: builtins.ZeroDivisionError: division by zero")


@pytest.mark.anyio
async def test_as_a_coroutine(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        inv = await q.submit(f)
        await q.kill(inv)
        assert (await q.jobs.why(inv))[0] == "it is killed: killed"


def test_of_nothing(q: dls.Dispatch) -> None:
    with pytest.raises(dls.NotFound, match="no invocation"):
        q.jobs.why("01ARZ3NDEKTSV4RRFFQ69G5FAV")


# by hand


def why(client: Any, id: bytes) -> list[str]:
    return client.answer(client.ask(m.Why, id)).value


def said(client: Any, id: bytes) -> str:
    return "\n".join(why(client, id))


def test_all_slots_are_busy() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(name="w", slots=2)
    first, second, waits = (client.submit() for _ in range(3))
    text = said(client, waits)
    id = text_of(worker.worker.hello.worker)
    assert "all 1 workers that could run it are taken, so one of their bodies has to end" in text
    assert f"worker 'w' ({id}) (2 of 2 slots busy)" in text
    worker.finish(first)
    plane.settle()
    assert "is running" in why(client, waits)[0]
    assert "is running" in why(client, second)[0]


def test_a_draining_worker_is_named_so() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(name="w")
    busy = client.submit()
    client.answer(client.ask(m.DrainWorker, "w"))
    waits = client.submit()
    assert "(1 of 1 slots busy, draining)" in said(client, waits)
    assert busy in worker.started


def test_delays_and_retry_delays_say_until_when() -> None:
    plane = HandPlane()
    client = plane.client()
    delayed = client.submit(delay=60.0)
    assert why(client, delayed)[0].startswith("its delay ends in 60.0 s, at ")
    assert "before it" not in said(client, delayed)
    worker = plane.worker(name="w")
    id = client.submit(retries=1, retry_delay=50.0, retry_cap=50.0)
    worker.fail(id, ValueError("no"))
    plane.settle()
    text = why(client, id)
    assert text[0].startswith("its retry delay ends in ")
    assert text[-1].endswith("failed: builtins.ValueError: no")


def test_nobody_finds_its_function() -> None:
    plane = HandPlane()
    client = plane.client()
    one, two = plane.worker(name="one", unknown=["f"]), plane.worker(name="two", unknown=["f"])
    id = client.submit("f")
    text = why(client, id)
    assert text[0].startswith("no live worker can find the function f: start one that can import it")
    for sentence, worker, name in ((text[1], one, "one"), (text[2], two, "two")):
        assert sentence.startswith(f"worker {name!r} ({text_of(worker.worker.hello.worker)}) says: ")
        assert len(sentence.partition("says: ")[2]) > 0
    three = plane.worker(name="three")
    plane.settle()
    assert three.started == [id]


def test_a_worker_that_left_says_nothing_any_more() -> None:
    plane = HandPlane()
    client = plane.client()
    one, _two = plane.worker(name="one", unknown=["f"]), plane.worker(name="two", unknown=["f"])
    id = client.submit("f")
    assert "'one'" in said(client, id)
    one.link.close()
    plane.settle()
    assert "'one'" not in said(client, id)
    assert "'two'" in said(client, id)


def test_a_child_that_waits_for_the_slot_of_its_parent() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(name="w")
    parent = client.submit()
    call = Call(Options(Function("f", local="f")), pack_call((), {}), parent=parent)
    child = plane.new_id()
    client.answer(client.ask(m.Submit, child, "default", call))
    assert f"its parent {text_of(parent)} runs in one of the busy slots" in said(client, child)
    assert "parent" not in said(client, client.submit())
    plane.worker(name="another")
    plane.settle()
    assert child not in worker.started
    assert "is running" in why(client, child)[0]


PLACES = {
    "fifo": [0, 1, 2, 3],
    "filo": [3, 2, 1, 0],
    "priority": [3, 1, 2, 0],  # of priorities 0, 5, 5, 9
}


@pytest.mark.parametrize("kind", PLACES)
def test_its_place_in_the_order(kind: str) -> None:
    plane = HandPlane()
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "q", declare({"kind": kind})))
    ids = [client.submit(queue="q", priority=p) for p in (0.0, 5.0, 5.0, 9.0)]
    found = [next(s for s in why(client, id) if "before it" in s) for id in ids]
    assert [0 if s.startswith("none") else int(s.split()[0]) for s in found] == PLACES[kind]
    worker = plane.worker(queues=("q",), slots=4)
    plane.settle()
    assert worker.started == [ids[PLACES[kind].index(place)] for place in range(4)]


@pytest.mark.parametrize("kind", ["fifo", "filo"])
def test_a_place_far_back(kind: str) -> None:
    plane = HandPlane()
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "q", declare({"kind": kind})))
    ids = [client.submit(queue="q") for _ in range(200)]
    for id in ids[::3]:
        client.ask(m.Kill, id)
    plane.settle()
    alive = [id for n, id in enumerate(ids) if n % 3]
    order = alive if kind == "fifo" else alive[::-1]
    for place in (1, 50, 99, len(order) - 1):
        assert f"{place} of the {len(alive)} that could be handed out come" in said(client, order[place])


def test_a_draw_says_its_chance() -> None:
    plane = HandPlane()
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "q", declare({"kind": "boltzmann"})))
    ids = [client.submit(queue="q", priority=p) for p in (0.0, 0.0, -2000.0)]
    assert "a draw among 3 by priority" in said(client, ids[0])
    assert "its chance to be the next is 50.000%" in said(client, ids[0])
    assert "its chance to be the next is 0.000%" in said(client, ids[2])


def test_a_kill_that_waits() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    id = client.submit()
    client.ask(m.Kill, id, True)
    plane.settle()
    assert "it is being killed: its worker is to stop the body" in said(client, id)
    worker.stop(id)
    assert why(client, id)[0].startswith("it is killed")


def test_attempts_that_are_not_kept_are_counted() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(name="w")
    id = client.submit(retries=100)
    for number in range(70):
        worker.fail(id, ValueError(str(number)))
        plane.advance(1000)
    text = why(client, id)
    assert "attempts 11 to 21 are not kept" in text
    assert [line.split()[1] for line in text if line.startswith("attempt ")][:2] == ["71", "1"]
