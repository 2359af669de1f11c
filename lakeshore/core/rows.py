"""What a store keeps: one Struct a table, immutable once handed over, and batches of them.

Ids are 16 bytes. Times are wall-clock seconds since 1970. Every row of an invocation or of its
journal carries its namespace and queue, so that one day a queue can be moved as a whole.
"""

from __future__ import annotations

from typing import Any, cast

from msgspec import Struct, field

from .states import State


class Failure(Struct, frozen=True, array_like=True):
    """An exception as data. `leaves` are the members of an exception group, flattened."""

    type: str
    message: str
    traceback: str = ""
    notes: tuple[str, ...] = ()
    cause: Failure | None = None
    leaves: tuple[Failure, ...] = ()

    @property
    def headline(self) -> str:
        """The real error in one line: of a group, its first member."""
        if len(self.leaves) == 0:
            return f"{self.type}: {self.message}" if self.message else self.type
        more = f" (and {len(self.leaves) - 1} more)" if len(self.leaves) > 1 else ""
        return self.leaves[0].headline + more


class Function(Struct, frozen=True, array_like=True):
    """How a worker finds a body.

    `local` names the object inside the process that submitted it, `ref` is `module:qualname`
    where that imports to the very same body, `value` is the content hash of its pickle otherwise,
    which only the same `python` ("3.11") can read.
    """

    name: str
    local: str = ""
    ref: str = ""
    value: bytes = b""
    source: bytes = b""
    python: str = ""


class Options(Struct, frozen=True, array_like=True, dict=True):
    """What a body asks for at every call; one object shared by all its invocations.

    Beside its fields, which are stored, it may hold the body object itself (`keep`), so that this
    lives in its process for as long as an invocation of it is kept there.
    """

    function: Function
    kind: str = "sync"
    timeout: float | None = None
    retries: int = 0
    retry_delay: float = 1.0
    retry_cap: float = 300.0
    runner: str = ""  # "inline" or "process"; empty: as the worker is

    def keep(self, body: object) -> None:
        """Hold a body object; this is never stored and never compared."""
        cast(dict[str, object], self.__dict__)["body"] = body


class Call(Struct, frozen=True, array_like=True, gc=False):
    """The part of an invocation that never changes. `args` is None where they are a `BlobRow`."""

    options: Options
    args: bytes | None = None
    prefix: str = ""
    key: str = ""
    parent: bytes | None = None
    retry_of: bytes | None = None


class Attempt(Struct, frozen=True, array_like=True, gc=False):
    """One claim by a worker. `outcome` is what ended it, None while it lasts."""

    number: int
    worker: bytes
    started_at: float
    ended_at: float | None = None
    outcome: str | None = None
    reason: str | None = None
    pid: int = 0


class Progress(Struct, frozen=True, array_like=True, gc=False):
    """How far a body is, as it has said at `at`. `total` is None where it does not know."""

    done: int | float
    total: int | float | None
    at: float
    text: str = ""


class Record(Struct, frozen=True, array_like=True, gc=False):
    """The part of an invocation that changes. `result` is None where it is a `BlobRow`.

    `args_size` counts the arguments also where they are one. `frames` and `lines` (of its log) are all
    there are, while it runs those of earlier attempts. `claimable_at` is from when a cut-off
    counts (None: from `submitted_at`): an attempt moves it on by as long as it took.
    """

    submitted_at: float
    priority: float = 0.0
    ready_at: float | None = None
    deadline: float | None = None
    attempt: int = 0
    attempts: tuple[Attempt, ...] = ()
    retries: int = 0
    losses: int = 0
    killing: bool = False
    ended_at: float | None = None
    result: bytes | None = None
    error: Failure | None = None
    reason: str | None = None
    frames: int = 0
    args_size: int = 0
    claimable_at: float | None = None
    progress: Progress | None = None
    lines: int = 0


class InvocationRow(Struct, frozen=True, gc=False):
    """One invocation. `place` orders it in its queue; `worker` is the last that claimed it."""

    namespace: str
    id: bytes
    queue: bytes
    state: State
    place: int
    worker: bytes | None
    call: Call
    record: Record


