"""What a process that runs on says of itself, on stderr: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


def to_stderr(form: str) -> None:
    """Log records from INFO on go to stderr, as "text" or as "json", and nowhere else."""
    root = logging.getLogger()
    root.handlers[:] = [handler(form)]
    root.setLevel(logging.INFO)


def handler(form: str) -> logging.Handler:
    """What writes log records to stderr."""
    made = logging.StreamHandler()
    made.setFormatter(Lines() if form == "json" else Text())
    return made


class Text(logging.Formatter):
    """A line a record, and a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text; what others have said in it stays on its line."""
        text = f"{_time(record)} {record.levelname} {record.name}: {_one_line(record.getMessage())}"
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


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z"
