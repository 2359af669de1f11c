"""`--watch`: the same view again, whenever it changed, until Ctrl-C."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable

from .printing import View, line, show, terminal

PERIOD = 2.0  # seconds between two looks


def shown(look: Callable[[], View], *, json: bool, watch: bool) -> None:
    """Print a view, once or for as long as somebody watches."""
    if not watch:
        show(look(), json)
        return
    try:
        _lines(look) if json else _screens(look) if terminal() else _blocks(look)
    except KeyboardInterrupt:  # how a watch ends
        return


def _lines(look: Callable[[], View]) -> None:
    before = None
    while True:
        view = look()
        if view.document != before:
            line(view.document)
            before = view.document
        pause()


def _blocks(look: Callable[[], View]) -> None:
    before: list[str] = []
    while True:
        lines = list(look().lines())
        if lines != before:
            print(*([""] if before else []), *lines, sep="\n", flush=True)
            before = lines
        pause()


def _screens(look: Callable[[], View]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=sys.stdout)
    with Live(look().rendered(), console=console, auto_refresh=False, vertical_overflow="visible") as live:
        while True:
            pause()
            live.update(look().rendered(), refresh=True)


def pause() -> None:
    """Between two looks. BrokenPipeError once nobody reads any more."""
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no file
        time.sleep(PERIOD)
        return
    gone = select.poll()
    gone.register(output, 0)  # what is always told: an error, or a reader that hung up
    if gone.poll(PERIOD * 1000):
        raise BrokenPipeError
