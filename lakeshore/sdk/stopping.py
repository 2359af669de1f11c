"""Events that stop workers: one thread waits for each, however many workers it is to stop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

_lock = threading.Lock()
_watched: dict[int, dict[object, Callable[[], object]]] = {}  # whom to call, by the id of an event


def when_set(event: Any, call: Callable[[], object]) -> Callable[[], None]:
    """Have `call` called, from another thread, once an event with a blocking `wait` is set.

    Returns what takes that back. The thread that waits is a daemon and polls nothing; where the
    event is never set it stays, one for each such event, and holds that event and nothing else.
    """
    key, mine = id(event), object()
    with _lock:
        calls = _watched.get(key)
        begin = calls is None
        calls = _watched.setdefault(key, {})
        calls[mine] = call
    if begin:
        thread = threading.Thread(target=_wait, args=(event, calls), name="lakeshore stop", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads to be had
            del _watched[key]
            raise

    def forget() -> None:
        calls.pop(mine, None)

    return forget


def _wait(event: Any, calls: dict[object, Callable[[], object]]) -> None:
    try:
        event.wait()
    finally:
        with _lock:
            if _watched.get(id(event)) is calls:
                del _watched[id(event)]
        for call in list(calls.values()):
            call()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _watched.clear()  # their threads are the parent's


os.register_at_fork(after_in_child=_after_fork)
