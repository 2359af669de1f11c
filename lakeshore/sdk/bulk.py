"""Where the keys of a body are: which storage, which whole key; and its files, made when first asked for."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lakeshore.core.ids import text_of
from lakeshore.core.keys import file_key, relative
from lakeshore.core.plane import new_id
from lakeshore.core.ports import Storage
from lakeshore.storage.files import Files

from .scope import Scope, body_here, scope_here

_AT_ONCE = 8  # files that are fetched side by side

_STALE = 1209600.0  # seconds after which what an attempt has left on its way is nobody's any more

_lock = threading.Lock()
_swept: set[str] = set()  # places where that was looked for
_outside: Files | None = None  # of what is read outside of bodies


def read(key: str) -> Path:
    """`Run.read`."""
    here = scope_here()
    return _files().read(_storage(here), file_key(here.prefix, key))


def read_many(keys: list[str]) -> list[Path]:
    """Several, side by side."""
    here = scope_here()
    whole = [file_key(here.prefix, key) for key in keys]
    files, storage = _files(), _storage(here)
    if len(whole) < 2:
        return [files.read(storage, key) for key in whole]
    from concurrent.futures import ThreadPoolExecutor  # slow to load

    with ThreadPoolExecutor(min(_AT_ONCE, len(whole)), "lakeshore read") as pool:
        return list(pool.map(partial(files.read, storage), whole))


def write(key: str, *, dir: bool) -> Path:
    """`Run.write`, in a body."""
    here, body = scope_here(), body_here()
    whole, storage = file_key(here.prefix, key), _storage(here)
    name = key if here.anchored else relative(body.prefix, whole)
    return _files().write(storage, whole, key, name, folder=dir)


def default_root(here: Scope) -> str:
    """The folder that keys are in where no storage is named."""
    return here.root or os.environ.get("LAKESHORE_ROOT") or os.getcwd()


def _storage(here: Scope) -> Storage:
    from lakeshore.storage.opening import open_storage  # slow to load: most bodies read no files

    if here.anchored and here.root is not None:
        return open_storage(here.root)
    body = body_here()
    where: str = body.storage if body is not None else _plane_storage()
    storage = open_storage(where or default_root(here))
    if body is not None and storage.url not in _swept:
        _swept.add(storage.url)
        threading.Thread(target=_sweep, args=(storage,), name="lakeshore sweep", daemon=True).start()
    return storage


def _sweep(storage: Storage) -> None:
    from lakeshore.storage.sweeping import sweep

    with suppress(Exception):  # another time, then
        sweep(storage, _STALE)


def _plane_storage() -> str:
    """What the plane that a submit would go to here keeps its files in, if one is open."""
    from .current import open_face

    face = open_face()
    return face.storage() if face is not None else ""


def mark_of(body: Any) -> str:
    """What names the attempt of a body, in names of files."""
    return f"{text_of(body.id)}.{body.attempt}"


def forget(body: Any) -> None:
    """Take away what an attempt has left in its workplaces that can't do so itself. Blocks."""
    from lakeshore.storage.sweeping import discard_mark

    with suppress(Exception):  # what is left is swept some day
        where = body.storage or default_root(Scope("", body.root, False, None))
        discard_mark(where, mark_of(body))


def _files() -> Files:
    """The files of the body that runs here."""
    body: Any = body_here()
    if body is None:
        return _outside_files()
    if body.over:
        raise RuntimeError("the body has ended: what it has left behind reads and writes no files")
    if body.files is None:
        with _lock:  # threads of one body
            if body.files is None:
                body.files = Files(mark_of(body), body.prefix)
    return body.files


def _outside_files() -> Files:
    global _outside
    with _lock:
        if _outside is None:
            _outside = Files(f"{text_of(new_id())}.reader", "")
            atexit.register(_outside.discard)
        return _outside


def _after_fork() -> None:
    global _lock, _outside
    _lock, _outside = threading.Lock(), None


os.register_at_fork(after_in_child=_after_fork)
