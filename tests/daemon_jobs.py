"""Bodies that daemons import in tests."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio

import lakeshore as dls

hooks = dls.Hooks(on_host_setup=lambda: os.environ.__setitem__("SET_UP", "yes"))


def noted(log: str) -> None:
    """Count a start, beyond this process's end."""
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\n")


@dls.udf
def double(x: int) -> int:
    return 2 * x


@dls.udf
def environ(name: str) -> str | None:
    return os.environ.get(name)


@dls.udf
def pid() -> int:
    return os.getpid()


@dls.udf(queue="later")
def later() -> int:
    return os.getpid()


@dls.udf
def die(log: str) -> None:
    noted(log)
    os.kill(os.getpid(), signal.SIGKILL)


@dls.udf(queue="third")
def leave(status: int) -> None:
    """Once."""
    if dls.run.attempt == 1:
        os._exit(status)


@dls.udf(queue="held")
def hold(log: str, seconds: float) -> str:
    """Nothing else in this process runs meanwhile: this call keeps the interpreter's lock."""
    noted(log)
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))
    return "held"


@dls.udf(queue="blocked")
async def block(log: str, seconds: float) -> str:
    """The worker's loop stands still meanwhile."""
    noted(log)
    time.sleep(seconds)  # noqa: ASYNC251 - the point of it
    return "blocked"


@dls.udf
def gate(log: str, pipe: str) -> Iterator[int]:
    """Say that it runs; end once somebody writes into the pipe, or into that of this attempt."""
    noted(log)
    yield os.getpid()
    own = Path(f"{pipe}.{dls.run.attempt}")
    (own if own.exists() else Path(pipe)).read_text()


@dls.udf(queue="third")
async def waits() -> AsyncIterator[int]:
    """Say that it runs, and go on."""
    yield os.getpid()
    await anyio.sleep_forever()


@dls.udf(queue="third")
def wedged(pipe: str) -> None:
    """Say into the pipe that nothing can be done from inside any more: the interpreter's lock is held."""
    script = f"echo > '{pipe}'; while kill -0 $PPID 2>/dev/null; do sleep 0.1; done"
    ctypes.PyDLL(None).system(script.encode())
