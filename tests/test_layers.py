"""Imports go down only, without cycles, and the core's pure half sees no loop, clock, chance or device.

The package is read from disk with `ast`, so nothing is imported and nothing can hide behind a lazy
import. **A new module of the core is declared in `CORE`**, a new folder beside it in `TOP`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "lakeshore"

# Lowest first. A module may import its own group and every lower row; groups of one row never each other.
ROWS = [
    ["pure"],
    ["actors"],
    ["plane"],
    ["store", "transports", "runners", "providers", "storage"],
    ["sdk"],
    ["package"],
    ["cli"],
    ["testing"],  # on top of all, but blind to the row below it
]
CORE = {  # group: the modules (or folders) of lakeshore/core in it
    "pure": "__init__ admission away credit elasticity errors extensions failures framing ids keys logbook"
    " messages naming orders ports providing recent retry roles rows running settings states storages"
    " values vetting",
    "actors": "actor archive backlog bodies bond clearing client controller crew depot door engine entry"
    " guest handout head inquiries intake journal kills leases ledger line member notes office opening"
    " parents peer presence queue reports roster scribe space topics why worker",
    "plane": "about backend fresh plane reception",
}
TOP = {  # group: the modules and folders directly in lakeshore, besides core
    "package": "__init__ _alias",
    "cli": "cli __main__",
    **{name: name for name in [*ROWS[3], "sdk", "testing"]},
}
UNSEEING = ["pure", "actors"]  # the groups that the next two tables bind; time and seeds are passed in
FORBIDDEN_MODULES = {
    "an event loop": "anyio asyncio sniffio trio",
    "a clock": "sched time",
    "randomness": "numpy.random os random secrets",
    "a device": "aiosqlite multiprocessing select selectors signal socket sqlite3 ssl subprocess",
    "a thread": "_thread concurrent threading",
}
FORBIDDEN_NAMES = {
    "a clock": "datetime.date.today datetime.datetime.now datetime.datetime.today datetime.datetime.utcnow",
    "randomness": "uuid.uuid1 uuid.uuid4 uuid.uuid6 uuid.uuid7 uuid.uuid8",
}


def inverted(table: dict[str, str]) -> dict[str, str]:
    return {name: key for key, names in table.items() for name in names.split()}


GROUP_OF_CORE, GROUP_OF_TOP = inverted(CORE), inverted(TOP)
WHY = inverted(FORBIDDEN_MODULES) | inverted(FORBIDDEN_NAMES)
RANK = {group: rank for rank, row in enumerate(ROWS) for group in row}


@dataclass(frozen=True)
class Import:
    """`dotted` is absolute: a module, or a name in one. `typing_only`: under `if TYPE_CHECKING`."""

    dotted: str
    line: int
    typing_only: bool


@dataclass
class Module:
    name: str
    path: Path
    imports: list[Import] = field(default_factory=list)
    uses: list[tuple[str, int]] = field(default_factory=list)  # dotted names reached through an import

    @property
    def group(self) -> str | None:
        parts = self.name.split(".")[1:]
        if parts[:1] == ["core"]:
            return GROUP_OF_CORE.get(parts[1] if len(parts) > 1 else "__init__")
        return GROUP_OF_TOP.get(parts[0] if parts else "__init__")


class Reader(ast.NodeVisitor):
    """Fills in what a module imports, and which imported names it uses."""

    def __init__(self, module: Module) -> None:
        self.module, self.typing_only = module, False
        self.names: dict[str, str] = {}  # local name: what it stands for
        is_package = module.path.name == "__init__.py"
        self.parents = module.name.split(".")[: None if is_package else -1]

    def visit_If(self, node: ast.If) -> None:
        before = self.typing_only
        if ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            self.typing_only = True
        for child in node.body:
            self.visit(child)
        self.typing_only = before
        for child in [node.test, *node.orelse]:
            self.visit(child)

    def visit_Import(self, node: ast.Import) -> None:
        for name in node.names:
            self.add(name.name, node.lineno)
            top = name.name.partition(".")[0]
            self.names[name.asname or top] = name.name if name.asname else top

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = self.parents[: len(self.parents) - node.level + 1] if node.level else []
        origin = ".".join([*base, *([node.module] if node.module else [])])
        for name in node.names:
            dotted = origin if name.name == "*" else f"{origin}.{name.name}"
            self.add(dotted, node.lineno)
            self.names[name.asname or name.name] = dotted

    def visit_Attribute(self, node: ast.Attribute) -> None:
        head, *rest = ast.unparse(node).split(".")
        if head in self.names:
            self.module.uses.append((".".join([self.names[head], *rest]), node.lineno))
        self.generic_visit(node)

    def add(self, dotted: str, line: int) -> None:
        dotted = dotted.removeprefix("dreamlake.")  # the package's other name
        self.module.imports.append(Import(dotted, line, self.typing_only))
        self.module.uses.append((dotted, line))


def read(package: Path) -> dict[str, Module]:
    """Every module of the package on disk, by name."""
    modules: dict[str, Module] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = module = Module(name, path)
        reader = Reader(module)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for node in ast.walk(tree):  # first all imports, so that a use above one in the file counts
            if isinstance(node, ast.Import | ast.ImportFrom):
                reader.visit(node)
        module.imports.clear()
        module.uses.clear()
        reader.visit(tree)
    return modules


def prefixes(dotted: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while dotted:
        yield dotted
        dotted = dotted.rpartition(".")[0]


def edges(module: Module, modules: dict[str, Module]) -> Iterator[tuple[Module, Import]]:
    """The package's own modules that this one imports, each once a line."""
    seen: set[tuple[str, int]] = set()
    for found in module.imports:
        target = next((name for name in prefixes(found.dotted) if name in modules), module.name)
        if target != module.name and (target, found.line) not in seen:
            seen.add((target, found.line))
            yield modules[target], found


