"""Messages to bytes and back, in frames. Pure: no socket, no clock.

A frame is a length (4 bytes, big-endian, of what follows it), a kind (1 byte) and a body: a msgpack array
of messages, a piece of one large message, its last piece, or an array of `Ping` and `Pong`. Frames are
short, so that a `Ping` can slip in between the pieces of a large message.
"""

from __future__ import annotations

from typing import Any, Union

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from . import messages
from .errors import FramingError, PayloadTooLarge
from .messages import Grant, Ping, Pong, Submit, SubmitMany
from .rows import Call, Options

BATCH, PIECE, LAST, CONTROL = range(4)  # kinds of frame
PIECE_SIZE = 256 << 10  # bytes; no frame that we send has a longer body
SMALLEST_PIECE = 4096  # bytes; the last piece of a message may be shorter
FRAME_LIMIT = (1 << 20) + 1024  # what we take from others, the kind included
MESSAGE_LIMIT = 17 << 20  # a payload of 16 MiB and what is around it
INTERNED = 1024  # distinct `Options` kept by a decoder

_AT_ONCE = 512  # messages tried as one frame
_HEADER = 4  # bytes


def message_limit(payload_limit: int) -> int:
    """The longest message, bytes, where one payload may have that many."""
    return max(MESSAGE_LIMIT, payload_limit + (1 << 20))


def _tagged() -> list[type[Struct]]:
    found = [each for each in vars(messages).values() if isinstance(each, type) and issubclass(each, Struct)]
    ours = [each for each in found if each.__module__ == messages.__name__]
    return [each for each in ours if each.__struct_config__.tag is not None]


MESSAGES: tuple[type[Struct], ...] = tuple(_tagged())  # every message that has a tag
CONTROLS: tuple[type[Struct], ...] = (Ping, Pong)  # in CONTROL frames only

_encoder = msgspec.msgpack.Encoder()
_plain: Any = Union[tuple(each for each in MESSAGES if each not in CONTROLS)]  # noqa: UP007
_many: Any = list.__class_getitem__(_plain)
_decode_batch = msgspec.msgpack.Decoder(_many).decode
_decode_one = msgspec.msgpack.Decoder(_plain).decode
_decode_control = msgspec.msgpack.Decoder(list[Ping | Pong]).decode


def check(message: Any, limit: int = MESSAGE_LIMIT) -> int:
    """How many bytes a message takes on the wire.

    Raises: PayloadTooLarge where that is above `limit`.
    """
    size = len(_encoder.encode(message))
    if size > limit:
        raise _too_large(message, size, limit)
    return size


def encode(batch: list[Any], limit: int = MESSAGE_LIMIT) -> list[bytes]:
    """Frames for some messages, in order; none of them is longer than a piece.

    Raises: PayloadTooLarge for a message above `limit` bytes.
    """
    frames: list[bytes] = []
    for start in range(0, len(batch), _AT_ONCE):
        part = batch[start : start + _AT_ONCE] if len(batch) > _AT_ONCE else batch
        body = _encoder.encode(part)
        if len(body) <= PIECE_SIZE:
            frames.append(_frame(BATCH, body))
        else:
            _split(part, limit, frames)
    return frames


def control(message: Ping | Pong) -> bytes:
    """The frame of a `Ping` or a `Pong`."""
    return _frame(CONTROL, _encoder.encode([message]))


def _frame(kind: int, body: bytes | memoryview) -> bytes:
    return b"".join(((len(body) + 1).to_bytes(_HEADER, "big"), bytes((kind,)), body))


def _split(batch: list[Any], limit: int, frames: list[bytes]) -> None:
    """Each message on its own, small neighbours together again."""
    small: list[bytes] = []
    room = PIECE_SIZE
    for message in batch:
        data = _encoder.encode(message)
        if small and len(data) > room:
            frames.append(_joined(small))
            small, room = [], PIECE_SIZE
        if len(data) <= PIECE_SIZE - 5:
            small.append(data)
            room -= len(data) + (5 if room == PIECE_SIZE else 0)
        elif len(data) > limit:
            raise _too_large(message, len(data), limit)
        else:
            _cut(data, frames)
    if small:
        frames.append(_joined(small))


def _joined(parts: list[bytes]) -> bytes:
    header = b"\xdd" + len(parts).to_bytes(4, "big")  # msgpack's array 32
    return _frame(BATCH, b"".join((header, *parts)))


def _cut(data: bytes, frames: list[bytes]) -> None:
    view, last = memoryview(data), len(data) - PIECE_SIZE
    frames += [
        _frame(PIECE if start < last else LAST, view[start : start + PIECE_SIZE])
        for start in range(0, len(data), PIECE_SIZE)
    ]


def _too_large(message: Any, size: int, limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"a message ({type(message).__name__}) of {size} bytes is above the limit of {limit}: send less, or "
        "pass bulk data through storage"
    )


