"""Reading the log of an invocation: what its bodies have said."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from lakeshore.core.logbook import unpack_lines
from lakeshore.core.messages import Chunk, FollowLogs

from .checks import flag
from .connection import Connection
from .records import moment
from .streams import ROOM, WINDOW, AsyncReading, BlockingReading, Reading, from_cursor


class LogLine(Struct, frozen=True):
    """One line of an invocation's log.

    Attributes:
        seq: its number, from 0 across attempts.
        at: when it was said, in seconds since 1970 (`time` is the same as an aware datetime).
        attempt: which attempt said it.
        source: log (`dls.run.log`), logging, stdout, stderr, progress, or worker, which says what is
            missing.
        level: debug, info, warning, error or critical; of `logging` whatever it is called there.
        text: without a newline.
    """

    seq: int
    at: float
    attempt: int
    source: str
    level: str
    text: str

    @property
    def time(self) -> datetime:
        """When it was said."""
        found = moment(self.at)
        assert found is not None
        return found


class _Lines(Reading):
    """Lines of an invocation."""

    def __init__(self, connection: Connection, id: bytes, since: int, follow: bool) -> None:
        since = from_cursor(since)
        flag("follow", follow)

        def request(req: int) -> Any:
            return FollowLogs(req, id, since, WINDOW, ROOM, follow)

        super().__init__(connection, request, since)

    def _items(self, chunk: Chunk) -> list[LogLine]:
        return [
            LogLine(chunk.seq + number, at, chunk.attempt, source, level, text)
            for number, (at, source, level, text) in enumerate(unpack_lines(chunk.data))
        ]


class Log(BlockingReading[LogLine], _Lines):
    """Lines of an invocation's log; iterate it, in a `for`.

    `cursor` is the `since` that goes on after the last line given. Usable in `with`.
    """

    cursor: int


class AsyncLog(AsyncReading[LogLine], _Lines):
    """Lines of an invocation's log; iterate it, in an `async for`.

    `cursor` is the `since` that goes on after the last line given. Usable in `async with`.
    """

    cursor: int
