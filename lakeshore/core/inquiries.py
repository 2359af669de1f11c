"""What clients ask about one live invocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .actor import Mail
from .entry import Entry
from .errors import Conflict
from .ids import text_of
from .intake import refusal
from .messages import Described, Drop, Follow, FollowLogs, Get, Retry, Wait, Why
from .states import LIVE
from .why import explain_live

if TYPE_CHECKING:
    from .queue import Queue

_FEW = 16  # waiters of one invocation that are looked through one by one


class Inquiries:
    """The desk of one queue; runs in its turns."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.engine = queue, queue.engine
        queue.handlers |= {
            Wait: self.on_wait,
            Get: self.on_get,
            Why: self.on_why,
            Retry: self.on_retry,
            Follow: self.on_follow,
            FollowLogs: self.on_follow_logs,
            Drop: self.on_drop,
        }

    def live(self, message: Any, peer: Any) -> Entry | None:
        """The entry a question is about; None: the archive was told to answer."""
        entry = self.queue.space.live.get(message.id)
        if entry is None:  # it ended and left memory while the question was in the mail
            peer.pass_on(message, self.queue.space.archive)
        return entry

    def on_wait(self, message: Wait, peer: Any) -> None:
        entry = self.live(message, peer)
        if entry is None:
            return
        if entry.state not in LIVE:
            self.engine.emit(peer, entry.end(message.req, entry.result))
        elif entry.waiters is None:
            entry.waiters = [(peer, message.req)]
        elif isinstance(entry.waiters, dict):
            entry.waiters[peer, message.req] = None
        else:
            entry.waiters.append((peer, message.req))
            if len(entry.waiters) > _FEW:
                entry.waiters = dict.fromkeys(entry.waiters)

    def on_get(self, message: Get, peer: Any) -> None:
        entry = self.live(message, peer)
        if entry is None:
            return
        row = entry.row(self.queue.space.name, self.queue.id)
        if entry.log is not None:  # so far, for whoever looks
            row = replace(row, record=replace(row.record, lines=entry.log.next_seq))
        self.engine.emit(peer, Described(message.req, ((row, self.queue.name),)))

    def on_why(self, message: Why, peer: Any) -> None:
        entry = self.live(message, peer)
        if entry is None:
            return
        explain_live(message, peer, self.queue, entry)

    def on_retry(self, message: Retry, peer: Any) -> None:
        entry = self.live(message, peer)
        if entry is None:
            return
        if entry.state.terminal:  # its row is on the way to the disk: ask again after that
            self.engine.emit(Mail(self.queue.space.archive, peer), message)
            return
        error = Conflict(
            f"{text_of(message.id)} is {entry.state}: only what has ended can be retried; "
            "kill it first, or wait"
        )
        self.engine.emit(peer, refusal(message.req, error))

    def on_follow(self, message: Follow, peer: Any) -> None:
        entry = self.live(message, peer)
        if entry is None:
            return
        journal = entry.journal
        if journal is None:
            journal = entry.journal = self.queue.new_journal(entry)
            if entry.state.terminal:
                journal.finish(entry.end())
        self.queue.streams.follow(journal, message, peer)

    def on_follow_logs(self, message: FollowLogs, peer: Any) -> None:
        entry = self.live(message, peer)
        if entry is None:
            return
        log = entry.log
        if log is None:
            log = entry.log = self.queue.new_log(entry)
            if entry.state.terminal:
                log.finish(None)
        self.queue.streams.follow(log, message, peer)

    def on_drop(self, message: Drop, peer: Any) -> None:
        if self.queue.streams.drop(message, peer):
            return
        entry = self.queue.space.live.get(message.id) if message.id else None
        if entry is not None and entry.waiters:
            waiter = (peer, message.req)
            if isinstance(entry.waiters, dict):
                entry.waiters.pop(waiter, None)
                entry.waiters = entry.waiters or None
            else:
                entry.waiters = [each for each in entry.waiters if each != waiter] or None
            return
        self.queue.intake.drop(message, peer)
