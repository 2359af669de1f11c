"""Commands that a head has a daemon's parent run. They read nothing, and write as much as is asked for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lakeshore.core.messages import Execute, Exited, Output

if TYPE_CHECKING:
    import subprocess

_PIECE = 64 << 10  # bytes of output sent at once


class Command:
    """One command, in a session of its own.

    Args:
        send: takes what the head is to hear.
        environment: the command's.
    """

    def __init__(self, order: Execute, send: Callable[[Any], None], environment: dict[str, str]) -> None:
        import subprocess  # slow, and most daemons run no commands

        self._number, self._credit, self._send = order.exec, order.credit, send
        self._pipes: dict[int, int] = {}  # descriptors that are open still, and which stream each is
        self._process: subprocess.Popen[bytes] | None = None
        self.over = False
        try:
            self._process = process = subprocess.Popen(
                order.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self.over = True
            status = 126 if isinstance(error, PermissionError) else 127  # as a shell has it
            said = getattr(error, "strerror", None) or str(error)
            send(Exited(self._number, status, f"{order.command[0]}: {said}"))
            return
        for number, pipe in ((1, process.stdout), (2, process.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._pipes[pipe.fileno()] = number

    @property
    def readable(self) -> Sequence[int]:
        """Descriptors to wait for; none while nobody asks for more."""
        return list(self._pipes) if self._credit > 0 else ()

    def refill(self, size: int) -> None:
        """The head takes more."""
        self._credit += size

    def step(self) -> None:
        """Pass on what it wrote, and its end. What it left running in the background is not waited for."""
        process = self._process
        if process is None or self.over:
            return
        status = process.poll()
        for pipe in list(self._pipes):
            self._read(pipe)
        if status is not None and self._credit > 0:
            self.over = True
            self._send(Exited(self._number, status))
            self.close()

    def _read(self, pipe: int) -> None:
        while self._credit > 0:
            try:
                data = os.read(pipe, min(_PIECE, self._credit))
            except BlockingIOError:
                return
            if not data:
                del self._pipes[pipe]
                return
            self._credit -= len(data)
            self._send(Output(self._number, self._pipes[pipe], data))

    def kill(self) -> None:
        """End it, and whatever it has started in its group."""
        import subprocess

        process = self._process
        if process is not None and not self.over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            self.over = True
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
            self.close()

    def close(self) -> None:
        """Let go of its pipes."""
        self._pipes.clear()
        if self._process is not None:
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()
