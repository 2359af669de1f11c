"""Reading frames: one stream's state on the plane's loop, and the two faces of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from anyio import to_thread
from msgspec import Struct, structs

from lakeshore.core.away import Away
from lakeshore.core.backend import current_backend
from lakeshore.core.errors import Gap, PlaneClosed, StreamRestarted
from lakeshore.core.messages import Chunk, Follow, FollowTopic, Outcome, Refusal, StreamEnd, StreamGap
from lakeshore.core.values import unpack, unpack_frames

from .choices import Restarts
from .connection import Connection, error_of
from .outcomes import raise_unless_succeeded
from .records import moment

T = TypeVar("T")
Item = TypeVar("Item")

WINDOW = 2048  # frames the head may send ahead of what was read
ROOM = 4 << 20  # bytes of the same


class Frame(Struct, Generic[T], frozen=True):
    """One value of a stream. `seq` counts from 0 across attempts, `at` is when it was yielded,
    in seconds since 1970 (`time` is the same as an aware datetime)."""

    seq: int
    value: T
    attempt: int
    at: float

    @property
    def time(self) -> datetime:
        """When it was yielded."""
        found = moment(self.at)
        assert found is not None
        return found


class _Source:
    """A stream as the plane's loop sees it: what has come and was not fetched."""

    def __init__(self, connection: Connection, request: Callable[[int], Any]) -> None:
        self._connection, self._request = connection, request
        self._id = b""  # the invocation's, where it is of one
        self._came: deque[Any] = deque()
        self._waiter: Callable[[list[Any]], None] | None = None
        self._given = 0
        self._req = 0

    def fetch(self, seen: int, reply: Callable[[list[Any]], None]) -> None:
        """Give `reply` what has come, or call it when something comes. On the plane's loop.

        `seen` is how many messages the reader knew of when it asked: where a wait that it gave up
        was answered after all, it has more by now.
        """
        if not self._req:
            self._open()
        if self._came or seen != self._given:
            self._give(reply)
        else:
            self._waiter = reply

    def _give(self, reply: Callable[[list[Any]], None]) -> None:
        came, self._came = list(self._came), deque()
        self._given += len(came)
        reply(came)

    def forget(self) -> None:
        """Nobody waits any more for now."""
        self._waiter = None

    def consumed(self, frames: int, size: int) -> None:
        """Some were read, which took `size` bytes."""
        self._connection.client().consumed(self._req, frames, size)

    def close(self) -> None:
        """No more is wanted."""
        if self._req:
            self._connection.client().close_stream(self._req, self._id)

    def _open(self) -> None:
        client = self._connection.client()
        self._req = client.number()
        message = self._request(self._req)
        self._id = getattr(message, "id", b"")
        client.open(message, self._arrived)

    def _arrived(self, message: Any) -> None:
        self._came.append(message)
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._give(waiter)


class Reading:
    """What all streams share: items out of chunks, the cursor, and how it ends.

    Args:
        request: makes the request, of a number.
    """

    def __init__(self, connection: Connection, request: Callable[[int], Any], since: int) -> None:
        self.cursor: int = since
        self._connection = connection
        self._source = _Source(connection, request)
        self._messages: deque[Any] = deque()
        self._seen = 0
        self._frames: deque[Any] = deque()
        self._taken = self._size = 0
        self._over = False

    def __del__(self) -> None:
        if not getattr(self, "_over", True):  # dropped in the middle: its plane need not go on sending
            with suppress(Exception):
                self._connection.do(self._source.close)

    _large = False  # whether items may have values that are in a storage

    def _items(self, chunk: Chunk) -> list[Any]:
        """What is in a chunk; each has a `seq`."""
        raise NotImplementedError

    def _with_value(self, item: Any) -> Any:
        """An item with its value, wherever that is. Blocks."""
        return item

    def _unpack(self) -> bool:
        """Turn the next message into items; False when there is no message."""
        if not self._messages:
            return False
        message = self._messages.popleft()
        self._seen += 1
        if type(message) is Chunk:
            items, skip = self._items(message), self.cursor - message.seq
            self._frames.extend(items[skip:] if skip > 0 else items)
            self._taken, self._size = message.count - max(skip, 0), len(message.data)
            return True
        self._over = True
        if isinstance(message, Refusal):
            raise error_of(message)
        if isinstance(message, StreamGap):
            raise Gap(self.cursor, message.first)
        assert isinstance(message, StreamEnd)
        if isinstance(message.outcome, Outcome):
            raise_unless_succeeded(message.outcome)
        return True


class _Frames(Reading):
    """Frames of an invocation or of a topic."""

    def __init__(
        self, connection: Connection, target: bytes | str, since: int, types: tuple[Any, ...]
    ) -> None:
        since = from_cursor(since)

        def request(req: int) -> Follow | FollowTopic:
            if isinstance(target, bytes):
                return Follow(req, target, since, WINDOW, ROOM)
            return FollowTopic(req, target, since, WINDOW, ROOM)

        super().__init__(connection, request, since)
        self._types = types

    def _with_value(self, item: Any) -> Any:
        if type(item.value) is not Away:
            return item
        from lakeshore.storage.values import bring_back  # which few programs need

        return structs.replace(item, value=unpack(bring_back(item.value), types=self._types))

    def _items(self, chunk: Chunk) -> list[Frame[Any]]:
        times, values = unpack_frames(chunk.data, types=self._types)
        self._large = self._large or Away in map(type, values)
        return [
            Frame(chunk.seq + number, value, chunk.attempt, at)
            for number, (at, value) in enumerate(zip(times, values, strict=True))
        ]


