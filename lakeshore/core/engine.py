"""Runs every actor that has mail and lets nothing leave before its commit. No loop, no clock of its own.

Whoever drives it calls `pump` after `wake` was called, and again no later than `due`. One commit is
in flight while the next batch gathers: an effect waits for the newest batch that was open when it
was emitted, so it can reveal only what is stored.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from .actor import NEVER, WAKE, Actor, Read
from .errors import StoreFailed, StoreLocked
from .ids import text_of
from .messages import Accepted, Refusal
from .ports import Outlet, Store
from .rows import Batch, Committed, Query

log = logging.getLogger("lakeshore")

_RETRY_FIRST, _RETRY_LAST = 0.05, 5.0  # seconds between tries of a failing commit


class Engine:
    """The dispatcher of one plane.

    Args:
        store: where rows go.
        monotonic, wall: clocks, in seconds.
        uniform: a random float in [0, 1).
        seeded: such a function from a seed.
        new_id: makes 16-byte ids.
        wake: called when there is something to do and nobody is doing it.
        failed: called once, with the bug that ended the plane.
        superseded: called once, where another process has taken the store over.

    Attributes:
        enter, leave: called around what a commit lets go, for a driver that gathers what leaves.
    """

    def __init__(
        self,
        store: Store,
        *,
        monotonic: Callable[[], float],
        wall: Callable[[], float],
        uniform: Callable[[], float],
        new_id: Callable[[], bytes],
        seeded: Callable[[int], Callable[[], float]],
        wake: Callable[[], None] = lambda: None,
        failed: Callable[[BaseException], None] = lambda error: None,
        superseded: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = store
        self.monotonic, self.wall, self.uniform, self.new_id = monotonic, wall, uniform, new_id
        self.seeded, self.wake, self.failed, self._superseded = seeded, wake, failed, superseded
        self.now, self.at = monotonic(), wall()  # of this turn
        self.failure: BaseException | None = None
        self.ended = False  # another process has the store now: nothing leaves here any more
        self.store_error: BaseException | None = None
        self._mail: deque[tuple[Actor, Any, Any]] = deque()
        self._timers: list[tuple[float, int, Actor]] = []
        self._timer_count = 0
        self._timers_worth = 64
        self._batch = Batch()
        self._touched: dict[Actor, None] = {}
        self._held: list[tuple[Outlet, Any]] = []
        self._flying: Batch | None = None
        self._flying_held: list[tuple[Outlet, Any]] = []
        self._outgoing: list[tuple[Outlet, Any]] = []
        self._effects = self._outgoing  # where what is emitted now waits
        self._retry_at = NEVER
        self._retry_wait = _RETRY_FIRST
        self._awake = False
        self.enter: Callable[[], None] = _nothing
        self.leave: Callable[[], None] = _nothing
        # takes objects of storages that nothing refers to any more, as place and name: they may be deleted
        self.unwanted: Callable[[tuple[tuple[str, str], ...]], None] = lambda objects: None
        self.watched = False  # the driver waits for `idle`: wake it after each commit

    # what actors call

    def tell(self, actor: Actor, message: Any, sender: Any = None) -> None:
        """Put a message into an actor's mail."""
        self._mail.append((actor, message, sender))
        if not self._awake:
            self._awake = True
            self.wake()

    def touch(self, actor: Actor) -> None:
        """Have `actor.flush` called before the next commit; effects from now on wait for it."""
        self._touched[actor] = None
        self._effects = self._held

    @property
    def batch(self) -> Batch:
        """The rows gathering for the next commit, to put some in."""
        self._effects = self._held
        return self._batch

    def unstored_function(self, hash: bytes) -> bytes | None:
        """A pickled body that is on its way to the store: no read finds it yet."""
        for batch in (self._batch, self._flying):
            if batch is not None and hash in batch.functions:
                return batch.functions[hash].data
        return None

    def emit(self, outlet: Outlet, message: Any) -> None:
        """Deliver `message` once everything that has changed so far is stored."""
        self._effects.append((outlet, message))

    def send(self, outlet: Outlet, message: Any) -> None:
        """Deliver `message` with this turn: for what is known to be stored, and for refusals."""
        self._outgoing.append((outlet, message))

    def read(self, actor: Actor, query: Query, then: Callable[[Any], None]) -> None:
        """Ask the store; `then(answer)` runs as a turn of `actor`. An exception is an answer too."""

        def done(answer: Any) -> None:
            self.tell(actor, Read(then, answer))

        self.store.read(query, done)

    def timer(self, actor: Actor, when: float) -> None:
        """Send `Wake` to `actor` at `when`. Called by `Actor.call_at`."""
        self._timer_count += 1
        heapq.heappush(self._timers, (when, self._timer_count, actor))
        if len(self._timers) > self._timers_worth:  # most are of earlier wishes: keep what is due
            due = {timer[2]: timer for timer in self._timers if timer[2].due == timer[0]}
            self._timers = sorted(due.values())
            self._timers_worth = 2 * len(due) + 64

    def refusing(self) -> str:
        """Why new submits are refused just now, or empty."""
        if self.store_error is not None:
            return f"the store can't be written ({self.store_error}); what was accepted is kept and retried"
        return ""

    # what the driver calls

    @property
    def due(self) -> float:
        """When `pump` must run again at the latest, in monotonic seconds."""
        return min(self._timers[0][0] if self._timers else NEVER, self._retry_at)

    @property
    def idle(self) -> bool:
        """Whether nothing is in the mail, in flight, or waiting to be stored."""
        return not (self._mail or self._flying or self._touched or self._batch.size)

    def pump(self, limit: int = 1024) -> bool:
        """Handle mail, at most `limit` messages; return whether some is left."""
        self._awake = True
        try:
            self._pump(limit)
        except BaseException as error:
            self.fail(error)
            raise
        self._awake = bool(self._mail)
        return self._awake

    def fail(self, error: BaseException) -> None:
        """End the plane on a bug: nothing that is not stored leaves any more."""
        if self.failure is None:
            self.failure = error
            self.close()
            self.failed(error)

    def close(self) -> None:
        """Let go of everything that is on its way."""
        for waiting in (self._mail, self._timers, self._held, self._flying_held, self._outgoing):
            waiting.clear()
        self._retry_at = NEVER

    def _pump(self, limit: int) -> None:
        if self.failure is not None or self.ended:
            return
        self.now, self.at = self.monotonic(), self.wall()
        if (self._timers and self._timers[0][0] <= self.now) or self._retry_at <= self.now:
            self._ring()
        mail, take = self._mail, self._mail.popleft
        message = sender = None
        while True:
            try:
                while mail:
                    actor, message, sender = take()
                    actor.handlers[type(message)](message, sender)
                    limit -= 1
                    if not limit:
                        break
            except BaseException as error:
                self._blame(message, sender, error)
                raise
            if self._outgoing:
                self._release(self._outgoing)
            if self._flying is None and self._effects is self._held:
                self._commit()
            if not (mail and limit) or self.failure is not None:  # a store that answers at once has left some
                return

    def _blame(self, message: Any, sender: Any, error: BaseException) -> None:
        """Tell the one whose request met a bug."""
        req = getattr(message, "req", None)
        if req is not None and hasattr(sender, "deliver"):
            text = f"a bug in Lakeshore met this request, {type(error).__name__}: {error}; don't resend it"
            sender.deliver(Refusal(req, "InternalError", text))

    def _ring(self) -> None:
        timers, now = self._timers, self.now
        while timers and timers[0][0] <= now:
            when, _, actor = heapq.heappop(timers)
            if actor.due == when:
                actor.due = NEVER
                self._mail.append((actor, WAKE, None))
        if self._retry_at <= now and self._flying is not None:
            self._retry_at = NEVER
            self.store.commit(self._flying, self._committed)

    def _commit(self) -> None:
        touched, self._touched = self._touched, {}
        for actor in touched:
            actor.flush()
        batch, held, self._held = self._batch, self._held, []
        if not batch.size:
            self._direct()
            self._release(held)
            return
        self._batch, self._flying, self._flying_held = Batch(), batch, held
        self._effects = self._held if self._touched else held
        self.store.commit(batch, self._committed)

    def _direct(self) -> None:
        """Nothing is in flight: what is emitted from now on waits for the batch that gathers, or for none."""
        self._effects = self._held if self._touched or self._batch.size else self._outgoing

    def _committed(self, result: Committed | BaseException) -> None:
        self.enter()
        try:
            self._settle(result)
        except BaseException as error:  # not raised: who called has nothing to do with it, and trio would end
            self.fail(error)
        self.leave()

    def _settle(self, result: Committed | BaseException) -> None:
        if self.failure is not None or self.ended or self._flying is None:
            return
        if isinstance(result, StoreLocked):
            self.ended = True
            self.close()
            self._superseded()
            return
        if isinstance(result, BaseException):
            self._commit_failed(result)
            return
        if self.store_error is not None:
            log.warning("the store can be written again")
            self.store_error, self._retry_wait = None, _RETRY_FIRST
        batch, self._flying = self._flying, None
        held = self._flying_held
        self._direct()
        if result.lost:
            held = self._without(held, result.lost)
        self._release(held)
        if self._outgoing:  # refusals of what was lost
            self._release(self._outgoing)
        if batch.prunes:
            for prune, pruned in zip(batch.prunes, result.pruned, strict=True):
                self.pruned(prune, pruned)
        if not self._awake:
            if self._mail or self.watched:
                self._awake = True
                self.wake()
            elif self._effects is self._held:
                self._commit()

    def _commit_failed(self, error: BaseException) -> None:
        if self.store_error is None:
            log.error(
                "the store can't be written: %s; new submits are refused, what was accepted is "
                "kept and written as soon as that is possible",
                error,
            )
        self.store_error = error
        self._retry_at = self.monotonic() + self._retry_wait
        self._retry_wait = min(self._retry_wait * 2, _RETRY_LAST)
        if not self._awake:
            self._awake = True
            self.wake()

    def _release(self, effects: list[tuple[Outlet, Any]]) -> None:
        while effects:  # what is delivered may emit at once
            ready = effects.copy()
            effects.clear()
            for outlet, message in ready:
                outlet.deliver(message)

    def _without(
        self, held: list[tuple[Outlet, Any]], lost: tuple[tuple[str, bytes], ...]
    ) -> list[tuple[Outlet, Any]]:
        ids = {id for _, id in lost}
        self.lost_ids(lost)
        kept: list[tuple[Outlet, Any]] = []
        for outlet, message in held:
            if getattr(message, "id", None) not in ids:
                kept.append((outlet, message))
            elif isinstance(message, Accepted):
                taken = f"{text_of(message.id)} is taken already: each submit makes its own id"
                kept.append((outlet, Refusal(message.req, "Conflict", taken)))
        return kept

    # set by the head

    def pruned(self, prune: Any, pruned: Any) -> None:
        """A pruning step is done."""

    def lost_ids(self, lost: tuple[tuple[str, bytes], ...]) -> None:
        """First rows that inserted nothing: their ids were taken."""


def _nothing() -> None:
    """Nobody gathers anything."""


def store_failed(answer: BaseException) -> StoreFailed:
    """A read that failed, as a refusal."""
    return StoreFailed(f"the store can't be read: {answer}; try again, and check its disk")
