"""The end of a program: everything is let go, all that was promised comes true, and nothing is left."""

from __future__ import annotations

from lakeshore.core import messages as m
from lakeshore.core.ids import text_of

from . import resting
from .asked import Asked
from .facts import TERMINAL, Broken
from .leased import FarWorker
from .steps import QUEUES, Steps
from .world import World

_ROUNDS = 300  # more than any program leaves to do


def finish(world: World, steps: Steps) -> None:
    """Let everything come to its end, look at it again, and see it go."""
    _let_go(world, steps)
    while world.workers:
        steps.lose()
    world.settle()
    if any(hand.leased for hand in world.model.hands.values()):
        steps.advance(45.0)  # whoever had a lease has none by now
        _rest(world)
    _open_queues(world, steps)
    _work_off(world, steps)
    _read_all(world, steps)
    _prune_all(world, steps)


def _let_go(world: World, steps: Steps) -> None:
    steps.go()
    while world.ghosts:
        steps.notice()
    world.store.failures.clear()
    for worker in world.workers:
        if isinstance(worker, FarWorker):
            world.thaw(worker)
    for link in list(world.links):
        link.hold = False
        link.deliver()
    steps.release()
    steps.release_reads()
    world.settle()
    steps.see()
    world.settle()
    for link in list(world.links):
        link.hold = False
        link.deliver()
    steps.advance(6.0)  # by then a failed commit has been tried again
    if world.far_parties:
        steps.advance(60.0)  # and everybody has another link
    _rest(world)


def _rest(world: World) -> None:
    world.settle()
    if not world.quiet:
        raise Broken("a plane comes to rest")
    resting.check(world)
    world.leaving.trouble = False


def _open_queues(world: World, steps: Steps) -> None:
    for name in QUEUES:
        if name in world.model.disk.names:
            for move in ("unarchive", "resume"):
                steps.shift(queue=name, move=move)
    _rest(world)


def _work_off(world: World, steps: Steps) -> None:
    """Run all that lives. What waits for a delay has its turn too."""
    for _ in range(_ROUNDS):
        if not world.model.disk.live and not world.leaving.waiting:
            return
        if not world.workers:
            steps.hire(slots=3)
        while any(worker.jobs for worker in world.workers):
            steps.end(how="anyway")
            world.settle()
        steps.advance(1.0 if world.leaving.waiting else 20.0)
        _rest(world)
    left = ", ".join(text_of(id) for id in world.model.disk.live)
    raise Broken("each invocation reaches a terminal state", left)


def _read_all(world: World, steps: Steps) -> None:
    """Ask for every result and read every journal, once more."""
    program = world.client(0)
    for id in list(world.model.disk.rows):
        for kind, message in (
            ("wait", m.Wait(program.hand.client.number(), id)),
            ("follow", m.Follow(program.hand.client.number(), id, world.model.disk.frames[id].first, 10_000)),
        ):
            asked = steps.ask(program, kind, message, id)
            world.settle()
            _check_read(world, asked, program.hand.answers[message.req])
    _rest(world)


def _check_read(world: World, asked: Asked, answers: list[object]) -> None:
    row, frames = world.model.disk.rows[asked.id], world.model.disk.frames[asked.id]
    last = answers[-1] if answers else None
    if asked.kind == "wait" and not isinstance(last, m.Outcome):
        raise Broken("what is kept is found", f"{text_of(asked.id)}: {last!r}")
    if asked.kind == "follow" and not (isinstance(last, m.StreamEnd) and asked.seen == frames.next):
        raise Broken("a journal can be read again", f"{text_of(asked.id)} ({row.state}): {last!r}")


def _prune_all(world: World, steps: Steps) -> None:
    """Past its retention all that has ended is gone, with its keys and frames, and keys are free."""
    model = world.model
    disk = model.disk
    keys = {(disk.queues[queue].name, key) for queue, key in disk.keys if queue in disk.queues}
    ids = list(disk.rows)
    longest = max([model.retention, *(model.keeps(row) for row in disk.rows.values())])
    world.plane.clock.wall = max(world.plane.clock.wall, model.now() + max(model.offsets))
    model.jumped()
    steps.advance(longest + 1.0)
    steps.advance(130.0)
    _rest(world)
    if disk.rows:
        raise Broken("what is past its retention goes", ", ".join(map(text_of, disk.rows)))
    if disk.keys:
        raise Broken("a key goes with its invocation", f"{disk.keys}")
    for id in ids[:3]:
        steps.ask(world.client(0), "get", m.Get(world.client(0).hand.client.number(), id), id)
    for name, key in sorted(keys)[:2]:
        steps.submit(queue=name, key=key, strict=True, size=7)
        world.settle()
    _rest(world)


__all__ = ["TERMINAL", "finish"]
