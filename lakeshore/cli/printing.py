"""What commands print: tables for people, plain lines where nobody looks, JSON for programs.

Results go to stdout, remarks to stderr. At a terminal tables have colour and fold what is too wide;
elsewhere one row is one line, columns are two spaces or more apart, and nothing is cut.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import msgspec

from .errors import one_line

Column = tuple[str, Callable[[Any], object]]

_COLOURS = {
    "green": "active ready succeeded ok",
    "cyan": "running",
    "yellow": "draining paused timeout queued held",
    "red": "failed killed lost",
    "dim": "archived ended removed",
}
_STYLE = {word: colour for colour, words in _COLOURS.items() for word in words.split()}


@dataclass(frozen=True)
class Part:
    """One table: lines of cells under `heads`, or without any, names and what they name."""

    heads: tuple[str, ...]
    lines: list[tuple[str, ...]]


@dataclass(frozen=True)
class View:
    """What a command has to show: its JSON document, and the tables that say the same."""

    document: Any
    parts: tuple[Part, ...]

    def lines(self) -> Iterator[str]:
        """As plain text."""
        for number, part in enumerate(self.parts):
            if number:
                yield ""
            yield from _aligned([part.heads, *part.lines] if part.heads else part.lines)

    def rendered(self) -> Any:
        """For a terminal."""
        from rich.console import Group

        return Group(*(piece for part in self.parts for piece in _rich(part)))


def rows(found: Sequence[Any], columns: Sequence[Column], *, leave_out: str = "") -> View:
    """Records as a table; `leave_out` names fields that only a single record's document has."""
    dropped = leave_out.split()
    documents = [_without(msgspec.to_builtins(record), dropped) for record in found]
    return View(documents, (table(found, columns),))


def table(found: Iterable[Any], columns: Sequence[Column]) -> Part:
    """Records as lines of cells."""
    heads = tuple(head for head, _ in columns)
    return Part(heads, [tuple(cell(get(record)) for _, get in columns) for record in found])


def record(found: Any, *more: Part, leave_out: str = "", said: Mapping[str, object] | None = None) -> View:
    """One record, a field a line, and tables below it; `leave_out` names fields that those show, `said`
    is what people read in place of some."""
    document = msgspec.to_builtins(found)
    shown = _without(document, leave_out.split()) | dict(said or {})
    fields = Part((), [(name, cell(value)) for name, value in shown.items()])
    return View(document, (fields, *(part for part in more if part.lines)))


def show(view: View, json: bool) -> None:
    """Print it once."""
    if json:
        document(view.document)
    elif terminal():
        from rich.console import Console

        Console(file=sys.stdout).print(view.rendered())
    else:
        for text in view.lines():
            print(text)


def said(text: str, found: Any, json: bool, *, leave_out: str = "") -> None:
    """A command without a table: what it did, or as JSON the record (or document) it leaves."""
    if json:
        document(_without(msgspec.to_builtins(found), leave_out.split()))
    else:
        print(one_line(text))


def document(value: Any) -> None:
    """The one JSON document of a command; indented for people."""
    data = msgspec.json.encode(value)
    print((msgspec.json.format(data, indent=2) if terminal() else data).decode())


def line(value: Any) -> None:
    """One of the JSON documents of a command that follows, at once."""
    print(msgspec.json.encode(value).decode(), flush=True)


def note(text: str) -> None:
    """A remark, beside what is asked for."""
    print(one_line(text), file=sys.stderr)


def terminal() -> bool:
    """Whether people look at stdout."""
    return sys.stdout.isatty()


def cell(value: Any) -> str:
    """A value in a table, on one line."""
    match value:
        case None | "" | () | []:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        case Mapping():
            fields = cast(Mapping[Any, Any], value).items()
            return " ".join(f"{name}={cell(part)}" for name, part in fields if part is not None) or "-"
        case list() | tuple():
            return ",".join(cell(part) for part in cast(Sequence[Any], value))
        case _:
            return one_line(str(value)) or "-"


def _without(document: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def _aligned(lines: list[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        yield "  ".join(text.ljust(width) for text, width in zip(cells, widths, strict=True)).rstrip()


def _rich(part: Part) -> Iterator[Any]:
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=None, show_header=bool(part.heads), header_style="bold", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for head in part.heads or ("", ""):
        made.add_column(head, overflow="fold", no_wrap=head == "ID")  # an id is to be copied
    for cells in part.lines:
        made.add_row(*(Text(text, _STYLE.get(text, "")) for text in cells))
    yield made