def may_import(group: str, target: str) -> bool:
    if group == "testing":
        return target != "cli"
    return group == target or RANK[target] < RANK[group]


def undeclared(modules: dict[str, Module]) -> list[str]:
    return [
        f"{module.path}: {module.name} has no layer: declare it in {table} in tests/test_layers.py"
        for module in modules.values()
        if module.group is None
        for table in ["CORE" if module.name.startswith("lakeshore.core.") else "TOP"]
    ]


def upward(modules: dict[str, Module]) -> list[str]:
    return [
        f"{module.path}:{found.line}: {module.name} ({group}) imports {target.name} ({above}): "
        "imports go down only, and neighbours never import each other"
        for module in modules.values()
        for target, found in edges(module, modules)
        if (group := module.group) and (above := target.group) and not may_import(group, above)
    ]


def unclean(modules: dict[str, Module]) -> list[str]:
    return [
        f"{module.path}:{line}: {module.name} ({module.group}) uses {hit}, {WHY[hit]}: pass it in"
        for module in modules.values()
        if module.group in UNSEEING
        for hit, line in sorted({(p, line) for used, line in module.uses for p in prefixes(used) if p in WHY})
    ]


def cycles(modules: dict[str, Module]) -> list[str]:
    """One cycle for each module on which a walk comes back to itself."""
    found: list[str] = []
    done: set[str] = set()
    trail: list[str] = []

    def walk(module: Module) -> None:
        if module.name in trail:
            circle = [*trail[trail.index(module.name) :], module.name]
            found.append(f"{module.path}: imports in a circle: {' -> '.join(circle)}")
        elif module.name not in done:
            trail.append(module.name)
            for target, edge in edges(module, modules):
                if not edge.typing_only:
                    walk(target)
            done.add(trail.pop())

    for module in modules.values():
        walk(module)
    return found


CHECKS = [undeclared, upward, unclean, cycles]


@pytest.mark.parametrize("check", CHECKS)
def test_the_package_keeps_its_layers(check: Callable[[dict[str, Module]], list[str]]) -> None:
    problems = check(read(PACKAGE))
    assert not problems, "\n" + "\n".join(problems)


# The checks checked: each on a small tree, clean but for what is planted in it.

CLEAN = {
    "__init__": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .sdk.udf import udf",
    "_alias": "",
    "core/__init__": "",
    "core/errors": "import datetime\nfrom uuid import UUID\nx: datetime.datetime",
    "core/rows": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import states",
    "core/states": "from .rows import Row\nfrom . import errors",
    "core/queue": "from lakeshore.core.states import step\ndef handle(self, now): self.now = now",
    "core/plane": "import anyio, time\nfrom .queue import Queue",
    "store/memory": "from ..core.plane import Plane\nimport threading",
    "transports/tcp": "from lakeshore.core import rows",
    "sdk/udf": "from lakeshore.store import memory\nfrom lakeshore.transports.tcp import Tcp",
    "cli/__init__": "import lakeshore as dls\nfrom .queues import app",
    "cli/queues": "from lakeshore.sdk.udf import udf",
    "testing/fakes": "import lakeshore.sdk.udf, lakeshore.core.rows",
}


