"""`lakeshore jobs logs`."""

from __future__ import annotations

import re
from collections.abc import Generator
from datetime import UTC
from typing import TYPE_CHECKING, Any

from . import plane, printing
from .parameters import Flag, Index, Json

if TYPE_CHECKING:
    from lakeshore import Dispatch, LogLine

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")


def logs(id: str, /, *, follow: Flag = False, since: Index = 0, json: Json = False) -> None:
    """Print what a job has said: dls.run.log, logging, stdout and stderr, of every attempt.

    Example: lakeshore jobs logs 01K2Z7M3Q4W5E6R7T8Y9ZABCDE --follow

    Args:
        id: The job's id.
        follow: Go on until the job ends.
        since: The number of the first line; 0 is the first of all.
    """
    with plane.opened() as q:
        lines = _lines(q, id, since, follow)
        if json and not follow:
            printing.document([_fields(line) for line in lines])
            return
        for line in lines:
            if json:
                printing.line(_fields(line))
            else:
                print(_text(line), flush=follow)


def _lines(q: Dispatch, id: str, since: int, follow: bool) -> Generator[LogLine]:
    """Each line; what is missing is told."""
    from lakeshore import Gap

    while True:
        log = q.logs(id, since=since, follow=follow)
        try:
            yield from log
            return
        except Gap as gap:
            if gap.first > log.cursor:
                printing.note(f"lines {log.cursor} to {gap.first - 1} are not kept any more")
            else:
                printing.note(f"there are {gap.first} lines, and none from number {log.cursor} on")
            since = gap.first


def _fields(line: LogLine) -> dict[str, Any]:
    return {
        "seq": line.seq,
        "at": line.time,
        "attempt": line.attempt,
        "source": line.source,
        "level": line.level,
        "text": line.text,
    }


def _text(line: LogLine) -> str:
    time = line.time.astimezone(UTC)
    attempt = f" [attempt {line.attempt}]" if line.attempt > 1 else ""
    said = _safe(f"{line.level} {line.text}")
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time.microsecond // 1000:03}Z{attempt} {said}"


def _safe(text: str) -> str:
    """Text that does nothing to a terminal: colours go, other control characters are spelled out."""
    text = _COLOURS.sub("", text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else ascii(c)[1:-1] for c in text)