class BlockingReading(Reading, Generic[Item]):
    """A stream for threads: an iterator."""

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        while not self._frames:
            if self._over:
                raise StopIteration
            if self._taken:
                self._connection.do(self._source.consumed, self._taken, self._size)
                self._taken = 0
            try:
                if not self._unpack():
                    self._fetch()
            finally:
                if self._over:
                    self._hang_up()
        if self._large:
            self._frames[0] = self._with_value(self._frames[0])  # before it counts as read
        frame = self._frames.popleft()
        self.cursor = frame.seq + 1
        return frame

    def close(self) -> None:
        """Stop reading; what was not read stays where it is."""
        if not self._over:
            self._over = True
            self._frames.clear()
            self._hang_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fetch(self) -> None:
        self._connection.refuse_to_block()
        seen = self._seen
        done = threading.Lock()
        done.acquire()

        def reply(messages: list[Any]) -> None:
            self._messages.extend(messages)
            done.release()

        self._connection.do(self._source.fetch, seen, reply)
        try:
            done.acquire()
        except BaseException:
            with suppress(PlaneClosed):
                self._connection.do(self._source.forget)
            raise

    def _hang_up(self) -> None:
        with suppress(PlaneClosed):
            self._connection.do(self._source.close)


class Stream(BlockingReading[Frame[T]], _Frames):
    """Frames of an invocation or topic, live until its end; iterate it, in a `for`.

    `cursor` is the `since` that goes on after the last frame given. Usable in `with`.
    """

    cursor: int

    def values(self, *, restarts: Restarts = "raise") -> Iterator[T]:
        """Bare values. Raises StreamRestarted when an attempt is replaced after it gave some,
        unless `restarts="keep"`."""
        keep = _keeps(restarts)
        attempt = 0
        for frame in self:
            if attempt and frame.attempt != attempt and not keep:
                self._frames.appendleft(frame)
                self.cursor = frame.seq
                raise StreamRestarted(frame.attempt)
            attempt = frame.attempt
            yield frame.value


class AsyncReading(Reading, Generic[Item]):
    """A stream for coroutines: an asynchronous iterator."""

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        frames = self._frames
        if not frames:
            await self._more()
        if self._large:
            frames[0] = await to_thread.run_sync(self._with_value, frames[0], abandon_on_cancel=True)
        frame = frames.popleft()
        self.cursor = frame.seq + 1
        return frame

    async def aclose(self) -> None:
        """Stop reading; what was not read stays where it is."""
        if not self._over:
            self._over = True
            self._frames.clear()
            self._hang_up()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _more(self) -> None:
        while not self._frames:
            if self._over:
                raise StopAsyncIteration
            if self._taken:
                self._do(self._source.consumed, self._taken, self._size)
                self._taken = 0
            try:
                if not self._unpack():
                    await self._fetch()
            finally:
                if self._over:
                    self._hang_up()

    def _do(self, call: Callable[..., None], *args: Any) -> None:
        if self._connection.here:
            call(*args)
        else:
            self._connection.do(call, *args)

    def _hang_up(self) -> None:
        with suppress(PlaneClosed):
            self._do(self._source.close)

    async def _fetch(self) -> None:
        seen = self._seen
        backend = current_backend()
        parker = backend.parker()
        here = self._connection.here

        def reply(messages: list[Any]) -> None:
            self._messages.extend(messages)
            if here:
                parker.set(None)
            else:
                with suppress(RuntimeError):  # the reading loop has ended
                    backend.post(lambda: parker.set(None))

        self._do(self._source.fetch, seen, reply)
        try:
            await parker.wait()
        except BaseException:
            with suppress(PlaneClosed):
                self._do(self._source.forget)
            raise


class AsyncStream(AsyncReading[Frame[T]], _Frames):
    """Frames of an invocation or topic, live until its end; iterate it, in an `async for`.

    `cursor` is the `since` that goes on after the last frame given. Usable in `async with`.
    """

    cursor: int

    async def values(self, *, restarts: Restarts = "raise") -> AsyncIterator[T]:
        """Bare values. Raises StreamRestarted when an attempt is replaced after it gave some,
        unless `restarts="keep"`."""
        keep = _keeps(restarts)
        attempt = 0
        async for frame in self:
            if attempt and frame.attempt != attempt and not keep:
                self._frames.appendleft(frame)
                self.cursor = frame.seq
                raise StreamRestarted(frame.attempt)
            attempt = frame.attempt
            yield frame.value


def from_cursor(since: int) -> int:
    """Where a stream begins. Raises: TypeError."""
    if not isinstance(since, int) or isinstance(since, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"since={since!r}: a cursor is a frame's number, 0 for the first")
    return max(since, 0)


def _keeps(restarts: str) -> bool:
    if restarts not in ("raise", "keep"):
        raise ValueError(f'restarts={restarts!r}: "raise" or "keep"')
    return restarts == "keep"