def planted(root: Path, **more: str) -> list[str]:
    """What the checks say about the clean tree with `more` lines, each by `folder__module`."""
    added = {name.replace("__", "/", 1) if name[0] != "_" else name: text for name, text in more.items()}
    for name, text in (CLEAN | {key: f"{CLEAN.get(key, '')}\n{text}" for key, text in added.items()}).items():
        path = root / "lakeshore" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    modules = read(root / "lakeshore")
    return [problem for check in CHECKS for problem in check(modules)]


def test_a_clean_tree_has_no_problem(tmp_path: Path) -> None:
    assert planted(tmp_path) == []


@pytest.mark.parametrize(
    ("where", "line", "problem"),
    [
        pytest.param("core__new", "", "lakeshore.core.new has no layer: declare it in CORE", id="core"),
        pytest.param("cloud__new", "", "lakeshore.cloud.new has no layer: declare it in TOP", id="folder"),
    ],
)
def test_an_undeclared_module_is_found(tmp_path: Path, where: str, line: str, problem: str) -> None:
    (found,) = planted(tmp_path, **{where: line})
    assert problem in found


@pytest.mark.parametrize(
    ("where", "line", "problem"),
    [
        (
            "core__errors",
            "from .queue import Queue",
            "core.errors (pure) imports lakeshore.core.queue (actors)",
        ),
        ("core__queue", "from . import plane", "core.queue (actors) imports lakeshore.core.plane (plane)"),
        ("core__plane", "import lakeshore.store.memory", "(plane) imports lakeshore.store.memory (store)"),
        ("core__rows", "import lakeshore", "core.rows (pure) imports lakeshore (package)"),
        ("core__rows", "import dreamlake.lakeshore.sdk.udf", "(pure) imports lakeshore.sdk.udf (sdk)"),
        ("store__memory", "from ..transports.tcp import Tcp", "(store) imports lakeshore.transports.tcp"),
        ("transports__tcp", "import lakeshore.sdk.udf as u", "(transports) imports lakeshore.sdk.udf (sdk)"),
        ("sdk__udf", "def late():\n  from ..cli import queues", "(sdk) imports lakeshore.cli.queues (cli)"),
        (
            "sdk__udf",
            "from lakeshore.testing.fakes import f",
            "(sdk) imports lakeshore.testing.fakes (testing)",
        ),
        ("cli__queues", "from ..testing import fakes", "(cli) imports lakeshore.testing.fakes (testing)"),
        ("testing__fakes", "from ..cli import queues", "(testing) imports lakeshore.cli.queues (cli)"),
        (
            "core__states",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .queue import Queue",
            "core.states (pure) imports lakeshore.core.queue (actors)",
        ),
    ],
)
def test_an_upward_or_sideways_import_is_found(tmp_path: Path, where: str, line: str, problem: str) -> None:
    found = planted(tmp_path, **{where: line})
    assert any(problem in each and "imports go down only" in each for each in found), found


@pytest.mark.parametrize("where", ["core__errors", "core__queue"])
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("import asyncio", "uses asyncio, an event loop"),
        ("from anyio.abc import TaskGroup", "uses anyio, an event loop"),
        ("def late():\n    import trio", "uses trio, an event loop"),
        ("from time import monotonic", "uses time, a clock"),
        ("import datetime\ndatetime.datetime.now(None)", "uses datetime.datetime.now, a clock"),
        ("from datetime import datetime as d\nd.utcnow()", "uses datetime.datetime.utcnow, a clock"),
        ("def f(): return dt.date.today()\nimport datetime as dt", "uses datetime.date.today, a clock"),
        ("from random import Random", "uses random, randomness"),
        ("import secrets", "uses secrets, randomness"),
        ("from os import urandom", "uses os, randomness"),
        ("import uuid\nuuid.uuid4()", "uses uuid.uuid4, randomness"),
        ("from uuid import uuid4 as new", "uses uuid.uuid4, randomness"),
        ("import sqlite3", "uses sqlite3, a device"),
        ("import socket", "uses socket, a device"),
        ("import threading", "uses threading, a thread"),
    ],
)
def test_what_the_pure_half_may_not_see_is_found(tmp_path: Path, where: str, line: str, problem: str) -> None:
    found = planted(tmp_path, **{where: line})
    assert found
    assert all(problem in each for each in found), found


@pytest.mark.parametrize(
    ("where", "line", "circle"),
    [
        ("core__errors", "from .states import step", "core.states -> lakeshore.core.errors"),
        ("cli__queues", "def late():\n    from . import app", "lakeshore.cli.queues -> lakeshore.cli"),
    ],
)
def test_a_circle_is_found(tmp_path: Path, where: str, line: str, circle: str) -> None:
    (found,) = planted(tmp_path, **{where: line})
    assert "imports in a circle" in found
    assert circle in found
