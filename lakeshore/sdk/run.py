"""`dls.run`: what a body can ask about the call that runs it."""

from __future__ import annotations

import os
from pathlib import Path

from lakeshore.core.ids import text_of
from lakeshore.core.running import CURRENT, Running


class Run:
    """The invocation that runs here. Outside of a body every attribute raises RuntimeError."""

    __slots__ = ()

    def _running(self) -> Running:
        running = CURRENT.get()
        if running is None:
            raise RuntimeError(
                "dls.run is about the invocation whose body runs, and no body runs here: use it inside a udf"
            )
        return running

    @property
    def id(self) -> str:
        """The invocation's id."""
        return text_of(self._running().id)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1."""
        return self._running().attempt

    @property
    def queue(self) -> str:
        """The name of the queue it came from."""
        return self._running().queue

    @property
    def namespace(self) -> str:
        """The namespace it belongs to."""
        return self._running().namespace

    @property
    def prefix(self) -> str:
        """The scope it was submitted under, empty for none."""
        return self._running().prefix

    @property
    def root(self) -> Path:
        """The folder that scopes are under: the worker's root, `LAKESHORE_ROOT`, or the current one."""
        return Path(self._running().root or os.environ.get("LAKESHORE_ROOT") or Path.cwd())

    @property
    def cancelled(self) -> bool:
        """Whether this body was asked to stop: by a timeout, a kill, or its worker's end."""
        return self._running().cancelled

    def __bool__(self) -> bool:
        """Whether a body runs here."""
        return CURRENT.get() is not None


run: Run = Run()
