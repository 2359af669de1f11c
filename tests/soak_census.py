"""How much a running plane holds: every table and number inside it, and what the process holds.

Nothing is listed by name: all attributes of all objects that can be reached are walked, so a table
that is added tomorrow is counted too.
"""

import gc
import os
import sqlite3
import sys
import threading
import types
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import anyio

TABLES = (dict, list, set, frozenset, deque, Counter, WeakSet, WeakKeyDictionary, WeakValueDictionary)
RISING = frozenset(  # by their nature
    {
        "Engine._timer_count",
        "Engine._timers[]()",
        "Intake._count",
        "Queue._place",
        "_TrioTimers._count",
        "_TrioTimers._heap[]()",
        "lakeshore.sdk.functions._count",
    }
)
BOUNDED = frozenset(
    {"Invocations.changed", "Member._known", "lakeshore.core.ids._heads", "table options"}
)  # caches
ASIDE = ("IdMaker.", "SqliteStore.")  # the newest id; how long a log is, which is copied back in time


def attributes(thing: object) -> Iterator[tuple[str, Any]]:
    """The names and values of an object's own attributes."""
    yield from getattr(thing, "__dict__", {}).items()
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)


def ours(thing: object) -> bool:
    """Whether its attributes are to be walked."""
    return type(thing).__module__.partition(".")[0] == "lakeshore"


class Census:
    """Walks from some roots and counts.

    Attributes:
        tables: how much is in each table, by class and attribute, over all objects.
        numbers: the sum of each whole number that objects hold.
        objects: how many there are of each class.
    """

    def __init__(self, *roots: object) -> None:
        self.tables: Counter[str] = Counter()
        self.numbers: Counter[str] = Counter()
        self.objects: Counter[str] = Counter()
        self._seen: set[int] = set()
        gc.collect()
        self._todo = deque[tuple[str, Any]](("root", root) for root in roots)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "lakeshore":
                self._todo += [(f"{name}.{key}", value) for key, value in vars(module).items()]
        while self._todo:
            self._look(*self._todo.popleft())  # so that a thing has its shortest name
        self._seen.clear()

    def _look(self, name: str, thing: Any) -> None:
        if name in RISING or name in BOUNDED or name.startswith(ASIDE):
            return
        if isinstance(thing, bool | str | bytes | type | types.ModuleType) or thing is None:
            return
        if isinstance(thing, float):
            return  # a time
        if isinstance(thing, int):
            self.numbers[name] += thing
            return
        if id(thing) in self._seen:
            return
        self._seen.add(id(thing))
        if isinstance(thing, types.MethodType):
            self._todo.append((name, thing.__self__))
        elif isinstance(thing, types.FunctionType):
            self._todo += [(name, cell.cell_contents) for cell in thing.__closure__ or () if filled(cell)]
        elif isinstance(thing, TABLES):
            if getattr(thing, "maxlen", None) is None:
                self.tables[name] += len(thing)
            self._todo += [(f"{name}[]", value) for value in inside(thing)]
        elif isinstance(thing, tuple):
            self._todo += [(f"{name}()", value) for value in thing]
        elif ours(thing):
            kind = type(thing).__qualname__
            self.objects[kind] += 1
            self._todo += [(f"{kind}.{key}", value) for key, value in attributes(thing)]


def filled(cell: types.CellType) -> bool:
    """Whether a closure's cell has been set."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def inside(table: Any) -> Iterable[Any]:
    """What a table holds that may hold more."""
    if isinstance(table, Mapping):
        return [*table.keys(), *table.values()]
    return list(table)


def clear_caches() -> None:
    """Empty the bounded caches of Lakeshore's functions."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "lakeshore":
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def process(path: Path | None) -> dict[str, int]:
    """What the process holds, and the rows of the store's file."""
    found = rows(path) if path is not None else {}  # first: it may keep a descriptor for the next time
    return found | {
        "tasks": len(anyio.get_running_tasks()),
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
    }


def rows(path: Path) -> dict[str, int]:
    """How many rows each table of a file has."""
    conn = sqlite3.connect(path)
    try:
        names = conn.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        tables = [name for (name,) in names if f"table {name}" not in BOUNDED]
        return {f"table {n}": conn.execute(f"SELECT count(*) FROM {n}").fetchone()[0] for n in tables}
    finally:
        conn.close()


def grown(before: Counter[str], after: Counter[str], *, times: float = 1.0, slack: float = 0) -> list[str]:
    """What is larger than it was, in words."""
    return [
        f"{name}: {before[name]} -> {count}"
        for name, count in sorted(after.items())
        if count > times * before[name] + slack
    ]
