"""A worker's link loses what follows any of its messages, either way or both: the end is the same."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.testing.faults import FaultyLink
from lakeshore.testing.hand import HandPlane, HandWorker


class Lossy:
    """Lets `count` messages through one end, loses what comes after, and breaks the link when told."""

    def __init__(self, link: FaultyLink, count: int) -> None:
        self.left, self.lost = count, 0
        send = link.send

        def lossy(message: Any) -> None:
            self.left -= 1
            if self.left >= 0:
                send(message)
            else:
                self.lost += 1

        link.send = lossy  # type: ignore[method-assign]


class Story:
    """One worker, four jobs: one returns, one streams, one fails and is retried, one is killed."""

    def __init__(self, direction: str, count: int, restart: bool) -> None:
        self.plane = HandPlane(seed=3)
        self.client = self.plane.client()
        self.restart, self.broken = restart, False
        connect = self.plane.connect
        self.ends: list[Lossy] = []

        def lossy(namespace: str = "default") -> tuple[FaultyLink, FaultyLink]:
            theirs, ours = connect(namespace)
            if direction != "down":
                self.ends.append(Lossy(theirs, count))
            if direction != "up":
                self.ends.append(Lossy(ours, count))
            return theirs, ours

        self.plane.connect = lossy  # type: ignore[method-assign]
        self.worker = self.plane.worker(leased=True, slots=2)
        self.plane.connect = connect  # type: ignore[method-assign]
        self.ids = dict(zip(("value", "frames", "retry", "kill"), self.submit(), strict=True))
        self.stream = self.client.follow(self.ids["frames"])
        self.killing = False
        self.given: dict[bytes, int] = {}

    def submit(self) -> list[bytes]:
        submit = self.client.submit
        return [
            submit("value"),
            submit("frames", kind="generator"),
            submit("retry", retries=3, retry_delay=0.0, timeout=500.0),
            submit("kill"),
        ]

    def run(self) -> None:
        """Until everything has ended; a link that loses is noticed after a while, and replaced."""
        for _ in range(60):
            self.plane.advance(1)
            self.play()
            if not self.broken and any(end.lost for end in self.ends):
                self.broken = True
                self.plane.advance(3)
                self.play()
                self.reconnect()
            if all(self.client.state(id) in ENDED for id in self.ids.values()):
                break
        self.plane.advance(1)
        if any(end.lost for end in self.ends) and not self.broken:
            self.reconnect()
        self.plane.advance(1)

    def reconnect(self) -> None:
        if self.restart:
            self.plane.crash()
            self.client = self.plane.client()
            self.stream = self.client.follow(self.ids["frames"])
            self.killing = False
        else:
            self.worker.link.cut()
        self.plane.advance(1)
        self.worker.relink()
        self.plane.settle()

    def play(self) -> None:
        worker: HandWorker = self.worker
        for name, id in self.ids.items():
            job = worker.jobs.get(id)
            if job is None:
                continue
            if name == "kill":
                if (id, "kill") in worker.cancelled:
                    worker.stop(id)
                elif not self.killing:
                    self.killing = True
                    self.client.kill(id, running=True)
            elif name == "retry" and job.attempt == 1:
                worker.fail(id, ValueError("again"))
            elif name == "frames":
                given = self.given.get(id, 0)
                if given < 3:
                    self.given[id] = given + 1
                    worker.give(id, given, given)
                else:
                    worker.finish(id)
                    self.given[id] = 0
            else:
                worker.finish(id, name)


ENDED = ("succeeded", "failed", "killed", "timeout")


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("direction", ["up", "down", "both"])
def test_wherever_the_link_is_cut_the_end_is_the_same(direction: str, restart: bool) -> None:
    count, lost = 0, True
    while lost:
        story = Story(direction, count, restart)
        terminal: dict[bytes, list[str]] = {}

        def watch(batch: Any, terminal: dict[bytes, list[str]] = terminal) -> None:
            for row in (*batch.inserts.values(), *batch.updates.values()):
                if row.state in ENDED:
                    terminal.setdefault(row.id, []).append(row.state)

        story.plane.store.watch = watch
        story.run()
        states = {name: story.client.state(id) for name, id in story.ids.items()}
        assert states == {
            "value": "succeeded",
            "frames": "succeeded",
            "retry": "succeeded",
            "kill": "killed",
        }, (count, states)
        frames = story.client.frames(story.client.follow(story.ids["frames"]))
        last = max(attempt for _, attempt, _ in frames)
        assert [value for _, attempt, value in frames if attempt == last] == [0, 0, 1, 1, 2, 2], count
        assert [seq for seq, _, _ in frames] == list(range(len(frames))), count
        assert [terminal.get(id) for id in story.ids.values()] == [[state] for state in states.values()]
        assert {story.client.record(id).losses for id in story.ids.values()} == {0}
        assert story.worker.worker.held == 0
        member = story.plane.head.space("default").members[story.worker.worker.hello.worker]
        assert (member.grants, member.state) == ({}, "ready")
        lost, count = any(end.lost for end in story.ends), count + 1
    assert count > 8  # the story was cut in many places, and once in none
