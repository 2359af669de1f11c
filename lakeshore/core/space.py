"""A namespace: its queues by name, the index of what is live, and who works for it."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from .actor import Actor
from .archive import Archive
from .crew import Crew
from .depot import Depot
from .engine import Engine
from .entry import Entry
from .errors import BadRequest, Conflict, IllegalMove, NotFound, Refused
from .ids import text_of
from .intake import refusal
from .ledger import Ledger
from .member import Member
from .messages import (
    AddQueue,
    Answer,
    BulkCancel,
    Credit,
    Drop,
    Hello,
    ListQueues,
    PatchQueue,
    QueueStats,
    RemoveQueue,
    ShiftQueue,
    ShowQueue,
    Submit,
    SubmitMany,
)
from .naming import unknown
from .notes import Parked
from .office import Office
from .parents import Parents
from .ports import Outlet
from .queue import Queue
from .roster import Roster
from .rows import Loaded, QueueRow
from .settings import DEFAULT, QueueSettings, patched, settings_of
from .states import QueueMove, QueueState, step_queue
from .topics import Topics

log = logging.getLogger("lakeshore")


class Space(Actor):
    """The directory of one namespace.

    `live` is written by the queues, each its own entries; everybody else only reads it.

    Args:
        office: who knows the providers of the plane.
        local: make queues on first use.
        retention: seconds that terminal invocations are kept.
        journal_bytes: what a journal may keep.
        lease: seconds that a worker in another process may be silent.
        storage: where files are by key; empty: under each worker's root.
    """

    def __init__(
        self,
        engine: Engine,
        name: str,
        *,
        office: Office,
        local: bool,
        retention: float,
        journal_bytes: int,
        lease: float = 30.0,
        storage: str = "",
    ) -> None:
        super().__init__(engine)
        self.office = office
        self.name, self.local, self.journal_bytes = name, local, journal_bytes
        self.live: dict[bytes, Entry] = {}
        self.queues: dict[str, Queue] = {}
        self.by_id: dict[bytes, Queue] = {}
        self.roster = Roster(engine, self, lease)
        self.parents = Parents(engine, self)
        self.archive = Archive(engine, self, retention)
        self.depot = Depot(engine, self, storage)
        self.topics = Topics(engine, self, journal_bytes)
        self._removals: dict[Queue, list[tuple[RemoveQueue, Outlet, list[str]]]] = {}
        self._names: dict[bytes, tuple[str, float]] = {}  # of removed queues, for display, and since when
        self._said: set[str] = set()
        self._new: list[QueueRow] = []
        self.handlers |= {
            Parked: self._on_parked,
            AddQueue: self._on_add,
            ListQueues: self._on_list,
            ShowQueue: self._on_show,
            PatchQueue: self._on_patch,
            ShiftQueue: self._on_shift,
            RemoveQueue: self._on_remove,
            QueueStats: self._on_stats,
            BulkCancel: self._on_bulk_cancel,
            Drop: self._on_drop,
            Credit: self._on_drop,
        }
        self.crew = Crew(engine, self)
        self.ledger = Ledger(engine, self)

    def flush(self) -> None:
        for row in self._new:
            self.engine.batch.put(row)
        self._new.clear()

    # queues

    def restore(self, loaded: Loaded) -> None:
        """Take back the stored queues and topics of this namespace."""
        self.depot.restore(loaded)
        for row in loaded.queues:
            if row.namespace == self.name:
                self._adopt(row, settings_of(row.settings))
        for topic in loaded.topics:
            if topic.namespace == self.name:
                self.topics.restore(topic)

    def ensure_default(self) -> None:
        """The default queue always exists."""
        if DEFAULT not in self.queues:
            self.make(DEFAULT, QueueSettings())

    def find(self, name_or_id: object) -> Queue | None:
        """A queue by its name or by the text of its id; None for whatever is neither."""
        if not isinstance(name_or_id, str):
            return None
        queue = self.queues.get(name_or_id)
        if queue is None and len(name_or_id) == 26:
            return next((q for q in self.by_id.values() if text_of(q.id) == name_or_id.upper()), None)
        return queue

    def owner(self, id: bytes) -> Queue:
        """The queue of a stored invocation. One that was removed is back until the last that ran has
        returned to it, and is killed."""
        queue = self.by_id.get(id)
        if queue is None:
            row = QueueRow(self.name, id, text_of(id), QueueState.ARCHIVED.value, {}, removed=True)
            queue = self.by_id[id] = Queue(self.engine, self, row, QueueSettings(), self.journal_bytes)
            queue.removing = True
        return queue

    def queue_name(self, id: bytes) -> str:
        """The name of a queue, also of one that was removed (its id where nothing else is known)."""
        queue = self.by_id.get(id)
        return queue.name if queue is not None else self._names.get(id, (text_of(id), 0.0))[0]

    def forget_names(self, before: float) -> None:
        """Queues that were removed by then have nothing stored any more."""
        for id in [id for id, (_, since) in self._names.items() if since < before]:
            if id not in self.by_id:
                del self._names[id]

    def no_queue(self, name: str) -> NotFound:
        """There is no such queue; says which names are near."""
        remedy = f"make it with `lakeshore queues add {name}`, or q.queues.add({name!r}) in Python"
        what = f"queue {name!r} in namespace {self.name!r}"
        return unknown(what, name, self.queues, remedy)

    def make(self, name: str, settings: QueueSettings) -> Queue:
        """A new queue."""
        row = QueueRow(
            self.name, self.engine.new_id(), name, QueueState.ACTIVE.value, msgspec.to_builtins(settings)
        )
        self._store(row)
        queue = self._adopt(row, settings)
        self.roster.made(queue)
        return queue

    def _adopt(self, row: QueueRow, settings: QueueSettings) -> Queue:
        queue = Queue(self.engine, self, row, settings, self.journal_bytes)
        self.queues[row.name] = self.by_id[row.id] = queue
        return queue

    def _store(self, row: QueueRow) -> None:
        self._new.append(row)
        self.engine.touch(self)

    def _on_parked(self, message: Parked, peer: Any) -> None:
        request: Submit | SubmitMany = message.request
        name = request.queue if isinstance(request, Submit) else request.items[0].queue
        queue = self.queues.get(name)
        if queue is None:
            if not self.local:
                self.engine.emit(peer, refusal(request.req, self.no_queue(name)))
                return
            queue = self.make(name, QueueSettings())
        peer.pass_on(request, queue)

    def _on_drop(self, message: Drop | Credit, peer: Any) -> None:
        """A parked request was dropped: `Peer.pass_on` knows."""

    def _on_add(self, message: AddQueue, peer: Any) -> None:
        try:
            settings = settings_of(message.settings)
        except (msgspec.ValidationError, TypeError, ValueError) as wrong:
            self.engine.emit(peer, refusal(message.req, BadRequest(f"settings: {wrong}")))
            return
        error: Refused | None = None
        if message.name in self.queues:
            error = Conflict(f"queue {message.name!r} exists already: patch it, or choose another name")
        elif settings.provider is not None:
            settings, error = self._with_provider(settings)
        if error is not None:
            self.engine.emit(peer, refusal(message.req, error))
            return
        if settings.elasticity is not None and settings.provider is None:
            log.warning(
                "queue %r has an elasticity and no provider: nothing scales until it has one", message.name
            )
        queue = self.make(message.name, settings)
        self.ledger.added(queue)
        self.engine.emit(peer, Answer(message.req, queue.describe()))

    def _with_provider(self, settings: QueueSettings) -> tuple[QueueSettings, Refused | None]:
        """The settings with the name of their provider, which may have been given by its id."""
        name = settings.provider or ""
        row = self.office.provider(name)
        if row is None:
            return settings, self.office.no_provider(name)
        return msgspec.structs.replace(settings, provider=row.name), None

    def _on_list(self, message: ListQueues, peer: Any) -> None:
        rows = [
            queue.describe()
            for queue in self.queues.values()
            if (queue.state in message.states if message.states else queue.state != QueueState.ARCHIVED)
        ]
        self.engine.emit(peer, Answer(message.req, sorted(rows, key=lambda row: str(row["name"]))))

    def _named(self, message: Any, peer: Outlet) -> Queue | None:
        queue = self.find(message.name)
        if queue is None:
            self.engine.emit(peer, refusal(message.req, self.no_queue(message.name)))
        return queue

    def _changeable(self, message: Any, peer: Outlet) -> Queue | None:
        queue = self._named(message, peer)
        if queue is not None and queue.removing:  # by its id: it would be stored again
            error = Conflict(f"queue {queue.name!r} is being removed: it can't be changed any more")
            self.engine.emit(peer, refusal(message.req, error))
            return None
        return queue

    def _on_show(self, message: ShowQueue, peer: Any) -> None:
        queue = self._named(message, peer)
        if queue is not None:
            workers = [{"id": text_of(member.hello.worker), **member.info()} for member in queue.members]
            self.engine.emit(peer, Answer(message.req, {**queue.describe(), "workers": workers}))

    def _on_patch(self, message: PatchQueue, peer: Any) -> None:
        queue = self._changeable(message, peer)
        if queue is None:
            return
        error: Refused | None = None
        settings = queue.settings
        try:
            settings = patched(queue.settings, message.changes)
        except (TypeError, ValueError) as wrong:
            error = Conflict(str(wrong))
        if error is None and message.changes.get("provider"):
            settings, error = self._with_provider(settings)
        before = queue.settings
        reordered = (settings.temperature, settings.seed) != (before.temperature, before.seed)
        if error is None and reordered and len(queue.backlog):
            error = Conflict(
                "temperature and seed can be changed while nothing is queued: drain the queue first"
            )
        if error is not None:
            self.engine.emit(peer, refusal(message.req, error))
            return
        described = queue.describe()
        queue.configure(settings)
        self._store(queue.row())
        self.ledger.patched(queue, described)
        self.engine.emit(peer, Answer(message.req, queue.describe()))

    def _on_shift(self, message: ShiftQueue, peer: Any) -> None:
        queue = self._changeable(message, peer)
        if queue is None:
            return
        try:
            state = step_queue(queue.state, QueueMove(message.move))
        except IllegalMove as error:
            self.engine.emit(peer, refusal(message.req, Conflict(str(error))))
            return
        if state is not queue.state:
            before, queue.state = queue.state, state
            self._store(queue.row())
            self.ledger.shifted(queue, before, message.move)
            queue.changed()
        self.engine.emit(peer, Answer(message.req, queue.describe()))

    def _on_stats(self, message: QueueStats, peer: Any) -> None:
        queue = self._named(message, peer)
        if queue is not None:
            self.engine.emit(peer, Answer(message.req, queue.stats()))

    def _on_bulk_cancel(self, message: BulkCancel, peer: Any) -> None:
        if message.queue is None:
            queues = list(self.queues.values())
        else:
            queue = self.find(message.queue)
            if queue is None:
                self.engine.emit(peer, refusal(message.req, self.no_queue(message.queue)))
                return
            queues = [queue]
        counts: list[int] = []

        def one(count: int) -> None:
            counts.append(count)
            if len(counts) == len(queues):
                self.engine.emit(peer, Answer(message.req, sum(counts)))

        for queue in queues:
            queue.kills.cancel_all(one, "killed by bulk-cancel")

    # removing

    def _on_remove(self, message: RemoveQueue, peer: Any) -> None:
        queue = self._named(message, peer)
        if queue is None:
            return
        bound = queue.bound()
        error: Refused | None = None
        if queue.name == DEFAULT:
            error = Conflict("the default queue can't be removed: archive it instead")
        elif bound and not message.force:
            names = ", ".join(member.hello.name for member in bound)
            error = Conflict(
                f"{len(bound)} workers are bound to queue {queue.name!r} ({names}): end them, or use force"
            )
        if error is not None:
            self.engine.emit(peer, refusal(message.req, error))
            return
        serving_default: list[str] = []
        for member in list(queue.members):
            self.roster.unbind(member, queue)
            if not member.queues and not member.hello.follow_all:
                serving_default.append(member.hello.name)
                self.roster.bind(member, self.queues[DEFAULT])
        first = queue not in self._removals
        self._removals.setdefault(queue, []).append((message, peer, serving_default))
        if first:
            queue.removing = True
            self.queues.pop(queue.name, None)
            queue.changed()
            queue.kills.cancel_all(lambda count: self._removed(queue), "its queue was removed")

    def _removed(self, queue: Queue) -> None:
        self._store(queue.row(removed=True))
        for message, peer, serving_default in self._removals.pop(queue, []):
            value = {"name": queue.name, "nowServingDefault": serving_default}
            self.engine.emit(peer, Answer(message.req, value))
        self.emptied(queue)

    def emptied(self, queue: Queue) -> None:
        """A queue that is being removed lost an entry; with the last one it leaves memory."""
        if queue not in self._removals and not queue.running:
            self.by_id.pop(queue.id, None)
            self._names[queue.id] = (queue.name, self.engine.at)

    # workers

    @property
    def members(self) -> dict[bytes, Member]:
        """Workers by id; one that has left stays until the space has heard of it."""
        return self.roster.members

    def register(self, hello: Hello, wire: Outlet) -> Member | None:
        """A worker has said hello on a link: for the first time, or it has come back. None: it was
        removed, and is told so."""
        return self.roster.register(hello, wire)

    def beat(self, worker: bytes) -> bool:
        """The process of a worker lives; whether it is known here."""
        return self.roster.beat(worker)

    def died(self, worker: bytes, reason: str) -> None:
        """The process of a worker has ended without a goodbye; `reason` says how."""
        self.roster.died(worker, reason)

    def unresolvable(self, queue: Queue, entry: Entry, reason: str) -> None:
        """No live worker can find a function: say so, once."""
        name = entry.call.options.function.name
        if name not in self._said:
            self._said.add(name)
            log.warning(
                "no live worker of queue %r can find the function %s (%s): its jobs wait until one can",
                queue.name,
                name,
                reason,
            )
