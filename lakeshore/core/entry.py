"""A live invocation as its queue holds it, and the rows and answers made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct, structs

from .actor import NEVER
from .messages import Outcome
from .rows import Attempt, Call, Failure, InvocationRow, Progress, Record
from .states import State

if TYPE_CHECKING:
    from .journal import Journal
    from .member import Member

_FIRST, _LAST = 10, 50  # attempts that a record keeps, of an invocation that had many
INLINE = 1024  # bytes of arguments or of a result that live in the row; larger ones are blobs


T = TypeVar("T")


class Rare(Struct, gc=False):
    """What most entries never need. A million queued ones take a fifth less memory without it."""

    ready: float | None = None
    ready_at: float = 0.0
    claimable_at: float | None = None  # since when it counts as claimable; None: since it was submitted
    deadline: float | None = None
    expires_at: float = NEVER
    retries: int = 0
    losses: int = 0
    killing: bool = False
    retrying: bool = False  # waits for a retry delay, not for the submitter's own
    killers: list[tuple[Any, int]] | None = None
    pinned: Member | None = None  # a `once` worker that follows it through its retries
    log: Journal | None = None
    progress: Progress | None = None
    cleared: int = 0  # the attempt whose files may be on their way to their keys
    noted_at: float = -NEVER  # when its progress was last put into a row for its own sake


_PLAIN = Rare()


class _Rarely(Generic[T]):
    """A field of an entry's `rare`, which is made by the first that is set."""

    __slots__ = ("_default", "_name")

    def __init__(self, name: str, default: T) -> None:
        self._name, self._default = name, default

    def __get__(self, entry: Any, owner: Any = None) -> T:
        rare = entry.rare
        return self._default if rare is None else getattr(rare, self._name)

    def __set__(self, entry: Any, value: T) -> None:
        if entry.rare is None:
            if value == self._default:
                return
            entry.rare = Rare()
        setattr(entry.rare, self._name, value)


class Entry(Struct, gc=False):
    """Changes in place; each commit writes a frozen row of it. Times with `_at` are monotonic,
    the others wall-clock seconds."""

    id: bytes
    place: int
    call: Call
    submitted: float
    priority: float = 0.0
    state: State = State.QUEUED
    args: bytes | None = None
    args_size: int = 0
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    ended: float | None = None
    result: bytes | None = None
    error: Failure | None = None
    reason: str | None = None
    queue: Any = None  # the queue actor that owns it
    stored: bool = False  # its first row has been put
    told: bool = False  # whoever waited was told of its end
    member: Member | None = None
    journal: Journal | None = None
    waiters: list[tuple[Any, int]] | dict[tuple[Any, int], None] | None = None  # a dict of many
    rare: Rare | None = None

    ready = _Rarely[float | None]("ready", None)
    ready_at = _Rarely[float]("ready_at", 0.0)
    claimable_at = _Rarely[float | None]("claimable_at", None)
    deadline = _Rarely[float | None]("deadline", None)
    expires_at = _Rarely[float]("expires_at", NEVER)
    retries = _Rarely[int]("retries", 0)
    losses = _Rarely[int]("losses", 0)
    killing = _Rarely[bool]("killing", False)
    retrying = _Rarely[bool]("retrying", False)
    killers = _Rarely[list[tuple[Any, int]] | None]("killers", None)
    pinned = _Rarely["Member | None"]("pinned", None)
    log = _Rarely["Journal | None"]("log", None)
    progress = _Rarely["Progress | None"]("progress", None)
    cleared = _Rarely[int]("cleared", 0)
    noted_at = _Rarely[float]("noted_at", -NEVER)

    def row(self, namespace: str, queue: bytes) -> InvocationRow:
        """What to store now."""
        attempts, result, journal = self.attempts, self.result, self.journal
        rare = self.rare or _PLAIN
        return InvocationRow(
            namespace,
            self.id,
            queue,
            self.state,
            self.place,
            attempts[-1].worker if attempts else None,
            self.call,
            Record(
                self.submitted,
                self.priority,
                rare.ready,
                rare.deadline,
                self.attempt,
                attempts,
                rare.retries,
                rare.losses,
                rare.killing,
                self.ended,
                result if result is None or len(result) <= INLINE else None,
                self.error,
                self.reason,
                0 if journal is None else self._frames(journal),
                self.args_size,
                rare.claimable_at,
                rare.progress,
                0 if rare.log is None else self._frames(rare.log),
            ),
        )

    def _frames(self, journal: Journal) -> int:
        """Frames, or lines, in all; while it runs, those of earlier attempts: what a journal that is
        opened again has beyond them is of this one."""
        if self.state is State.RUNNING:
            return journal.next_seq - journal.index_of(self.attempt)
        return journal.next_seq

    @property
    def claimable_since(self) -> float:
        """From when its cut-off counts; the time it ran is left out."""
        return self.submitted if self.claimable_at is None else self.claimable_at

    def came_back(self, now: float) -> None:
        """It is queued again, or will be at `ready`: the time since its claim was not claimable."""
        away = max(now, self.ready or now) - self.attempts[-1].started_at
        self.claimable_at = self.claimable_since + max(0.0, away)

    def end(self, req: int = 0, result: bytes | None = None) -> Outcome:
        """Once terminal: with the result the answer to a wait, without it what ends its stream."""
        return Outcome(req, self.id, self.state, self.attempt, result, self.error, self.reason)

    def open_attempt(self, worker: bytes, pid: int, now: float) -> None:
        """A worker claims it."""
        self.attempt += 1
        if self.rare is not None:
            self.rare.progress = None
        claim = Attempt(self.attempt, worker, now, None, None, None, pid)
        if not self.attempts:
            self.attempts = (claim,)
            return
        self.attempts = (*self.attempts, claim)
        if len(self.attempts) > _FIRST + _LAST:
            self.attempts = self.attempts[:_FIRST] + self.attempts[-_LAST:]

    def located(self, pid: int) -> None:
        """The body of the running attempt is in this process."""
        self.attempts = (*self.attempts[:-1], structs.replace(self.attempts[-1], pid=pid))

    def close_attempt(self, outcome: str, reason: str | None, now: float) -> None:
        """The running attempt is over."""
        last = self.attempts[-1]
        self.attempts = (
            *self.attempts[:-1],
            Attempt(last.number, last.worker, last.started_at, now, outcome, reason, last.pid),
        )


def entry_of(row: InvocationRow) -> Entry:
    """A stored row, live again."""
    record = row.record
    args = row.call.args
    entry = Entry(
        row.id,
        row.place,
        row.call,
        record.submitted_at,
        record.priority,
        row.state,
        args,
        record.args_size or len(args or b""),
        record.attempt,
        record.attempts,
        error=record.error,
        stored=True,
    )
    if record.attempt or record.ready_at or record.deadline or record.claimable_at:
        entry.rare = Rare(
            record.ready_at,
            0.0,
            record.claimable_at,
            record.deadline,
            NEVER,
            record.retries,
            record.losses,
            record.killing,
            progress=record.progress,
        )
    return entry


def outcome_of(row: InvocationRow, req: int, result: bytes | None) -> Outcome:
    """The answer to a wait for a stored terminal row."""
    record = row.record
    return Outcome(req, row.id, row.state, record.attempt, result, record.error, record.reason)
