"""What workers report of the bodies they run for a queue. Only the current attempt is heard."""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING

from .actor import NEVER
from .entry import Entry
from .messages import (
    Began,
    Cleared,
    Ended,
    EndedAck,
    Frames,
    FramesAck,
    GaveBack,
    Logged,
    LoggedAck,
    Progressed,
    Publish,
    Reclaim,
    Stop,
)
from .notes import Offer, Resumed, Returned, Revoked, Settled
from .states import Move, State, step

if TYPE_CHECKING:
    from .member import Member
    from .queue import Queue

CLEANUP = 5.0  # seconds a cancelled body may go on for
BACKSTOP = CLEANUP + 5.0  # seconds after a timeout until the head stops waiting for the worker
_NOTED = 5.0  # seconds between two rows that are written for the progress in them alone
_SLACK = 1000  # what the heap of backstops may hold beside what runs

_MOVES = {"succeed": Move.SUCCEED, "fail": Move.FAIL, "kill": Move.KILL, "expire": Move.EXPIRE}


class Reports:
    """The ear of one queue; runs in its turns."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.engine = queue, queue.engine
        self.backstops: list[tuple[float, bytes, int]] = []
        self._ends: deque[float] = deque(maxlen=32)  # when the newest bodies ended
        queue.handlers |= {
            Ended: self.on_ended,
            Frames: self.on_frames,
            Logged: self.on_logged,
            Progressed: self.on_progressed,
            Began: self.on_began,
            GaveBack: self.on_gave_back,
            Publish: self.on_publish,
            Returned: self.on_returned,
            Resumed: self.on_resumed,
            Revoked: self.on_revoked,
        }

    @property
    def due(self) -> float:
        """When `tick` has something to do."""
        return self.backstops[0][0] if self.backstops else NEVER

    def tick(self) -> None:
        """End what ran past its timeout without a word from its worker."""
        while self.backstops and self.backstops[0][0] <= self.engine.now:
            _, id, attempt = heapq.heappop(self.backstops)
            entry = self.queue.running.get(id)
            if (
                entry is not None and entry.attempt == attempt != entry.cleared
            ):  # whose lease is the bound then
                reason = "it ran longer than its timeout and its worker did not report its end"
                if entry.killing:  # stored first, so it outranks the timeout
                    self.queue.end(entry, Move.KILL, "killed", reason="killed")
                else:
                    self.queue.end(entry, Move.EXPIRE, "timeout", reason=reason)

    def seconds_per_job(self) -> float | None:
        """How often a place came free lately, in seconds, or None where nothing is known."""
        if len(self._ends) < 2:
            return None
        return max((self._ends[-1] - self._ends[0]) / (len(self._ends) - 1), 0.001)

    def _current(self, id: bytes, attempt: int, member: Member) -> Entry | None:
        entry = self.queue.running.get(id)
        if entry is None or entry.attempt != attempt or entry.member is not member:
            self._refuse(id, attempt, member)
            return None
        return entry

    def _refuse(self, id: bytes, attempt: int, member: Member) -> None:
        member.stale += 1
        held = member.grants.get(id)
        over = held is not None and held[1] == attempt  # timed out here: its slot is free once it reports
        self.engine.emit(member.wire, Stop(id, attempt, "timeout" if over else "stale"))

    def on_ended(self, message: Ended, member: Member) -> None:
        entry = self.queue.running.get(message.id)
        if entry is None or entry.attempt != message.attempt or entry.member is not member:
            self._refuse(message.id, message.attempt, member)
            if member.hello.quiet:
                self.engine.tell(member, Settled(message.id), self.queue)
            return
        self._ends.append(self.engine.now)
        self._end(entry, message)
        self.engine.emit(member.wire, EndedAck(message.id, message.attempt, entry.state))
        if member.hello.quiet:
            following = entry.state is State.QUEUED
            self.engine.tell(member, Settled(message.id, following), self.queue)
            if following and member.hello.limit is not None:
                entry.pinned = member
                if self.queue.backlog.is_claimable(entry):
                    self.engine.tell(member, Offer(entry.id), self.queue)

    def _end(self, entry: Entry, message: Ended) -> None:
        move = message.move
        if move == "succeed":
            self.queue.end(entry, Move.SUCCEED, "succeeded", result=message.result)
            return
        retry = move == "fail" and message.retryable and entry.retries < entry.call.options.retries
        if retry and self.queue.removing:
            self.queue.end(entry, Move.KILL, "failed", error=message.error, reason="its queue was removed")
        elif retry and entry.killers and not entry.killing:  # it would be queued, and is to be killed
            self.queue.end(entry, Move.KILL, "failed", error=message.error, reason="killed")
        elif retry and not entry.killing:
            self.queue.retry_later(entry, message)
        elif move == "expire" and entry.killing:  # the kill was stored first, so it outranks the timeout
            self.queue.end(entry, Move.KILL, "killed", reason="killed")
        else:
            state = step(entry.state, _MOVES[move])
            self.queue.end(
                entry,
                _MOVES[move],
                state,
                error=message.error,
                reason=message.reason,
                result=message.result,
            )

    def on_frames(self, message: Frames, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        rare = entry.rare  # read without a call, as there are many frames
        if rare is not None and rare.cleared == entry.attempt:  # that was for a frame: its body goes on
            entry.cleared = 0
            self._arm(entry)
        journal = entry.journal
        if journal is None:
            journal = entry.journal = self.queue.new_journal(entry)
        if not journal.append(message.attempt, message.index, message.count, message.data):
            member.stale += 1  # a repeat, or a gap: the answer says what comes next
        for each in message.away:
            if (thing := self.queue.space.depot.row(entry.id, each)) is not None:
                self.engine.batch.put(thing)
        self.engine.emit(member.wire, FramesAck(message.id, message.attempt, journal.index))

    def on_logged(self, message: Logged, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        log = entry.log
        if log is None:
            log = entry.log = self.queue.new_log(entry)
        log.skip_to(message.attempt, message.index)
        log.append(message.attempt, message.index, message.count, message.data)
        self.engine.emit(member.wire, LoggedAck(message.id, message.attempt, log.index))

    def on_progressed(self, message: Progressed, member: Member) -> None:
        """It is in whatever row is written next; one of its own is written now and then."""
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        entry.progress = message.progress
        if self.engine.now - entry.noted_at >= _NOTED:
            entry.noted_at = self.engine.now
            self.queue.touch(entry)

    def on_began(self, message: Began, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        if message.pid:  # known from now on, and stored with whatever is stored next
            entry.located(message.pid)
        self._arm(entry)

    def _arm(self, entry: Entry) -> None:
        """From when on the head does not wait for the worker's word any more."""
        if entry.call.options.timeout is not None:
            when = self.engine.now + entry.call.options.timeout + BACKSTOP
            heapq.heappush(self.backstops, (when, entry.id, entry.attempt))
            if len(self.backstops) > 2 * len(self.queue.running) + _SLACK:  # most have ended before
                first = {b[1:]: b for b in sorted(self.backstops, reverse=True) if b[1] in self.queue.running}
                self.backstops = sorted(first.values())
            self.queue.call_at(when)

    def on_publish(self, message: Publish, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is not None:
            entry.cleared = entry.attempt
            self.engine.emit(member.wire, Cleared(message.id, message.attempt))

    def on_gave_back(self, message: GaveBack, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        unresolved = message.unresolved
        if message.lacking and member.lacks(entry.call.options.function.value):
            unresolved = False  # it is sent again
        if unresolved:
            self.queue.handout.cannot_resolve(entry, member, message.reason)
        if unresolved and not (entry.killing or entry.killers or self.queue.removing):
            stuck = self.queue.handout.nobody_resolves(entry)
            self.queue.requeue(entry, Move.RELEASE, unresolved=True)
            if stuck:
                self.queue.space.unresolvable(self.queue, entry, message.reason)
        else:
            self.queue.give_back(entry, message.reason, Move.RELEASE)
        if member.hello.quiet:
            self.engine.tell(member, Settled(message.id), self.queue)

    def on_returned(self, message: Returned, member: Member) -> None:
        entry = self.queue.running.get(message.id)
        if entry is not None and entry.attempt == message.attempt and entry.member is member:
            self.queue.give_back(entry, message.reason, Move.LOSE if message.lost else Move.RELEASE)

    def on_resumed(self, message: Resumed, member: Member) -> None:
        """Its worker holds it still: tell it what it may have missed."""
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        index = 0 if entry.journal is None else entry.journal.index_of(entry.attempt)
        self.engine.emit(member.wire, FramesAck(entry.id, entry.attempt, index))
        if entry.log is not None:
            index = entry.log.index_of(entry.attempt)
            self.engine.emit(member.wire, LoggedAck(entry.id, entry.attempt, index))
        if entry.killing:
            self.engine.emit(member.wire, Stop(entry.id, entry.attempt, "kill"))
        elif entry.killers:
            self.engine.emit(member.wire, Reclaim(entry.id, entry.attempt))

    def on_revoked(self, message: Revoked, member: Member) -> None:
        """Its worker is removed."""
        entry = self.queue.running.get(message.id)
        if entry is not None and entry.attempt == message.attempt and entry.member is member:
            self.queue.end(entry, Move.KILL, "killed", reason=message.reason)
