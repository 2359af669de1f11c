"""A clock that jumps: an hour of sleep takes no time, on both loops.

With nothing ready to run, time goes straight to the next deadline. That is exact for asynchronous
bodies; a body on a thread takes real time, which the loop can't see, so timers may fire before it.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class JumpingSelector(selectors.DefaultSelector):  # pyright: ignore[reportGeneralTypeIssues]
    """With nothing ready, jump to the next deadline instead of waiting for it."""

    now = 0.0  # seconds

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, or nothing after the clock has jumped."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self.now += max(0.0, timeout)
        return ready


def virtual_loop() -> asyncio.AbstractEventLoop:
    """An asyncio loop whose clock jumps. Pass it as `loop_factory`."""
    selector = JumpingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    return loop


def virtual_backend(name: str) -> tuple[str, dict[str, Any]]:
    """What anyio's pytest plugin takes as `anyio_backend`, with a clock that jumps.

    Args:
        name: "asyncio" or "trio".
    """
    if name == "asyncio":
        return "asyncio", {"loop_factory": virtual_loop}
    from trio.testing import MockClock

    return "trio", {"clock": MockClock(autojump_threshold=0)}
