"""Large packed values as objects of a storage: a name by content, and a reference in their place."""

from __future__ import annotations

import os

from lakeshore.core.away import Away, pack_away
from lakeshore.core.errors import KeyNotFound, StorageFailed


def put_away(data: bytes, where: str, folder: str) -> bytes:
    """Put a packed value into a storage, under a name that nothing else has.

    Args:
        where: the storage, as `open_storage` takes it.
        folder: the one in it for large values.

    Returns: the packed reference that stands for the value.
    Raises: StorageFailed; MissingExtra.
    """
    import hashlib

    from .opening import open_storage  # which few programs need

    digest = hashlib.blake2b(data, digest_size=32).digest()
    name = f"{folder}/{digest.hex()}.{os.urandom(8).hex()}"
    open_storage(where).put(name, data)
    return pack_away(Away(where, name, len(data), digest))


def bring_back(away: Away) -> bytes:
    """The packed value that a reference stands for.

    Raises: StorageFailed where it is gone, is not what was put there, or can't be read.
    """
    import hashlib

    from .opening import open_storage

    storage = open_storage(away.place)
    try:
        data = storage.get(away.name)
    except KeyNotFound:
        raise StorageFailed(
            away.name, storage.url, "this large value is gone: its invocation was pruned, or the file deleted"
        ) from None
    if len(data) != away.size or hashlib.blake2b(data, digest_size=32).digest() != away.digest:
        raise StorageFailed(away.name, storage.url, "this large value is not what was put there")
    return data


class StoredValues:
    """`ports.Values` of this process."""

    def put(self, data: bytes, storage: str, folder: str) -> bytes:
        """`put_away`."""
        return put_away(data, storage, folder)

    def get(self, away: Away) -> bytes:
        """`bring_back`."""
        return bring_back(away)
