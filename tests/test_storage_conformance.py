"""Every storage does what the port says: a folder, a bucket in memory, a bucket of a real S3 server."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from s3 import S3
from s3 import begun as begun
from s3 import s3 as s3

from lakeshore.core.ports import Storage
from lakeshore.storage.cache import Cache
from lakeshore.storage.folder import Folder
from lakeshore.storage.objects import Objects
from lakeshore.testing.conformance import StorageConformance


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", 1 << 30)


class TestFolder(StorageConformance):
    many: ClassVar[int] = 1000

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return Folder(tmp_path / "files", durable=False)


class TestFolderElsewhere(StorageConformance):
    """On another file system than what is read and written, in memory where there is such."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[Storage]:
        place = Path("/dev/shm")
        folder = tempfile.mkdtemp(dir=place if os.access(place, os.W_OK) else tmp_path)
        yield Folder(folder, durable=False)
        shutil.rmtree(folder)


class TestFolderWithoutCase(StorageConformance):
    """Each name is compared with those beside it, so a folder of many takes its time."""

    many: ClassVar[int] = 100

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return Folder(tmp_path / "files", durable=False, ignores_case=True)


class TestMemory(StorageConformance):
    @pytest.fixture
    def storage(self, home: Path, cache: Cache) -> Storage:
        return Objects("memory://", cache=cache, part=1 << 18)


class TestS3(StorageConformance):
    many: ClassVar[int] = 300
    large: ClassVar[int] = 11 << 20
    rounds: ClassVar[int] = 3

    @pytest.fixture
    def storage(self, home: Path, cache: Cache, s3: S3) -> Storage:
        return Objects(s3.url, cache=cache, part=5 << 20, concurrency=3)
