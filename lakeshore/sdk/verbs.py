"""Each verb once: the request it sends and how its answer is read. Both faces run these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from lakeshore.core import messages as m
from lakeshore.core.errors import NotFound
from lakeshore.core.fresh import new_id
from lakeshore.core.ids import parse, text_of
from lakeshore.core.settings import check_name, check_patch, declare
from lakeshore.core.states import QueueState, State
from lakeshore.storage.urls import check_storage

from . import records
from .checks import flag, patience, seconds, sound, whole
from .outcomes import value_of

T = TypeVar("T")

RUNS_STILL = "it has not ended yet; the invocation goes on"


class Verb(Generic[T]):
    """A request to make once its number is known, and a reader of the answer."""

    __slots__ = ("id", "make", "read")

    def __init__(self, make: Callable[[int], Any], read: Callable[[Any], T], id: bytes = b"") -> None:
        self.make, self.read, self.id = make, read, id


def waiting(timeout: Any) -> float | None:
    """How long a result is waited for."""
    return patience("timeout", timeout)


def result(inv: str, type: Any = None) -> Verb[Any]:
    """Wait for the end; the value, or what it ended with as an exception."""
    id, types = known(inv), () if type is None else (type,)
    return Verb(lambda req: m.Wait(req, id), lambda answer: value_of(answer, types), id)


def outcome(inv: str) -> Verb[m.Outcome]:
    """Wait for the end, as it came."""
    id = known(inv)
    return Verb(lambda req: m.Wait(req, id), lambda answer: answer, id)


def get(inv: str) -> Verb[records.Invocation]:
    """The record as it is now."""
    id = known(inv)
    return Verb(lambda req: m.Get(req, id), lambda answer: records.invocation_of(*answer.rows[0]))


def why(inv: str) -> Verb[list[str]]:
    """Why it is where it is."""
    id = known(inv)
    return Verb(lambda req: m.Why(req, id), lambda answer: list(answer.value))


def kill(inv: str, running: bool) -> Verb[None]:
    """Kill a queued one, or with `running` a running one too."""
    id = known(inv)
    flag("running", running)
    return Verb(lambda req: m.Kill(req, id, running), _nothing)


def retry(inv: str) -> Verb[str]:
    """A new invocation of the same call."""
    id, new = known(inv), new_id()
    return Verb(lambda req: m.Retry(req, id, new), lambda answer: text_of(answer.id))


def list_jobs(
    state: str | Iterable[str] | None,
    queue: str | None,
    worker: str | None,
    limit: int,
    offset: int,
    before: str | None = None,
) -> Verb[list[records.Invocation]]:
    """Invocations, newest first."""
    states = _states(state, State)
    whole("limit", limit, 1, 200)
    whole("offset", offset, 0, (1 << 63) - 1)
    if queue is not None:
        queue_named(queue)
    wanted = "" if worker is None else worker_named(worker)
    below = None if before is None else known(before)
    return Verb(
        lambda req: m.ListJobs(req, queue, states, None, limit, offset, wanted, below),
        lambda answer: [records.invocation_of(row, name) for row, name in answer.rows],
    )


def bulk_cancel(queue: str | None) -> Verb[int]:
    """Kill everything queued; how many."""
    if queue is not None:
        queue_named(queue)
    return Verb(lambda req: m.BulkCancel(req, queue), _value)


def prune(older_than: float | timedelta | None) -> Verb[int]:
    """Delete old terminal ones; how many."""
    age = older_than.total_seconds() if isinstance(older_than, timedelta) else older_than
    if age is not None:
        age = seconds("older_than", age)
    return Verb(lambda req: m.PruneJobs(req, age), _value)


def add_queue(name: str, given: dict[str, Any]) -> Verb[records.QueueInfo]:
    """Create a queue."""
    check_name(name)
    given = _placed({key: value for key, value in given.items() if value is not None})
    settings = declare(storable(given))
    return Verb(lambda req: m.AddQueue(req, name, settings), _queue)


def _placed(given: dict[str, Any]) -> dict[str, Any]:
    """With the whole path of a folder that was given as a storage."""
    return {**given, "storage": check_storage(given["storage"])} if given.get("storage") else given


def show_storage(queue: str = "") -> Verb[tuple[str, str]]:
    """Where the files of a queue are by key (empty: under the root of each worker; without a name, of a queue
    that says nothing itself), and the folder there for large values."""

    def read(answer: Any) -> tuple[str, str]:
        return answer.value["storage"], answer.value["folder"]

    return Verb(lambda req: m.ShowStorage(req, queue), read)


def own_storage() -> Verb[str | None]:
    """What the namespace itself says about that, if anything."""
    return Verb(m.ShowStorage, lambda answer: answer.value["own"])


def set_storage(where: str | None) -> Verb[str]:
    """Keep them in a folder or an object store; None: where the head says."""
    place = None if where is None else check_storage(where)
    return Verb(lambda req: m.SetStorage(req, place), lambda answer: str(answer.value["storage"]))


def list_queues(state: str | Iterable[str] | None) -> Verb[list[records.QueueInfo]]:
    """Queues by name; archived ones only where asked for."""
    states = _states(state, QueueState)
    return Verb(
        lambda req: m.ListQueues(req, states), lambda answer: [records.queue_of(row) for row in answer.value]
    )


def show_queue(name: str) -> Verb[records.QueueInfo]:
    """One queue and its workers."""
    queue_named(name)
    return Verb(lambda req: m.ShowQueue(req, name), _queue)


def patch_queue(name: str, changes: dict[str, Any], *, elasticity: bool = False) -> Verb[records.QueueInfo]:
    """Change settings; with `elasticity` that too, which only `lakeshore apply` does."""
    queue_named(name)
    if not changes:
        raise TypeError("queues.patch changes what it is given, and it was given nothing")
    checked = check_patch(storable(_placed(changes)), elasticity=elasticity)
    return Verb(lambda req: m.PatchQueue(req, name, checked), _queue)


def shift_queue(name: str, move: str) -> Verb[records.QueueInfo]:
    """drain, pause, resume, archive or unarchive."""
    queue_named(name)
    return Verb(lambda req: m.ShiftQueue(req, name, move), _queue)


def remove_queue(name: str, force: bool) -> Verb[records.Removed]:
    """Delete a queue."""
    queue_named(name)
    flag("force", force)
    return Verb(
        lambda req: m.RemoveQueue(req, name, force),
        lambda answer: records.Removed(answer.value["name"], tuple(answer.value["nowServingDefault"])),
    )


def queue_stats(name: str) -> Verb[records.QueueStats]:
    """Signals of a queue."""
    queue_named(name)
    return Verb(lambda req: m.QueueStats(req, name), lambda answer: records.stats_of(answer.value))


def list_workers(ended: bool) -> Verb[list[records.WorkerInfo]]:
    """Workers of the namespace."""
    flag("ended", ended)
    return Verb(
        lambda req: m.ListWorkers(req, ended),
        lambda answer: [records.worker_of(row) for row in answer.value],
    )


def show_worker(worker: str) -> Verb[records.WorkerInfo]:
    """One worker."""
    worker_named(worker)
    return Verb(lambda req: m.ShowWorker(req, worker), _worker)


def drain_worker(worker: str) -> Verb[records.WorkerInfo]:
    """Have it take nothing more."""
    worker_named(worker)
    return Verb(lambda req: m.DrainWorker(req, worker), _worker)


def remove_worker(worker: str) -> Verb[records.WorkerInfo]:
    """End it and kill its work."""
    worker_named(worker)
    return Verb(lambda req: m.RemoveWorker(req, worker), _worker)


def queue_events(name: str, limit: int, verbose: bool) -> Verb[list[records.Event]]:
    """Decisions about a queue, newest first."""
    queue_named(name)
    whole("limit", limit, 1, 200)
    flag("verbose", verbose)
    return Verb(
        lambda req: m.QueueEvents(req, name, limit, verbose),
        lambda answer: [records.event_of(row) for row in answer.value],
    )


def status() -> Verb[records.PlaneStatus]:
    """What the plane is and how much goes on."""
    return Verb(lambda req: m.Status(req), lambda answer: records.status_of(answer.value))


def list_topics() -> Verb[list[records.TopicInfo]]:
    """Topics by name."""
    return Verb(
        lambda req: m.ListTopics(req), lambda answer: [records.TopicInfo(**row) for row in answer.value]
    )


def remove_topic(name: str) -> Verb[None]:
    """Delete a topic."""
    topic_name(name)
    return Verb(lambda req: m.RemoveTopic(req, name), _nothing)


def post(name: str, at: float, data: bytes) -> Verb[int]:
    """Append to a topic; the value's number."""
    return Verb(lambda req: m.Post(req, name, at, data), _value)


