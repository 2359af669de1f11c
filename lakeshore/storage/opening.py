"""From what a user writes, a path or a URL, to a storage: one for each place and process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from lakeshore.core.ports import Storage

from .folder import Folder
from .objects import Objects
from .urls import check_storage

_open: dict[str, Storage] = {}
_lock = threading.Lock()


def open_storage(where: str) -> Storage:
    """The storage at a path or URL: made at its first use in this process, the same one after that.

    Raises: ValueError and TypeError as `check_storage`; MissingExtra; StorageFailed for a folder that can't
    be made.
    """
    place = check_storage(where)
    with _lock:
        if place not in _open:
            make: Callable[[str], Storage] = Objects if "://" in place else Folder
            _open[place] = make(place)
        return _open[place]


def _forget() -> None:
    """In a forked child: locks may be held by threads that are not there."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_forget)
