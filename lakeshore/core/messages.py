"""What clients, workers and a head say to each other. Tags never change; new fields need a default.

`req` numbers a client's requests; the answer carries the same number. Ids are 16 bytes, arguments,
results and frames are bytes that only the two ends look into. Times are seconds.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from .rows import Call, Failure, FunctionRow, InvocationRow, Progress


class Request(Struct, frozen=True, array_like=True, gc=False):
    """What a client asks of its head.

    Attributes:
        role: who may ask: "read", "submit", "admin" (of the namespace) or "plane" (of all of them).
        resent: whether it may be sent again after its link broke, as it does no harm twice.
        waits: whether it may stay unanswered for long.
    """

    role: ClassVar[str] = "admin"
    resent: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    req: int


class Submit(Request, frozen=True, array_like=True, gc=False, tag=1):
    """Admit one invocation, whose id the client has made.

    `delay` and `deadline` are seconds from now. `ticket`: the answer to a `Turn`. `again`: this
    was sent before and may be stored already. `function` brings a pickled body along once.
    """

    role: ClassVar[str] = "submit"
    resent: ClassVar[bool] = True
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

    role: ClassVar[str] = "submit"
    resent: ClassVar[bool] = True
    items: tuple[Submit, ...]


class Wait(Request, frozen=True, array_like=True, gc=False, tag=3):
    """Answer with an `Outcome` once the invocation is terminal."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    id: bytes


class Get(Request, frozen=True, array_like=True, gc=False, tag=4):
    """Describe one invocation at once."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    id: bytes


class Kill(Request, frozen=True, array_like=True, gc=False, tag=5):
    """Kill a queued invocation, or with `running` a running one too."""

    role: ClassVar[str] = "submit"
    resent: ClassVar[bool] = True
    id: bytes
    running: bool = False


class Retry(Request, frozen=True, array_like=True, gc=False, tag=6):
    """Submit a terminal invocation anew, under `new_id`. `again`: this was sent before."""

    role: ClassVar[str] = "submit"
    resent: ClassVar[bool] = True
    id: bytes
    new_id: bytes
    again: bool = False


class Follow(Request, frozen=True, array_like=True, gc=False, tag=7):
    """Send the frames of an invocation from `since` on: no more frames than `credit`, and no more
    bytes than `room` (or one chunk), ahead of what `Credit` gives back."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    id: bytes
    since: int
    credit: int
    room: int = 1 << 62


class FollowTopic(Request, frozen=True, array_like=True, gc=False, tag=8):
    """The same of a topic, which need not exist yet."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    name: str
    since: int
    credit: int
    room: int = 1 << 62


class Credit(Request, frozen=True, array_like=True, gc=False, tag=9):
    """`frames` of an open stream were consumed, and with them all `size` bytes of their chunks."""

    role: ClassVar[str] = "read"
    frames: int
    size: int = 0


class Drop(Request, frozen=True, array_like=True, gc=False, tag=10):
    """Nobody waits for this request any more. `id` is the invocation it was about, if any."""

    role: ClassVar[str] = "read"
    id: bytes = b""


class Post(Request, frozen=True, array_like=True, gc=False, tag=11):
    """Append one value to a topic, made on first use.

    A `publisher` that may have to send again numbers its posts, and says below which number it knows
    every answer."""

    role: ClassVar[str] = "submit"
    resent: ClassVar[bool] = True
    name: str
    at: float
    data: bytes
    publisher: bytes = b""
    number: int = 0
    settled: int = 0


class CloseTopic(Request, frozen=True, array_like=True, gc=False, tag=12):
    """Write a topic's END."""

    role: ClassVar[str] = "submit"
    resent: ClassVar[bool] = True
    name: str


class ListTopics(Request, frozen=True, array_like=True, gc=False, tag=13):
    """Every topic of the namespace."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True


class RemoveTopic(Request, frozen=True, array_like=True, gc=False, tag=14):
    """Delete a topic and its frames."""

    name: str


class FollowLogs(Request, frozen=True, array_like=True, gc=False, tag=15):
    """Send the log lines of an invocation from number `since` on, as `Follow` does frames. Its
    `StreamEnd` comes after those that are stored now, or with `follow` at the end of the invocation."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    id: bytes
    since: int
    credit: int
    room: int = 1 << 62
    follow: bool = False


class AddQueue(Request, frozen=True, array_like=True, gc=False, tag=20):
    """Create a queue; `settings` is checked already."""

    name: str
    settings: dict[str, Any]


