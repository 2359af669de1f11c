"""A provider's declaration: what `providers.add` and `providers.patch` take, checked without a plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .naming import check_slug
from .rows import ProviderRow

PROVIDER_KINDS = ("local", "ssh", "slurm", "kubernetes", "ec2", "command")
_MOST = 1_000_000_000  # daemons
_PATCHABLE = ("config", "max")


def check_provider_name(name: str) -> str:
    """Return a valid name of a provider as it is; raise ValueError with the pattern otherwise."""
    return check_slug("provider", name)


def check_provider_kind(kind: str) -> str:
    """Return a known kind as it is, or raise ValueError naming them."""
    if kind not in PROVIDER_KINDS:
        raise ValueError(f"kind={kind!r}: a provider is one of {', '.join(PROVIDER_KINDS)}")
    return kind


def check_provider_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Check `config` and `max`, those that are there; return them as plain data.

    Raises: TypeError or ValueError naming what is wrong.
    """
    for name in changes:
        if name not in _PATCHABLE:
            raise TypeError(f"a provider has no {name!r} to change: {' and '.join(_PATCHABLE)} can be")
    config = changes.get("config", {})
    if not isinstance(config, dict) or not all(
        isinstance(k, str) for k in cast(dict[object, object], config)
    ):
        raise TypeError(f"config={config!r}: a dict with strings as keys")
    most = changes.get("max")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool)):
        raise TypeError(f"max={most!r}: a whole number of daemons, or None for no limit")
    if most is not None and not 0 <= most <= _MOST:
        raise ValueError(f"max={most!r}: choose a number of daemons from 0 to {_MOST}, or None for no limit")
    return dict(changes)


def describe_provider(row: ProviderRow, id: str) -> dict[str, Any]:
    """A provider as plain data."""
    return {
        "id": id,
        "name": row.name,
        "kind": row.kind,
        "config": row.config,
        "max": row.max,
        "state": row.state,
    }
