"""Files by key, large values and the example on images, in a real S3-compatible object store."""

from __future__ import annotations

from typing import Any

import pytest
import stored_jobs as jobs
from planes import PATIENCE
from s3 import S3
from s3 import begun as begun
from s3 import s3 as s3
from test_thumbnails import finish, start

import lakeshore as dls
from lakeshore.core.away import AWAY_BYTES
from lakeshore.storage.opening import open_storage

pytestmark = pytest.mark.usefixtures("home")


def keys(s3: S3) -> list[str]:
    return [stored.key for stored in open_storage(s3.url).list("")]


@dls.udf
def into_a_folder(names: list[str]) -> str:
    folder = dls.run.write("ckpt", dir=True)
    for name in names:
        (folder / name).write_text(name)
    return "ckpt"


@dls.udf
def reads(key: str) -> dict[str, str]:
    path = dls.run.read(key)
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    return {file.name: file.read_text() for file in files}


@dls.udf
def never_ends() -> str:
    dls.run.write("large").write_bytes(bytes(20 << 20))
    raise ValueError("no")


def test_bodies_and_large_values(backend: Any, s3: S3) -> None:
    large = "x" * (AWAY_BYTES + 1)
    with dls.Dispatch(":memory:", backend=backend, storage=s3.url) as q:

        def result(body: Any, *args: Any) -> Any:
            inv = body.submit(*args, _dispatch=q)
            dls.run_worker(q, once=True)
            return q.result(inv, timeout=PATIENCE)

        with dls.scope("a/b"):
            for body in (jobs.plain, jobs.waiting, jobs.yielding, jobs.yielding_slowly):
                result(body, [body.kind], body.kind)
            assert keys(s3) == [f"a/b/{kind}" for kind in ("async", "async_generator", "generator", "sync")]
            assert result(reads, "sync") == {"sync": "in sync"}
            assert dls.run.read("sync").read_text() == "in sync"
            for names in (["one", "two"], ["three"]):
                assert result(into_a_folder, names) == "ckpt"
                assert result(reads, "ckpt") == {name: name for name in names}
            with pytest.raises(dls.InvocationFailed, match="nothing under 'a/b/never'"):
                result(reads, "never")
            with pytest.raises(dls.InvocationFailed, match="ValueError: no"):
                result(never_ends)
        assert result(jobs.echo, large) == large
        assert list(open_storage(s3.url).list(".lakeshore/values"))
        q.jobs.prune(older_than=0)
    assert list(open_storage(s3.url).list(".lakeshore")) == []
    assert s3.unfinished() == 0


def test_the_example_killed_half_way_and_resumed(tmp_path: Any, s3: S3) -> None:
    arguments = ("--count", 8, "--storage", s3.url)
    first = start(tmp_path, *arguments)
    assert first.stdout is not None
    done = [first.stdout.readline().strip() for _ in range(3)]
    first.kill()
    first.communicate()
    *names, last = finish(start(tmp_path, *arguments))
    assert names[:3] == done
    assert 1 <= int(last.split()[-2]) <= 6  # the sheet, and the thumbnails that were not done
    assert {"sheet.jpg", *names} <= set(keys(s3))
    assert finish(start(tmp_path, *arguments))[-1].endswith("after 0 bodies")
