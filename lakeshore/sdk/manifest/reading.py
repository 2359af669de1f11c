"""A lakeshore.yaml, read and checked as far as that can be done without a plane."""

from __future__ import annotations

import os
import re
import sys
from typing import Any, TypeVar, cast

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import FieldInfo

from lakeshore.core.naming import check_slug
from lakeshore.core.settings import check_patch, declare
from lakeshore.sdk.address import namespace_of
from lakeshore.storage.urls import check_storage

from .flat import flat
from .problems import ManifestError, Problem, Where, dotted, nearest, same_word
from .shape import DaemonTemplate, Manifest, Provider, Queue
from .words import accepted, explain, short, struct_in
from .yamltext import Wrong, read

S = TypeVar("S", bound=Struct)

_LONGEST = 4 << 20  # bytes
_PLACES = {  # what the checks call a setting, and where it is in the file
    "provider": ("providerRef",),
    "template": ("daemonTemplate",),
    **{name: ("elasticity", name) for name in ("min", "max", "threshold", "cooldown_s")},
    **{
        name: ("admission", name)
        for name in ("max_depth", "on_full", "rate_limit", "deadline_cutoff_s", "max_running", "max_bytes")
    },
}


def load(file: str | os.PathLike[str]) -> Manifest:
    """Read a file; "-" is standard input.

    Raises: ManifestError, which names the lines.
    """
    name = os.fspath(file)
    try:
        if name == "-":
            name, raw = "<stdin>", sys.stdin.buffer.read(_LONGEST + 1)
        else:
            with open(name, "rb") as opened:
                raw = opened.read(_LONGEST + 1)
    except OSError as error:
        raise ManifestError(name, (Problem(0, "", f"can't be read: {error.strerror}"),)) from None
    if len(raw) > _LONGEST:
        raise ManifestError(name, (Problem(0, "", "is longer than 4 MiB, which no such file is"),))
    try:
        return parse(raw.decode("utf-8-sig"), name)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ManifestError(name, (Problem(line, "", "is not UTF-8 text"),)) from None


def parse(text: str, file: str = "lakeshore.yaml") -> Manifest:
    """Check the text of a file.

    Raises: ManifestError.
    """
    try:
        data, lines = read(text)
    except Wrong as wrong:
        raise ManifestError(file, (wrong.problem,)) from None
    reader = _Reader(lines)
    manifest = reader.manifest(data, file)
    if reader.problems:
        raise ManifestError(file, tuple(sorted(reader.problems, key=lambda problem: problem.line)))
    return manifest


