"""One bucket, or a prefix in one, through obstore: calls are made on the caller's thread and tried again
where that may help; their errors are ours."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from lakeshore.core.errors import KeyNotFound, MissingExtra, StorageFailed

from .retrying import Passing, Retrying
from .troubles import object_troubles

T = TypeVar("T")
_PAGE = 1000  # objects of one answer to a list
_STREAM = 1 << 20  # bytes that a download hands over at a time
_KEYS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
)
_used_by = 0  # the process that used obstore first: its threads are not in forked children


class Meta(Struct, frozen=True):
    """What a bucket says of an object. `etag` changes whenever what it holds does."""

    key: str
    size: int
    etag: str
    modified_at: float


class Replaced(Exception):
    """The object is not the one any more that was asked for."""


def obstore() -> Any:
    """The library. Raises: MissingExtra."""
    try:
        import obstore
        import obstore.store  # pyright: ignore[reportUnusedImport]
    except ImportError:
        raise MissingExtra(
            "object stores need obstore: pip install 'lakeshore-queue[storage]', or use a folder"
        ) from None
    return obstore


def connect(url: str) -> Any:
    """obstore's store for a URL, with credentials from the standard chains; asks nothing yet.

    Raises: MissingExtra; StorageFailed where URL or environment make no sense to it.
    """
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    options: dict[str, Any] = {"timeout": "120s", "connect_timeout": "5s"}  # of one part, not of a file
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    library = obstore()
    if url.startswith("memory:"):
        return library.store.MemoryStore()
    more = _profile() if url.startswith(("s3:", "s3a:")) else {}
    try:
        return library.store.from_url(
            url,
            client_options=options,
            retry_config={  # short: `Retrying` governs
                "max_retries": 1,
                "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=1)},
                "retry_timeout": timedelta(seconds=30),
            },
            **more,
        )
    except Exception as error:
        with object_troubles("", url):
            raise StorageFailed("", url, str(error).partition("\n")[0]) from error


def _profile() -> dict[str, Any]:
    """What boto3 finds in profiles, where the environment holds no credentials and boto3 is there."""
    if any(os.environ.get(name) for name in _KEYS):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        provider = Boto3CredentialProvider()
    except (ImportError, ValueError):  # no boto3; no credentials
        return {}
    return {"credential_provider": provider}


class Bucket:
    """Objects by key.

    Args:
        store: obstore's.
        url: what to call it in errors.
    """

    def __init__(self, store: Any, url: str, retrying: Retrying) -> None:
        self.url, self.retrying = url, retrying
        self._obs = obstore()
        self.store = store

    def head(self, key: str) -> Meta:
        """Raises: KeyNotFound, StorageFailed."""
        return _meta(self._tried(key, partial(self._obs.head, self.store, key)))

    def has(self, key: str) -> bool:
        """Whether there is such an object. Raises: StorageFailed."""
        try:
            self.head(key)
        except KeyNotFound:
            return False
        return True

    def get(self, key: str) -> tuple[bytes, str]:
        """What an object holds, and its ETag. Raises: KeyNotFound, StorageFailed."""

        def get() -> tuple[bytes, str]:
            result = self._obs.get(self.store, key)
            return bytes(result.bytes()), _meta(result.meta).etag

        return self._tried(key, get)

    def put(self, key: str, data: bytes, *, instead_of: str | None = None) -> str:
        """Store bytes; the ETag.

        Args:
            instead_of: only where the object there has this ETag, or is not there where it is empty. A bucket
                that can't do that stores them in any case.

        Raises: Replaced; StorageFailed.
        """
        mode: Any = "overwrite"
        if instead_of is not None:
            mode = {"e_tag": instead_of} if instead_of else "create"

        def put(mode: Any) -> str:
            return self._obs.put(self.store, key, data, mode=mode, use_multipart=False)["e_tag"] or ""

        try:
            return self._tried(key, partial(put, mode))
        except StorageFailed as failure:
            if type(failure.__cause__).__name__ not in ("NotSupportedError", "NotImplementedError"):
                raise
            return self._tried(key, partial(put, "overwrite"))

    def upload_once(self, key: str, pieces: Iterator[bytes], part: int, concurrency: int) -> str:
        """Store what comes in pieces of `part` bytes; the ETag. An exception that `pieces` raises comes out,
        and nothing is left.

        Raises: Passing, StorageFailed.
        """
        self._check_fork()
        try:
            with object_troubles(key, self.url):
                result = self._obs.put(
                    self.store, key, pieces, use_multipart=True, chunk_size=part, max_concurrency=concurrency
                )
        except KeyNotFound:  # of the upload, not of the object: its completion's answer was lost, say
            failure = StorageFailed(key, self.url, "the upload is not there any more")
            raise Passing(failure) from None
        return result["e_tag"] or ""

    def read_range(self, meta: Meta, start: int, end: int, take: Callable[[int, bytes], None]) -> None:
        """Hand over a range of the very object that `meta` is of, with the offset of each piece; from the
        start again where it broke off.

        Raises: Replaced; KeyNotFound; StorageFailed.
        """
        options: dict[str, Any] = {"range": (start, end)}
        if meta.etag:
            options["if_match"] = meta.etag

        def read() -> None:
            offset = start
            for piece in self._obs.get(self.store, meta.key, options=options).stream(_STREAM):
                take(offset, piece)
                offset += len(piece)
            if offset != end:
                raise Passing(StorageFailed(meta.key, self.url, "the answer broke off"))

        self._tried(meta.key, read)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; done where there are none. Raises: StorageFailed."""
        if not keys:
            return
        try:
            self._tried(keys[0], partial(self._obs.delete, self.store, list(keys)))
        except KeyNotFound:  # some stores say so of one that is not there, and may have stopped at it
            if len(keys) > 1:
                for each in keys:
                    self.delete([each])

    def list(self, prefix: str) -> list[Meta]:
        """Every object in the folder `prefix` (empty: all), in the order of keys. Raises: StorageFailed."""

        def collect() -> list[Meta]:
            stream = self._obs.list(self.store, prefix or None, chunk_size=_PAGE)
            return sorted((_meta(each) for page in stream for each in page), key=lambda meta: meta.key)

        try:
            return self._tried(prefix, collect)
        except KeyNotFound:
            return []

    def _tried(self, key: str, work: Callable[[], T]) -> T:
        self._check_fork()

        def once() -> T:
            with object_troubles(key, self.url):
                return work()

        try:
            return self.retrying.run(once)
        except Exception as error:
            if type(error).__name__ in ("PreconditionError", "AlreadyExistsError"):
                raise Replaced from None
            raise

    def _check_fork(self) -> None:
        global _used_by
        _used_by = _used_by or os.getpid()
        if _used_by != os.getpid():
            raise StorageFailed(
                "",
                self.url,
                "a process that was forked after object stores were used can't use them: start it by "
                "spawn or forkserver",
            )


def _meta(found: Any) -> Meta:
    etag = found["e_tag"] or found["version"] or f"{found['size']}-{found['last_modified'].timestamp()}"
    return Meta(found["path"], found["size"], etag, found["last_modified"].timestamp())
