"""What may be named as a storage, whole: an absolute folder, or the URL of a bucket. Pure text."""

from __future__ import annotations

from typing import Any

SCHEMES = {"s3": "s3://bucket/prefix", "gs": "gs://bucket/prefix", "az": "az://container/prefix"}
KNOWN = f"a folder's path, {', '.join(SCHEMES.values())}"


def check_storage(where: Any) -> str:
    """A storage in the one way that all who mean it write it: a URL without a slash at its end.

    Raises: ValueError saying what to write; TypeError for what is no string.
    """
    if not isinstance(where, str):
        raise TypeError(f"a storage is a string, not {type(where).__name__}: write {KNOWN}")
    if not where.strip() or "\0" in where:
        raise ValueError(f"{where!r} is no storage: write {KNOWN}")
    if "://" not in where:
        if not where.startswith("/"):
            raise ValueError(f"{where!r} is no storage: write the whole path of a folder, from / on")
        return where
    scheme = where.partition("://")[0].lower()
    if scheme not in SCHEMES:
        raise ValueError(f"{scheme}:// is no storage that is known: write {KNOWN}")
    refuse_secrets(where)
    url = _split(where)
    if not url.netloc:
        raise ValueError(f"{where} names no bucket: write {SCHEMES[scheme]}")
    path = url.path.strip("/")
    if path and any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{where} has an empty part, '.' or '..' in it: write {SCHEMES[scheme]}")
    return f"{scheme}://{url.netloc}/{path}".rstrip("/")


def refuse_secrets(where: str) -> None:
    """Raises: ValueError for a URL with credentials or options in it; it does not show them."""
    url = _split(where)
    if "@" in url.netloc or url.query or url.fragment:
        host = url.netloc.rpartition("@")[2]
        raise ValueError(
            f"{url.scheme}://{host}{url.path}: write the storage without credentials and options, which "
            "everybody would see; they come from the environment"
        )


def _split(where: str) -> Any:
    from urllib.parse import urlsplit  # slow to load, and most programs name no bucket

    return urlsplit(where)
