"""Structs to the columns of SQLite and back. Runs on the store's threads."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from lakeshore.core.rows import Call, InvocationRow, Options, QueueRow, Record, TopicRow, WorkerRow
from lakeshore.core.states import State

NUMBER: dict[State, int] = {  # stored, so these numbers never change
    State.QUEUED: 0,
    State.RUNNING: 1,
    State.SUCCEEDED: 2,
    State.FAILED: 3,
    State.KILLED: 4,
    State.TIMEOUT: 5,
}
STATE: tuple[State, ...] = tuple(NUMBER)
PART = {"args": 0, "result": 1}


class _Call(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A `Call` whose options are still packed: rows of one body share one `Options`."""

    options: msgspec.Raw
    args: bytes | None = None
    prefix: str = ""
    key: str = ""
    parent: bytes | None = None
    retry_of: bytes | None = None


encode = msgspec.msgpack.Encoder().encode
decode_record = msgspec.msgpack.Decoder(Record).decode
decode_queue = msgspec.msgpack.Decoder(QueueRow).decode
decode_worker = msgspec.msgpack.Decoder(WorkerRow).decode
_decode_call = msgspec.msgpack.Decoder(_Call).decode
_decode_options = lru_cache(maxsize=4096)(msgspec.msgpack.Decoder(Options).decode)


def decode_topic(data: bytes) -> TopicRow:
    """A topic. By hand: its field called `bytes` hides the type from msgspec's own decoder."""
    fields = msgspec.msgpack.decode(data)
    fields["marks"] = tuple([(end, at) for end, at in fields.get("marks", ())])
    return TopicRow(**fields)


def decode_call(data: bytes) -> Call:
    """The call of a stored row; equal options are one object."""
    call = _decode_call(data)
    return Call(
        _decode_options(bytes(call.options)), call.args, call.prefix, call.key, call.parent, call.retry_of
    )


def decode_invocation(namespace: str, columns: tuple[Any, ...]) -> InvocationRow:
    """An invocation from its columns id, queue, state, place, worker, call, record."""
    id, queue, state, place, worker, call, record = columns
    return InvocationRow(
        namespace, id, queue, STATE[int(state)], place, worker, decode_call(call), decode_record(record)
    )


def marks_of(sizes: Iterable[tuple[int, int]], grain: int) -> list[tuple[int, int]]:
    """Ends and bytes of chunks, neighbours made one up to `grain` bytes."""
    marks: list[tuple[int, int]] = []
    for end, size in sizes:
        if marks and marks[-1][1] + size <= grain:
            marks[-1] = (end, marks[-1][1] + size)
        else:
            marks.append((end, size))
    return marks
