"""Workers as an operator sees them: shown, drained and removed, by id or name; and their jobs."""

from pathlib import Path
from typing import Any

import pytest
from planes import PATIENCE, working

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.ids import text_of
from lakeshore.testing.hand import HandPlane


@dls.udf
def f(x: int = 1) -> int:
    return x


def id_of(worker: Any) -> str:
    return text_of(worker.worker.hello.worker)


def ask(client: Any, kind: type[Any], *fields: Any) -> Any:
    return client.answer(client.ask(kind, *fields))


# through the public layer


def test_a_worker_is_drained(q: dls.Dispatch) -> None:
    with working(q, name="w1") as future:
        q.result(f.submit(2), timeout=PATIENCE)
        shown = q.workers.show("w1")
        assert shown.id == q.workers.show(shown.id.lower()).id
        assert (shown.name, shown.state, shown.slots) == ("w1", "ready", 1)
        drained = q.workers.drain("w1")
        assert (drained.id, drained.state) == (shown.id, "draining")
        assert future.result(PATIENCE) == 1
    assert q.workers.show("w1").state == "ended"
    for verb in (q.workers.drain, q.workers.remove):
        with pytest.raises(dls.Conflict, match="has ended already"):
            verb("w1")


def test_jobs_of_a_worker_by_name(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        ids = f.submit_many(range(3))
        for name in ("old", "new", "old"):
            dls.run_worker(q, once=True, name=name)
    with dls.Dispatch(path, backend=backend) as q:
        assert [job.id for job in q.jobs.list(worker="new")] == [ids[1]]
        assert [job.id for job in q.jobs.list(worker="old")] == [ids[2]]  # the last of that name
        worker = q.get(ids[0]).worker
        assert worker is not None
        assert [job.id for job in q.jobs.list(worker=worker)] == [ids[0]]
        assert q.jobs.list(worker=ids[0]) == []  # the id of no worker
        assert q.workers.show(worker).id == worker


def test_of_no_such_worker(q: dls.Dispatch) -> None:
    with working(q, name="loader"):
        q.result(f.submit(), timeout=PATIENCE)
        for call in (
            lambda: q.workers.show("loade"),
            lambda: q.workers.drain("loade"),
            lambda: q.workers.remove("loade"),
            lambda: q.jobs.list(worker="loade"),
        ):
            with pytest.raises(
                dls.NotFound, match=r"no worker 'loade': did you mean 'loader'\? Else `lakeshore"
            ):
                call()


@pytest.mark.parametrize("worker", ["", "\ud800"])
def test_what_is_no_name(worker: str) -> None:
    with dls.Dispatch(":memory:") as q, pytest.raises(ValueError, match="worker"):
        q.workers.show(worker)


@pytest.mark.anyio
async def test_as_coroutines(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        await q.submit(f)
        assert await dls.arun_worker(q, once=True, name="w1") == 1
        assert (await q.workers.show("w1")).state == "ended"
        assert len(await q.jobs.list(worker="w1")) == 1
        with pytest.raises(dls.Conflict):
            await q.workers.drain("w1")
        with pytest.raises(dls.Conflict):
            await q.workers.remove("w1")


# by hand


def test_several_of_one_name_are_named_by_their_ids() -> None:
    plane = HandPlane()
    client = plane.client()
    one, two = plane.worker(name="twin"), plane.worker(name="twin")
    for kind in (m.ShowWorker, m.DrainWorker, m.RemoveWorker):
        answer = ask(client, kind, "twin")
        assert answer.kind == "Conflict"
        assert f"({id_of(one)}, {id_of(two)})" in answer.message
    assert ask(client, m.ListJobs, None, (), None, 50, 0, "twin").kind == "Conflict"
    assert ask(client, m.ShowWorker, id_of(two)).value["id"] == id_of(two)
    one.link.close()
    assert ask(client, m.ShowWorker, "twin").value["id"] == id_of(two)


def test_a_drained_worker_takes_nothing_more() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(name="w", slots=2)
    first = client.submit()
    assert ask(client, m.DrainWorker, "w").value["state"] == "draining"
    second = client.submit()
    assert worker.started == [first]
    assert any(isinstance(message, m.PleaseDrain) for message in worker.received)
    worker.finish(first)
    assert client.state(first) == "succeeded"
    assert client.state(second) == "queued"


def test_the_work_of_a_removed_worker_is_killed() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(name="w")
    ids = [client.submit() for _ in range(2)]
    answer = ask(client, m.RemoveWorker, id_of(worker)).value
    assert (answer["id"], answer["state"]) == (id_of(worker), "ended")
    assert worker.dismissed == ["an operator removed its worker"]
    assert [client.state(id) for id in ids] == ["killed", "queued"]
    assert client.record(ids[0]).reason == "an operator removed its worker"
    assert ask(client, m.ListWorkers).value == []
    other = plane.worker()
    plane.settle()
    assert other.started == [ids[1]]
