"""`lakeshore workers`."""

from __future__ import annotations

from . import plane, printing, watching
from .app import arrange, group
from .parameters import Flag, Json, Watch

app = group("workers", "What runs jobs.")

COLUMNS: list[printing.Column] = [
    ("ID", lambda worker: worker.id),
    ("NAME", lambda worker: worker.name),
    ("HOST", lambda worker: worker.host),
    ("PID", lambda worker: worker.pid),
    ("STATE", lambda worker: worker.state),
    ("BUSY", lambda worker: f"{worker.busy}/{worker.slots}"),
    ("QUEUES", lambda worker: worker.queues or ("default",)),
    ("SEEN", lambda worker: worker.last_seen_at),
]


@app.command(name="list")
def list_(*, ended: Flag = False, json: Json = False, watch: Watch = False) -> None:
    """List workers.

    Example: lakeshore workers list

    Args:
        ended: Those that were, too.
    """
    with plane.opened() as q:
        watching.shown(lambda: printing.rows(q.workers.list(ended=ended), COLUMNS), json=json, watch=watch)


@app.command
def show(worker: str, /, *, json: Json = False) -> None:
    """One worker.

    Example: lakeshore workers show trainer-1

    Args:
        worker: Its id or name.
    """
    with plane.opened() as q:
        printing.show(printing.record(q.workers.show(worker)), json)


@app.command
def drain(worker: str, /, *, json: Json = False) -> None:
    """Ask a worker to take nothing new, finish what it runs, and end.

    Example: lakeshore workers drain trainer-1

    Args:
        worker: Its id or name.
    """
    with plane.opened() as q:
        found = q.workers.drain(worker)
    printing.said(f"worker {worker} drains", found, json)


@app.command
def remove(worker: str, /, *, json: Json = False) -> None:
    """End a worker; what it runs is killed.

    Example: lakeshore workers remove trainer-1

    Args:
        worker: Its id or name.
    """
    with plane.opened() as q:
        found = q.workers.remove(worker)
    printing.said(f"worker {worker} removed", found, json)


arrange(app, list=("ls",), remove=("rm", "delete"))
