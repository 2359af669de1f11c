"""Something that happens once, for threads and loops to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from lakeshore.core.backend import current_backend
from lakeshore.core.errors import WouldDeadlock


class Latch:
    """Set once, by any thread; others wait for that, or have a function called then.

    Args:
        thread: the loop thread that sets it, if that is known: blocking there would be for ever.
    """

    def __init__(self, thread: int = 0) -> None:
        self._thread, self._lock = thread, threading.Lock()
        self._calls: list[Callable[[], object]] | None = []

    @property
    def is_set(self) -> bool:
        """Whether it was set."""
        return self._calls is None

    def set(self) -> None:
        """Let go all who wait. A second time does nothing."""
        with self._lock:
            calls, self._calls = self._calls, None
        for call in calls or ():
            call()

    def then(self, call: Callable[[], object]) -> None:
        """Have `call` called once it is set, from the thread that does it; at once where it is."""
        with self._lock:
            if self._calls is not None:
                self._calls.append(call)
                return
        call()

    def wait(self, timeout: float | None = None) -> None:
        """Block this thread until it is set, at most `timeout` seconds."""
        if self.is_set:
            return
        if threading.get_ident() == self._thread:
            raise WouldDeadlock(
                "this path is being opened or closed by the event loop that runs here, and this would block "
                "that loop: await the opening or closing first"
            )
        done = threading.Lock()
        done.acquire()
        self.then(done.release)
        done.acquire(timeout=-1 if timeout is None else timeout)

    async def awaited(self) -> None:
        """Wait in a coroutine of any loop until it is set."""
        backend = current_backend()
        parker = backend.parker()

        def wake() -> None:
            try:
                backend.post(lambda: parker.set(None))
            except RuntimeError:  # the waiting loop has ended
                return

        self.then(wake)
        await parker.wait()
