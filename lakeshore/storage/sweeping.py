"""What attempts left behind that died: files on their way that nobody will publish any more."""

from __future__ import annotations

import time
from pathlib import Path

from lakeshore.core.errors import KeyNotFound
from lakeshore.core.keys import RESERVED
from lakeshore.core.ports import Storage

from . import disk
from .folder import Folder, shown
from .manifests import Staged, decode, decode_staged, manifest_key, place
from .objects import Objects
from .places import machine_folder
from .staged import clear
from .urls import check_storage


def sweep(storage: Storage, older_than: float) -> int:
    """Delete what is on its way and was not touched for so many seconds; how many that were.

    Choose more than the longest upload takes: what is swept can't be published any more, which says so.
    Of object stores also versions of folders that were replaced, or never published. Parts of uploads that
    were broken off by SIGKILL are for the bucket's own rule for incomplete multipart uploads.

    Raises: StorageFailed.
    """
    if not isinstance(storage, Folder | Objects):
        return 0
    count, before = 0, time.time() - older_than
    for path in storage.stale():
        if disk.newest(path) < before:
            disk.remove(path)
            count += 1
    return count + (_sweep_bucket(storage, before) if isinstance(storage, Objects) else 0)


def _sweep_bucket(storage: Objects, before: float) -> int:
    count, bucket = 0, storage.bucket
    for meta in bucket.list(f"{RESERVED}/staged"):
        if meta.modified_at >= before:
            continue
        try:
            staged = decode_staged(bucket.get(meta.key)[0])
        except KeyNotFound:  # published just now
            continue
        if staged is not None:
            _clear_versions(storage, staged)
        bucket.delete([meta.key])
        count += 1
    return count


def _clear_versions(storage: Objects, staged: Staged) -> None:
    """Delete what the writer of this note would have: its own version, or the one it replaced."""
    bucket = storage.bucket
    try:
        current = decode(bucket.get(manifest_key(staged.key))[0], staged.key, storage.url).version
    except KeyNotFound:
        current = ""
    for version in (staged.version, staged.replaces):
        if version and version != current:
            clear(bucket, place(staged.key, version))


def discard_mark(where: str, mark: str) -> None:
    """Delete what one attempt has on its way on this machine's disk, where it can't do so itself.

    Args:
        where: its storage, as `open_storage` takes it; nothing is made there.
        mark: the attempt's.
    """
    place = check_storage(where)
    if "://" in place:
        disk.remove(machine_folder() / "work" / mark)
        return
    own = Path(place) / RESERVED
    disk.remove(own / "work" / mark)
    for staged in (own / "staged").glob(f"{shown(mark)}-*"):
        disk.remove(staged)
