"""Who may come in to a head from outside: the right protocol, a token that is known, and not too many at
once. Sessions whose link broke keep their place for a while."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .actor import Actor, Wake
from .admission import TokenBucket
from .credit import Limits
from .errors import Busy, Forbidden, PayloadTooLarge, Refused, Unauthorized, VersionMismatch
from .guest import Guest
from .ids import text_of
from .messages import PROTOCOL, Knock, Sorry, Welcome
from .ports import Link
from .rows import MetaRow
from .vetting import vet

if TYPE_CHECKING:
    from .head import Head

PURPOSES = ("client", "worker", "beat", "daemon", "successor")
_HELLOS = 500.0  # links let in each second, and at once
_MOST = 20_000  # guests at the same time
_MOST_PARTED, _MOST_WAITING = 1000, 200_000  # sessions without a link, and what they have asked in all


class Entry(Struct):
    """What a token, or being on the same machine as the same user, opens. No namespace: all of them."""

    namespace: str | None
    role: str
    token: bytes = b""


OWNER = Entry(None, "plane")


def hash_of(token: str) -> bytes:
    """What a head stores of a token."""
    return sha256(token.encode("utf-8", "surrogatepass")).digest()


class Door(Actor):
    """Lets guests in.

    Args:
        head: whose guests they are.
        version: of this package, to be shown.
        identity: names this run of the head.
        payload_limit: bytes of one packed value.
        machine: the hash of the machine's own token, which opens everything.
        local: the plane is not one that `serve` opened.
        limits: what each guest may have unanswered.
    """

    def __init__(
        self,
        head: Head,
        *,
        version: str,
        identity: bytes,
        payload_limit: int,
        machine: bytes = b"",
        local: bool = True,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(head.engine)
        self.head, self.version, self.identity = head, version, identity
        self.payload_limit, self.machine, self.local = payload_limit, machine, local
        self.limits = limits or Limits()
        self.guests: dict[Guest, Callable[[Sorry], None]] = {}
        self._entries: dict[Guest, Entry] = {}
        self._sessions: dict[bytes, Guest] = {}
        self._parted: dict[Guest, float] = {}  # sessions without a link, and until when they are kept
        self._bucket = TokenBucket(_HELLOS)
        self._booked = 0.0  # until when those who were sent away have been told to stay away
        self.closing: Sorry | None = None
        self.leaving = False  # the plane ends: what comes from now on is not looked at
        self.handlers |= {Wake: self._on_wake}
        head.office.on_removed = self.revoke

    def knock(
        self, knock: Knock, link: Link, hang_up: Callable[[Sorry], None], *, trusted: bool
    ) -> tuple[Welcome, Guest]:
        """Let one link in, or raise the `Refused` that says why not.

        Args:
            hang_up: ends this very link with a last message.
            trusted: it comes from this user on this machine, or nobody needs a token there.
        """
        self._check(knock)
        entry = self._entry(knock, trusted)
        if knock.purpose == "successor":
            self._see(entry)
        namespace = self._namespace(knock, entry)
        if knock.purpose != "client" and entry.role not in ("work", "admin", "plane"):
            raise Forbidden(
                f"this token has the role {entry.role}, and a worker needs work: make one with "
                f"`lakeshore tokens create --role work`"
            )
        guest = self._sessions.get(knock.session)
        resumed = guest is not None and self._same(guest, entry, namespace)
        if guest is not None and not resumed:  # the same name with another token
            self._dismiss(guest, Sorry("Replaced", "the same session came in with another token"))
        if guest is None or not resumed:
            guest = Guest(
                self.engine,
                self.head.space(namespace),
                link,
                role=entry.role,
                limits=self.limits,
                payload_limit=self.payload_limit,
                cut=self.cut,
            )
            if knock.purpose == "client":
                self._sessions[knock.session] = guest
        else:
            former = self.guests.get(guest)
            guest.relink(link)
            if former is not None:  # its old link is still there, and of no more use
                former(Sorry("Replaced", "the same session came in by another link", retry_after=0.0))
        guest.session = knock.session
        guest.who = self._who(knock, entry)
        guest.token = entry.token
        self._parted.pop(guest, None)
        self.guests[guest] = hang_up
        self._entries[guest] = entry
        return self._welcome(namespace, entry, resumed), guest

    def left(self, guest: Guest, hang_up: Callable[[Sorry], None]) -> None:
        """One of a guest's links is gone; a client may come back within a lease."""
        if self.guests.get(guest) is not hang_up:
            return  # it has another one by now
        del self.guests[guest]
        if self._sessions.get(guest.session) is guest and guest.open:
            guest.unlinked()
            self._parted[guest] = self.engine.monotonic() + self.head.lease
            self.call_at(self._parted[guest])
            self._bound_parted()
        else:
            self._forget(guest)
            guest.closed()

    def _bound_parted(self) -> None:
        """Those that have been away for longest lose their place where too much waits for too many."""
        waiting = sum(len(guest.open) for guest in self._parted)
        while len(self._parted) > _MOST_PARTED or (waiting > _MOST_WAITING and len(self._parted) > 1):
            oldest = next(iter(self._parted))
            waiting -= len(oldest.open)
            self._forget(oldest)
            oldest.closed()

    def cut(self, guest: Guest, reason: str) -> None:
        """End the link of a guest that misbehaves."""
        self._dismiss(guest, Sorry("BadRequest", f"this link is cut: {reason}"))

    def revoke(self, token: bytes) -> None:
        """A token was removed: so are those who came in with it."""
        why = sorry(Unauthorized("this token was removed: log in with another one"))
        for guest in [guest for guest, entry in self._entries.items() if token and entry.token == token]:
            self._dismiss(guest, why)

    def _dismiss(self, guest: Guest, why: Sorry) -> None:
        """Send one away for good."""
        hang_up = self.guests.pop(guest, None)
        self._forget(guest)
        guest.closed()
        if hang_up is not None:
            hang_up(why)

    def close(self, why: Sorry) -> None:
        """Send everybody away, and nobody comes in any more."""
        self.closing = why
        guests, self.guests = self.guests, {}
        for guest, hang_up in guests.items():
            self._forget(guest)
            hang_up(why)

    @property
    def count(self) -> int:
        """How many are in."""
        return len(self.guests)

    def _see(self, entry: Entry) -> None:
        """Another process says that it has the store: if so, the next commit fails, and this head is over."""
        if entry.role == "plane":
            self.engine.batch.put(MetaRow("plane", self.head.plane))
            self.engine.touch(self)
            self.engine.tell(self, Wake())
        raise Busy("it is seen to", retry_after=0.0)

    def _check(self, knock: Knock) -> None:
        if self.leaving:
            raise Busy("this plane is about to end: come back a little later", retry_after=0.1)
        if self.closing is not None:
            raise Busy(self.closing.message, retry_after=self.closing.retry_after)
        if knock.protocol != PROTOCOL:
            older = "other end" if knock.protocol < PROTOCOL else "head"
            raise VersionMismatch(
                f"this head is Lakeshore {self.version} (protocol {PROTOCOL}), the other end "
                f"{_short(knock.version)} (protocol {knock.protocol}): upgrade the {older}"
            )
        complaint = vet(knock, self.payload_limit)
        if knock.purpose not in PURPOSES or len(knock.session) != 16 or complaint:
            raise Forbidden(f"this is no knock of a Lakeshore: {complaint or 'upgrade the other end'}")
        now = self.engine.monotonic()
        if len(self.guests) >= _MOST:
            raise Busy(f"this head has {_MOST} connections already: come back later", retry_after=5.0)
        if not self._bucket.take(now):
            self._booked = max(self._booked, now) + 1 / _HELLOS
            raise Busy(
                "too many come in at once: come back a little later", retry_after=self._booked - now + 0.1
            )

    def _entry(self, knock: Knock, trusted: bool) -> Entry:
        if not knock.token:
            if trusted:
                return OWNER
            raise Unauthorized(
                "this head asks for a token: run `lakeshore login`, set LAKESHORE_TOKEN, or pass token="
            )
        hash = hash_of(knock.token)
        if self.machine and hash == self.machine:
            return OWNER
        row = self.head.office.token(hash)
        if row is not None:
            return Entry(row.namespace, row.role, row.id)
        raise Unauthorized(
            "this head does not know this token (it may have been removed): log in with another"
        )

    def _namespace(self, knock: Knock, entry: Entry) -> str:
        if entry.namespace is None:
            return knock.namespace or "default"
        if knock.namespace and knock.namespace != entry.namespace:
            raise Forbidden(
                f"this token is for namespace {entry.namespace!r}, not for {_short(knock.namespace)!r}: name "
                "its own (--namespace, LAKESHORE_NAMESPACE), or use a token of that one"
            )
        return entry.namespace

    def _same(self, guest: Guest, entry: Entry, namespace: str) -> bool:
        known = self._entries.get(guest)
        return known == entry and guest.space.name == namespace

    def _welcome(self, namespace: str, entry: Entry, resumed: bool) -> Welcome:
        limits = self.limits
        return Welcome(
            PROTOCOL,
            self.version,
            self.head.plane,
            self.identity,
            namespace,
            entry.role,
            resumed,
            self.head.lease,
            self.payload_limit,
            limits.requests,
            limits.bytes,
            limits.waits,
            self.local,
        )

    def _who(self, knock: Knock, entry: Entry) -> str:
        row = self.head.office.token_of(entry.token)
        if row is None:
            whose = "the head's own user"
        else:
            whose = f"token {row.name or text_of(row.id)} ({entry.role} of {entry.namespace})"
        return f"{whose} at {_short(knock.host) or '?'} (pid {knock.pid})"

    def _forget(self, guest: Guest) -> None:
        self._parted.pop(guest, None)
        self._entries.pop(guest, None)
        if self._sessions.get(guest.session) is guest:
            del self._sessions[guest.session]

    def _on_wake(self, message: Wake, sender: Any) -> None:
        now = self.engine.now
        for guest, until in list(self._parted.items()):
            if until <= now:
                self._forget(guest)
                guest.closed()
        if self._parted:
            self.call_at(min(self._parted.values()))


def sorry(error: Exception) -> Sorry:
    """The last message of a link, from the error that ends it."""
    if isinstance(error, Refused):
        retry_after = getattr(error, "retry_after", None)
        details = {name: value for name, value in error.details().items() if name != "retry_after"}
        return Sorry(type(error).__name__, str(error), details, retry_after)
    if isinstance(error, PayloadTooLarge):
        return Sorry("BadRequest", str(error))
    return Sorry("InternalError", f"a bug in Lakeshore met this link, {type(error).__name__}: {error}")


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
