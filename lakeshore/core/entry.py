"""A live invocation as its queue holds it, and the rows and answers made from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .actor import NEVER
from .messages import Outcome
from .rows import Attempt, Call, Failure, InvocationRow, Record
from .states import State

if TYPE_CHECKING:
    from .journal import Journal
    from .member import Member

_FIRST, _LAST = 10, 50  # attempts that a record keeps, of an invocation that had many
INLINE = 1024  # bytes of arguments or of a result that live in the row; larger ones are blobs


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
    ready: float | None = None
    ready_at: float = 0.0
    claimable_at: float | None = None  # since when it counts as claimable; None: since it was submitted
    deadline: float | None = None
    expires_at: float = NEVER
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    retries: int = 0
    losses: int = 0
    killing: bool = False
    ended: float | None = None
    result: bytes | None = None
    error: Failure | None = None
    reason: str | None = None
    queue: Any = None  # the queue actor that owns it
    stored: bool = False  # its first row has been put
    retrying: bool = False  # waits for a retry delay, not for the submitter's own
    member: Member | None = None
    journal: Journal | None = None
    waiters: list[tuple[Any, int]] | None = None
    killers: list[tuple[Any, int]] | None = None
    pinned: Member | None = None  # a `once` worker that follows it through its retries

    def row(self, namespace: str, queue: bytes) -> InvocationRow:
        """What to store now."""
        attempts, result = self.attempts, self.result
        journal = self.journal
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
                self.ready,
                self.deadline,
                self.attempt,
                attempts,
                self.retries,
                self.losses,
                self.killing,
                self.ended,
                result if result is None or len(result) <= INLINE else None,
                self.error,
                self.reason,
                0 if journal is None else journal.next_seq,
                self.args_size,
                self.claimable_at,
            ),
        )

    @property
    def claimable_since(self) -> float:
        """From when its cut-off counts; the time it ran is left out."""
        return self.submitted if self.claimable_at is None else self.claimable_at

    def came_back(self, now: float) -> None:
        """It is queued again, or will be at `ready`: the time since its claim was not claimable."""
        away = max(now, self.ready or now) - self.attempts[-1].started_at
        self.claimable_at = self.claimable_since + max(0.0, away)

    def outcome(self, req: int) -> Outcome:
        """The answer to a wait, once terminal."""
        return Outcome(req, self.id, self.state, self.attempt, self.result, self.error, self.reason)

    def end(self) -> Outcome:
        """What ends its stream: an outcome without the result."""
        return Outcome(0, self.id, self.state, self.attempt, None, self.error, self.reason)

    def open_attempt(self, worker: bytes, pid: int, now: float) -> None:
        """A worker claims it."""
        self.attempt += 1
        self.attempts = (*self.attempts, Attempt(self.attempt, worker, now, pid=pid))
        if len(self.attempts) > _FIRST + _LAST:
            self.attempts = self.attempts[:_FIRST] + self.attempts[-_LAST:]

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
    return Entry(
        row.id,
        row.place,
        row.call,
        record.submitted_at,
        record.priority,
        row.state,
        args,
        record.args_size or len(args or b""),
        record.ready_at,
        0.0,
        record.claimable_at,
        record.deadline,
        NEVER,
        record.attempt,
        record.attempts,
        record.retries,
        record.losses,
        record.killing,
        error=record.error,
        stored=True,
    )


def outcome_of(row: InvocationRow, req: int, result: bytes | None) -> Outcome:
    """The answer to a wait for a stored terminal row."""
    record = row.record
    return Outcome(req, row.id, row.state, record.attempt, result, record.error, record.reason)