def close_topic(name: str) -> Verb[None]:
    """Write a topic's END."""
    return Verb(lambda req: m.CloseTopic(req, name), _nothing)


def known(inv: str) -> bytes:
    """An id's bytes. What is no ULID can't name an invocation: NotFound."""
    try:
        return parse(inv)
    except ValueError as error:
        raise NotFound(str(error)) from None


def queue_named(name: str) -> str:
    """What names a queue, as it is. What can't be a name nor an id names none: NotFound."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a queue is named by a string, its name or its id, not by {type(name).__name__}")
    try:
        return check_name(name)
    except ValueError as error:
        try:
            parse(name)
        except ValueError:
            raise NotFound(f"{error}; nor is it the id of a queue") from None
        return name


def topic_name(name: str) -> str:
    """A topic's name as it is, or an error."""
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a topic's name is a string, not {type(name).__name__}")
    if not name or "\0" in name or len(name) > 200:
        raise ValueError(f"{name!r} is not a topic's name: choose 1 to 200 characters")
    return sound("a topic's name", name)


def worker_named(worker: str) -> str:
    """What names a worker, its id or its name, as it is."""
    if not isinstance(worker, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"worker={worker!r}: pass the id or the name of a worker, a string")
    if not worker:
        raise ValueError("worker='': pass the id or the name of a worker, which workers.list() shows")
    return sound("a worker's name", worker)


def _states(given: Any, kind: type[State] | type[QueueState]) -> tuple[str, ...]:
    names = ", ".join(member.value for member in kind)
    wanted: list[Any] = [given] if isinstance(given, str) else []
    if given is not None and not wanted:
        if isinstance(given, bytes) or not isinstance(given, Iterable):
            raise TypeError(f"state={given!r}: pass one of {names}, or several in a list")
        wanted = list(given)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    try:
        return tuple(kind(value).value for value in wanted)
    except ValueError:
        raise ValueError(f"state={given!r}: one of {names}") from None


def storable(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as they are, where a store can keep them."""
    for name, value in settings.items():
        try:
            msgspec.msgpack.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ValueError(
                f"{name}={value!r} can't be stored ({error}): use plain text, lists, dicts, and numbers of "
                "at most 64 bits"
            ) from None
    return settings


def _nothing(answer: Any) -> None:
    return None


def _value(answer: Any) -> Any:
    return answer.value


def _worker(answer: Any) -> records.WorkerInfo:
    return records.worker_of(answer.value)


def _queue(answer: Any) -> records.QueueInfo:
    return records.queue_of(answer.value)
