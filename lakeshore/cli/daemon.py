"""`lakeshore daemon`."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Parameter

from lakeshore.sdk.choices import Loop, Runner

from . import plane, printing
from .app import arrange, group
from .errors import UsageError
from .logs import LogFormat
from .parameters import Count, Flag, Json, QueueNames, Seconds, Size, Watch

if TYPE_CHECKING:
    from lakeshore.sdk.records import WorkerInfo

app = group("daemon", "Workers on machines: start one here; list, show, exec, drain, remove.")

_LOOK = 0.5  # seconds between two looks at a daemon that drains
_BROKEN = 255  # the exit status where a command's own is not known, as ssh has it

COLUMNS: list[printing.Column] = [
    ("ID", lambda worker: worker.id),
    ("NAME", lambda worker: worker.name),
    ("HOST", lambda worker: worker.host),
    ("PID", lambda worker: worker.pid),
    ("STATE", lambda worker: worker.state),
    ("BUSY", lambda worker: f"{worker.busy}/{worker.slots}"),
    ("QUEUES", lambda worker: worker.queues or ("default",)),
    ("LABELS", lambda worker: worker.labels),
    ("SEEN", lambda worker: worker.last_seen_at),
]
COMMANDS: list[printing.Column] = [
    ("AT", lambda command: command.at),
    ("BY", lambda command: command.by),
    ("STATUS", lambda command: command.status),
    ("COMMAND", lambda command: command.command),
]


@app.command
def start(
    *,
    queue: QueueNames | None = None,
    slots: Count | None = None,
    name: str | None = None,
    label: list[str] | None = None,
    backend: Loop = "asyncio",
    runner: Runner = "process",
    allow_pickle: Flag = False,
    strict_source: Flag = False,
    trust: list[str] | None = None,
    hooks: str | None = None,
    memory: Size | None = None,
    gpus: Count | None = None,
    recycle_jobs: Count | None = None,
    recycle_age: Seconds | None = None,
    recycle_memory: Size | None = None,
    grace: Seconds = 30.0,
    log_format: LogFormat = "text",
    no_capture: Flag = False,
) -> NoReturn:
    """Work for a head on this machine, until SIGTERM or SIGINT.

    It waits for a head that is not up yet. Modules are imported from the current folder, too. Exit status:
    0 drained, 1 refused, 3 removed by an operator.

    Example: lakeshore daemon start --url tls://head:7420 --queue training-h100 --slots 2

    Args:
        queue: A queue to serve, each after a --queue of its own; without any, the default queue.
        slots: Jobs at once; 1, or one for each GPU.
        name: What it is called; else its host and pid.
        label: NAME=VALUE, for display, each after a --label of its own.
        backend: The event loop.
        runner: Each job in a process of its own, or all in the worker's (inline).
        memory: What such a process may take, 2G say; a job that takes more fails.
        allow_pickle: Run functions that come as pickles, too: whoever may submit may then run anything.
        strict_source: Refuse a function whose source differs from the submitter's.
        trust: A module of which functions are run that are no udf, each after a --trust of its own.
        hooks: module:name of the dls.Hooks to call.
        gpus: How many GPUs it has, one for each slot; needs the process runner. Also the label gpus.
        recycle_jobs: Replace a process after so many jobs.
        recycle_age: And after so many seconds, between two jobs.
        recycle_memory: And where it has more than that after a job, 1G say.
        grace: Seconds that running jobs have to end when it is told to stop; what is left goes back.
        log_format: How it logs, on stderr.
        no_capture: Keep nothing of what jobs print and log with them; jobs logs has dls.run.log alone.
    """
    from lakeshore.core.about import package_version
    from lakeshore.sdk.address import find_ca, find_token, namespace_found, resolve
    from lakeshore.sdk.daemon import start as become
    from lakeshore.sdk.daemons.options import DaemonOptions

    _check_runner(runner, slots, gpus, memory, recycle_jobs, recycle_age, recycle_memory)
    named, labels = plane.named(), _labels(label or (), gpus)
    address = resolve(named.url)
    if address == ":memory:":
        raise UsageError("a daemon is another process, and :memory: is only in one: name a head or a file")
    space, remote = namespace_found(named.namespace, address), "://" in address
    options = DaemonOptions(
        address=address,
        name=name or f"{socket.gethostname()}-{os.getpid()}",
        namespace="" if space.source == "default" else space.value or "",
        token=(find_token(address, named.token) or "") if remote else "",
        ca=(find_ca(address, named.ca) or "") if remote else "",
        version=package_version(),
        queues=tuple(queue or ()),
        slots=slots or gpus or 1,
        labels=labels,
        backend=backend,
        allow_pickle=allow_pickle,
        strict_source=strict_source,
        trust=tuple(trust or ()),
        hooks=hooks or "",
        grace=grace,
        log_format=log_format,
        capture=not no_capture,
        runner=runner,
        memory=memory,
        gpus=gpus or 0,
        recycle_jobs=recycle_jobs,
        recycle_age=recycle_age,
        recycle_memory=recycle_memory,
    )
    _check(options)
    become(options)


def _check_runner(runner: str, slots: int | None, gpus: int | None, *of_processes: Any) -> None:
    if runner == "inline" and (gpus or any(each is not None for each in of_processes)):
        raise UsageError(
            "--memory, --gpus and --recycle-... are about jobs in processes of their own: leave "
            "--runner inline out"
        )
    from lakeshore.sdk.processes.options import Processes, dealt, slots_of

    try:
        memory, jobs, age, most = of_processes
        slots_of(slots, Processes(memory, jobs, age, most, gpus or 0))
        dealt(gpus or 0)
    except ValueError as error:
        raise UsageError(f"--{str(error).replace('_', '-', 1)}") from None


def _labels(given: Any, gpus: int | None) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f'--label "{text}": write NAME=VALUE')
        if name in labels:
            raise UsageError(f"--label {name} is given twice")
        labels[name] = value
    return labels if gpus is None else {"gpus": str(gpus), **labels}


def _check(options: Any) -> None:
    """What can be judged here; the child judges the rest, where what it loads does not stay."""
    module, colon, attribute = options.hooks.partition(":")
    if options.hooks and not (module and colon and attribute):
        raise UsageError(f'--hooks "{options.hooks}": write module:name')
    if options.slots > 1_000_000:
        raise UsageError(f"--slots {options.slots}: choose at most 1000000")
    if "\0" in options.name or len(options.name) > 1000:
        raise UsageError("--name: choose at most 1000 characters, without a NUL")


@app.command(name="list")
def list_(*, ended: Flag = False, json: Json = False, watch: Watch = False) -> None:
    """List daemons: the workers that daemon start has started.

    Example: lakeshore daemon list

    Args:
        ended: Those that were, too.
    """
    from . import watching

    def look() -> printing.View:
        found = [worker for worker in q.workers.list(ended=ended) if worker.daemon]
        return printing.rows(found, COLUMNS, leave_out="commands")

    with plane.opened() as q:
        watching.shown(look, json=json, watch=watch)


@app.command
def show(daemon: str, /, *, json: Json = False) -> None:
    """One daemon, and the commands that operators had run there.

    Example: lakeshore daemon show trainer-1

    Args:
        daemon: Its id or name.
    """
    with plane.opened() as q:
        found = q.workers.show(daemon)
    printing.show(
        printing.record(found, printing.table(found.commands, COMMANDS), leave_out="commands"), json
    )


@app.command(name="exec")
def exec_(daemon: str, /, *command: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> NoReturn:
    """Run a command on a daemon's machine, and end with its status.

    It runs as the daemon's user. Its output comes as it is written; it reads nothing. Ctrl-C kills it. Exit
    status: the command's; 128 + N where signal N killed it, 255 where the connection broke meanwhile. Admins
    alone may; it is logged, and daemon show lists it.

    Example: lakeshore daemon exec trainer-1 -- nvidia-smi

    Args:
        daemon: Its id or name.
        command: The command and its arguments, after a --.
    """
    from lakeshore.sdk.address import find_ca, find_token, namespace_found, resolve
    from lakeshore.sdk.daemons.asking import Broken, run_there
    from lakeshore.sdk.daemons.place import place_of

    if not command or not command[0]:
        raise UsageError("name a command to run: lakeshore daemon exec DAEMON -- COMMAND")
    named = plane.named()
    address = resolve(named.url)
    space, remote = namespace_found(named.namespace, address), "://" in address
    try:
        status = run_there(
            place_of(address),
            daemon,
            command,
            sys.stdout.buffer,
            sys.stderr.buffer,
            namespace="" if space.source == "default" else space.value or "",
            token=(find_token(address, named.token) or "") if remote else "",
            ca=find_ca(address, named.ca) if remote else None,
        )
    except Broken as error:
        printing.note(str(error))
        status = _BROKEN
    raise SystemExit(status if status >= 0 else 128 - status)


@app.command
def drain(daemon: str, /, *, wait: Flag = False, json: Json = False) -> None:
    """Ask a daemon to take nothing new, finish what it runs, and end.

    Example: lakeshore daemon drain trainer-1 --wait

    Args:
        daemon: Its id or name.
        wait: Return once it has ended.
    """
    with plane.opened() as q:
        found = q.workers.drain(daemon)
        if wait:
            with _moving(found) as told:
                while (found := q.workers.show(found.id)).state != "ended":
                    told(found)
                    time.sleep(_LOOK)
    printing.said(f"daemon {daemon} {'has ended' if wait else 'drains'}", found, json)


@contextmanager
def _moving(first: WorkerInfo) -> Generator[Callable[[WorkerInfo], None]]:
    """At a terminal, how many of its jobs have ended."""

    if not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console
    from rich.progress import Progress

    def told(found: WorkerInfo) -> None:
        progress.update(bar, completed=first.busy - found.busy)

    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task(f"draining {first.name}", total=first.busy or None)
        yield told


def _silent(found: WorkerInfo) -> None:
    """Nobody looks."""


@app.command
def remove(daemon: str, /, *, json: Json = False) -> None:
    """End a daemon at once; what it runs is killed, and it does not begin again.

    Example: lakeshore daemon remove trainer-1

    Args:
        daemon: Its id or name.
    """
    with plane.opened() as q:
        found = q.workers.remove(daemon)
    printing.said(f"daemon {daemon} removed", found, json)


arrange(app, list=("ls",), remove=("rm", "delete"))
