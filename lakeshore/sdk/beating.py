"""A thread that says, on a link of its own, that a worker's process lives: no body can stop it."""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from lakeshore.core.errors import FramingError, LakeshoreError
from lakeshore.core.fresh import new_id
from lakeshore.core.messages import Beat, Beaten, Sorry, Welcome
from lakeshore.transports.blocking import BlockingLink

from .knocking import knock
from .waiting import hint_of, wait

log = logging.getLogger("lakeshore")

BEATS = 0.2  # of a lease between two beats: three may be lost or late
_ANSWER = 2.0  # seconds at least that the head may take to answer: a link may be slow
_FIRST, _LONGEST = 0.1, 5.0  # seconds between tries to reach the head


class Beater:
    """Beats for one worker until `stop`.

    Args:
        worker: its id.
        namespace, token, ca: as for its own link.
        unknown: called, on the thread, when the head says that it knows the worker no more.
    """

    def __init__(
        self,
        worker: bytes,
        namespace: str,
        token: str,
        ca: str | None,
        *,
        unknown: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker, self._namespace, self._token, self._ca = worker, namespace, token, ca
        self._unknown, self._known = unknown, False
        self._stopped = threading.Event()
        self._address, self._every = "", 10.0
        self._moved = self._let_in = False
        self._hint = 0.0  # seconds that the head wants us to stay away
        self._thread: threading.Thread | None = None
        _all.add(self)

    def point(self, address: str, every: float) -> None:
        """The head is there now, and wants to hear of it every so many seconds."""
        self._moved = self._address not in ("", address)
        self._address, self._every = address, every
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lakeshore beats", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """No more beats. The thread ends by itself."""
        self._stopped.set()

    def _run(self) -> None:
        tries = 0
        while not self._stopped.is_set():
            self._let_in, self._hint, began = False, 0.0, time.monotonic()
            try:
                self._beat()
            except (OSError, EOFError, FramingError, LakeshoreError) as error:
                log.debug("no beats: %s", error)
            if self._let_in:
                tries, began = 0, time.monotonic()
            took, longest = time.monotonic() - began, min(_LONGEST, self._every)
            self._stopped.wait(wait(tries, _FIRST, longest, took=took, hint=self._hint))
            tries += 1

    def _beat(self) -> None:
        self._moved = False
        link = BlockingLink(self._address, ca=self._ca)
        try:
            link.send(knock(new_id(), "beat", self._namespace, self._token, self._worker))
            answer: Any = link.receive(max(self._every, _ANSWER))
            self._hint, self._let_in = hint_of(answer), type(answer) is Welcome
            if not self._let_in:
                return
            while not self._stopped.is_set() and not self._moved:
                link.send(Beat(self._worker))
                answer = link.receive(max(self._every, _ANSWER))
                if answer is None or type(answer) is Sorry:
                    self._hint = hint_of(answer)
                    return  # it is silent, or says goodbye: a new link may help
                assert type(answer) is Beaten
                if self._known and not answer.known:
                    self._unknown()
                self._known = answer.known
                self._stopped.wait(self._every)
        finally:
            link.close()


_all: weakref.WeakSet[Beater] = weakref.WeakSet()


def _after_fork() -> None:
    for beater in list(_all):  # its thread is the parent's
        beater._stopped = threading.Event()  # pyright: ignore[reportPrivateUsage]
        beater._stopped.set()  # pyright: ignore[reportPrivateUsage]


os.register_at_fork(after_in_child=_after_fork)
