"""Large values that travel as a reference: the bytes are an object of a storage. Pure."""

from __future__ import annotations

from msgspec import msgpack

from .extensions.leaves import AWAY
from .extensions.references import Away, read_away, write_away

AWAY_BYTES = 1 << 20  # packed values above this are put into the storage, where there is one
FOLDER = ".lakeshore/values"

__all__ = ["AWAY_BYTES", "EXTENSION", "FOLDER", "PAIR", "Away", "away_in", "folder_of", "pack_away"]


EXTENSION = 0xC7  # what packed data that may be a reference begins with, or more
PAIR = 0x92  # what packed arguments begin with, unless they are a reference
_EXT8, _EXT16 = EXTENSION, 0xC8


def pack_away(away: Away) -> bytes:
    """A reference in the place of the packed value that it stands for."""
    return msgpack.encode(msgpack.Ext(AWAY, write_away(away)))


def away_in(data: bytes | None) -> Away | None:
    """The reference that packed bytes are, if they are one.

    Raises: msgspec.ValidationError, msgspec.DecodeError where it can't be read.
    """
    if not data or data[0] not in (_EXT8, _EXT16):
        return None
    head = 3 if data[0] == _EXT8 else 4
    if len(data) <= head or data[head - 1] != AWAY:
        return None
    return read_away(data[head:])


def folder_of(plane: str, namespace: str) -> str:
    """The folder in a storage that has the large values of one namespace of one plane, and no others."""
    return f"{FOLDER}/{plane}/{namespace}"
