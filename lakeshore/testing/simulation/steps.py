"""What may happen in one step of a simulation. Every choice is in the arguments, as a number that is
taken modulo what there is, so a step still means something when others are left out."""

from __future__ import annotations

from .distance import Distance

QUEUES = ("default", "a", "b", "c")


class Steps(Distance):
    """All that may happen, by name."""

    # the store

    def hold(self) -> None:
        """Commits are slow."""
        self.world.store.hold = True

    def commit(self, count: int = 1) -> None:
        """Slow commits are done."""
        self.world.store.release(count)

    def release(self) -> None:
        """Commits are fast again."""
        self.world.store.hold = False
        self.world.store.release()

    def fail(self, count: int = 1) -> None:
        """Commits fail."""
        self.world.leaving.trouble = True
        self.world.store.failures.extend([OSError("full")] * count)

    def hold_reads(self) -> None:
        """Reads are slow."""
        self.world.store.hold_reads = True

    def read(self, count: int = 1) -> None:
        """Slow reads are done."""
        self.world.store.release_reads(count)

    def release_reads(self) -> None:
        """Reads are fast again."""
        self.world.store.hold_reads = False
        self.world.store.release_reads()

    # links

    def slow(self, link: int = 0) -> None:
        """What one end of a link sends takes time."""
        if self.world.links:
            self.world.links[link % len(self.world.links)].hold = True

    def deliver(self, link: int = 0, count: int = 1) -> None:
        """Some of it arrives."""
        slow = [link for link in self.world.links if link.sent]
        if slow:
            slow[link % len(slow)].deliver(count)

    def fast(self, link: int = 0) -> None:
        """All of it arrives, and what follows at once."""
        slow = [link for link in self.world.links if link.hold]
        if slow:
            slow[link % len(slow)].hold = False
            slow[link % len(slow)].deliver()

    def cut(self, client: int = 0, noticed: bool = True) -> None:
        """A program ends, or its link breaks."""
        clients = self.world.clients
        if clients:
            self.world.cut(clients[client % len(clients)], noticed=noticed)

    def arrive(self, ghost: int = 0, count: int = 1) -> None:
        """What a program sent before it was gone arrives."""
        ghosts = self.world.ghosts
        if ghosts:
            ghosts[ghost % len(ghosts)][1].deliver(count)

    def notice(self, ghost: int = 0) -> None:
        """The head sees that a program is gone."""
        ghosts = self.world.ghosts
        if ghosts:
            ghosts.pop(ghost % len(ghosts))[1].cut()

    # the head

    def stall(self) -> None:
        """The head runs a message at a time from now on."""
        self.world.stalled = True

    def turn(self, limit: int = 1) -> None:
        """It runs some."""
        self.world.plane.engine.pump(limit)

    def go(self) -> None:
        """It runs freely."""
        self.world.stalled = False

    def advance(self, seconds: float = 1.0) -> None:
        """Time passes."""
        self.world.stalled = False
        self.world.plane.advance(seconds)

    def jump(self, seconds: float = 1000.0) -> None:
        """The wall clock is set."""
        self.world.plane.clock.wall += seconds
        self.world.model.jumped()

    def crash(self, stored: bool = False) -> None:
        """The head's process is killed; `stored`: just after a commit of which it never heard."""
        if stored and self.world.store.held:
            self.world.store.lose_answer()
        self.world.crash()

    def power(self, commits: int = 1) -> None:
        """The power goes, and the newest commits with it."""
        self.world.power_cut(commits)