class Decoder:
    """Bytes of one link as they come, to messages.

    Args:
        limit: the longest message taken, bytes; may be changed at any time.

    Attributes:
        controls: every `Ping` and `Pong` that came; who reads them takes them out.
    """

    __slots__ = ("_buffer", "_large", "_last", "_options", "_pieces", "controls", "limit")

    def __init__(self, limit: int = MESSAGE_LIMIT) -> None:
        self.limit = limit
        self.controls: list[Ping | Pong] = []
        self._buffer = bytearray()  # the beginning of a frame
        self._pieces: list[bytes] = []
        self._large = 0  # bytes in them
        self._options: dict[Options, Options] = {}
        self._last: Options | None = None

    @property
    def buffered(self) -> int:
        """Bytes kept of what is not complete yet."""
        return len(self._buffer) + self._large

    def feed(self, data: bytes | bytearray | memoryview) -> list[Any]:
        """Take more bytes; every message that is complete now.

        `data` may be used again after this: nothing of it is kept.
        Raises: FramingError where it is not what a Lakeshore sends; then the link is of no more use.
        """
        buffer = self._buffer
        if not buffer:
            view, found = memoryview(data), list[Any]()
            taken = self._take(view, found)
            if taken < len(view):
                buffer += view[taken:]
            return found
        buffer += data
        if len(buffer) >= _HEADER and len(buffer) < _HEADER + self._size(buffer, 0):
            return []
        found = list[Any]()
        with memoryview(buffer) as view:
            taken = self._take(view, found)
        if taken:
            self._buffer = buffer[taken:]
        return found

    def _take(self, view: memoryview, found: list[Any]) -> int:
        """Decode every complete frame; how many bytes that took."""
        at, end = 0, len(view)
        while end - at >= _HEADER:
            size = self._size(view, at)
            stop = at + _HEADER + size
            if stop > end:
                break
            kind = view[at + _HEADER]
            with view[at + _HEADER + 1 : stop] as body:
                if kind == BATCH:
                    found += self._interned(_decoded(_decode_batch, body))
                else:
                    self._other(kind, body, found)
            at = stop
        return at

    def _size(self, view: memoryview | bytearray, at: int) -> int:
        size = int.from_bytes(view[at : at + _HEADER], "big")
        if not 0 < size <= min(FRAME_LIMIT, self.limit):
            raise FramingError(_puzzle(bytes(view[at : at + 8]), size, min(FRAME_LIMIT, self.limit)))
        return size

    def _other(self, kind: int, body: memoryview, found: list[Any]) -> None:
        if kind == CONTROL:
            self.controls += _decoded(_decode_control, body)
        elif kind in (PIECE, LAST):
            if kind == PIECE and len(body) < SMALLEST_PIECE:  # each is kept until the last one
                raise FramingError(
                    f"a piece of {len(body)} bytes came: only the last of a message is below {SMALLEST_PIECE}"
                )
            self._large += len(body)
            if self._large > self.limit:
                raise FramingError(
                    f"a message came that is longer than {self.limit} bytes, the most taken here"
                )
            self._pieces.append(bytes(body))
            if kind == LAST:
                whole, self._pieces, self._large = b"".join(self._pieces), [], 0
                found += self._interned([_decoded(_decode_one, whole)])
        else:
            raise FramingError(
                f"a frame of kind {kind} came: the other end is a newer Lakeshore, or none at all"
            )

    def _interned(self, batch: list[Any]) -> list[Any]:
        """Equal `Options` are one object: a head keeps one for each live invocation."""
        for message in batch:
            if type(message) is Submit or type(message) is Grant:
                self._intern(message.call)
            elif type(message) is SubmitMany:
                for item in message.items:
                    self._intern(item.call)
        return batch

    def _intern(self, call: Call) -> None:
        options, known = call.options, self._options
        if options == self._last:  # mostly: that costs a third of a look-up
            shared = self._last
        else:
            shared = self._last = known.setdefault(options, options)
            if len(known) > INTERNED:
                del known[next(iter(known))]
        if shared is not options:
            force_setattr(call, "options", shared)


def _decoded(decode: Any, body: bytes | memoryview) -> Any:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise FramingError(f"a message came that no Lakeshore sends: {error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise FramingError(f"what came is not a message: {error}") from None


def _puzzle(start: bytes, size: int, limit: int) -> str:
    """What a header that can't be right says of the other end."""
    if start[:2] == b"\x16\x03":
        return "the other end begins with TLS, but this is a plain tcp:// port: use a tls:// port, or tcp://"
    if start[:2] == b"\x15\x03":
        return "the other end answers in TLS: use a tls:// address"
    if start[:4] in (b"GET ", b"POST", b"HEAD", b"PUT ", b"HTTP", b"OPTI", b"PRI "):
        return "the other end speaks HTTP, but this is a Lakeshore port"
    return (
        f"a frame of {size} bytes was announced, at most {limit} are taken: the other end is not a Lakeshore"
    )
