"""What readers, publishers and operators may do in one step."""

from __future__ import annotations

from typing import Any

from lakeshore.core import messages as m
from lakeshore.core.settings import check_patch, declare
from lakeshore.core.values import pack

from .asking import Asking

TOPICS = ("news", "logs")


class Reading(Asking):
    """Steps about streams, topics and queues."""

    # streams

    def follow(self, client: int = 0, job: int = 0, since: int = 0, credit: int = 1000) -> None:
        """Open a stream."""
        program, id = self.world.client(client), self.job_id(job)
        message = m.Follow(program.hand.client.number(), id, since, credit)
        self.world.streams.append(self.ask(program, "follow", message, id))

    def resume(self, client: int = 0, which: int = 0, credit: int = 1000) -> None:
        """Come back to a stream where it was left."""
        streams = self.world.streams[-10:]
        if streams:
            old = streams[which % len(streams)]
            program = self.world.client(client)
            message = m.Follow(program.hand.client.number(), old.id, old.seen, credit)
            self.world.streams.append(self.ask(program, "follow", message, old.id))

    def consume(self, client: int = 0, which: int = 0, frames: int = 1) -> None:
        """Be done with some frames of a stream that have arrived."""
        program = self.world.client(client)
        open_ = [a for a in program.asked.values() if a.state == "open" and a.kind in ("follow", "topic")]
        if open_:
            asked = open_[which % len(open_)]
            frames = min(frames, asked.seen - asked.since - asked.got)
            if frames <= 0:
                return
            asked.got += frames
            asked.credit += frames
            program.hand.client.consumed(asked.message.req, frames)

    def post(self, client: int = 0, topic: int = 0, count: int = 1) -> None:
        """Post to a topic."""
        program, world = self.world.client(client), self.world
        for _ in range(count):
            value = pack(world.chance.randbytes(8).hex())
            message = m.Post(program.hand.client.number(), TOPICS[topic], world.plane.clock.wall, value)
            self.ask(program, "post", message).number = world.model.removals[TOPICS[topic]]

    def follow_topic(self, client: int = 0, topic: int = 0, since: int = 0, credit: int = 1000) -> None:
        """Read a topic."""
        program = self.world.client(client)
        message = m.FollowTopic(program.hand.client.number(), TOPICS[topic], since, credit)
        asked = self.ask(program, "topic", message)
        asked.number = self.world.model.removals[TOPICS[topic]]
        disk = self.world.model.disk
        frames = disk.frames.get(disk.topic_ids.get(TOPICS[topic], b""))
        asked.there = ("", 0, *((0, 0) if frames is None else (frames.first, frames.next)))

    def close_topic(self, client: int = 0, topic: int = 0) -> None:
        """End a topic."""
        program = self.world.client(client)
        self.ask(program, "close", m.CloseTopic(program.hand.client.number(), TOPICS[topic]))

    def remove_topic(self, client: int = 0, topic: int = 0) -> None:
        """Remove a topic."""
        program = self.world.client(client)
        self.ask(program, "remove", m.RemoveTopic(program.hand.client.number(), TOPICS[topic]))

    # queues

    def _admin(self, client: int, kind: type[Any], name: str, *fields: Any) -> None:
        program = self.world.client(client)
        asked = self.ask(program, "queue", kind(program.hand.client.number(), name, *fields))
        asked.there = self.world.model.disk.names.get(name)

    def add_queue(self, client: int = 0, queue: str = "a", **settings: Any) -> None:
        """Make a queue."""
        self._admin(client, m.AddQueue, queue, declare(settings))

    def patch(self, client: int = 0, queue: str = "a", **changes: Any) -> None:
        """Change a queue."""
        self._admin(client, m.PatchQueue, queue, check_patch(changes))

    def shift(self, client: int = 0, queue: str = "a", move: str = "pause") -> None:
        """Pause, resume, drain, archive or unarchive."""
        self._admin(client, m.ShiftQueue, queue, move)

    def remove(self, client: int = 0, queue: str = "a", force: bool = True) -> None:
        """Remove a queue."""
        self._admin(client, m.RemoveQueue, queue, force)

    def bulk(self, client: int = 0, queue: str | None = None) -> None:
        """Kill everything queued."""
        program = self.world.client(client)
        self.ask(program, "bulk", m.BulkCancel(program.hand.client.number(), queue))

    def prune(self, client: int = 0, older_than: float | None = None) -> None:
        """Prune by hand."""
        program = self.world.client(client)
        self.ask(program, "prune", m.PruneJobs(program.hand.client.number(), older_than))
