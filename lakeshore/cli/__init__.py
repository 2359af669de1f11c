"""The `lakeshore` command. One module a command group; each command calls the public face and prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; None is this process's) and return its exit status.

    0: done. 1: refused or failed. 2: wrong usage, judged without the plane. 130: interrupted.
    """
    from .errors import guarded

    def run() -> None:
        given = list(sys.argv[1:] if tokens is None else tokens)
        with _helped(given):
            from .app import start

            start(given)

    return guarded(run)


def _helped(tokens: list[str]) -> AbstractContextManager[None]:
    """What takes long to begin does so now, beside the rest of the command line."""
    from .ahead import starts_daemon, value_of

    if not starts_daemon(tokens):
        return nullcontext()
    from lakeshore.sdk.daemons.early import child_ahead

    title = f"worker {value_of('--name', tokens, '')}".replace("\0", "").rstrip()
    return child_ahead(title[:1000], value_of("--backend", tokens, "asyncio"))
