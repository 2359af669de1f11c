"""A body ends the same way in a process of its own as in its worker's."""

from __future__ import annotations

from typing import Any

import process_jobs as jobs
from planes import PATIENCE, working
from processes import processes

import lakeshore as dls

CALLS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (jobs.double, (2,), {}),
    (jobs.double, ([1, (2, {"a": b"x"})],), {}),
    (jobs.double, (None,), {}),
    (jobs.gen, (100,), {}),
    (jobs.agen, (100,), {}),
    (jobs.lock, (), {}),
    (jobs.yields_a_lock, (), {}),
    (jobs.raises, ("group",), {}),
    (jobs.raises, ("exit",), {}),
    (jobs.raises, ("interrupt",), {}),
    (jobs.raises, ("retry",), {}),
    (jobs.araises, ("cancel",), {}),
    (jobs.waits_for_good, (), {"_timeout": 0.05}),
    (jobs.looks, (), {"_timeout": 0.05}),
]


def outcomes(q: dls.Dispatch) -> list[object]:
    invs = [q.submit(fn, *args, **options) for fn, args, options in CALLS]
    found: list[object] = []
    for inv in invs:
        frames: list[object] = []
        try:
            frames += [frame.value for frame in q.stream(inv)]
            ended: object = q.result(inv, timeout=PATIENCE)
        except dls.Unsuccessful as error:
            ended = type(error), getattr(error, "type", ""), str(error), getattr(error, "notes", ())
        record = q.get(inv)
        found.append((record.function, frames, ended, record.state, [a.outcome for a in record.attempts]))
    return found


def test_the_same_outcome(backend: Any) -> None:
    with dls.Dispatch(":memory:", backend=backend) as q:
        with working(q):
            inline = outcomes(q)
        with processes(q, 2):
            apart = outcomes(q)
    for one, other in zip(inline, apart, strict=True):
        assert one == other
