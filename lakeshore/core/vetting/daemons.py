"""What the parents of daemons send, and whoever has a command run there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakeshore.core import messages as m

from . import values as v

MOST_CREDIT = 16 << 20  # bytes of output on their way
_WORDS, _COMMAND = 4096, 128 << 10  # of a command, and characters in all
_PIECE = 1 << 20  # bytes of output in one message
_STATUS = 1 << 16


def _exec(message: m.Exec, limit: int) -> str:
    words = message.command
    size = sum(map(len, words))
    if not 1 <= len(words) <= _WORDS or not words[0] or size > _COMMAND:
        return f"command has {len(words)} words of {size} characters: send 1 to {_WORDS}, at most {_COMMAND}"
    if any("\0" in word for word in words):
        return "command holds a NUL"
    return (
        v.whole("req", message.req)
        or v.text("name", message.name, v.NAME, 1)
        or v.whole("credit", message.credit, 1, MOST_CREDIT)
    )


def _minding(message: m.Minding, limit: int) -> str:
    return v.an_id("worker", message.worker)


def _output(message: m.Output, limit: int) -> str:
    return (
        v.whole("exec", message.exec)
        or v.whole("stream", message.stream, 1, 2)
        or v.size("data", message.data, _PIECE, 1)
    )


def _exited(message: m.Exited, limit: int) -> str:
    return (
        v.whole("exec", message.exec)
        or v.whole("status", message.status, -_STATUS, _STATUS)
        or v.text("error", message.error, v.TEXT)
    )


CHECKS: dict[type, Callable[[Any, int], str]] = {
    m.Exec: _exec,
    m.Minding: _minding,
    m.Output: _output,
    m.Exited: _exited,
}
