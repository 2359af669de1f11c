"""After many mixed jobs nothing is left in memory but what lives."""

from __future__ import annotations

import random

from lakeshore.core import messages as m
from lakeshore.core.settings import declare
from lakeshore.testing.hand import HandClient, HandPlane


def sizes(plane: HandPlane, clients, workers) -> dict[str, int]:
    """Every table of a plane that grows with jobs."""
    (space,) = plane.head.spaces.values()
    queues = list(space.by_id.values())
    engine = plane.engine
    return {
        "live": len(space.live),
        "backlog": sum(len(queue.backlog) for queue in queues),
        "running": sum(len(queue.running) for queue in queues),
        "dirty": sum(len(queue._dirty) for queue in queues),
        "keys": sum(len(queue.intake.keys) for queue in queues),
        "key reads": sum(len(queue.intake._reading) for queue in queues),
        "tickets": sum(len(queue.intake._tickets) + len(queue.intake._numbers) for queue in queues),
        "reserved": sum(len(queue.intake._reserved) + queue.intake._promised for queue in queues),
        "bytes": sum(queue.backlog.bytes + queue.backlog.retrying for queue in queues),
        "streams": sum(len(queue.streams.open) for queue in queues) + len(space.archive.streams.open),
        "topic streams": len(space.topics.streams.open),
        "grants": sum(len(member.grants) + len(member._pending) for member in space.members.values()),
        "settling": sum(len(member._settling) for member in space.members.values()),
        "waiting": sum(len(c.client._waiting) + len(c.client._asked) for c in clients),
        "gathered": sum(len(c.client._gathered) + len(c.client._streams) for c in clients),
        "jobs": sum(worker.worker.held for worker in workers),
        "mail": len(engine._mail) + len(engine._held) + len(engine._flying_held) + len(engine._outgoing),
    }


def heaps(plane: HandPlane) -> dict[str, int]:
    """Heaps whose entries go lazily."""
    (space,) = plane.head.spaces.values()
    return {
        "timers": len(plane.engine._timers),
        **{
            f"{name} {queue.name}": len(heap)
            for queue in space.by_id.values()
            for name, heap in (
                ("ready", queue.backlog._ready_heap),
                ("expiry", queue.backlog._expiry_heap),
                ("backstops", queue.reports.backstops),
            )
        },
    }


def test_twenty_thousand_mixed_jobs_leave_nothing() -> None:
    rng = random.Random(1)
    plane = HandPlane(seed=1)
    clients = [plane.client() for _ in range(4)]
    peers = [client.head_link.receive.__self__ for client in clients]
    clients[0].answer(
        clients[0].ask(m.AddQueue, "q", declare({"max_depth": 50, "on_full": "block", "kind": "priority"}))
    )
    workers = [plane.worker(slots=8) for _ in range(3)]
    done, count = 0, 0
    open_: list[tuple[HandClient, int]] = []
    while count < 20_000:
        client = rng.choice(clients)
        dice = rng.random()
        if dice < 0.6:
            _, req = client.submit_many(50, queue=rng.choice(("default", "q")), deadline=1e6)
            count += 50
        elif dice < 0.7:
            id, req = client.start(
                key=f"k{count}", retries=1, retry_delay=0.01, timeout=1e6, args=("x" * rng.choice((1, 2000)),)
            )
            client.ask(m.Wait, id)
            count += 1
        elif dice < 0.8:
            id, req = client.start(kind="generator", delay=rng.choice((None, 0.01, 1e6)))
            open_.append((client, client.follow(id, credit=rng.choice((1, 100)))))
            if rng.random() < 0.3:
                client.kill(id, running=True)
            count += 1
        elif dice < 0.85:
            client.ask(m.BulkCancel, rng.choice(("q", None)))
        elif dice < 0.9:
            client.post(f"t{rng.randint(0, 3)}", count)
            client.close(client.follow_topic("t1"))
        plane.settle()
        for client, req in open_:
            client.consume(req, 10)
        for worker in workers:
            for id in list(worker.jobs):
                job = worker.jobs[id]
                if job.why:
                    worker.stop(id)
                elif job.grant.call.options.kind == "generator" and not job.sent:
                    worker.give(id, 1, 2, 3)
                elif rng.random() < 0.1:
                    worker.fail(id, ValueError())
                else:
                    done += 1
                    worker.finish(id, "y" * rng.choice((1, 2000)))
        plane.advance(0.005)
        if rng.random() < 0.01:
            worker = workers.pop(0)
            worker.link.cut()
            workers.append(plane.worker(slots=8))
    for client in clients:
        client.ask(m.BulkCancel)
    for _ in range(50):
        plane.advance(0.5)
        for worker in workers:
            for id in list(worker.jobs):
                worker.finish(id)
        for client in clients:
            client.ask(m.BulkCancel)
    for client, req in open_:
        client.close(req)
    plane.settle()
    assert done > 5000
    assert {name: n for name, n in sizes(plane, clients, workers).items() if n} == {}
    assert sum(len(peer.open) for peer in peers) == 0
    assert len(plane.head.spaces["default"].members) == 3
    for name, size in heaps(plane).items():
        assert size <= (70 if name == "timers" else 2100), name


def test_heaps_do_not_wait_for_times_far_away() -> None:
    plane = HandPlane()
    client, worker = plane.client(), plane.worker()
    week = 604800.0
    for n in range(6000):
        id, _ = client.start(deadline=week, timeout=week, delay=week if n % 2 else None)
        if n % 2:
            client.kill(id)
        plane.advance(0.02)  # so that each has its own time, and each wakes the queue
        for id in list(worker.jobs):
            worker.finish(id)
    assert max(heaps(plane).values()) <= 2100
    assert heaps(plane)["timers"] <= 70
    client.submit(delay=0.01)
    for _ in range(3000):  # each wakes the queue while something far away is due too
        client.start(delay=0.01)
        plane.advance(0.02)
        for id in list(worker.jobs):
            worker.finish(id)
    assert heaps(plane)["timers"] <= 130
