"""How an ended invocation becomes a value or an exception."""

from __future__ import annotations

from typing import Any

import anyio

from lakeshore.core.away import EXTENSION, away_in
from lakeshore.core.errors import InvocationFailed, InvocationKilled, InvocationTimeout, Unsuccessful
from lakeshore.core.ids import text_of
from lakeshore.core.messages import Outcome
from lakeshore.core.states import State
from lakeshore.core.values import unpack

_SUCCEEDED = State.SUCCEEDED  # looked up once: it is compared at every result


def value_of(outcome: Outcome, types: tuple[Any, ...] = ()) -> Any:
    """The result, or raise what the invocation ended with."""
    state = outcome.state
    if state is not _SUCCEEDED and state != _SUCCEEDED:
        raise exception_of(outcome)
    assert outcome.result is not None
    return value_in(outcome.result, types)


def value_in(data: bytes, types: tuple[Any, ...]) -> Any:
    """A packed value, wherever it is. Blocks where it is in a storage."""
    if data[0] >= EXTENSION and (away := away_in(data)) is not None:
        from lakeshore.storage.values import bring_back  # which few programs need

        data = bring_back(away)
    return unpack(data, types=types)


async def value_of_async(outcome: Outcome, types: tuple[Any, ...] = ()) -> Any:
    """`value_of` on an event loop, which goes on meanwhile."""
    result = outcome.result
    if result and result[0] >= EXTENSION and away_in(result) is not None:
        return await anyio.to_thread.run_sync(value_of, outcome, types, abandon_on_cancel=True)
    return value_of(outcome, types)


def raise_unless_succeeded(outcome: Outcome) -> None:
    """Raise InvocationFailed, InvocationKilled or InvocationTimeout."""
    if outcome.state != _SUCCEEDED:
        raise exception_of(outcome)


def exception_of(outcome: Outcome) -> Unsuccessful:
    """The exception that an outcome without success stands for."""
    id, attempt, error = text_of(outcome.id), outcome.attempt, outcome.error
    if outcome.state == State.FAILED and error is not None:
        return InvocationFailed(
            error.message,
            id=id,
            attempt=attempt,
            type=error.type,
            traceback=error.traceback,
            notes=error.notes,
            failure=error,
        )
    if outcome.state == State.KILLED:
        return InvocationKilled(outcome.reason or "killed", id=id, attempt=attempt)
    if outcome.state == State.TIMEOUT:
        return InvocationTimeout(outcome.reason or "it took too long", id=id, attempt=attempt)
    return InvocationFailed(outcome.reason or "it failed", id=id, attempt=attempt)
