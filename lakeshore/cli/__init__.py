"""The `lakeshore` command. One module a command group; each command calls the public face and prints."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; None is this process's) and return its exit status.

    0: done. 1: refused or failed. 2: wrong usage, judged without the plane. 130: interrupted.
    """
    from .errors import guarded

    def run() -> None:
        from .app import start

        start(list(sys.argv[1:] if tokens is None else tokens))

    return guarded(run)
