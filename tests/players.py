"""Starts other processes that play a part in a test, and ends them with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).parent / "shared_path.py"


class Player:
    """One process; `ready` when it has its plane. It ends when this test does."""

    def __init__(self, role: str, path: Path | str, backend: str, *more: object, **options: Any) -> None:
        command = [sys.executable, str(SCRIPT), role, str(path), backend, *map(str, more)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.pid = self.process.pid

    def line(self) -> str:
        """The next line that it says; its error where it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            raise AssertionError(f"it said nothing more: {self.process.communicate()[1][-3000:]}")
        return line

    def ready(self) -> Player:
        """Wait until it has its plane."""
        assert self.line().startswith("ready")
        return self

    def lines(self) -> list[str]:
        """All that it says until "done"."""
        return list(iter(self.line, "done"))

    def signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """It ends with no cleanup."""
        self.process.kill()
        self.process.wait()

    def leave(self) -> int:
        """It ends in order."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()

    def close(self) -> None:
        """End it, in whatever state it is."""
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
        self.process.communicate()


class Cast:
    """All players of a test."""

    def __init__(self) -> None:
        self._players: list[Player] = []

    def __call__(self, role: str, path: Path | str, backend: str, *more: object, **options: Any) -> Player:
        player = Player(role, path, backend, *more, **options)
        self._players.append(player)
        return player

    def close(self) -> None:
        """End them all."""
        for player in self._players:
            player.close()


@contextmanager
def cast() -> Iterator[Cast]:
    """Players that end with the block."""
    players = Cast()
    try:
        yield players
    finally:
        players.close()
