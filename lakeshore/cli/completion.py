"""`lakeshore completion`: scripts that teach a shell the commands."""

from __future__ import annotations

from typing import Literal

from .parameters import Flag
from .printing import note


def completion(shell: Literal["bash", "zsh", "fish"], /, *, install: Flag = False) -> None:
    """Print the completion script of a shell, or put it where that shell looks.

    Args:
        shell: Which one.
        install: Write it into your home, and name it in the shell's startup file.
    """
    from .app import app

    if install:
        note(f"written to {app.install_completion(shell=shell)}; open a new shell")
    else:
        print(app.generate_completion(shell=shell), end="")