class ListQueues(Request, frozen=True, array_like=True, gc=False, tag=21):
    """Queues in these states; none named: all but archived ones."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    states: tuple[str, ...] = ()


class ShowQueue(Request, frozen=True, array_like=True, gc=False, tag=22):
    """One queue and its workers."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
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

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    name: str


class ListJobs(Request, frozen=True, array_like=True, gc=False, tag=27):
    """Invocations newest first, those below the id `before`. `worker_name` is the name or id of a worker."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    queue: str | None = None
    states: tuple[str, ...] = ()
    worker: bytes | None = None
    limit: int = 50
    offset: int = 0
    worker_name: str = ""
    before: bytes | None = None


class BulkCancel(Request, frozen=True, array_like=True, gc=False, tag=28):
    """Kill everything queued, in one queue or in all."""

    role: ClassVar[str] = "submit"
    queue: str | None = None


class PruneJobs(Request, frozen=True, array_like=True, gc=False, tag=29):
    """Delete terminal invocations that ended more than `older_than` seconds ago (None: by each
    queue's own retention)."""

    older_than: float | None = None


class ListWorkers(Request, frozen=True, array_like=True, gc=False, tag=30):
    """Workers of the namespace; `ended` too if asked."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    ended: bool = False


class Why(Request, frozen=True, array_like=True, gc=False, tag=31):
    """Why an invocation is where it is, in sentences."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    id: bytes


class ShowWorker(Request, frozen=True, array_like=True, gc=False, tag=32):
    """One worker, by id or name; also one that has ended."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    name: str


class DrainWorker(Request, frozen=True, array_like=True, gc=False, tag=33):
    """Have a worker take nothing more, and end once its bodies have ended."""

    name: str


class RemoveWorker(Request, frozen=True, array_like=True, gc=False, tag=34):
    """End a worker now: its work is killed."""

    name: str


class QueueEvents(Request, frozen=True, array_like=True, gc=False, tag=35):
    """Decisions about a queue, newest first; those that did nothing only if `verbose`."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    name: str
    limit: int = 50
    verbose: bool = False


class Status(Request, frozen=True, array_like=True, gc=False, tag=36):
    """What the plane is and how much goes on in it."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True


class CreateToken(Request, frozen=True, array_like=True, gc=False, tag=37):
    """Let in whoever shows the text that has this SHA-256. An empty `namespace` is the asker's own."""

    hash: bytes
    token_role: str
    namespace: str = ""
    name: str = ""


class ListTokens(Request, frozen=True, array_like=True, gc=False, tag=38):
    """Tokens of a namespace, without their texts; empty: of all that the asker may see."""

    resent: ClassVar[bool] = True
    namespace: str = ""


class RemoveToken(Request, frozen=True, array_like=True, gc=False, tag=39):
    """Revoke a token, by id or name."""

    name: str


class AddProvider(Request, frozen=True, array_like=True, gc=False, tag=51):
    """Create a provider. `max`: daemons at once (None: no limit)."""

    role: ClassVar[str] = "plane"
    name: str
    kind: str
    config: dict[str, Any] = {}
    max: int | None = None


class ListProviders(Request, frozen=True, array_like=True, gc=False, tag=52):
    """Every provider of the plane."""

    resent: ClassVar[bool] = True


class ShowProvider(Request, frozen=True, array_like=True, gc=False, tag=53):
    """One provider, by id or name."""

    resent: ClassVar[bool] = True
    name: str


class PatchProvider(Request, frozen=True, array_like=True, gc=False, tag=54):
    """Change `max` or the whole `config` of a provider."""

    role: ClassVar[str] = "plane"
    name: str
    changes: dict[str, Any]


class RemoveProvider(Request, frozen=True, array_like=True, gc=False, tag=55):
    """Delete a provider that no queue names."""

    role: ClassVar[str] = "plane"
    name: str


class ShowStorage(Request, frozen=True, array_like=True, gc=False, tag=56):
    """Where the files of a queue are by key, or of the namespace where none is named, and which folder there
    is for large values."""

    role: ClassVar[str] = "read"
    resent: ClassVar[bool] = True
    queue: str = ""


class SetStorage(Request, frozen=True, array_like=True, gc=False, tag=57):
    """Keep them in a folder, or at a URL; None: where the head says."""

    storage: str | None = None


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
    """One answer an item, in order. `blocked`: those beyond wait for a `Turn`. `first`: the id of the
    item that the first answer is to."""

    results: tuple[Accepted | Refusal, ...]
    blocked: bool = False
    first: bytes = b""

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


class Held(Struct, frozen=True, array_like=True, gc=False):
    """An attempt that a worker has. `begun`: its body has begun; what it holds and has not begun it
    gives back by leaving it out. `ended`: its end is known and follows. `index`: frames below it are
    stored."""

    id: bytes
    attempt: int
    begun: bool = True
    ended: bool = False
    index: int = 0


class Hello(Struct, frozen=True, array_like=True, gc=False, tag=60):
    """A worker registers. `process` is the mark of its process, by which bodies submitted from the
    same one are known; `limit` is how many invocations it will take in all (None: no limit);
    `quiet`: tell it when nothing is left that it may run. `leased`: it is in another process than its
    head, lives by a lease, and outlives broken links. `held` are the attempts that it has still,
    `again` says that it has registered before. `near`: it is in the head's own process just now, and
    no lease runs there. `daemon`: a parent process minds it."""

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
    leased: bool = False
    held: tuple[Held, ...] = ()
    again: bool = False
    provider: str | None = None
    near: bool = False
    daemon: bool = False


class Began(Struct, frozen=True, array_like=True, gc=False, tag=61):
    """A body with a timeout has begun, or one in process `pid`, which is not the worker's own."""

    id: bytes
    attempt: int
    pid: int = 0


class Frames(Struct, frozen=True, array_like=True, gc=False, tag=62):
    """Frames number `index …` of this attempt, packed. `away`: the references to large values in them."""

    id: bytes
    attempt: int
    index: int
    count: int
    data: bytes
    away: tuple[bytes, ...] = ()


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
    worker can't find the function; with `lacking`, because the pickle of it did not arrive."""

    id: bytes
    attempt: int
    reason: str
    begun: bool = False
    unresolved: bool = False
    lacking: bool = False


class Kept(Struct, frozen=True, array_like=True, gc=False, tag=65):
    """The answer to `Reclaim` where the body has begun."""

    id: bytes
    attempt: int


class Drain(Struct, frozen=True, array_like=True, gc=False, tag=66):
    """Grant this worker nothing more."""


class Bye(Struct, frozen=True, array_like=True, gc=False, tag=67):
    """The worker holds nothing and ends."""


class Publish(Struct, frozen=True, array_like=True, gc=False, tag=68):
    """The files that this attempt wrote are to be seen under their keys; answered by `Cleared`, or by
    `Stop` where the attempt is not current any more."""

    id: bytes
    attempt: int


class Logged(Struct, frozen=True, array_like=True, gc=False, tag=69):
    """Log lines number `index …` of this attempt, packed."""

    id: bytes
    attempt: int
    index: int
    count: int
    data: bytes


class Progressed(Struct, frozen=True, array_like=True, gc=False, tag=70):
    """How far the body of this attempt is."""

    id: bytes
    attempt: int
    progress: Progress


class Grant(Struct, frozen=True, array_like=True, gc=False, tag=80):
    """Run this attempt. `storage`: where its files are by key; empty: under the worker's own root.
    `folder`: where in it large values are put."""

    id: bytes
    attempt: int
    queue: str
    namespace: str
    call: Call
    args: bytes
    function: bytes | None = None
    storage: str = ""
    folder: str = ""


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


class Registered(Struct, frozen=True, array_like=True, gc=False, tag=86):
    """The answer to a leased worker's `Hello`: it must be heard of at least every `lease` seconds. Of its
    queues, `missing` are not there; it serves them once they are added."""

    lease: float
    missing: tuple[str, ...] = ()


class PleaseDrain(Struct, frozen=True, array_like=True, gc=False, tag=87):
    """An operator, or a head that ends a queue's worker, asks it to drain."""


class Dismiss(Struct, frozen=True, array_like=True, gc=False, tag=88):
    """This worker is removed: its work is killed already. It cancels everything and ends."""

    reason: str


class Anew(Struct, frozen=True, array_like=True, gc=False, tag=89):
    """The head has given this worker up: what it held is another's now. If it lives, it registers
    again, with what it holds."""

    reason: str


class Serving(Struct, frozen=True, array_like=True, gc=False, tag=90):
    """The queues of this worker were changed: these it names from now on."""

    queues: tuple[str, ...]


class Cleared(Struct, frozen=True, array_like=True, gc=False, tag=91):
    """This attempt is the current one: its files may be published."""

    id: bytes
    attempt: int


# what keeps a leased worker alive


class Beat(Struct, frozen=True, array_like=True, gc=False, tag=92):
    """The process of `worker` lives. Sent on a link of its own, by whatever no body can stop."""

    worker: bytes


class Beaten(Struct, frozen=True, array_like=True, gc=False, tag=93):
    """The answer to a `Beat`. `known`: the head has this worker."""

    worker: bytes
    known: bool


class Died(Struct, frozen=True, array_like=True, gc=False, tag=94):
    """The process of `worker` has ended without a goodbye; `reason` says how ("killed by signal 9")."""

    worker: bytes
    reason: str


class LoggedAck(Struct, frozen=True, array_like=True, gc=False, tag=95):
    """Log lines of this attempt below `index` are stored."""

    id: bytes
    attempt: int
    index: int


# the first and the last on a link between processes; these never change but by new fields


class Knock(Struct, frozen=True, array_like=True, gc=False, tag=100):
    """The first message on a link. `protocol` is the sender's `PROTOCOL`, `version` its package's.

    `session` names the sender across its links; `purpose` is "client", "worker", "beat" or "daemon"
    (the parent of a daemon); `worker` whom it belongs to. An empty `namespace` is the token's own."""

    protocol: int
    version: str
    session: bytes
    purpose: str = "client"
    namespace: str = ""
    token: str = ""
    worker: bytes = b""
    host: str = ""
    pid: int = 0


class Welcome(Struct, frozen=True, array_like=True, gc=False, tag=101):
    """The head lets a link in. `plane` names the store, `head` this run of its host. `resumed`: the
    session is known here, and what it has asked is still open. `requests` and `room` (bytes) are how much
    may be unanswered, `waits` how many waits and streams may be open."""

    protocol: int
    version: str
    plane: str
    head: bytes
    namespace: str
    role: str
    resumed: bool
    lease: float
    payload_limit: int
    requests: int
    room: int
    waits: int
    local: bool = False


class Sorry(Struct, frozen=True, array_like=True, gc=False, tag=102):
    """The head ends a link. `kind` names an error class; where `retry_after` is given the other end may
    come back after so many seconds, else not."""

    kind: str
    message: str
    details: dict[str, Any] = {}
    retry_after: float | None = None


class Ping(Struct, frozen=True, array_like=True, gc=False, tag=103):
    """Is anybody there?"""


class Pong(Struct, frozen=True, array_like=True, gc=False, tag=104):
    """Yes."""


# commands on the machine of a daemon: its parent runs them, so that no body is in the way


class Exec(Request, frozen=True, array_like=True, gc=False, tag=120):
    """Run a command on the machine of the daemon called `name`; answered by `ExecOutput` and one `ExecEnd`.
    `credit` is how many bytes may be on their way; `Credit` gives some back, `Drop` kills the command."""

    waits: ClassVar[bool] = True
    name: str
    command: tuple[str, ...]
    credit: int


class ExecOutput(More, frozen=True, array_like=True, gc=False, tag=121):
    """What a command wrote to its stdout (1) or stderr (2)."""

    stream: int
    data: bytes


class ExecEnd(Reply, frozen=True, array_like=True, gc=False, tag=122):
    """A command is over: its exit status, or minus the signal that killed it. `error`: why it could not be
    run, or was given up."""

    status: int
    error: str = ""


class Minding(Struct, frozen=True, array_like=True, gc=False, tag=123):
    """The parent of a daemon: this link is mine, and `worker` my child, instead of any before it."""

    worker: bytes


class Execute(Struct, frozen=True, array_like=True, gc=False, tag=124):
    """Head to parent: run a command, and send at most `credit` bytes of output until there is a `Refill`."""

    exec: int
    command: tuple[str, ...]
    credit: int


class Refill(Struct, frozen=True, array_like=True, gc=False, tag=125):
    """Head to parent: so many more bytes of output."""

    exec: int
    size: int


class Terminate(Struct, frozen=True, array_like=True, gc=False, tag=126):
    """Head to parent: nobody waits for this command any more; kill it."""

    exec: int


class Output(Struct, frozen=True, array_like=True, gc=False, tag=127):
    """Parent to head: what a command wrote to its stdout (1) or stderr (2)."""

    exec: int
    stream: int
    data: bytes


class Exited(Struct, frozen=True, array_like=True, gc=False, tag=128):
    """Parent to head: a command is over, as in `ExecEnd`."""

    exec: int
    status: int
    error: str = ""


PROTOCOL = 1  # raised when an older end could misunderstand
