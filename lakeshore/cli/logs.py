"""What a process that runs on says of itself, on stderr: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Literal

from .errors import one_line

LogFormat = Literal["text", "json"]


@contextmanager
def logging_to_stderr(form: LogFormat) -> Generator[None]:
    """Inside, log records from INFO on go to stderr."""
    root = logging.getLogger()
    handler = logging.StreamHandler()
    handler.setFormatter(Lines() if form == "json" else Text())
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class Text(logging.Formatter):
    """A line a record, and a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text; what others have said in it stays on its line."""
        text = f"{_time(record)} {record.levelname} {record.name}: {one_line(record.getMessage())}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class Lines(logging.Formatter):
    """A JSON object a record: time, level, logger, message, and exception where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        said = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
