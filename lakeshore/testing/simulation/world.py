"""A plane with clients, workers, links and a store, and the model beside it."""

from __future__ import annotations

from collections import deque
from typing import Any

from lakeshore.core import messages as m
from lakeshore.core.bodies import Job
from lakeshore.core.credit import Limits
from lakeshore.core.door import hash_of
from lakeshore.core.rows import Batch, Committed
from lakeshore.testing.faults import FaultyLink
from lakeshore.testing.hand import HandClient, HandPlane

from .asked import Asked, SimClient
from .commits import Model
from .disk import Disk
from .facts import Broken, Chance
from .far import FarClient
from .former import Former
from .gate import Gate, Way
from .leased import FarWorker
from .leaving import Leaving
from .local import SimWorker
from .stored import SimStore
from .truth import Hand
from .wires import Wire

CLOSED = m.Refusal(0, "PlaneClosed", "the link is gone")


class World:
    """Everything that is simulated.

    Args:
        seed: what the plane's chance comes from.
        far: which of the programs are in other processes, by their place among them.
        limits: what each of those may have unanswered.
        tokens: each of those has its own.
        options: of the plane: `retention`, `journal_bytes`.
    """

    def __init__(
        self,
        seed: int,
        *,
        far: tuple[int, ...] = (),
        limits: Limits | None = None,
        tokens: bool = False,
        **options: Any,
    ) -> None:
        self.seed, self.chance = seed, Chance()
        self.chance.belongs_to(seed, 0)
        self.store = SimStore(lambda: 0.0)
        self.plane = HandPlane(store=self.store, chance=self.chance, **options)
        clock = self.plane.clock
        self.store.now = lambda: clock.now
        self.model = Model(lambda: clock.now, lambda: clock.wall, options["retention"])
        self.leaving = Leaving(self.model)
        self.store.stored = self._stored
        self.stalled = False
        self.clients: list[SimClient] = []
        self.ghosts: list[tuple[Any, FaultyLink | Wire]] = []
        self.workers: list[SimWorker] = []
        self.links: list[FaultyLink | Wire] = []  # every end that may be slow
        self.far, self.with_tokens = far, tokens
        self.former: list[Former] = []  # heads that were superseded and have not seen it
        self.gate = Gate(self, limits)
        self.gate.open()
        self.store.owner = self.plane.engine
        self.tokens: list[str] = []
        self.broken: Broken | None = None  # met where it could not be raised
        self.reports: deque[Any] = deque(maxlen=30)
        self.unanswered: deque[m.Submit] = deque(maxlen=10)  # submits of clients that are gone
        self.streams: list[Asked] = []
        self.ids: list[bytes] = []
        self.settle()

    # the store

    def _stored(self, batch: Batch, committed: Committed) -> None:
        model, handed = self.model, self.store.handed
        times = [when for what, when in handed if what == id(batch)]
        model.flushed_before, model.flushed = model.flushed, times[-1] if times else model.now()
        model.storing(batch, committed)
        self.store.log.append((batch, committed))

    # links

    def client(self, number: int) -> SimClient:
        """One of the programs, connected when it is first used."""
        while len(self.clients) <= number:
            if len(self.clients) in self.far:
                self.clients.append(FarClient(self, len(self.clients), self._token()))
                continue
            far, near = self.plane.connect()
            hand = HandClient(self.plane, far, near)
            self.plane.clients.append(hand)
            client = SimClient(len(self.clients), hand)
            self._listen(client, far, near)
            self.clients.append(client)
        return self.clients[number]

    def _token(self) -> tuple[str, bytes] | None:
        """Of its own for each program, made by whoever owns the plane."""
        if not self.with_tokens:
            return None
        text = f"lks_{len(self.tokens)}"
        self.tokens.append(text)
        self.owner(m.CreateToken(1, hash_of(text), "admin", "default"))
        self.plane.settle()
        row = self.plane.head.office.token(hash_of(text))
        stored = not (
            self.store.hold or self.store.failures or self.plane.engine.store_error
        )  # else a crash would take it away
        return (text, row.id) if row is not None and stored else None

    def owner(self, message: Any) -> None:
        """Whoever owns the plane asks something, and waits for no answer."""
        far, _ = self.plane.connect()
        far.send(message)

    def _listen(self, client: SimClient, far: FaultyLink, near: FaultyLink) -> None:
        hear, arrive = near.receive, far.receive
        near.watch = lambda message: self.leaving.to_client(client, message)

        def heard(message: Any) -> None:
            self.model.heard(message, None)
            hear(message)

        def arrived(message: Any) -> None:
            asked = client.asked.get(message.req)
            if asked is not None and isinstance(message, m.Chunk) and not client.gone:
                if asked.seen < message.seq:
                    raise Broken("no frame is missed or doubled", f"{asked.seen} was next")
                asked.seen = message.seq + message.count
            arrive(message)

        near.receive, far.receive = heard, arrived
        self.links += [far, near]

    def hire(self, **hello: Any) -> SimWorker:
        """A worker, connected; one that is `leased` is in another process, unless it is `near`."""
        id = self.plane.new_id()
        fields: dict[str, Any] = {
            "worker": id,
            "name": "hand",
            "host": "here",
            "pid": 1,
            "queues": (),
            "slots": 1,
        } | hello
        unknown: set[str] = set(fields.pop("unknown", ()))
        fields["follow_all"] = not fields["queues"] if "follow_all" not in fields else fields["follow_all"]
        hand = Hand(m.Hello(**fields), unknown)
        self.model.hands[id] = hand
        hand.heard_at = self.model.now()
        fields["unknown"] = unknown
        worker = self._far(hand, fields) if hand.leased else self._local(hand, fields)
        self.workers.append(worker)
        return worker

    def _far(self, hand: Hand, fields: dict[str, Any]) -> FarWorker:
        worker = FarWorker(self, hand, fields)
        if hand.near:
            far, near = self.plane.connect()
            self._watch(hand, near)
            worker.moves_in(far, near)
        return worker

    def _local(self, hand: Hand, fields: dict[str, Any]) -> SimWorker:
        far, near = self.plane.connect()
        self._watch(hand, near)
        worker = SimWorker(self.plane, far, near, fields)
        worker.sim, worker.model_hand = self, hand
        self.links += [far, near]
        return worker

    def _watch(self, hand: Hand, near: FaultyLink) -> None:
        near.watch = lambda message: self.leaving.to_worker(hand, message)
        hear = near.receive

        def heard(message: Any) -> None:
            self.worker_heard(hand, message)
            hear(message)

        near.receive = heard

    def worker_heard(self, hand: Hand, message: Any) -> None:
        """Something of a worker reaches the head."""
        if isinstance(message, m.Hello):
            self.model.beaten(hand)
        elif hand.leased:
            self.model.lapse(hand)
            hand.heard_at = self.model.now()
        self.model.heard(message, hand)
        if isinstance(message, m.Ended | m.Frames | m.GaveBack):
            self.reports.append(message)

    def holds(self, worker: SimWorker) -> set[tuple[bytes, int]]:
        """What a worker was granted and has not let go of."""
        return self.model.hands[worker.worker.hello.worker].holds

    def begins(self, worker: SimWorker, job: Job) -> None:
        """A body begins."""
        model, id = self.model, worker.worker.hello.worker
        if model.granted.get((job.id, job.attempt)) != id:
            raise Broken("a body needs a grant")
        for attempt in range(1, job.attempt):
            other = model.ran.get((job.id, attempt))
            ended = model.ended.get((job.id, attempt))
            failed = ended is not None and ended[1].move == "fail"
            if other is None or failed or (job.id, attempt) in model.gave_back:
                continue
            hand = model.hands[other]
            if not (hand.left or model.gone_since(hand, (job.id, attempt))):
                raise Broken("a body runs again only for a reason", f"attempt {attempt} and {job.attempt}")
        model.ran[job.id, job.attempt] = id
        model.began[job.id, job.attempt] = model.now()

    def ended(self, worker: SimWorker, *, lost: bool, told: bool = False, noticed: bool = True) -> None:
        """A worker is no more, and the head hears of it; of one in another process perhaps later."""
        hand = self.model.hands[worker.worker.hello.worker]
        if lost:
            hand.lost = True
        self.workers.remove(worker)
        if isinstance(worker, FarWorker):
            worker.vanish(told=told, noticed=noticed)
            return
        self._forget(worker.link, worker.head_link)
        if lost:
            worker.link.cut()
        else:
            worker.link.close()

    def _forget(self, *links: FaultyLink | Wire) -> None:
        self.links = [link for link in self.links if link not in links]

    def cut(self, client: SimClient, *, noticed: bool) -> None:
        """A program ends, or its link breaks; `noticed`: the head sees it at once."""
        self.abandon(client)
        client.gone = True
        if isinstance(client, FarClient):
            self._cut_far(client, noticed=noticed)
            return
        hand = client.hand
        if hand in self.plane.clients:
            self.plane.clients.remove(hand)
        self.clients.remove(client)
        hand.link.receive = lambda message: None
        hand.client.closed(CLOSED)
        self._forget(hand.link, hand.head_link)
        if noticed:
            hand.link.cut()
        else:
            hand.link.hold = True
            self.ghosts.append((client, hand.link))

    def _cut_far(self, client: FarClient, *, noticed: bool) -> None:
        self.clients.remove(client)
        client.way.leave()
        wire = client.way.sever(1000, 0)
        client.core.closed(CLOSED)
        if wire is not None:
            self._unseen(client, wire, noticed=noticed)

    def _unseen(self, party: Any, wire: Wire, *, noticed: bool) -> None:
        """The far end of a wire is gone; what was sent is on its way, unless that was `noticed`."""
        if noticed:
            wire.deliver()
            wire.cut()
        else:
            self.ghosts.append((party, wire))

    def sever(self, way: Way, up: int, down: int, *, noticed: bool) -> None:
        """The link of a party in another process breaks."""
        wire = way.sever(up, down)
        if wire is not None:
            self._unseen(way.party, wire, noticed=noticed)

    def let_go(self, link: FaultyLink | Wire) -> None:
        """A link is over at one end."""
        self._forget(link)

    def abandon(self, client: SimClient) -> None:
        for asked in client.asked.values():
            if asked.state in ("open", "blocked", "turn"):
                if asked.kind == "submit":
                    self.unanswered.append(asked.message)
                if asked in self.leaving.waiting:
                    self.leaving.waiting.remove(asked)
                asked.state = "gone"

    # the head

    def crash(self) -> None:
        """The head's process is killed and comes back; everything beside the store is gone."""
        self._bereft()
        for worker in [worker for worker in self.workers if worker.model_hand.near]:
            hand = worker.model_hand  # it was in the head's own process
            hand.lost, hand.leased = True, False
            self.workers.remove(worker)
        self.gate.crash()
        self.ghosts.clear()
        self.links.clear()
        self.plane.crash()
        self._opened()
        self.settle()

    def _bereft(self) -> None:
        """The head's process ends, and with it what was in it."""
        model = self.model
        for client in self.clients:
            if not client.far:
                self.abandon(client)
        self.clients = [client for client in self.clients if client.far]
        for asked in self.leaving.waiting:
            asked.state, asked.unsure = "open", True
        model.reopened = True
        self.leaving.waiting.clear()
        self.leaving.trouble = False
        self.store.hold = self.store.hold_reads = False
        self.store.failures.clear()
        self.store.refuse = None
        self.store.handed.clear()
        self.stalled = False
        self.workers = [worker for worker in self.workers if worker.far]

    def _opened(self) -> None:
        """Another process has the store now."""
        self.model.adopted()
        self.store.owner = self.plane.engine
        self.gate.open()

    def thaw(self, worker: FarWorker) -> None:
        """A frozen worker goes on."""
        worker.frozen = False
        if worker.beats is not None:
            worker.beats.mute = False
        wire = worker.way.wire
        if wire is not None and not wire.broken:
            wire.hold = wire.other.hold = False
            wire.other.deliver()
            wire.deliver()

    def deaf(self, seconds: float) -> None:
        """The head's process is stopped for a while, and nothing else is."""
        clock = self.plane.clock
        clock.now += seconds
        clock.wall += seconds
        self.model.deaf(seconds)
        self.settle()

    def takeover(self) -> None:
        """Another process opens the store while the head still runs: it is superseded, and sees that at
        its next commit. What was in its process lives on, outside."""
        plane, gate = self.plane, self.gate
        self.former.append(Former(self, plane.engine, gate.door, gate.reception))
        self._bereft()
        plane.clients.clear()
        plane.links.clear()
        near = [worker for worker in self.workers if worker.model_hand.near]
        plane._open()  # pyright: ignore[reportPrivateUsage]
        self._opened()
        self.store.release()
        self.store.release_reads()
        for worker in near:
            assert isinstance(worker, FarWorker)
            worker.moved_out()
        self.settle()

    def power_cut(self, commits: int) -> None:
        """The machine's power goes: under sync=normal the newest commits go with it."""
        self.store.drop()
        self.store.lose(min(commits, len(self.store.log) - 1))
        disk = Disk()
        for batch, committed in self.store.log:
            disk.apply(batch, committed)
        self.model.forget(disk)
        self.leaving.told = {id: told for id, told in self.leaving.told.items() if _still(disk, id, told)}
        self.leaving.acknowledged &= disk.rows.keys()
        self.streams = [s for s in self.streams if s.id in disk.rows and s.seen <= disk.frames[s.id].next]
        self.crash()

    def settle(self) -> None:
        """Let happen what needs no time, unless the plane is stalled."""
        if not self.stalled:
            self._settle()
            while self._let_go():
                self._settle()
        if self.broken is not None:
            raise self.broken

    def _settle(self) -> None:
        self.plane.settle()
        while any(former.pump() for former in self.former):
            self.plane.settle()

    def _let_go(self) -> bool:
        """Workers that were told that nothing is left end, as do those that drained; whether one did."""
        moved = False
        for worker in list(self.workers):
            core = worker.worker
            if worker.dismissed:
                moved = True
                self.ended(worker, lost=True)
                continue
            if not worker.linked_now:
                continue
            if worker.quiet and not core.draining:
                moved = True
                core.drain()
            if core.draining and not core.held:
                moved = True
                core.leave()
                self.ended(worker, lost=False)
        return moved

    def forget(self) -> None:
        """Let go of everything: messages aren't looked at for cycles, so garbage may hang on one."""
        for former in self.former:
            former.forget()
        for part in (
            self.gate.door,
            self.gate,
            self.plane.engine,
            *self.plane.head.spaces.values(),
            self.plane,
            self.store,
            self,
        ):
            vars(part).clear()

    @property
    def far_parties(self) -> bool:
        """Whether anybody is in another process."""
        return bool(self.gate.ways)

    @property
    def quiet(self) -> bool:
        """Whether nothing is held back anywhere, so that all that should have happened has."""
        store, engine = self.store, self.plane.engine
        return (
            not self.stalled
            and not (store.hold or store.held or store.hold_reads or store.held_reads)
            and engine.store_error is None
            and engine.idle
            and not self.ghosts
            and not any(link.hold for link in self.links)
            and not self.former
            and all(way.settled for way in self.gate.ways)
            and not any(worker.far and not worker.linked_now for worker in self.workers)
        )


def _still(disk: Disk, id: bytes, told: tuple[str, int]) -> bool:
    row = disk.rows.get(id)
    return row is not None and (row.state, row.record.attempt) == told
