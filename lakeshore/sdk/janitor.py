"""Deletes large values that no invocation refers to any more, and what dead attempts have left behind."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from lakeshore.core.away import FOLDER
from lakeshore.core.errors import LakeshoreError

log = logging.getLogger("lakeshore")

Objects = tuple[tuple[str, str], ...]  # place and name
Found = Callable[[tuple[str, ...]], None]

STRAY_AGE = 604800.0  # seconds after which a large value is known to the store, if it ever will be
_SOME = 500  # names that are asked about at once


class Janitor:
    """A thread of its own, from the first time that there is something to do."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._said: set[str] = set()

    def unwanted(self, objects: Objects) -> None:
        """Delete some objects, soon."""
        self._do(partial(self._remove_all, objects))

    def look(self, place: str, folder: str, found: Found) -> None:
        """Look for large values that lie there for long; `found` is called with names, on the thread."""
        self._do(partial(self._look, place, folder, found))

    def _do(self, call: Callable[[], None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="lakeshore janitor", daemon=True)
            self._thread.start()
        self._todo.put(call)

    def close(self, ended: Callable[[], None]) -> None:
        """Do what is to be done still, and end; `ended` is called after that, mostly on the thread."""
        if self._thread is None:
            ended()
        else:
            self._do(ended)
            self._todo.put(None)

    def _work(self) -> None:
        while (call := self._todo.get()) is not None:
            call()

    def _remove_all(self, objects: Objects) -> None:
        from lakeshore.storage.opening import open_storage  # slow to load, and few planes need it

        for place, name in objects:
            try:
                if _may_be_there(place):
                    open_storage(place).remove(name)
            except (LakeshoreError, ValueError, OSError) as error:
                self._say(place, error)

    def _look(self, place: str, folder: str, found: Found) -> None:
        from lakeshore.storage.opening import open_storage

        before, names = time.time() - STRAY_AGE, list[str]()
        try:
            for each in open_storage(place).list(folder) if _may_be_there(place) else ():
                if each.modified_at < before:
                    names.append(each.key)
        except (LakeshoreError, ValueError, OSError) as error:
            self._say(place, error)
        with suppress(RuntimeError):  # the loop has ended
            for start in range(0, len(names), _SOME):
                found(tuple(names[start : start + _SOME]))

    def _say(self, place: str, error: Exception) -> None:
        if place not in self._said:
            self._said.add(place)
            log.warning("large values that nothing refers to stay in %s: %s", place, error)


def _may_be_there(place: str) -> bool:
    """Whether there can be large values: a folder that has none is not touched, whoever has named it."""
    return "://" in place or os.path.isdir(os.path.join(place, FOLDER))
