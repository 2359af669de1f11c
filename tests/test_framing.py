"""Messages to bytes and back; whatever else comes is one clear error and little memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore.core import framing, messages
from lakeshore.core.errors import FramingError, PayloadTooLarge
from lakeshore.core.framing import FRAME_LIMIT, MESSAGES, PIECE_SIZE, Decoder, check, control, encode
from lakeshore.core.messages import Accepted, Answer, Grant, Held, Ping, Pong, Submit, SubmitMany
from lakeshore.core.rows import Call, Function, Options


def small(number: int) -> Accepted:
    return Accepted(number, b"")


def submit(number: int, options: Options) -> Submit:
    return Submit(number, bytes(16), "q", Call(options, b"x"))


def frame(kind: int, body: bytes) -> bytes:
    return (len(body) + 1).to_bytes(4, "big") + bytes((kind,)) + body


def fed(decoder: Decoder, data: bytes, step: int) -> list[Any]:
    return [each for at in range(0, len(data), step) for each in decoder.feed(data[at : at + step])]


def test_every_tagged_message_travels_and_held_does_not() -> None:
    assert Held not in MESSAGES
    assert {Submit, messages.Hello, messages.Knock, messages.Sorry, Ping, Pong} <= set(MESSAGES)
    tags = [each.__struct_config__.tag for each in MESSAGES]
    assert len(tags) == len(set(tags)) > 60


def test_a_turn_is_one_frame() -> None:
    batch = [small(number) for number in range(500)]
    (only,) = encode(batch)
    assert Decoder().feed(only) == batch


@pytest.mark.parametrize("count", [513, 5000])
def test_many_are_few_frames(count: int) -> None:
    batch = [small(number) for number in range(count)]
    frames = encode(batch)
    assert len(frames) == -(-count // 512)
    assert fed(Decoder(), b"".join(frames), 1 << 16) == batch


@pytest.mark.parametrize(
    "sizes",
    [
        [PIECE_SIZE - 100],
        [PIECE_SIZE],
        [PIECE_SIZE * 3],
        [10, PIECE_SIZE * 2 + 1, 10],
        [PIECE_SIZE // 2] * 5,
        [PIECE_SIZE - 40, 1, PIECE_SIZE - 9, 1, 1],
        [*range(PIECE_SIZE - 30, PIECE_SIZE + 5)],
    ],
)
def test_no_frame_is_longer_than_a_piece(sizes: list[int]) -> None:
    batch = [Answer(number, bytes(size)) for number, size in enumerate(sizes)]
    frames = encode(batch)
    assert max(map(len, frames)) <= PIECE_SIZE + 5 < FRAME_LIMIT
    assert fed(Decoder(), b"".join(frames), 100_000) == batch


def test_a_ping_slips_in_between_the_pieces_of_a_message() -> None:
    first, *rest = encode([Answer(1, bytes(PIECE_SIZE * 2))])
    decoder = Decoder()
    assert decoder.feed(first + control(Ping())) == []
    assert decoder.controls == [Ping()]
    assert decoder.feed(b"".join(rest) + control(Pong())) == [Answer(1, bytes(PIECE_SIZE * 2))]
    assert decoder.controls == [Ping(), Pong()]


def test_a_message_that_is_too_large_is_named_before_anything_is_sent() -> None:
    message = Answer(1, bytes(1000))
    assert check(message, 2000) == len(msgspec.msgpack.encode(message))
    with pytest.raises(PayloadTooLarge, match=r"\(Answer\) of \d+ bytes is above the limit of 999"):
        check(message, 999)
    with pytest.raises(PayloadTooLarge, match="of 400008 bytes is above the limit of 300000"):
        encode([small(1), Answer(1, bytes(400_000))], 300_000)


def test_equal_options_are_one_object() -> None:
    one, two = (Options(Function("f", ref="m:f"), retries=number) for number in (1, 2))
    decoder = Decoder()
    batch = [submit(1, one), SubmitMany(2, (submit(2, one), submit(2, two))), small(3)]
    batch += [Grant(bytes(16), 1, "q", "n", Call(one), b"")]
    again = decoder.feed(encode(batch)[0])
    assert again == batch
    first, (second, other), last = again[0], again[1].items, again[3]
    assert first.call.options is second.call.options is last.call.options
    assert other.call.options == two
    (later,) = decoder.feed(encode([submit(4, two)])[0])
    assert later.call.options is other.call.options


def test_interned_options_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framing, "INTERNED", 4)
    decoder = Decoder()
    batch = [submit(number, Options(Function("f"), retries=number)) for number in range(10)]
    assert decoder.feed(encode(batch)[0]) == batch
    assert [each.retries for each in decoder._options] == [6, 7, 8, 9]


def test_a_newer_end_may_add_fields_and_an_older_one_leave_some_out() -> None:
    longer = frame(0, msgspec.msgpack.encode([[40, 7, b"id", False, True, "new", {"a": 1}], [40, 8, b"id"]]))
    assert Decoder().feed(longer) == [Accepted(7, b"id"), Accepted(8, b"id")]


def test_what_was_received_may_be_overwritten() -> None:
    data = bytearray(b"".join(encode([Accepted(1, b"first"), Answer(2, b"second")])))
    found = Decoder().feed(memoryview(data))
    data[:] = bytes(len(data))
    data.clear()  # BufferError if anything looked at it still
    assert found == [Accepted(1, b"first"), Answer(2, b"second")]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3000), max_size=30), st.integers(1, 5000))
def test_however_bytes_are_cut_the_messages_are_the_same(sizes: list[int], step: int) -> None:
    batch = [Answer(number, bytes(size)) for number, size in enumerate(sizes)]
    decoder = Decoder()
    assert fed(decoder, b"".join(encode(batch)), step) == batch
    assert decoder.buffered == 0


def test_a_frame_that_comes_byte_by_byte() -> None:
    data = b"".join(encode([Answer(1, bytes(20_000)), small(2)]))
    assert fed(Decoder(), data, 1) == [Answer(1, bytes(20_000)), small(2)]


def test_a_hostile_header_allocates_nothing() -> None:
    decoder = Decoder()
    tracemalloc.start()
    try:
        with pytest.raises(FramingError, match="a frame of 4294967295 bytes was announced"):
            decoder.feed(b"\xff\xff\xff\xff\x00")
        assert tracemalloc.get_traced_memory()[1] < 20_000
    finally:
        tracemalloc.stop()
    assert decoder.buffered < 10


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x00\x00\x00\x00", "a frame of 0 bytes"),
        ((FRAME_LIMIT + 1).to_bytes(4, "big"), "a frame of 1049601 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "the other end speaks HTTP"),
        (b"\x16\x03\x01\x02\x00\x01", "begins with TLS, but this is a plain tcp:// port"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "answers in TLS: use a tls:// address"),
        (frame(4, b"x"), "a frame of kind 4 came"),
        (frame(255, b"x"), "a frame of kind 255 came"),
        (frame(0, b""), "what came is not a message"),
        (frame(0, b"\xc1"), "what came is not a message"),
        (frame(0, b"\x90\x90"), "trailing characters"),
        (frame(0, b"\x91\x92\xcd\x03\xe7\x01"), "Invalid value 999"),
        (frame(0, b"\x01"), "Expected `array`, got `int`"),
        (frame(0, b"\xdd\xff\xff\xff\xff"), "truncated"),
        (frame(0, b"\x91\x93\x2e\x01\xa2\xff\xff"), "Invalid UTF-8"),
        (frame(0, b"\x91\x93\x2e\x01\x81\x81\x01\x02\x03"), "map keys must be hashable"),
        (frame(0, b"\x91\x93\x2e\x01" + b"\x91" * 100_000 + b"\x01"), "recursion"),
        (frame(0, b"\x91\x93\x2e\x01\xc6\xff\xff\xff\xff"), "truncated"),
        (frame(0, b"\x91\x93\x28\xa1x\xc4\x00"), "Expected `int`, got `str`"),
        (frame(0, b"\x91\x91\x67"), "Invalid value 103"),  # a Ping among the others
        (frame(3, b"\x91\x93\x28\x01\xc4\x00"), "Invalid value 40"),  # and the other way round
        (frame(2, b"\xc1"), "what came is not a message"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, why: str) -> None:
    with pytest.raises(FramingError) as caught:
        Decoder().feed(data)
    assert why in str(caught.value)
    with pytest.raises(FramingError):
        fed(Decoder(), data, 1)


def test_a_message_in_too_many_pieces() -> None:
    decoder = Decoder(100_000)
    piece = frame(1, bytes(30_000))
    for _ in range(3):
        assert decoder.feed(piece) == []
    with pytest.raises(FramingError, match="longer than 100000 bytes, the most taken"):
        decoder.feed(piece)
    assert decoder.buffered < 200_000


def test_who_is_not_let_in_yet_may_send_less() -> None:
    decoder = Decoder()
    decoder.limit = 1000
    with pytest.raises(FramingError, match=r"at most 1000 are taken"):
        decoder.feed(frame(0, bytes(1001))[:5])
    decoder = Decoder(1000)
    decoder.limit = 1 << 20
    assert decoder.feed(encode([Answer(1, bytes(5000))])[0]) == [Answer(1, bytes(5000))]


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([0, 1, 2, 3]), st.booleans())
def test_garbage_is_a_framing_error_and_nothing_else(body: bytes, kind: int, raw: bool) -> None:
    decoder = Decoder()
    with contextlib.suppress(FramingError):
        decoder.feed(body if raw else frame(kind, body))
    assert decoder.buffered <= 2 * len(body) + 5


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_frame_is_a_framing_error_and_nothing_else(data: st.DataObject) -> None:
    options = Options(Function("f", ref="m:f"), timeout=3.0)
    whole = bytearray(encode([submit(1, options), small(2), messages.Sorry("k", "m", {"a": 1})])[0])
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(FramingError):
        Decoder().feed(whole)
