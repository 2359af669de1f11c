"""The event log of a program: what is left of every invocation, and how it is compared."""

from __future__ import annotations

from typing import Any

from programs_world import World

import lakeshore as dls


async def history(world: World) -> list[dict[str, Any]]:
    """Every invocation in id order: stored transitions, what was seen, its record, frames and outcome."""
    others = {name for name, _ in world.notes} - {"plane", *world.ids, *world.ids.values()}
    log: list[dict[str, Any]] = [
        {"label": label, "seen": world.seen(label)} for label in ("plane", *sorted(others))
    ]
    for label, inv in sorted(world.ids.items(), key=lambda item: item[1]):
        entry: dict[str, Any] = {"label": label, "seen": world.seen(label)}
        entry["stored"] = world.stored.get(inv, [])
        try:
            entry["record"] = _record(world, await world.q.get(inv))
        except dls.NotFound as error:
            entry["record"] = type(error).__name__
        entry["outcome"] = await _outcome(world, inv)
        entry["frames"] = await _frames(world, inv)
        log.append(entry)
    return log


def _record(world: World, record: dls.Invocation) -> dict[str, Any]:
    return {
        "queue": record.queue,
        "state": str(record.state),
        "key": record.key,
        "priority": record.priority,
        "prefix": record.prefix,
        "error": record.error,
        "reason": record.reason,
        "parent": world.label(record.parent or ""),
        "retry_of": world.label(record.retry_of or ""),
        "times": (record.started_at is not None, record.ended_at is not None),
        "attempts": [(one.number, one.outcome, one.reason) for one in record.attempts],
    }


async def _outcome(world: World, inv: str) -> Any:
    try:
        if not (await world.q.get(inv)).state.terminal:
            return "still there"
        return "=", repr(await world.q.result(inv))
    except dls.InvocationFailed as error:
        return "InvocationFailed", error.attempt, *_failure(error.failure)
    except dls.Unsuccessful as error:
        return type(error).__name__, error.attempt, error.message
    except dls.NotFound as error:
        return (type(error).__name__,)


def _failure(failure: dls.Failure | None) -> Any:
    if failure is None:
        return ()
    leaves = sorted(_failure(leaf) for leaf in failure.leaves)  # tasks that fail together are in no order
    return failure.type, failure.message, failure.notes, _failure(failure.cause), leaves


async def _frames(world: World, inv: str) -> list[Any]:
    got: list[Any] = []
    try:
        if (await world.q.get(inv)).state.terminal:
            async for frame in world.q.stream(inv):
                value = frame.value if frame.value == frame.value else "NaN"
                got.append((frame.seq, value, frame.attempt))
            got.append("end")
    except dls.LakeshoreError as error:
        got.append(type(error).__name__)
    return got


def differences(log: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    """Where two logs differ, one line a field."""
    found = {entry["label"]: entry for entry in log}
    wanted = {entry["label"]: entry for entry in expected}
    return [
        f"{label}, {field}: {found.get(label, {}).get(field)!r} is not {wanted.get(label, {}).get(field)!r}"
        for label in sorted(found.keys() | wanted.keys())
        for field in ("seen", "stored", "record", "outcome", "frames")
        if found.get(label, {}).get(field) != wanted.get(label, {}).get(field)
    ]


def brief(log: list[dict[str, Any]]) -> list[str]:
    """A log in a few words: of each invocation its stored states, what ended its attempts, its outcome and
    the values of its frames; of what was refused, how."""
    lines: list[str] = []
    for entry in log:
        if "record" not in entry:
            notes = "; ".join(" ".join(map(str, note)) for note in entry["seen"])
            lines += [f"{entry['label']}: {notes}"] if notes else []
            continue
        record = entry["record"]
        attempts = [] if isinstance(record, str) else [outcome for _, outcome, _ in record["attempts"]]
        states = " ".join(state for state, _ in entry["stored"])
        values = [str(frame[1]) for frame in entry["frames"] if isinstance(frame, tuple)]
        frames = " ".join(values if len(values) < 9 else [*values[:2], "…", values[-1]])
        parts = [states, " ".join(map(str, attempts)), _brief_outcome(entry["outcome"]), frames]
        lines.append(f"{entry['label']}: {' | '.join(parts)}".rstrip(" |"))
    return lines


def _brief_outcome(outcome: Any) -> str:
    if isinstance(outcome, str):
        return outcome
    if outcome[0] == "=":
        return outcome[1]
    return outcome[2].rpartition(".")[2] if outcome[0] == "InvocationFailed" else outcome[0]
