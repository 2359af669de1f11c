"""How a command ends: its exit status, and one line on stderr where it did not do what was asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakeshore.core.errors import Unsuccessful
    from lakeshore.core.rows import Failure

DONE, REFUSED, WRONG, INTERRUPTED = 0, 1, 2, 130


class UsageError(Exception):
    """The command line can't be right, whatever the plane says."""


class Failed(Exception):
    """A command did not do what was asked; the message is the whole line."""


def guarded(run: Callable[[], None]) -> int:
    """Run a command line; its exit status. Nothing is raised, and no traceback printed."""
    _prepare()
    try:
        run()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read this has seen enough
        _drop_output()
        return DONE
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as exit:
        return exit.code if isinstance(exit.code, int) else REFUSED
    except Exception as error:
        return _told(error)
    return DONE


def _told(error: Exception) -> int:
    status, line = explain(error)
    if status == REFUSED and os.environ.get("LAKESHORE_DEBUG"):
        import traceback

        line = "".join(traceback.format_exception(error)).rstrip()
    try:
        sys.stdout.flush()
    except OSError:  # a full disk, say, which is what is told
        _drop_output()
    with suppress(OSError):
        print(line, file=sys.stderr)
    return status


def explain(error: Exception) -> tuple[int, str]:
    """The exit status and the line for what a command raised."""
    from cyclopts import CycloptsError

    from lakeshore.core.errors import LakeshoreError, Refused, Unsuccessful

    if isinstance(error, UsageError):
        return WRONG, one_line(f"usage: {error}")
    if isinstance(error, CycloptsError):
        return WRONG, one_line(f"usage: {_usage(error)}")
    if isinstance(error, Failed):
        return REFUSED, one_line(str(error))
    if isinstance(error, Refused):
        return REFUSED, one_line(f"{error.code} {type(error).__name__}: {error}")
    if isinstance(error, Unsuccessful):
        return REFUSED, one_line(f"{type(error).__name__}: {_headline(error)}")
    if isinstance(error, LakeshoreError):
        return REFUSED, one_line(f"{type(error).__name__}: {error}")
    if isinstance(error, TimeoutError):
        return REFUSED, one_line(f"408 Timeout: {error}")
    if isinstance(error, OSError):
        return REFUSED, one_line(f"{type(error).__name__}: {error}")
    if isinstance(error, TypeError | ValueError):  # the verbs judge their arguments before they send them
        return WRONG, one_line(f"usage: {error}")
    return REFUSED, one_line(
        f"500 InternalError: {type(error).__name__}: {error}; this is a bug in Lakeshore: set "
        "LAKESHORE_DEBUG=1 to see where"
    )


def one_line(text: str) -> str:
    """Text on one line that does nothing to a terminal."""
    text = " ".join(text.split())
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _headline(error: Unsuccessful) -> str:
    """What went wrong in a body, without its traceback."""
    failure: Failure | None = getattr(error, "failure", None)
    return error.message if failure is None else failure.headline


def _usage(error: Exception) -> str:
    from cyclopts import MissingArgumentError, UnknownCommandError, UnusedCliTokensError

    text = str(error).removesuffix(".")
    if isinstance(error, UnknownCommandError):
        text = text.partition(" Available commands")[0].removesuffix(".")
    elif isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        text = f'Unexpected argument "{error.unused_tokens[0]}"'
    elif isinstance(error, MissingArgumentError) and error.argument is not None and error.keyword is None:
        text = f"{error.argument.name} is missing"
    chain = " ".join(["lakeshore", *(getattr(error, "command_chain", None) or ())])
    return f"{text} (see {chain} --help)"


def _prepare() -> None:
    """Somewhere to write to, also where a shell closed it; what an encoding can't say is escaped."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What is left to write goes nowhere, without a word at exit."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
