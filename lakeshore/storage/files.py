"""What one attempt reads and writes by key. What it writes is seen by nobody else until it is published."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lakeshore.core.errors import KeyNotFound, KeysNotReturned, Overtaken, StorageFailed
from lakeshore.core.keys import clash
from lakeshore.core.ports import Staged, Storage

from .named import spelled, strings_in

Clear = Callable[[], bool]  # whether the attempt is the current one still; may wait


class Written:
    """One file or folder that a body was given a path for. `given` is the key as the body wrote it,
    `name` how it is written from the prefix of the invocation."""

    def __init__(self, storage: Storage, key: str, given: str, name: str, path: Path, folder: bool) -> None:
        self.storage, self.key, self.given, self.name = storage, key, given, name
        self.path, self.folder = path, folder
        self.named = self.published = False
        self.staged: Staged | None = None

    @property
    def is_there(self) -> bool:
        """Whether the body has made it."""
        return os.path.lexists(self.path)


class Files:
    """The files of one attempt; its methods may be called from any thread.

    Args:
        mark: tells attempts apart, in names of files.
        prefix: that of the invocation, from which returned keys are read.
    """

    def __init__(self, mark: str, prefix: str) -> None:
        self._mark, self._prefix = mark, prefix
        self._lock = threading.RLock()
        self._showing = threading.RLock()  # held while something is published, or thrown away
        self._written: dict[tuple[str, str], Written] = {}  # by storage and whole key
        self._shown: list[Written] = []  # published already
        self._places: dict[str, Path] = {}  # by storage: where this attempt's own files are
        self._count = 0
        self._closed = False

    # what a body asks for

    def read(self, storage: Storage, key: str) -> Path:
        """A local path of what is under a key: the body's own, or the storage's."""
        with self._lock:
            own = self._own(storage, key)
            inside = [] if own is not None else self._below(storage, key)
        if own is not None:
            return own
        scratch = self._new_place(storage)
        if not inside:
            return storage.fetch(key, scratch)
        return self._merged(storage, key, inside, scratch)

    def write(self, storage: Storage, key: str, given: str, name: str, *, folder: bool) -> Path:
        """A local path to write to, in a folder of its own. Asked for again, it is the same one, unless
        what was there is published already."""
        with self._lock:
            found = self._written.get((storage.url, key))
            if found is not None:
                if found.folder != folder:
                    raise ValueError(_kinds(given, found.folder))
                return found.path
            for other in self._written.values():
                if other.storage is storage and clash(key, other.key):
                    raise ValueError(_clashing(given, other.given))
            path = self._new_place(storage) / key.rpartition("/")[2]
            (path if folder else path.parent).mkdir(parents=True, exist_ok=True)
            self._written[storage.url, key] = Written(storage, key, given, name, path, folder)
            return path

    # what its runner asks for

    def publish(self, value: Any, clear: Clear) -> None:
        """Let be seen what a yielded value names, before the value is.

        Raises: StorageFailed naming a key, Overtaken.
        """
        named = [written for written in self._naming(value) if self._must_be_there(written)]
        self._show(named, clear)

    def complete(self, value: Any, clear: Clear, *, generator: bool = False) -> Any:
        """Let be seen all that was written; the body's result, given what it returned.

        A generator's result is the list of keys that it wrote, where it returned None.

        Raises: KeysNotReturned, StorageFailed naming a key, Overtaken.
        """
        self._naming(value)
        with self._lock:
            rest = [written for written in self._written.values() if written.named or written.is_there]
            if generator and value is None and (rest or self._shown):
                value = list(dict.fromkeys(written.name for written in (*self._shown, *rest)))
                for written in rest:
                    written.named = True
        lost = tuple(written.given for written in rest if not written.named and written.is_there)
        if lost:
            raise KeysNotReturned(lost)
        self._show([written for written in rest if written.named and self._must_be_there(written)], clear)
        return value

    def close(self) -> None:
        """The attempt is over, or another's: nothing more of it is published."""
        self._closed = True

    def discard(self) -> None:
        """The attempt is over: what is not published never will be, and its folders go. Where something is
        being published just now, that comes first."""
        self.close()
        with self._showing:
            with self._lock:
                rest, self._written = list(self._written.values()), {}
                places, self._places = list(self._places.values()), {}
            for written in rest:
                if written.staged is not None and not written.published:
                    _quietly(written.staged.discard)
            for place in places:
                shutil.rmtree(place, ignore_errors=True)

    # inside

    def _naming(self, value: Any) -> list[Written]:
        """Note which keys a value names, and return those that are not published."""
        with self._lock:
            if not self._written:
                return []
            names: dict[str, list[Written]] = {}
            for written in self._written.values():
                for name in {written.given, written.name}:
                    names.setdefault(name, []).append(written)
        found: dict[Written, None] = {}
        for text in strings_in(value):
            for written in names.get(text) or names.get(spelled(self._prefix, text), ()):
                written.named = True
                found[written] = None
        return list(found)

    def _must_be_there(self, written: Written) -> bool:
        if not written.is_there:
            raise FileNotFoundError(
                f"the key {written.given!r} is returned, and run.write({written.given!r}) was called, but "
                f"nothing was written to the path that it gave: {written.path}"
            )
        return True

    def _show(self, some: list[Written], clear: Clear) -> None:
        if not some:
            return
        with self._showing:
            for written in some:
                self._check_open()
                if written.staged is None:
                    written.staged = written.storage.stage(written.key, written.path, self._mark)
            self._check_open()
            if not clear():
                raise Overtaken("the attempt is over")
            for written in some:
                self._check_open()
                self._publish(written)

    def _publish(self, written: Written) -> None:
        assert written.staged is not None
        written.staged.publish()
        written.published = True
        with self._lock:
            self._written.pop((written.storage.url, written.key), None)
            self._shown.append(written)

    def _check_open(self) -> None:
        if self._closed:
            raise Overtaken("the attempt is over")

    def _own(self, storage: Storage, key: str) -> Path | None:
        """Where the body has written a key itself, or a folder that it is in."""
        for written in self._written.values():
            if written.storage is not storage or not written.is_there:
                continue
            if written.key == key:
                return written.path
            if written.folder and key.startswith(written.key + "/"):
                inside = written.path / key[len(written.key) + 1 :]
                if os.path.lexists(inside):
                    return inside
                raise KeyNotFound(key, storage.url)
        return None

    def _below(self, storage: Storage, key: str) -> list[Written]:
        return [
            written
            for written in self._written.values()
            if written.storage is storage and written.is_there and written.key.startswith(key + "/")
        ]

    def _merged(self, storage: Storage, key: str, inside: list[Written], scratch: Path) -> Path:
        """A folder as it is in the storage, with the body's own files in it."""
        merged = scratch / "merged" / key.rpartition("/")[2]
        with suppress(KeyNotFound):
            shutil.copytree(storage.fetch(key, scratch), merged, copy_function=_linked)
        for written in inside:
            there = merged / written.key[len(key) + 1 :]
            there.parent.mkdir(parents=True, exist_ok=True)
            if written.folder:
                shutil.copytree(written.path, there, copy_function=_linked, dirs_exist_ok=True)
            else:
                there.unlink(missing_ok=True)
                _linked(written.path, there)
        return merged

    def _new_place(self, storage: Storage) -> Path:
        """A folder that is this attempt's own, for one thing; not made yet."""
        with self._lock:
            if self._closed:
                raise StorageFailed("", storage.url, "the attempt is over: it reads and writes nothing more")
            base = self._places.get(storage.url)
            if base is None:
                base = self._places[storage.url] = storage.workplace() / self._mark
            self._count += 1
            return base / str(self._count)


def _linked(source: Any, target: Any) -> None:
    """The same file twice, without its bytes where that can be."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _quietly(call: Callable[[], None]) -> None:
    with suppress(Exception):  # what is left is swept away some day
        call()


def _kinds(given: str, folder: bool) -> str:
    was, now = ("a folder", "a file") if folder else ("a file", "a folder")
    return f"{given!r} was written as {was} before, and is to be {now} now: use another key"


def _clashing(given: str, other: str) -> str:
    return (
        f"{given!r} and {other!r} can't both be written: one is inside the other, or they differ by case "
        "alone; write into the folder's own path, or use another key"
    )
