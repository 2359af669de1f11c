"""What a user writes for a storage, made whole."""

from __future__ import annotations

import os
from typing import Any, cast

from lakeshore.core import storages
from lakeshore.core.storages import refuse_secrets

__all__ = ["check_storage", "refuse_secrets"]


def check_storage(where: Any, base: str | None = None) -> str:
    """A storage in the one way that all who mean it write it: an absolute path, or a URL without a slash at
    its end.

    Args:
        base: the folder that a relative path is in; None is the current one.

    Raises: ValueError saying what to write; TypeError for what is no string or path.
    """
    text: Any = os.fspath(cast("os.PathLike[str]", where)) if isinstance(where, os.PathLike) else where
    if isinstance(text, str) and text.strip() and "\0" not in text:
        if "://" not in text:
            text = os.path.abspath(os.path.join(base or "", os.path.expanduser(text)))
        elif text.partition("://")[0].lower() == "file":
            text = _file(text)
    return storages.check_storage(text)


def _file(where: str) -> str:
    from urllib.parse import unquote, urlsplit  # slow to load, and most programs name a path

    refuse_secrets(where)
    url = urlsplit(where)
    if url.netloc not in ("", "localhost") or not url.path:
        raise ValueError(f"{where}: write file:///absolute/path, or the path alone")
    return os.path.abspath(unquote(url.path))