class BlobRow(Struct, frozen=True, gc=False):
    """Arguments (`part` "args") or a result ("result") too large to live in its row."""

    namespace: str
    id: bytes
    queue: bytes
    part: str
    data: bytes


class ObjectRow(Struct, frozen=True, gc=False):
    """A large value of an invocation that is an object of a storage: `name` is its key in `place`. It is
    wanted until the last invocation that has it is gone."""

    namespace: str
    id: bytes
    place: str
    name: str


class KeyRow(Struct, frozen=True, gc=False):
    """Who holds a `_key` of a queue. `digest` tells other arguments from the same ones."""

    namespace: str
    queue: bytes
    key: str
    id: bytes
    digest: bytes


class ChunkRow(Struct, frozen=True, gc=False):
    """Consecutive frames `seq … seq + count - 1` of one attempt of an invocation, or of a topic.

    `owner` is the invocation's or topic's id, or `log_of` an invocation; `data` is opaque here: times and
    values, packed once.
    """

    namespace: str
    owner: bytes
    queue: bytes
    seq: int
    count: int
    attempt: int
    data: bytes


def log_of(id: bytes) -> bytes:
    """The owner of the chunks that hold an invocation's log. They go with it."""
    return id + b"L"


class QueueRow(Struct, frozen=True, gc=False):
    """One queue; `settings` is its declaration as data. `removed` deletes the row."""

    namespace: str
    id: bytes
    name: str
    state: str
    settings: dict[str, Any]
    removed: bool = False


class TopicRow(Struct, frozen=True, gc=False):
    """One topic; `bytes` is what its chunks took in all. `marks` are (end, time): what ends there was
    posted by then. `publishers` are those that may post again what they posted, by what they call
    themselves, with (their number, ours) of each such post."""

    namespace: str
    id: bytes
    name: str
    next_seq: int = 0
    first_seq: int = 0
    bytes: int = 0
    closed: bool = False
    removed: bool = False
    marks: tuple[tuple[int, float], ...] = ()
    publishers: tuple[tuple[bytes, tuple[tuple[int, int], ...]], ...] = ()


class WorkerRow(Struct, frozen=True, gc=False):
    """One worker process; `info` is what it said of itself and when it was last seen."""

    namespace: str
    id: bytes
    info: dict[str, Any]
    ended_at: float | None = None


class EventRow(Struct, frozen=True, gc=False):
    """One decision about a queue: what was seen, done and why, as data. `replaces` names the row that
    this one stands for too, which goes. `noop`: nothing was to be done."""

    namespace: str
    queue: bytes
    id: bytes
    data: dict[str, Any]
    noop: bool = False
    replaces: bytes = b""


class TokenRow(Struct, frozen=True, gc=False):
    """A token by the SHA-256 of its text. It opens one namespace. `removed` deletes the row."""

    id: bytes
    hash: bytes
    namespace: str
    role: str
    created_at: float
    last_used_at: float | None = None
    name: str = ""
    removed: bool = False


class ProviderRow(Struct, frozen=True, gc=False):
    """What launches daemons for the queues that name it. `removed` deletes the row."""

    id: bytes
    name: str
    kind: str
    config: dict[str, Any]
    max: int | None = None
    state: str = "unchecked"
    removed: bool = False


class MetaRow(Struct, frozen=True, gc=False):
    """Something to know of the store as a whole; the value None deletes it."""

    name: str
    value: Any


class FunctionRow(Struct, frozen=True, gc=False):
    """A pickled body by content hash, written once."""

    hash: bytes
    data: bytes


class Trim(Struct, frozen=True, gc=False):
    """Drop the chunks of a journal that end at or before `below` (a sequence number)."""

    namespace: str
    owner: bytes
    below: int


class Prune(Struct, frozen=True, gc=False):
    """Delete old terminal invocations with their keys, blobs and chunks, in one small step; the last
    step of a pass deletes ended workers, old events and unused functions too.

    Looks at no more than `limit` rows in id order, beginning after `after`. A row goes when it is
    terminal and ended before its queue's entry in `queues`, or before `ended_before`. What still lives
    does not end before `now`.
    """

    namespace: str
    after: bytes
    ended_before: float
    queues: dict[bytes, float] = field(default_factory=dict[bytes, float])
    limit: int = 1000
    now: float = 0.0
    events: bool = True


