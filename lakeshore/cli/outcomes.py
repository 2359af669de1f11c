"""`lakeshore jobs result` and `lakeshore jobs stream`."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from . import plane, printing
from .parameters import Flag, Index, Json, Seconds
from .values import jsonable, text

if TYPE_CHECKING:
    from lakeshore import Frame


def result(
    id: str,
    /,
    *,
    timeout: Seconds | None = None,
    no_wait: Flag = False,
    json: Annotated[Flag, Parameter(name="--json", help="Print the bare value as JSON.")] = False,
) -> None:
    """Wait for a job's end and print its value. A job that did not succeed ends with status 1.

    Example: lakeshore jobs result 01K2Z7M3Q4W5E6R7T8Y9ZABCDE --timeout 60

    Args:
        id: The job's id.
        timeout: Seconds to wait; the job goes on when they are over. Without it, no limit.
        no_wait: Fail at once where it has not ended.
    """
    with plane.opened() as q, _waiting(id):
        value = q.result(id, timeout=0 if no_wait else timeout)
    if json:
        printing.document(jsonable(value))
    else:
        print(text(value))


def stream(id: str, /, *, since: Index = 0, json: Json = False) -> None:
    """Print the values that a generator yields, as they come, until it ends.

    Example: lakeshore jobs stream 01K2Z7M3Q4W5E6R7T8Y9ZABCDE --since 100

    Args:
        id: The job's id.
        since: The number of the first value; 0 is the first of all.
    """
    with plane.opened() as q:
        attempt = 0
        for frame in q.stream(id, since=since):
            if attempt not in (0, frame.attempt):
                printing.note(f"attempt {frame.attempt} began anew: what follows is not a continuation")
            attempt = frame.attempt
            show_frame(frame, json)


def show_frame(frame: Frame[Any], json: bool) -> None:
    """One value, at once; with JSON, its number, attempt and time, too."""
    if json:
        fields = {"seq": frame.seq, "value": frame.value, "attempt": frame.attempt, "at": frame.time}
        printing.line(jsonable(fields))
    else:
        print(text(frame.value), flush=True)


@contextmanager
def _waiting(id: str) -> Generator[None]:
    """At a terminal, something that moves."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"waiting for {id}"):
        yield
