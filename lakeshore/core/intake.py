"""What a queue lets in: keys, admission, and the tickets of submitters who wait for room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from .admission import Reason, TokenBucket, verdict
from .away import PAIR
from .engine import store_failed
from .errors import BadRequest, Conflict, KeyConflict, QueueClosed, QueueFull, Refused, StoreFailed
from .ids import text_of
from .messages import Accepted, Blocked, Drop, Refusal, Submit, SubmitMany, SubmittedMany, Turn
from .notes import LetIn
from .orders import Order, make_order
from .ports import Outlet
from .rows import GetInvocation, GetKey, InvocationRow, KeyRow, Missing
from .states import ADMITS

if TYPE_CHECKING:
    from .peer import Peer
    from .queue import Queue

Found = KeyRow | InvocationRow | Missing | BaseException | None  # what the store knows of a submit

_STEP = 1000  # how many of those who wait one turn serves
_RESERVED = 10.0  # seconds a granted turn stays reserved


class Many:
    """A `SubmitMany` whose items are being looked up."""

    __slots__ = ("found", "left", "message", "peer")

    def __init__(self, message: SubmitMany, peer: Peer) -> None:
        self.message, self.peer = message, peer
        self.left = len(message.items)
        self.found: list[Found] = [None] * self.left


class Ticket:
    """A submitter who waits for room for `size` bytes of arguments."""

    __slots__ = ("key", "peer", "priority", "req", "size")

    def __init__(self, peer: Peer, message: Submit) -> None:
        self.peer, self.req, self.key = peer, message.req, message.call.key
        self.priority, self.size = message.priority, len(message.call.args or b"")


def refusal(req: int, error: Refused) -> Refusal:
    """An error, ready to travel."""
    return Refusal(req, type(error).__name__, str(error), error.details())


class Intake:
    """The entrance of one queue; runs in its turns."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.engine = queue.engine
        self.keys: dict[str, tuple[bytes, bytes]] = {}  # of live invocations: id and digest
        self._reading: dict[str, list[Callable[[Found], None]]] = {}
        self._undecided: dict[str, int] = {}  # how many submits of a key are being looked up
        self._former: dict[str, tuple[bytes, bytes]] = {}  # of `_undecided` keys that left memory meanwhile
        self._tickets: dict[int, Ticket] = {}
        self._numbers: dict[tuple[int, int], int] = {}  # of tickets, by peer and request
        self._same: dict[str, dict[int, None]] = {}  # numbers of the tickets of a key
        self._joining: list[str] = []  # keys that are held now, some of whose tickets are still here
        self._waiting: Order
        self._count = 0
        self._reserved: dict[tuple[int, int], tuple[float, int]] = {}  # until when, for how many bytes
        self._lapses: deque[tuple[float, tuple[int, int]]] = deque()  # when reservations end
        self._going_on = False
        self._promised = 0  # bytes
        self._rate: float | None = None
        self._bucket: TokenBucket | None = None
        queue.handlers |= {Submit: self.submit, SubmitMany: self.submit_many, LetIn: self.go_on}
        self.configure()

    def configure(self) -> None:
        """Take up the queue's settings, new or changed."""
        rule = self.queue.settings.admission
        rate = rule.rate_limit
        self._limited = not (rule.max_depth is rule.max_bytes is rate is None)
        if rate != self._rate:
            self._rate = rate
            self._bucket = TokenBucket(rate) if rate is not None else None
        if not self._tickets:
            kind = "priority" if self.queue.settings.kind == "priority" else "fifo"
            self._waiting = make_order(kind)

    @property
    def blocked(self) -> int:
        """How many submitters wait for room."""
        return len(self._tickets)

    def submit(self, message: Submit, peer: Peer) -> None:
        """Admit one invocation, or say why not."""
        plain = not (message.ticket or self._limited or message.again or message.call.key)
        if plain and message.id not in self.queue.space.live and self.refuses(message) is None:
            self.queue.admit(message)
            self.engine.emit(peer, Accepted(message.req, message.id))
            return
        if message.again or message.call.key:
            self._begin(message.call.key)
            self._look(message, lambda found: self._one(message, peer, found))
        else:
            self._one(message, peer, None)

    def submit_many(self, message: SubmitMany, peer: Peer) -> None:
        """Admit several in order, up to the first that has to wait for room."""
        many = Many(message, peer)
        for item in message.items:
            self._begin(item.call.key)

        def found(index: int, what: Found) -> None:
            many.found[index] = what
            many.left -= 1
            if many.left == 0:
                self._several(many)

        for index, item in enumerate(message.items):
            self._look(item, partial(found, index))

    def drop(self, message: Drop, peer: Outlet) -> None:
        """A submitter has stopped waiting for room."""
        number = self._numbers.get((id(peer), message.req))
        if number is not None:
            self._waiting.discard(number, self._take(number).priority)
            self.let_in()  # it may have stood in the way of smaller ones
        elif self._free((id(peer), message.req)):
            self.let_in()

    def let_in(self) -> None:
        """Give turns to those who wait, as far as there is room."""
        for _ in range(_STEP):
            number = self._waiting.pop()
            if number is None:
                return
            if self.queue.state not in ADMITS or self.queue.removing:
                self._turn_away(number)
                continue
            ticket = self._tickets[number]
            why = self._verdict(ticket.size, None)
            if not why and self._bucket is not None and not self._bucket.take(self.engine.now):
                self.queue.call_at(self.engine.now + self._bucket.wait(self.engine.now))
                why = "rate_limit"
            if why and why != "size":
                self._waiting.push(number, ticket.priority)  # in its old place
                return
            key = (id(ticket.peer), ticket.req)
            self._take(number)
            if why:
                self.engine.emit(ticket.peer, refusal(ticket.req, self._full(why, ticket.size)))
                continue
            until = self.engine.now + _RESERVED
            self._redeem(key)  # a peer that asked twice has one place
            self._reserved[key] = (until, ticket.size)
            self._promised += ticket.size
            self._lapses.append((until, key))
            self.queue.call_at(until)
            self.engine.emit(ticket.peer, Turn(ticket.req))
        if self._tickets:
            self._go_on_later()

    def tick(self) -> None:
        """Free reservations whose payload did not come."""
        for _ in range(_STEP):
            if not self._lapses or self._lapses[0][0] > self.engine.now:
                break
            until, key = self._lapses.popleft()
            if self._reserved.get(key, (0.0, 0))[0] == until:
                self._free(key)
        else:
            self._go_on_later()
        if self._lapses and self._lapses[0][0] > self.engine.now:
            self.queue.call_at(self._lapses[0][0])
        self.let_in()

    def go_on(self, message: LetIn, sender: object) -> None:
        """A turn was not enough for all who wait."""
        self._going_on = False
        joining, self._joining = self._joining, []
        for key in joining:
            self.join(key)
        self.tick()

    def _go_on_later(self) -> None:
        if not self._going_on:
            self._going_on = True
            self.engine.tell(self.queue, LetIn())

    # keys

    def forget_key(self, key: str, id: bytes, *, stored: bool = True) -> None:
        """An invocation leaves memory, and its key with it; `stored`: the store has the key."""
        held = self.keys.get(key)
        if held is not None and held[0] == id:
            del self.keys[key]
            if stored and key in self._undecided:
                self._former[key] = held

    def _begin(self, key: str) -> None:
        """A submit of a key is looked up. Until it is decided, holders that leave memory are noted:
        what was found of the key may be older than they are."""
        if key:
            self._undecided[key] = self._undecided.get(key, 0) + 1

    def _decided(self, key: str) -> None:
        if key:
            left = self._undecided.pop(key) - 1
            if left:
                self._undecided[key] = left
            else:
                self._former.pop(key, None)

    def _look(self, message: Submit, then: Callable[[Found], None]) -> None:
        """Ask the store what it knows of a submit, where memory does not tell."""
        if not message.again:
            self._look_up(message.call.key, then)
            return

        def stored(row: InvocationRow | Missing | BaseException) -> None:
            if isinstance(row, Missing) and message.id not in self.queue.space.live:
                self._look_up(message.call.key, then)
            else:
                then(row)

        self.engine.read(self.queue, GetInvocation(self.queue.space.name, message.id), stored)

    def _look_up(self, key: str, then: Callable[[Found], None]) -> None:
        """Who holds a key; one read is in flight for each."""
        if not key or key in self.keys:
            then(None)
            return
        waiting = self._reading.setdefault(key, [])
        waiting.append(then)
        if len(waiting) == 1:
            query = GetKey(self.queue.space.name, self.queue.id, key)
            self.engine.read(self.queue, query, lambda row: self._looked_up(key, row))

    def _looked_up(self, key: str, row: KeyRow | BaseException | None) -> None:
        for then in self._reading.pop(key):
            then(row)

    def _one(self, message: Submit, peer: Peer, found: Found) -> None:
        reply = self._decide(message, peer, found)
        if message.again or message.call.key:
            self._decided(message.call.key)
        if reply is not None:
            (self.engine.send if _at_once(reply) else self.engine.emit)(peer, reply)
        elif self._wait(message, peer):
            self.engine.emit(peer, Blocked(message.req))

    def _several(self, many: Many) -> None:
        message, peer = many.message, many.peer
        results: list[Accepted | Refusal] = []
        blocked = False
        for item, found in zip(message.items, many.found, strict=True):
            reply = self._decide(item, peer, found)
            if reply is None:
                blocked = self._wait(item, peer)
                break
            results.append(reply)
        for item in message.items:
            self._decided(item.call.key)
        answer = SubmittedMany(message.req, tuple(results), blocked, message.items[0].id)
        (self.engine.send if results and all(map(_at_once, results)) else self.engine.emit)(peer, answer)

    def _known(self, message: Submit, peer: Peer, id: bytes, digest: bytes) -> Accepted | Refusal:
        if (message.ticket or message.again) and self._free(_key(peer, message)):
            self.let_in()
        same = digest == message.digest
        if same or not message.strict:
            return Accepted(message.req, id, True, same)
        text = text_of(id)
        error = KeyConflict(
            f"key {message.call.key!r} is held by {text}, submitted with another function or other "
            "arguments: use another key, or submit without _strict_key to get that id",
            id=text,
        )
        return refusal(message.req, error)

    # admission

    def _decide(self, message: Submit, peer: Peer, found: Found) -> Accepted | Refusal | None:
        """The answer to a submit, of which the store knows what was `found`; None: it has to wait."""
        queue, key = self.queue, message.call.key
        if isinstance(found, BaseException):
            return refusal(message.req, store_failed(found))
        if message.again and (isinstance(found, InvocationRow) or message.id in queue.space.live):
            return Accepted(message.req, message.id)
        holder = self.keys.get(key) or self._former.get(key) if key else None
        if holder is not None:
            return self._known(message, peer, *holder)
        if isinstance(found, KeyRow):
            return self._known(message, peer, found.id, found.digest)
        error = self.refuses(message)
        if error is None and message.id in queue.space.live:
            error = Conflict(f"{text_of(message.id)} is submitted already: each submit makes its own id")
        reserved = (message.ticket or message.again) and self._redeem(_key(peer, message))
        if error is None and not reserved and self._limited:
            size, rule = len(message.call.args or b""), queue.settings.admission
            if self._tickets and rule.on_full == "block":
                return None  # others wait already
            why = self._verdict(size, self._bucket)
            if why and why != "size" and rule.on_full == "block":
                return None
            if why:
                error = self._full(why, size)
        if error is not None:
            return refusal(message.req, error)
        queue.admit(message)
        return Accepted(message.req, message.id)

    def refuses(self, message: Submit) -> Refused | None:
        queue, engine = self.queue, self.engine
        if queue.state in ADMITS and not (queue.removing or engine.store_error or engine.store.full):
            args = message.call.args
            why = self.queue.space.depot.refuses(args) if args and args[0] != PAIR else ""
            return BadRequest(why) if why else None
        if queue.removing:
            return QueueClosed(f"queue {queue.name!r} is being removed: submit to another")
        if queue.state not in ADMITS:
            return QueueClosed(
                f"queue {queue.name!r} is {queue.state} and admits nothing: unarchive it, or submit to "
                "another"
            )
        if why := self.engine.refusing():
            return StoreFailed(f"not accepted: {why}; try again later")
        return QueueFull(f"not accepted: {engine.store.full}", retry_after=None)

    def _verdict(self, size: int, bucket: TokenBucket | None) -> Reason:
        queue = self.queue
        return verdict(
            queue.settings.admission,
            depth=len(queue.backlog),
            reserved=len(self._reserved),
            bytes=queue.backlog.bytes + self._promised,
            size=size,
            bucket=bucket,
            now=self.engine.now,
        )

    def _full(self, why: Reason, size: int) -> QueueFull:
        queue, rule = self.queue, self.queue.settings.admission
        if why == "size":
            text = (
                f"the arguments take {size} bytes, and queue {queue.name!r} holds at most "
                f"{rule.max_bytes} in all (max_bytes): raise it, or pass a path or a key instead"
            )
            return QueueFull(text, retry_after=None)
        if why == "rate_limit" and self._bucket is not None:
            wait = self._bucket.wait(self.engine.now)
            when = f"{wait:.2f}" if wait < 1e6 else f"{wait:.1e}"
            text = f"queue {queue.name!r} takes {rule.rate_limit:g} submits a second: try again in {when} s"
            return QueueFull(text, retry_after=wait)
        wait = queue.reports.seconds_per_job()
        hint = f"in about {wait:.1f} s" if wait is not None else "later"
        text = (
            f"queue {queue.name!r} is full ({why} {getattr(rule, why)}, {len(queue.backlog)} queued): try "
            f"again {hint}, raise the limit, or set on_full=block"
        )
        return QueueFull(text, retry_after=wait)

    def _wait(self, message: Submit, peer: Peer) -> bool:
        """Give the submitter a ticket, unless it has gone meanwhile."""
        if message.req not in peer.open:
            return False
        if _key(peer, message) in self._numbers:
            return True  # its link broke: it asks again, in its old place
        self._count += 1
        self._tickets[self._count] = Ticket(peer, message)
        self._numbers[_key(peer, message)] = self._count
        if message.call.key:
            self._same.setdefault(message.call.key, {})[self._count] = None
        self._waiting.push(self._count, message.priority)
        if self._bucket is not None:
            self.queue.call_at(self.engine.now + self._bucket.wait(self.engine.now))
        return True

    def _take(self, number: int) -> Ticket:
        """A ticket that waits no more."""
        ticket = self._tickets.pop(number)
        del self._numbers[id(ticket.peer), ticket.req]
        if ticket.key:
            same = self._same[ticket.key]
            del same[number]
            if not same:
                del self._same[ticket.key]
        return ticket

    def join(self, key: str) -> None:
        """A key is held now: who waited for room with it needs none, and has a turn to be told so."""
        for number in list(islice(self._same.get(key, ()), _STEP)):
            ticket = self._take(number)
            self._waiting.discard(number, ticket.priority)
            self.engine.emit(ticket.peer, Turn(ticket.req))
        if key in self._same:
            self._joining.append(key)
            self._go_on_later()

    def _redeem(self, key: tuple[int, int]) -> bool:
        """Take up a reservation, if it is still there."""
        until, size = self._reserved.pop(key, (0.0, 0))
        self._promised -= size
        return until > 0.0

    def _free(self, key: tuple[int, int]) -> bool:
        """Give up a reservation: its place and its token are free again."""
        redeemed = self._redeem(key)
        if redeemed and self._bucket is not None:
            self._bucket.give_back()
        return redeemed

    def _turn_away(self, number: int) -> None:
        """Tell one who waits that nothing is admitted any more."""
        ticket = self._take(number)
        error = QueueClosed(
            f"queue {self.queue.name!r} is {self.queue.state} now and admits nothing: submit to another"
        )
        self.engine.emit(ticket.peer, refusal(ticket.req, error))
        if not self._tickets:
            self.configure()


def _key(peer: Outlet, message: Submit) -> tuple[int, int]:
    return id(peer), message.req


def _at_once(reply: Accepted | Refusal) -> bool:
    """Whether an answer waits for nothing: the store can't be written, and may not be for long."""
    return isinstance(reply, Refusal) and reply.kind == "StoreFailed"
