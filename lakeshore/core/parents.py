"""The parents of a namespace's daemons, and the commands that operators have run there."""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .actor import Actor
from .engine import Engine
from .errors import Conflict, OutcomeUnknown, Refused, Unreachable
from .ids import text_of
from .intake import refusal
from .member import Member
from .messages import (
    Credit,
    Dismiss,
    Drop,
    Exec,
    ExecEnd,
    ExecOutput,
    Execute,
    Exited,
    Minding,
    Output,
    Refill,
    Terminate,
)
from .notes import Dismissed, Gone, Start

if TYPE_CHECKING:
    from .peer import Peer
    from .space import Space

log = logging.getLogger("lakeshore")

_KEPT = 20  # commands that a worker's row remembers
_LONG = 1000  # characters of one that are kept


class Running(Struct):
    """A command: for whom it runs, where, and how many bytes its output may still have."""

    number: int
    peer: Peer
    req: int
    parent: Peer
    member: Member
    note: dict[str, Any]
    credit: int


class Parents(Actor):
    """Passes commands to the parents of daemons and their output back. Nothing of it waits here: what is
    on its way is within the credit of who asked."""

    def __init__(self, engine: Engine, space: Space) -> None:
        super().__init__(engine)
        self.space = space
        self._minders: dict[bytes, Peer] = {}
        self._minded: dict[Peer, bytes] = {}
        self._running: dict[int, Running] = {}
        self._asked: dict[tuple[Peer, int], Running] = {}
        self._numbers = count(1)
        self.handlers |= {
            Minding: self.on_minding,
            Gone: self.on_gone,
            Dismissed: self.on_dismissed,
            Start: self.on_start,
            Credit: self.on_credit,
            Drop: self.on_drop,
            Output: self.on_output,
            Exited: self.on_exited,
        }

    # parents

    def on_minding(self, message: Minding, peer: Peer) -> None:
        """A parent says whose it is; a new link of it takes the place of the old one."""
        former = self._minded.get(peer)
        if former is not None and self._minders.get(former) is peer:
            del self._minders[former]
        self._minders[message.worker] = peer
        self._minded[peer] = message.worker
        reason = self.space.roster.dismissal(message.worker)
        if reason:
            self.engine.send(peer.wire, Dismiss(reason))

    def on_gone(self, message: Gone, peer: Peer) -> None:
        """The link of a parent is closed: it kills what it runs."""
        worker = self._minded.pop(peer, None)
        if worker is not None and self._minders.get(worker) is peer:
            del self._minders[worker]
        for run in [run for run in self._running.values() if run.parent is peer]:
            self._fail(run, OutcomeUnknown("the connection to the daemon broke: it kills the command"))

    def on_dismissed(self, message: Dismissed, sender: Any) -> None:
        """A daemon was removed: its parent hears it too, should the child not listen."""
        parent = self._minders.get(message.worker)
        if parent is not None:
            self.engine.emit(parent.wire, Dismiss(message.reason))

    # commands

    def on_start(self, message: Start, peer: Peer) -> None:
        """Have a command run on the daemon that was asked for, unless nobody waits any more."""
        request, member = message.request, message.member
        if peer.open.get(request.req) is not self:
            return
        parent = self._minders.get(member.hello.worker)
        if parent is None:
            self.engine.emit(peer, refusal(request.req, _no_parent(member)))
            return
        note = self._record(request, member, peer)
        run = Running(next(self._numbers), peer, request.req, parent, member, note, request.credit)
        self._running[run.number] = self._asked[peer, request.req] = run
        self.engine.emit(parent.wire, Execute(run.number, request.command, request.credit))

    def _record(self, request: Exec, member: Member, peer: Peer) -> dict[str, Any]:
        words = " ".join(map(_quoted, request.command))
        name, id = member.hello.name, text_of(member.hello.worker)
        log.info("%s runs a command on daemon %s (%s): %s", peer.who, name, id, words[:_LONG])
        note = {"at": self.engine.at, "by": peer.who, "command": words[:_LONG], "status": None}
        member.commands = (*member.commands, note)[-_KEPT:]
        self.engine.touch(member)
        return note

    def on_credit(self, message: Credit, peer: Peer) -> None:
        """Some of the output was taken."""
        run = self._asked.get((peer, message.req))
        if run is not None:
            run.credit += message.size
            self.engine.send(run.parent.wire, Refill(run.number, message.size))

    def on_drop(self, message: Drop, peer: Peer) -> None:
        """Nobody waits for a command any more."""
        run = self._asked.get((peer, message.req))
        if run is not None:
            self._forget(run)
            self.engine.send(run.parent.wire, Terminate(run.number))

    def on_output(self, message: Output, parent: Peer) -> None:
        """A piece of output."""
        run = self._running.get(message.exec)
        if run is None or run.parent is not parent:
            return
        run.credit -= len(message.data)
        if run.credit < 0:
            self.engine.send(parent.wire, Terminate(run.number))
            self._fail(run, Conflict("the daemon sent more output than was asked for: the command is killed"))
        else:
            self.engine.send(run.peer, ExecOutput(run.req, message.stream, message.data))

    def on_exited(self, message: Exited, parent: Peer) -> None:
        """A command is over."""
        run = self._running.get(message.exec)
        if run is not None and run.parent is parent:
            ended = run.note | {"status": message.status}
            run.member.commands = tuple(ended if each is run.note else each for each in run.member.commands)
            self.engine.touch(run.member)
            self._forget(run)
            self.engine.send(run.peer, ExecEnd(run.req, message.status, message.error))

    def _fail(self, run: Running, error: Refused) -> None:
        self._forget(run)
        self.engine.send(run.peer, refusal(run.req, error))

    def _forget(self, run: Running) -> None:
        self._running.pop(run.number, None)
        self._asked.pop((run.peer, run.req), None)


def _no_parent(member: Member) -> Refused:
    name = member.hello.name
    if not member.hello.daemon:
        return Conflict(
            f"worker {name!r} was not started by `lakeshore daemon start`: there is nobody to run a command"
        )
    return Unreachable(f"the parent process of daemon {name!r} has no connection just now: try again soon")


def _quoted(word: str) -> str:
    """A word as a shell would take it."""
    plain = word and all(c.isalnum() or c in "@%+=:,./-_" for c in word)
    return word if plain else "'" + word.replace("'", "'\"'\"'") + "'"
