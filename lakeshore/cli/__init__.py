"""The `lakeshore` command. One module a command group; each command calls the public face and prints."""

from __future__ import annotations

from collections.abc import Sequence


def main(tokens: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; None is this process's) and return its exit status.

    0: done. 1: refused or failed. 2: wrong usage, judged without the plane. 130: interrupted.
    """
    from .errors import guarded

    return guarded(tokens)
