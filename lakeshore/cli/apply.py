"""`lakeshore apply`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from . import plane, printing
from .errors import Failed, UsageError, one_line
from .parameters import Json

if TYPE_CHECKING:
    from lakeshore.sdk.manifest import Change, Manifest

_COUNTS = {"add": ("added", "to add"), "change": ("changed", "to change"), "none": ("unchanged", "unchanged")}


def apply(
    *,
    file: Annotated[str, Parameter(name=("--file", "-f"), allow_leading_hyphen=True)],
    dry_run: bool = False,
    json: Json = False,
) -> None:
    """Make a plane what a lakeshore.yaml says, and leave alone what it does not name.

    Example: lakeshore apply -f lakeshore.yaml --dry-run

    Args:
        file: The file; - reads standard input.
        dry_run: Change nothing; print what would be.
    """
    from lakeshore.sdk.manifest import apply as carry_out

    manifest = loaded(file)
    named = plane.named()
    meant = replace(named, namespace=meant_namespace(manifest, named.namespace))
    size = len(manifest.providers) + len(manifest.queues)
    with plane.naming(meant), plane.opened() as q, _progress(size) as told:
        changes = carry_out(q, manifest, dry_run=dry_run, told=told)
    for note in manifest.notes:
        printing.note(note)
    _show(changes, dry_run, json)


def loaded(file: str) -> Manifest:
    """A file that is read, or a usage error with a line for each thing wrong."""
    from lakeshore.sdk.manifest import ManifestError, load

    try:
        return load(file)
    except ManifestError as error:
        *others, last = str(error).splitlines()
        for line in others:
            printing.note(line)
        raise UsageError(last) from None


def meant_namespace(manifest: Manifest, named: str | None) -> str | None:
    if manifest.namespace is msgspec.UNSET:
        return named
    if named not in (None, manifest.namespace):
        raise UsageError(
            f"{manifest.file} is for the namespace {manifest.namespace}, and --namespace says {named}: leave "
            "one out"
        )
    return manifest.namespace


def _show(changes: list[Change], dry_run: bool, json: bool) -> None:
    failed = [change for change in changes if change.outcome == "failed"]
    if json:
        printing.document(msgspec.to_builtins(changes))
    else:
        for change in changes:
            if change.outcome in ("done", "planned"):
                print(one_line(str(change)))
        counts = Counter(_COUNTS[change.action][dry_run] for change in changes if change.outcome != "failed")
        if counts:
            print(", ".join(f"{count} {what}" for what, count in counts.items()))
    for change in failed:
        printing.note(str(change))
    if failed:
        raise Failed(f"{len(failed)} of {len(changes)} failed; the rest stands")


@contextmanager
def _progress(total: int) -> Generator[Callable[[Any], object] | None]:
    """A bar, where people look."""
    if total < 2 or not (printing.terminal() and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("apply", total=total)
        yield lambda change: bar.advance(task)
