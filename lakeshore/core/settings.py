"""A queue's declaration: what `queues.add` and `queues.patch` take, checked without a plane."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from .admission import Admission, admission, parse_rate
from .naming import check_slug
from .orders import KINDS
from .storages import check_storage

ELASTICITY_KINDS = ("fixed", "fully_elastic", "pool_with_threshold", "max_count")
DEFAULT = "default"
_LONGEST = 1e11  # seconds: three thousand years
_HOTTEST = 1e12
_MOST = 1_000_000_000  # workers
_LARGEST = 1 << 63  # whole numbers that can be stored are below it
_ELASTIC = ("min", "max", "threshold")
_RULE = (*_ELASTIC, "cooldown_s")  # beside its kind
_ADMISSION = ("max_depth", "on_full", "rate_limit", "deadline_cutoff_s", "max_running", "max_bytes")
_PLAIN = ("temperature", "seed", "description", "provider", "retention", "template", "storage")
_PATCHABLE = (*_PLAIN, *_ADMISSION)


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
    storage: str | None = None


def check_name(name: str) -> str:
    """Return a valid queue name as it is; raise ValueError with the pattern otherwise."""
    return check_slug("queue", name)


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
    return _plain(settings)


def check_patch(changes: Mapping[str, Any], *, elasticity: bool = False) -> dict[str, Any]:
    """Check what `queues.patch` was given; return it as plain data.

    With `elasticity` it may be another one: None, or all of it as a mapping with its kind.
    """
    allowed = {*_PATCHABLE, *_ELASTIC, *(("elasticity",) if elasticity else ())}
    for name in changes:
        if name not in allowed:
            raise TypeError(
                f"queues.patch does not take {name!r}: name, kind and elasticity stay as they were added"
            )
    _plain(patched(QueueSettings(elasticity={"kind": ELASTICITY_KINDS[0]}), changes))
    checked = dict(changes)
    if "rate_limit" in checked:
        checked["rate_limit"] = parse_rate(checked["rate_limit"])
    return checked


def patched(settings: QueueSettings, changes: Mapping[str, Any]) -> QueueSettings:
    """The settings after a checked patch.

    `min`, `max` and `threshold` are taken away by None.

    Raises: ValueError where they come without an elasticity, or don't fit those that are there.
    """
    if "elasticity" in changes:
        settings = msgspec.structs.replace(settings, elasticity=_rule(changes["elasticity"]))
        changes = {name: value for name, value in changes.items() if name != "elasticity"}
    elastic = {name: changes[name] for name in _ELASTIC if name in changes}
    if elastic and settings.elasticity is None:
        raise ValueError(
            f"{', '.join(elastic)} belong to an elasticity, and this queue has none: add a queue with one"
        )
    plain = {name: value for name, value in changes.items() if name not in elastic}
    fields = _checked(plain, settings.admission)
    if elastic and settings.elasticity is not None:
        fields["elasticity"] = _rule({**settings.elasticity, **elastic})
    return msgspec.structs.replace(settings, **fields)


def settings_of(data: Mapping[str, Any]) -> QueueSettings:
    """Stored settings, read back."""
    return msgspec.convert(data, QueueSettings)


def _plain(settings: QueueSettings) -> dict[str, Any]:
    """Settings as data that can be read back."""
    try:
        data = msgspec.to_builtins(settings)
        settings_of(data)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ValueError(f"these settings can't be stored: {error}") from None
    return data


def _checked(given: Mapping[str, Any], before: Admission) -> dict[str, Any]:
    fields = {name: value for name, value in given.items() if name not in _ADMISSION}
    rules = {name: value for name, value in given.items() if name in _ADMISSION}
    for name, value in rules.items():
        if isinstance(value, int) and value >= _LARGEST:
            raise ValueError(f"{name}: choose a number below 2**63, or None for no limit")
    if rules:
        fields["admission"] = admission(**{**msgspec.structs.asdict(before), **rules})
    temperature = fields.get("temperature", 1.0)
    if not _number(temperature) or not 0 <= temperature <= _HOTTEST:
        raise ValueError(f"temperature={_short(temperature)}: choose a number from 0 to {_HOTTEST:g}")
    seed = fields.get("seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise TypeError(f"seed={seed!r}: a seed is an int, or None to draw afresh")
    if isinstance(seed, int) and not -_LARGEST <= seed < _LARGEST:
        raise ValueError("seed: choose a number from -2**63 to 2**63 - 1")
    retention = fields.get("retention")
    if retention is not None and (not _number(retention) or not 0 <= retention <= _LONGEST):
        raise ValueError(
            f"retention={_short(retention)}: choose seconds from 0 to {_LONGEST:g}, or None for the plane's"
        )
    if not isinstance(fields.get("description", ""), str):
        raise TypeError("description: a string")
    provider = fields.get("provider")
    if provider is not None and not isinstance(provider, str):
        raise TypeError(f"provider={_short(provider)}: the name of a provider, or None")
    if provider == "":
        fields["provider"] = None
    if fields.get("storage") == "":
        fields["storage"] = None
    if fields.get("storage") is not None:
        check_storage(fields["storage"])
    template = fields.get("template")
    if template is not None and not _is_template(template):
        raise TypeError(f"template={_short(template)}: a dict with strings as keys, or None")
    return fields


def _number(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < _LARGEST
    return isinstance(value, float) and math.isfinite(value)


def _is_template(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(key, str) for key in cast(dict[object, object], value))


def _short(value: object) -> str:
    """A value for a sentence."""
    if isinstance(value, int) and abs(value) >= _LARGEST:
        return "a huge number"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _elasticity(given: Mapping[str, Any]) -> dict[str, Any] | None:
    rule = given.get("elasticity")
    bounds = {name: given[name] for name in _ELASTIC if given.get(name) is not None}
    if rule is None and bounds:
        raise ValueError(f"{', '.join(bounds)} say how an elasticity behaves: name one as elasticity=")
    if rule is None:
        return None
    named = cast(Mapping[Any, Any], rule) if isinstance(rule, Mapping) else {"kind": rule}
    return _rule({**named, **bounds})


def _rule(given: Any) -> dict[str, Any] | None:
    """An elasticity as it is stored: its kind, and those of `_RULE` that it has."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"elasticity={_short(given)}: a mapping with its kind, or None")
    rule = cast(Mapping[Any, Any], given)
    kind = rule.get("kind")
    if kind not in ELASTICITY_KINDS:
        raise ValueError(f"elasticity={_short(kind)}: one of {', '.join(ELASTICITY_KINDS)}")
    if unknown := [name for name in rule if name not in ("kind", *_RULE)]:
        raise ValueError(f"elasticity has no {_short(unknown[0])}: it has kind, {', '.join(_RULE)}")
    bounds = {name: rule[name] for name in _RULE if rule.get(name) is not None}
    _check_bounds(bounds)
    return {"kind": kind, **bounds}


def _check_bounds(bounds: Mapping[str, Any]) -> None:
    for name in ("min", "max"):
        value = bounds.get(name, 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise ValueError(f"{name}={_short(value)}: choose a whole number of workers, 0 to {_MOST}")
    if "min" in bounds and "max" in bounds and bounds["min"] > bounds["max"]:
        raise ValueError(f"min={bounds['min']} is above max={bounds['max']}")
    if "threshold" in bounds and not (_number(bounds["threshold"]) and 0 <= bounds["threshold"] <= 1):
        raise ValueError(f"threshold={_short(bounds['threshold'])}: choose a share from 0.0 to 1.0")
    cooldown = bounds.get("cooldown_s", 0)
    if not _number(cooldown) or not 0 <= cooldown <= _LONGEST:
        raise ValueError(f"cooldown_s={_short(cooldown)}: choose seconds from 0 to {_LONGEST:g}")
