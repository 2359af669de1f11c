"""Bodies that tests run in processes of their own; imported there, so little is imported here."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import anyio.lowlevel

import lakeshore as dls

hooks = dls.Hooks(on_run_setup=lambda run: os.environ.__setitem__("SET_UP", run.id))
_counts: dict[str, int] = {}


@dls.udf
def double(x: int) -> int:
    return 2 * x


@dls.udf
def pid() -> int:
    return os.getpid()


@dls.udf
async def apid() -> int:
    await anyio.lowlevel.checkpoint()
    return os.getpid()


@dls.udf
def gen(n: int) -> Iterator[int]:
    yield from range(n)
    return n


@dls.udf
async def agen(n: int) -> AsyncIterator[int]:
    for number in range(n):
        yield number


@dls.udf
def about() -> tuple[str, int, str, str, str]:
    run = dls.run
    return run.id, run.attempt, run.queue, run.prefix, str(run.root)


@dls.udf
def environ(name: str) -> str | None:
    return os.environ.get(name)


@dls.udf
def leave(code: int) -> None:
    os._exit(code)


@dls.udf
def segfault() -> None:
    ctypes.string_at(0)


@dls.udf
def signals(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


@dls.udf(retries=1, retry_delay=0.01)
def leaves_once() -> int:
    if dls.run.attempt == 1:
        os._exit(1)
    return dls.run.attempt


@dls.udf(retries=1, retry_delay=0.01, retry_on=ValueError)
def leaves_for_good() -> None:
    os._exit(1)


@dls.udf(retries=1, retry_delay=0.01, retry_on=dls.OutOfMemory)
def leaves_with_memory() -> None:
    os._exit(1)


@dls.udf
def stubborn() -> Iterator[list[int]]:
    """Neither it nor what it starts ends by SIGTERM."""
    ctypes.CDLL(None).signal(int(signal.SIGTERM), 1)  # SIG_IGN
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; echo; while :; do sleep 1000; done"], stdout=-1)
    assert child.stdout is not None
    child.stdout.readline()
    yield [os.getpid(), child.pid]
    while True:
        time.sleep(1000)


@dls.udf
def holds_the_lock() -> Iterator[list[int]]:
    """Nothing else in this process runs from here on."""
    child = subprocess.Popen(["sleep", "1000"])
    yield [os.getpid(), child.pid]
    time.sleep(0.2)  # until that has left
    ctypes.PyDLL(None).sleep(1000)


@dls.udf
async def waits() -> AsyncIterator[int]:
    try:
        yield os.getpid()
        await anyio.sleep_forever()
    finally:
        _counts["cleaned"] = _counts.get("cleaned", 0) + 1


@dls.udf
def cleaned() -> tuple[int, int]:
    return os.getpid(), _counts.get("cleaned", 0)


@dls.udf
def sees_it() -> Iterator[int]:
    yield os.getpid()
    while not dls.run.cancelled:
        time.sleep(0.001)


@dls.udf
def meets(folder: str, name: str, other: str) -> int:
    """Wait for another body that runs at the same time."""
    Path(folder, name).touch()
    while not Path(folder, other).exists():
        time.sleep(0.001)
    return os.getpid()


@dls.udf
def device(folder: str, name: str, other: str) -> str | None:
    meets.fn(folder, name, other)
    return os.environ.get("CUDA_VISIBLE_DEVICES")


@dls.udf
def prints(size: int) -> int:
    line = "x" * 1023 + "\n"
    null = open(os.devnull, "w")  # noqa: SIM115 - it takes the place of stdout
    sys.stdout = null
    for _ in range(size // 1024):
        print(line, end="")
    return size


@dls.udf
def lock() -> object:
    return threading.Lock()


@dls.udf
def closes() -> None:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                os.close(int(name))
    time.sleep(60)


@dls.udf
def eats(size: int) -> int:
    """Touch so many bytes, and stay."""
    kept = bytearray(os.urandom(1 << 20) * (size >> 20))
    time.sleep(60)
    return len(kept)


@dls.udf
def asks(size: int) -> int:
    return len(bytes(size))


@dls.udf
def keeps(size: int) -> int:
    """And go on having them."""
    globals()["kept"] = os.urandom(1 << 20) * (size >> 20)
    return os.getpid()


@dls.udf
def submits(x: int) -> str:
    return double.submit(x)


@dls.udf
async def asubmits(x: int) -> str:
    return await double.asubmit(x)


@dls.udf(runner="process")
def apart() -> int:
    return os.getpid()


@dls.udf(runner="inline")
def inside() -> int:
    return os.getpid()


@dls.udf
def nothing() -> None:
    pass


@dls.udf
async def anothing() -> None:
    pass


@dls.udf
def yields_a_lock() -> Iterator[object]:
    yield 1
    yield threading.Lock()


@dls.udf(retries=1, retry_delay=0.001, retry_cap=0.001)
def raises(how: str) -> None:
    if how == "group":
        raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
    if how == "exit":
        sys.exit(3)
    if how == "interrupt":
        raise KeyboardInterrupt
    raise dls.Retry(after=0.001)


@dls.udf
async def araises(how: str) -> None:
    await anyio.lowlevel.checkpoint()
    raise OSError(how)


@dls.udf
async def waits_for_good() -> None:
    await anyio.sleep_forever()


@dls.udf
def looks() -> None:
    while not dls.run.cancelled:
        time.sleep(0.001)


@dls.udf
def leaves_behind(how: str) -> int:
    if how == "thread":
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    elif how == "stdout":
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
    elif how == "closed":
        os.close(2)
    else:
        sys.stdout = sys.stderr
    return os.getpid()


@dls.udf
def says_pid() -> int:
    print("pid")
    return os.getpid()


@dls.udf
async def uses_threads() -> int:
    return await anyio.to_thread.run_sync(os.getpid)


@dls.udf
def writes(size: int) -> None:
    os.write(1, b"y" * size + b"\nLAST\n")
