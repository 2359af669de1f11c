"""Programs about bodies that raise, and about values that can't travel."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
from programs_world import ERRORS, VALUES, World, program, udf

KINDS = ("sync", "generator", "async", "async_generator")


class TwoArguments(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(f"{a} and {b}")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def _noted() -> BaseException:
    error = ValueError("top")
    error.add_note("a note")
    error.__cause__ = KeyError("cause")
    error.__cause__.__context__ = OSError("context")
    return error


def _group() -> BaseException:
    inner = ExceptionGroup("inner", [KeyError("b"), Unprintable()])
    return BaseExceptionGroup("outer", [ValueError("a"), inner, SystemExit(3)])


ERRORS.update(
    {
        "value": lambda: ValueError("bad"),
        "os": lambda: OSError("down"),
        "two": lambda: TwoArguments(1, 2),
        "unprintable": Unprintable,
        "exit": lambda: SystemExit(2),
        "interrupt": KeyboardInterrupt,
        "stop": lambda: StopIteration(5),
        "astop": StopAsyncIteration,
        "close": GeneratorExit,
        "cancelled": asyncio.CancelledError,
        "noted": _noted,
        "group": _group,
        "os group": lambda: ExceptionGroup("g", [OSError("a"), OSError("b")]),
        "mixed group": lambda: ExceptionGroup("g", [OSError("a"), ValueError("b")]),
    }
)


def _deep() -> Any:
    found: list[Any] = []
    for _ in range(5000):
        found = [found]
    return found


VALUES.update(
    {
        "an object": object,
        "a lock inside": lambda: {"a": [1, {"lock": threading.Lock()}]},
        "a function": lambda: _deep,
        "a bad repr": BadRepr,
        "too deep": _deep,
        "NaN": lambda: float("nan"),
    }
)


@program("")
async def every_error_of_every_kind(w: World) -> None:
    async with w.working():
        for error in ERRORS:
            for kind in KINDS:
                label = f"{error}, {kind}"
                await w.submit(label, udf(kind), [("raise", error)])
                await w.end(label)


@program("")
async def results_that_cannot_travel(w: World) -> None:
    async with w.working():
        for value in VALUES:
            for kind in KINDS:
                step = "yield" if kind == "async_generator" else "return"
                label = f"{value}, {kind}"
                await w.submit(label, udf(kind, retries=2), [(step, value)])
                await w.end(label)


@program(
    """
    generator: running failed | failed | TypeError | 1 2
    async_generator: running failed | failed | TypeError | 1 2
    """
)
async def a_third_item_that_cannot_travel(w: World) -> None:
    async with w.working():
        for kind in ("generator", "async_generator"):
            plan = [("yield", 1), ("yield", 2), ("yield", "a lock inside"), ("yield", 4)]
            await w.submit(kind, udf(kind, retries=1), plan)
            await w.end(kind)


async def _fail(error: str, after: float) -> None:
    with anyio.CancelScope(shield=True):  # whether or not the other one failed first
        await anyio.sleep(after)
    raise ERRORS[error]()


async def together() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_fail, "value", 1)
        tasks.start_soon(_fail, "os", 2)


async def one_of_several() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_fail, "value", 1)
        tasks.start_soon(anyio.sleep, 2)


@program(
    """
    together: running failed | failed | ExceptionGroup
    one_of_several: running failed | failed | ExceptionGroup
    """
)
async def tasks_of_a_body_fail(w: World) -> None:
    async with w.working():
        for fn in (together, one_of_several):
            await w.submit(fn.__name__, fn)
            await w.end(fn.__name__)


@program(
    """
    plane: ran 1
    a bad repr: refused TypeError
    a function: refused TypeError
    a lock inside: refused TypeError
    an object: refused TypeError
    bad key: refused ValueError
    bad option: refused ValueError
    missing: refused TypeError
    misspelt: refused TypeError
    too deep: refused TypeError
    unknown option: refused TypeError
    NaN: queued running succeeded | succeeded | nan
    """
)
async def arguments_that_cannot_travel(w: World) -> None:
    for value in VALUES:
        await w.submit(value, udf("async"), [("return", VALUES[value]())])
    await w.submit("missing", together, 1)
    await w.submit("misspelt", together, wrong=1)
    await w.submit("bad option", together, _priority=float("nan"))
    await w.submit("bad key", together, _key="")
    await w.submit("unknown option", together, _wrong=1)
    await w.work(drain=True)
