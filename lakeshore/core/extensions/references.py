"""A value that is elsewhere: a reference to an object of a storage, in place of a large one."""

from __future__ import annotations

from msgspec import Struct, msgpack


class Away(Struct, frozen=True, array_like=True):
    """Where a packed value is: `name` is its key in the storage `place`, `digest` its blake2b of 32 bytes."""

    place: str
    name: str
    size: int
    digest: bytes


write_away = msgpack.Encoder().encode
read_away = msgpack.Decoder(Away).decode
