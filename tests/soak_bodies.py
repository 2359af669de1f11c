"""What the soak runs: all four kinds of body, some that fail, some that never end by themselves."""

import time
from collections.abc import AsyncIterator, Iterator

import anyio
import soak_clock

import lakeshore as dls

LARGE = 3000  # bytes that do not fit into the row of an invocation


@dls.udf(timeout=3600)
async def nap(seconds: float = 0.0, payload: bytes = b"") -> bytes:
    await anyio.sleep(seconds)
    return payload


@dls.udf
def add(a: int = 0, b: bytes = b"") -> tuple[int, bytes]:
    return a + 1, b


@dls.udf
def count(n: int = 0) -> Iterator[int]:
    yield from range(n)


@dls.udf
async def tick(n: int = 0, seconds: float = 0.0) -> AsyncIterator[int]:
    for number in range(n):
        yield number
        await anyio.sleep(seconds)


@dls.udf
async def fail(seconds: float = 0.0) -> None:
    await anyio.sleep(seconds)
    raise ValueError("as it was told to")


@dls.udf(retries=2, retry_delay=20.0)
def fail_once() -> int:
    if dls.run.attempt == 1:
        raise ConnectionError("once")
    return dls.run.attempt


@dls.udf(retries=2, retry_delay=5.0)
async def break_off() -> AsyncIterator[int]:
    yield 1
    yield 2
    raise dls.Retry(after=30.0)


@dls.udf(timeout=30.0)
async def stuck() -> None:
    await anyio.sleep_forever()


@dls.udf(timeout=30.0)
def stuck_thread() -> None:
    soak_clock.idle((dls.run.id, dls.run.attempt))
    while not dls.run.cancelled:
        time.sleep(0.001)


@dls.udf(timeout=30.0)
async def stuck_stream() -> AsyncIterator[int]:
    yield 1
    await anyio.sleep_forever()


@dls.udf
async def parent(n: int = 0) -> list[str]:
    return [await count.asubmit(3) for _ in range(n)]


def made_anew(number: int) -> dls.UDF[[int], int]:
    """A body that travels by value: each of these is another one."""

    def closure(x: int) -> int:
        return x + number

    return dls.udf(closure)
