"""`lakeshore queues`, `lakeshore pause` and `lakeshore resume`."""

from __future__ import annotations

from typing import Any, Literal

from lakeshore.sdk.choices import Kind, OnFull

from . import plane, printing, watching
from .app import arrange, group
from .decisions import events, stats
from .errors import UsageError, one_line
from .parameters import Count, Elasticity, Flag, Json, Queue, QueueName, Share, Watch, Workers
from .workers import COLUMNS as WORKER_COLUMNS

app = group("queues", "Named backlogs of jobs, that workers serve.")

State = Literal["active", "draining", "paused", "archived"]


def _elasticity(queue: Any) -> str:
    rule = dict(queue.elasticity or {})
    kind = str(rule.pop("kind", "")).replace("_", "-")
    return " ".join([kind, *(f"{name}={value}" for name, value in rule.items() if value is not None)])


COLUMNS: list[printing.Column] = [
    ("NAME", lambda queue: queue.name),
    ("KIND", lambda queue: queue.kind),
    ("STATE", lambda queue: queue.state),
    ("MEMBERS", lambda queue: queue.members),
    ("PROVIDER", lambda queue: queue.provider_ref),
    ("ELASTICITY", _elasticity),
    ("DESCRIPTION", lambda queue: queue.description),
]


@app.command
def add(
    name: QueueName,
    /,
    *,
    kind: Kind = "fifo",
    description: str = "",
    provider: str | None = None,
    elasticity: Elasticity | None = None,
    min: Workers | None = None,
    max: Workers | None = None,
    threshold: Share | None = None,
    instance_type: str | None = None,
    image_id: str | None = None,
    runner: Literal["inline", "process"] | None = None,
    max_depth: Count | None = None,
    on_full: OnFull = "reject",
    json: Json = False,
) -> None:
    """Create a queue.

    Example: lakeshore queues add eval --kind priority --description "evaluation, urgent first"

    Args:
        name: Lower-case letters, digits and hyphens.
        kind: In which order jobs leave it.
        description: What it is for.
        provider: What launches its workers.
        elasticity: How many workers it wants, by its backlog.
        min: Fewest workers.
        max: Most workers.
        threshold: How full workers should be, 0.0 to 1.0.
        instance_type: The machine a worker of its own runs on.
        image_id: The image of that machine.
        runner: How a worker of its own runs bodies.
        max_depth: Most jobs that may be queued.
        on_full: What becomes of a submit beyond that.
    """
    _check_bounds(min, max)
    given = {"--min": min, "--max": max, "--threshold": threshold}
    named = [flag for flag, value in given.items() if value is not None]
    if named and elasticity is None:
        raise UsageError(f"{', '.join(named)} without an elasticity: add --elasticity KIND")
    if elasticity is not None and not provider:
        printing.note("an elasticity without a provider launches nothing: see queues patch --provider")
    template = {"instance_type": instance_type, "image_id": image_id, "runner": runner}
    seeds: dict[str, Any] = {field: value for field, value in template.items() if value is not None}
    kept: Any = elasticity.replace("-", "_") if elasticity is not None else None
    with plane.opened() as q:
        found = q.queues.add(
            name,
            kind=kind,
            description=description,
            provider=provider or None,
            elasticity=kept,
            min=min,
            max=max,
            threshold=threshold,
            template=seeds or None,
            max_depth=max_depth,
            on_full=on_full,
        )
    printing.said(f"queue {found.name} added", found, json, leave_out="workers")


@app.command
def ls(*, state: State | None = None, json: Json = False, watch: Watch = False) -> None:
    """List queues; archived ones only with --state archived.

    Example: lakeshore queues ls --state active

    Args:
        state: Only queues in this state.
    """
    with plane.opened() as q:
        watching.shown(
            lambda: printing.rows(q.queues.ls(state=state), COLUMNS, leave_out="workers"),
            json=json,
            watch=watch,
        )


