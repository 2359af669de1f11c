"""`lakeshore jobs`: what was submitted, and what becomes of it."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from . import plane, printing, watching
from .app import arrange, group
from .lines import logs
from .outcomes import result, stream
from .parameters import Flag, Index, Json, Limit, Number, Queue, QueueName, Seconds, Watch, number

app = group("jobs", "Submitted calls. Each is named by the id that its submit printed.")

State = Literal["queued", "running", "succeeded", "failed", "killed", "timeout"]

COLUMNS: list[printing.Column] = [
    ("ID", lambda job: job.id),
    ("STATE", lambda job: job.state),
    ("QUEUE", lambda job: job.queue),
    ("FUNCTION", lambda job: job.function),
    ("WORKER", lambda job: job.worker),
    ("ATTEMPT", lambda job: job.attempt),
    ("SUBMITTED", lambda job: job.submitted_at),
    ("ENDED", lambda job: job.ended_at),
    ("ERROR", lambda job: job.error or job.reason),
]
_ATTEMPTS: list[printing.Column] = [
    ("ATTEMPT", lambda attempt: attempt.number),
    ("WORKER", lambda attempt: attempt.worker),
    ("PID", lambda attempt: attempt.worker_pid),
    ("STARTED", lambda attempt: attempt.started_at),
    ("ENDED", lambda attempt: attempt.ended_at),
    ("OUTCOME", lambda attempt: attempt.outcome),
    ("REASON", lambda attempt: attempt.reason),
]


@app.command(name="list")
def list_(
    *,
    state: list[State] | None = None,
    worker: str | None = None,
    queue: Queue | None = None,
    limit: Limit = 50,
    offset: Index = 0,
    json: Json = False,
    watch: Watch = False,
) -> None:
    """List jobs, newest first.

    Example: lakeshore jobs list --state running --state queued

    Args:
        state: Only those in this state; may be given several times.
        worker: Only those that this worker (id or name) claimed last.
        queue: Only those of this queue (id or name).
        limit: Most rows, 1 to 200.
        offset: How many rows to skip.
    """
    with plane.opened() as q:
        watching.shown(
            lambda: printing.rows(
                q.jobs.list(state=state, queue=queue, worker=worker, limit=limit, offset=offset),
                COLUMNS,
                leave_out="attempts lines",
            ),
            json=json,
            watch=watch,
        )


@app.command
def show(id: str, /, *, json: Json = False) -> None:
    """One job, with every attempt.

    Example: lakeshore jobs show 01K2Z7M3Q4W5E6R7T8Y9ZABCDE

    Args:
        id: The job's id.
    """
    with plane.opened() as q:
        found = q.jobs.show(id)
    attempts = printing.table(found.attempts, _ATTEMPTS)
    said: dict[str, object] = {"progress": found.progress and str(found.progress)}
    if found.lines:
        said["lines"] = f"{found.lines} (lakeshore jobs logs {found.id})"
    printing.show(printing.record(found, attempts, leave_out="attempts", said=said), json)


@app.command
def submit(
    function: str,
    /,
    *,
    arg: Annotated[list[str] | None, Parameter(allow_leading_hyphen=True)] = None,
    queue: QueueName | None = None,
    key: str | None = None,
    priority: Number | None = None,
    delay: Seconds | None = None,
    timeout: Annotated[float | None, Parameter(converter=number(1e-3, 1e11))] = None,
    json: Json = False,
) -> None:
    """Submit a call and print its id. Workers import the function; this machine need not have it.

    Example: lakeshore jobs submit tasks:double --arg x=21 --queue eval

    Args:
        function: module:function, as workers import it.
        arg: A keyword argument, name=value: JSON where it parses, else text. Several times.
        queue: Where to; else what the function says, else the default queue.
        key: A name for this piece of work: the same key gives the same job.
        priority: Higher ones first, in a queue that looks at it.
        delay: Seconds before it may run.
        timeout: Seconds it may run.
    """
    from . import submitting

    kwargs = submitting.arguments(arg or ())
    options = {"_key": key, "_priority": priority, "_delay": delay, "_timeout": timeout}
    kwargs |= {name: value for name, value in options.items() if value is not None}
    body = submitting.body(function, queue)
    with plane.opened() as q:
        id = q.submit(body, **kwargs)
    printing.said(id, {"id": id}, json)


@app.command
def kill(id: str, /, *, running: Flag = False, json: Json = False) -> None:
    """Cancel a queued job. A running one is refused with 409, unless --running.

    Example: lakeshore jobs kill 01K2Z7M3Q4W5E6R7T8Y9ZABCDE

    Args:
        id: The job's id.
        running: Cancel the body of a running one, too.
    """
    with plane.opened() as q:
        q.jobs.kill(id, running=running)
        found = q.jobs.show(id) if json else None
    printing.said(f"job {id} killed", found, json)


@app.command
def bulk_cancel(*, queue: Queue | None = None, json: Json = False) -> None:
    """Cancel everything queued; what runs is untouched.

    Example: lakeshore jobs bulk-cancel --queue training-h100

    Args:
        queue: Only in this queue (id or name).
    """
    with plane.opened() as q:
        count = q.jobs.bulk_cancel(queue)
    printing.said(f"{count} cancelled", {"cancelled": count}, json)


@app.command
def retry(id: str, /, *, json: Json = False) -> None:
    """Submit an ended job's call anew and print the new id.

    Example: lakeshore jobs retry 01K2Z7M3Q4W5E6R7T8Y9ZABCDE

    Args:
        id: The ended job's id.
    """
    with plane.opened() as q:
        new = q.jobs.retry(id)
    printing.said(new, {"id": new}, json)


@app.command
def why(id: str, /, *, json: Json = False) -> None:
    """Why a job is where it is: what it waits for, or where it ran and how each attempt ended.

    Example: lakeshore jobs why 01K2Z7M3Q4W5E6R7T8Y9ZABCDE

    Args:
        id: The job's id.
    """
    with plane.opened() as q:
        sentences = q.jobs.why(id)
    if json:
        printing.document(sentences)
    else:
        print(*sentences, sep="\n")


@app.command
def prune(*, older_than: Seconds | None = None, json: Json = False) -> None:
    """Delete jobs that ended long ago.

    Example: lakeshore jobs prune --older-than 86400

    Args:
        older_than: Seconds since they ended; else as long as each queue keeps them.
    """
    with plane.opened() as q:
        count = q.jobs.prune(older_than)
    printing.said(f"{count} deleted", {"pruned": count}, json)


app.command(logs)
app.command(result)
app.command(stream)
arrange(app, list=("ls",), kill=("cancel", "rm", "remove"), show=("get",))
