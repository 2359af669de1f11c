"""What a queue lets in: keys, admission, and the tickets of submitters who wait for room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .admission import TokenBucket, verdict
from .engine import store_failed
from .errors import Conflict, KeyConflict, QueueClosed, QueueFull, Refused, StoreFailed
from .ids import text_of
from .messages import Accepted, Blocked, Drop, Refusal, Submit, SubmitMany, SubmittedMany, Turn
from .orders import Order, make_order
from .ports import Outlet
from .rows import GetInvocation, GetKey, InvocationRow, KeyRow
from .states import ADMITS

if TYPE_CHECKING:
    from .queue import Queue

_RESERVED = 10.0  # seconds a granted turn stays reserved


class Many:
    """The answers of a `SubmitMany`, gathered until all are there."""

    __slots__ = ("blocked", "left", "peer", "req", "results")

    def __init__(self, peer: Outlet, message: SubmitMany) -> None:
        self.peer, self.req = peer, message.req
        self.results: list[Accepted | Refusal | None] = [None] * len(message.items)
        self.left = len(message.items)
        self.blocked = False


class Ticket:
    """A submitter who waits for room."""

    __slots__ = ("peer", "priority", "req")

    def __init__(self, peer: Outlet, req: int, priority: float) -> None:
        self.peer, self.req, self.priority = peer, req, priority


def refusal(req: int, error: Refused) -> Refusal:
    """An error, ready to travel."""
    return Refusal(req, type(error).__name__, str(error), error.details())


class Intake:
    """The entrance of one queue; runs in its turns."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.engine = queue.engine
        self.keys: dict[str, tuple[bytes, bytes]] = {}  # of live invocations: id and digest
        self._reading: dict[str, list[tuple[Submit, Outlet, Many | None, int]]] = {}
        self._tickets: dict[int, Ticket] = {}
        self._waiting: Order
        self._count = 0
        self._reserved: dict[tuple[int, int], float] = {}
        self._bucket: TokenBucket | None = None
        self.configure()

    def configure(self) -> None:
        """Take up the queue's settings, new or changed."""
        rate = self.queue.settings.admission.rate_limit
        self._bucket = TokenBucket(rate) if rate is not None else None
        if not self._tickets:
            kind = "priority" if self.queue.settings.kind == "priority" else "fifo"
            self._waiting = make_order(kind)

    @property
    def blocked(self) -> int:
        """How many submitters wait for room."""
        return len(self._tickets)

    def submit(self, message: Submit, peer: Outlet, many: Many | None = None, index: int = 0) -> None:
        """Admit one invocation, or say why not."""
        key = message.call.key
        if message.again:
            query = GetInvocation(self.queue.space.name, message.id)
            self.engine.read(self.queue, query, lambda row: self._resubmit(message, peer, many, index, row))
        elif key and key not in self.keys:
            waiting = self._reading.setdefault(key, [])
            waiting.append((message, peer, many, index))
            if len(waiting) == 1:
                query = GetKey(self.queue.space.name, self.queue.id, key)
                self.engine.read(self.queue, query, lambda row: self._key_read(key, row))
        elif key:
            self._known(message, peer, many, index, *self.keys[key])
        else:
            self._enter(message, peer, many, index)

    def submit_many(self, message: SubmitMany, peer: Outlet) -> None:
        """Admit several in order, up to the first that has to wait for room."""
        many = Many(peer, message)
        for index, item in enumerate(message.items):
            self.submit(item, peer, many, index)
            if many.blocked:
                self._cut(many, index)
                return

    def drop(self, message: Drop, peer: Outlet) -> None:
        """A submitter has stopped waiting for room."""
        for number, ticket in self._tickets.items():
            if ticket.peer is peer and ticket.req == message.req:
                self._waiting.discard(number, ticket.priority)
                del self._tickets[number]
                return
        if self._reserved.pop((id(peer), message.req), None) is not None:
            self.let_in()

    def let_in(self) -> None:
        """Give turns to those who wait, as far as there is room."""
        if not self._tickets:
            return
        if self.queue.state not in ADMITS or self.queue.removing:
            self._turn_away()
            return
        while self._tickets and not self._verdict(0, None):
            if self._bucket is not None and not self._bucket.take(self.engine.now):
                self.queue.call_at(self.engine.now + self._bucket.wait(self.engine.now))
                return
            number = self._waiting.pop()
            if number is None:
                return
            ticket = self._tickets.pop(number)
            until = self.engine.now + _RESERVED
            self._reserved[id(ticket.peer), ticket.req] = until
            self.queue.call_at(until)
            self.engine.emit(ticket.peer, Turn(ticket.req))

    def tick(self) -> None:
        """Free reservations whose payload did not come."""
        now = self.engine.now
        stale = [key for key, until in self._reserved.items() if until <= now]
        for key in stale:
            del self._reserved[key]
        if self._reserved:
            self.queue.call_at(min(self._reserved.values()))
        self.let_in()

    def forget_peer(self, peer: Outlet) -> None:
        """The peer is gone: its tickets and reservations with it."""
        for number in [n for n, ticket in self._tickets.items() if ticket.peer is peer]:
            ticket = self._tickets.pop(number)
            self._waiting.discard(number, ticket.priority)
        for key in [key for key in self._reserved if key[0] == id(peer)]:
            del self._reserved[key]
        self.let_in()

    # keys

    def _key_read(self, key: str, row: KeyRow | None | BaseException) -> None:
        for message, peer, many, index in self._reading.pop(key):
            if isinstance(row, BaseException):
                self._answer(peer, many, index, refusal(message.req, store_failed(row)))
            elif key in self.keys:  # entered memory while the read was under way
                self._known(message, peer, many, index, *self.keys[key])
            elif row is not None:
                self._known(message, peer, many, index, row.id, row.digest)
            else:
                self._enter(message, peer, many, index)

    def _known(
        self, message: Submit, peer: Outlet, many: Many | None, index: int, id: bytes, digest: bytes
    ) -> None:
        self._unreserve(peer, message)
        same = digest == message.digest
        if message.strict and not same:
            text = text_of(id)
            error = KeyConflict(
                f"key {message.call.key!r} is held by {text}, submitted with another function or other "
                "arguments: use another key, or submit without _strict_key to get that id",
                id=text,
            )
            self._answer(peer, many, index, refusal(message.req, error))
        else:
            self._answer(peer, many, index, Accepted(message.req, id, True, same))

    def _resubmit(self, message: Submit, peer: Outlet, many: Many | None, index: int, row: object) -> None:
        entry = self.queue.space.live.get(message.id)
        if isinstance(row, BaseException):
            self._answer(peer, many, index, refusal(message.req, store_failed(row)))
        elif entry is not None or isinstance(row, InvocationRow):
            self._answer(peer, many, index, Accepted(message.req, message.id))
        else:
            self.submit(_first_time(message), peer, many, index)

    # admission

    def _enter(self, message: Submit, peer: Outlet, many: Many | None, index: int) -> None:
        reserved = self._redeem(peer, message.req) if message.ticket else False
        error = self.refuses(message)
        if error is None and message.id in self.queue.space.live:
            error = Conflict(f"{text_of(message.id)} is submitted already: each submit makes its own id")
        if error is None and not reserved:
            error, later = self._no_room(message)
            parked = many is not None and bool(message.call.key)  # later items have gone ahead
            if later and not parked and self.queue.settings.admission.on_full == "block":
                self._wait(message, peer, many)
                return
        if error is not None:
            self._answer(peer, many, index, refusal(message.req, error), now=isinstance(error, StoreFailed))
            return
        self.queue.admit(message)
        self._answer(peer, many, index, Accepted(message.req, message.id))

    def refuses(self, message: Submit) -> Refused | None:
        queue = self.queue
        if queue.removing:
            return QueueClosed(f"queue {queue.name!r} is being removed: submit to another")
        if queue.state not in ADMITS:
            return QueueClosed(
                f"queue {queue.name!r} is {queue.state} and admits nothing: unarchive it, or submit to another"
            )
        if why := self.engine.refusing():
            return StoreFailed(f"not accepted: {why}; try again later")
        if why := self.engine.store.full:
            return QueueFull(f"not accepted: {why}", retry_after=None)
        return None

    def _verdict(self, size: int, bucket: TokenBucket | None) -> str:
        queue = self.queue
        return verdict(
            queue.settings.admission,
            depth=len(queue.backlog),
            reserved=len(self._reserved),
            bytes=queue.backlog.bytes,
            size=size,
            bucket=bucket,
            now=self.engine.now,
        )

    def _no_room(self, message: Submit) -> tuple[QueueFull | None, bool]:
        """Why there is no room, and whether there may be some later."""
        queue, rule = self.queue, self.queue.settings.admission
        size = len(message.call.args or b"")
        if self._tickets and rule.on_full == "block":
            why = "max_depth"  # others wait already
        else:
            why = self._verdict(size, self._bucket)
        if not why:
            return None, False
        if why == "size":
            text = (
                f"the arguments take {size} bytes, and queue {queue.name!r} holds at most {rule.max_bytes} in "
                "all (max_bytes): raise it, or pass a path or a key instead"
            )
            return QueueFull(text, retry_after=None), False
        if why == "rate_limit" and self._bucket is not None:
            wait = self._bucket.wait(self.engine.now)
            text = f"queue {queue.name!r} takes {rule.rate_limit:g} submits a second: try again in {wait:.2f} s"
            return QueueFull(text, retry_after=wait), True
        wait = queue.seconds_per_job()
        hint = f"in about {wait:.1f} s" if wait is not None else "later"
        text = (
            f"queue {queue.name!r} is full ({why} {getattr(rule, why)}, {len(queue.backlog)} queued): try again "
            f"{hint}, raise the limit, or set on_full=block"
        )
        return QueueFull(text, retry_after=wait), True

    def _wait(self, message: Submit, peer: Outlet, many: Many | None) -> None:
        self._count += 1
        req = message.req if many is None else many.req
        self._tickets[self._count] = Ticket(peer, req, message.priority)
        self._waiting.push(self._count, message.priority)
        if many is None:
            self.engine.emit(peer, Blocked(req))
        else:
            many.blocked = True
        if self._bucket is not None:
            self.queue.call_at(self.engine.now + self._bucket.wait(self.engine.now))

    def _redeem(self, peer: Outlet, req: int) -> bool:
        return self._reserved.pop((id(peer), req), None) is not None

    def _unreserve(self, peer: Outlet, message: Submit) -> None:
        if message.ticket and self._redeem(peer, message.req):
            self.let_in()

    def _turn_away(self) -> None:
        for ticket in self._tickets.values():
            error = QueueClosed(
                f"queue {self.queue.name!r} is {self.queue.state} now and admits nothing: submit to another"
            )
            self.engine.emit(ticket.peer, refusal(ticket.req, error))
        self._tickets.clear()
        self.configure()

    # answers

    def _answer(
        self, peer: Outlet, many: Many | None, index: int, reply: Accepted | Refusal, *, now: bool = False
    ) -> None:
        if many is None:
            (self.engine.send if now else self.engine.emit)(peer, reply)
            return
        many.results[index] = reply
        many.left -= 1
        if many.left == 0:
            results = tuple(result for result in many.results if result is not None)
            reply_many = SubmittedMany(many.req, results, many.blocked)
            (self.engine.send if now else self.engine.emit)(peer, reply_many)

    def _cut(self, many: Many, at: int) -> None:
        many.left -= len(many.results) - at
        del many.results[at:]
        if many.left == 0:
            results = tuple(result for result in many.results if result is not None)
            self.engine.emit(many.peer, SubmittedMany(many.req, results, True))


def _first_time(message: Submit) -> Submit:
    return Submit(
        message.req,
        message.id,
        message.queue,
        message.call,
        message.priority,
        message.digest,
        message.strict,
        message.delay,
        message.deadline,
        message.ticket,
        False,
        message.function,
    )
