"""Answers about invocations that are not live: each is one indexed read of the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .actor import Actor, Wake
from .engine import Engine, store_failed
from .entry import outcome_of
from .errors import Expired, NotFound
from .ids import first_at, milliseconds, text_of
from .intake import refusal
from .journal import Journal, Streams
from .kills import already_ended
from .messages import (
    Answer,
    Described,
    Drop,
    Follow,
    Get,
    Kill,
    ListJobs,
    PruneJobs,
    Retry,
    Wait,
    Why,
)
from .notes import Again, Note
from .ports import Outlet
from .queue import Queue
from .rows import (
    GetBlob,
    GetExtent,
    GetInvocation,
    GetKey,
    InvocationRow,
    KeyRow,
    ListInvocations,
    Missing,
    Prune,
    Pruned,
)
from .states import State

if TYPE_CHECKING:
    from .space import Space

_PRUNE_EVERY = 60.0  # seconds between rounds of pruning


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
        self._by_hand: deque[tuple[PruneJobs, Outlet]] = deque()
        self._round: tuple[PruneJobs, Outlet] | None = None  # for whom this round of pruning is
        self._count = 0
        self._pruning = False
        self.handlers |= {
            Wait: self._on_wait,
            Get: self._on_get,
            Why: self._on_why,
            Kill: self._on_kill,
            Retry: self._on_retry,
            Follow: self._on_follow,
            Drop: self.streams.drop,
            ListJobs: self._on_list,
            PruneJobs: self._on_prune,
            Step: self._on_step,
            Wake: self._on_wake,
        }
        self.call_at(engine.now + _PRUNE_EVERY)

    def _row(self, message: Any, peer: Any, then: Callable[[InvocationRow], None]) -> None:
        def answered(row: InvocationRow | Missing | BaseException) -> None:
            if isinstance(row, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(row)))
            elif isinstance(row, InvocationRow):
                if row.state.terminal:
                    then(row)
                else:  # retried under the same id can't be; it became live while this was read
                    entry = self.space.live.get(message.id)
                    if entry is not None:
                        peer.pass_on(message, entry.queue)
                    else:
                        self._row(message, peer, then)
            elif (entry := self.space.live.get(message.id)) is not None:
                peer.pass_on(message, entry.queue)
            else:
                self.engine.emit(peer, refusal(message.req, missing(message.id, row.expired)))

        self.engine.read(self, GetInvocation(self.space.name, message.id), answered)

    def _on_wait(self, message: Wait, peer: Any) -> None:
        def answer(row: InvocationRow) -> None:
            if row.state is State.SUCCEEDED and row.record.result is None:
                query = GetBlob(self.space.name, row.id, "result")
                self.engine.read(self, query, lambda data: with_result(row, data))
            else:
                self.engine.emit(peer, outcome_of(row, message.req, row.record.result))

        def with_result(row: InvocationRow, data: bytes | BaseException | None) -> None:
            if data is None or isinstance(data, BaseException):
                error = store_failed(data or LookupError("the result is not in the store"))
                self.engine.send(peer, refusal(message.req, error))
            else:
                self.engine.emit(peer, outcome_of(row, message.req, data))

        self._row(message, peer, answer)

    def _on_get(self, message: Get, peer: Any) -> None:
        self._row(
            message,
            peer,
            lambda row: self.engine.emit(
                peer, Described(message.req, ((row, self.space.queue_name(row.queue)),))
            ),
        )

    def _on_why(self, message: Why, peer: Any) -> None:
        def answer(row: InvocationRow) -> None:
            record = row.record
            why = record.reason or (record.error.headline if record.error else "")
            text = f"it is {row.state}" + (f": {why}" if why else "")
            self.engine.emit(peer, Answer(message.req, [text]))

        self._row(message, peer, answer)

    def _on_kill(self, message: Kill, peer: Any) -> None:
        def answer(row: InvocationRow) -> None:
            if row.state is State.KILLED:
                self.engine.emit(peer, Answer(message.req))
            else:
                self.engine.emit(peer, refusal(message.req, already_ended(row.id, row.state)))

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

        self._row(message, peer, with_row)

    # streams of what has ended

    def _on_follow(self, message: Follow, peer: Any) -> None:
        def with_row(row: InvocationRow) -> None:
            query = GetExtent(self.space.name, row.id)
            self.engine.read(self, query, lambda extent: with_extent(row, extent))

        def with_extent(row: InvocationRow, extent: tuple[int, int, int] | BaseException) -> None:
            if isinstance(extent, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(extent)))
                return
            if message.req not in peer.open:
                return  # dropped meanwhile
            first, end, attempt = extent
            journal = Journal(
                self, self.space.name, row.id, row.queue, first_seq=first, next_seq=end, attempt=attempt
            )
            journal.ended = True
            journal.end = outcome_of(row, 0, None)
            self.streams.follow(journal, message, peer)

        self._row(message, peer, with_row)

    # lists

    def _on_list(self, message: ListJobs, peer: Any) -> None:
        queue: bytes | None = None
        if message.queue is not None:
            found = self.space.find(message.queue)
            if found is None:
                self.engine.emit(peer, refusal(message.req, self.space.no_queue(message.queue)))
                return
            queue = found.id
        query = ListInvocations(
            self.space.name,
            queue,
            tuple(State(state) for state in message.states),
            message.worker,
            message.limit,
            message.offset,
        )

        def answer(rows: list[InvocationRow] | BaseException) -> None:
            if isinstance(rows, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(rows)))
            else:
                named = tuple((row, self.space.queue_name(row.queue)) for row in rows)
                self.engine.emit(peer, Described(message.req, named))

        self.engine.read(self, query, answer)

    # pruning

    def _on_wake(self, message: Wake, sender: Any) -> None:
        self.call_at(self.engine.now + _PRUNE_EVERY)
        if not self._pruning:
            self._begin()

    def _on_prune(self, message: PruneJobs, peer: Any) -> None:
        self._by_hand.append((message, peer))
        if not self._pruning:
            self._begin()

    def _begin(self) -> None:
        self._round = self._by_hand.popleft() if self._by_hand else None
        self._count = 0
        self._prune(b"\0" * 16)

    def _prune(self, after: bytes) -> None:
        wall = self.engine.wall()
        if self._round is not None and self._round[0].older_than is not None:
            before, queues = wall - self._round[0].older_than, {}
        else:
            before = wall - self.retention
            queues = {
                queue.id: wall - queue.settings.retention
                for queue in self.space.by_id.values()
                if queue.settings.retention is not None
            }
        self._pruning = True
        self.engine.batch.prune(Prune(self.space.name, after, before, queues))
        self.engine.touch(self)

    def _on_step(self, message: Step, sender: Any) -> None:
        prune, pruned = message.prune, message.pruned
        self._count += len(pruned.ids)
        newest = first_at(int(max([prune.ended_before, *prune.queues.values()]) * 1000) + 1)
        if pruned.cursor is not None and milliseconds(pruned.cursor) <= milliseconds(newest):
            self._prune(pruned.cursor)
            return
        self._pruning = False
        if self._round is not None:
            request, peer = self._round
            self.engine.emit(peer, Answer(request.req, self._count))
        if self._by_hand:
            self._begin()


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
