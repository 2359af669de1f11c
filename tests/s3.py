"""A real S3-compatible server for tests: started at most once a session, ended with it.

from s3 import s3 as s3  # a fixture

def test_something(s3: S3) -> None:
    storage = open_storage(s3.url)
"""

from __future__ import annotations

import atexit
import functools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

SERVICES = Path(__file__).parent / "services"
SCRIPT = SERVICES / "s3.sh"
ENVIRONMENT = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakeshore-tests" / "seaweedfs"
)

sys.path.append(str(SERVICES))
from s3_request import request  # noqa: E402  # pyright: ignore[reportMissingImports]


class S3(NamedTuple):
    """A server, and a place in it that is one test's own."""

    endpoint: str
    bucket: str
    prefix: str
    environment: dict[str, str]

    @property
    def url(self) -> str:
        """The place, as a storage is written."""
        return f"s3://{self.bucket}/{self.prefix}"

    def unfinished(self) -> int:
        """How many uploads of parts below the place were begun and neither completed nor aborted."""
        said = request(self.endpoint, "GET", f"/{self.bucket}", "uploads=")
        return said.count(f"<Key>{self.prefix}/")


@functools.cache
def begin() -> tuple[Path, subprocess.Popen[str]]:
    """Start the server and do not wait: it takes seconds, in which it hardly works."""
    folder = Path(tempfile.mkdtemp(prefix="lakeshore-s3-"))
    ENVIRONMENT.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"S3_ENVIRONMENT": str(ENVIRONMENT)}
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        [SCRIPT, "start", folder],
        env=environment,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )
    atexit.register(stop, folder, started)
    return folder, started


@functools.cache
def server() -> dict[str, str] | str:
    """What clients read from the environment; a sentence where there can be no server."""
    folder, started = begin()
    said, errors = started.communicate(timeout=300)
    if started.returncode != 0:
        log = folder / "log"
        return f"{errors.strip()}: {log.read_text()[-500:] if log.exists() else ''}"
    return dict(line.split("=", 1) for line in said.splitlines())


def stop(folder: Path, started: subprocess.Popen[str]) -> None:
    """End the server that was started in a folder, and delete that."""
    with started:  # reads to the end, where nobody has waited
        subprocess.run([SCRIPT, "stop", folder], check=False)
    subprocess.run([SCRIPT, "stop", folder], check=False)  # where it was only beginning
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", autouse=True)
def begun() -> None:
    """Import it to have the server start while other tests of a module run."""
    begin()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> S3:
    """A place in the server, which the environment says how to reach."""
    values = server()
    if isinstance(values, str):
        pytest.skip(f"no S3 server: {values}")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return S3(values["AWS_ENDPOINT_URL"], values["S3_BUCKET"], f"test-{secrets.token_hex(6)}", values)
