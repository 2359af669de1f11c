"""Errors and values that can't travel, in every kind of body: its invocation fails, its worker goes on."""

from __future__ import annotations

import functools
from typing import Any

import anyio
import programs_errors  # noqa: F401 (fills the tables)
import pytest
from programs_errors import KINDS
from programs_world import ERRORS, VALUES

import lakeshore as dls

pytestmark = pytest.mark.anyio

EXPECTED = {
    "value": ("builtins.ValueError", "bad"),
    "two": ("programs_errors.TwoArguments", "1 and 2"),
    "unprintable": ("programs_errors.Unprintable", "<unprintable Unprintable>"),
    "exit": ("builtins.SystemExit", "2"),
    "interrupt": ("builtins.KeyboardInterrupt", ""),
    "close": ("builtins.GeneratorExit", ""),
    "cancelled": ("asyncio.exceptions.CancelledError", ""),
    "noted": ("builtins.ValueError", "top"),
    "group": ("builtins.BaseExceptionGroup", "outer (3 sub-exceptions)"),
}
PARTS = {
    "an object": "the result",
    "a lock inside": "the result['a'][1]['lock']",
    "a function": "the result",
    "a bad repr": "the result",
    "too deep": "the result[0][0]",
}


def sync(error: str, value: str) -> Any:
    return _end(error, value)


def generator(error: str, value: str) -> Any:
    yield "first"
    yield "second"
    return _end(error, value)


async def coroutine(error: str, value: str) -> Any:
    return _end(error, value)


async def async_generator(error: str, value: str) -> Any:
    yield "first"
    yield "second"
    yield _end(error, value)


BODIES: dict[str, Any] = dict(zip(KINDS, (sync, generator, coroutine, async_generator), strict=True))


def _end(error: str, value: str) -> Any:
    if error:
        raise ERRORS[error]()
    return VALUES[value]()


async def _read(q: dls.AsyncDispatch, inv: str, frames: list[Any]) -> None:
    try:
        async for frame in q.stream(inv):
            frames.append(frame.value)  # noqa: PERF401 (the error comes after them)
    except dls.InvocationFailed:
        return
    raise AssertionError("a stream of what failed ends with its error")


async def _failure(q: dls.AsyncDispatch, kind: str, error: str = "", value: str = "") -> Any:
    """How a body of this kind failed, which was tried once; what it yielded before stays readable."""
    inv = await q.submit(dls.udf(BODIES[kind], retries=0 if error else 3), error, value)
    with pytest.raises(dls.InvocationFailed) as caught:
        await q.result(inv)
    record = await q.get(inv)
    assert [attempt.outcome for attempt in record.attempts] == ["failed"]
    frames: list[Any] = []
    await _read(q, inv, frames)
    assert frames == (["first", "second"] if "generator" in kind else [])
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
async def test_every_error_in_every_kind(address: str, kind: str) -> None:
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q))
        for error, expected in EXPECTED.items():
            failed = await _failure(q, kind, error)
            assert (failed.type, failed.message) == expected
            assert "raise ERRORS[error]()" in failed.traceback
            assert "lakeshore/runners" not in failed.traceback
            if error == "noted":
                causes = failed.failure.cause, failed.failure.cause.cause
                assert failed.notes == ("a note",)
                assert [cause.type for cause in causes] == ["builtins.KeyError", "builtins.OSError"]
            if error == "group":
                leaves = [leaf.type.rpartition(".")[2] for leaf in failed.failure.leaves]
                assert leaves == ["ValueError", "KeyError", "Unprintable", "SystemExit"]
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("kind", KINDS)
async def test_every_value_that_cannot_travel_from_every_kind(address: str, kind: str) -> None:
    async with dls.AsyncDispatch(address) as q, anyio.create_task_group() as tasks:
        await tasks.start(functools.partial(dls.arun_worker, q))
        for value, part in PARTS.items():
            failed = await _failure(q, kind, value=value)
            assert failed.type in ("builtins.TypeError", "builtins.ValueError")
            whole = "yield[2]" if kind == "async_generator" else "the result"
            assert part.replace("the result", whole) in failed.message
        tasks.cancel_scope.cancel()
