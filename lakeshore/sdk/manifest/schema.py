"""The file's form as JSON Schema, for editors."""

from __future__ import annotations

from typing import Any

import msgspec

from .shape import DaemonTemplate, Manifest

_NAME = "^[a-z0-9][a-z0-9-]*$"
_REF = "#/$defs/{name}"


def schema() -> dict[str, Any]:
    """The schema as data."""
    _, parts = msgspec.json.schema_components([Manifest, DaemonTemplate], ref_template=_REF)
    whole = parts.pop("Manifest")
    for name in ("file", "notes"):  # not in the file
        del whole["properties"][name]
    for name in ("queues", "providers"):  # may be left empty, too
        group = whole["properties"][name]
        del group["default"]
        group["propertyNames"] = {"pattern": _NAME}
        whole["properties"][name] = {"anyOf": [group, {"type": "null"}]}
    queue, provider = parts["Queue"], parts["Provider"]
    whole["properties"]["queues"]["anyOf"][0]["additionalProperties"] = {
        "anyOf": [{"$ref": _REF.format(name="Queue")}, {"type": "null"}]
    }
    queue["properties"]["daemonTemplate"] = {
        "anyOf": [{"$ref": _REF.format(name="DaemonTemplate")}, {"type": "null"}]
    }
    del provider["properties"]["config"]  # its keys stand beside kind and max
    whole["description"] = "A whole lakeshore.yaml: what `lakeshore apply` makes of a plane."
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **whole,
        "title": "lakeshore.yaml",
        "$defs": parts,
    }


def schema_text() -> str:
    """The schema as it is published."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode() + "\n"
