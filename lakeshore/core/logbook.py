"""What a body says while it runs, as data: lines, and how far it is. Pure: no clock, no threads.

Lines are packed one by one where they are said, and travel in chunks that nobody else looks into.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from msgspec import MsgspecError, msgpack

from .rows import Progress
from .values import MalformedValue

LEVELS = ("debug", "info", "warning", "error", "critical")
LONGEST = 8192  # characters of a line; what is longer is cut
ROOM = 128 << 10  # bytes of lines that may wait in a worker, of one attempt; as many may be on their way
CHUNK_LINES, CHUNK_BYTES = 512, 64 << 10

NAMED = 200  # characters of a source or a level

_MARK = 100  # characters, at most, that say that a line was cut
_LATEST = 253402300799.0  # seconds since 1970: the end of the year 9999
_encode = msgpack.Encoder().encode
_decode = msgpack.Decoder(list[tuple[float, str, str, str]]).decode


def pack_line(at: float, source: str, level: str, text: str) -> bytes:
    """One line, ready for a `Draft`. Too long a text is cut; what can't be UTF-8 is spelled out."""
    if len(text) > LONGEST:
        text = cut(text[:LONGEST], len(text) - LONGEST)
    try:
        return _pack(at, source, level, text)
    except UnicodeEncodeError:
        safe = [each.encode("utf-8", "backslashreplace").decode() for each in (source, level, text)]
        return pack_line(at, *safe)


def _pack(at: float, source: str, level: str, text: str) -> bytes:
    return _encode((at, source[:NAMED], level[:NAMED], text))


def cut(text: str, missing: int) -> str:
    """The beginning of a line that was too long."""
    return f"{text}… ({missing:,} more characters were cut)"


def unpack_lines(data: bytes) -> list[tuple[float, str, str, str]]:
    """Time, source, level and text of each line of a chunk. Raises: MalformedValue."""
    try:
        return _decode(data)
    except (MsgspecError, RecursionError) as error:
        raise MalformedValue(
            f"these bytes are no log lines ({error}): they were damaged on the way"
        ) from None


def is_time(at: float) -> bool:
    """Whether seconds since 1970 can be shown as a date."""
    return 0 <= at <= _LATEST


def unsound(count: int, data: bytes) -> str:
    """What is wrong with a chunk that is said to be so many lines; empty where nothing is."""
    try:
        lines = unpack_lines(data)
    except MalformedValue as error:
        return str(error)
    if len(lines) != count:
        return f"count is {count}, of {len(lines)} lines: send how many there are"
    for at, source, level, text in lines:
        if not is_time(at):
            return f"a line is of {at}: send seconds since 1970, before the year 10000"
        if len(source) > NAMED or len(level) > NAMED or len(text) > LONGEST + _MARK:
            return f"a line has more than {LONGEST} characters, or its source or level more than {NAMED}"
    return ""