class Pruned(Struct, frozen=True, gc=False):
    """What a `Prune` did. `cursor` is where the next step begins, None at the end. `wait`: none of the
    rows that it kept is due within so many seconds. `objects` are those that nothing wants any more: place
    and name."""

    ids: tuple[bytes, ...]
    cursor: bytes | None
    wait: float = float("inf")
    objects: tuple[tuple[str, str], ...] = ()


AdminRow = EventRow | TokenRow | ProviderRow | MetaRow
PartRow = BlobRow | ObjectRow | KeyRow | ChunkRow | QueueRow | TopicRow | WorkerRow | FunctionRow | AdminRow
Row = InvocationRow | PartRow


class Batch:
    """Rows gathered for one commit. Several rows of one entity are one, the last."""

    __slots__ = (
        "admin",
        "blobs",
        "chunks",
        "functions",
        "inserts",
        "keys",
        "objects",
        "prunes",
        "queues",
        "size",
        "topics",
        "trims",
        "updates",
        "workers",
    )

    def __init__(self) -> None:
        self.inserts: dict[tuple[str, bytes], InvocationRow] = {}  # do nothing where one exists
        self.updates: dict[tuple[str, bytes], InvocationRow] = {}
        self.blobs: list[BlobRow] = []
        self.objects: list[ObjectRow] = []
        self.keys: dict[tuple[str, bytes, str], KeyRow] = {}
        self.chunks: list[ChunkRow] = []
        self.trims: list[Trim] = []
        self.queues: dict[tuple[str, bytes], QueueRow] = {}
        self.topics: dict[tuple[str, bytes], TopicRow] = {}
        self.workers: dict[tuple[str, bytes], WorkerRow] = {}
        self.functions: dict[bytes, FunctionRow] = {}
        self.admin: dict[tuple[object, ...], AdminRow] = {}  # what is written once in a while
        self.prunes: list[Prune] = []
        self.size = 0  # how many times something was put

    def insert(self, row: InvocationRow) -> None:
        """The first row of an invocation: never overwrites one that is stored."""
        self.inserts[row.namespace, row.id] = row
        self.size += 1

    def update(self, row: InvocationRow) -> None:
        """A later row of an invocation."""
        key = (row.namespace, row.id)
        (self.inserts if key in self.inserts else self.updates)[key] = row
        self.size += 1

    def put(self, row: PartRow) -> None:
        """Any other row."""
        self.size += 1
        if isinstance(row, ChunkRow):
            self.chunks.append(row)
        elif isinstance(row, BlobRow):
            self.blobs.append(row)
        elif isinstance(row, ObjectRow):
            self.objects.append(row)
        elif isinstance(row, KeyRow):
            self.keys[row.namespace, row.queue, row.key] = row
        elif isinstance(row, QueueRow):
            self.queues[row.namespace, row.id] = row
        elif isinstance(row, TopicRow):
            self.topics[row.namespace, row.id] = row
        elif isinstance(row, WorkerRow):
            self.workers[row.namespace, row.id] = row
        elif isinstance(row, FunctionRow):
            self.functions[row.hash] = row
        elif isinstance(row, MetaRow):
            self.admin[MetaRow, row.name] = row
        elif isinstance(row, EventRow):
            self.admin[EventRow, row.namespace, row.id] = row
        else:
            self.admin[type(row), row.id] = row

    def trim(self, trim: Trim) -> None:
        """Drop old chunks of a journal."""
        self.trims.append(trim)
        self.size += 1

    def prune(self, prune: Prune) -> None:
        """Delete old invocations."""
        self.prunes.append(prune)
        self.size += 1


class Committed(Struct, frozen=True, gc=False):
    """A batch is stored. `lost` names inserts that inserted nothing: their ids were taken."""

    lost: tuple[tuple[str, bytes], ...] = ()
    pruned: tuple[Pruned, ...] = ()


# Queries: each is one indexed read, and its comment gives the answer's type.


