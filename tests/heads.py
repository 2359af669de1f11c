"""A served head on a thread of this process, for tests that need one at a real address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from lakeshore.sdk.serving import Serving, serve


class ServedHead:
    """Runs until `stop`; `start` begins again at the same address.

    Attributes:
        url: where it listens; given, or a free port.
    """

    def __init__(self, path: Path, backend: str, **options: Any) -> None:
        self._path, self._backend, self._options = path, backend, options
        self.url: str = self._options.pop("url", "")
        self._thread: threading.Thread | None = None
        self._stop: Callable[[], None]
        self.host: Any = None
        self.start()

    def start(self) -> None:
        """Begin, or begin again."""
        listening = threading.Event()
        self._error: BaseException | None = None
        listen = self.url or "tcp://127.0.0.1:0"
        serving = Serving(
            str(self._path), (listen,), **{"sync": "normal", "auto_create": True, **self._options}
        )

        async def main() -> None:
            scope = anyio.CancelScope()

            async def started(host: Any, addresses: list[str]) -> None:
                self.url, self.host = addresses[0], host
                self._stop = lambda: host.backend.post(scope.cancel)
                listening.set()

            with scope:
                await serve(serving, started=started, signals=False)

        def run() -> None:
            try:
                anyio.run(main, backend=self._backend)
            except BaseException as error:
                self._error = error
            listening.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        listening.wait()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """It goes down in order."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop()
            thread.join()

    def join(self) -> None:
        """It ends by itself. Raises what it ended with."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        if self._error is not None:
            raise self._error

    def restart(self) -> None:
        """It goes down and comes back."""
        self.stop()
        self.start()


@contextmanager
def served(path: Path, backend: str, **options: Any) -> Iterator[ServedHead]:
    """A head for a block."""
    head = ServedHead(path, backend, **options)
    try:
        yield head
    finally:
        head.stop()
