"""What was decided about a queue: written down with it, listed newest first, pruned like the rest."""

from pathlib import Path
from typing import Any

import pytest

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.rows import EventRow, ListWorkers, WorkerRow
from lakeshore.testing.hand import HandPlane


def test_changes_of_settings(q: dls.Dispatch) -> None:
    q.queues.add("q1", max_depth=10)
    q.queues.patch("q1", max_depth=20, description="prod")
    q.queues.patch("q1", max_depth=20)  # changes nothing
    patched, added = q.queues.events("q1")
    assert (added.kind, added.queue, added.count, added.did) == ("config_changed", "q1", 1, {"added": "q1"})
    assert patched.kind == "config_changed"
    assert patched.did == {
        "description": {"before": "", "after": "prod"},
        "max_depth": {"before": 10, "after": 20},
    }
    assert "max_depth from 10 to 20" in patched.why
    assert patched.id > added.id
    assert patched.at >= added.at
    assert (patched.signals, patched.want, patched.memory_before, patched.memory_after) == (
        {},
        None,
        None,
        None,
    )
    assert q.queues.events("default") == []


def test_changes_of_state(q: dls.Dispatch) -> None:
    q.queues.add("q1")
    for move in (q.queues.pause, q.queues.pause, q.queues.resume, q.queues.archive, q.queues.unarchive):
        move("q1")
    events = q.queues.events("q1")[:-1]
    assert {event.kind for event in events} == {"state_changed"}
    moves = [(event.did["before"], event.did["after"]) for event in reversed(events)]
    assert moves == [
        ("active", "paused"),
        ("paused", "active"),
        ("active", "archived"),
        ("archived", "active"),
    ]
    assert "resume" in events[2].why


def test_what_was_refused_is_no_event(q: dls.Dispatch) -> None:
    q.queues.add("q1")
    q.queues.drain("q1")
    with pytest.raises(dls.Conflict):
        q.queues.pause("q1")
    with pytest.raises(dls.Conflict):
        q.queues.patch("q1", min=1)
    assert [event.kind for event in q.queues.events("q1")] == ["state_changed", "config_changed"]


def test_the_newest_come_first(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        for n in range(1, 6):
            q.queues.patch("default", max_depth=n)
        asked = q.queues.show("default").id
    with dls.Dispatch(path, backend=backend) as q:
        found = [event.did["max_depth"]["after"] for event in q.queues.events(asked, limit=3)]
        assert found == [5, 4, 3]
        assert len(q.queues.events("default", verbose=True)) == 5


@pytest.mark.parametrize("limit", [0, 201, -1])
def test_a_limit_out_of_range(limit: int) -> None:
    with dls.Dispatch(":memory:") as q, pytest.raises(ValueError, match="limit"):
        q.queues.events("default", limit=limit)


def test_of_no_queue(q: dls.Dispatch) -> None:
    with pytest.raises(dls.NotFound, match="did you mean 'default'"):
        q.queues.events("defaul")


@pytest.mark.anyio
async def test_as_coroutines(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        await q.queues.add("q1")
        assert [event.kind for event in await q.queues.events("q1", limit=200)] == ["config_changed"]


def test_noops_are_shown_on_request() -> None:
    plane = HandPlane()
    client = plane.client()
    queue = plane.head.spaces["default"].queues["default"]
    data = {"at": 0.0, "kind": "tick_noop"}
    plane.engine.batch.put(EventRow("default", queue.id, plane.new_id(), data, noop=True))
    plane.settle()
    assert client.answer(client.ask(m.QueueEvents, "default")).value == []
    (event,) = client.answer(client.ask(m.QueueEvents, "default", 50, True)).value
    assert (event["kind"], event["queue"]) == ("tick_noop", "default")


def test_they_go_with_the_retention() -> None:
    plane = HandPlane(retention=1000)
    client = plane.client()
    for depth in (1, 2):
        client.ask(m.PatchQueue, "default", {"max_depth": depth})
        plane.settle()
        plane.advance(900)
    client.answer(client.ask(m.PruneJobs, None))
    (event,) = client.answer(client.ask(m.QueueEvents, "default")).value
    assert event["did"]["max_depth"] == {"before": 1, "after": 2}


def test_how_many_workers_serve_the_default_queue_after_a_removal_by_force_is_stored() -> None:
    plane = HandPlane(local=False)
    client = plane.client()
    client.answer(client.ask(m.AddQueue, "q1", {}))
    worker = plane.worker(name="only", queues=("q1",))
    other = plane.worker(name="both", queues=("q1", "default"))
    answer = client.answer(client.ask(m.RemoveQueue, "q1", True))
    assert answer.value == {"name": "q1", "nowServingDefault": ["only"]}
    rows = {row["name"]: row["queues"] for row in client.answer(client.ask(m.ListWorkers)).value}
    assert rows == {"only": [], "both": ["default"]}
    stored: list[WorkerRow] = []
    plane.store.read(ListWorkers("default"), stored.extend)
    assert {row.info["name"]: row.info["queues"] for row in stored} == rows
    id = client.submit()
    plane.settle()
    assert id in worker.started or id in other.started