class GetInvocation(Struct, frozen=True, gc=False):  # InvocationRow | Missing
    """One invocation by id."""

    namespace: str
    id: bytes


class Missing(Struct, frozen=True, gc=False):
    """No such invocation. `expired`: the id is at or below the namespace's newest pruned one."""

    expired: bool = False


class GetBlob(Struct, frozen=True, gc=False):  # bytes | None
    """Large arguments or a large result."""

    namespace: str
    id: bytes
    part: str


class WantedObjects(Struct, frozen=True, gc=False):  # frozenset[str]
    """Which of these objects some invocation has."""

    namespace: str
    names: tuple[str, ...]


class GetKey(Struct, frozen=True, gc=False):  # KeyRow | None
    """Who holds a key."""

    namespace: str
    queue: bytes
    key: str


class GetChunks(Struct, frozen=True, gc=False):  # list[ChunkRow]
    """Chunks in order, from the one that holds `since` on: at least one where any is there,
    then more up to `frames` and `bytes`."""

    namespace: str
    owner: bytes
    since: int
    frames: int = 1024
    bytes: int = 1 << 20


class GetMarks(Struct, frozen=True, gc=False):  # list[tuple[int, int]]
    """End and bytes of the chunks from `since` up to `until`, neighbours as one up to `grain` bytes.
    Looks at no more than `limit` chunks: ask again from the last end."""

    namespace: str
    owner: bytes
    since: int
    until: int
    grain: int
    limit: int = 4096


class GetFunction(Struct, frozen=True, gc=False):  # bytes | None
    """A pickled body."""

    hash: bytes


class ListInvocations(Struct, frozen=True, gc=False):  # list[InvocationRow]
    """Invocations newest first (descending id), those below the id `before`. Empty `states` means all."""

    namespace: str
    queue: bytes | None = None
    states: tuple[State, ...] = ()
    worker: bytes | None = None
    limit: int = 50
    offset: int = 0
    before: bytes | None = None


class ListEvents(Struct, frozen=True, gc=False):  # list[EventRow]
    """Events of a queue newest first (descending id); those that are `noop` only if asked for."""

    namespace: str
    queue: bytes
    limit: int = 50
    noops: bool = False


class ListWorkers(Struct, frozen=True, gc=False):  # list[WorkerRow]
    """Every stored worker of a namespace, newest first."""

    namespace: str


class GetWorkers(Struct, frozen=True, gc=False):  # list[WorkerRow]
    """Those of these workers that are stored, in any order. A hundred at the most."""

    namespace: str
    ids: tuple[bytes, ...]


class LoadHead(Struct, frozen=True, gc=False):  # Loaded
    """Everything but invocations, at open."""


class Loaded(Struct, frozen=True):
    """The answer to `LoadHead`. `workers` are those without an `ended_at`."""

    queues: tuple[QueueRow, ...] = ()
    topics: tuple[TopicRow, ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    tokens: tuple[TokenRow, ...] = ()
    providers: tuple[ProviderRow, ...] = ()
    meta: tuple[MetaRow, ...] = ()


class LoadLive(Struct, frozen=True, gc=False):  # list[LiveRow]
    """A page of live invocations in (namespace, id) order, after `after`."""

    after: tuple[str, bytes] | None = None
    limit: int = 10_000


class LiveRow(Struct, frozen=True, gc=False):
    """A live invocation with the extent of its journal (`first_seq == next_seq`: empty), the digest of
    its key, and the extent of its log."""

    row: InvocationRow
    first_seq: int = 0
    next_seq: int = 0
    last_attempt: int = 0
    digest: bytes = b""
    log: tuple[int, int, int] = (0, 0, 0)


class GetExtent(Struct, frozen=True, gc=False):  # tuple[int, int, int]
    """First and next sequence number and last attempt of a journal, (0, 0, 0) where empty."""

    namespace: str
    owner: bytes


Query = (
    GetInvocation
    | GetBlob
    | GetKey
    | WantedObjects
    | GetChunks
    | GetExtent
    | GetMarks
    | GetFunction
    | ListInvocations
    | ListEvents
    | ListWorkers
    | GetWorkers
    | LoadHead
    | LoadLive
)
