"""What has happened in a simulated plane: what was asked of the head, and what bodies did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from lakeshore.core import messages as m
from lakeshore.core.ids import text_of
from lakeshore.core.leases import AWAY, TICK
from lakeshore.core.rows import InvocationRow
from lakeshore.core.values import unpack_frames

from .disk import Disk
from .facts import NEVER, SLACK

LEASE = 30.0  # seconds


class Hand:
    """A worker as it was hired.

    Attributes:
        names: queues it is bound to by name, unless `follow_all`.
        unknown: functions it can't find.
        ended: how many bodies the head heard the end of since it last gave one back.
    """

    def __init__(self, hello: m.Hello, unknown: set[str]) -> None:
        self.hello, self.unknown = hello, unknown
        self.names = set(hello.queues or ("default",))
        self.listed = bool(hello.queues)
        self.draining = self.lost = self.left = False
        self.ended = 0
        self.first = b""  # what it was granted first
        self.leased, self.near = hello.leased, hello.near
        self.removed = False  # an operator wants it gone
        self.wire: Any = None  # of a leased one, the link it registered by last
        self.heard_at = 0.0  # of a leased one, when the head last heard of it
        self.parted_at: float | None = None  # and when it saw the end of its link, unless heard of since
        self.lapsed_at = -NEVER  # when its lease had run out at last
        self.holds: set[tuple[bytes, int]] = set()  # granted, and neither ended nor given back
        self.functions: set[bytes] = set()


class Truth:
    """The facts of one simulation.

    Args:
        now, wall: the two clocks.
        retention: seconds that the plane keeps what has ended.
    """

    def __init__(self, now: Callable[[], float], wall: Callable[[], float], retention: float) -> None:
        self.now, self.wall, self.retention = now, wall, retention
        self.disk = Disk()
        self.offsets = [wall() - now()]  # how far the wall clock was ahead, each time it jumped
        self.reopened = False
        self.flushed = self.flushed_before = 0.0  # when the newest two commits were handed over
        self.calls: dict[bytes, m.Submit] = {}
        self.retries_of: dict[bytes, bytes] = {}
        self.heard_at: dict[bytes, float] = {}
        self.stored_at: dict[bytes, float] = {}
        self.kills: set[bytes] = set()
        self.cancelled: set[str | None] = set()  # queues told to kill what is queued; None: all
        self.hands: dict[bytes, Hand] = {}
        self.granted: dict[tuple[bytes, int], bytes] = {}  # to whom
        self.ended: dict[tuple[bytes, int], tuple[bytes, m.Ended]] = {}
        self.gave_back: dict[tuple[bytes, int], bytes] = {}
        self.began: dict[tuple[bytes, int], float] = {}  # when a body began
        self.told_began: dict[tuple[bytes, int], float] = {}  # when the head heard of it
        self.ran: dict[tuple[bytes, int], bytes] = {}  # bodies that began, and where
        self.yielded: defaultdict[tuple[bytes, int], list[Any]] = defaultdict(list)
        self.prune_by_hand: list[float | None] = []
        self.loosest: dict[bytes, float] = {}  # max_depth since the plane was at rest: turns were given by it
        self.depth_before: defaultdict[bytes, int] = defaultdict(int)
        self.shifted: set[str] = set()  # queues told to change their state since the plane was last at rest
        self.ever_shifted = False
        self.claimed: dict[tuple[bytes, int], float] = {}  # when an attempt was stored first
        self.posted: defaultdict[bytes, set[Any]] = defaultdict(set)  # values of topics
        self.removals: defaultdict[str, int] = defaultdict(int)  # of topics, by name

    # clocks

    def jumped(self) -> None:
        """The wall clock was moved."""
        self.offsets.append(self.wall() - self.now())

    def earliest(self, wall: float) -> float:
        """The first moment that a stored time may mean."""
        if self.reopened and len(self.offsets) > 1:
            return -NEVER
        return wall - max(self.offsets) - SLACK

    def latest(self, wall: float) -> float:
        """The last moment that a stored time may mean."""
        return wall - min(self.offsets) + SLACK

    def forget(self, disk: Disk) -> None:
        """Power went: only what is on this disk has happened."""
        self.disk = disk
        facts: list[dict[tuple[bytes, int], Any]] = [
            self.granted, self.ended, self.gave_back, self.began, self.told_began, self.yielded, self.ran
        ]  # fmt: skip
        for fact in facts:
            for id, attempt in [key for key in fact if key[1] > self.attempt_of(key[0])]:
                del fact[id, attempt]
        self.depth_before.clear()
        self.posted.clear()
        for id in disk.topics:
            for chunk in disk.frames[id].chunks.values():
                self.posted[id].update(unpack_frames(chunk.data)[1])

    # leases

    def lapse(self, hand: Hand) -> None:
        """See whether the head may have given a worker up by now."""
        now = self.now()
        silent = now - hand.heard_at >= LEASE - SLACK and not hand.near
        parted = hand.parted_at is not None and now - hand.parted_at >= AWAY - SLACK
        if silent or parted:
            hand.lapsed_at = now

    def gone_since(self, hand: Hand, attempt: tuple[bytes, int]) -> bool:
        """Whether a worker may have been given up since it was granted an attempt."""
        if hand.leased and not hand.lost:
            self.lapse(hand)
            return hand.lapsed_at >= self.claimed.get(attempt, 0.0)
        return hand.lost

    def beaten(self, hand: Hand) -> None:
        """The head hears that a worker's process lives."""
        self.lapse(hand)
        hand.heard_at, hand.parted_at = self.now(), None

    def parted(self, hand: Hand) -> None:
        """The head sees the end of a worker's link."""
        self.lapse(hand)
        hand.parted_at = self.now()

    def deaf(self, seconds: float) -> None:
        """The head could not listen for so long. It may count one tick of that."""
        for hand in self.hands.values():
            hand.heard_at += max(0.0, seconds - TICK)
            if hand.parted_at is not None:
                hand.parted_at += max(0.0, seconds - TICK)

    def adopted(self) -> None:
        """Another process of the head takes over: each leased worker has one whole lease to come back."""
        for hand in self.hands.values():
            self.lapse(hand)
            if hand.near or not hand.leased:
                hand.lapsed_at, hand.near = self.now(), False
                hand.lost = hand.lost or not hand.leased
            hand.heard_at, hand.parted_at, hand.wire = self.now(), None, None

    # what the head heard

    def heard(self, message: Any, hand: Hand | None) -> None:
        """Something reaches the head."""
        match message:
            case m.Submit():
                self._asked(message)
            case m.SubmitMany():
                for item in message.items:
                    self._asked(item)
            case m.Kill():
                self.kills.add(message.id)
            case m.BulkCancel():
                self.cancelled.add(message.queue)
            case m.RemoveQueue():
                self.cancelled.add(message.name)
            case m.Retry():
                self.retries_of[message.new_id] = message.id
                self.heard_at.setdefault(message.new_id, self.now())
            case m.ShiftQueue():
                self.shifted.add(message.name)
                self.ever_shifted = True
            case m.RemoveTopic():
                self.removals[message.name] += 1
            case m.PruneJobs():
                self.prune_by_hand.append(message.older_than)
            case m.RemoveWorker():
                for hand_ in self.hands.values():
                    hand_.removed |= text_of(hand_.hello.worker) == message.name
            case m.Hello() if hand is not None:
                held = {(each.id, each.attempt) for each in message.held}
                hand.holds = held & hand.holds
            case m.Ended() | m.GaveBack() | m.Began() | m.Drain() | m.Bye() if hand is not None:
                self._reported(message, hand)
            case _:
                pass

    def _asked(self, message: m.Submit) -> None:
        self.calls.setdefault(message.id, message)
        self.heard_at.setdefault(message.id, self.now())

    def _reported(self, message: m.Ended | m.GaveBack | m.Began | m.Drain | m.Bye, hand: Hand) -> None:
        worker = hand.hello.worker
        if isinstance(message, m.Drain):
            hand.draining = True
        elif isinstance(message, m.Bye):
            hand.left = True
        elif self.granted.get((message.id, message.attempt)) != worker:
            return  # not its attempt: nobody may listen
        elif isinstance(message, m.Ended):
            hand.ended += 1
            hand.holds.discard((message.id, message.attempt))
            self.ended.setdefault((message.id, message.attempt), (worker, message))
        elif isinstance(message, m.GaveBack):
            hand.ended = 0 if not message.begun else hand.ended
            hand.holds.discard((message.id, message.attempt))
            self.gave_back[message.id, message.attempt] = worker
        else:
            key = (message.id, message.attempt)
            if hand.leased or key not in self.told_began:  # one that comes back says so again
                self.told_began[key] = self.now()

    def queue_removed(self, name: str) -> None:
        for hand in self.hands.values():
            if hand.listed and name in hand.names:
                hand.names.discard(name)
                if not hand.names:
                    hand.names, hand.listed = {"default"}, False

    def attempt_of(self, id: bytes) -> int:
        row = self.disk.rows.get(id)
        return 0 if row is None else row.record.attempt

    def admission(self, queue: bytes) -> dict[str, Any]:
        """A queue's rule as it is stored."""
        row = self.disk.queues.get(queue)
        return {} if row is None else row.settings.get("admission", {})

    def queue_name(self, row: InvocationRow) -> str:
        """The name of an invocation's queue, empty for one that was removed."""
        queue = self.disk.queues.get(row.queue)
        return "" if queue is None else queue.name

    def keeps(self, row: InvocationRow) -> float:
        """How long an ended invocation is kept."""
        queue = self.disk.queues.get(row.queue)
        own = None if queue is None else queue.settings.get("retention")
        return self.retention if own is None else own
