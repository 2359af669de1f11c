"""YAML as plain data that knows the line of each of its parts.

Scalars are read as YAML 1.2 and JSON read them: `no` and `10:30` are text, only `true` is true. Keys are
text as they are written.
"""

from __future__ import annotations

import re
from typing import Any, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from .problems import Problem, Where, dotted

_MOST = 100_000  # values a file may have, counted each time an alias repeats them
_TAG = "tag:yaml.org,2002:"
_SCALARS = {
    "null": ("~|null|Null|NULL|", ["~", "n", "N", ""]),
    "bool": ("true|True|TRUE|false|False|FALSE", list("tTfF")),
    "int": ("[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    "float": (
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
}


class _Loader(yaml.SafeLoader):
    """Its own rules for plain scalars."""


_Loader.yaml_implicit_resolvers = {}  # not those of YAML 1.1
for _kind, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), _first)  # pyright: ignore[reportUnknownMemberType]


class Wrong(Exception):
    """The text is no YAML that we take."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem


def read(text: str) -> tuple[Any, dict[Where, int]]:
    """The one document of a text as plain data, and the line of each value (of its key, in a mapping).

    Raises: Wrong.
    """
    try:
        nodes: list[Node] = list(cast("Any", yaml).compose_all(text, Loader=_Loader))
        if len(nodes) > 1:
            raise _wrong(nodes[1], (), "a second document begins here: put everything in one")
        builder = _Builder()
        return (builder.value(nodes[0], ()) if nodes else None), builder.lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Wrong(Problem(mark.line + 1 if mark else 0, "", _syntax(error))) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        sign = ord(text[error.position])
        raise Wrong(
            Problem(line, "", f"a character that YAML can't hold (U+{sign:04X}): remove it")
        ) from None
    except RecursionError:
        raise Wrong(Problem(0, "", "it is nested too deeply")) from None


def _syntax(error: yaml.MarkedYAMLError) -> str:
    problem, context = error.problem or "", error.context or ""
    if "'\\t'" in problem:
        return "a tab: YAML is indented with spaces"
    return f"not valid YAML: {context + ': ' if context else ''}{problem}"


def _wrong(node: Node, where: Where, message: str) -> Wrong:
    mark: Any = node.start_mark
    return Wrong(Problem(mark.line + 1, dotted(where), message))


class _Builder:
    def __init__(self) -> None:
        self.lines: dict[Where, int] = {}
        self._left, self._open = _MOST, set[Node]()

    def value(self, node: Node, where: Where) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _wrong(node, where, f"too much: a file may have {_MOST:,} values")
        self.lines.setdefault(where, cast("Any", node.start_mark).line + 1)
        if isinstance(node, ScalarNode):
            return _scalar(node, where)
        if node.tag not in (_TAG + "map", _TAG + "seq"):
            raise _wrong(node, where, f"the tag {_tag(node)}: plain mappings and lists have none")
        if node in self._open:
            raise _wrong(node, where, "an alias to what it is part of")
        self._open.add(node)
        built = self._mapping(node, where) if isinstance(node, MappingNode) else self._list(node, where)
        self._open.discard(node)
        return built

    def _list(self, node: Node, where: Where) -> list[Any]:
        assert isinstance(node, SequenceNode)
        return [self.value(item, (*where, number)) for number, item in enumerate(node.value)]

    def _mapping(self, node: MappingNode, where: Where) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: list[tuple[Node, Node]] = []
        for key, item in node.value:
            if not isinstance(key, ScalarNode):
                raise _wrong(key, where, "a key that is no plain text")
            name = str(key.value)
            if name == "<<" and key.style is None:
                merged.append((key, item))
                continue
            here = (*where, name)
            if name in data:
                raise _wrong(key, here, f"it is here twice, first in line {self.lines[here]}")
            self.lines[here] = cast("Any", key.start_mark).line + 1
            data[name] = self.value(item, here)
        for _, item in merged:  # what the mapping says itself comes first
            for base in item.value if isinstance(item, SequenceNode) else [item]:
                if not isinstance(base, MappingNode):
                    raise _wrong(base, where, "`<<` takes a mapping, or a list of them")
                if base in self._open:
                    raise _wrong(base, where, "an alias to what it is part of")
                found = self.value(base, (*where, "<<"))
                self._move(where, found)
                data = {**found, **data}
        return data

    def _move(self, where: Where, names: dict[str, Any]) -> None:
        """The lines of what was merged, as lines of the mapping it was merged into."""
        size = len(where)
        for path in [path for path in self.lines if len(path) > size and path[size] == "<<"]:
            if path[:size] == where:
                line = self.lines.pop(path)
                if len(path) > size + 1:
                    self.lines.setdefault((*where, *path[size + 1 :]), line)


def _scalar(node: ScalarNode, where: Where) -> Any:
    text, kind = str(node.value), str(node.tag).removeprefix(_TAG)
    try:
        if kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if kind == "int":
            return int(text, 0 if text[:2] in ("0o", "0x") else 10)
        if kind == "float":
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    except (KeyError, ValueError):
        long = len(text) > 1000
        what = "a number of more digits than anything here has" if long else f"{text!r} is no {kind}"
        raise _wrong(node, where, what) from None
    raise _wrong(node, where, f"the tag {_tag(node)}: plain values have none; put text in quotes")


def _tag(node: Node) -> str:
    return str(node.tag).replace(_TAG, "!!")
