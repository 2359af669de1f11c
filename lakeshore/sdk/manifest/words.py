"""The decoder's complaints as sentences for whoever wrote the file."""

from __future__ import annotations

import re
import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Struct

from .problems import Where, same_word

_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "null": "null",
    "object": "a mapping (`name: value`)",
    "array": "a list",
}
_AT = re.compile(r" - at (?:`key` in )?`\$(?P<path>.*)`$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_MISSING = re.compile(r"missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `([^`]*)`(?: ([<>]=?) ([^,]+))?")


def explain(error: msgspec.ValidationError, kind: type[Struct], data: Any) -> tuple[Where, str]:
    """Where it is, from the Struct's top, and what to write instead."""
    text = str(error)
    found = _AT.search(text)
    where: Where = ()
    if found:
        text = text[: found.start()]
        where = tuple(
            name or int(index) for name, index in _STEP.findall(found["path"].partition("[...]")[0])
        )
    if missing := _MISSING.search(text):
        choice = _choice((*where, missing[1]), kind)
        return where, f"it needs {missing[1]}{':' * bool(choice)}{choice}"
    value = _within(data, where)
    if text.startswith("Invalid enum value"):
        return where, spelling(value, accepted(kind, where))
    if found is None or (expected := _EXPECTED.search(text)) is None:
        return where, text
    wanted = " or ".join(_TYPES.get(name, name) for name in expected[1].split(" | "))
    if expected[2]:
        bound = "at least" if expected[2] == ">=" else "at most"
        return (
            where,
            f"{short(value)} is out of range: write {wanted}, {bound} {expected[3].removesuffix('.0')}",
        )
    if choice := _choice(where, kind):
        return where, f"expected{choice}, found {short(value)}"
    if isinstance(value, dict) and "text" in wanted:  # one of its values, which the decoder doesn't name
        return where, f"expected {wanted} for each name in it: put numbers, true and false in quotes"
    if not isinstance(value, list | dict | None):
        wanted = wanted.replace("text", "text in quotes")
    return where, f"expected {wanted}, found {short(value)}"


def spelling(value: Any, names: tuple[str, ...]) -> str:
    """The sentence for a value that is none of a few names."""
    hint = [name for name in names if isinstance(value, str) and same_word(value, name)]
    if not hint:
        return f"{short(value)} is not accepted: write one of {', '.join(names)}"
    others = "" if len(names) == 1 else f" (of {', '.join(names)})"
    return f"{short(value)} is not accepted in a file: write {hint[0]}{others}"


def accepted(kind: Any, where: Where) -> tuple[str, ...]:
    """The names that a field takes, where it takes only some."""
    for part in where:
        struct = struct_in(kind)
        fields = {field.encode_name: field for field in msgspec.structs.fields(struct)} if struct else {}
        if part not in fields:
            return ()
        kind = fields[str(part)].type
    return tuple(name for one in _options(kind) if get_origin(one) is Literal for name in get_args(one))


def struct_in(kind: Any) -> type[Struct] | None:
    """The Struct among the types of a field."""
    return next((one for one in _options(kind) if isinstance(one, type) and issubclass(one, Struct)), None)


def short(value: Any) -> str:
    """A value as YAML has it, cut."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _choice(where: Where, kind: type[Struct]) -> str:
    names = accepted(kind, where)
    return f" one of {', '.join(names)}" if names else ""


def _options(kind: Any) -> list[Any]:
    """The members of a type that is a union, without annotations."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _options(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return [one for part in get_args(kind) for one in _options(part)]
    return [kind]


def _within(data: Any, where: Where) -> Any:
    for part in where:
        data = data[part]
    return data
