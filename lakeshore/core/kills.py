"""Killing: one invocation, queued or running, or everything queued."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .entry import Entry
from .errors import Conflict
from .ids import text_of
from .intake import refusal
from .messages import Answer, Kept, Kill, Reclaim, Stop
from .notes import CancelSome
from .ports import Outlet
from .states import Move, State

if TYPE_CHECKING:
    from .member import Member
    from .queue import Queue

_STEP = 1000  # how many one turn kills


class Kills:
    """The kills of one queue; runs in its turns."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.engine = queue, queue.engine
        queue.handlers |= {Kill: self.on_kill, Kept: self.on_kept, CancelSome: self.on_cancel_some}

    def on_kill(self, message: Kill, peer: Any) -> None:
        entry = self.queue.inquiries.live(message, peer)
        if entry is None:
            return
        if entry.state is State.QUEUED:
            self.queue.backlog.remove(entry)
            self.queue.end(entry, Move.KILL, "killed", reason="killed")
            self.engine.emit(peer, Answer(message.req))
            self.queue.intake.let_in()
        elif entry.state is State.RUNNING:
            self._kill_running(entry, message, peer)
        elif entry.state is State.KILLED:
            self.engine.emit(peer, Answer(message.req))
        else:
            self.engine.emit(peer, refusal(message.req, already_ended(message.id, entry.state)))

    def _kill_running(self, entry: Entry, message: Kill, peer: Outlet) -> None:
        entry.killers = [*(entry.killers or ()), (peer, message.req)]
        member = entry.member
        assert member is not None
        if not message.running:
            self.engine.tell(member, Reclaim(entry.id, entry.attempt), self.queue)
            return
        if not entry.killing:
            entry.killing = True
            self.queue.touch(entry)
        self.engine.tell(member, Stop(entry.id, entry.attempt, "kill"), self.queue)

    def on_kept(self, message: Kept, member: Member) -> None:
        entry = self.queue.running.get(message.id)
        if entry is not None and entry.attempt == message.attempt and not entry.killing:
            self.answer(entry)

    def answer(self, entry: Entry) -> None:
        """Tell those who asked to kill an entry what became of it."""
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
        self.engine.tell(self.queue, CancelSome(then, reason))

    def on_cancel_some(self, message: CancelSome, sender: Any) -> None:
        count = message.count
        while count < message.count + _STEP and (entry := self.queue.backlog.pop_any()) is not None:
            self.queue.end(entry, Move.KILL, "killed", reason=message.reason)
            count += 1
        if len(self.queue.backlog):
            self.engine.tell(self.queue, CancelSome(message.then, message.reason, count))
        else:
            message.then(count)
            self.queue.intake.let_in()


def already_ended(id: bytes, state: str) -> Conflict:
    """A kill came too late."""
    return Conflict(f"job {text_of(id)} is {state} already: nothing is left to kill")
