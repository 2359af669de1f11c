"""`lakeshore providers`."""

from __future__ import annotations

from typing import Any

import msgspec

from lakeshore.sdk.choices import ProviderKind

from . import plane, printing
from .app import arrange, group
from .errors import Failed, UsageError
from .parameters import Count, Json

app = group("providers", "What launches workers for queues that want some.")

_COLUMNS: list[printing.Column] = [
    ("NAME", lambda provider: provider.name),
    ("KIND", lambda provider: provider.kind),
    ("MAX", lambda provider: provider.max),
    ("STATE", lambda provider: provider.state),
    ("CONFIG", lambda provider: provider.config),
]


@app.command
def add(
    name: str,
    /,
    *,
    kind: ProviderKind,
    max: Count | None = None,
    set: list[str] | None = None,
    json: Json = False,
) -> None:
    """Create a provider.

    Example: lakeshore providers add my-gpu-provider --kind slurm --max 32 --set partition=gpu

    Args:
        name: Its name.
        kind: How it launches them.
        max: Most workers it may have at once.
        set: A setting of its kind, key=value: JSON where it parses, else text. Several times.
    """
    config = _settings(set)
    with plane.opened() as q:
        found = q.providers.add(name, kind=kind, max=max, config=config)
    printing.said(f"provider {found.name} added", found, json)


@app.command(name="list")
def list_(*, json: Json = False) -> None:
    """List providers.

    Example: lakeshore providers list
    """
    with plane.opened() as q:
        printing.show(printing.rows(q.providers.list(), _COLUMNS), json)


@app.command
def show(name: str, /, *, json: Json = False) -> None:
    """One provider.

    Example: lakeshore providers show my-gpu-provider

    Args:
        name: Its name or id.
    """
    with plane.opened() as q:
        printing.show(printing.record(q.providers.show(name)), json)


@app.command
def patch(
    name: str, /, *, max: Count | None = None, set: list[str] | None = None, json: Json = False
) -> None:
    """Change a provider's settings; those that are not named stay.

    Example: lakeshore providers patch my-gpu-provider --max 64

    Args:
        name: Its name or id.
        max: Most workers it may have at once.
        set: A setting of its kind, key=value, or key=null to take it away. Several times.
    """
    changes: dict[str, Any] = {} if max is None else {"max": max}
    settings = _settings(set)
    if not changes and not settings:
        raise UsageError("nothing to change: give --max or --set")
    with plane.opened() as q:
        if settings:
            kept = q.providers.show(name).config | settings
            changes["config"] = {key: value for key, value in kept.items() if value is not None}
        found = q.providers.patch(name, **changes)
    printing.said(f"provider {found.name} patched", found, json)


@app.command
def remove(name: str, /, *, json: Json = False) -> None:
    """Delete a provider that no queue names.

    Example: lakeshore providers remove my-gpu-provider

    Args:
        name: Its name or id.
    """
    with plane.opened() as q:
        found = q.providers.remove(name)
    printing.said(f"provider {found.name} removed", found, json)


@app.command
def check(name: str, /) -> None:
    """Ask a provider whether it could launch workers now.

    Example: lakeshore providers check my-gpu-provider

    Args:
        name: Its name or id.
    """
    with plane.opened() as q:
        found = q.providers.show(name)
    raise Failed(
        f"501 NotImplemented: this version stores provider {found.name} and launches nothing, so there is "
        "nothing to check yet"
    )


def _settings(given: list[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise UsageError(f'--set "{text}": write KEY=VALUE')
        if key in found:
            raise UsageError(f"--set {key} is given twice")
        try:
            found[key] = msgspec.json.decode(value)
        except msgspec.DecodeError:
            found[key] = value
    return found


arrange(app, list=("ls",), remove=("rm", "delete"), add=("create",))
