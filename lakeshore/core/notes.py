"""What the head's own actors tell each other. These never leave the process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .messages import Exec, Grant, Hello, Retry, Submit
from .ports import Outlet
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


class Parted(Note, frozen=True, gc=False):
    """The link that was this outlet of a member is closed. An older one's end means nothing."""

    wire: Outlet


class Attach(Note, frozen=True, gc=False):
    """Space to member: your worker has come back, on this outlet."""

    hello: Hello
    wire: Outlet


class Attached(Note, frozen=True, gc=False):
    """To oneself: the queues have said what they know of the worker's attempts."""


class Overdue(Note, frozen=True, gc=False):
    """Leases to member: your time seems to be over; look."""


class Dead(Note, frozen=True, gc=False):
    """Space to member: the process of your worker has ended, and how."""

    reason: str


class Removal(Note, frozen=True, gc=False):
    """Space to member: your worker is removed, and what it runs is killed."""

    reason: str


class Farewell(Note, frozen=True, gc=False):
    """To oneself: the queues have killed what the worker had; now it may be told."""

    reason: str


class Resumed(Note, frozen=True, gc=False):
    """Member to queue: the worker of this grant has come back and holds it. It may have missed what
    it was told of it."""

    id: bytes
    attempt: int


class Revoked(Note, frozen=True, gc=False):
    """Member to queue: kill this grant, whose worker is removed."""

    id: bytes
    attempt: int
    reason: str


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


class Strays(Note, frozen=True, gc=False):
    """Objects for large values that lie in a storage, for so long that whoever has them is stored."""

    place: str
    names: tuple[str, ...]


class SweepTopics(Note, frozen=True, gc=False):
    """Archive to topics, and to oneself: drop a little of what is past its retention, in the topics
    named (None: in all)."""

    names: list[str] | None = None


class Parked(Note, frozen=True, gc=False):
    """Peer to space: a submit that names a queue the peer does not know."""

    request: Submit | Any


class Used(Note, frozen=True, gc=False):
    """To the office: somebody came in with this token."""

    hash: bytes


class Show(Note, frozen=True, gc=False):
    """To the space: describe a worker, once it has heard what was told to it before."""

    req: int
    member: Member


class Start(Note, frozen=True, gc=False):
    """Space to parents: the daemon that a command is to run on is found."""

    request: Exec
    member: Member


class Dismissed(Note, frozen=True, gc=False):
    """Space to parents: this worker was removed."""

    worker: bytes
    reason: str
