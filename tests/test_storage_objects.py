"""Object stores: what is particular to them, against a real S3 server, also one that fails. What every
storage does is in test_storage_conformance.py."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import obstore
import pytest
from obstore.store import MemoryStore
from s3 import S3
from s3 import begun as begun
from s3 import s3 as s3
from s3_faults import Faults, faults

from lakeshore.core.errors import KeyNotFound, MissingExtra, StorageFailed
from lakeshore.storage import bucket
from lakeshore.storage.cache import Cache
from lakeshore.storage.objects import Objects
from lakeshore.storage.retrying import Retrying
from lakeshore.storage.sweeping import sweep

PART = 5 << 20  # the least that S3 takes
LARGE = random.Random(7).randbytes(11 << 20)


@pytest.fixture
def faulty(s3: S3, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """What lies between `objects` and the server."""
    with faults(s3.endpoint) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.address)
        yield found


@pytest.fixture
def objects(s3: S3, faulty: Faults, tmp_path: Path) -> Objects:
    """Tries twice, does not wait between."""
    retrying = Retrying(tries=2, sleep=lambda seconds: None)
    return Objects(s3.url, cache=Cache(tmp_path / "cache", 1 << 30), part=PART, retrying=retrying)


@pytest.fixture
def memory(home: Path, tmp_path: Path) -> Objects:
    retrying = Retrying(tries=2, sleep=lambda seconds: None)
    return Objects("memory://", cache=Cache(tmp_path / "cache", 1 << 30), part=1 << 16, retrying=retrying)


def source(storage: Objects, data: bytes = LARGE) -> Path:
    path = storage.workplace() / "source"
    path.write_bytes(data)
    return path


def tree(storage: Objects, **files: bytes) -> Path:
    path = storage.workplace() / "tree"
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return path


def keys(storage: Objects, prefix: str = "") -> list[str]:
    return [stored.key for stored in storage.list(prefix)]


def raw(storage: Objects) -> list[str]:
    """Every object that is really there."""
    return [meta.key for meta in storage.bucket.list("")]


# How things lie in the bucket


def test_files_are_plain_objects(s3: S3, objects: Objects) -> None:
    objects.stage("scenes/0007/a.png", source(objects, b"png"), "m").publish()
    assert raw(objects) == ["scenes/0007/a.png"]


def test_a_large_file_waits_unseen_and_is_aborted(s3: S3, objects: Objects, faulty: Faults) -> None:
    staged = objects.stage("large", source(objects), "m")
    assert s3.unfinished() == 1
    assert raw(objects) == []
    staged.discard()
    assert s3.unfinished() == 0
    assert raw(objects) == []
    assert not list(objects.workplace().iterdir())


def test_to_publish_a_large_file_is_one_part_and_one_request(objects: Objects, faulty: Faults) -> None:
    staged = objects.stage("large", source(objects), "m")
    assert faulty.count("POST", "uploadId=") == 0
    staged.publish()
    assert faulty.count("PUT", "partNumber=") == 3
    assert faulty.count("POST", "uploadId=") == 1
    assert objects.get("large") == LARGE


def test_a_folder_is_a_manifest_and_its_version(objects: Objects) -> None:
    objects.stage("set", tree(objects, a=b"1"), "id/1").publish()
    manifest, file = raw(objects)
    assert manifest == "set/.lakeshore-folder"
    assert file.startswith("set/.lakeshore-folder-id-1-")
    assert file.endswith("/a")
    with pytest.raises(StorageFailed, match="part of a folder written whole: remove that"):
        objects.remove("set/a")
    objects.put("set/b", b"not of the folder")
    assert keys(objects, "set") == ["set/a", "set/b"]


def test_a_folder_takes_the_place_of_a_file(memory: Objects, tmp_path: Path) -> None:
    memory.put("set", b"file")
    memory.stage("set", tree(memory, a=b"1"), "m").publish()
    assert keys(memory) == ["set/a"]
    assert (memory.fetch("set", tmp_path) / "a").read_bytes() == b"1"


@pytest.mark.parametrize(
    "manifest",
    [b"", b"[]", b'{"version": "../up"}', b'{"version": "v", "files": [["../../etc", 1, "e"]]}', b"\xff",
     b'{"version": "v", "format": 2}', b'{"version": "v", "files": [{"path": "../x", "size": 1, "etag": ""}]}'],  # noqa: E501
)  # fmt: skip
def test_a_manifest_that_is_none_is_named(memory: Objects, tmp_path: Path, manifest: bytes) -> None:
    memory.bucket.put("set/.lakeshore-folder", manifest)
    with pytest.raises(StorageFailed, match=r"'set/.lakeshore-folder' is no manifest"):
        memory.fetch("set", tmp_path / "scratch")
    memory.stage("set", tree(memory, a=b"1"), "m").publish()  # and makes way
    assert (memory.fetch("set", tmp_path / "scratch") / "a").read_bytes() == b"1"


def test_names_that_no_folder_has_are_refused(memory: Objects, tmp_path: Path) -> None:
    memory.put("data/a", b"1")
    memory.put("data/a/b", b"2")
    with pytest.raises(StorageFailed, match=r"'a' in it is a file, and 'a/b' is, too"):
        memory.fetch("data", tmp_path / "scratch")


# What a failing server does


@pytest.mark.parametrize("fault", ["half", "busy"])
def test_an_upload_goes_on_after_a_fault(s3: S3, objects: Objects, faulty: Faults, fault: Any) -> None:
    left = [2]

    def choose(method: str, path: str) -> Any:
        if method == "PUT" and "partNumber=" in path and left[0]:
            left[0] -= 1
            return fault
        return ""

    faulty.choose = choose
    objects.stage("large", source(objects), "m").publish()
    assert objects.get("large") == LARGE
    assert left == [0]
    assert s3.unfinished() == 0


@pytest.mark.parametrize(
    ("method", "where", "fault"),
    [("POST", "uploads", "refuse"), ("PUT", "partNumber=1&", "half"), ("POST", "uploadId=", "refuse")],
)
def test_what_fails_for_good_names_the_key_and_leaves_nothing(
    s3: S3, objects: Objects, faulty: Faults, method: str, where: str, fault: Any
) -> None:
    """At the first byte, in the middle, at the commit."""
    faulty.choose = lambda how, path: fault if how == method and where in path else ""
    staged = None

    def try_it() -> None:
        nonlocal staged
        staged = objects.stage("out/large", source(objects), "m")
        staged.publish()

    with pytest.raises(StorageFailed, match=r"^'out/large' in s3://lakeshore/test-\w+: ") as caught:
        try_it()
    assert "\n" not in str(caught.value)
    assert "Debug" not in str(caught.value)
    assert faulty.count(method, where) == 2 * 2  # our tries, obstore's
    faulty.choose = lambda how, path: ""
    assert raw(objects) == []
    assert s3.unfinished() == 0
    with pytest.raises(KeyNotFound):
        objects.get("out/large")
    (staged or objects.stage("out/large", source(objects), "m")).publish()  # may be tried again
    assert objects.get("out/large") == LARGE


def test_small_files_and_folders_are_tried_again(objects: Objects, faulty: Faults, tmp_path: Path) -> None:
    failed: set[str] = set()

    def choose(method: str, path: str) -> Any:
        if path in failed:
            return ""
        failed.add(path)
        return "busy" if method == "PUT" else "refuse"

    faulty.choose = choose
    objects.stage("small", source(objects, b"1"), "m").publish()
    objects.stage("set", tree(objects, a=b"1", b=b"2"), "m").publish()
    assert objects.get("small") == b"1"
    assert sorted(each.name for each in objects.fetch("set", tmp_path / "scratch").iterdir()) == ["a", "b"]
    assert len(failed) > 5


def test_a_folder_whose_commit_fails_is_not_there(objects: Objects, faulty: Faults, tmp_path: Path) -> None:
    objects.stage("set", tree(objects, a=b"1"), "m").publish()
    staged = objects.stage("set", tree(objects, a=b"2"), "m")
    faulty.choose = lambda method, path: "busy" if method == "PUT" and path.endswith("folder") else ""
    with pytest.raises(StorageFailed, match=r"^'set' in s3://.*: Not now, token=abc \(SlowDown\) \(at 'set/"):
        staged.publish()
    assert (objects.fetch("set", tmp_path / "scratch") / "a").read_bytes() == b"1"
    staged.discard()
    assert len(raw(objects)) == 2


def test_a_commit_whose_answer_is_lost_is_one_commit(
    objects: Objects, faulty: Faults, tmp_path: Path
) -> None:
    objects.stage("set", tree(objects, a=b"1"), "m").publish()
    lost: list[str] = []

    def choose(method: str, path: str) -> Any:
        if method == "PUT" and path.endswith("folder") and not lost:
            lost.append(path)
            return "lost"
        return ""

    faulty.choose = choose
    objects.stage("set", tree(objects, b=b"2"), "m").publish()
    assert lost
    assert keys(objects) == ["set/b"]


def test_an_upload_whose_completion_is_lost_is_there(objects: Objects, faulty: Faults) -> None:
    lost: list[str] = []

    def choose(method: str, path: str) -> Any:
        if method == "POST" and "uploadId=" in path and len(lost) < 2:
            lost.append(path)
            return "lost"
        return ""

    faulty.choose = choose
    objects.stage("large", source(objects), "m").publish()
    assert len(lost) == 2
    assert objects.get("large") == LARGE


def test_a_folder_that_fails_half_way_leaves_nothing(objects: Objects, faulty: Faults) -> None:
    faulty.choose = lambda method, path: "busy" if method == "PUT" and path.endswith("/b") else ""
    with pytest.raises(StorageFailed, match=r"^'set' in "):
        objects.stage("set", tree(objects, a=b"1", b=b"2"), "m")
    assert raw(objects) == []


@pytest.mark.parametrize("fault", ["refuse", "half answer"])
def test_a_download_goes_on_after_a_fault(
    objects: Objects, faulty: Faults, tmp_path: Path, fault: Any
) -> None:
    objects.put("large", LARGE)
    left = [2]

    def choose(method: str, path: str) -> Any:
        if method == "GET" and left[0]:
            left[0] -= 1
            return fault
        return ""

    faulty.choose = choose
    assert objects.fetch("large", tmp_path / "scratch").read_bytes() == LARGE


def test_a_download_that_fails_for_good_leaves_nothing(
    objects: Objects, faulty: Faults, tmp_path: Path
) -> None:
    objects.put("large", LARGE)
    faulty.choose = lambda method, path: "half answer" if method == "GET" else ""
    with pytest.raises(StorageFailed, match=r"^'large' in s3://"):
        objects.fetch("large", tmp_path / "scratch")
    assert [each for each in (tmp_path / "cache").rglob("*") if each.is_file() and each.name != "lock"] == []


def test_what_is_replaced_in_the_middle_is_begun_again(
    s3: S3, objects: Objects, faulty: Faults, tmp_path: Path
) -> None:
    objects.put("large", b"1" * (11 << 20))
    replaced: list[str] = []
    other = Objects(s3.url, part=PART)

    def choose(method: str, path: str) -> Any:
        if method == "GET" and not replaced:
            replaced.append(path)
            faulty.choose = lambda method, path: ""
            other.put("large", b"2" * (12 << 20))
        return ""

    faulty.choose = choose
    assert objects.fetch("large", tmp_path / "scratch").read_bytes() == b"2" * (12 << 20)
    assert replaced


def test_what_is_forbidden_is_not_tried_again(objects: Objects, faulty: Faults) -> None:
    faulty.choose = lambda method, path: "forbid"
    with pytest.raises(StorageFailed, match=r"\(AccessDenied\): check the credentials and what they are"):
        objects.put("key", b"")
    assert len(faulty.seen) == 1


def test_wrong_credentials_are_named_and_not_shown(
    s3: S3, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "swordfish")
    with pytest.raises(StorageFailed, match=r"SignatureDoesNotMatch\): check the credentials") as caught:
        Objects(s3.url).put("key", b"")
    assert "swordfish" not in str(caught.value)


def test_a_bucket_that_is_not_there_is_named(s3: S3, home: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match=r"NoSuchBucket\): create it, or correct the storage's URL"):
        Objects("s3://no-such-bucket").get("key")
    with pytest.raises(StorageFailed, match=r"^s3://no-such-bucket: .*NoSuchBucket"):
        Objects("s3://no-such-bucket").list("")


def test_a_server_that_is_not_there_is_named(s3: S3, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    waits: list[float] = []
    storage = Objects(s3.url, retrying=Retrying(sleep=waits.append, draw=lambda: 0.5))
    with pytest.raises(StorageFailed, match=r"error sending request \(Connection refused\)$"):
        storage.put("key", b"")
    assert waits == [0.1, 0.2, 0.4, 0.8]


def test_without_credentials_an_error_says_what_to_set(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    retrying = Retrying(tries=1)
    with pytest.raises(StorageFailed, match="no credentials were found: set AWS_ACCESS_KEY_ID"):
        Objects("s3://bucket", retrying=retrying).get("key")


def test_profiles_are_read_where_boto3_is(s3: S3, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Provider:
        config: ClassVar[dict[str, str]] = {}

        def __call__(self) -> dict[str, str | None]:
            values = s3.environment
            key, secret = values["AWS_ACCESS_KEY_ID"], values["AWS_SECRET_ACCESS_KEY"]
            return {"access_key_id": key, "secret_access_key": secret, "token": None, "expires_at": None}

    boto3 = ModuleType("obstore.auth.boto3")
    monkeypatch.setattr(boto3, "Boto3CredentialProvider", Provider, raising=False)
    monkeypatch.setitem(sys.modules, "obstore.auth.boto3", boto3)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    storage = Objects(s3.url)
    storage.put("key", b"1")
    assert storage.get("key") == b"1"


def test_credentials_in_a_url_are_refused(home: Path) -> None:
    with pytest.raises(ValueError, match="without credentials") as caught:
        Objects("s3://key:swordfish@bucket/prefix")
    assert "swordfish" not in str(caught.value)


def test_without_obstore_the_extra_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(MissingExtra, match=r"pip install 'lakeshore-queue\[storage\]'"):
        Objects("s3://bucket")


def test_a_forked_child_is_told(memory: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.put("a", b"")
    monkeypatch.setattr(bucket, "_used_by", os.getpid() + 1)
    with pytest.raises(StorageFailed, match="start it by spawn or forkserver"):
        memory.get("a")


def test_a_process_that_ends_aborts_what_it_has_not_published(s3: S3, home: Path, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(LARGE)
    code = (
        "import sys\nfrom pathlib import Path\nfrom lakeshore.storage.opening import open_storage\n"
        "open_storage(sys.argv[1]).stage('large', Path(sys.argv[2]), 'm')\nprint('staged')"
    )
    command = [sys.executable, "-c", code, s3.url, tmp_path / "large"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "staged\n", "")
    assert s3.unfinished() == 0


def test_a_file_that_becomes_shorter_meanwhile_is_told(memory: Objects) -> None:
    staged = memory.stage("large", source(memory), "m")
    os.truncate(memory.workplace() / "source", 5)
    with pytest.raises(StorageFailed, match=r"'large' in memory://: .* became shorter while it was uploaded"):
        staged.publish()
    assert raw(memory) == []


def test_deleting_what_is_not_there_is_no_failure(home: Path, tmp_path: Path) -> None:
    store = obstore.store.LocalStore(tmp_path / "objects", mkdir=True)  # which says so
    storage = Objects("memory://", cache=Cache(tmp_path / "cache", 1 << 30), store=store)
    for key in ("a", "c"):
        storage.put(key, b"")
    storage.bucket.delete(["a", "b", "c"])
    assert raw(storage) == []


def test_a_store_without_conditions_is_written_anyway(home: Path, tmp_path: Path) -> None:
    store = obstore.store.LocalStore(tmp_path / "objects", mkdir=True)
    storage = Objects("memory://", cache=Cache(tmp_path / "cache", 1 << 30), store=store)
    storage.stage("set", tree(storage, a=b"1"), "m").publish()
    storage.stage("set", tree(storage, b=b"1"), "m").publish()
    assert keys(storage) == ["set/b"]


# Readers and the cache


def test_what_was_fetched_is_not_fetched_again(objects: Objects, faulty: Faults, tmp_path: Path) -> None:
    objects.put("large", LARGE)
    assert objects.fetch("large", tmp_path / "one").read_bytes() == LARGE
    ranges = faulty.count("GET")
    assert ranges == 3
    assert objects.fetch("large", tmp_path / "two").read_bytes() == LARGE
    assert faulty.count("GET") == ranges
    objects.put("large", b"new")
    assert objects.fetch("large", tmp_path / "one").read_bytes() == b"new"


def test_threads_that_want_the_same_fetch_it_once(objects: Objects, faulty: Faults, tmp_path: Path) -> None:
    objects.put("large", LARGE)
    start = threading.Barrier(4)
    found: list[bytes] = []

    def fetch(number: int) -> None:
        start.wait()
        found.append(objects.fetch("large", tmp_path / str(number)).read_bytes())

    threads = [threading.Thread(target=fetch, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [LARGE] * 4
    assert faulty.count("GET") == 3


def test_a_full_disk_at_the_reader_is_named(memory: Objects, small_disk: Path, tmp_path: Path) -> None:
    memory.put("large", LARGE)
    storage = Objects("memory://", cache=Cache(small_disk / "cache", 1 << 20), store=memory.bucket.store)
    with pytest.raises(StorageFailed, match=r"'large' in memory:.*: no space left"):
        storage.fetch("large", tmp_path / "scratch")
    assert not list((small_disk / "cache" / "partial").iterdir())


# What the dead leave behind


def test_the_sweep_takes_what_nobody_will_publish(memory: Objects, tmp_path: Path) -> None:
    memory.stage("set", tree(memory, a=b"1"), "m").publish()
    staged = memory.stage("set", tree(memory, a=b"2"), "died")
    (memory.workplace() / "tree").rename(memory.workplace() / "one")
    memory.stage("never", tree(memory, a=b"3"), "died")
    source(memory, b"died, too")
    memory.put(".lakeshore/staged/what", b"no note of ours")
    assert sweep(memory, 3600.0) == 0
    assert len(raw(memory)) == 7
    assert sweep(memory, -1.0) == 6
    with pytest.raises(StorageFailed, match="it was swept before it was published"):
        staged.publish()
    assert len(raw(memory)) == 2
    assert (memory.fetch("set", tmp_path) / "a").read_bytes() == b"1"
    assert not list(memory.workplace().iterdir())


def test_the_sweep_takes_what_was_replaced_by_one_who_died(
    memory: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.stage("set", tree(memory, a=b"1"), "m").publish()
    staged: Any = memory.stage("set", tree(memory, a=b"2"), "m")
    monkeypatch.setattr(staged, "_tidy", lambda replaced: None)
    staged.publish()
    assert len(raw(memory)) == 4
    sweep(memory, -1.0)
    assert len(raw(memory)) == 2
    assert (memory.fetch("set", tmp_path) / "a").read_bytes() == b"2"


def test_clearing_up_that_fails_is_told_and_fails_nothing(
    objects: Objects, faulty: Faults, caplog: pytest.LogCaptureFixture
) -> None:
    objects.stage("set", tree(objects, a=b"1"), "m").publish()
    staged = objects.stage("set", tree(objects, a=b"2"), "m")
    faulty.choose = lambda method, path: "busy" if path.endswith("?delete") else ""
    staged.publish()
    assert objects.get("set/a") == b"2"
    assert "is swept later" in caplog.text


def test_memory_is_for_this_object_alone(memory: Objects) -> None:
    assert isinstance(memory.bucket.store, MemoryStore)
