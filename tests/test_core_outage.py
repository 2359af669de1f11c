"""A store that can't be written is still read: what was stored can be looked at."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.testing.hand import HandPlane


def ended_plane() -> tuple[HandPlane, Any, Any, dict[str, bytes]]:
    """A plane with one succeeded, one failed, one killed invocation and a stream, whose disk is full now."""
    plane = HandPlane()
    client, worker = plane.client(), plane.worker(slots=4)
    ids = {name: client.submit() for name in ("succeeded", "failed", "stream", "killed")}
    worker.give(ids["stream"], 1, 2)
    worker.finish(ids["stream"])
    worker.finish(ids["succeeded"], "x" * 5000)
    worker.fail(ids["failed"], ValueError("no"))
    client.kill(ids["killed"], running=True)
    worker.stop(ids["killed"])
    plane.settle()
    plane.store.refuse = OSError(28, "No space left on device")
    client.answer(client.start("doomed")[1])
    return plane, client, worker, ids


@pytest.mark.parametrize("name", ["succeeded", "failed", "stream", "killed"])
def test_what_has_ended_is_answered_while_the_disk_is_full(name: str) -> None:
    plane, client, _, ids = ended_plane()
    assert plane.engine.store_error is not None
    state = "succeeded" if name == "stream" else name
    outcome = client.answer(client.ask(m.Wait, ids[name]))
    assert outcome.state == state
    ((row, _),) = client.answer(client.ask(m.Get, ids[name])).rows
    assert row.state == state
    assert client.answer(client.ask(m.Why, ids[name])).value
    answer = client.answer(client.ask(m.Kill, ids[name]))
    assert isinstance(answer, m.Answer if name == "killed" else m.Refusal)


def test_lists_and_streams_are_given_while_the_disk_is_full() -> None:
    _, client, _, ids = ended_plane()
    rows = client.answer(client.ask(m.ListJobs)).rows
    assert {row.id for row, _ in rows} >= set(ids.values())
    stream = client.follow(ids["stream"])
    assert [value for _, _, value in client.frames(stream)] == [1, 2]
    assert client.end(stream) is not None


def test_what_is_not_stored_yet_stays_unsaid() -> None:
    plane, client, worker, _ = ended_plane()
    (waiting,) = plane.head.spaces["default"].live
    asked = client.ask(m.Get, waiting)
    assert client.answer(asked) is None
    assert waiting not in worker.started
    plane.store.refuse = None
    plane.advance(10.0)
    assert waiting in worker.started
    ((row, _),) = client.answer(asked).rows
    assert row.state in ("queued", "running")
