"""A queue's declaration: what `queues.add` and `queues.patch` take, checked without a plane."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from .admission import Admission, admission, parse_rate

KINDS = ("fifo", "priority", "boltzmann", "filo")
ON_FULL = ("reject", "block")
ELASTICITY_KINDS = ("fixed", "fully_elastic", "pool_with_threshold", "max_count")
DEFAULT = "default"
_NAME = re.compile(r"^[a-z0-9][a-z0-9-]*$")
_ADMISSION = ("max_depth", "on_full", "rate_limit", "deadline_cutoff_s", "max_running", "max_bytes")
_PATCHABLE = ("temperature", "seed", "description", "provider", "retention", "template", *_ADMISSION)


class QueueSettings(Struct, frozen=True):
    """How a queue orders, admits and keeps. Times are seconds, sizes bytes."""

    kind: str = "fifo"
    temperature: float = 1.0
    seed: int | None = None
    description: str = ""
    provider: str | None = None
    elasticity: dict[str, Any] | None = None
    template: dict[str, Any] | None = None
    admission: Admission = Admission()
    retention: float | None = None


def check_name(name: str) -> str:
    """Return a valid queue name as it is; raise ValueError with the pattern otherwise."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a queue name is a string, not {type(name).__name__}")
    if not _NAME.fullmatch(name):  # `$` lets a newline pass
        raise ValueError(
            f"{name!r} is not a queue name: use lower-case letters, digits and hyphens, "
            f"beginning with a letter or digit ({_NAME.pattern})"
        )
    return name


def declare(given: Mapping[str, Any]) -> dict[str, Any]:
    """Check what `queues.add` was given and return it as plain data.

    Raises: ValueError or TypeError naming the setting and what it accepts.
    """
    kind = given.get("kind", "fifo")
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: a queue is one of {', '.join(KINDS)}")
    settings = QueueSettings(
        kind=kind,
        elasticity=_elasticity(given),
        **_checked({name: given[name] for name in _PATCHABLE if name in given}, Admission()),
    )
    return msgspec.to_builtins(settings)


def check_patch(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Check what `queues.patch` was given; return it as plain data."""
    for name in changes:
        if name not in _PATCHABLE and name not in ("min", "max", "threshold"):
            raise TypeError(
                f"queues.patch does not take {name!r}: name, kind and elasticity stay as they were added"
            )
    elastic = {name: changes[name] for name in ("min", "max", "threshold") if name in changes}
    plain = {name: value for name, value in changes.items() if name not in elastic}
    _checked(plain, Admission())
    if "rate_limit" in plain:
        plain["rate_limit"] = parse_rate(plain["rate_limit"])
    return {**plain, **elastic}


def patched(settings: QueueSettings, changes: Mapping[str, Any]) -> QueueSettings:
    """The settings after a checked patch.

    Raises: ValueError where `min`, `max` or `threshold` come without an elasticity.
    """
    elastic = {name: changes[name] for name in ("min", "max", "threshold") if name in changes}
    if elastic and settings.elasticity is None:
        raise ValueError(
            f"{', '.join(elastic)} belong to an elasticity, and this queue has none: add a queue with one"
        )
    plain = {name: value for name, value in changes.items() if name not in elastic}
    fields = _checked(plain, settings.admission)
    if elastic and settings.elasticity is not None:
        fields["elasticity"] = {**settings.elasticity, **elastic}
    return msgspec.structs.replace(settings, **fields)


def settings_of(data: Mapping[str, Any]) -> QueueSettings:
    """Stored settings, read back."""
    return msgspec.convert(data, QueueSettings)


def _checked(given: Mapping[str, Any], before: Admission) -> dict[str, Any]:
    fields = {name: value for name, value in given.items() if name not in _ADMISSION}
    rules = {name: value for name, value in given.items() if name in _ADMISSION}
    if rules:
        fields["admission"] = admission(**{**msgspec.structs.asdict(before), **rules})
    temperature = fields.get("temperature", 1.0)
    if not _number(temperature) or temperature < 0:
        raise ValueError(f"temperature={temperature!r}: choose a finite number, 0 or more")
    seed = fields.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise TypeError(f"seed={seed!r}: a seed is an int, or None to draw afresh")
    retention = fields.get("retention")
    if retention is not None and (not _number(retention) or retention < 0):
        raise ValueError(f"retention={retention!r}: choose seconds, 0 or more, or None for the plane's")
    if not isinstance(fields.get("description", ""), str):
        raise TypeError("description: a string")
    if fields.get("provider") == "":
        fields["provider"] = None
    return fields


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _elasticity(given: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = given.get("elasticity")
    bounds = {name: given.get(name) for name in ("min", "max", "threshold")}
    bounds = {name: value for name, value in bounds.items() if value is not None}
    if kind is None:
        if bounds:
            raise ValueError(f"{', '.join(bounds)} say how an elasticity behaves: name one as elasticity=")
        return None
    if kind not in ELASTICITY_KINDS:
        raise ValueError(f"elasticity={kind!r}: one of {', '.join(ELASTICITY_KINDS)}")
    for name in ("min", "max"):
        if name in bounds and (not isinstance(bounds[name], int) or bounds[name] < 0):
            raise ValueError(f"{name}={bounds[name]!r}: choose a whole number of workers, 0 or more")
    if "min" in bounds and "max" in bounds and bounds["min"] > bounds["max"]:
        raise ValueError(f"min={bounds['min']} is above max={bounds['max']}")
    if "threshold" in bounds and not (_number(bounds["threshold"]) and 0 <= bounds["threshold"] <= 1):
        raise ValueError(f"threshold={bounds['threshold']!r}: choose a share from 0.0 to 1.0")
    return {"kind": kind, **bounds}
