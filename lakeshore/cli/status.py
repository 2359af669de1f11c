"""`lakeshore status`."""

from __future__ import annotations

from . import plane, printing
from .parameters import Json


def status(*, json: Json = False) -> None:
    """What the head is doing: its store, queues, workers and jobs."""
    with plane.opened() as q:
        printing.show(printing.record(q.status()), json)