@app.command
def show(name: Queue, /, *, json: Json = False) -> None:
    """One queue and the workers bound to it.

    Example: lakeshore queues show training-h100

    Args:
        name: Its name or id.
    """
    with plane.opened() as q:
        found = q.queues.show(name)
    workers = printing.table(found.workers, WORKER_COLUMNS)
    printing.show(printing.record(found, workers, leave_out="workers"), json)


@app.command
def patch(
    name: Queue,
    /,
    *,
    description: str | None = None,
    provider: str | None = None,
    min: Workers | None = None,
    max: Workers | None = None,
    threshold: Share | None = None,
    max_depth: Count | None = None,
    on_full: OnFull | None = None,
    json: Json = False,
) -> None:
    """Change a queue in place. Its kind and elasticity stay as they were added.

    Example: lakeshore queues patch training-h100 --max 32 --threshold 0.6

    Args:
        name: Its name or id.
        description: What it is for.
        provider: What launches its workers; "" for nothing.
        min: Fewest workers.
        max: Most workers.
        threshold: How full workers should be, 0.0 to 1.0.
        max_depth: Most jobs that may be queued.
        on_full: What becomes of a submit beyond that.
    """
    _check_bounds(min, max)
    given: dict[str, Any] = {
        "description": description,
        "provider": provider,
        "min": min,
        "max": max,
        "threshold": threshold,
        "max_depth": max_depth,
        "on_full": on_full,
    }
    changes: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise UsageError(
            "nothing to change: give --description, --provider, --min, --max, --threshold, "
            "--max-depth or --on-full"
        )
    if provider == "":
        changes["provider"] = None
    with plane.opened() as q:
        found = q.queues.patch(name, **changes)
    printing.said(f"queue {found.name} patched", found, json, leave_out="workers")


@app.command
def drain(name: Queue, /, *, json: Json = False) -> None:
    """Admit nothing; let what is queued and running finish.

    Example: lakeshore queues drain training-h100

    Args:
        name: Its name or id.
    """
    _shift("drain", name, json)


@app.command
def archive(name: Queue, /, *, json: Json = False) -> None:
    """Admit nothing and hand out nothing; the queue and its backlog are kept.

    Example: lakeshore queues archive eval

    Args:
        name: Its name or id.
    """
    _shift("archive", name, json)


@app.command
def unarchive(name: Queue, /, *, json: Json = False) -> None:
    """Make a draining or archived queue active again.

    Example: lakeshore queues unarchive eval

    Args:
        name: Its name or id.
    """
    _shift("unarchive", name, json)


def pause(name: Queue, /, *, json: Json = False) -> None:
    """Admit to a queue, but hand out nothing.

    Args:
        name: Its name or id.
    """
    _shift("pause", name, json)


def resume(name: Queue, /, *, json: Json = False) -> None:
    """End a pause of a queue.

    Args:
        name: Its name or id.
    """
    _shift("resume", name, json)


@app.command
def rm(name: Queue, /, *, force: Flag = False, json: Json = False) -> None:
    """Delete a queue: what is queued is killed, what runs may finish.

    Example: lakeshore queues rm eval --force

    Args:
        name: Its name or id.
        force: Unbind workers from it first, instead of failing while there are any.
    """
    with plane.opened() as q:
        removed = q.queues.rm(name, force=force)
    printing.said(f"queue {removed.name} removed", removed, json)
    if not json:
        for worker in removed.now_serving_default:
            text = f"worker {worker} has no other queue and now serves the default queue"
            print(one_line(text))


app.command(events)
app.command(stats)
arrange(app, ls=("list",), rm=("remove", "delete"), patch=("update", "set"), add=("create",))


def _shift(move: str, name: str, json: bool) -> None:
    with plane.opened() as q:
        found = getattr(q.queues, move)(name)
    printing.said(f"queue {found.name} is {found.state}", found, json, leave_out="workers")


def _check_bounds(min: int | None, max: int | None) -> None:
    if min is not None and max is not None and min > max:
        raise UsageError(f"--min {min} is above --max {max}")
