"""Heads that another process has taken the store from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeshore.core import messages as m
from lakeshore.core.rows import MetaRow

if TYPE_CHECKING:
    from .world import World


class Former:
    """A head that was superseded, and has not seen it."""

    def __init__(self, world: World, engine: Any, door: Any, reception: Any) -> None:
        self.world, self.engine, self.door, self.reception = world, engine, door, reception

    def pump(self) -> bool:
        """Let it go on; whether anything moved."""
        moved = bool(self.engine.pump(16)) or self.engine.due <= self.engine.monotonic()
        if self.engine.ended:
            self.world.former.remove(self)
            self.door.close(m.Sorry("Busy", "another process has the plane now", retry_after=0.0))
            return True
        return moved

    def see(self) -> None:
        """Have it write something."""
        self.engine.batch.put(MetaRow("plane", self.door.head.plane))
        self.engine.wake()

    def forget(self) -> None:
        """Let go of everything."""
        for part in (*self.engine_parts(), self):
            vars(part).clear()

    def engine_parts(self) -> list[Any]:
        """What hangs together."""
        return [self.door.head, self.engine, self.door]
