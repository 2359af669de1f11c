"""What belongs to a folder in a bucket: named by one object, written last, which is read first.

    scenes/0007/.lakeshore-folder                   the manifest: which version is there, and what is in it
    scenes/0007/.lakeshore-folder-<version>/a.png   the files, which never change

A version is complete before the manifest names it, and is deleted after another is named. A manifest appears
as a whole, so a reader sees one version or another, and begins again where the one it reads is deleted
meanwhile.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from lakeshore.core.errors import StorageFailed
from lakeshore.core.keys import RESERVED

from .descent import parts_of

NAME = f"{RESERVED}-folder"
_TOKEN = re.compile(r"[A-Za-z0-9-]{1,128}")


class Entry(Struct, frozen=True):
    """A file of a folder: its path in it, bytes, ETag."""

    path: str
    size: int
    etag: str


class Manifest(Struct, frozen=True):
    """`version` names the files' place; `folders` are those in it, the empty ones too."""

    version: str
    files: list[Entry] = []
    folders: list[str] = []
    format: int = 1


class Staged(Struct, frozen=True):
    """What was begun, to be swept if its writer dies: a version of a key, and the one it replaces."""

    key: str
    version: str
    replaces: str = ""


def manifest_key(key: str) -> str:
    """Where the manifest of a folder is."""
    return f"{key}/{NAME}"


def place(key: str, version: str) -> str:
    """The prefix of the files of a version."""
    return f"{key}/{NAME}-{version}"


def marker_key(version: str) -> str:
    """Where it is noted that a version is on its way."""
    return f"{RESERVED}/staged/{version}"


def encode(found: Manifest | Staged) -> bytes:
    """As JSON, which other tools read, too."""
    return msgspec.json.encode(found)


def decode(data: bytes, key: str, url: str) -> Manifest:
    """Raises: StorageFailed for what no Lakeshore wrote, or a newer one."""
    try:
        found = msgspec.json.decode(data, type=Manifest)
        if found.format != 1:
            raise ValueError(f"it has format {found.format}, of a newer Lakeshore")
        if not _TOKEN.fullmatch(found.version):
            raise ValueError("its version is no name")
        for path in [*found.folders, *(entry.path for entry in found.files)]:
            parts_of(path)
    except (msgspec.MsgspecError, ValueError) as error:
        raise StorageFailed(key, url, f"the object {manifest_key(key)!r} is no manifest: {error}") from None
    return found


def decode_staged(data: bytes) -> Staged | None:
    """None for what no Lakeshore wrote."""
    try:
        found = msgspec.json.decode(data, type=Staged)
        parts_of(found.key)
    except (msgspec.MsgspecError, ValueError):
        return None
    tokens = [found.version, *([found.replaces] if found.replaces else [])]
    return found if all(_TOKEN.fullmatch(token) for token in tokens) else None
