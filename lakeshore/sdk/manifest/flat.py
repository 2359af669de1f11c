"""A queue of the file under the names that `queues.add` and `queues.patch` use."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct

from .shape import Queue

_NAMES = ("kind", "description", "retention", "temperature", "seed", "storage")


def flat(queue: Queue) -> dict[str, Any]:
    """What the file names; `elasticity` is a mapping with its kind, or None."""
    given: dict[str, Any] = {name: getattr(queue, name) for name in _NAMES}
    given["provider"] = queue.provider_ref
    given["template"] = queue.daemon_template
    rule = queue.elasticity
    given["elasticity"] = named(rule) if isinstance(rule, Struct) else rule
    if isinstance(queue.admission, Struct):
        given.update(named(queue.admission))
    return {name: value for name, value in given.items() if value is not UNSET}


def named(part: Struct) -> dict[str, Any]:
    """The fields of a part of the file that it names."""
    fields = msgspec.structs.asdict(part)
    return {name: value for name, value in fields.items() if value is not UNSET}
