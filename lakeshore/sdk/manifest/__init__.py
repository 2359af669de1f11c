"""`lakeshore.yaml`: queues and providers as a file. Read with `load`, carried out with `apply`."""

from .applying import apply, apply_async
from .changes import Change, Edit
from .problems import ManifestError, Problem
from .reading import load, parse
from .schema import schema_text
from .shape import Manifest

__all__ = [
    "Change",
    "Edit",
    "Manifest",
    "ManifestError",
    "Problem",
    "apply",
    "apply_async",
    "load",
    "parse",
    "schema_text",
]
