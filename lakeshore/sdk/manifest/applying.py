"""Makes a plane what a file says, through the public verbs: one plan, and a driver for either face."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET

from lakeshore.core.errors import OutcomeUnknown, PlaneClosed, PlaneFailed, Refused, Unreachable
from lakeshore.core.settings import DEFAULT
from lakeshore.core.states import QueueState
from lakeshore.sdk import verbs
from lakeshore.sdk.records import QueueInfo

from .changes import Change, Edit
from .differing import differences, merge, path_of, queue_edits, rule_of
from .flat import flat
from .shape import Manifest, Provider, Queue

if TYPE_CHECKING:
    from lakeshore.sdk.aio import AsyncDispatch
    from lakeshore.sdk.dispatch import Dispatch

Step: TypeAlias = Callable[[Any], Any]  # takes a face; gives the answer, or what to await for it
Plan: TypeAlias = Generator[Step, Any, Change]
Told: TypeAlias = Callable[[Change], object]

_GONE = (Unreachable, OutcomeUnknown, PlaneClosed, PlaneFailed)  # no use in asking for more
_EVERY = tuple(QueueState)


def apply(
    face: Dispatch, manifest: Manifest, *, dry_run: bool = False, told: Told | None = None
) -> list[Change]:
    """Make a plane what the file says, and leave alone what it does not name.

    Args:
        dry_run: change nothing, and return what would be.
        told: called with each change, once it is done or has failed.

    Returns: one change for each provider and queue of the file, in its order, those that differ in
        nothing and those that failed too: a failure does not stop the others.
    Raises: ValueError where the file is for another namespace; whatever the first reads raise.
    """
    _check_namespace(face.namespace, manifest)
    with closing(_plan(manifest, dry_run, told)) as plan:
        step = next(plan)
        while True:
            try:
                go_on = partial(plan.send, step(face))
            except Exception as error:
                go_on = partial(plan.throw, error)
            try:
                step = go_on()
            except StopIteration as stop:
                return stop.value


async def apply_async(
    face: AsyncDispatch, manifest: Manifest, *, dry_run: bool = False, told: Told | None = None
) -> list[Change]:
    """The same for the face with coroutines."""
    _check_namespace(face.namespace, manifest)
    with closing(_plan(manifest, dry_run, told)) as plan:
        step = next(plan)
        while True:
            try:
                go_on = partial(plan.send, await step(face))
            except Exception as error:
                go_on = partial(plan.throw, error)
            try:
                step = go_on()
            except StopIteration as stop:
                return stop.value


def _check_namespace(namespace: str, manifest: Manifest) -> None:
    if manifest.namespace is not UNSET and manifest.namespace != namespace:
        raise ValueError(
            f"{manifest.file} is for the namespace {manifest.namespace!r}, and this connection is to "
            f"{namespace!r}: connect to the file's, or take `namespace:` out of it"
        )


def _plan(manifest: Manifest, dry_run: bool, told: Told | None) -> Generator[Step, Any, list[Change]]:
    queues: list[QueueInfo] = yield lambda face: face.queues.ls(state=_EVERY)
    providers: dict[str, Any] = {}
    if manifest.providers or any(queue.provider_ref for queue in manifest.queues.values()):
        rows = yield lambda face: face.providers.list()
        providers = {row.name: row for row in rows}
    known, found = {*providers, *manifest.providers}, {queue.name: queue for queue in queues}
    plans: list[tuple[str, str, Plan]] = []
    if manifest.storage is not UNSET:
        plans.append(("storage", "", _storage(manifest.storage, dry_run)))
    plans += [
        ("provider", name, _provider(name, wanted, providers.get(name), dry_run))
        for name, wanted in manifest.providers.items()
    ]
    plans += [
        ("queue", name, _queue(name, wanted, found.get(name), known, dry_run))
        for name, wanted in manifest.queues.items()
    ]
    done: list[Change] = []
    gone: Refused | None = None
    for item, name, plan in plans:
        try:
            change = _failed(item, name, gone, "not tried: ") if gone else (yield from plan)
        except (Refused, TypeError, ValueError) as error:
            change = _failed(item, name, error)
            gone = error if isinstance(error, _GONE) else None
        done.append(change)
        if told is not None:
            told(change)
    return done


def _failed(item: Any, name: str, error: Exception, before: str = "") -> Change:
    code = f"{error.code} {type(error).__name__}: " if isinstance(error, Refused) else ""
    return Change(item, name, "none", "failed", error=f"{before}{code}{error}")


def _storage(wanted: str | None, dry_run: bool) -> Plan:
    found = yield lambda face: face.run(verbs.own_storage())
    edits = differences({"storage": found}, {"storage": wanted})
    if edits and not dry_run:
        yield lambda face: face.run(verbs.set_storage(wanted))
    return _change("storage", "", "change", edits, dry_run)


def _provider(name: str, wanted: Provider, found: Any, dry_run: bool) -> Plan:
    limit = None if wanted.max is UNSET else wanted.max
    if found is None:
        config = merge(None, wanted.config) or {}
        edits = differences({}, {"kind": wanted.kind, "max": limit, **config})
        if not dry_run:
            yield lambda face: face.providers.add(name, kind=wanted.kind, max=limit, config=config)
        return _change("provider", name, "add", edits, dry_run)
    if found.kind != wanted.kind:
        raise ValueError(
            f"its kind is {found.kind}, and the file says {wanted.kind}: a provider keeps its kind; clear it "
            f"from its queues, `lakeshore providers remove {name}`, and apply again"
        )
    config = merge(found.config, wanted.config) or {}
    edits = differences(found.config, config, gone=True)
    patch: dict[str, Any] = {"config": config} if edits else {}
    if wanted.max is not UNSET and wanted.max != found.max:
        patch["max"] = wanted.max
        edits = (Edit("max", found.max, wanted.max), *edits)
    if patch and not dry_run:
        yield lambda face: face.providers.patch(name, **patch)
    return _change("provider", name, "change", edits, dry_run)


def _queue(name: str, wanted: Queue, found: QueueInfo | None, known: set[str], dry_run: bool) -> Plan:
    given = flat(wanted)
    if found is not None and given.get("kind", found.kind) != found.kind:
        if name == DEFAULT:
            raise ValueError(f"the default queue is {found.kind}, and stays it: name another queue")
        raise ValueError(
            f"its kind is {found.kind}, and the file says {given['kind']}: a queue keeps its kind; "
            f"`lakeshore queues drain {name}`, then `lakeshore queues rm {name}`, and apply again"
        )
    if dry_run and given.get("provider") and given["provider"] not in known:
        raise ValueError(f"no provider {given['provider']!r}, here or in the file: add it first")
    if found is None:
        return (yield from _new_queue(name, wanted, given, dry_run))
    edits, patch = queue_edits(found, given)
    if patch and not dry_run:
        yield lambda face: face.run(verbs.patch_queue(name, patch, elasticity=True))
    edits += yield from _moves(name, wanted, found.state, dry_run)
    return _change("queue", name, "change", edits, dry_run)


def _new_queue(name: str, wanted: Queue, given: dict[str, Any], dry_run: bool) -> Plan:
    given["elasticity"] = rule_of(None, given.get("elasticity"))
    given["template"] = merge(None, given.get("template"))
    given = {"kind": "fifo", **{setting: value for setting, value in given.items() if value is not None}}
    if not dry_run:
        settings = dict(given)
        yield lambda face: face.queues.add(name, **settings)
    template = given.pop("template", {})
    edits = differences({}, given) + differences({}, template, "daemonTemplate.")
    edits += yield from _moves(name, wanted, QueueState.ACTIVE, dry_run)
    return _change("queue", name, "add", edits, dry_run)


def _moves(
    name: str, wanted: Queue, state: QueueState, dry_run: bool
) -> Generator[Step, Any, tuple[Edit, ...]]:
    """To the state that the file names."""
    if wanted.state is UNSET or wanted.state == state:
        return ()
    for move in path_of(state, QueueState(wanted.state)):
        if not dry_run:
            yield lambda face, verb=move.value: getattr(face.queues, verb)(name)
    return (Edit("state", state.value, wanted.state),)


def _change(item: Any, name: str, action: Any, edits: tuple[Edit, ...], dry_run: bool) -> Change:
    if not edits:
        return Change(item, name, "none", "unchanged")
    return Change(item, name, action, "planned" if dry_run else "done", edits)
