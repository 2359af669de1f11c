"""What clients, workers and a head say to each other. Tags never change; new fields need a default.

`req` numbers a client's requests; the answer carries the same number. Ids are 16 bytes, arguments,
results and frames are bytes that only the two ends look into. Times are seconds.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from .rows import Call, Failure, FunctionRow, InvocationRow


class Request(Struct, frozen=True, array_like=True, gc=False):
    """What a client asks of its head."""

    req: int


class Submit(Request, frozen=True, array_like=True, gc=False, tag=1):
    """Admit one invocation, whose id the client has made.

    `delay` and `deadline` are seconds from now. `ticket`: the answer to a `Turn`. `again`: this
    was sent before and may be stored already. `function` brings a pickled body along once.
    """

    id: bytes
    queue: str
    call: Call
    priority: float = 0.0
    digest: bytes = b""
    strict: bool = False
    delay: float | None = None
    deadline: float | None = None
    ticket: bool = False
    again: bool = False
    function: FunctionRow | None = None


class SubmitMany(Request, frozen=True, array_like=True, gc=False, tag=2):
    """Admit several in order; answered by `SubmittedMany`. Each item carries this `req`."""

    items: tuple[Submit, ...]


class Wait(Request, frozen=True, array_like=True, gc=False, tag=3):
    """Answer with an `Outcome` once the invocation is terminal."""

    id: bytes


class Get(Request, frozen=True, array_like=True, gc=False, tag=4):
    """Describe one invocation at once."""

    id: bytes


class Kill(Request, frozen=True, array_like=True, gc=False, tag=5):
    """Kill a queued invocation, or with `running` a running one too."""

    id: bytes
    running: bool = False


class Retry(Request, frozen=True, array_like=True, gc=False, tag=6):
    """Submit a terminal invocation anew, under `new_id`."""

    id: bytes
    new_id: bytes


class Follow(Request, frozen=True, array_like=True, gc=False, tag=7):
    """Send the frames of an invocation from `since` on: no more frames than `credit`, and no more
    bytes than `room` (or one chunk), ahead of what `Credit` gives back."""

    id: bytes
    since: int
    credit: int
    room: int = 1 << 62


class FollowTopic(Request, frozen=True, array_like=True, gc=False, tag=8):
    """The same of a topic, which need not exist yet."""

    name: str
    since: int
    credit: int
    room: int = 1 << 62


class Credit(Request, frozen=True, array_like=True, gc=False, tag=9):
    """`frames` of an open stream were consumed, and with them all `size` bytes of their chunks."""

    frames: int
    size: int = 0


class Drop(Request, frozen=True, array_like=True, gc=False, tag=10):
    """Nobody waits for this request any more. `id` is the invocation it was about, if any."""

    id: bytes = b""


class Post(Request, frozen=True, array_like=True, gc=False, tag=11):
    """Append one value to a topic, made on first use."""

    name: str
    at: float
    data: bytes


class CloseTopic(Request, frozen=True, array_like=True, gc=False, tag=12):
    """Write a topic's END."""

    name: str


class ListTopics(Request, frozen=True, array_like=True, gc=False, tag=13):
    """Every topic of the namespace."""


class RemoveTopic(Request, frozen=True, array_like=True, gc=False, tag=14):
    """Delete a topic and its frames."""

    name: str


class AddQueue(Request, frozen=True, array_like=True, gc=False, tag=20):
    """Create a queue; `settings` is checked already."""

    name: str
    settings: dict[str, Any]


class ListQueues(Request, frozen=True, array_like=True, gc=False, tag=21):
    """Queues in these states; none named: all but archived ones."""

    states: tuple[str, ...] = ()


class ShowQueue(Request, frozen=True, array_like=True, gc=False, tag=22):
    """One queue and its workers."""

    name: str


class PatchQueue(Request, frozen=True, array_like=True, gc=False, tag=23):
    """Change some settings."""

    name: str
    changes: dict[str, Any]


class ShiftQueue(Request, frozen=True, array_like=True, gc=False, tag=24):
    """drain, pause, resume, archive or unarchive."""

    name: str
    move: str


class RemoveQueue(Request, frozen=True, array_like=True, gc=False, tag=25):
    """Delete a queue; `force` unbinds its workers first."""

    name: str
    force: bool = False


class QueueStats(Request, frozen=True, array_like=True, gc=False, tag=26):
    """Current signals of a queue."""

    name: str


class ListJobs(Request, frozen=True, array_like=True, gc=False, tag=27):
    """Invocations newest first."""

    queue: str | None = None
    states: tuple[str, ...] = ()
    worker: bytes | None = None
    limit: int = 50
    offset: int = 0


class BulkCancel(Request, frozen=True, array_like=True, gc=False, tag=28):
    """Kill everything queued, in one queue or in all."""

    queue: str | None = None


class PruneJobs(Request, frozen=True, array_like=True, gc=False, tag=29):
    """Delete terminal invocations that ended more than `older_than` seconds ago (None: by each
    queue's own retention)."""

    older_than: float | None = None


class ListWorkers(Request, frozen=True, array_like=True, gc=False, tag=30):
    """Workers of the namespace; `ended` too if asked."""

    ended: bool = False


class Why(Request, frozen=True, array_like=True, gc=False, tag=31):
    """Why an invocation is where it is, in sentences."""

    id: bytes


# answers


class Reply(Struct, frozen=True, array_like=True, gc=False):
    """What a head answers to a request. `more`: another answer may follow."""

    more: ClassVar[bool] = False
    req: int


