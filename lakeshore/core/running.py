"""What is known inside a body of the call that runs it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any


class Running:
    """One attempt, as its body sees it.

    `cancelled` turns true when the body is asked to stop (a timeout, a kill, a drain): an
    asynchronous body is cancelled besides, a synchronous one has to look.
    """

    __slots__ = (
        "attempt",
        "body",
        "cancelled",
        "id",
        "namespace",
        "on_loop",
        "plane",
        "prefix",
        "queue",
        "root",
    )

    def __init__(
        self,
        id: bytes,
        attempt: int,
        queue: str,
        namespace: str,
        prefix: str,
        *,
        on_loop: bool,
        plane: Any = None,
        root: str | None = None,
        body: Any = None,
    ) -> None:
        self.id, self.attempt, self.queue, self.namespace = id, attempt, queue, namespace
        self.prefix, self.on_loop, self.plane, self.root = prefix, on_loop, plane, root
        self.body, self.cancelled = body, False


CURRENT: ContextVar[Running | None] = ContextVar("lakeshore_running", default=None)
