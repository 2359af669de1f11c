"""A parent's own link to the head: beats, how children ended, and commands to run. A thread of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from lakeshore.core.errors import FramingError, LakeshoreError, Refused, Unreachable, rebuild
from lakeshore.core.messages import (
    PROTOCOL,
    Beat,
    Beaten,
    Died,
    Dismiss,
    Execute,
    Knock,
    Minding,
    Refill,
    Sorry,
    Terminate,
    Welcome,
)
from lakeshore.sdk.waiting import hint_of, wait
from lakeshore.transports.blocking import BlockingLink

from .commands import Command
from .options import DaemonOptions
from .place import place_of

log = logging.getLogger("lakeshore")

_ANSWER = 10.0  # seconds that a head may take to say welcome
_BEATS = 1.0  # and one that has done so before: two beats, or at least so many seconds
_FIRST, _LONGEST = 0.1, 5.0  # seconds between tries to reach it
_NEVER = float("inf")
_TROUBLES = (OSError, EOFError, FramingError, LakeshoreError)


class Reporter:
    """Speaks for a daemon's child, until `close`.

    Args:
        dismissed: called, on this thread, with the reason once an operator has removed the daemon.
        unknown: called, on this thread, where the head does not know the child any more.
    """

    def __init__(
        self, options: DaemonOptions, dismissed: Callable[[str], None], unknown: Callable[[bytes], None]
    ) -> None:
        self._options, self._dismissed, self._unknown = options, dismissed, unknown
        self._worker, self._pid = b"", 0
        self._deaths: dict[bytes, str] = {}  # that the head has not confirmed
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._awake, False)
        os.set_blocking(self._waker, False)
        self._commands: dict[int, Command] = {}
        self._closing = False
        self._known = False  # a head has let us in before
        self._trouble = ""
        self._hint = 0.0  # seconds that the head wants us to stay away
        self._every: float = 0.0  # seconds between beats, once a head has said so
        self._minding = b""  # what the head was told on this link
        self._said: set[bytes] = set()  # deaths that it was told on this link
        self._thread = threading.Thread(target=self._run, name="lakeshore parent", daemon=True)

    # from the main thread

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def mind(self, worker: bytes, pid: int) -> None:
        """There is a child."""
        self._worker, self._pid = worker, pid
        self.wake()

    def died(self, worker: bytes, reason: str) -> None:
        """A child has ended without a goodbye."""
        self._deaths[worker] = reason
        if self._worker == worker:
            self._worker = b""
        self.wake()

    def wake(self) -> None:
        """Something has changed; perhaps a command has ended."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"\0")

    def close(self, patience: float) -> None:
        """Say what is left to say, within so many seconds, and end."""
        self._closing = True
        self.wake()
        self._thread.join(patience)

    # the thread

    def _run(self) -> None:
        tries = 0
        while not self._finished:
            self._hint, began = 0.0, time.monotonic()
            try:
                with contextlib.closing(self._connected()) as link:
                    tries, began = 0, _NEVER
                    self._stay(link)
            except _TROUBLES as error:
                self._say(error)
            finally:
                for command in self._commands.values():
                    command.kill()
                self._commands.clear()
            if not self._finished:
                took = time.monotonic() - began
                self._pause(wait(tries, _FIRST, _LONGEST, took=took, hint=self._hint))
            tries += 1

    @property
    def _finished(self) -> bool:
        return self._closing and not self._deaths

    def _pause(self, seconds: float) -> None:
        """However often it is woken: news do not bring a head back."""
        until = time.monotonic() + seconds
        while not self._finished and (left := until - time.monotonic()) > 0:
            select.select([self._awake], [], [], left)
            self._drain_wakes()

    def _say(self, error: Exception) -> None:
        """Until a head was there; afterwards the child says what is in the way."""
        if "://" not in self._options.address:
            return  # the child hosts the path itself, or says why not
        if isinstance(error, Refused) and not isinstance(error, Unreachable):
            return  # the child is told the same
        text = str(error)
        if not self._known and text != self._trouble:
            self._trouble = text
            log.warning("%s; trying again", text)

    def _connected(self) -> BlockingLink:
        options = self._options
        token = options.token or _token_made_since(options.address)
        link = BlockingLink(place_of(options.address), ca=options.ca or None)
        try:
            link.send(
                Knock(
                    PROTOCOL,
                    options.version,
                    os.urandom(16),
                    "daemon",
                    options.namespace,
                    token,
                    self._worker,
                    socket.gethostname(),
                    os.getpid(),
                )
            )
            answer = link.receive(min(_ANSWER, max(_BEATS, 2 * self._every)) if self._known else _ANSWER)
            if type(answer) is Sorry:
                self._hint = hint_of(answer)
                raise rebuild(answer.kind, answer.message, answer.details)
            if type(answer) is not Welcome:
                raise Unreachable(f"{options.address} takes connections and says nothing")
        except BaseException:
            link.close()
            raise
        self._every, self._known = answer.lease / 5, True
        return link

    def _stay(self, link: BlockingLink) -> None:
        self._minding, beat_at, silent = b"", 0.0, False
        heard = time.monotonic()
        self._said.clear()
        while True:
            if self._closing and (not self._deaths or silent):
                return
            now = time.monotonic()
            self._tell(link)
            if now >= beat_at:
                if silent and now - heard > max(self._every, 2 * _BEATS):
                    raise EOFError("the head says nothing")
                silent, beat_at = bool(self._worker), now + self._every
                if self._worker:
                    link.send(Beat(self._worker))
            readers: list[Any] = [link, self._awake]
            for command in self._commands.values():
                readers += command.readable
            came, _, _ = select.select(readers, [], [], beat_at - now)
            if self._awake in came:
                self._drain_wakes()
            if link in came:
                while (message := link.receive(0)) is not None:
                    silent, heard = False, now
                    self._take(link, message)
            self._step()

    def _tell(self, link: BlockingLink) -> None:
        """What the head does not know yet."""
        if self._worker and self._minding != self._worker:
            self._minding = self._worker
            link.send(Minding(self._worker), Beat(self._worker))
        for worker, reason in list(self._deaths.items()):
            if worker not in self._said:
                self._said.add(worker)
                link.send(Died(worker, reason), Beat(worker))  # the answer to the beat confirms both

    def _take(self, link: BlockingLink, message: Any) -> None:
        if isinstance(message, Beaten):
            self._deaths.pop(message.worker, None)
            if not message.known and message.worker == self._worker:
                self._unknown(message.worker)  # it may be on its way still: it knows that best
        elif isinstance(message, Execute):
            environment = {**os.environ, "LAKESHORE_WORKER_PID": str(self._pid)}
            environment.pop("LAKESHORE_TOKEN", None)  # it opens more than the one who asks may
            self._commands[message.exec] = Command(message, link.send, environment)
        elif isinstance(message, Refill):
            if message.exec in self._commands:
                self._commands[message.exec].refill(message.size)
        elif isinstance(message, Terminate):
            if message.exec in self._commands:
                self._commands.pop(message.exec).kill()
        elif isinstance(message, Dismiss):
            self._dismissed(message.reason)
        elif isinstance(message, Sorry):
            self._hint = hint_of(message)
            raise Unreachable(message.message)

    def _step(self) -> None:
        for number, command in list(self._commands.items()):
            command.step()
            if command.over:
                del self._commands[number]

    def _drain_wakes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._awake, 4096):
                pass


def _token_made_since(url: str) -> str:
    if "://" not in url:
        return ""
    from lakeshore.sdk.address import late_token  # for the few that began before their head ever ran

    return late_token(url) or ""