class More(Reply, frozen=True, array_like=True, gc=False):
    """An answer that another may follow. (A stream ends with its Drop.)"""

    more: ClassVar[bool] = True


class Accepted(Reply, frozen=True, array_like=True, gc=False, tag=40):
    """Admitted and stored. `known`: its key was taken, `id` holds it; `same`: with equal arguments."""

    id: bytes
    known: bool = False
    same: bool = True


class Refusal(Reply, frozen=True, array_like=True, gc=False, tag=41):
    """No. `kind` names an error class, `details` its fields."""

    kind: str
    message: str
    details: dict[str, Any] = {}


class SubmittedMany(Reply, frozen=True, array_like=True, gc=False, tag=42):
    """One answer an item, in order. `blocked`: those beyond wait for a `Turn`."""

    results: tuple[Accepted | Refusal, ...]
    blocked: bool = False

    @property
    def more(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether a turn follows."""
        return self.blocked


class Blocked(More, frozen=True, array_like=True, gc=False, tag=43):
    """The queue is full; a `Turn` follows when there is room."""


class Turn(More, frozen=True, array_like=True, gc=False, tag=44):
    """A place is reserved for 10 s: submit now, with `ticket` set."""


class Outcome(Reply, frozen=True, array_like=True, gc=False, tag=45):
    """How an invocation ended. `result` is None unless it succeeded."""

    id: bytes
    state: str
    attempt: int
    result: bytes | None = None
    error: Failure | None = None
    reason: str | None = None


class Answer(Reply, frozen=True, array_like=True, gc=False, tag=46):
    """Any other answer, as plain data."""

    value: Any = None


class Described(Reply, frozen=True, array_like=True, gc=False, tag=47):
    """Invocations with the names of their queues."""

    rows: tuple[tuple[InvocationRow, str], ...]


class Chunk(More, frozen=True, array_like=True, gc=False, tag=48):
    """Frames `seq … seq + count - 1` of a stream."""

    seq: int
    count: int
    attempt: int
    data: bytes


class StreamEnd(More, frozen=True, array_like=True, gc=False, tag=49):
    """Nothing follows. `outcome` is None for a topic; `next_seq` is the END's number."""

    next_seq: int
    outcome: Outcome | None = None


class StreamGap(More, frozen=True, array_like=True, gc=False, tag=50):
    """The frame asked for is not there; `first` is."""

    first: int


# workers


class Hello(Struct, frozen=True, array_like=True, gc=False, tag=60):
    """A worker registers. `process` is the mark of its process, by which bodies submitted from the
    same one are known; `limit` is how many invocations it will take in all (None: no limit);
    `quiet`: tell it when nothing is left that it may run."""

    worker: bytes
    name: str
    host: str
    pid: int
    queues: tuple[str, ...]
    follow_all: bool
    slots: int
    process: str = ""
    limit: int | None = None
    quiet: bool = False
    labels: dict[str, str] = {}
    versions: dict[str, str] = {}


class Began(Struct, frozen=True, array_like=True, gc=False, tag=61):
    """A body with a timeout has begun."""

    id: bytes
    attempt: int


class Frames(Struct, frozen=True, array_like=True, gc=False, tag=62):
    """Frames number `index …` of this attempt, packed."""

    id: bytes
    attempt: int
    index: int
    count: int
    data: bytes


class Ended(Struct, frozen=True, array_like=True, gc=False, tag=63):
    """A body is over: `move` says how, `retryable` whether its `retry_on` agrees, `after` the delay
    it asked for, `seconds` how long it ran."""

    id: bytes
    attempt: int
    move: str
    result: bytes | None = None
    error: Failure | None = None
    retryable: bool = False
    after: float | None = None
    seconds: float = 0.0
    reason: str | None = None


class GaveBack(Struct, frozen=True, array_like=True, gc=False, tag=64):
    """An attempt goes back to its queue, free. `begun`: its body had begun. `unresolved`: this
    worker can't find the function."""

    id: bytes
    attempt: int
    reason: str
    begun: bool = False
    unresolved: bool = False


class Kept(Struct, frozen=True, array_like=True, gc=False, tag=65):
    """The answer to `Reclaim` where the body has begun."""

    id: bytes
    attempt: int


class Drain(Struct, frozen=True, array_like=True, gc=False, tag=66):
    """Grant this worker nothing more."""


class Bye(Struct, frozen=True, array_like=True, gc=False, tag=67):
    """The worker holds nothing and ends."""


class Grant(Struct, frozen=True, array_like=True, gc=False, tag=80):
    """Run this attempt."""

    id: bytes
    attempt: int
    queue: str
    namespace: str
    call: Call
    args: bytes
    function: bytes | None = None


class Stop(Struct, frozen=True, array_like=True, gc=False, tag=81):
    """Cancel this attempt's body. `why`: kill, or stale (report nothing more)."""

    id: bytes
    attempt: int
    why: str


class Reclaim(Struct, frozen=True, array_like=True, gc=False, tag=82):
    """Give this attempt back unless its body has begun."""

    id: bytes
    attempt: int


class EndedAck(Struct, frozen=True, array_like=True, gc=False, tag=83):
    """An end is stored; the invocation is `state` now."""

    id: bytes
    attempt: int
    state: str


class FramesAck(Struct, frozen=True, array_like=True, gc=False, tag=84):
    """Frames of this attempt below `index` are stored."""

    id: bytes
    attempt: int
    index: int


class Quiet(Struct, frozen=True, array_like=True, gc=False, tag=85):
    """Nothing is queued that this worker may run."""
