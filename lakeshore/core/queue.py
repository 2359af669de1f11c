"""A queue: the owner of its live invocations, of their journals, and of what is claimable."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from .actor import NEVER, Actor, Wake
from .away import EXTENSION, PAIR
from .backlog import Backlog
from .engine import Engine
from .entry import INLINE, Entry, entry_of
from .errors import Conflict
from .handout import Handout
from .ids import text_of
from .inquiries import Inquiries
from .intake import Intake, refusal
from .journal import Journal, Streams
from .kills import Kills
from .messages import Accepted, Ended, Submit, Wait
from .notes import Again, Late, Offer, Settle, Unpinned
from .orders import make_order
from .reports import Reports
from .retry import delay
from .rows import BlobRow, Failure, KeyRow, LiveRow, QueueRow, log_of
from .settings import QueueSettings
from .states import LIVE, Move, QueueState, State, step

if TYPE_CHECKING:
    from .member import Member
    from .space import Space

log = logging.getLogger("lakeshore")

MAX_LOSSES = 3
_LOG_SHARE = 64  # the log of an invocation may keep this part of what its journal may


class Queue(Actor):
    """One backlog with an order and an admission rule.

    Here is what changes the state of its entries, and how they are stored. What it is told comes in
    through its parts: the intake (submits), the handout (workers' wishes), reports (of bodies),
    inquiries and kills. All run in its turns and hold no entries of their own.

    Args:
        space: the namespace it belongs to, whose `live` index it writes its entries into.
        row: how it is stored.
        journal_bytes: what a journal may keep.
    """

    def __init__(
        self, engine: Engine, space: Space, row: QueueRow, settings: QueueSettings, journal_bytes: int
    ) -> None:
        super().__init__(engine)
        self.space, self.id, self.name = space, row.id, row.name
        self.state = QueueState(row.state)
        self.settings = settings
        self.removing = False
        self.journal_bytes = journal_bytes
        self.backlog = self._backlog()
        self.running: dict[bytes, Entry] = {}
        self.members: dict[Member, None] = {}
        self._place = 0
        self._dirty: dict[bytes, Entry] = {}
        self.handlers |= {
            Again: self._on_again,
            Settle: self._on_settle,
            Wake: self._on_wake,
        }
        self.streams = Streams(self)
        self.intake = Intake(self)
        self.handout = Handout(self)
        self.reports = Reports(self)
        self.inquiries = Inquiries(self)
        self.kills = Kills(self)

    # rows

    def flush(self) -> None:
        batch, namespace, queue, depot = self.engine.batch, self.space.name, self.id, self.space.depot
        large: list[bytes] = []
        gone: list[bytes] = []
        for entry in self._dirty.values():
            row = entry.row(namespace, queue)
            if entry.stored:
                batch.update(row)
            else:
                entry.stored = True
                if entry.args_size > INLINE and entry.args is not None:
                    batch.put(BlobRow(namespace, entry.id, queue, "args", entry.args))
                    large.append(entry.id)
                elif entry.args and entry.args[0] != PAIR and (thing := depot.row(entry.id, entry.args)):
                    batch.put(thing)
                batch.insert(row)
            if entry.state not in LIVE:
                gone.append(entry.id)
                result = entry.result
                if result is None:
                    continue
                if len(result) > INLINE:
                    batch.put(BlobRow(namespace, entry.id, queue, "result", result))
                elif result[0] >= EXTENSION and (thing := depot.row(entry.id, result)):
                    batch.put(thing)
        self._dirty.clear()
        self.handout.look_at_retries()
        if gone or large:
            self.engine.emit(self, Settle(tuple(gone), tuple(large)))

    def _backlog(self) -> Backlog:
        engine, settings = self.engine, self.settings
        uniform = engine.uniform if settings.seed is None else engine.seeded(settings.seed)
        return Backlog(partial(make_order, settings.kind, temperature=settings.temperature, uniform=uniform))

    def touch(self, entry: Entry) -> None:
        """An entry has changed: store it with the next commit."""
        if not self._dirty:
            self.engine.touch(self)
        self._dirty[entry.id] = entry

    def _on_settle(self, message: Settle, sender: Any) -> None:
        live, recent = self.space.live, self.space.archive.recent
        for id in message.gone:
            entry = live.pop(id, None)
            if entry is None:
                continue
            if not entry.told:
                recent.add(entry.end(0, entry.result))
            if entry.call.key:
                self.intake.forget_key(entry.call.key, id)
        for id in message.large:
            entry = live.get(id)
            if entry is not None and entry.state is State.QUEUED:
                entry.args = None
        if message.gone and self.removing:
            self.space.emptied(self)

    def close(self) -> None:
        """Let go of every entry."""
        self.backlog = self._backlog()
        self.running.clear()
        self._dirty.clear()

    def restore(self, stored: LiveRow) -> Entry:
        """Take back a live invocation at open; a running one is returned as it was."""
        entry = entry_of(stored.row)
        self._place = max(self._place, entry.place)
        entry.queue = self
        self.space.live[entry.id] = entry
        if entry.call.key:
            self.intake.keys[entry.call.key] = (entry.id, stored.digest)
        if stored.next_seq:
            entry.journal = self.new_journal(entry)
            entry.journal.first_seq, entry.journal.next_seq = stored.first_seq, stored.next_seq
            entry.journal.committed = stored.next_seq
            entry.journal.attempt = stored.last_attempt
            if stored.last_attempt == entry.attempt:
                entry.journal.index = stored.next_seq - stored.row.record.frames
        if stored.log[1]:
            log = entry.log = self.new_log(entry)
            log.first_seq, log.next_seq, log.attempt = stored.log
            log.committed = log.next_seq
            if log.attempt == entry.attempt:
                log.index = log.next_seq - stored.row.record.lines
        if entry.state is State.QUEUED:
            if entry.ready is not None:
                asked = entry.attempts[-1].ended_at if entry.attempts else entry.submitted
                entry.ready_at = self._remaining(entry.ready, asked or entry.submitted)
                entry.retrying = bool(entry.attempts)
            self.enqueue(entry)
        else:
            self.running[entry.id] = entry
        return entry

    def disown(self, entry: Entry) -> None:
        """Its first row inserted nothing: another submit owns this id."""
        error = Conflict(f"{text_of(entry.id)} is taken already: each submit makes its own id")
        if entry.state is State.QUEUED:
            self.backlog.remove(entry)
        elif self.running.pop(entry.id, None) is not None and entry.member is not None:
            entry.member.forgets(entry.call.options.function.value)
            self.engine.tell(entry.member, Late(entry.id, None), self)
        for peer, req in entry.waiters or ():
            peer.pass_on(Wait(req, entry.id), self.space.archive)
        for peer, req in entry.killers or ():
            self.engine.send(peer, refusal(req, error))
        self._dirty.pop(entry.id, None)
        self.intake.forget_key(entry.call.key, entry.id, stored=False)

    def orphaned(self, entry: Entry, reason: str, *, charge: bool) -> None:
        """A running invocation whose worker is gone."""
        self.give_back(entry, reason, Move.LOSE if charge else Move.RELEASE)

    # entering

    def admit(self, message: Submit) -> Entry:
        """Take in what the intake let pass."""
        engine, call = self.engine, message.call
        self._place += 1
        args = call.args or b""
        size = len(args)
        if size > INLINE:
            call = msgspec.structs.replace(call, args=None)
        entry = Entry(message.id, self._place, call, engine.at, message.priority, State.QUEUED, args, size)
        entry.queue = self
        self.space.live[message.id] = entry
        self.touch(entry)
        if message.delay is not None:
            entry.ready = entry.submitted + message.delay
            entry.ready_at = engine.now + message.delay
            entry.claimable_at = entry.ready
        if message.deadline is not None:
            entry.deadline = entry.submitted + message.deadline
        if call.key:
            self.intake.keys[call.key] = (message.id, message.digest)
            engine.batch.put(KeyRow(self.space.name, self.id, call.key, message.id, message.digest))
            self.intake.join(call.key)
        if message.function is not None:
            engine.batch.put(message.function)
        self.enqueue(entry)
        return entry

    def enqueue(self, entry: Entry, apart: str = "") -> None:
        """Put a queued entry into the backlog; with `apart` into the line of that function."""
        now, cutoff = self.engine.now, self.settings.admission.deadline_cutoff_s
        if entry.rare is None and cutoff is None and not apart:
            self.backlog.push(entry)
            if self.handout.hungry:
                self.handout.call()
            return
        expires = NEVER
        if entry.deadline is not None:
            expires = self._remaining(entry.deadline, entry.submitted)
        if cutoff is not None:
            wall = self.engine.at
            waited = max(wall, entry.ready or wall) - entry.claimable_since
            expires = min(expires, max(entry.ready_at, now) + cutoff - min(max(waited, 0.0), cutoff))
        entry.expires_at = expires
        self.backlog.add(entry, now, apart)
        if self.handout.hungry:
            self.handout.call()
        if expires != NEVER or entry.ready_at > now:
            self.call_at(self.backlog.due)

    def _remaining(self, until: float, asked: float) -> float:
        """When a wall-clock time comes, on the engine's clock: no later than what was `asked` for
        then, should the wall clock have jumped back."""
        return self.engine.now + max(0.0, min(until - self.engine.at, until - asked))

    def _on_again(self, message: Again, peer: Any) -> None:
        """Submit a terminal invocation anew; it takes over the key."""
        row, request = message.row, message.request
        record, key = row.record, row.call.key
        call = msgspec.structs.replace(row.call, args=message.args, retry_of=row.id)
        taken = self.space.live.get(request.new_id)
        if taken is not None:
            if taken.call.retry_of == row.id:  # this was sent before
                self.engine.emit(peer, Accepted(request.req, request.new_id))
                return
            text = f"{text_of(request.new_id)} is taken already: each retry makes its own id"
            self.engine.emit(peer, refusal(request.req, Conflict(text)))
            return
        if key and key in self.intake.keys and self.intake.keys[key][0] != row.id:
            holder = text_of(self.intake.keys[key][0])
            error = Conflict(f"key {key!r} is held by {holder}, which lives: wait for it, or kill it first")
            self.engine.emit(peer, refusal(request.req, error))
            return
        submit = Submit(request.req, request.new_id, self.name, call, record.priority, message.digest)
        error = self.intake.refuses(submit)
        if error is not None:
            self.engine.emit(peer, refusal(request.req, error))
            return
        self.admit(submit)
        self.engine.emit(peer, Accepted(request.req, request.new_id))

    def retry_later(self, entry: Entry, message: Ended) -> None:
        """The body raised and is to have another attempt, after a delay."""
        options = entry.call.options
        wait = message.after
        if wait is None:
            wait = delay(
                entry.retries,
                base=options.retry_delay,
                cap=options.retry_cap,
                uniform=self.engine.uniform(),
            )
        entry.retries += 1
        error = message.error
        reason = error.headline if error is not None else None
        entry.close_attempt("failed", reason, self.engine.at)
        entry.error = error
        entry.ready = self.engine.at + wait
        entry.ready_at = self.engine.now + wait
        entry.retrying = True
        self.requeue(entry, Move.RETRY)

    def requeue(self, entry: Entry, move: Move, *, unresolved: bool = False) -> None:
        """A running entry is queued again, in its old place. `unresolved`: its worker can't find its
        function, so it waits apart, and this was no attempt."""
        entry.state = step(entry.state, move)
        del self.running[entry.id]
        entry.member = None
        entry.came_back(self.engine.at)
        self.touch(entry)
        if entry.args_size > INLINE:
            self.engine.emit(self, Settle((), (entry.id,)))  # large arguments go once they are stored
        if unresolved:
            entry.attempts = entry.attempts[:-1]
        self.enqueue(entry, self.handout.function_key(entry) if unresolved else "")
        self._after_running()

    def _after_running(self) -> None:
        if self.settings.admission.max_running is not None and self.backlog.claimable:
            self.handout.call()

    def end(
        self,
        entry: Entry,
        move: Move,
        outcome: str,
        *,
        error: Failure | None = None,
        reason: str | None = None,
        result: bytes | None = None,
        detail: str | None = None,
    ) -> None:
        """Bring a running or queued entry (out of the backlog already) to its terminal state. `detail`:
        why its attempt ended, where neither `reason` nor `error` says just that."""
        entry.state = step(entry.state, move)
        entry.ended = wall = self.engine.at
        entry.member = None
        entry.error, entry.reason, entry.result = error, reason, result
        if self.running.pop(entry.id, None) is not None:
            if detail is None:
                detail = error.headline if reason is None and error is not None else reason
            entry.close_attempt(outcome, detail, wall)
        self.touch(entry)
        if entry.waiters:
            emit = self.engine.emit
            for peer, req in entry.waiters:
                emit(peer, entry.end(req, result))
            entry.waiters, entry.told = None, True
        if entry.rare is not None:
            entry.ready = None
            if entry.killers:
                self.kills.answer(entry)
            if entry.pinned is not None:
                self.engine.tell(entry.pinned, Unpinned(entry.id), self)
                entry.pinned = None
            if entry.log is not None:
                entry.log.finish(None)
        if entry.journal is not None:
            entry.journal.finish(entry.end())
        if self.settings.admission.max_running is not None:
            self._after_running()

    def new_journal(self, entry: Entry) -> Journal:
        """A journal for an entry's frames."""
        return Journal(self, self.space.name, entry.id, self.id, limit=self.journal_bytes)

    def new_log(self, entry: Entry) -> Journal:
        """A journal for what its bodies say."""
        limit = max(1, self.journal_bytes // _LOG_SHARE)
        return Journal(self, self.space.name, log_of(entry.id), self.id, limit=limit)

    def give_back(self, entry: Entry, reason: str, move: Move) -> None:
        """A running entry returns without an end of its body."""
        if self.removing:
            self.end(entry, Move.KILL, "returned", reason="its queue was removed")
            return
        if entry.killing or entry.killers:
            self.end(entry, Move.KILL, "killed", reason="killed")
            return
        if move is Move.LOSE:
            entry.losses += 1
            if entry.losses >= MAX_LOSSES:
                error = Failure(
                    "lakeshore.WorkerLost",
                    f"its worker was lost {entry.losses} times, the last time: {reason}",
                )
                log.warning("%s: failed: %s", _named(entry), error.message)
                self.end(entry, Move.FAIL, "lost", error=error, detail=reason)
                return
            log.warning("%s: queued again, as its worker was lost: %s", _named(entry), reason)
        outcome = "lost" if move is Move.LOSE else "returned"
        entry.close_attempt(outcome, reason, self.engine.at)
        entry.ready_at = 0.0
        self.requeue(entry, move)

    # time

    def expire(self, entry: Entry) -> None:
        """A queued entry, out of the backlog already, is too late."""
        self.end(entry, Move.EXPIRE, "timeout", reason="it was not begun before its deadline")

    def _on_wake(self, message: Wake, sender: Any) -> None:
        now = self.engine.now
        ready, expired = self.backlog.tick(now)
        for entry in ready:
            entry.ready = None
            if entry.pinned is not None:
                self.engine.tell(entry.pinned, Offer(entry.id), self)
        for entry in expired:
            self.expire(entry)
        self.reports.tick()
        if ready:
            self.handout.call()
        self.intake.tick()
        due = min(self.backlog.due, self.reports.due)
        if due != NEVER:
            self.call_at(due)

    def changed(self) -> None:
        """The state or the settings have changed: look at everybody who waits."""
        self.intake.configure()
        self.intake.let_in()
        self.handout.look_at_retries()
        self.handout.call()

    def configure(self, settings: QueueSettings) -> None:
        """Take up changed settings; those of the order only while nothing is queued."""
        self.settings = settings
        if not len(self.backlog):
            self.backlog = self._backlog()
        self.changed()

    # what is known of the queue

    def oldest_wait(self) -> float | None:
        """How long the first of those queued has waited, in seconds."""
        first = self.backlog.oldest()
        return None if first is None else max(0.0, self.engine.wall() - first.submitted)

    def bound(self) -> list[Member]:
        """Live workers that named it; one whose goodbye is still being dealt with is not live."""
        return [m for m in self.members if not (m.hello.follow_all or m.gone)]

    def describe(self) -> dict[str, Any]:
        """The queue's row as plain data."""
        settings = self.settings
        return {
            "id": text_of(self.id),
            "name": self.name,
            "kind": settings.kind,
            "state": self.state.value,
            "members": len(self.bound()),
            "providerRef": settings.provider,
            "elasticity": settings.elasticity,
            "daemonTemplate": settings.template,
            "admission": msgspec.to_builtins(settings.admission),
            "description": settings.description,
            "queued": len(self.backlog),
            "running": len(self.running),
            "temperature": settings.temperature,
            "seed": settings.seed,
            "retention": settings.retention,
            "storage": settings.storage,
        }

    def stats(self) -> dict[str, Any]:
        """Its signals now."""
        slots = sum(member.hello.slots for member in self.members)
        busy = sum(min(len(member.grants), member.hello.slots) for member in self.members)
        return {
            "daemons": len(self.members),
            "utilization": busy / slots if slots else 0.0,
            "pending": len(self.backlog),
            "running": len(self.running),
            "oldestWaitS": self.oldest_wait(),
            "blocked": self.intake.blocked,
            "actions": [],
        }

    def row(self, *, removed: bool = False) -> QueueRow:
        """How it is stored."""
        settings = msgspec.to_builtins(self.settings)
        return QueueRow(self.space.name, self.id, self.name, self.state.value, settings, removed)


def _named(entry: Entry) -> str:
    return f"{text_of(entry.id)} ({entry.call.options.function.name}), attempt {entry.attempt}"