class Draft:
    """Lines of one attempt that have not left. When there is no room the oldest are dropped, and counted."""

    __slots__ = ("_dropped", "_size", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._size = self._dropped = 0

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._size

    def add(self, line: bytes) -> None:
        """One line more."""
        self._waiting.append(line)
        self._size += len(line)
        while self._size > ROOM and len(self._waiting) > 1:
            self._size -= len(self._waiting.popleft())
            self._dropped += 1

    def forward(self, count: int, data: bytes) -> None:
        """A chunk that was packed elsewhere. One that is damaged counts as dropped: it would spoil ours."""
        try:
            lines = unpack_lines(data)
        except MalformedValue:
            self.drop(count)
            return
        for at, source, level, text in lines:
            at, text, rest = at if is_time(at) else 0.0, text[:LONGEST], text[LONGEST:]
            self.add(_pack(at, source, level, text + rest if len(rest) <= _MARK else cut(text, len(rest))))

    def drop(self, count: int) -> None:
        """Lines that did not get this far."""
        self._dropped += count

    def take(self, at: float) -> tuple[int, bytes] | None:
        """The oldest lines as one chunk: how many, and packed. `at` is when those that are missing
        are said to be."""
        waiting = self._waiting
        if not waiting and not self._dropped:
            return None
        count, size, parts = 0, 0, list[bytes]()
        if self._dropped:
            text = f"{self._dropped:,} lines were dropped here: they came faster than they can be stored"
            parts.append(pack_line(at, "worker", "warning", text))
            count, self._dropped = 1, 0
        while waiting and count < CHUNK_LINES and size < CHUNK_BYTES:
            line = waiting.popleft()
            parts.append(line)
            count, size = count + 1, size + len(line)
        self._size -= size
        return count, b"\xdd" + count.to_bytes(4, "big") + b"".join(parts)


class Partial:
    """What was written to a stream since its last newline.

    A carriage return takes a line back to its beginning: what is written over it wins.
    """

    __slots__ = ("_missing", "_text")

    def __init__(self) -> None:
        self._text, self._missing = "", 0

    def feed(self, text: str) -> tuple[int, list[str]]:
        """Take what is written: how many whole lines were too many to look at, and those that follow."""
        if "\n" not in text and len(text) <= LONGEST:
            self._go_on(text)
            return 0, []
        skipped = 0
        if len(text) > 2 * ROOM:  # only the last lines of so much would be kept
            start = text.rfind("\n", 0, len(text) - ROOM) + 1
            if start:
                skipped = text.count("\n", 0, start)
                text, self._text, self._missing = text[start:], "", 0
        *lines, rest = text.split("\n")
        whole: list[str] = []
        for line in lines:
            self._go_on(line)
            whole.append(self._shown())
        self._go_on(rest)
        return skipped, whole

    def rest(self) -> str:
        """What has no newline, taken away."""
        return self._shown()

    def _go_on(self, text: str) -> None:
        if "\r" in text:
            line = self._text + text
            ended = line.rstrip("\r")
            start = ended.rfind("\r") + 1
            if start:
                self._missing = 0
            self._text = ended[start:] + "\r" * (len(ended) < len(line))
        elif self._text.endswith("\r") and text:
            self._text, self._missing = text, 0
        else:
            self._text += text
        if len(self._text) > LONGEST:
            self._missing += len(self._text) - LONGEST
            self._text = self._text[:LONGEST]

    def _shown(self) -> str:
        text, missing = self._text.rstrip("\r"), self._missing
        self._text, self._missing = "", 0
        return cut(text, missing) if missing else text


def told(progress: Progress) -> str:
    """Progress for people: "340/1000 (34 %)"."""
    done, total = progress.done, progress.total
    said = f"{done:g}" if isinstance(done, float) else str(done)
    if total is not None:
        said += f"/{total:g}" if isinstance(total, float) else f"/{total}"
        if total > 0:
            said += f" ({min(done / total, 9.99):.0%})".replace("%", " %")
    return f"{said} {progress.text}".rstrip()


class Notes(Protocol):
    """Where what a body says goes; every method may be called from any thread."""

    def line(self, running: Any, source: str, level: str, text: str) -> None:
        """Lines that are whole."""
        ...

    def write(self, running: Any, source: str, text: str) -> None:
        """Something written to a stream, perhaps a part of a line."""
        ...

    def progress(self, running: Any, done: float, total: float | None, text: str) -> None:
        """How far it is."""
        ...

    def forward(self, running: Any, count: int, data: bytes) -> None:
        """A chunk of lines that was packed in another process."""
        ...


class _Silence:
    """Where it goes after the end of a body: nowhere."""

    def line(self, running: Any, source: str, level: str, text: str) -> None:
        """Nobody hears it."""

    def write(self, running: Any, source: str, text: str) -> None:
        """Nobody hears it."""

    def progress(self, running: Any, done: float, total: float | None, text: str) -> None:
        """Nobody hears it."""

    def forward(self, running: Any, count: int, data: bytes) -> None:
        """Nobody hears it."""


SILENCE: Notes = _Silence()
