"""Bodies that read, write and talk, for workers whose bodies are in processes of their own."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio.lowlevel

import lakeshore as dls


def put(keys: list[str]) -> None:
    for key in keys:
        dls.run.write(key).write_text(f"in {key}")


@dls.udf
def plain(keys: list[str], given: Any) -> Any:
    put(keys)
    return given


@dls.udf
async def waiting(keys: list[str], given: Any) -> Any:
    put(keys)
    await anyio.lowlevel.checkpoint()
    return given


@dls.udf
def yielding(keys: list[str], given: Any) -> Iterator[Any]:
    put(keys)
    yield given
    return ()


@dls.udf
async def yielding_slowly(keys: list[str], given: Any) -> AsyncIterator[Any]:
    put(keys)
    yield given


@dls.udf
def echo(value: Any) -> Any:
    return value


@dls.udf
def frames(values: list[Any]) -> Iterator[Any]:
    yield from values


@dls.udf
def dies(how: str) -> str:
    """It has written something, and ends its process."""
    dls.run.write("a").write_text("x")
    print("last words", flush=True)
    dls.run.log("and a line")
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    return "a"


@dls.udf
def written_then_stuck() -> Iterator[str]:
    put(["shown", "hidden"])
    yield "shown"
    with contextlib.suppress(BaseException):
        while True:
            time.sleep(1)


@dls.udf
def talks() -> str:
    print("printed")
    print("half a line", end="", flush=True)
    sys.stderr.write("to stderr\n")
    logging.getLogger("mine").warning("logged %d", 1)
    dls.run.log("said", n=2)
    dls.run.progress(1, 4)
    os.write(1, b"\nby hand\n")
    subprocess.run(["echo", "by a child"], check=True)
    print("no end", end="")
    return dls.run.id


@dls.udf
def says(text: str) -> str:
    print(text)
    return text


@dls.udf
def prints(megabytes: int) -> None:
    line = "x" * 1023
    for _ in range(megabytes * 1024):
        print(line)
    print("the last line")


@dls.udf
def leaves_a_talker(folder: str) -> int:
    """Something that it has started goes on writing after it."""
    code = (
        "import sys, time\nwhile True:\n sys.stdout.write('noise\\n'); sys.stdout.flush(); time.sleep(0.001)"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    Path(folder, "talker").write_text(str(child.pid))
    return child.pid
