"""A storage that is a bucket, or a prefix in one: `s3://`, `gs://`, `az://`. What a key names is the object
of that name; a folder is as `manifests` says."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import Struct

from lakeshore.core.errors import KeyNotFound, StorageFailed
from lakeshore.core.keys import RESERVED
from lakeshore.core.ports import Staged, Stored

from .bucket import Bucket, Meta, Replaced, connect
from .cache import Cache
from .descent import parts_of
from .downloads import download
from .manifests import NAME, Manifest, decode, manifest_key, place
from .places import machine_folder, made
from .progress import Advance, transfer
from .retrying import Retrying
from .sources import vet
from .staged import Lane, StagedFile, StagedFolder, clear, named
from .troubles import disk_troubles
from .urls import refuse_secrets

_ROUNDS = 20  # readings that may meet a replacement


class Tree(Struct, frozen=True):
    """What a folder holds: files by their path in it, and the folders in it."""

    files: dict[str, Meta]
    folders: list[str] = []


class Objects:
    """Objects in a bucket.

    Args:
        url: for example "s3://bucket/prefix", without credentials in it.
        cache: where fetched objects are kept; None is this machine's.
        part: bytes of a part of a large file, >= 5 MiB for S3.
        concurrency: parts under way at once, of one file.
        retrying: how often what may pass is tried.
        store: obstore's, made already.

    Raises: ValueError for a URL with credentials in it; MissingExtra without obstore; StorageFailed where
    the URL or the environment makes no sense.
    """

    def __init__(
        self,
        url: str,
        *,
        cache: Cache | None = None,
        part: int = 8 << 20,
        concurrency: int = 8,
        retrying: Retrying | None = None,
        store: Any = None,
    ) -> None:
        refuse_secrets(url)
        self.url = url if url.endswith("://") else url.rstrip("/")
        self.bucket = Bucket(connect(self.url) if store is None else store, self.url, retrying or Retrying())
        self._lane = Lane(self.bucket, part, concurrency)
        self._cache = cache or Cache()

    def workplace(self) -> Path:
        """`work` in this machine's own folder."""
        with disk_troubles("", self.url):
            return made(machine_folder() / "work")

    def stale(self) -> list[Path]:
        """What is on its way, or was when its writer died, on this machine's disk."""
        return list(self.workplace().iterdir())

    def stage(self, key: str, source: Path, mark: str) -> Staged:
        """Upload as far as it goes without being seen.

        Raises: StorageFailed, also for symlinks that lead out of a folder, FIFOs, sockets and devices.
        """
        parts_of(key)
        with disk_troubles(key, self.url):
            if vet(source, key, self.url):
                return StagedFolder(self._lane, key, source, mark)
            return StagedFile(self._lane, key, source)

    def fetch(self, key: str, scratch: Path) -> Path:
        """A file or folder in `scratch`: second names of what is in the cache, for reading only.

        Raises: KeyNotFound; StorageFailed.
        """
        parts_of(key)
        target = scratch / secrets.token_hex(8) / key.rpartition("/")[2]
        with disk_troubles(key, self.url), named(key, self.url):
            for number in range(_ROUNDS):
                found = self._find(key)
                try:
                    self._bring(key, found, target)
                    return target
                except (Replaced, KeyNotFound):  # since it was found: see what is there now
                    target = scratch / secrets.token_hex(8) / f"{number}" / target.name
        raise StorageFailed(key, self.url, "it was replaced again and again while it was read")

    def _find(self, key: str) -> Meta | Tree:
        """What is at a key. Raises: KeyNotFound."""
        try:
            return self.bucket.head(key)
        except KeyNotFound:
            pass
        if (found := self._find_inside(key)) is not None:
            return found
        files = self._files(key)
        if not files:
            raise KeyNotFound(key, self.url)
        return Tree({path[len(key) + 1 :]: meta for path, (meta, _) in files.items()})

    def _find_inside(self, key: str) -> Meta | Tree | None:
        """The folder at a key, or what a folder that the key is in has there."""
        if key.partition("/")[0] == RESERVED:
            return None
        parts = key.split("/")
        for count in range(len(parts), 0, -1):
            top = "/".join(parts[:count])
            manifest = self._manifest(top)
            if manifest is None:
                continue
            tree, path = _tree(top, manifest), "/".join(parts[count:])
            if not path:
                return tree
            if path in tree.files:
                return tree.files[path]
            inner = _part_of(tree, path + "/")
            return inner if inner.files or path in tree.folders else None
        return None

    def _manifest(self, key: str) -> Manifest | None:
        try:
            return decode(self.bucket.get(manifest_key(key))[0], key, self.url)
        except KeyNotFound:
            return None

    def _bring(self, key: str, found: Meta | Tree, target: Path) -> None:
        if isinstance(found, Meta):
            with transfer(f"down {key}", found.size) as advance:
                self._bring_file(found, target, advance)
            return
        target.mkdir(parents=True)
        for name in found.folders:
            (target / name).mkdir(parents=True, exist_ok=True)
        self._check_names(key, found)
        part = self._lane.part
        with transfer(f"down {key}", sum(meta.size for meta in found.files.values())) as advance:

            def bring(name: str) -> None:
                self._bring_file(found.files[name], target / name, advance)

            small = [name for name, meta in found.files.items() if meta.size <= part]
            with ThreadPoolExecutor(self._lane.concurrency, "lakeshore-download") as pool:
                try:
                    list(pool.map(bring, small))
                finally:
                    pool.shutdown(cancel_futures=True)
            for name, meta in found.files.items():
                if meta.size > part:
                    bring(name)

    def _check_names(self, key: str, tree: Tree) -> None:
        """Names in a bucket may be such as no folder can have. Raises: StorageFailed."""
        for name in tree.files:
            try:
                parts = parts_of(name)
            except ValueError as error:
                raise StorageFailed(
                    key, self.url, f"there is an object in it that no file can be: {error}"
                ) from None
            for count in range(1, len(parts)):
                if (above := "/".join(parts[:count])) in tree.files:
                    raise StorageFailed(
                        key,
                        self.url,
                        f"{above!r} in it is a file, and {name!r} is, too: a folder can't have both",
                    )

    def _bring_file(self, meta: Meta, target: Path, advance: Advance) -> None:
        lane = self._lane

        def fill(file: int) -> None:
            download(lane.bucket, meta, file, part=lane.part, concurrency=lane.concurrency, advance=advance)

        target.parent.mkdir(parents=True, exist_ok=True)
        self._cache.fetch(self.url, meta.key, meta.etag, meta.size, fill, target)

    def put(self, key: str, data: bytes) -> None:
        """Store bytes as an object. Raises: StorageFailed."""
        parts_of(key)
        part, bucket = self._lane.part, self.bucket
        if len(data) <= part:
            bucket.put(key, data)
            return

        def upload() -> None:
            pieces = (data[start : start + part] for start in range(0, len(data), part))
            bucket.upload_once(key, pieces, part, self._lane.concurrency)

        bucket.retrying.run(upload)

    def get(self, key: str) -> bytes:
        """What an object holds. Raises: KeyNotFound, also for a folder; StorageFailed."""
        parts_of(key)
        try:
            return self.bucket.get(key)[0]
        except KeyNotFound:
            found = self._find_inside(key)
            if not isinstance(found, Meta):
                raise
        with named(key, self.url):
            return self.bucket.get(found.key)[0]

    def remove(self, key: str) -> None:
        """Delete a file or a folder with all in it; done where there is none.

        Raises: StorageFailed, also for a file of a folder that was published whole.
        """
        parts_of(key)
        with named(key, self.url):
            inside = self.bucket.list(key)
            manifests = [meta.key for meta in inside if meta.key.endswith(f"/{NAME}")]
            self.bucket.delete(manifests)  # first: what they name is gone in one step
            if inside:
                clear(self.bucket, key)
            elif not self.bucket.has(key):
                if self._find_inside(key) is not None:
                    raise StorageFailed(key, self.url, "it is part of a folder written whole: remove that")
                return
            self.bucket.delete([key])

    def list(self, prefix: str) -> Iterator[Stored]:
        """The files in the folder `prefix` (empty: all), in the order of keys, as they are now."""
        prefix = prefix.rstrip("/")
        with named(prefix, self.url):
            files = self._files(prefix)
            inside = self._find_inside(prefix) if prefix and not files else None
        if isinstance(inside, Tree):
            files = {f"{prefix}/{path}": (meta, meta.modified_at) for path, meta in inside.files.items()}
        return iter([Stored(key, files[key][0].size, files[key][1]) for key in sorted(files)])

    def _files(self, prefix: str) -> dict[str, tuple[Meta, float]]:
        """What is in a folder of the bucket, by key: objects, and when they came to be there. Of folders that
        were published whole, what their manifests say."""
        found = self.bucket.list(prefix)
        if not prefix:
            found = [meta for meta in found if not meta.key.startswith(f"{RESERVED}/")]
        files = {meta.key: (meta, meta.modified_at) for meta in found if not _is_part(meta.key)}
        manifests = [meta for meta in found if meta.key.endswith(f"/{NAME}")]
        if manifests:
            tops = [meta.key[: -len(NAME) - 1] for meta in manifests]
            with ThreadPoolExecutor(self._lane.concurrency, "lakeshore-list") as pool:
                read = list(pool.map(self._manifest, tops))
            for top, meta, manifest in zip(tops, manifests, read, strict=True):
                tree = _tree(top, manifest) if manifest is not None else Tree({})
                for path, file in tree.files.items():
                    files.setdefault(f"{top}/{path}", (file, meta.modified_at))
        return files


def _is_part(key: str) -> bool:
    return any(part.startswith(NAME) for part in key.split("/"))


def _tree(key: str, manifest: Manifest) -> Tree:
    where = place(key, manifest.version)
    files = {
        entry.path: Meta(f"{where}/{entry.path}", entry.size, entry.etag, 0.0) for entry in manifest.files
    }
    return Tree(files, manifest.folders)


def _part_of(tree: Tree, above: str) -> Tree:
    files = {path[len(above) :]: meta for path, meta in tree.files.items() if path.startswith(above)}
    return Tree(files, [name[len(above) :] for name in tree.folders if name.startswith(above)])
