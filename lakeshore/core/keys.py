"""Keys of bulk data: relative POSIX paths under a prefix. Pure: nothing here looks at a disk."""

from __future__ import annotations

RESERVED = ".lakeshore"  # what is under it is Lakeshore's own: staged files, large payloads
_PART_BYTES, _KEY_BYTES = 255, 1024  # what folders, and S3, take at most


def join(prefix: str, key: str, what: str = "key") -> str:
    """The whole key of `key` under a clean `prefix`; `..` climbs to a parent of it, `.` stands still.

    Args:
        what: what to call `key` in an error.

    Raises: TypeError for what is no string; ValueError for a key that is absolute, climbs out of the
        root, is or goes through nothing, is Lakeshore's own, has a backslash, NUL or half a
        surrogate pair, or is longer than storages take.
    """
    if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a {what} is a string, not {type(key).__name__}")
    if key.startswith("/") or "\\" in key or "\0" in key:
        raise ValueError(f"{key!r} is no {what}: use a relative path with forward slashes")
    parts = prefix.split("/") if prefix else []
    for part in key.split("/"):
        if part == "":
            raise ValueError(f"{key!r} is no {what}: it has an empty part")
        if part == "..":
            if not parts:
                raise ValueError(f"the {what} {key!r} climbs out of the root")
            parts.pop()
        elif part != ".":
            parts.append(part)
    whole = "/".join(parts)
    _check(whole, parts, key, what)
    return whole


def _check(whole: str, parts: list[str], key: str, what: str) -> None:
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        raise ValueError(
            f"{key!r} is no {what}: it has half a surrogate pair, which no storage takes"
        ) from None
    if parts and parts[0].casefold() == RESERVED:
        raise ValueError(f"{key!r} is no {what}: what is under {RESERVED} is Lakeshore's own")
    if sizes and (max(sizes) > _PART_BYTES or len(whole.encode()) > _KEY_BYTES):
        raise ValueError(
            f"the {what} {whole[:60]!r}… is too long: {_PART_BYTES} bytes a part and {_KEY_BYTES} in all "
            "are what storages take"
        )


def file_key(prefix: str, key: str) -> str:
    """`join` for what names a file or a folder of its own: not the root itself."""
    whole = join(prefix, key)
    if not whole:
        raise ValueError(f"{key!r} is no key: it is the root itself; name something in it")
    return whole


def relative(prefix: str, whole: str) -> str:
    """How a whole key is written under `prefix`, the shortest way; climbs where it has to."""
    ours, theirs = prefix.split("/") if prefix else [], whole.split("/")
    same = 0
    while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
        same += 1
    return "/".join([".."] * (len(ours) - same) + theirs[same:]) or "."


def clash(key: str, other: str) -> bool:
    """Whether two whole keys can't both be there: one is inside the other, or they differ by case alone."""
    if key == other:
        return False
    one, two = key.casefold(), other.casefold()
    return one == two or key.startswith(other + "/") or other.startswith(key + "/")
