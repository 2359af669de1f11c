"""A second name for a package: `import` gives the same module objects, each run once under its real name.

A finder at the front of `sys.meta_path` answers for every module below the second name. Its loader
imports the real module and puts that object into `sys.modules` under both names, so nothing about
the real module (`__name__`, `__spec__`, `__loader__`) changes.

The import system insists on a module object of its own while it loads, and a thread that asks for
the same name at that moment may be handed it. That object is a stand-in that forwards every
attribute to the real module, so such a thread sees no difference.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType


def install(alias: str, real: str) -> None:
    """Make `alias`, and every module below it, the same module as `real`.

    Called from the body of the module `alias`. `real` is a package, not below `alias`.
    """
    module = importlib.import_module(real)
    _forward(sys.modules[alias], module)
    finder = _Finder(alias, real)
    if finder not in sys.meta_path:
        sys.meta_path.insert(0, finder)
    parent, _, child = alias.rpartition(".")
    if parent:  # before `sys.modules`: who finds the name there must find the attribute too
        setattr(sys.modules[parent], child, module)
    sys.modules[alias] = module


def _forward(stand_in: ModuleType, module: ModuleType) -> None:
    vars(stand_in)["__getattr__"] = partial(getattr, module)


@dataclass(frozen=True)
class _Finder(MetaPathFinder):
    """Finds the modules below `alias` where those below `real` are."""

    alias: str
    real: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(self.alias + "."):
            return None
        name = self.real + fullname.removeprefix(self.alias)
        found = _find(name, path)
        if found is None:
            return None
        package = found.submodule_search_locations is not None
        return ModuleSpec(fullname, _Loader(name, found), origin=found.origin, is_package=package)


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    # Not `importlib.util.find_spec`: it may wait for another thread's import, and the import system
    # holds a lock while it asks a finder.
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__spec__ is not None:
        return loaded.__spec__
    specs = (finder.find_spec(name, path) for finder in list(sys.meta_path))
    return next((spec for spec in specs if spec is not None), None)


@dataclass(frozen=True)
class _Loader(Loader):
    """Loads the module `name`, found at `found`, for whoever asked for it by its other name."""

    name: str
    found: ModuleSpec

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        stand_in = ModuleType(spec.name)
        _forward(stand_in, importlib.import_module(self.name))
        return stand_in

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self.name)

    def get_code(self, fullname: str) -> CodeType | None:
        """The real module's code, for `python -m`."""
        loader = self.found.loader
        return loader.get_code(self.name) if isinstance(loader, InspectLoader) else None
