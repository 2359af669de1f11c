"""What is known inside a body of the call that runs it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from .messages import Grant
from .ports import Files


class Running:
    """One attempt, as its body sees it.

    `cancelled` turns true when the body is asked to stop (a timeout, a kill, a drain): an
    asynchronous body is cancelled besides, a synchronous one has to look. `over`: the attempt has ended.
    `storage` is where its files are by key: a folder or a URL; empty for `root`. `folder` is where in it
    large values go.
    """

    __slots__ = (
        "attempt",
        "body",
        "cancelled",
        "files",
        "folder",
        "id",
        "namespace",
        "notes",
        "on_loop",
        "over",
        "plane",
        "prefix",
        "queue",
        "root",
        "storage",
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
        self.over: bool = False
        self.storage: str = grant.storage
        self.folder: str = grant.folder
        self.files: Files | None = None  # what it has read and written by key, from the first time on
        self.notes: Any = None  # where its log lines and progress go


CURRENT: ContextVar[Running | None] = ContextVar("lakeshore_running", default=None)
PLACE: ContextVar[Any] = ContextVar("lakeshore_place", default=None)  # the call in place that runs here
