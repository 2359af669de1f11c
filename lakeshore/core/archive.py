"""Answers about invocations that are not live: each is one indexed read of the store.

They reveal only what is stored, so they wait for no commit: also where the disk is full they are given."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .actor import NEVER, Actor, Read, Wake
from .crew import id_of, is_id
from .engine import Engine, store_failed
from .entry import outcome_of
from .errors import Expired, NotFound
from .ids import milliseconds, parse, text_of
from .intake import refusal
from .journal import Journal, Streams
from .kills import already_ended
from .messages import (
    Accepted,
    Answer,
    Described,
    Drop,
    Follow,
    FollowLogs,
    Get,
    Kill,
    ListJobs,
    PruneJobs,
    Retry,
    Wait,
    Why,
)
from .notes import Again, Note, SweepTopics
from .ports import Outlet
from .queue import Queue
from .recent import Recent
from .rows import (
    GetBlob,
    GetExtent,
    GetInvocation,
    GetKey,
    InvocationRow,
    KeyRow,
    ListInvocations,
    MetaRow,
    Missing,
    Prune,
    Pruned,
    log_of,
)
from .states import State
from .why import explain_ended

if TYPE_CHECKING:
    from .space import Space

_PRUNE_EVERY = 60.0  # seconds between rounds of pruning
_LOOK_AGAIN = 3600.0  # at least so many seconds until rows are looked at for no known reason
_FIRST, _LAST = b"\0" * 16, b"\xff" * 16  # below and above every id


class Step(Note, frozen=True, gc=False):
    """A pruning step is stored."""

    prune: Prune
    pruned: Pruned


class Archive(Actor):
    """Reads for those who ask about what has ended, and prunes it in small steps.

    Args:
        retention: seconds that terminal invocations are kept where their queue says nothing else.
    """

    def __init__(self, engine: Engine, space: Space, retention: float) -> None:
        super().__init__(engine)
        self.space, self.retention = space, retention
        self.streams = Streams(self)
        self.recent = Recent()  # the queues put in what they have stored
        self._by_hand: deque[tuple[PruneJobs, Outlet]] = deque()
        self._round: tuple[PruneJobs, Outlet] | None = None  # for whom this round of pruning is
        self._count = 0
        self._pruning = False
        self._calendar = Calendar()
        self._sweeps = 0  # how often ended workers and unused functions are still to be looked for
        self._sweep_at = 0.0  # and when they are anyway
        self.handlers |= {
            Wait: self._on_wait,
            Get: self._on_get,
            Why: self._on_why,
            Kill: self._on_kill,
            Retry: self._on_retry,
            Follow: self._on_follow,
            FollowLogs: self._on_follow,
            Drop: self.streams.drop,
            ListJobs: self._on_list,
            PruneJobs: self._on_prune,
            Step: self._on_step,
            Wake: self._on_wake,
        }
        self.call_at(engine.now + _PRUNE_EVERY)

    def _row(
        self, message: Any, peer: Any, then: Callable[[InvocationRow], None], *, again: bool = False
    ) -> None:
        def answered(row: InvocationRow | Missing | BaseException) -> None:
            entry = self.space.live.get(message.id)
            if isinstance(row, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(row)))
            elif isinstance(row, InvocationRow) and row.state.terminal:
                then(row)
            elif entry is not None:  # it became live while this was read
                peer.pass_on(message, entry.queue)
            elif isinstance(row, Missing):
                self.engine.send(peer, refusal(message.req, missing(message.id, row.expired)))
            elif not again:  # it ended while this was read
                self._row(message, peer, then, again=True)
            else:
                self._row_after_commit(message, peer, then)

        self.engine.read(self, GetInvocation(self.space.name, message.id), answered)

    def _row_after_commit(self, message: Any, peer: Any, then: Callable[[InvocationRow], None]) -> None:
        """An invocation lives in the store and not here: it may be another head's, which has taken the store
        over. A commit tells; if it is stored, the store is ours, and is read once more."""
        self.engine.batch.put(MetaRow("plane", self.space.office.plane))
        read = Read(lambda answer: self._row(message, peer, then, again=True), None)
        self.engine.emit(self, read)

    def _on_wait(self, message: Wait, peer: Any) -> None:
        outcome = self.recent.answer(message.id, message.req)
        if outcome is not None:
            self.engine.send(peer, outcome)
            return

        def answer(row: InvocationRow) -> None:
            if row.state is State.SUCCEEDED and row.record.result is None:
                query = GetBlob(self.space.name, row.id, "result")
                self.engine.read(self, query, lambda data: with_result(row, data))
            else:
                self.engine.send(peer, outcome_of(row, message.req, row.record.result))

        def with_result(row: InvocationRow, data: bytes | BaseException | None) -> None:
            if data is None or isinstance(data, BaseException):
                error = store_failed(data or LookupError("the result is not in the store"))
                self.engine.send(peer, refusal(message.req, error))
            else:
                self.engine.send(peer, outcome_of(row, message.req, data))

        self._row(message, peer, answer)

    def _on_get(self, message: Get, peer: Any) -> None:
        self._row(
            message,
            peer,
            lambda row: self.engine.send(
                peer, Described(message.req, ((row, self.space.queue_name(row.queue)),))
            ),
        )

    def _on_why(self, message: Why, peer: Any) -> None:
        self._row(message, peer, lambda row: explain_ended(message, peer, self, self.space, row))

    def _on_kill(self, message: Kill, peer: Any) -> None:
        def answer(row: InvocationRow) -> None:
            if row.state is State.KILLED:
                self.engine.send(peer, Answer(message.req))
            else:
                self.engine.send(peer, refusal(message.req, already_ended(row.id, row.state)))

        self._row(message, peer, answer)

    def _on_retry(self, message: Retry, peer: Any) -> None:
        def with_row(row: InvocationRow) -> None:
            if row.call.args is not None:
                with_args(row, row.call.args)
            else:
                query = GetBlob(self.space.name, row.id, "args")
                self.engine.read(self, query, lambda data: with_args(row, data))

        def with_args(row: InvocationRow, args: bytes | BaseException | None) -> None:
            queue = self.space.by_id.get(row.queue)
            if args is None or isinstance(args, BaseException):
                error = store_failed(args or LookupError("the arguments are not in the store"))
                self.engine.send(peer, refusal(message.req, error))
            elif queue is None or queue.removing:
                gone = NotFound(f"the queue of {text_of(row.id)} was removed: submit it to another queue")
                self.engine.emit(peer, refusal(message.req, gone))
            elif row.call.key:
                query = GetKey(self.space.name, row.queue, row.call.key)
                self.engine.read(self, query, lambda key: with_key(queue, row, args, key))
            else:
                self.engine.tell(queue, Again(message, row, args), peer)

        def with_key(
            queue: Queue, row: InvocationRow, args: bytes, key: KeyRow | BaseException | None
        ) -> None:
            if isinstance(key, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(key)))
            else:
                digest = key.digest if key is not None and key.id == row.id else b""
                self.engine.tell(queue, Again(message, row, args, digest), peer)

        def asked_before(row: InvocationRow | Missing | BaseException) -> None:
            if isinstance(row, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(row)))
            elif isinstance(row, InvocationRow) or message.new_id in self.space.live:
                self.engine.emit(peer, Accepted(message.req, message.new_id))
            else:
                self._row(message, peer, with_row)

        if message.again:
            self.engine.read(self, GetInvocation(self.space.name, message.new_id), asked_before)
        else:
            self._row(message, peer, with_row)

    # streams of what has ended

    def _on_follow(self, message: Follow | FollowLogs, peer: Any) -> None:
        logs = type(message) is FollowLogs
        owner = log_of(message.id) if logs else message.id

        def with_row(row: InvocationRow) -> None:
            query = GetExtent(self.space.name, owner)
            self.engine.read(self, query, lambda extent: with_extent(row, extent))

        def with_extent(row: InvocationRow, extent: tuple[int, int, int] | BaseException) -> None:
            if isinstance(extent, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(extent)))
                return
            if message.req not in peer.open:
                return  # dropped meanwhile
            first, end, attempt = extent
            journal = Journal(
                self, self.space.name, owner, row.queue, first_seq=first, next_seq=end, attempt=attempt
            )
            journal.ended = True
            journal.end = None if logs else outcome_of(row, 0, None)
            self.streams.follow(journal, message, peer)

        self._row(message, peer, with_row)

    # lists

    def _on_list(self, message: ListJobs, peer: Any) -> None:
        queue: bytes | None = None
        if message.queue is not None:
            found = self.space.find(message.queue)
            if found is None:
                self.engine.send(peer, refusal(message.req, self.space.no_queue(message.queue)))
                return
            queue = found.id
        if not message.worker_name:
            self._list(message, peer, queue, message.worker)
            return
        if is_id(message.worker_name):
            self._list(message, peer, queue, parse(message.worker_name))
            return
        self.space.crew.find(
            message,
            peer,
            lambda found: self._list(message, peer, queue, id_of(found)),
            message.worker_name,
        )

    def _list(self, message: ListJobs, peer: Any, queue: bytes | None, worker: bytes | None) -> None:
        query = ListInvocations(
            self.space.name,
            queue,
            tuple(State(state) for state in message.states),
            worker,
            message.limit,
            message.offset,
            message.before,
        )

        def answer(rows: list[InvocationRow] | BaseException) -> None:
            if isinstance(rows, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(rows)))
            else:
                named = tuple((row, self.space.queue_name(row.queue)) for row in rows)
                self.engine.send(peer, Described(message.req, named))

        self.engine.read(self, query, answer)

    # pruning

    def _on_wake(self, message: Wake, sender: Any) -> None:
        self.call_at(self.engine.now + _PRUNE_EVERY)
        self.engine.tell(self.space.topics, SweepTopics())
        if not self._pruning:
            self._begin()

    def _on_prune(self, message: PruneJobs, peer: Any) -> None:
        if message.older_than is None:
            self.engine.tell(self.space.topics, SweepTopics())
        self._by_hand.append((message, peer))
        if not self._pruning:
            self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._pruning = True
        if self._by_hand:
            self._round = self._by_hand.popleft()
            self._prune(_FIRST)
            return
        self._round = None
        queues = {
            queue.id: queue.settings.retention
            for queue in self.space.by_id.values()
            if queue.settings.retention is not None
        }
        calendar = self._calendar
        if (calendar.retention, calendar.queues) != (self.retention, queues):
            calendar = self._calendar = Calendar(self.retention, queues)
        if calendar.fresh_at > self.engine.wall():
            self._go_on()
        else:
            self.engine.read(self, ListInvocations(self.space.name, limit=1), self._with_newest)

    def _with_newest(self, rows: list[InvocationRow] | BaseException) -> None:
        if not isinstance(rows, BaseException):
            self._calendar.came(rows[0].id if rows else _FIRST)
        self._go_on()

    def _go_on(self) -> None:
        """The next step of a periodic round, or its end."""
        after = self._calendar.next(self.engine.wall())
        if after is not None:
            self._prune(after)
            return
        self._gone()
        if self._sweeps or self._sweep_at <= self.engine.wall():
            self._prune(_LAST)
        else:
            self._end()

    def _gone(self) -> None:
        if self._count:
            self._sweeps = 2  # a function goes in the second sweep that finds it unused

    def _end(self) -> None:
        self._pruning = False
        if self._by_hand:
            self._begin()

    def _prune(self, after: bytes) -> None:
        wall = self.engine.wall()
        by_hand = self._round is not None and self._round[0].older_than is not None
        if self._round is not None and self._round[0].older_than is not None:
            before, queues = wall - self._round[0].older_than, {}
        else:
            before = wall - self.retention
            queues = {
                queue.id: wall - queue.settings.retention
                for queue in self.space.by_id.values()
                if queue.settings.retention is not None
            }
        self.engine.batch.prune(Prune(self.space.name, after, before, queues, now=wall, events=not by_hand))
        self.engine.touch(self)

    def _on_step(self, message: Step, sender: Any) -> None:
        prune, pruned = message.prune, message.pruned
        self._count += len(pruned.ids)
        self.recent.forget(pruned.ids)
        if pruned.objects:
            self.engine.unwanted(pruned.objects)
        if self._round is None:
            if prune.after == _LAST:
                self._sweeps = max(0, self._sweeps - 1)
                self.space.forget_names(prune.now - self.retention)
                self._sweep_at = prune.now + max(self.retention, _LOOK_AGAIN)
                self._end()
            else:
                self._calendar.looked(prune, pruned)
                self._go_on()
        elif pruned.cursor is not None and not _young(pruned.cursor, prune):
            self._prune(pruned.cursor)
        else:
            request, peer = self._round
            self.engine.emit(peer, Answer(request.req, self._count))
            self._gone()
            self._end()


class Calendar:
    """When which of the stored invocations may be due, so that none is looked at in vain.

    Args:
        retention, queues: by which rules, in seconds; `queues` are those with one of their own.

    Attributes:
        fresh_at: when what was not stored yet at the last look may be due.
    """

    def __init__(self, retention: float = NEVER, queues: dict[bytes, float] | None = None) -> None:
        self.retention, self.queues = retention, queues or {}
        every = (retention, *self.queues.values())
        self._shortest, self._longest = min(every), max(*every, _LOOK_AGAIN)
        self._marks = [_FIRST]  # rows after one, up to the next, are due at the same place of `_dues`
        self._dues = [0.0]
        self._at = 0
        self._newest = b""
        self.fresh_at = 0.0

    def came(self, newest: bytes) -> None:
        """The newest id that is stored, asked for at `fresh_at`."""
        if newest > self._newest:
            self._newest = newest
            self._dues[-1] = 0.0

    def next(self, wall: float) -> bytes | None:
        """After which id to look next in this round; None at its end."""
        for at in range(self._at, len(self._marks)):
            if self._dues[at] <= wall:
                self._at = at
                return self._marks[at]
        self._at = 0
        return None

    def looked(self, prune: Prune, pruned: Pruned) -> None:
        """That was done, and what it found."""
        at, marks, dues, now = self._at, self._marks, self._dues, prune.now
        due = now + min(pruned.wait, self._longest)
        cursor = pruned.cursor
        if cursor is None:
            fresh = True
            marks[at + 1 :], dues[at:] = [], [due]
        else:
            end = bisect_right(marks, cursor, at + 1)
            fresh = end == len(marks)
            rest = dues[end - 1]
            if _young(cursor, prune):
                rest = max(rest, min(milliseconds(cursor) / 1000, now) + self._shortest)
            marks[at + 1 : end], dues[at:end] = [cursor], [due, rest]
        if fresh:
            self.fresh_at = now + self._shortest
        if at and pruned.wait == NEVER:  # nothing is left there
            del marks[at], dues[at]
            at -= 1
        self._at = at + 1


def _young(id: bytes, prune: Prune) -> bool:
    """Whether all from an id on are too young to be pruned."""
    return milliseconds(id) > max([prune.ended_before, *prune.queues.values()]) * 1000 + 1


def missing(id: bytes, expired: bool) -> NotFound:
    """Nothing is known of an id."""
    if expired:
        return Expired(
            f"{text_of(id)} is not kept any more: ids this old were pruned; raise retention to keep "
            "them longer"
        )
    return NotFound(
        f"no invocation {text_of(id)} in this namespace: check the id, the plane and the namespace"
    )
