"""Which plane a submit goes to where none is named."""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING

from lakeshore.core.running import CURRENT

if TYPE_CHECKING:
    from .face import Face

log: logging.Logger = logging.getLogger("lakeshore")

_lock = threading.Lock()
_closed_one = _said = False
_made: list[Face] = []  # open faces, the newest last
_entered: ContextVar[tuple[Face, ...]] = ContextVar("lakeshore_entered", default=())


class Later:
    """A plane that is opened when a body first uses it."""

    def __init__(self, make: Callable[[], Face]) -> None:
        self._make = make
        self._face: Face | None = None
        self._making = threading.Lock()

    def face(self) -> Face:
        """It, open from now on."""
        with self._making:
            if self._face is None:
                self._face = self._make()
            return self._face


def made(face: Face) -> None:
    """A face was made."""
    with _lock:
        _made.append(face)


def closed(face: Face) -> None:
    """A face was closed."""
    global _closed_one
    with _lock:
        _closed_one = True
        if face in _made:
            _made.remove(face)


def enter(face: Face) -> None:
    """A `with` block of a face begins in this context."""
    _entered.set((*_entered.get(), face))


def leave(face: Face) -> None:
    """It ends."""
    _entered.set(tuple(entered for entered in _entered.get() if entered is not face))


def current_face() -> Face:
    """The plane of the body this runs in, of the innermost `with`, or the one made last; else the
    default plane of the environment."""
    running = CURRENT.get()
    if running is not None and running.plane is not None:
        return running.plane.face() if isinstance(running.plane, Later) else running.plane
    for face in reversed(_entered.get()):
        if not face.is_closed:
            return face
    with _lock:
        if _made:
            return _made[-1]
    if _closed_one:
        _say_once()
    # a name in a string: the faces are above this module and import it
    face: Face = importlib.import_module("lakeshore.sdk.dispatch").Dispatch()
    return face


def open_face() -> Face | None:
    """The same, but None where no plane is open here yet."""
    running = CURRENT.get()
    if running is not None and running.plane is not None:
        return running.plane
    entered = [face for face in _entered.get() if not face.is_closed]
    with _lock:
        return entered[-1] if entered else _made[-1] if _made else None


def _say_once() -> None:
    """Who used a plane, closed it and goes on submitting may not mean the local one."""
    global _said
    if not _said:
        _said = True
        log.warning(
            "no plane is open here any more: this goes to the local plane, as for a program that opens none; "
            "keep the Dispatch open, or pass _dispatch="
        )


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
