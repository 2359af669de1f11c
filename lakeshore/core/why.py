"""Why an invocation is where it is, in sentences: what it waits for and what would end that, or where it
ran. What the names of ended workers need is one read of the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from math import exp
from typing import TYPE_CHECKING, Any

from .actor import Actor
from .entry import Entry
from .ids import text_of
from .logbook import told
from .messages import Answer, Why
from .rows import Attempt, GetWorkers, InvocationRow, Progress, WorkerRow
from .states import HANDS_OUT, QueueState, State

if TYPE_CHECKING:
    from .member import Member
    from .queue import Queue
    from .space import Space

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COUNTED = 10_000  # entries that are looked at one by one for one answer
_SHOWN = 10  # workers that are named in one answer
_ORDERS = {"fifo": "oldest first", "filo": "newest first", "priority": "highest priority first"}
_ENDS_WITH = {
    QueueState.PAUSED: "`lakeshore resume {name}` ends that",
    QueueState.ARCHIVED: "`lakeshore queues unarchive {name}` makes it active",
}
_RAN = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timeout": "ran too long",
    "killed": "was killed",
    "returned": "was given back",
    "lost": "was lost with its worker",
}


def explain_live(message: Why, peer: Any, queue: Queue, entry: Entry) -> None:
    """Answer about an invocation that has not ended, or just has."""
    if entry.state is State.QUEUED:
        sentences = [*_blockers(queue, entry), *_order(queue, entry), *_parent(queue, entry)]
    elif entry.state is State.RUNNING:
        sentences = _running(queue, entry)
    else:
        sentences = _ended(entry.id, entry.state, entry.reason, entry.error) + _progress(entry.progress)
    past = entry.attempts[:-1] if entry.state is State.RUNNING else entry.attempts
    _answer(message, peer, queue, queue.space, sentences, past, queue.engine.emit)


def explain_ended(message: Why, peer: Any, archive: Actor, space: Space, row: InvocationRow) -> None:
    """Answer about one that has ended: what is stored, so it waits for no commit."""
    record = row.record
    sentences = _ended(row.id, row.state, record.reason, record.error) + _progress(record.progress)
    _answer(message, peer, archive, space, sentences, record.attempts, archive.engine.send)


def _answer(
    message: Why,
    peer: Any,
    actor: Actor,
    space: Space,
    sentences: list[str],
    past: tuple[Attempt, ...],
    send: Callable[[Any, Any], None],
) -> None:
    """Add where it ran, with the names of workers that may have ended."""
    names = {id: member.hello.name for id, member in space.members.items()}
    missing = tuple(dict.fromkeys(attempt.worker for attempt in past if attempt.worker not in names))
    if not missing:
        send(peer, Answer(message.req, sentences + _history(past, names)))
        return

    def named(rows: list[WorkerRow] | BaseException) -> None:
        if not isinstance(rows, BaseException):
            names.update((row.id, str(row.info["name"])) for row in rows)
        send(peer, Answer(message.req, sentences + _history(past, names)))

    actor.engine.read(actor, GetWorkers(space.name, missing), named)


# of one that is queued


def _blockers(queue: Queue, entry: Entry) -> list[str]:
    """What keeps it from running, first what no worker could help with."""
    sentences: list[str] = []
    now = queue.engine.now
    if queue.state not in HANDS_OUT:
        ends = _ENDS_WITH[queue.state].format(name=queue.name)
        sentences.append(f"queue {queue.name!r} is {queue.state} and hands out nothing: {ends}")
    if entry.ready_at > now:
        what = "retry delay" if entry.retrying else "delay"
        at = _moment(queue.engine.at + entry.ready_at - now)
        sentences.append(f"its {what} ends in {entry.ready_at - now:.1f} s, at {at}: it waits until then")
    limit = queue.settings.admission.max_running
    if limit is not None and len(queue.running) >= limit:
        sentences.append(
            f"{len(queue.running)} of queue {queue.name!r} are running and its max_running is {limit}: one "
            "has to end, or the limit to be raised"
        )
    return sentences + _hands(queue, entry)


def _hands(queue: Queue, entry: Entry) -> list[str]:
    """Who could run it."""
    members = [member for member in queue.members if not member.gone]
    if not members:
        return [
            f"no worker serves queue {queue.name!r}: start one, with `lakeshore daemon start --queue "
            f"{queue.name}` or run_worker in Python"
        ]
    refusing = queue.handout.refusals(entry)
    able = [member for member in members if member not in refusing]
    sentences: list[str] = []
    if not able:
        name = entry.call.options.function.name
        sentences.append(
            f"no live worker can find the function {name}: start one that can import it (its module on the "
            "path, --trust or --allow-pickle where that is what it lacks)"
        )
    sentences += [f"{_called(member)} says: {refusing[member]}" for member in members if member in refusing]
    if able and all(member.credit <= 0 for member in able):
        sentences.append(
            f"all {len(able)} workers that could run it are taken, so one of their bodies has to end, or "
            f"another worker to come: {', '.join(_load(member) for member in able[:_SHOWN])}"
        )
    elif able and entry.ready_at <= queue.engine.now and queue.state in HANDS_OUT:
        free = [_load(member) for member in able if member.credit > 0][:_SHOWN]
        sentences.append(f"there is room for it at {', '.join(free)}: it is handed out in its turn")
    return sentences


def _load(member: Member) -> str:
    slots, busy = member.hello.slots, min(len(member.grants), member.hello.slots)
    state = "" if member.state == "ready" else f", {member.state}"
    return f"{_called(member)} ({busy} of {slots} slots busy{state})"


def _order(queue: Queue, entry: Entry) -> list[str]:
    """Its place among those that could be handed out."""
    backlog, kind = queue.backlog, queue.settings.kind
    if not backlog.is_claimable(entry):
        return []
    if kind == "boltzmann" and queue.settings.temperature > 0:
        share = _chance(queue, entry)
        chance = "" if share is None else f"; its chance to be the next is {share:.3%}"
        own = f"each pick is a draw among {backlog.claimable} by priority, and its own is {entry.priority}"
        return [own + chance]
    before = backlog.before(entry, "priority" if kind == "boltzmann" else kind, _COUNTED)
    order = _ORDERS.get(kind, _ORDERS["priority"])
    if before is None:
        return [f"{backlog.claimable} could be handed out, {order}; its priority is {entry.priority}"]
    of_all = f"of the {backlog.claimable} that could be handed out"
    come = f"{before} {of_all} come" if before else f"none {of_all} comes"
    return [f"{come} before it ({kind}: {order})"]


def _chance(queue: Queue, entry: Entry) -> float | None:
    backlog, temperature = queue.backlog, queue.settings.temperature
    if backlog.claimable > _COUNTED:
        return None
    priorities = [other.priority for other in backlog if backlog.is_claimable(other)]
    top = max(priorities)
    weights = sum(exp(max(-700.0, (priority - top) / temperature)) for priority in priorities)
    return exp(max(-700.0, (entry.priority - top) / temperature)) / weights


def _parent(queue: Queue, entry: Entry) -> list[str]:
    """The body that submitted it may wait for it, in the very slot it needs."""
    parent = queue.space.live.get(entry.call.parent) if entry.call.parent is not None else None
    if parent is None or parent.member is None or parent.member not in queue.members:
        return []
    if any(member.credit > 0 for member in queue.members):
        return []
    return [
        f"its parent {text_of(parent.id)} runs in one of the busy slots, of {_called(parent.member)}: if "
        "that body waits for this one, neither goes on; give the worker more slots, or start another"
    ]


# of one that runs


def _running(queue: Queue, entry: Entry) -> list[str]:
    attempt = entry.attempts[-1]
    member = entry.member
    where = _worker(attempt.worker, "") if member is None else f"{_called(member)} on {member.hello.host}"
    ran = max(0.0, queue.engine.at - attempt.started_at)
    since = f"since {_moment(attempt.started_at)}, {ran:.1f} s"
    sentences = [f"attempt {attempt.number} is running, at {where} (pid {attempt.pid}), {since}"]
    sentences += _progress(entry.progress)
    timeout = entry.call.options.timeout
    if timeout is not None:
        sentences.append(f"its timeout is {timeout:g} s from when its body begins")
    if entry.killing:
        sentences.append("it is being killed: its worker is to stop the body, and has not said that it ended")
    elif entry.killers:
        sentences.append("a kill waits for its worker to say whether the body has begun")
    if member is not None and member.state == "away":
        sentences.append("its worker has no connection just now: it goes on there, or is lost with its lease")
    elif member is not None and len(member.grants) > member.hello.slots:
        sentences.append(
            f"its worker holds {len(member.grants)} and has {member.hello.slots} slots: it may wait there"
        )
    return sentences


def _progress(progress: Progress | None) -> list[str]:
    if progress is None:
        return []
    return [f"its body has come to {told(progress)}, as it said at {_moment(progress.at)}"]


# of one that has ended


def _ended(id: bytes, state: State, reason: str | None, error: Any) -> list[str]:
    why = reason or (error.headline if error is not None else "")
    sentences = [f"it is {state}" + (f": {why}" if why else "")]
    if state is not State.SUCCEEDED:
        sentences.append(f"`lakeshore jobs retry {text_of(id)}` submits it anew")
    return sentences


def _history(attempts: Iterable[Attempt], names: dict[bytes, str]) -> list[str]:
    sentences: list[str] = []
    last = 0
    for attempt in attempts:
        if attempt.number > last + 1 and last:
            sentences.append(f"attempts {last + 1} to {attempt.number - 1} are not kept")
        last = attempt.number
        ended, outcome = attempt.ended_at, _RAN.get(attempt.outcome or "", attempt.outcome or "ran")
        until = (
            "" if ended is None else f" to {_moment(ended)} ({max(0.0, ended - attempt.started_at):.1f} s)"
        )
        why = f": {attempt.reason}" if attempt.reason else ""
        where = _worker(attempt.worker, names.get(attempt.worker, ""))
        sentences.append(
            f"attempt {attempt.number} at {where} from {_moment(attempt.started_at)}{until} {outcome}{why}"
        )
    return sentences


def _called(member: Member) -> str:
    return _worker(member.hello.worker, member.hello.name)


def _worker(id: bytes, name: str) -> str:
    return f"worker {name!r} ({text_of(id)})" if name else f"worker {text_of(id)}"


def _moment(seconds: float) -> str:
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%d %H:%M:%S} UTC"
