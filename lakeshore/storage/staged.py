"""Files and folders on their way into a bucket. How they are unseen until then: `uploads`, `manifests`."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct

from lakeshore.core.errors import KeyNotFound, StorageFailed

from . import disk
from .bucket import Bucket, Replaced
from .manifests import Entry, Manifest, Staged, decode, encode, manifest_key, marker_key, place
from .progress import Advance, transfer
from .sources import files_of, folders_of
from .troubles import disk_troubles
from .uploads import Upload

log = logging.getLogger("lakeshore")
_ROUNDS = 100  # publishers of one folder that may come in between


class Lane(Struct, frozen=True):
    """How things are moved: bytes of a part, and how many are under way at once."""

    bucket: Bucket
    part: int
    concurrency: int

    def begin(self, key: str, path: Path, advance: Advance) -> Upload:
        """One try at an upload, as far as it gets without being seen. Raises: Passing, StorageFailed."""
        part, concurrency = self.part, self.concurrency
        upload = Upload(self.bucket, key, path, part=part, concurrency=concurrency, advance=advance)
        try:
            return upload.wait()
        except BaseException:
            upload.discard()
            raise

    def store(self, key: str, path: Path, size: int, advance: Advance) -> str:
        """A whole file; the ETag. Raises: StorageFailed."""
        if size > self.part:
            return self.bucket.retrying.run(lambda: self.begin(key, path, advance).finish())
        etag = self.bucket.put(key, path.read_bytes())
        advance(size)
        return etag


@contextmanager
def named(key: str, url: str) -> Generator[None]:
    """Failures are of the key that somebody asked for, whichever object they were met at."""
    try:
        yield
    except StorageFailed as failure:
        if failure.key == key:
            raise
        at = f" (at {failure.key!r})" if failure.key else ""
        raise StorageFailed(key, url, failure.reason + at) from failure.__cause__


class StagedFile:
    """A file: small, it waits on this machine's disk; large, all but its last part is there."""

    def __init__(self, lane: Lane, key: str, source: Path) -> None:
        self.key = key
        self._lane, self._source = lane, source
        self._size = source.stat().st_size
        self._upload: Upload | None = None
        if self._size > lane.part:
            with transfer(f"up {key}", self._size) as advance:
                self._upload = lane.bucket.retrying.run(partial(lane.begin, key, source, advance))

    def publish(self) -> None:
        """Complete the upload; from the beginning where that fails. Raises: StorageFailed."""
        with disk_troubles(self.key, self._lane.bucket.url):
            self._publish()

    def _publish(self) -> None:
        lane, upload = self._lane, self._upload
        if self._size <= lane.part:
            lane.bucket.put(self.key, self._source.read_bytes())
        else:
            self._upload = None
            lane.bucket.retrying.run(partial(self._finish, [upload] if upload else []))
        disk.remove(self._source)

    def _finish(self, uploads: list[Upload]) -> None:
        """With the upload that waits, which is good for one try."""
        if uploads:
            uploads.pop().finish()
            return
        with transfer(f"up {self.key}", self._size) as advance:
            self._lane.begin(self.key, self._source, advance).finish()

    def discard(self) -> None:
        """Abort the upload, delete the local file."""
        if self._upload is not None:
            self._upload.discard()
            self._upload = None
        disk.remove(self._source)


class StagedFolder:
    """A folder, all there as a version that no manifest names yet. Raises: StorageFailed."""

    def __init__(self, lane: Lane, key: str, source: Path, mark: str) -> None:
        self.key = key
        self._lane, self._source, self._bucket = lane, source, lane.bucket
        shown = "".join(char if char.isascii() and char.isalnum() else "-" for char in mark)
        self._version = f"{shown[:64]}-{secrets.token_hex(8)}"
        self._published = False
        with named(key, self._bucket.url):
            try:
                self._bucket.put(marker_key(self._version), encode(Staged(key, self._version)))
                self._manifest = Manifest(self._version, self._upload(), folders_of(source))
            except BaseException:
                self._quietly(self._forget)
                raise

    def _upload(self) -> list[Entry]:
        files = files_of(self._source)
        where, lane = place(self.key, self._version), self._lane
        with transfer(f"up {self.key}", sum(size for _, size in files)) as advance:

            def store(file: tuple[str, int]) -> Entry:
                path, size = file
                return Entry(path, size, lane.store(f"{where}/{path}", self._source / path, size, advance))

            small = [file for file in files if file[1] <= lane.part]
            with ThreadPoolExecutor(lane.concurrency, "lakeshore-upload") as pool:
                try:
                    entries = list(pool.map(store, small))
                finally:
                    pool.shutdown(cancel_futures=True)
            entries += [store(file) for file in files if file[1] > lane.part]  # parallel by themselves
        return sorted(entries, key=lambda entry: entry.path)

    def publish(self) -> None:
        """Name the version in the manifest, in place of the one that was there. Raises: StorageFailed."""
        with named(self.key, self._bucket.url):
            replaced = self._commit()
        self._published = True
        self._quietly(partial(self._tidy, replaced))
        disk.remove(self._source)

    def _commit(self) -> str:
        """The version that ours is there in place of. Each is deleted by the one that replaces it: so a
        manifest only takes the place of the very one that was read."""
        where, data = manifest_key(self.key), encode(self._manifest)
        if not self._bucket.has(marker_key(self._version)):
            raise StorageFailed(self.key, self._bucket.url, "it was swept before it was published")
        for _ in range(_ROUNDS):
            former, etag = self._former()
            if former == self._version:  # it was, and the answer got lost
                return ""
            if former:
                note = Staged(self.key, self._version, former)
                self._bucket.put(marker_key(self._version), encode(note))
            try:
                self._bucket.put(where, data, instead_of=etag)
            except Replaced:
                continue
            return former
        raise StorageFailed(self.key, self._bucket.url, "others replace it all the time")

    def _former(self) -> tuple[str, str]:
        try:
            data, etag = self._bucket.get(manifest_key(self.key))
        except KeyNotFound:
            return "", ""
        try:
            return decode(data, self.key, self._bucket.url).version, etag
        except StorageFailed:  # no manifest of ours: replaced all the same
            return "", etag

    def _tidy(self, replaced: str) -> None:
        if self._bucket.has(self.key):  # as a file
            self._bucket.delete([self.key])
        if replaced:
            clear(self._bucket, place(self.key, replaced))
        self._bucket.delete([marker_key(self._version)])

    def discard(self) -> None:
        """Delete what was uploaded, unless it is published."""
        if not self._published:
            self._quietly(self._forget)
        disk.remove(self._source)

    def _forget(self) -> None:
        clear(self._bucket, place(self.key, self._version))
        self._bucket.delete([marker_key(self._version)])

    def _quietly(self, work: Callable[[], None]) -> None:
        try:
            work()
        except StorageFailed as failure:
            log.warning("%s; what is left over of %r is swept later", failure, self.key)


def clear(bucket: Bucket, prefix: str) -> None:
    """Delete everything in a folder of a bucket. Raises: StorageFailed."""
    while found := bucket.list(prefix):
        bucket.delete([meta.key for meta in found])
