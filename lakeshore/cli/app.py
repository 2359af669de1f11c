"""The tree of commands. A group is imported when one of its commands is asked for."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Annotated

from cyclopts import App, Group, Parameter

from . import plane
from .ahead import EVERYWHERE, HELP
from .errors import UsageError

_HELP = """Queues, jobs and workers of a Lakeshore plane.

Without --url it is the plane of LAKESHORE_URL, else this machine's own.

Exit status: 0 done, 1 refused or failed, 2 wrong usage.
"""


def group(name: str, text: str) -> App:
    """A group of commands."""
    return App(name=name, help=text, help_format="plaintext", default_parameter=Parameter(negative=()))


def arrange(app: App, **synonyms: tuple[str, ...]) -> None:
    """Commands in the order they were made, in help; other words for some, to guess what was meant."""
    for place, name in enumerate(app):
        app[name].sort_key = place
        app[name].synonym = synonyms.get(name)


COMMANDS = {  # name: where it is, and its help (a single command's with an example)
    "queues": ("queues:app", "Named backlogs: add, ls, show, patch, drain, archive, rm, events, stats."),
    "pause": (
        "queues:pause",
        "Admit to a queue, but hand out nothing.\n\nExample: lakeshore pause training-h100",
    ),
    "resume": ("queues:resume", "End a pause of a queue.\n\nExample: lakeshore resume training-h100"),
    "jobs": ("jobs:app", "Submitted calls: list, show, submit, result, stream, kill, retry, why."),
    "workers": ("workers:app", "What runs jobs: list, show, drain, remove."),
    "providers": ("providers:app", "What launches workers: add, list, show, patch, remove, check."),
    "topics": ("topics:app", "Journals that many post to: list, read, remove."),
    "tokens": ("tokens:app", "Who may come in over TCP: create, list, remove."),
    "apply": (
        "apply:apply",
        "Make a plane what a lakeshore.yaml says.\n\nExample: lakeshore apply -f lakeshore.yaml --dry-run",
    ),
    "config": ("config:app", "Which plane, as whom, and why: show; the file's form: schema."),
    "login": ("login:login", "Keep a token for a head.\n\nExample: lakeshore login --url tls://head:7420"),
    "logout": ("login:logout", "Forget a head's token.\n\nExample: lakeshore logout --url tls://head:7420"),
    "serve": (
        "serve:serve",
        "Be the head that clients and workers reach.\n\nExample: lakeshore serve --config lakeshore.yaml",
    ),
    "daemon": ("daemon:app", "Workers on machines: start, list, show, exec, drain, remove."),
    "status": ("status:status", "What the head is doing.\n\nExample: lakeshore status --json"),
    "completion": (
        "completion:completion",
        "Print a shell's completion script, or install it.\n\nExample: lakeshore completion bash --install",
    ),
}


def version() -> str:
    """The installed package's."""
    from importlib.metadata import version

    return version("lakeshore-queue")


app = App(
    name="lakeshore",
    help=_HELP,
    help_format="plaintext",
    version=version,
    default_parameter=Parameter(negative=()),
    exit_on_error=False,
    print_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
for _place, (_name, (_where, _text)) in enumerate(COMMANDS.items()):
    app.command(f"lakeshore.cli.{_where}", name=_name, help=_text, sort_key=_place)

_EVERYWHERE = Group("Options of every command", sort_key=9)


@app.meta.default
def everywhere(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    url: Annotated[str | None, Parameter(group=_EVERYWHERE)] = None,
    namespace: Annotated[str | None, Parameter(group=_EVERYWHERE)] = None,
    token: Annotated[str | None, Parameter(group=_EVERYWHERE)] = None,
    ca: Annotated[str | None, Parameter(group=_EVERYWHERE)] = None,
) -> object:
    """What help and completion know of the options that every command has.

    Args:
        url: The plane: a path, or tcp://, tls:// or unix://; else LAKESHORE_URL.
        namespace: The tenant; else LAKESHORE_NAMESPACE, else default.
        token: Who asks; better LAKESHORE_TOKEN or a login, which other users of this machine can't see.
        ca: A file of certificates to trust for tls://; else LAKESHORE_CA.
    """
    return app(tokens)


def start(tokens: list[str]) -> None:
    """Run a command line.

    The options of every command are taken out by hand, before or after the command: cyclopts' own way
    (`everywhere`) binds the whole line twice, which takes longer than most commands.
    """
    named, rest, helps = _split(tokens)
    if helps or not rest:
        app.help_formatter = app.meta.help_formatter = None if sys.stdout.isatty() else "plain"
        with suppress(SystemExit):  # how rich ends where the reader has gone away
            app.meta(tokens, exit_on_error=False, print_error=False, result_action="return_value")
        return
    with plane.naming(plane.Named(**named)):
        app(rest)


def _split(tokens: list[str]) -> tuple[dict[str, str], list[str], bool]:
    """The options of every command, the rest of the line, and whether it asks for help."""
    named: dict[str, str] = {}
    rest: list[str] = []
    left = iter(tokens)
    for token in left:
        if token == "--":
            return named, [*rest, token, *left], False
        flag, equals, value = token.partition("=")
        if flag in HELP:
            return named, rest, True
        if flag not in EVERYWHERE:
            rest.append(token)
            continue
        if not equals:
            value = next(left, "--")
        if not equals and value.startswith("--"):
            raise UsageError(f"{flag} needs a value (see lakeshore --help)")
        if flag[2:] in named:
            raise UsageError(f"{flag} is given twice")
        named[flag[2:]] = value
    return named, rest, False
