"""`lakeshore queues events` and `stats`: what the elasticity controller decides, and what it looks at."""

from __future__ import annotations

from typing import Annotated, Any, cast

from cyclopts import Parameter

from . import plane, printing, watching
from .parameters import Flag, Json, Queue, Watch, whole

_MOST_EVENTS = 200

_EVENT_COLUMNS: list[printing.Column] = [
    ("AT", lambda event: event.at),
    ("KIND", lambda event: event.kind),
    ("COUNT", lambda event: event.count),
    ("WANT", lambda event: event.want),
    ("DID", lambda event: _did(event.did)),
    ("WHY", lambda event: event.why),
]


def _did(did: Any) -> Any:
    """What was changed, from what to what."""
    if not isinstance(did, dict):
        return did
    found = cast(dict[str, Any], did)
    if found.keys() == {"before", "after"}:
        found = {"state": found}
    changes = [
        f"{name}: {printing.cell(part['before'])} → {printing.cell(part['after'])}"
        if isinstance(part, dict) and {"before", "after"} <= part.keys()
        else f"{name} {printing.cell(part)}"
        for name, part in found.items()
    ]
    return ", ".join(changes)


def events(
    name: Queue,
    /,
    *,
    verbose: Flag = False,
    limit: Annotated[int, Parameter(converter=whole(1))] = 50,
    json: Json = False,
    watch: Watch = False,
) -> None:
    """What the elasticity controller decided, newest first.

    Example: lakeshore queues events training-h100 --verbose --limit 200

    Args:
        name: Its name or id.
        verbose: Decisions to do nothing (tick_noop), too.
        limit: Most rows, capped at 200.
    """
    if limit > _MOST_EVENTS:
        printing.note(f"--limit {limit} is capped at {_MOST_EVENTS}")
        limit = _MOST_EVENTS
    with plane.opened() as q:
        watching.shown(
            lambda: printing.rows(q.queues.events(name, verbose=verbose, limit=limit), _EVENT_COLUMNS),
            json=json,
            watch=watch,
        )


def stats(name: Queue, /, *, json: Json = False, watch: Watch = False) -> None:
    """What the controller looks at now: workers, utilization, pending jobs, the last scale actions.

    Example: lakeshore queues stats training-h100

    Args:
        name: Its name or id.
    """
    with plane.opened() as q:
        watching.shown(lambda: printing.record(q.queues.stats(name)), json=json, watch=watch)
