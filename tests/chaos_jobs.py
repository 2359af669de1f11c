"""Bodies of the chaos test. Each counts its own starts, beyond the end of its process."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator

import anyio

import lakeshore as dls


def begun(log: str) -> None:
    """One line, whole or not at all, whoever else writes one."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{dls.run.id} {dls.run.attempt}\n".encode())
    finally:
        os.close(file)


@dls.udf
def plain(log: str, n: int, seconds: float) -> int:
    begun(log)
    time.sleep(seconds)
    return n * n


@dls.udf
async def awaits(log: str, n: int, seconds: float) -> int:
    begun(log)
    await anyio.sleep(seconds)
    return n * n


@dls.udf
def streams(log: str, n: int, seconds: float) -> Iterator[int]:
    begun(log)
    for value in range(20):
        yield value
        time.sleep(seconds / 20)
    return n * n


@dls.udf
async def astreams(log: str, n: int, seconds: float) -> AsyncIterator[int]:
    begun(log)
    for value in range(20):
        yield value
        await anyio.sleep(seconds / 20)
