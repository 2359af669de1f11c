"""What must be so once nothing is held back any more: nobody waits in vain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeshore.core import messages as m
from lakeshore.core.ids import text_of
from lakeshore.core.rows import InvocationRow, QueueRow

from .asked import Asked
from .facts import NEVER, SLACK, TERMINAL, Broken
from .truth import LEASE, TICK

if TYPE_CHECKING:
    from .truth import Hand
    from .world import SimWorker, World

AT_ONCE = "what happens reaches who waits for it at once"


def check(world: World) -> None:
    """Look at a plane that has come to rest."""
    for client in world.clients:
        for asked in client.asked.values():
            if asked.state in ("open", "turn"):
                _check_asked(world, asked)
            elif client.far and asked.state == "done" and not asked.answered:
                raise Broken(AT_ONCE, f"the answer was lost: {asked.kind}: {asked.message!r}")
    _check_memory(world)
    _check_live(world)
    for worker in world.workers:
        _check_worker(world, worker)
    for asked in world.leaving.waiting[:1]:
        _check_blocked(world, asked)
    world.model.shifted.clear()
    world.model.loosest.clear()


def _check_asked(world: World, asked: Asked) -> None:
    model, kind = world.model, asked.kind
    row = model.disk.rows.get(asked.id)
    what = f"{kind}: {asked.message!r}"
    if asked.client.unsent(asked):
        return
    if asked.client.far and not asked.heard:
        raise Broken("credit comes back", what)
    if kind == "wait":
        if row is None or row.state in TERMINAL:
            raise Broken(AT_ONCE, what)
    elif kind == "kill":
        if row is None or row.state != "running":
            raise Broken(AT_ONCE, what)
        silent = model.hands[row.record.attempts[-1].worker].lost  # it is not known yet that it is
        if not (asked.message.running or row.record.killing or silent):
            raise Broken(AT_ONCE, what)
    elif kind in ("follow", "topic"):
        _check_stream(world, asked, row)
    else:
        raise Broken(AT_ONCE, what)


def _check_stream(world: World, asked: Asked, row: InvocationRow | None) -> None:
    disk = world.model.disk
    id = asked.id
    if asked.kind == "topic":
        found = disk.topic_ids.get(asked.message.name)
        if found is None:
            return
        id = found
    elif row is None:
        return
    frames = disk.frames.get(id)
    next_ = 0 if frames is None else frames.next
    if asked.credit > 0 and asked.cursor < next_:
        raise Broken(AT_ONCE, f"{asked.message!r} is at {asked.cursor} of {next_}")
    over = disk.topics[id].closed if asked.kind == "topic" else row is not None and row.state in TERMINAL
    if over and asked.cursor >= next_ and asked.credit > 0:
        raise Broken(AT_ONCE, f"{asked.message!r} has no end")


def _check_memory(world: World) -> None:
    live = world.plane.head.space("default").live
    if live.keys() != world.model.disk.live.keys():
        odd = sorted(text_of(id) for id in live.keys() ^ world.model.disk.live.keys())
        raise Broken("memory has what lives, and nothing else", ", ".join(odd))


def _check_live(world: World) -> None:
    model = world.model
    now, hired = model.now(), {worker.worker.hello.worker: worker for worker in world.workers}
    for id in model.disk.live:
        row = model.disk.rows[id]
        deadline = row.record.deadline
        if row.state == "running":
            attempt = row.record.attempts[-1]
            hand, key = model.hands[attempt.worker], (id, attempt.number)
            if hand.leased and attempt.worker not in hired:
                if now > hand.heard_at + LEASE + 10 * TICK:
                    raise Broken("what runs is at a worker", text_of(id))
                continue
            if attempt.worker not in hired or key not in model.granted:
                raise Broken("what runs is at a worker", text_of(id))
            if hand.leased and key not in {key for key, *_ in hired[attempt.worker].worker.attempts()}:
                raise Broken("what runs is at a worker", f"{text_of(id)}: its worker has not got it")
            began = model.told_began.get((id, attempt.number))
            timeout = row.call.options.timeout
            if timeout is not None and began is not None and now > began + timeout + 10 + SLACK:
                raise Broken("a timeout has a backstop", text_of(id))
        elif deadline is not None and now > model.latest(deadline):
            raise Broken(AT_ONCE, f"{text_of(id)} is past its deadline")


def _check_worker(world: World, worker: SimWorker) -> None:
    model, hello = world.model, worker.worker.hello
    hand = model.hands[hello.worker]
    running = len(hand.holds)
    queues = [queue for queue in model.disk.queues.values() if hello.follow_all or queue.name in hand.names]
    fifo = all(queue.settings["kind"] == "fifo" for queue in queues)
    ahead = hand.ended >= 8 and fifo and hello.limit is None
    if running > (max(16, 4 * hello.slots) if ahead or hand.ended >= 8 else hello.slots):
        raise Broken("a worker is granted no more than its credit", f"{running} on {hello.slots} slots")
    if len(worker.jobs) > hello.slots:
        raise Broken("a worker is granted no more than its credit", f"{len(worker.jobs)} bodies")
    if hand.draining:
        return
    if hello.quiet and not running and not worker.quiet:
        _check_told(world, hand, queues)
    if hello.limit is not None:
        return
    if running >= hello.slots:
        return
    for queue in queues:
        limit = model.admission(queue.id).get("max_running") or NEVER
        if queue.state in ("active", "draining") and len(model.disk.running[queue.id]) < limit:
            for row in _claimable(world, queue.id, hand.unknown):
                raise Broken("no work waits while a worker has room", f"{text_of(row.id)} in {queue.name}")


def _check_told(world: World, hand: Hand, queues: list[QueueRow]) -> None:
    """A worker that ends when nothing is left, and is not told so, has something to wait for."""
    model = world.model
    once = hand.hello.limit is not None
    row = model.disk.rows.get(hand.first)
    if once and row is not None and row.state not in TERMINAL:
        return
    for queue in queues:
        queued = model.disk.queued[queue.id].values()
        retrying = any(row.record.ready_at is not None and row.record.attempts for row in queued)
        open_ = queue.state in ("active", "draining")
        if open_ and (_claimable(world, queue.id, hand.unknown) or (retrying and not once)):
            return
    raise Broken(AT_ONCE, "nothing is left, and a worker that waits for that is not told")


def _claimable(world: World, queue: bytes, unknown: set[str]) -> list[InvocationRow]:
    model = world.model
    return [
        row
        for row in model.disk.queued[queue].values()
        if row.call.options.function.name not in unknown
        and (row.record.ready_at is None or model.latest(row.record.ready_at) < model.now())
    ]


def _check_blocked(world: World, asked: Asked) -> None:
    """Whoever waits for room waits because there is none."""
    model = world.model
    if any(other.unsure for client in world.clients for other in client.asked.values()):
        return  # a turn may be kept for one who never heard of it
    message = asked.message if isinstance(asked.message, m.Submit) else asked.message.items[0]
    queue = model.disk.queues.get(model.disk.names.get(message.queue, b""))
    if queue is None or queue.state not in ("active", "paused"):
        raise Broken(AT_ONCE, f"{message!r} waits for a queue that admits nothing")
    rule = model.admission(queue.id)
    if any(other.message.queue == message.queue for other, _ in _turns(world)):
        return
    room = len(model.disk.queued[queue.id]) < (rule["max_depth"] or NEVER) and not rule["max_bytes"]
    if room and not rule["rate_limit"]:
        raise Broken(AT_ONCE, f"{queue.name} has room, and {message!r} waits")


def _turns(world: World) -> list[tuple[Asked, float]]:
    return [
        (asked, asked.turned)
        for client in world.clients
        for asked in client.asked.values()
        if asked.state == "turn" and isinstance(asked.message, m.Submit)
    ]
