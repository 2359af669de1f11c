"""The page about the wire protocol says what the code does. Run this file to write its tables anew."""

from __future__ import annotations

import re
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin

import msgspec

from lakeshore.core import framing
from lakeshore.core.framing import MESSAGES
from lakeshore.core.messages import PROTOCOL

PAGE = Path(__file__).parents[1] / "docs" / "protocol.md"
HEAD = "<!-- made by `python tests/test_protocol.py` -->"
MIDDLE = 'What is in them besides: arrays without a tag, unless it says "map".'


def spelled(kind: Any) -> str:
    """A type as somebody reads it who knows no Python."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        names = [spelled(each) for each in inner]
        return " or ".join(sorted(set(names) - {"null"}) + [name for name in names if name == "null"])
    if origin is tuple:
        return f"[{', '.join('…' if each is Ellipsis else spelled(each) for each in inner)}]"
    if origin is dict:
        return f"map of {spelled(inner[0])} to {spelled(inner[1])}"
    return "null" if kind is type(None) else "any" if kind is Any else kind.__name__


def parts() -> list[type[msgspec.Struct]]:
    """Every Struct without a tag that some message has in it."""
    found: dict[type[msgspec.Struct], None] = {}

    def look(kind: Any) -> None:
        for inner in get_args(kind):
            look(inner)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            if kind.__struct_config__.tag is None:
                found[kind] = None
            elif kind in seen:
                return
            seen.add(kind)
            for field in msgspec.structs.fields(kind):
                look(field.type)

    seen: set[Any] = set()
    for message in MESSAGES:
        look(message)
    return sorted(found, key=lambda each: each.__name__)


def fields(kind: type[msgspec.Struct]) -> str:
    """A line for a Struct's fields."""
    shown: list[str] = []
    for field in msgspec.structs.fields(kind):
        optional = "" if field.required else "?"
        shown.append(f"`{field.encode_name}`{optional} {spelled(field.type)}")
    return ", ".join(shown)


def tables() -> str:
    """What the page has below `HEAD`."""
    lines = [HEAD, "", "| tag | message | fields (`?`: has a default) |", "| --- | --- | --- |"]
    tagged: list[tuple[Any, type[msgspec.Struct]]] = [(each.__struct_config__.tag, each) for each in MESSAGES]
    tagged.sort(key=lambda each: each[0])
    lines += [f"| {tag} | {message.__name__} | {fields(message)} |" for tag, message in tagged]
    lines += ["", MIDDLE, "", "| name | fields |", "| --- | --- |"]
    for part in parts():
        shape = "" if part.__struct_config__.array_like else " (map)"
        lines.append(f"| {part.__name__}{shape} | {fields(part)} |")
    return "\n".join(lines) + "\n"


def test_the_tables_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert page[page.index(HEAD) :] == tables(), f"run: python {Path(__file__).name}, in tests/"


def test_the_figures_are_those_of_the_code() -> None:
    page = PAGE.read_text()
    assert f"at most {framing.FRAME_LIMIT:,}" in page
    assert f"at most {framing.PIECE_SIZE >> 10} KiB" in page
    assert f"at most {framing.MESSAGE_LIMIT >> 20} MiB" in page
    assert f"`protocol` is {PROTOCOL} in this version" in page
    kinds = re.findall(r"^\| ([0-3]) \| (?:a msgpack|a piece|its last|control)", page, re.MULTILINE)
    ours = [framing.BATCH, framing.PIECE, framing.LAST, framing.CONTROL]
    assert kinds == [str(kind) for kind in ours]
    assert set(re.findall(r"`([A-Z][a-z]\w+)`", page)) <= {each.__name__ for each in MESSAGES}


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index(HEAD)] + tables())
    print(f"wrote the tables of {PAGE}")
