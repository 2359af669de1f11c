"""What a process that runs on says of itself, on stderr: lines for people, or JSON for programs."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from lakeshore.sdk.logs import handler

LogFormat = Literal["text", "json"]


@contextmanager
def logging_to_stderr(form: LogFormat) -> Generator[None]:
    """Inside, log records from INFO on go to stderr."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = [handler(form)]
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers[:] = handlers
        root.setLevel(level)
