"""A store that forgets: the very Structs it was given, in dicts. Needs no loop."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

from lakeshore.core.ids import floor
from lakeshore.core.rows import (
    Batch,
    ChunkRow,
    Committed,
    EventRow,
    GetBlob,
    GetChunks,
    GetExtent,
    GetFunction,
    GetInvocation,
    GetKey,
    GetMarks,
    GetWorkers,
    InvocationRow,
    KeyRow,
    ListEvents,
    ListInvocations,
    ListWorkers,
    LiveRow,
    Loaded,
    LoadHead,
    LoadLive,
    MetaRow,
    Missing,
    ObjectRow,
    ProviderRow,
    Prune,
    Pruned,
    Query,
    QueueRow,
    TokenRow,
    TopicRow,
    Trim,
    WantedObjects,
    WorkerRow,
    log_of,
)
from lakeshore.core.states import LIVE

from .codec import marks_of
from .invocations import BACKLOG, Invocations

_K = TypeVar("_K")
_V = TypeVar("_V")
_ROW = 900  # about what an invocation costs beside its bytes, here and in the indexes
_PART = 250  # a blob, key or chunk
_seq = attrgetter("seq")
_STORED = Committed()


class MemoryStore:
    """Keeps rows as long as the object lives; `aclose` forgets nothing, so it can be opened again.

    Args:
        memory_limit: bytes, estimated; when reached, `full` says so. Commits are never refused.
    """

    def __init__(self, memory_limit: int = 1 << 30) -> None:
        self.memory_limit = memory_limit
        self.used: int = 0  # bytes, estimated
        self._spaces: dict[str, Invocations] = {}
        self._blobs: dict[tuple[str, bytes, str], bytes] = {}
        self._objects: dict[tuple[str, bytes], dict[str, str]] = {}  # place by name, of each invocation
        self._wanted: Counter[tuple[str, str]] = Counter()  # by namespace and name: who has it
        self._keys: dict[tuple[str, bytes], dict[str, KeyRow]] = {}  # by queue
        self._chunks: dict[tuple[str, bytes], list[ChunkRow]] = {}  # each sorted by seq
        self._queues: dict[tuple[str, bytes], QueueRow] = {}
        self._topics: dict[tuple[str, bytes], TopicRow] = {}
        self._workers: dict[tuple[str, bytes], WorkerRow] = {}
        self._events: dict[str, dict[bytes, EventRow]] = {}  # by namespace, in order
        self._tokens: dict[bytes, TokenRow] = {}
        self._providers: dict[bytes, ProviderRow] = {}
        self._meta: dict[str, MetaRow] = {}
        self._functions: dict[bytes, bytes] = {}
        self._uses: Counter[bytes] = Counter()  # by function: stored invocations that refer to it
        self._idle: set[bytes] = set()  # functions without uses at the end of the last prune
        self._pruned: dict[str, bytes] = {}

    @property
    def full(self) -> str:
        """Why new submits must be refused; empty while there is room."""
        if self.used < self.memory_limit:
            return ""
        return (
            f"the memory limit of {self.memory_limit} bytes is reached: take results and let old "
            "invocations be pruned, raise memory_limit, or use a file"
        )

    async def open(self) -> None:
        """Nothing to do."""

    async def aclose(self) -> None:
        """Nothing to do."""

    def commit(self, batch: Batch, done: Callable[[Committed | BaseException], None]) -> None:
        """Store a batch and call `done`, inside this call."""
        done(self._apply(batch))

    def read(self, query: Query, done: Callable[[Any], None]) -> None:
        """Answer a query by `done`, inside this call."""
        done(self._ANSWER[type(query)](self, query))

    # Writing

    def _apply(self, batch: Batch) -> Committed:
        lost = self._insert(batch.inserts.values()) if batch.inserts else ()
        if batch.updates:
            self._update(batch.updates.values())
        if batch.blobs or batch.objects or batch.keys or batch.chunks or batch.trims:
            self._put_parts(batch, lost)
        if batch.queues or batch.topics or batch.workers or batch.functions:
            self._put_others(batch)
        if batch.admin:
            self._put_admin(batch)
        if not batch.prunes:
            return Committed(lost) if lost else _STORED
        return Committed(lost, tuple([self._prune(prune) for prune in batch.prunes]))

    def _space(self, name: str) -> Invocations:
        space = self._spaces.get(name)
        if space is None:
            space = self._spaces[name] = Invocations()
        return space

    def _insert(self, batch: Iterable[InvocationRow]) -> tuple[tuple[str, bytes], ...]:
        lost: list[tuple[str, bytes]] = []
        for row in batch:
            space = self._spaces.get(row.namespace) or self._space(row.namespace)
            id, ids, call, record = row.id, space.ids, row.call, row.record
            if id in space.rows:
                lost.append((row.namespace, id))
                continue
            if not ids or id > ids[-1]:  # as almost every one is
                ids.append(id)
                space.rows[id] = row
                space.changed[id] = None
            else:
                space.add(row)
            self.used += _size(row) if record.result or record.error else _ROW + len(call.args or b"")
            if function := call.options.function.value:
                self._uses[function] += 1
                self._idle.discard(function)
            if len(space.changed) > BACKLOG:
                space.fold()
        return tuple(lost)

    def _update(self, batch: Iterable[InvocationRow]) -> None:
        for row in batch:
            space, id = self._spaces.get(row.namespace), row.id
            if space is None or (old := space.rows.get(id)) is None:
                continue
            space.rows[id] = row
            space.changed.setdefault(id, old)
            record = row.record
            was = old.record
            if record.error or was.error or len(record.attempts) > 1 or len(was.attempts) > 1:
                self.used += _size(row) - _size(old)
            elif record.result is not was.result:
                self.used += len(record.result or b"") - len(was.result or b"")
            if len(space.changed) > BACKLOG:
                space.fold()

    def _put_parts(self, batch: Batch, lost: Collection[tuple[str, bytes]]) -> None:
        for blob in batch.blobs:
            if (blob.namespace, blob.id) not in lost:
                self._drop_blob(blob.namespace, blob.id, blob.part)
                self._blobs[blob.namespace, blob.id, blob.part] = blob.data
                self.used += _PART + len(blob.data)
        for key in batch.keys.values():
            if (key.namespace, key.id) not in lost:
                keys = self._keys.setdefault((key.namespace, key.queue), {})
                self.used += 0 if key.key in keys else _PART
                keys[key.key] = key
        for thing in batch.objects:
            if (thing.namespace, thing.id) not in lost:
                self._put_object(thing)
        for chunk in batch.chunks:
            if (chunk.namespace, chunk.owner) not in lost:
                self._put_chunk(chunk)
        for trim in batch.trims:
            if (trim.namespace, trim.owner) not in lost:
                self._trim(trim)

    def _put_object(self, thing: ObjectRow) -> None:
        objects = self._objects.setdefault((thing.namespace, thing.id), {})
        if thing.name not in objects:
            self._wanted[thing.namespace, thing.name] += 1
            self.used += _PART
        objects[thing.name] = thing.place

    def _put_chunk(self, chunk: ChunkRow) -> None:
        chunks = self._chunks.setdefault((chunk.namespace, chunk.owner), [])
        self.used += _PART + len(chunk.data)
        if not chunks or chunk.seq > chunks[-1].seq:
            chunks.append(chunk)
            return
        at = bisect_left(chunks, chunk.seq, key=_seq)
        same = chunks[at].seq == chunk.seq
        if same:
            self.used -= _PART + len(chunks[at].data)
        chunks[at : at + same] = [chunk]

    def _trim(self, trim: Trim) -> None:
        if chunks := self._chunks.get((trim.namespace, trim.owner)):
            end = bisect_left(chunks, trim.below, key=_seq)
            gone = [chunk for chunk in chunks[:end] if chunk.seq + chunk.count <= trim.below]
            chunks[:end] = [chunk for chunk in chunks[:end] if chunk.seq + chunk.count > trim.below]
            self.used -= sum(_PART + len(chunk.data) for chunk in gone)
            if not chunks:
                del self._chunks[trim.namespace, trim.owner]

    def _put_others(self, batch: Batch) -> None:
        for queue in batch.queues.values():
            if queue.removed:
                self._queues.pop((queue.namespace, queue.id), None)
                self.used -= _PART * len(self._keys.pop((queue.namespace, queue.id), ()))
            else:
                self._queues[queue.namespace, queue.id] = queue
        for topic in batch.topics.values():
            if topic.removed:
                self._topics.pop((topic.namespace, topic.id), None)
                self._drop_chunks(topic.namespace, topic.id)
            else:
                self._topics[topic.namespace, topic.id] = topic
        for worker in batch.workers.values():
            self._workers[worker.namespace, worker.id] = worker
        for function in batch.functions.values():
            self._idle.discard(function.hash)
            if function.hash not in self._functions:
                self._functions[function.hash] = function.data
                self.used += _PART + len(function.data)

    def _put_admin(self, batch: Batch) -> None:
        for row in batch.admin.values():
            if isinstance(row, EventRow):
                events = self._events.setdefault(row.namespace, {})
                events.pop(row.replaces, None)
                events[row.id] = EventRow(row.namespace, row.queue, row.id, row.data, row.noop)
            elif isinstance(row, TokenRow):
                _put(self._tokens, row.id, row, row.removed)
            elif isinstance(row, ProviderRow):
                _put(self._providers, row.id, row, row.removed)
            else:
                _put(self._meta, row.name, row, row.value is None)

    def _prune(self, prune: Prune) -> Pruned:
        space = self._space(prune.namespace)
        begin = bisect_right(space.ids, prune.after)
        looked_at = space.ids[begin : begin + prune.limit]
        gone: list[bytes] = []
        objects: list[tuple[str, str]] = []
        wait = float("inf")
        for id in looked_at:
            row = space.rows[id]
            ended_at = row.record.ended_at if row.state.terminal else None
            before = prune.queues.get(row.queue, prune.ended_before)
            if ended_at is not None and ended_at < before:
                gone.append(id)
                space.remove(row)
                self._delete(row)
                objects += self._drop_objects(row)
            else:
                wait = min(wait, (prune.now if ended_at is None else ended_at) - before)
        if gone:
            dead = set(gone)
            space.ids[begin : begin + len(looked_at)] = [id for id in looked_at if id not in dead]
            self._pruned[prune.namespace] = max(gone[-1], self._pruned.get(prune.namespace, b""))
            space.fold()  # what is gone is not to be kept by the index
        if len(looked_at) == prune.limit:
            return Pruned(tuple(gone), looked_at[-1], wait, tuple(objects))
        self._sweep(prune)
        return Pruned(tuple(gone), None, wait, tuple(objects))

    def _sweep(self, prune: Prune) -> None:
        """The end of a prune: ended workers, old events, functions that nothing used since the last one."""
        for key, worker in list(self._workers.items()):
            ended_at = worker.ended_at
            if worker.namespace == prune.namespace and ended_at is not None and ended_at < prune.ended_before:
                del self._workers[key]
        events, before = self._events.get(prune.namespace, {}), floor(prune.ended_before)
        for id in [id for id in events if prune.events and id < before]:
            del events[id]
        for hash in self._idle:
            if (data := self._functions.pop(hash, None)) is not None:
                self.used -= _PART + len(data)
        known = self._uses.keys() | self._functions.keys()
        self._idle = {hash for hash in known if not self._uses[hash]} - self._idle
        self._uses = +self._uses

    def _delete(self, row: InvocationRow) -> None:
        self.used -= _size(row)
        for part in ("args", "result"):
            self._drop_blob(row.namespace, row.id, part)
        for owner in (row.id, log_of(row.id)):
            self._drop_chunks(row.namespace, owner)
        if row.call.key:
            keys = self._keys.get((row.namespace, row.queue), {})
            if (key := keys.get(row.call.key)) and key.id == row.id:
                del keys[row.call.key]
                self.used -= _PART
                if not keys:
                    del self._keys[row.namespace, row.queue]
        if function := row.call.options.function.value:
            self._uses[function] -= 1

    def _drop_objects(self, row: InvocationRow) -> Iterator[tuple[str, str]]:
        """Those that nothing has any more."""
        for name, place in self._objects.pop((row.namespace, row.id), {}).items():
            self.used -= _PART
            self._wanted[row.namespace, name] -= 1
            if not self._wanted[row.namespace, name]:
                del self._wanted[row.namespace, name]
                yield place, name

    def _drop_blob(self, namespace: str, id: bytes, part: str) -> None:
        if (data := self._blobs.pop((namespace, id, part), None)) is not None:
            self.used -= _PART + len(data)

    def _drop_chunks(self, namespace: str, owner: bytes) -> None:
        for chunk in self._chunks.pop((namespace, owner), ()):
            self.used -= _PART + len(chunk.data)

    # Reading

    def _get_invocation(self, query: GetInvocation) -> InvocationRow | Missing:
        space = self._spaces.get(query.namespace)
        row = space.rows.get(query.id) if space is not None else None
        return row or Missing(query.id <= self._pruned.get(query.namespace, b""))

    def _get_blob(self, query: GetBlob) -> bytes | None:
        return self._blobs.get((query.namespace, query.id, query.part))

    def _wanted_objects(self, query: WantedObjects) -> frozenset[str]:
        return frozenset(name for name in query.names if self._wanted[query.namespace, name])

    def _get_key(self, query: GetKey) -> KeyRow | None:
        return self._keys.get((query.namespace, query.queue), {}).get(query.key)

    def _get_function(self, query: GetFunction) -> bytes | None:
        return self._functions.get(query.hash)

    def _get_chunks(self, query: GetChunks) -> list[ChunkRow]:
        chunks = self._chunks.get((query.namespace, query.owner), [])
        at = bisect_right(chunks, query.since, key=_seq)
        if at and chunks[at - 1].seq + chunks[at - 1].count > query.since:
            at -= 1
        found: list[ChunkRow] = []
        frames = size = 0
        for chunk in islice(chunks, at, None):
            frames, size = frames + chunk.count, size + len(chunk.data)
            if found and (frames > query.frames or size > query.bytes):
                break
            found.append(chunk)
        return found

    def _get_extent(self, query: GetExtent) -> tuple[int, int, int]:
        return self._extent(query.namespace, query.owner)

    def _get_marks(self, query: GetMarks) -> list[tuple[int, int]]:
        chunks = self._chunks.get((query.namespace, query.owner), [])
        at = bisect_left(chunks, query.since, key=_seq)
        end = min(bisect_left(chunks, query.until, key=_seq), at + query.limit)
        return marks_of([(row.seq + row.count, len(row.data)) for row in chunks[at:end]], query.grain)

    def _extent(self, namespace: str, owner: bytes) -> tuple[int, int, int]:
        if not (chunks := self._chunks.get((namespace, owner))):
            return 0, 0, 0
        return chunks[0].seq, chunks[-1].seq + chunks[-1].count, chunks[-1].attempt

    def _list_invocations(self, query: ListInvocations) -> list[InvocationRow]:
        space = self._spaces.get(query.namespace)
        return space.list(query) if space is not None else []

    def _list_events(self, query: ListEvents) -> list[EventRow]:
        events = self._events.get(query.namespace, {}).values()
        found = [row for row in events if row.queue == query.queue and (query.noops or not row.noop)]
        return sorted(found, key=attrgetter("id"), reverse=True)[: query.limit]

    def _list_workers(self, query: ListWorkers) -> list[WorkerRow]:
        workers = (row for row in self._workers.values() if row.namespace == query.namespace)
        return sorted(workers, key=attrgetter("id"), reverse=True)

    def _get_workers(self, query: GetWorkers) -> list[WorkerRow]:
        found = (self._workers.get((query.namespace, id)) for id in query.ids)
        return [row for row in found if row is not None]

    def _load_head(self, query: LoadHead) -> Loaded:
        return Loaded(
            tuple(row for _, row in sorted(self._queues.items())),
            tuple(row for _, row in sorted(self._topics.items())),
            tuple(row for _, row in sorted(self._workers.items()) if row.ended_at is None),
            tuple(row for _, row in sorted(self._tokens.items())),
            tuple(row for _, row in sorted(self._providers.items())),
            tuple(row for _, row in sorted(self._meta.items())),
        )

    def _load_live(self, query: LoadLive) -> list[LiveRow]:
        name, after = query.after or ("", b"")
        live: list[LiveRow] = []
        for namespace in sorted(space for space in self._spaces if space >= name):
            for row in self._spaces[namespace].after(after if namespace == name else b""):
                if len(live) >= query.limit:
                    return live
                if row.state in LIVE:
                    key = self._keys.get((namespace, row.queue), {}).get(row.call.key)
                    digest = key.digest if key and row.call.key and key.id == row.id else b""
                    log = self._extent(namespace, log_of(row.id))
                    live.append(LiveRow(row, *self._extent(namespace, row.id), digest, log))
        return live

    _ANSWER: ClassVar[dict[type, Callable[..., Any]]] = {
        GetInvocation: _get_invocation,
        GetBlob: _get_blob,
        GetKey: _get_key,
        WantedObjects: _wanted_objects,
        GetChunks: _get_chunks,
        GetExtent: _get_extent,
        GetMarks: _get_marks,
        GetFunction: _get_function,
        ListInvocations: _list_invocations,
        ListEvents: _list_events,
        ListWorkers: _list_workers,
        GetWorkers: _get_workers,
        LoadHead: _load_head,
        LoadLive: _load_live,
    }


def _put(table: dict[_K, _V], key: _K, row: _V, removed: bool) -> None:
    if removed:
        table.pop(key, None)
    else:
        table[key] = row


def _size(row: InvocationRow) -> int:
    record = row.record
    return (
        _ROW
        + (len(row.call.args) if row.call.args else 0)
        + (len(record.result) if record.result else 0)
        + (len(record.error.traceback) + len(record.error.message) if record.error else 0)
        + 100 * max(0, len(record.attempts) - 1)
    )