class _Reader:
    """Collects what is wrong, so that one run names all of it."""

    def __init__(self, lines: dict[Where, int]) -> None:
        self.lines = lines
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.folder = ""  # of the file

    def wrong(self, where: Where, message: str) -> None:
        """Note a problem, in the line of the nearest part that has one."""
        near = where
        while near and near not in self.lines:
            near = near[:-1]
        self.problems.append(Problem(self.lines.get(near, 0), dotted(where), message))

    def manifest(self, data: Any, file: str) -> Manifest:
        """The whole file; of no use where there are problems."""
        if data is None:
            self.wrong((), "is empty: write queues: or providers: in it")
            return Manifest()
        if not isinstance(data, dict):
            self.wrong((), f"expected `queues:` or `providers:` at its beginning, found {short(data)}")
            return Manifest()
        parts, self.folder = cast("dict[str, Any]", data), os.path.dirname(file)
        parts = self.known(parts, Manifest, (), without=("file", "notes"))
        providers = {name: self.provider(name, item) for name, item in self.named(parts, "providers")}
        queues = {name: self.queue(name, item) for name, item in self.named(parts, "queues")}
        return Manifest(
            namespace=self.namespace(parts),
            storage=self.storage(parts, ()),
            providers={name: provider for name, provider in providers.items() if provider is not None},
            queues={name: queue for name, queue in queues.items() if queue is not None},
            file=file,
            notes=tuple(self.notes),
        )

    def namespace(self, parts: dict[str, Any]) -> Any:
        """The namespace it names."""
        name = parts.get("namespace", UNSET)
        if name is UNSET:
            return UNSET
        if not isinstance(name, str):
            self.wrong(("namespace",), f"expected text in quotes, found {short(name)}")
            return UNSET
        try:
            return namespace_of(name)
        except ValueError as error:
            self.wrong(("namespace",), str(error))
            return UNSET

    def named(self, parts: dict[str, Any], group: str) -> list[tuple[str, Any]]:
        """What `queues:` or `providers:` holds, under names that can be."""
        items = parts.get(group)
        if items is None:
            return []
        if not isinstance(items, dict):
            self.wrong((group,), f"expected a mapping (`name: value`), found {short(items)}")
            return []
        found: list[tuple[str, Any]] = []
        for name, item in cast("dict[str, Any]", items).items():
            try:
                check_slug(group[:-1], name)
            except ValueError as error:
                self.wrong((group, name), str(error))
            else:
                found.append((name, item))
        return found

    def known(
        self, data: dict[str, Any], kind: type[Struct], where: Where, without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Data without the keys that nobody knows, at every depth, which are noted."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        names, kept = [name for name in fields if name not in without], dict[str, Any]()
        for name, value in data.items():
            if name not in names:
                hint = _home(name, fields) or nearest(name, names)
                self.wrong((*where, name), f"no such key{hint}: it may have {', '.join(names)}")
            elif isinstance(value, dict) and (inner := struct_in(fields[name].type)) is not None:
                kept[name] = self.known(cast("dict[str, Any]", value), inner, (*where, name))
            else:
                kept[name] = value
        return kept

    def convert(self, data: Any, kind: type[S], where: Where) -> S | None:
        """Data as a Struct but for what is wrong in it, which is noted; None where nothing is left."""
        while True:
            try:
                return msgspec.convert(data, kind)
            except msgspec.ValidationError as error:
                inner, message = explain(error, kind, data)
                self.wrong((*where, *inner), message)
                if not inner:
                    return None
                data = _mended(data, inner, accepted(kind, inner))

    def provider(self, name: str, item: Any) -> Provider | None:
        """One provider."""
        where = ("providers", name)
        if not isinstance(item, dict):
            self.wrong(where, f"expected a mapping with its kind, found {short(item)}")
            return None
        data = cast("dict[str, Any]", item)
        own = {key: data[key] for key in ("kind", "max") if key in data}
        config = {key: value for key, value in data.items() if key not in own}
        for key, value in config.items():
            self.storable(value, (*where, key))
        found = self.convert(own, Provider, where)
        return found and msgspec.structs.replace(found, config=config)

    def queue(self, name: str, item: Any) -> Queue | None:
        """One queue. Nothing at all is a queue by the defaults."""
        where = ("queues", name)
        if item is None:
            return Queue()
        if not isinstance(item, dict):
            self.wrong(where, f"expected a mapping (`name: value`), found {short(item)}")
            return None
        before = len(self.problems)
        data = self.known(cast("dict[str, Any]", item), Queue, where)
        found = self.convert(data, Queue, where)
        if found is None:
            return None
        if found.storage is not UNSET:
            found = msgspec.structs.replace(found, storage=self.storage(data, where))
        if len(self.problems) == before:  # what is left of one that is wrong may well not fit together
            self.settings(found, where)
        if found.daemon_template:
            self.template(found.daemon_template, (*where, "daemonTemplate"))
        return found

    def template(self, data: dict[str, Any], where: Where) -> None:
        """The fields we know; others are the provider's, but for near misses of spelling."""
        known = [field.encode_name for field in msgspec.structs.fields(DaemonTemplate)]
        for name, value in data.items():
            self.storable(value, (*where, name))
            if name in known:
                continue
            if twin := next((other for other in known if same_word(name, other)), None):
                self.wrong((*where, name), f"no such key: write {twin}")
            elif near := nearest(name, known, 0.8):
                self.notes.append(f"{dotted((*where, name))} is left to the provider{near}")
        self.convert(data, DaemonTemplate, where)

    def settings(self, queue: Queue, where: Where) -> None:
        """The rules that queues.add and queues.patch have."""
        given = flat(queue)
        while message := _complaint(given):
            named = re.match(r"\w+", message)
            name = named[0] if named else ""
            place = _PLACES.get(name, (name,)) if name else ()
            told = message.removeprefix(f"{place[-1]}: " if place else "").replace("None", "null")
            self.wrong((*where, *place), told)
            if given.pop(name, None) is None:
                return

    def storage(self, data: dict[str, Any], where: Where) -> Any:
        """Where bulk data is: a folder, relative to that of the file, or the URL of an object store."""
        storage, here = data.get("storage", UNSET), (*where, "storage")
        if storage is UNSET or storage is None:
            return storage
        if not isinstance(storage, str) or not storage:
            self.wrong(here, f"expected a folder or a URL such as s3://bucket/prefix, found {short(storage)}")
            return UNSET
        try:
            return check_storage(storage, self.folder)
        except ValueError as error:
            self.wrong(here, str(error))
            return UNSET

    def storable(self, value: Any, where: Where) -> None:
        """Whether a store can keep it."""
        try:
            msgspec.msgpack.encode(value)
        except (ValueError, OverflowError, RecursionError):
            self.wrong(where, "a store can't keep it: use text, lists, mappings, numbers of at most 64 bits")


def _complaint(given: dict[str, Any]) -> str:
    """The first thing that the verbs would have against these settings; empty: nothing."""
    try:
        declare({name: value for name, value in given.items() if value is not None})
        check_patch({name: value for name, value in given.items() if name != "kind"}, elasticity=True)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def _mended(data: Any, where: Where, names: tuple[str, ...]) -> Any:
    """The same with any of the names that are accepted there; where there are none, without that part."""
    first, *rest = where
    if isinstance(first, int):  # of a list of texts; the others keep their numbers
        return [*data[:first], "", *data[first + 1 :]]
    if rest:
        return data | {first: _mended(data[first], tuple(rest), names)}
    return data | {first: names[0]} if names else {name: data[name] for name in data if name != first}


def _home(name: str, fields: dict[str, FieldInfo]) -> str:
    """Where a key that stands one level too high belongs."""
    for outer, field in fields.items():
        inner = struct_in(field.type)
        if inner and name in [field.encode_name for field in msgspec.structs.fields(inner)]:
            return f" here (it belongs in {outer})"
    return ""
