"""Running the `lakeshore` command at a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress

PATIENCE = 60.0  # seconds that a command may be silent


def at_terminal(
    *words: str, environment: Mapping[str, str], typed: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Its exit status, and all that the terminal showed. `typed`: what is typed once a prompt is there."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "lakeshore", *words]
    waiting, shown = dict(typed or {}), ""
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
        start_new_session=True,
    ) as child:
        os.close(theirs)
        try:
            while piece := _read(ours):
                shown += piece
                for prompt in [prompt for prompt in waiting if prompt in shown]:
                    os.write(ours, waiting.pop(prompt).encode() + b"\n")
        finally:
            os.close(ours)
    return child.returncode, shown


def _read(terminal: int) -> str:
    """What is shown next, "" once the command has ended."""
    if not select.select([terminal], [], [], PATIENCE)[0]:
        raise AssertionError("the command says nothing")
    with suppress(OSError):  # EIO: nobody has the other side open
        return os.read(terminal, 65536).decode(errors="replace")
    return ""
