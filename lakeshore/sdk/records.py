"""What administration and `get` return. Attributes in snake_case, JSON in camelCase."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct, field

from lakeshore.core.ids import text_of
from lakeshore.core.logbook import told
from lakeshore.core.rows import Attempt as StoredAttempt
from lakeshore.core.rows import InvocationRow
from lakeshore.core.rows import Progress as StoredProgress
from lakeshore.core.states import QueueState, State


class Attempt(Struct, frozen=True, rename="camel"):
    """One claim by a worker. `outcome` is None while it runs, else succeeded, failed, timeout,
    killed, returned or lost."""

    number: int
    worker: str
    worker_pid: int
    started_at: datetime
    ended_at: datetime | None
    outcome: str | None
    reason: str | None


class Progress(Struct, frozen=True, rename="camel"):
    """How far a body is, as it said last, at `at`. `total` is None where it does not know. As text:
    "340/1000 (34 %)"."""

    done: int | float
    total: int | float | None
    at: datetime
    text: str = ""

    def __str__(self) -> str:
        return told(StoredProgress(self.done, self.total, 0.0, self.text))


class Invocation(Struct, frozen=True, rename="camel"):
    """One invocation as it is now. Times are aware datetimes in UTC. `lines` are those of its log; in a
    list `progress` and `lines` of one that runs may be some seconds, or an attempt, behind."""

    id: str
    queue: str
    namespace: str
    state: State
    worker: str | None
    worker_pid: int | None
    function: str
    key: str | None
    priority: float
    attempt: int
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None
    reason: str | None
    parent: str | None
    retry_of: str | None
    progress: Progress | None = None
    prefix: str = ""
    attempts: tuple[Attempt, ...] = ()
    lines: int = 0


class QueueInfo(Struct, frozen=True, rename="camel"):
    """One queue. `members` counts the live workers bound to it by name."""

    id: str
    name: str
    kind: str
    state: QueueState
    members: int
    provider_ref: str | None
    elasticity: dict[str, Any] | None
    daemon_template: dict[str, Any] | None
    admission: dict[str, Any]
    description: str
    queued: int
    running: int
    temperature: float = 1.0
    seed: int | None = None
    retention: float | None = None
    workers: tuple[WorkerInfo, ...] = ()
    storage: str | None = None


class QueueStats(Struct, frozen=True, rename="camel"):
    """Signals of a queue: slots in use as a share, jobs queued and running, the oldest wait."""

    daemons: int
    utilization: float
    pending: int
    running: int
    oldest_wait_s: float | None = field(name="oldestWaitS")
    blocked: int
    actions: tuple[Any, ...] = ()


class Command(Struct, frozen=True, rename="camel"):
    """A command that an operator had run on a daemon's machine. `status` is None while it runs, and where
    its end was not seen."""

    at: datetime
    by: str
    command: str
    status: int | None = None


class WorkerInfo(Struct, frozen=True, rename="camel"):
    """One worker process. `state` is ready, draining, away or ended; `daemon`: it was started by
    `lakeshore daemon start`; `commands`, newest last, are told by `show` alone."""

    id: str
    name: str
    host: str
    pid: int
    queues: tuple[str, ...]
    slots: int
    busy: int
    state: str
    started_at: datetime
    last_seen_at: datetime
    labels: dict[str, str] = {}
    versions: dict[str, str] = {}
    provider: str | None = None
    daemon: bool = False
    commands: tuple[Command, ...] = ()


class Event(Struct, frozen=True, rename="camel"):
    """One decision about a queue: what was seen (`signals`), wanted and done, and why. `count` is how
    many times in a row nothing else was decided."""

    id: str
    queue: str
    at: datetime
    kind: str
    count: int
    signals: dict[str, Any]
    want: Any
    did: Any
    why: str
    memory_before: Any = None
    memory_after: Any = None


class ProviderInfo(Struct, frozen=True, rename="camel"):
    """What launches daemons. `max` is how many at once, None for no limit."""

    id: str
    name: str
    kind: str
    config: dict[str, Any]
    max: int | None
    state: str


class TokenInfo(Struct, frozen=True, rename="camel"):
    """A token, without its text, which is shown once, when it is made."""

    id: str
    name: str
    namespace: str
    role: str
    created_at: datetime
    last_used_at: datetime | None


class NewToken(TokenInfo, frozen=True, rename="camel"):
    """A token just made; `token` is its text, which nothing keeps."""

    token: str

    def __repr__(self) -> str:
        return f"NewToken(id={self.id!r}, namespace={self.namespace!r}, role={self.role!r}, token=...)"


class PlaneStatus(Struct, frozen=True, rename="camel"):
    """What a plane is and how much goes on in it. `plane` is the id of its store, `epoch` counts how
    often that was opened, `clients` are connections that are no workers."""

    plane: str
    version: str
    pid: int
    host: str
    backend: str
    store: str
    sync: str | None
    epoch: int
    started_at: datetime
    uptime_s: float = field(name="uptimeS")
    namespaces: int
    queues: int
    queued: int
    running: int
    workers: int
    clients: int
    listen: tuple[str, ...]
    store_bytes: int
    store_error: str | None = None


class TopicInfo(Struct, frozen=True, rename="camel"):
    """One topic: how many frames were ever posted and their stored bytes."""

    name: str
    frames: int
    bytes: int
    closed: bool


class Removed(Struct, frozen=True, rename="camel"):
    """A removed queue; workers that had no other queue now serve the default one."""

    name: str
    now_serving_default: tuple[str, ...] = ()


def moment(seconds: float | None) -> datetime | None:
    """Seconds since 1970 as an aware datetime."""
    return None if seconds is None else _EPOCH + timedelta(seconds=seconds)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def invocation_of(row: InvocationRow, queue: str) -> Invocation:
    """A stored row as its record."""
    record, call = row.record, row.call
    last = record.attempts[-1] if record.attempts else None
    return Invocation(
        id=text_of(row.id),
        queue=queue,
        namespace=row.namespace,
        state=row.state,
        worker=text_of(last.worker) if last is not None else None,
        worker_pid=last.pid if last is not None else None,
        function=call.options.function.name,
        key=call.key or None,
        priority=record.priority,
        attempt=record.attempt,
        submitted_at=_at(record.submitted_at),
        started_at=moment(last.started_at if last is not None else None),
        ended_at=moment(record.ended_at),
        error=record.error.headline if record.error is not None else None,
        reason=record.reason,
        parent=text_of(call.parent) if call.parent is not None else None,
        retry_of=text_of(call.retry_of) if call.retry_of is not None else None,
        progress=_progress(record.progress),
        prefix=call.prefix,
        attempts=tuple(_attempt(attempt) for attempt in record.attempts),
        lines=record.lines,
    )


def _progress(stored: StoredProgress | None) -> Progress | None:
    if stored is None:
        return None
    return Progress(stored.done, stored.total, _at(stored.at), stored.text)


def _attempt(stored: StoredAttempt) -> Attempt:
    return Attempt(
        stored.number,
        text_of(stored.worker),
        stored.pid,
        _at(stored.started_at),
        moment(stored.ended_at),
        None if stored.outcome is None else str(stored.outcome),
        stored.reason,
    )


def _at(seconds: float) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def worker_of(row: dict[str, Any]) -> WorkerInfo:
    """What a plane says of a worker."""
    return WorkerInfo(
        id=row["id"],
        name=row["name"],
        host=row["host"],
        pid=row["pid"],
        queues=tuple(row["queues"]),
        slots=row["slots"],
        busy=row["busy"],
        state=row["state"],
        started_at=_at(row["startedAt"]),
        last_seen_at=_at(row["lastSeenAt"]),
        labels=dict(row["labels"]),
        versions=dict(row["versions"]),
        provider=row.get("provider"),
        daemon=row.get("daemon", False),
        commands=tuple(
            Command(_at(each["at"]), each["by"], each["command"], each["status"])
            for each in row.get("commands", ())
        ),
    )


def event_of(row: dict[str, Any]) -> Event:
    """What a plane says of a decision."""
    return Event(
        id=row["id"],
        queue=row["queue"],
        at=_at(row["at"]),
        kind=row["kind"],
        count=row["count"],
        signals=dict(row["signals"]),
        want=row["want"],
        did=row["did"],
        why=row["why"],
        memory_before=row["memoryBefore"],
        memory_after=row["memoryAfter"],
    )


def provider_of(row: dict[str, Any]) -> ProviderInfo:
    """What a plane says of a provider."""
    return ProviderInfo(row["id"], row["name"], row["kind"], dict(row["config"]), row["max"], row["state"])


def token_of(row: dict[str, Any]) -> TokenInfo:
    """What a plane says of a token."""
    return TokenInfo(**_token(row))


def new_token_of(row: dict[str, Any], token: str) -> NewToken:
    """The same of one that was just made here."""
    return NewToken(**_token(row), token=token)


def _token(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "namespace": row["namespace"],
        "role": row["role"],
        "created_at": _at(row["createdAt"]),
        "last_used_at": moment(row["lastUsedAt"]),
    }


def status_of(row: dict[str, Any]) -> PlaneStatus:
    """What a plane says of itself."""
    return PlaneStatus(
        plane=row["plane"],
        version=row.get("version", ""),
        pid=row.get("pid", 0),
        host=row.get("host", ""),
        backend=row.get("backend", ""),
        store=row.get("store", ""),
        sync=row.get("sync"),
        epoch=row.get("epoch", 0),
        started_at=_at(row["startedAt"]),
        uptime_s=row["uptimeS"],
        namespaces=row["namespaces"],
        queues=row["queues"],
        queued=row["queued"],
        running=row["running"],
        workers=row["workers"],
        clients=row.get("clients", 0),
        listen=tuple(row.get("listen", ())),
        store_bytes=row.get("storeBytes", 0),
        store_error=row["storeError"] or None,
    )


def queue_of(row: dict[str, Any]) -> QueueInfo:
    """What a plane says of a queue."""
    workers = tuple(worker_of(worker) for worker in row.get("workers", ()))
    return QueueInfo(
        id=row["id"],
        name=row["name"],
        kind=row["kind"],
        state=QueueState(row["state"]),
        members=row["members"],
        provider_ref=row["providerRef"],
        elasticity=row["elasticity"],
        daemon_template=row["daemonTemplate"],
        admission=dict(row["admission"]),
        description=row["description"],
        queued=row["queued"],
        running=row["running"],
        temperature=row["temperature"],
        seed=row["seed"],
        retention=row["retention"],
        workers=workers,
        storage=row.get("storage"),
    )


def stats_of(row: dict[str, Any]) -> QueueStats:
    """What a plane says of a queue's signals."""
    return QueueStats(
        row["daemons"],
        row["utilization"],
        row["pending"],
        row["running"],
        row["oldestWaitS"],
        row["blocked"],
        tuple(row["actions"]),
    )
