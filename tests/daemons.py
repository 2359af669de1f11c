"""Daemons as processes of their own, for tests: `lakeshore daemon start`, and what it logs."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

from cli import LAKESHORE, environment

FOLDER = Path(__file__).parent
PATIENCE = 60.0  # seconds for what takes milliseconds


class Daemon:
    """A daemon that works for a head at `url`. Its bodies come from this folder, and run in the process
    that works unless `--runner` says otherwise: what becomes of that one is what most tests are about.

    Attributes:
        pid: of the parent.
    """

    def __init__(self, home: Path, url: str, *options: object, **env: str) -> None:
        runner = () if "--runner" in options else ("--runner", "inline")
        given = ["--url", url, "daemon", "start", "--log-format", "json", *runner, *options]
        self.process = subprocess.Popen(
            [*LAKESHORE, *map(str, given)],
            env=environment(home, **env),
            cwd=FOLDER,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self.process.pid
        self._said: list[str] = []
        self._more = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def told(self, text: str, count: int = 1) -> str:
        """The message number `count` that has this text in it, now or soon."""
        with self._more:
            while True:
                found = [message for message in self._said if text in message]
                if len(found) >= count:
                    return found[count - 1]
                if self._over or not self._more.wait(PATIENCE):
                    raise AssertionError(f"{text!r} was not said {count} times, but {self._said}")

    @property
    def said(self) -> list[str]:
        """Everything it has logged so far."""
        with self._more:
            return list(self._said)

    def signal(self, number: int) -> None:
        """Send the parent a signal."""
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit status, once it has ended and everything it said is known."""
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def end(self) -> int:
        """SIGTERM; its exit status."""
        self.signal(signal.SIGTERM)
        return self.ended()

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGTERM)
        self.ended()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            said: Any = json.loads(line) if line.startswith("{") else {"message": line}
            with self._more:
                self._said.append(said["message"] + said.get("exception", ""))
                self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()


def wait_gone(pid: int) -> None:
    """Until a process that is no child of this one has ended."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([process], [], [], PATIENCE)[0], f"{pid} lives still"
    finally:
        os.close(process)


def pipe(folder: Path, name: str) -> Path:
    """What a body of `daemon_jobs.gate` waits for."""
    made = folder / name
    os.mkfifo(made)
    return made
