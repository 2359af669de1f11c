"""Structs to the columns of SQLite and back. Runs on the store's threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from lakeshore.core.rows import Call, Options, ProviderRow, QueueRow, Record, TokenRow, TopicRow, WorkerRow
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


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode_record: Callable[[bytes], Record] = msgspec.msgpack.Decoder(Record).decode
decode_queue: Callable[[bytes], QueueRow] = msgspec.msgpack.Decoder(QueueRow).decode
decode_worker: Callable[[bytes], WorkerRow] = msgspec.msgpack.Decoder(WorkerRow).decode
decode_token: Callable[[bytes], TokenRow] = msgspec.msgpack.Decoder(TokenRow).decode
decode_provider: Callable[[bytes], ProviderRow] = msgspec.msgpack.Decoder(ProviderRow).decode
decode_any: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
decode_options: Callable[[bytes], Options] = lru_cache(maxsize=4096)(msgspec.msgpack.Decoder(Options).decode)
_decode_rest = msgspec.msgpack.Decoder(tuple[bytes | None, str, str, bytes | None, bytes | None]).decode


def encode_call(call: Call) -> bytes:
    """A call without its options."""
    return encode((call.args, call.prefix, call.key, call.parent, call.retry_of))


def decode_call(options: Options, data: bytes) -> Call:
    """The call of a stored row."""
    return Call(options, *_decode_rest(data))


def decode_topic(data: bytes) -> TopicRow:
    """A topic. By hand: its field called `bytes` hides the type from msgspec's own decoder."""
    fields = msgspec.msgpack.decode(data)
    fields["marks"] = tuple([(end, at) for end, at in fields.get("marks", ())])
    fields["publishers"] = tuple(
        [(id, tuple([(number, seq) for number, seq in posts])) for id, posts in fields.get("publishers", ())]
    )
    return TopicRow(**fields)


def marks_of(sizes: Iterable[tuple[int, int]], grain: int) -> list[tuple[int, int]]:
    """Ends and bytes of chunks, neighbours made one up to `grain` bytes."""
    marks: list[tuple[int, int]] = []
    for end, size in sizes:
        if marks and marks[-1][1] + size <= grain:
            marks[-1] = (end, marks[-1][1] + size)
        else:
            marks.append((end, size))
    return marks
