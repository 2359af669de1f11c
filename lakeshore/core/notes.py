"""What the head's own actors tell each other. These never leave the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .messages import Grant, Retry, Submit
from .rows import InvocationRow

if TYPE_CHECKING:
    from .member import Member
    from .queue import Queue


class Note(Struct, frozen=True, gc=False):
    """Base of internal messages."""


class Ready(Note, frozen=True, gc=False):
    """Queue to member: something is claimable."""


class Take(Note, frozen=True, gc=False):
    """Member to queue: claim at most `n` for me; 0 only says that I have no room now."""

    n: int
    only: bytes | None = None


class Took(Note, frozen=True, gc=False):
    """Queue to member: what was claimed, of `asked`. `pending` (id, attempt) follow as `Late`;
    `retrying`: more comes after retry delays."""

    grants: tuple[Grant, ...]
    asked: int
    pending: tuple[tuple[bytes, int], ...] = ()
    retrying: bool = False
    only: bytes | None = None


class Late(Note, frozen=True, gc=False):
    """Queue to member: a claimed grant whose arguments had to be read first; None: give it up."""

    id: bytes
    grant: Grant | None


class Bound(Note, frozen=True, gc=False):
    """Space to member: this queue is yours too."""

    queue: Queue


class Unbound(Note, frozen=True, gc=False):
    """Space to member: this queue is yours no more."""

    queue: Queue


class Join(Note, frozen=True, gc=False):
    """Space to queue: a worker serves you."""

    member: Member


class Leave(Note, frozen=True, gc=False):
    """Space to queue: a worker serves you no more."""

    member: Member


class Gone(Note, frozen=True, gc=False):
    """The link of a peer or member is closed."""


class Returned(Note, frozen=True, gc=False):
    """Member to queue: a grant comes back without an end."""

    id: bytes
    attempt: int
    reason: str
    lost: bool = False


class Settled(Note, frozen=True, gc=False):
    """Queue to member: an end was dealt with. `following`: the invocation waits for a retry."""

    id: bytes
    following: bool = False


class Offer(Note, frozen=True, gc=False):
    """Queue to member: the invocation you follow is claimable again."""

    id: bytes


class Unpinned(Note, frozen=True, gc=False):
    """Queue to member: the invocation you follow is somebody else's now, or over."""

    id: bytes


class Settle(Note, frozen=True, gc=False):
    """To oneself, after a commit: `gone` may leave memory, `large` need not keep their arguments."""

    gone: tuple[bytes, ...]
    large: tuple[bytes, ...]


class LetIn(Note, frozen=True, gc=False):
    """To oneself: go on with the submitters who wait for room."""


class CancelSome(Note, frozen=True, gc=False):
    """To oneself: go on killing what is queued. `then` is told the total."""

    then: Any
    reason: str
    count: int = 0


class Again(Note, frozen=True, gc=False):
    """Archive to queue: submit a stored terminal invocation anew."""

    request: Retry
    row: InvocationRow
    args: bytes
    digest: bytes = b""


class SweepTopics(Note, frozen=True, gc=False):
    """Archive to topics, and to oneself: drop a little of what is past its retention, in the topics
    named (None: in all)."""

    names: list[str] | None = None


class Parked(Note, frozen=True, gc=False):
    """Peer to space: a submit that names a queue the peer does not know."""

    request: Submit | Any
