"""A queue: the owner of its live invocations, of their journals, and of what is claimable."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from .actor import NEVER, Actor, Mail, Wake
from .backlog import Backlog
from .engine import Engine
from .entry import INLINE, Entry, entry_of
from .errors import Conflict
from .ids import text_of
from .intake import Intake, refusal
from .journal import Journal, Stored
from .messages import (
    Accepted,
    Answer,
    Began,
    Credit,
    Described,
    Drop,
    Ended,
    EndedAck,
    Follow,
    Frames,
    FramesAck,
    GaveBack,
    Get,
    Grant,
    Kept,
    Kill,
    Reclaim,
    Retry,
    Stop,
    Submit,
    SubmitMany,
    Wait,
    Why,
)
from .notes import (
    Again,
    CancelSome,
    Join,
    Late,
    Leave,
    Offer,
    Ready,
    Returned,
    Settle,
    Settled,
    Take,
    Took,
    Unpinned,
)
from .orders import make_order
from .ports import Outlet
from .retry import delay
from .rows import BlobRow, Failure, GetBlob, GetFunction, KeyRow, LiveRow, QueueRow
from .settings import QueueSettings
from .states import HANDS_OUT, Move, QueueState, State, step

if TYPE_CHECKING:
    from .member import Member
    from .space import Space

CLEANUP = 5.0  # seconds a cancelled body may go on for
BACKSTOP = CLEANUP + 5.0  # seconds after a timeout until the head stops waiting for the worker
MAX_LOSSES = 3
_STEP = 1000  # what one turn does of a large job
_SKIP = 256  # entries one Take may pass over because the worker can't resolve them

_MOVES = {"succeed": Move.SUCCEED, "fail": Move.FAIL, "kill": Move.KILL, "expire": Move.EXPIRE}


class Queue(Actor):
    """One backlog with an order and an admission rule.

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
        self.intake = Intake(self)
        self.running: dict[bytes, Entry] = {}
        self.members: dict[Member, None] = {}
        self._hungry: dict[Member, None] = {}
        self._unable: dict[Member, None] = {}  # hungry too, but can't resolve what is claimable
        self._place = 0
        self._dirty: dict[bytes, Entry] = {}
        self._streams: dict[tuple[int, int], Journal] = {}
        self._backstops: list[tuple[float, bytes, int]] = []
        self._unresolved: dict[str, set[Member]] = {}
        self._watched = False  # a worker that ends when nothing is left waits for a retry delay
        self._ends: deque[float] = deque(maxlen=32)  # when the newest bodies ended
        self.handlers |= {
            Submit: self._on_submit,
            SubmitMany: self._on_submit_many,
            Again: self._on_again,
            Take: self._on_take,
            Ended: self._on_ended,
            Frames: self._on_frames,
            Began: self._on_began,
            Kept: self._on_kept,
            GaveBack: self._on_gave_back,
            Returned: self._on_returned,
            Wait: self._on_wait,
            Get: self._on_get,
            Why: self._on_why,
            Kill: self._on_kill,
            Retry: self._on_retry,
            Follow: self._on_follow,
            Credit: self._on_credit,
            Drop: self._on_drop,
            Stored: self._on_stored,
            Settle: self._on_settle,
            CancelSome: self._on_cancel_some,
            Join: self._on_join,
            Leave: self._on_leave,
            Wake: self._on_wake,
        }

    # rows

    def flush(self) -> None:
        batch, namespace = self.engine.batch, self.space.name
        large: list[bytes] = []
        gone: list[bytes] = []
        for entry in self._dirty.values():
            if entry.stored:
                batch.update(entry.row(namespace, self.id))
            else:
                entry.stored = True
                if entry.args_size > INLINE and entry.args is not None:
                    batch.put(BlobRow(namespace, entry.id, self.id, "args", entry.args))
                    large.append(entry.id)
                batch.insert(entry.row(namespace, self.id))
            if entry.state.terminal:
                gone.append(entry.id)
                if entry.result is not None and len(entry.result) > INLINE:
                    batch.put(BlobRow(namespace, entry.id, self.id, "result", entry.result))
        self._dirty.clear()
        self._look_at_retries()
        if gone or large:
            self.engine.emit(self, Settle(tuple(gone), tuple(large)))

    def _backlog(self) -> Backlog:
        engine, settings = self.engine, self.settings
        uniform = engine.uniform if settings.seed is None else engine.seeded(settings.seed)
        return Backlog(make_order(settings.kind, temperature=settings.temperature, uniform=uniform))

    def _touch(self, entry: Entry) -> None:
        self._dirty[entry.id] = entry
        self.engine.touch(self)

    def _on_settle(self, message: Settle, sender: Any) -> None:
        live, keys = self.space.live, self.intake.keys
        for id in message.gone:
            entry = live.pop(id, None)
            key = entry.call.key if entry is not None else ""
            if key and keys.get(key, (b"",))[0] == id:
                del keys[key]
        for id in message.large:
            entry = live.get(id)
            if entry is not None and entry.state is State.QUEUED:
                entry.args = None
        if message.gone and self.removing:
            self.space.emptied(self)

    def restore(self, stored: LiveRow) -> Entry:
        """Take back a live invocation at open; a running one is returned as it was."""
        entry = entry_of(stored.row)
        self._place = max(self._place, entry.place)
        entry.queue = self
        self.space.live[entry.id] = entry
        if entry.call.key:
            self.intake.keys[entry.call.key] = (entry.id, stored.digest)
        if stored.next_seq:
            entry.journal = self._new_journal(entry)
            entry.journal.first_seq, entry.journal.next_seq = stored.first_seq, stored.next_seq
            entry.journal.committed = entry.journal.base = stored.next_seq
            entry.journal.attempt = stored.last_attempt
        if entry.state is State.QUEUED:
            if entry.ready is not None:
                asked = entry.attempts[-1].ended_at if entry.attempts else entry.submitted
                entry.ready_at = self._remaining(entry.ready, asked or entry.submitted)
                entry.retrying = bool(entry.attempts)
            self._queue(entry)
        else:
            self.running[entry.id] = entry
        return entry

    def disown(self, entry: Entry) -> None:
        """Its first row inserted nothing: another submit owns this id."""
        error = Conflict(f"{text_of(entry.id)} is taken already: each submit makes its own id")
        if entry.state is State.QUEUED:
            self.backlog.remove(entry)
        elif self.running.pop(entry.id, None) is not None and entry.member is not None:
            self.engine.tell(entry.member, Late(entry.id, None), self)
        for peer, req in (*(entry.waiters or ()), *(entry.killers or ())):
            self.engine.send(peer, refusal(req, error))
        self._dirty.pop(entry.id, None)
        key = entry.call.key
        if key and self.intake.keys.get(key, (b"",))[0] == entry.id:
            del self.intake.keys[key]

    def orphaned(self, entry: Entry, reason: str, *, charge: bool) -> None:
        """A running invocation whose worker is gone."""
        self._give_back(entry, reason, Move.LOSE if charge else Move.RELEASE)

    # entering

    def _on_submit(self, message: Submit, peer: Any) -> None:
        self.intake.submit(message, peer)

    def _on_submit_many(self, message: SubmitMany, peer: Any) -> None:
        self.intake.submit_many(message, peer)

    def admit(self, message: Submit) -> Entry:
        """Take in what the intake let pass."""
        engine, call = self.engine, message.call
        self._place += 1
        args = call.args or b""
        if len(args) > INLINE:
            call = msgspec.structs.replace(call, args=None)
        entry = Entry(
            message.id, self._place, call, engine.wall(), message.priority, State.QUEUED, args, len(args)
        )
        if message.delay is not None:
            entry.ready = entry.submitted + message.delay
            entry.ready_at = engine.now + message.delay
        if message.deadline is not None:
            entry.deadline = entry.submitted + message.deadline
        if call.key:
            self.intake.keys[call.key] = (message.id, message.digest)
            engine.batch.put(KeyRow(self.space.name, self.id, call.key, message.id, message.digest))
        if message.function is not None:
            engine.batch.put(message.function)
        entry.queue = self
        self.space.live[message.id] = entry
        self._dirty[message.id] = entry
        engine.touch(self)
        self._queue(entry)
        return entry

    def _queue(self, entry: Entry) -> None:
        now = self.engine.now
        expires = NEVER
        if entry.deadline is not None:
            expires = self._remaining(entry.deadline, entry.submitted)
        cutoff = self.settings.admission.deadline_cutoff_s
        if cutoff is not None:
            expires = min(expires, max(entry.ready_at, now) + cutoff)
        entry.expires_at = expires
        self.backlog.add(entry, now)
        if self._unable:
            self._wake_able(entry)
        if self._hungry:
            self._call()
        if expires != NEVER or entry.ready_at > now:
            self.call_at(self.backlog.due)

    def _remaining(self, until: float, asked: float) -> float:
        """When a wall-clock time comes, on the engine's clock: no later than what was `asked` for
        then, should the wall clock have jumped back."""
        return self.engine.now + max(0.0, min(until - self.engine.wall(), until - asked))

    def _on_again(self, message: Again, peer: Any) -> None:
        """Submit a terminal invocation anew; it takes over the key."""
        row, request = message.row, message.request
        record, key = row.record, row.call.key
        call = msgspec.structs.replace(row.call, args=message.args, retry_of=row.id)
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

    # handing out

    def _call(self) -> None:
        """Tell as many hungry workers as there is work for."""
        if self.state not in HANDS_OUT:
            return
        count, hungry, limit = self.backlog.claimable, self._hungry, self.settings.admission.max_running
        if limit is not None:
            count = min(count, limit - len(self.running))
        while hungry and count > 0:
            member = next(iter(hungry))
            del hungry[member]
            self.engine.tell(member, Ready(), self)
            count -= max(1, member.credit)

    def _wake_able(self, entry: Entry) -> None:
        """Something new is claimable: who may be able to run it is to be called again."""
        for member in [member for member in self._unable if self._resolvable(entry, member)]:
            del self._unable[member]
            self._hungry[member] = None

    def _on_take(self, message: Take, member: Member) -> None:
        if message.n == 0:  # it has no room, or has left: the next one, then
            self._call()
            return
        if member not in self.members:
            self.engine.tell(member, Took((), message.n, only=message.only), self)
            return
        if message.only is not None:
            self._take_only(message.only, member)
            return
        grants: list[Grant] = []
        pending: list[tuple[bytes, int]] = []
        aside: list[Entry] = []
        limit = self.settings.admission.max_running
        room = message.n if limit is None else min(message.n, limit - len(self.running))
        if self.state in HANDS_OUT:
            while len(grants) + len(pending) < room and len(aside) < _SKIP:
                entry = self.backlog.pop()
                if entry is None:
                    break
                if self._unresolved and not self._resolvable(entry, member):
                    aside.append(entry)
                    continue
                self._claim(entry, member, grants, pending)
        for entry in aside:
            if self._nobody_resolves(entry):
                self.backlog.set_aside(entry)
            else:
                self.backlog.add(entry, self.engine.now)
        claimed = len(grants) + len(pending)
        if claimed < message.n:
            (self._unable if aside else self._hungry)[member] = None
        if self._hungry and self.backlog.claimable:
            self._call()  # it took less than was thought: others may be called for the rest
        retrying = self.backlog.retrying > 0 and self.state in HANDS_OUT
        self._watched |= retrying and member.hello.quiet
        self.engine.tell(member, Took(tuple(grants), message.n, tuple(pending), retrying), self)
        if claimed and self.intake.blocked:
            self.intake.let_in()

    def _take_only(self, id: bytes, member: Member) -> None:
        entry = self.space.live.get(id)
        grants: list[Grant] = []
        pending: list[tuple[bytes, int]] = []
        claimable = entry is not None and entry.state is State.QUEUED and self.backlog.is_claimable(entry)
        if entry is not None and claimable and self.state in HANDS_OUT:
            self.backlog.remove(entry)
            self._claim(entry, member, grants, pending)
        self.engine.tell(member, Took(tuple(grants), 1, tuple(pending), only=id), self)
        if claimable and self.intake.blocked:
            self.intake.let_in()

    def _look_at_retries(self) -> None:
        """Have workers that wait for a retry delay ask again where none is left to wait for."""
        if self._watched and not (self.backlog.retrying and self.state in HANDS_OUT):
            self._watched = False
            for hungry in (self._hungry, self._unable):
                for member in [member for member in hungry if member.hello.quiet]:
                    del hungry[member]
                    self.engine.tell(member, Ready(), self)

    def _claim(
        self, entry: Entry, member: Member, grants: list[Grant], pending: list[tuple[bytes, int]]
    ) -> None:
        entry.state = step(entry.state, Move.CLAIM)
        entry.open_attempt(member.hello.worker, member.hello.pid, self.engine.wall())
        entry.member = member
        entry.ready = None
        self.running[entry.id] = entry
        self._touch(entry)
        if entry.pinned is not None and entry.pinned is not member:
            self.engine.tell(entry.pinned, Unpinned(entry.id), self)
        entry.pinned = None
        function = entry.call.options.function
        foreign = bool(function.value)  # even to its own process: the plane may have been opened anew there
        if entry.args is not None and not (foreign and function.value not in member.known):
            grants.append(self._grant(entry, entry.args, None))
        else:
            pending.append((entry.id, entry.attempt))
            self._fetch(entry, member, foreign)

    def _grant(self, entry: Entry, args: bytes, function: bytes | None) -> Grant:
        return Grant(entry.id, entry.attempt, self.name, self.space.name, entry.call, args, function)

    def _fetch(self, entry: Entry, member: Member, foreign: bool) -> None:
        """Read what a claimed entry needs from the store, then send its grant."""
        attempt, hash = entry.attempt, entry.call.options.function.value

        def with_args(args: bytes | BaseException | None) -> None:
            if args is None or isinstance(args, BaseException):
                unreadable(args)
            elif foreign and hash not in member.known:
                self.engine.read(self, GetFunction(hash), lambda body: send(args, body))
            else:
                send(args, None)

        def send(args: bytes, body: bytes | BaseException | None) -> None:
            if isinstance(body, BaseException):
                unreadable(body)
            elif entry.attempt == attempt and entry.member is member:
                if body is not None:
                    member.known.add(hash)
                entry.args = args
                self.engine.tell(member, Late(entry.id, self._grant(entry, args, body)), self)

        def unreadable(error: BaseException | None) -> None:
            if entry.attempt != attempt or entry.member is not member:
                return
            self.engine.tell(member, Late(entry.id, None), self)
            why = "they are not in the store" if error is None else str(error)
            self._end(
                entry,
                Move.FAIL,
                "failed",
                error=Failure("lakeshore.StoreFailed", f"the arguments can't be read: {why}"),
            )

        if entry.args is not None:
            with_args(entry.args)
        else:
            self.engine.read(self, GetBlob(self.space.name, entry.id, "args"), with_args)

    # functions no worker can find

    def _function_key(self, entry: Entry) -> str:
        function = entry.call.options.function
        return function.local or function.ref or function.value.hex()

    def _resolvable(self, entry: Entry, member: Member) -> bool:
        return member not in self._unresolved.get(self._function_key(entry), ())

    def _nobody_resolves(self, entry: Entry) -> bool:
        refusing = self._unresolved.get(self._function_key(entry), set())
        return all(member in refusing for member in self.members)

    def _on_join(self, message: Join, sender: Any) -> None:
        if self not in message.member.queues or message.member.gone:
            return  # it left before it was here
        self.members[message.member] = None
        if self.backlog.unstick():
            self.engine.tell(self, message)  # some are left: go on in another turn
        self._call()

    def _on_leave(self, message: Leave, sender: Any) -> None:
        member = message.member
        self.members.pop(member, None)
        self._hungry.pop(member, None)
        self._unable.pop(member, None)
        for key in [key for key, members in self._unresolved.items() if member in members]:
            self._unresolved[key].discard(member)
            if not self._unresolved[key]:
                del self._unresolved[key]

    # reports of workers

    def _current(self, id: bytes, attempt: int, member: Member) -> Entry | None:
        entry = self.running.get(id)
        if entry is None or entry.attempt != attempt or entry.member is not member:
            member.stale += 1
            self.engine.emit(member.wire, Stop(id, attempt, "stale"))
            return None
        return entry

    def _on_ended(self, message: Ended, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            if member.hello.quiet:
                self.engine.tell(member, Settled(message.id), self)
            return
        self._ends.append(self.engine.now)
        move, options = message.move, entry.call.options
        retry = move == "fail" and message.retryable and entry.retries < options.retries
        if retry and self.removing:
            self._end(entry, Move.KILL, "failed", error=message.error, reason="its queue was removed")
        elif retry and entry.killers and not entry.killing:  # it would be queued, and is to be killed
            self._end(entry, Move.KILL, "failed", error=message.error, reason="killed")
        elif retry and not entry.killing:
            self._retry(entry, message)
        else:
            state = step(entry.state, _MOVES[move])
            self._end(
                entry,
                _MOVES[move],
                state,
                error=message.error,
                reason=message.reason,
                result=message.result,
            )
        self.engine.emit(member.wire, EndedAck(message.id, message.attempt, entry.state))
        if member.hello.quiet:
            following = entry.state is State.QUEUED
            self.engine.tell(member, Settled(message.id, following), self)
            if following and member.hello.limit is not None:
                entry.pinned = member
                if self.backlog.is_claimable(entry):
                    self.engine.tell(member, Offer(entry.id), self)

    def _retry(self, entry: Entry, message: Ended) -> None:
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
        entry.close_attempt("failed", reason, self.engine.wall())
        entry.error = error
        entry.ready = self.engine.wall() + wait
        entry.ready_at = self.engine.now + wait
        entry.retrying = True
        self._requeue(entry, Move.RETRY)

    def _requeue(self, entry: Entry, move: Move, *, stuck: bool = False) -> None:
        entry.state = step(entry.state, move)
        del self.running[entry.id]
        entry.member = None
        self._touch(entry)
        if entry.args_size > INLINE:
            self.engine.emit(self, Settle((), (entry.id,)))  # large arguments go once they are stored
        if stuck:
            self.backlog.set_aside(entry)
        else:
            self._queue(entry)
        self._after_running()

    def _after_running(self) -> None:
        if self.settings.admission.max_running is not None and self.backlog.claimable:
            self._call()

    def _end(
        self,
        entry: Entry,
        move: Move,
        outcome: str,
        *,
        error: Failure | None = None,
        reason: str | None = None,
        result: bytes | None = None,
    ) -> None:
        """Bring a running or queued entry (out of the backlog already) to its terminal state."""
        entry.state = step(entry.state, move)
        wall = self.engine.wall()
        if self.running.pop(entry.id, None) is not None:
            detail = error.headline if reason is None and error is not None else reason
            entry.close_attempt(outcome, detail, wall)
        entry.member = None
        entry.ended, entry.ready = wall, None
        entry.error = error if entry.state is not State.SUCCEEDED else None
        entry.reason, entry.result = reason, result
        self._touch(entry)
        emit = self.engine.emit
        if entry.waiters:
            for peer, req in entry.waiters:
                emit(peer, entry.outcome(req))
            entry.waiters = None
        if entry.killers:
            self._answer_killers(entry)
        if entry.pinned is not None:
            self.engine.tell(entry.pinned, Unpinned(entry.id), self)
            entry.pinned = None
        if entry.journal is not None:
            entry.journal.finish(entry.end())
        self._after_running()

    def _on_frames(self, message: Frames, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        journal = entry.journal
        if journal is None:
            journal = entry.journal = self._new_journal(entry)
        if not journal.append(message.attempt, message.index, message.count, message.data):
            member.stale += 1  # a repeat, or a gap: the answer says what comes next
        self.engine.emit(member.wire, FramesAck(message.id, message.attempt, journal.index))

    def _new_journal(self, entry: Entry) -> Journal:
        return Journal(self, self.space.name, entry.id, self.id, limit=self.journal_bytes)

    def _on_began(self, message: Began, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is not None and entry.call.options.timeout is not None:
            when = self.engine.now + entry.call.options.timeout + BACKSTOP
            heapq.heappush(self._backstops, (when, entry.id, entry.attempt))
            if len(self._backstops) > 2 * len(self.running) + _STEP:  # most have ended before
                self._backstops = sorted(b for b in self._backstops if b[1] in self.running)
            self.call_at(when)

    def _on_gave_back(self, message: GaveBack, member: Member) -> None:
        entry = self._current(message.id, message.attempt, member)
        if entry is None:
            return
        if message.unresolved:
            self._unresolved.setdefault(self._function_key(entry), set()).add(member)
        if message.unresolved and not (entry.killing or entry.killers or self.removing):
            entry.attempts = entry.attempts[:-1]  # a worker that can't is not an attempt
            stuck = self._nobody_resolves(entry)
            self._requeue(entry, Move.RELEASE, stuck=stuck)
            if stuck:
                self.space.unresolvable(self, entry, message.reason)
        else:
            self._give_back(entry, message.reason, Move.RELEASE)
        if member.hello.quiet:
            self.engine.tell(member, Settled(message.id), self)

    def _on_returned(self, message: Returned, member: Member) -> None:
        entry = self.running.get(message.id)
        if entry is not None and entry.attempt == message.attempt and entry.member is member:
            self._give_back(entry, message.reason, Move.LOSE if message.lost else Move.RELEASE)

    def _give_back(self, entry: Entry, reason: str, move: Move) -> None:
        """A running entry returns without an end of its body."""
        if self.removing:
            self._end(entry, Move.KILL, "returned", reason="its queue was removed")
            return
        if entry.killing or entry.killers:
            self._end(entry, Move.KILL, "killed", reason="killed")
            return
        if move is Move.LOSE:
            entry.losses += 1
            if entry.losses >= MAX_LOSSES:
                error = Failure(
                    "lakeshore.WorkerLost",
                    f"its worker was lost {entry.losses} times, the last time because {reason}",
                )
                self._end(entry, Move.FAIL, "lost", error=error)
                return
        outcome = "lost" if move is Move.LOSE else "returned"
        entry.close_attempt(outcome, reason, self.engine.wall())
        entry.ready_at = 0.0
        self._requeue(entry, move)

    # questions about one invocation

    def _live(self, message: Any, peer: Any) -> Entry | None:
        entry = self.space.live.get(message.id)
        if entry is None:  # it ended and left memory while the question was in the mail
            peer.pass_on(message, self.space.archive)
        return entry

    def _on_wait(self, message: Wait, peer: Any) -> None:
        entry = self._live(message, peer)
        if entry is None:
            return
        if entry.state.terminal:
            self.engine.emit(peer, entry.outcome(message.req))
        elif entry.waiters is None:
            entry.waiters = [(peer, message.req)]
        else:
            entry.waiters.append((peer, message.req))

    def _on_get(self, message: Get, peer: Any) -> None:
        entry = self._live(message, peer)
        if entry is None:
            return
        row = entry.row(self.space.name, self.id)
        self.engine.emit(peer, Described(message.req, ((row, self.name),)))

    def _on_why(self, message: Why, peer: Any) -> None:
        entry = self._live(message, peer)
        if entry is None:
            return
        self.engine.emit(peer, Answer(message.req, self._reasons(entry)))

    def _reasons(self, entry: Entry) -> list[str]:
        if entry.state is State.RUNNING:
            return [f"attempt {entry.attempt} is running"]
        if entry.state.terminal:
            return [f"it is {entry.state}"]
        reasons: list[str] = []
        if entry.error is not None:
            reasons.append(f"attempt {entry.attempt} failed: {entry.error.headline}")
        if self.state not in HANDS_OUT:
            reasons.append(f"queue {self.name!r} is {self.state} and hands out nothing")
        if entry.ready_at > self.engine.now:
            what = "its retry delay" if entry.retrying else "its delay"
            reasons.append(f"{what} ends in {entry.ready_at - self.engine.now:.1f} s")
        elif self.backlog.is_stuck(entry):
            name = entry.call.options.function.name
            reasons.append(f"no live worker can find the function {name}: start one that can import it")
        limit = self.settings.admission.max_running
        if limit is not None and len(self.running) >= limit:
            reasons.append(f"{len(self.running)} of queue {self.name!r} are running, max_running is {limit}")
        if not self.members:
            reasons.append(f"no worker serves queue {self.name!r}: start one with run_worker")
        elif not reasons:
            reasons.append(f"all {len(self.members)} workers are busy, {len(self.backlog)} are queued")
        return reasons

    def _on_retry(self, message: Retry, peer: Any) -> None:
        entry = self._live(message, peer)
        if entry is None:
            return
        if entry.state.terminal:  # its row is on the way to the disk: ask again after that
            self.engine.emit(Mail(self.space.archive, peer), message)
            return
        error = Conflict(
            f"{text_of(message.id)} is {entry.state}: only what has ended can be retried; "
            "kill it first, or wait"
        )
        self.engine.emit(peer, refusal(message.req, error))

    def _on_follow(self, message: Follow, peer: Any) -> None:
        entry = self._live(message, peer)
        if entry is None:
            return
        journal = entry.journal
        if journal is None:
            journal = entry.journal = self._new_journal(entry)
            if entry.state.terminal:
                journal.finish(entry.end())
        self._streams[id(peer), message.req] = journal
        journal.follow(peer, message.req, message.since, message.credit)

    def _on_credit(self, message: Credit, peer: Any) -> None:
        journal = self._streams.get((id(peer), message.req))
        if journal is not None:
            journal.credit(peer, message.req, message.frames)

    def _on_stored(self, message: Stored, sender: Any) -> None:
        message.journal.stored(message.row)

    def _on_drop(self, message: Drop, peer: Any) -> None:
        journal = self._streams.pop((id(peer), message.req), None)
        if journal is not None:
            journal.drop(peer, message.req)
            return
        entry = self.space.live.get(message.id) if message.id else None
        if entry is not None and entry.waiters:
            entry.waiters = [w for w in entry.waiters if w != (peer, message.req)] or None
            return
        self.intake.drop(message, peer)

    # killing

    def _on_kill(self, message: Kill, peer: Any) -> None:
        entry = self._live(message, peer)
        if entry is None:
            return
        if entry.state is State.QUEUED:
            self.backlog.remove(entry)
            self._end(entry, Move.KILL, "killed", reason="killed")
            self.engine.emit(peer, Answer(message.req))
            self.intake.let_in()
        elif entry.state is State.RUNNING:
            self._kill_running(entry, message, peer)
        elif entry.state is State.KILLED:
            self.engine.emit(peer, Answer(message.req))
        else:
            self.engine.emit(peer, refusal(message.req, already_ended(message.id, entry.state)))

    def _kill_running(self, entry: Entry, message: Kill, peer: Outlet) -> None:
        entry.killers = [*(entry.killers or ()), (peer, message.req)]
        member = entry.member
        if member is None:
            return
        if not message.running:
            self.engine.tell(member, Reclaim(entry.id, entry.attempt), self)
            return
        if not entry.killing:
            entry.killing = True
            self._touch(entry)
        self.engine.tell(member, Stop(entry.id, entry.attempt, "kill"), self)

    def _on_kept(self, message: Kept, member: Member) -> None:
        entry = self.running.get(message.id)
        if entry is not None and entry.attempt == message.attempt and not entry.killing:
            self._answer_killers(entry)

    def _answer_killers(self, entry: Entry) -> None:
        killers, entry.killers = entry.killers or (), None
        for peer, req in killers:
            if entry.state is State.KILLED:
                self.engine.emit(peer, Answer(req))
            elif entry.state.terminal:
                self.engine.emit(peer, refusal(req, already_ended(entry.id, entry.state)))
            else:
                error = Conflict(
                    f"job {text_of(entry.id)} is {entry.state}; a running body is stopped only with "
                    "running=True (--running), or by ending its worker"
                )
                self.engine.emit(peer, refusal(req, error))

    def cancel_all(self, then: Callable[[int], None], reason: str) -> None:
        """Kill everything queued, a step at a time; `then` is told how many."""
        self.engine.tell(self, CancelSome(then, reason))

    def _on_cancel_some(self, message: CancelSome, sender: Any) -> None:
        some = [entry for entry, _ in zip(self.backlog, range(_STEP), strict=False)]
        for entry in some:
            self.backlog.remove(entry)
            self._end(entry, Move.KILL, "killed", reason=message.reason)
        count = message.count + len(some)
        if len(self.backlog):
            self.engine.tell(self, CancelSome(message.then, message.reason, count))
        else:
            message.then(count)
            self.intake.let_in()

    # time

    def _on_wake(self, message: Wake, sender: Any) -> None:
        now = self.engine.now
        ready, expired = self.backlog.tick(now)
        for entry in ready:
            entry.ready = None
            if self._unable:
                self._wake_able(entry)
            if entry.pinned is not None:
                self.engine.tell(entry.pinned, Offer(entry.id), self)
        for entry in expired:
            self._end(entry, Move.EXPIRE, "timeout", reason="it was not begun before its deadline")
        while self._backstops and self._backstops[0][0] <= now:
            _, id, attempt = heapq.heappop(self._backstops)
            entry = self.running.get(id)
            if entry is not None and entry.attempt == attempt:
                reason = "it ran longer than its timeout and its worker did not report its end"
                self._end(entry, Move.EXPIRE, "timeout", reason=reason)
        if ready:
            self._call()
        self.intake.tick()
        due = min(self.backlog.due, self._backstops[0][0] if self._backstops else NEVER)
        if due != NEVER:
            self.call_at(due)

    def changed(self) -> None:
        """The state or the settings have changed: look at everybody who waits."""
        self.intake.configure()
        self.intake.let_in()
        self._look_at_retries()
        self._call()

    def configure(self, settings: QueueSettings) -> None:
        """Take up changed settings; those of the order only while nothing is queued."""
        self.settings = settings
        if not len(self.backlog):
            self.backlog = self._backlog()
        self.changed()

    # what is known of the queue

    def seconds_per_job(self) -> float | None:
        """How often a place came free lately, in seconds, or None where nothing is known."""
        if len(self._ends) < 2:
            return None
        return max((self._ends[-1] - self._ends[0]) / (len(self._ends) - 1), 0.001)

    def oldest_wait(self) -> float | None:
        """How long the first of those queued has waited, in seconds."""
        first = next(iter(self.backlog), None)
        return None if first is None else max(0.0, self.engine.wall() - first.submitted)

    def describe(self) -> dict[str, Any]:
        """The queue's row as plain data."""
        settings = self.settings
        bound = [member for member in self.members if not member.hello.follow_all]
        return {
            "id": text_of(self.id),
            "name": self.name,
            "kind": settings.kind,
            "state": self.state.value,
            "members": len(bound),
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


def already_ended(id: bytes, state: str) -> Conflict:
    """A kill came too late."""
    return Conflict(f"job {text_of(id)} is {state} already: nothing is left to kill")
