"""One simulation: a program, run step by step and checked after each."""

from __future__ import annotations

from collections.abc import Sequence

from . import finishing, resting
from .facts import Broken
from .profiles import options, write
from .program import Step
from .steps import Steps
from .world import World


class Simulation:
    """A plane, and a program that is run in it.

    Args:
        seed: of the program, and of all chance.
        profile: which kind of program; drawn from the seed where it is not said.
        steps: how many, or the program's own number.
        program: run this instead of what the seed writes.

    Attributes:
        program: the steps.
        done: how many of them were begun.
    """

    def __init__(
        self,
        seed: int,
        *,
        profile: str | None = None,
        steps: int | None = None,
        program: Sequence[Step] | None = None,
    ) -> None:
        self.seed = seed
        self.profile, written = write(seed, profile, steps)
        self.program = list(written if program is None else program)
        self.done = 0
        self.world = World(seed, **options(self.profile))

    def run(self) -> None:
        """Run the program to its end, and then everything that is left.

        Raises: Broken where a promise does not hold, and whatever bug the plane ended with.
        """
        steps, world = Steps(self.world), self.world
        for step in self.program:
            self.done += 1
            world.chance.belongs_to(self.seed, step.number)
            getattr(steps, step.name)(**step.args)
            world.settle()
            if world.quiet:
                resting.check(world)
        world.chance.belongs_to(self.seed, 0)
        finishing.finish(world, steps)


__all__ = ["Broken", "Simulation"]
