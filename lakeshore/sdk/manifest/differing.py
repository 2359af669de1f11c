"""How a queue or a provider that is there differs from what a file says. What it does not name stays."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from lakeshore.core.errors import IllegalMove
from lakeshore.core.settings import ELASTICITY_KINDS, check_patch
from lakeshore.core.states import QueueMove, QueueState, step_queue
from lakeshore.sdk.records import QueueInfo

from .changes import Edit

_PLAIN = ("description", "provider", "retention", "temperature", "seed", "storage")


def queue_edits(found: QueueInfo, given: Mapping[str, Any]) -> tuple[tuple[Edit, ...], dict[str, Any]]:
    """What differs, and the changes that `queues.patch` would make of it."""
    wanted = dict(given)
    rule, template = wanted.pop("elasticity", found.elasticity), wanted.pop("template", found.daemon_template)
    wanted = check_patch({name: value for name, value in wanted.items() if name != "kind"})
    current = {**found.admission, **{name: getattr(found, name) for name in _PLAIN if name != "provider"}}
    current["provider"] = found.provider_ref
    wanted = {name: (value or None) if name == "provider" else value for name, value in wanted.items()}
    edits = differences(current, wanted)
    patch = {edit.field: edit.after for edit in edits}
    if (merged := rule_of(found.elasticity, rule)) != found.elasticity:
        patch["elasticity"] = merged
        edits += _rule_edits(found.elasticity, merged)
    if (combined := merge(found.daemon_template, template)) != found.daemon_template:
        patch["template"] = combined
        edits += differences(found.daemon_template or {}, combined or {}, "daemonTemplate.", gone=True)
    return edits, patch


def rule_of(found: dict[str, Any] | None, rule: dict[str, Any] | None) -> dict[str, Any] | None:
    """The elasticity to have: of the same kind, parameters that the file does not name stay."""
    if rule is None:
        return None
    base = found if found is not None and found["kind"] == rule["kind"] else {}
    return {name: value for name, value in {**base, **rule}.items() if value is not None}


def merge(found: dict[str, Any] | None, given: dict[str, Any] | None) -> dict[str, Any] | None:
    """Free settings to have: null takes one away, and in place of all of them, all."""
    if given is None:
        return None
    merged = {name: value for name, value in {**(found or {}), **given}.items() if value is not None}
    return merged if merged or found else None


def differences(
    current: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "", *, gone: bool = False
) -> tuple[Edit, ...]:
    """What is wanted otherwise than it is; with `gone` also what is not wanted any more."""
    names = {**current, **wanted} if gone else wanted
    return tuple(
        Edit(prefix + name, current.get(name), wanted.get(name))
        for name in names
        if current.get(name) != wanted.get(name)
    )


def path_of(state: QueueState, wanted: QueueState) -> list[QueueMove]:
    """The fewest legal moves from one state to another."""
    seen, waiting = {state}, deque([(state, list[QueueMove]())])
    while waiting:
        at, moves = waiting.popleft()
        if at is wanted:
            return moves
        for move in QueueMove:
            try:
                after = step_queue(at, move)
            except IllegalMove:
                continue
            if after not in seen:
                seen.add(after)
                waiting.append((after, [*moves, move]))
    raise AssertionError(f"no way from {state} to {wanted}")


def _rule_edits(found: dict[str, Any] | None, merged: dict[str, Any] | None) -> tuple[Edit, ...]:
    if found is None or merged is None or found["kind"] != merged["kind"]:
        return (Edit("elasticity", _told(found), _told(merged)),)
    return differences(found, merged, "elasticity.", gone=True)


def _told(rule: dict[str, Any] | None) -> Any:
    """A rule that has a kind only is told by it."""
    assert rule is None or rule["kind"] in ELASTICITY_KINDS
    return rule["kind"] if rule is not None and len(rule) == 1 else rule
