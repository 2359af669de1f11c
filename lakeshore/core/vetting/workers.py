"""What workers send, and what their links begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakeshore.core import messages as m
from lakeshore.core.logbook import is_time, unsound
from lakeshore.core.rows import Failure

from . import values as v

MOVES = ("succeed", "fail", "kill", "expire")  # how a body may end
PURPOSES = ("client", "worker", "beat", "daemon", "successor")  # of links
MOST_SLOTS = 1_000_000

_QUEUES = 10_000  # that a worker may name
_FAILURE, _FAILURES, _NESTING = 2 << 20, 256, 32  # characters of an error; errors in it; how deep
_REASON = 1 << 20  # characters
_REFERENCE = 8192  # bytes of a reference to a large value
_LINES = 1 << 20  # bytes of log lines in one message
_CHUNK = 1 << 20  # bytes that frames may take beside one value of the largest size


def _hello(message: m.Hello, limit: int) -> str:
    queues = message.queues
    if len(queues) > _QUEUES:
        return f"queues are {len(queues)}: a worker names at most {_QUEUES}"
    return (
        v.an_id("worker", message.worker)
        or v.whole("slots", message.slots, 1, MOST_SLOTS)
        or ("" if message.limit is None else v.whole("limit", message.limit))
        or v.whole("pid", message.pid)
        or v.text("name", message.name, v.NAME, 1)
        or v.text("host", message.host)
        or v.text("process", message.process)
        or v.text("provider", message.provider or "")
        or next((wrong for name in queues if (wrong := v.queue(name))), "")
        or v.labels("labels", message.labels)
        or v.labels("versions", message.versions)
        or _held(message)
    )


def _held(message: m.Hello) -> str:
    most = 64 + 8 * message.slots  # twice what a head grants at once
    if len(message.held) > most:
        return f"held are {len(message.held)} attempts, more than {message.slots} slots were ever granted"
    for held in message.held:
        if wrong := _attempt(held, 0) or v.whole("index", held.index):
            return f"held: {wrong}"
    return ""


def _attempt(message: Any, limit: int) -> str:
    if len(message.id) == v.ID and 0 <= message.attempt < v.LARGEST:
        return ""
    return v.an_id("id", message.id) or v.whole("attempt", message.attempt)


def _began(message: m.Began, limit: int) -> str:
    return _attempt(message, limit) or v.whole("pid", message.pid)


def _frames(message: m.Frames, limit: int) -> str:
    size = len(message.data)
    if size > limit + _CHUNK:
        return f"data takes {size} bytes, above the payload limit of {limit}"
    if not 1 <= message.count <= size:
        return f"count is {message.count}, of {size} bytes: send 1 or more frames, each of some bytes"
    if len(message.away) > message.count or any(len(each) > _REFERENCE for each in message.away):
        return "away has more references, or longer ones, than there can be"
    return _attempt(message, limit) or v.whole("index", message.index)


def _logged(message: m.Logged, limit: int) -> str:
    size = len(message.data)
    if not 1 <= message.count <= size:
        return f"count is {message.count}, of {size} bytes: send 1 or more lines, each of some bytes"
    return (
        v.size("data", message.data, _LINES)
        or _attempt(message, limit)
        or v.whole("index", message.index, 0, v.LARGEST - 1 - message.count)
        or unsound(message.count, message.data)
    )


def _progressed(message: m.Progressed, limit: int) -> str:
    progress = message.progress
    done, total = progress.done, progress.total
    if not 0 <= done <= v.HUGE or not (total is None or 0 <= total <= v.HUGE):
        return f"progress is {done} of {total}: send finite numbers of 0 or more"
    if not is_time(progress.at):
        return f"at is {progress.at}: send seconds since 1970, before the year 10000"
    return _attempt(message, limit) or v.text("text", progress.text, v.PROGRESS)


def _ended(message: m.Ended, limit: int) -> str:
    move, result, error = message.move, message.result, message.error
    if len(message.id) != v.ID or not 0 <= message.attempt < v.LARGEST:
        return _attempt(message, limit)
    if move == "succeed":
        if result is None or error is not None:
            return "a body that succeeds ends with a result and no error"
        if len(result) > limit:
            return f"result takes {len(result)} bytes, above the payload limit of {limit}"
    elif move not in MOVES:
        return v.one_of("move", move, MOVES)
    elif result is not None or (error is None and move == "fail"):
        return "only a body that succeeds has a result, and one that fails an error"
    if not 0 <= message.seconds <= v.HUGE:
        return v.seconds("seconds", message.seconds, v.HUGE)
    if message.after is not None and (wrong := v.seconds("after", message.after, v.HUGE)):
        return wrong
    if message.reason is not None and len(message.reason) > _REASON:
        return v.text("reason", message.reason, _REASON)
    return "" if error is None else _error(error)


def _error(error: Failure) -> str:
    """An exception: it is read recursively, so it is not deep, and kept, so it is not large."""
    size, count, todo = 0, 0, [(error, 1)]
    while todo:
        failure, depth = todo.pop()
        count += 1
        size += len(failure.type) + len(failure.message) + len(failure.traceback)
        size += sum(map(len, failure.notes)) + 8 * len(failure.notes)
        inner = failure.leaves if failure.cause is None else (failure.cause, *failure.leaves)
        if size > _FAILURE or count + len(todo) + len(inner) > _FAILURES or depth > _NESTING:
            return (
                f"error is larger than {_FAILURE} characters, {_FAILURES} exceptions or a depth of {_NESTING}"
            )
        todo += [(each, depth + 1) for each in inner]
    return ""


def _gave_back(message: m.GaveBack, limit: int) -> str:
    return _attempt(message, limit) or v.text("reason", message.reason, _REASON)


def _beat(message: m.Beat, limit: int) -> str:
    return v.an_id("worker", message.worker)


def _died(message: m.Died, limit: int) -> str:
    return v.an_id("worker", message.worker) or v.text("reason", message.reason, v.TEXT)


def _knock(message: m.Knock, limit: int) -> str:
    return (
        v.whole("protocol", message.protocol)
        or v.text("version", message.version, v.LABEL)
        or v.size("session", message.session, 64, 1)
        or v.one_of("purpose", message.purpose, PURPOSES)
        or v.namespace(message.namespace)
        or v.text("token", message.token, v.NAME)
        or v.maybe_id("worker", message.worker)
        or v.text("host", message.host)
        or v.whole("pid", message.pid)
    )


CHECKS: dict[type, Callable[[Any, int], str]] = {
    m.Knock: _knock,
    m.Hello: _hello,
    m.Began: _began,
    m.Publish: _attempt,
    m.Frames: _frames,
    m.Logged: _logged,
    m.Progressed: _progressed,
    m.Ended: _ended,
    m.GaveBack: _gave_back,
    m.Kept: _attempt,
    m.Beat: _beat,
    m.Died: _died,
}
