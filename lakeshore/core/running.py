"""What is known inside a body of the call that runs it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from .messages import Grant


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

    def __init__(self, grant: Grant, body: Any, on_loop: bool, plane: Any, root: str | None) -> None:
        self.id: bytes = grant.id
        self.attempt: int = grant.attempt
        self.queue: str = grant.queue
        self.namespace: str = grant.namespace
        self.prefix: str = grant.call.prefix
        self.on_loop: bool = on_loop
        self.plane: Any = plane
        self.root: str | None = root
        self.body: Any = body
        self.cancelled: bool = False


CURRENT: ContextVar[Running | None] = ContextVar("lakeshore_running", default=None)
