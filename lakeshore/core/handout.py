"""What a queue hands out, and to whom: claims for workers that have room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .entry import Entry
from .messages import Grant
from .notes import Join, Late, Leave, Ready, Take, Took, Unpinned
from .rows import Failure, GetBlob, GetFunction
from .states import HANDS_OUT, Move, State, step

if TYPE_CHECKING:
    from .member import Member
    from .queue import Queue

_SKIP = 256  # entries one Take may pass over because the worker can't resolve them


class Handout:
    """The exit of one queue; runs in its turns.

    `hungry` workers took less than they had room for, and are called when there is more; those in
    `unable` are hungry too, but can't find the functions of what is claimable. `unresolved` says
    which workers can't find a function.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue, self.engine = queue, queue.engine
        self.hungry: dict[Member, None] = {}
        self.unable: dict[Member, None] = {}
        self.unresolved: dict[str, set[Member]] = {}
        self._watched = False  # a worker that ends when nothing is left waits for a retry delay
        queue.handlers |= {Take: self.on_take, Join: self.on_join, Leave: self.on_leave}

    def call(self) -> None:
        """Tell as many hungry workers as there is work for."""
        if self.queue.state not in HANDS_OUT:
            return
        count, hungry, limit = (
            self.queue.backlog.claimable,
            self.hungry,
            self.queue.settings.admission.max_running,
        )
        if limit is not None:
            count = min(count, limit - len(self.queue.running))
        while hungry and count > 0:
            member = next(iter(hungry))
            del hungry[member]
            self.engine.tell(member, Ready(), self.queue)
            count -= max(1, member.credit)

    def wake_able(self, entry: Entry) -> None:
        """Something new is claimable: who may be able to run it is to be called again."""
        for member in [member for member in self.unable if self._resolvable(entry, member)]:
            del self.unable[member]
            self.hungry[member] = None

    def on_take(self, message: Take, member: Member) -> None:
        if message.n == 0:  # it has no room, or has left: the next one, then
            self.call()
            return
        if member not in self.queue.members:
            self.engine.tell(member, Took((), message.n, only=message.only), self.queue)
            return
        if message.only is not None:
            self._take_only(message.only, member)
            return
        grants: list[Grant] = []
        pending: list[tuple[bytes, int]] = []
        aside: list[Entry] = []
        limit = self.queue.settings.admission.max_running
        room = message.n if limit is None else min(message.n, limit - len(self.queue.running))
        if self.queue.state in HANDS_OUT:
            while len(grants) + len(pending) < room and len(aside) < _SKIP:
                entry = self.queue.backlog.pop()
                if entry is None:
                    break
                if self.unresolved and not self._resolvable(entry, member):
                    aside.append(entry)
                    continue
                self._claim(entry, member, grants, pending)
        for entry in aside:
            if self.nobody_resolves(entry):
                self.queue.backlog.set_aside(entry)
            else:
                self.queue.backlog.add(entry, self.engine.now)
        claimed = len(grants) + len(pending)
        if claimed < message.n:
            (self.unable if aside else self.hungry)[member] = None
        if self.hungry and self.queue.backlog.claimable:
            self.call()  # it took less than was thought: others may be called for the rest
        retrying = self.queue.backlog.retrying > 0 and self.queue.state in HANDS_OUT
        self._watched |= retrying and member.hello.quiet
        self.engine.tell(member, Took(tuple(grants), message.n, tuple(pending), retrying), self.queue)
        if claimed and self.queue.intake.blocked:
            self.queue.intake.let_in()

    def _take_only(self, id: bytes, member: Member) -> None:
        entry = self.queue.space.live.get(id)
        grants: list[Grant] = []
        pending: list[tuple[bytes, int]] = []
        claimable = (
            entry is not None and entry.state is State.QUEUED and self.queue.backlog.is_claimable(entry)
        )
        if entry is not None and claimable and self.queue.state in HANDS_OUT:
            self.queue.backlog.remove(entry)
            self._claim(entry, member, grants, pending)
        self.engine.tell(member, Took(tuple(grants), 1, tuple(pending), only=id), self.queue)
        if claimable and self.queue.intake.blocked:
            self.queue.intake.let_in()

    def look_at_retries(self) -> None:
        """Have workers that wait for a retry delay ask again where none is left to wait for."""
        if self._watched and not (self.queue.backlog.retrying and self.queue.state in HANDS_OUT):
            self._watched = False
            for hungry in (self.hungry, self.unable):
                for member in [member for member in hungry if member.hello.quiet]:
                    del hungry[member]
                    self.engine.tell(member, Ready(), self.queue)

    def _claim(
        self, entry: Entry, member: Member, grants: list[Grant], pending: list[tuple[bytes, int]]
    ) -> None:
        entry.state = step(entry.state, Move.CLAIM)
        entry.open_attempt(member.hello.worker, member.hello.pid, self.engine.wall())
        entry.member = member
        entry.ready = None
        self.queue.running[entry.id] = entry
        self.queue.touch(entry)
        if entry.pinned is not None and entry.pinned is not member:
            self.engine.tell(entry.pinned, Unpinned(entry.id), self.queue)
        entry.pinned = None
        function = entry.call.options.function
        foreign = bool(function.value)  # even to its own process: the plane may have been opened anew there
        if entry.args is not None and not (foreign and function.value not in member.known):
            grants.append(self._grant(entry, entry.args, None))
        else:
            pending.append((entry.id, entry.attempt))
            self._fetch(entry, member, foreign)

    def _grant(self, entry: Entry, args: bytes, function: bytes | None) -> Grant:
        return Grant(
            entry.id, entry.attempt, self.queue.name, self.queue.space.name, entry.call, args, function
        )

    def _fetch(self, entry: Entry, member: Member, foreign: bool) -> None:
        """Read what a claimed entry needs from the store, then send its grant."""
        attempt, hash = entry.attempt, entry.call.options.function.value

        def with_args(args: bytes | BaseException | None) -> None:
            if args is None or isinstance(args, BaseException):
                unreadable(args)
            elif foreign and hash not in member.known:
                self.engine.read(self.queue, GetFunction(hash), lambda body: send(args, body))
            else:
                send(args, None)

        def send(args: bytes, body: bytes | BaseException | None) -> None:
            if isinstance(body, BaseException):
                unreadable(body)
            elif entry.attempt == attempt and entry.member is member:
                if body is not None:
                    member.known.add(hash)
                entry.args = args
                self.engine.tell(member, Late(entry.id, self._grant(entry, args, body)), self.queue)

        def unreadable(error: BaseException | None) -> None:
            if entry.attempt != attempt or entry.member is not member:
                return
            self.engine.tell(member, Late(entry.id, None), self.queue)
            why = "they are not in the store" if error is None else str(error)
            self.queue.end(
                entry,
                Move.FAIL,
                "failed",
                error=Failure("lakeshore.StoreFailed", f"the arguments can't be read: {why}"),
            )

        if entry.args is not None:
            with_args(entry.args)
        else:
            self.engine.read(self.queue, GetBlob(self.queue.space.name, entry.id, "args"), with_args)

    def _resolvable(self, entry: Entry, member: Member) -> bool:
        return member not in self.unresolved.get(self._function_key(entry), ())

    def nobody_resolves(self, entry: Entry) -> bool:
        refusing = self.unresolved.get(self._function_key(entry), set())
        return all(member in refusing for member in self.queue.members)

    def on_join(self, message: Join, sender: Any) -> None:
        if self.queue not in message.member.queues or message.member.gone:
            return  # it left before it was here
        self.queue.members[message.member] = None
        if self.queue.backlog.unstick():
            self.engine.tell(self.queue, message)  # some are left: go on in another turn
        self.call()

    def on_leave(self, message: Leave, sender: Any) -> None:
        member = message.member
        self.queue.members.pop(member, None)
        self.hungry.pop(member, None)
        self.unable.pop(member, None)
        for key in [key for key, members in self.unresolved.items() if member in members]:
            self.unresolved[key].discard(member)
            if not self.unresolved[key]:
                del self.unresolved[key]

    def cannot_resolve(self, entry: Entry, member: Member) -> None:
        """A worker can't find an entry's function."""
        self.unresolved.setdefault(self._function_key(entry), set()).add(member)

    def _function_key(self, entry: Entry) -> str:
        function = entry.call.options.function
        return function.local or function.ref or function.value.hex()
