"""Heads as processes of their own: `lakeshore serve`, and what it says."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from cli import LAKESHORE, environment

PATIENCE = 60.0  # seconds for what takes milliseconds


class Head:
    """A head that listens on free ports of this machine, and logs JSON.

    Attributes:
        urls: where it listens.
    """

    def __init__(
        self,
        home: Path,
        *options: object,
        backend: str = "asyncio",
        listen: tuple[str, ...] = ("tcp://127.0.0.1:0",),
        command: tuple[object, ...] = LAKESHORE,
        ready: bool = True,
        **env: str,
    ) -> None:
        self.home, self.urls = home, list[str]()
        where = [word for url in listen for word in ("--listen", url)]
        given = ["serve", *where, "--backend", backend, "--log-format", "json", *options]
        words = [str(word) for word in (*command, *given)]
        self.process = subprocess.Popen(
            words, env=environment(home, **env), stderr=subprocess.PIPE, text=True
        )
        self._said: list[dict[str, Any]] = []
        self._more = threading.Condition()
        self._over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if ready:
            _, _, places = self.told(" on tcp", " on tls", " on unix").partition(" on ")
            self.urls = places.split(", ")

    @property
    def url(self) -> str:
        """The first address."""
        return self.urls[0]

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    def told(self, *texts: str) -> str:
        """The first message that has one of these texts in it, now or soon."""
        seen = 0
        with self._more:
            while True:
                for record in self._said[seen:]:
                    if any(text in record["message"] for text in texts):
                        return record["message"]
                seen = len(self._said)
                if self._over or not self._more.wait(PATIENCE):
                    raise AssertionError(f"{texts} was not said, but {self._said}")

    def records(self) -> list[dict[str, Any]]:
        """Everything it has logged so far."""
        with self._more:
            return list(self._said)

    def end(self) -> int:
        """SIGTERM; its exit status."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Its exit status, once it has ended and everything it said is known."""
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def memory(self) -> int:
        """Bytes that it has in memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * 4096

    def __enter__(self) -> Head:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._more:
                self._said.append(json.loads(line))
                self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()
