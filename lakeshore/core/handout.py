"""What a queue hands out, and to whom: claims for workers that have room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .entry import Entry
from .messages import Grant
from .notes import Join, Late, Leave, Ready, Take, Took, Unpinned
from .rows import Failure, GetBlob, GetFunction
from .states import HANDS_OUT, Move, State, step

if TYPE_CHECKING:
    from .member import Member
    from .queue import Queue

_SKIP = 1000  # entries one turn may set apart because the worker can't resolve them
_DRAWS = 100  # entries of a line that come back into an order that draws, at least


class Handout:
    """The exit of one queue; runs in its turns.

    `hungry` workers took less than they had room for, and are called when there is more. `unresolved`
    says which workers can't find a function, and why; its entries are set apart when such a worker meets
    them.
    """

    def __init__(self, queue: Queue) -> None:
        self.queue, self.engine = queue, queue.engine
        self.hungry: dict[Member, None] = {}
        self.unresolved: dict[str, dict[Member, str]] = {}
        self._watched = False  # a worker that ends when nothing is left waits for a retry delay
        queue.handlers |= {Take: self.on_take, Join: self.on_join, Leave: self.on_leave}

    def call(self) -> None:
        """Tell as many hungry workers as there is work for."""
        if self.queue.state not in HANDS_OUT:
            return
        backlog, hungry = self.queue.backlog, self.hungry
        limit = self.queue.settings.admission.max_running
        room = backlog.claimable if limit is None else limit - len(self.queue.running)
        count = min(backlog.in_order, room)
        while hungry and count > 0:
            member = next(iter(hungry))
            del hungry[member]
            self.engine.tell(member, Ready(), self.queue)
            count -= max(1, member.credit)
        if hungry and backlog.apart and room > 0:
            self._call_able(min(backlog.claimable - backlog.in_order, room))

    def _call_able(self, count: int) -> None:
        """Tell hungry workers of entries that are apart, if they find one's function."""
        keys = [key for key in self.queue.backlog.apart if not self._refused_by_all(key)]
        if not keys:
            return
        able = [member for member in self.hungry if any(self._finds(member, key) for key in keys)]
        for member in able:
            if count <= 0:
                return
            del self.hungry[member]
            self.engine.tell(member, Ready(), self.queue)
            count -= max(1, member.credit)

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
        queue, skipped, asked = self.queue, 0, message.n
        backlog, limit = queue.backlog, queue.settings.admission.max_running
        room = asked if limit is None else min(asked, limit - len(queue.running))
        hands_out = queue.state in HANDS_OUT
        if hands_out and room > 0:
            if backlog.apart:
                some = max(room, _DRAWS) if queue.settings.kind == "boltzmann" else room
                backlog.bring([key for key in backlog.apart if self._finds(member, key)], some)
            unresolved, claim, taken = self.unresolved, self._claim, 0
            while taken < room and skipped < _SKIP:
                entry = backlog.pop()
                if entry is None:
                    break
                if entry.rare is not None and entry.expires_at <= self.engine.now:
                    queue.expire(entry)  # it came back too late, and its time has not been looked at yet
                    skipped += 1
                    continue
                if unresolved and not self._finds(member, key := self.function_key(entry)):
                    backlog.set_apart(entry, key)
                    skipped += 1
                    continue
                claim(entry, member, grants, pending)
                taken += 1
        claimed = len(grants) + len(pending)
        if skipped == _SKIP and claimed < room:  # go on in another turn, at once or when it asks again
            if not claimed:
                self.engine.tell(queue, message, member)
                self.call()
                return
            asked = claimed
        if claimed < asked:
            self.hungry[member] = None
        if self.hungry and backlog.claimable:
            self.call()  # it took less than was thought: others may be called for the rest
        retrying = backlog.retrying > 0 and hands_out
        self._watched |= retrying and member.hello.quiet
        self.engine.tell(member, Took(tuple(grants), asked, tuple(pending), retrying), queue)
        if claimed and queue.intake.blocked:
            queue.intake.let_in()

    def _take_only(self, id: bytes, member: Member) -> None:
        entry = self.queue.space.live.get(id)
        grants: list[Grant] = []
        pending: list[tuple[bytes, int]] = []
        claimable = (
            entry is not None and entry.state is State.QUEUED and self.queue.backlog.is_claimable(entry)
        )
        if entry is not None and entry.pinned is member and not claimable and entry.state is State.QUEUED:
            return  # its delay is not over: an offer follows
        if entry is not None and claimable and self.queue.state in HANDS_OUT:
            self.queue.backlog.remove(entry)
            if entry.expires_at <= self.engine.now:
                self.queue.expire(entry)
            else:
                self._claim(entry, member, grants, pending)
        self.engine.tell(member, Took(tuple(grants), 1, tuple(pending), only=id), self.queue)
        if claimable and self.queue.intake.blocked:
            self.queue.intake.let_in()

    def look_at_retries(self) -> None:
        """Have workers that wait for a retry delay ask again where none is left to wait for."""
        if self._watched and not (self.queue.backlog.retrying and self.queue.state in HANDS_OUT):
            self._watched = False
            for member in [member for member in self.hungry if member.hello.quiet]:
                del self.hungry[member]
                self.engine.tell(member, Ready(), self.queue)

    def _claim(
        self, entry: Entry, member: Member, grants: list[Grant], pending: list[tuple[bytes, int]]
    ) -> None:
        entry.state = step(entry.state, Move.CLAIM)
        hello = member.hello
        entry.open_attempt(hello.worker, hello.pid, self.engine.at)
        entry.member = member
        self.queue.running[entry.id] = entry
        self.queue.touch(entry)
        if entry.rare is not None:
            entry.ready = None
            if entry.pinned is not None and entry.pinned is not member:
                self.engine.tell(entry.pinned, Unpinned(entry.id), self.queue)
            entry.pinned = None
        hash = entry.call.options.function.value
        body = None  # of a pickle; sent even to its own process, as the plane may have been opened anew there
        if hash and not member.knows(hash):
            body = self.engine.unstored_function(hash)
            if body is None or entry.args is None:
                pending.append((entry.id, entry.attempt))
                self._fetch(entry, member, hash)
                return
            member.learns(hash)
        if entry.args is not None:
            grants.append(self._grant(entry, entry.args, body))
        else:
            pending.append((entry.id, entry.attempt))
            self._fetch(entry, member, hash)

    def _grant(self, entry: Entry, args: bytes, function: bytes | None) -> Grant:
        queue = self.queue
        space = queue.space
        storage = queue.settings.storage or space.depot.storage
        folder = space.depot.folder if storage else ""
        return Grant(
            entry.id, entry.attempt, queue.name, space.name, entry.call, args, function, storage, folder
        )

    def _fetch(self, entry: Entry, member: Member, hash: bytes) -> None:
        """Read what a claimed entry needs from the store, then send its grant."""
        attempt = entry.attempt

        def with_args(args: bytes | BaseException | None) -> None:
            if args is None or isinstance(args, BaseException):
                unreadable(args)
            elif not hash or member.knows(hash):
                send(args, None)
            elif (data := self.engine.unstored_function(hash)) is not None:
                send(args, data)
            else:
                self.engine.read(self.queue, GetFunction(hash), lambda body: send(args, body))

        def send(args: bytes, body: bytes | BaseException | None) -> None:
            if isinstance(body, BaseException):
                unreadable(body)
            elif entry.attempt == attempt and entry.member is member:
                if body is not None:
                    member.learns(hash)
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

    def _finds(self, member: Member, key: str) -> bool:
        return member not in self.unresolved.get(key, ())

    def nobody_resolves(self, entry: Entry) -> bool:
        """Whether no worker that is here can find an entry's function."""
        return self._refused_by_all(self.function_key(entry))

    def _refused_by_all(self, key: str) -> bool:
        refusing = self.unresolved.get(key, {})
        return all(member in refusing for member in self.queue.members)

    def is_stuck(self, entry: Entry) -> bool:
        """Whether it is claimable, and waits for a worker that can find its function."""
        key = self.function_key(entry)
        return key in self.queue.backlog.apart and bool(self.queue.members) and self._refused_by_all(key)

    def on_join(self, message: Join, sender: Any) -> None:
        if self.queue not in message.member.queues or message.member.gone:
            return  # it left before it was here
        self.queue.members[message.member] = None
        self.call()

    def on_leave(self, message: Leave, sender: Any) -> None:
        member = message.member
        self.queue.members.pop(member, None)
        self.hungry.pop(member, None)
        for key in [key for key, members in self.unresolved.items() if member in members]:
            del self.unresolved[key][member]
            if not self.unresolved[key]:
                del self.unresolved[key]

    def cannot_resolve(self, entry: Entry, member: Member, reason: str) -> None:
        """A worker can't find an entry's function."""
        self.unresolved.setdefault(self.function_key(entry), {})[member] = reason

    def refusals(self, entry: Entry) -> Mapping[Member, str]:
        """Workers that can't find an entry's function, and the reason that each gave."""
        return self.unresolved.get(self.function_key(entry), {})

    def function_key(self, entry: Entry) -> str:
        """What names the function of an entry."""
        function = entry.call.options.function
        return function.local or function.ref or function.value.hex()
