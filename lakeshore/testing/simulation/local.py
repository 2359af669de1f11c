"""Workers whose bodies the model watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeshore.core.bodies import Job
from lakeshore.testing.hand import HandWorker

if TYPE_CHECKING:
    from .truth import Hand
    from .world import World


class SimWorker(HandWorker):
    """One in the head's own process."""

    sim: World
    model_hand: Hand
    far = False

    def start(self, job: Job) -> None:
        """A body begins."""
        self.sim.begins(self, job)
        super().start(job)

    @property
    def linked_now(self) -> bool:
        """Whether the head has it, and it knows."""
        return True
