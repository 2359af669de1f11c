"""Bulk data: how fast a large file goes up and down, by the side of the library alone.

    python benchmarks/storage.py       # 1 GiB in a folder, and on a SeaweedFS of its own on loopback
    python benchmarks/storage.py --mib 256 --repeat 3
    python benchmarks/storage.py --url s3://bucket/prefix    # another server, reached as the environment says

Every figure is of a process of its own, ours and the library's in turn; the table has medians. `peak` is the
largest resident memory of that process less what it had before it moved anything.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tests" / "services" / "s3.sh"
PART, CONCURRENCY = 8 << 20, 8  # what `Objects` has, for the library, too
HERE, THERE = "ours", "obstore alone"


def upload(url: str, folder: Path, size: int) -> None:
    """Stage and publish, as a worker does."""
    storage = opened(url, folder)
    storage.stage("large", made(storage.workplace() / "large", size), "bench").publish()


def download(url: str, folder: Path, size: int) -> None:
    """Fetch, into an empty cache."""
    path = opened(url, folder).fetch("large", folder / "scratch")
    assert path.stat().st_size == size


def opened(url: str, folder: Path) -> Any:
    """Ours, with a cache of this run."""
    from lakeshore.storage.cache import Cache
    from lakeshore.storage.folder import Folder
    from lakeshore.storage.objects import Objects

    if "://" not in url:
        return Folder(url)
    return Objects(url, cache=Cache(folder / "cache", 1 << 40))


def bare_upload(url: str, folder: Path, size: int) -> None:
    """The library alone: a file in parts."""
    import obstore

    path = made(folder / "source", size)
    obstore.put(bare(url), "large", path, chunk_size=PART, max_concurrency=CONCURRENCY)


def bare_download(url: str, folder: Path, size: int) -> None:
    """The library alone: one stream into a file."""
    import obstore

    with (folder / "target").open("wb") as file:
        for piece in obstore.get(bare(url), "large").stream(PART):
            file.write(piece)
        assert file.tell() == size


def bare(url: str) -> Any:
    """The library's own client."""
    from obstore.store import from_url

    return from_url(url, client_options={"allow_http": True})


def made(path: Path, size: int) -> Path:
    """A file that does not compress; made by another process, so that its memory does not count."""
    if not path.exists():
        code = "import os, sys\nwith open(sys.argv[1], 'wb') as file:\n"
        code += "    for _ in range(int(sys.argv[2]) >> 20): file.write(os.urandom(1 << 20))"
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-c", code, str(path), str(size)], check=True)
    return path


WAYS: dict[str, dict[str, Callable[[str, Path, int], None]]] = {
    HERE: {"up": upload, "down": download},
    THERE: {"up": bare_upload, "down": bare_download},
}


def one(who: str, way: str, url: str, folder: Path, size: int) -> dict[str, float]:
    """Measure in this process."""
    work = WAYS[who][way]
    if way == "up":  # its file is there before
        made(opened(url, folder).workplace() / "large" if who == HERE else folder / "source", size)
    else:
        _ = opened(url, folder) if who == HERE else bare(url)
    before, begun = peak(), time.perf_counter()
    work(url, folder, size)
    seconds = time.perf_counter() - begun
    return {"MiB/s": (size >> 20) / seconds, "peak MiB": (peak() - before) / 1024}


def peak() -> int:
    """The most resident memory so far, KiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measured(who: str, way: str, url: str, size: int) -> dict[str, float]:
    """`one`, in a process and folder of its own."""
    with tempfile.TemporaryDirectory(prefix="lakeshore-bench-") as folder:
        command = [sys.executable, __file__, "--one", who, way, "--url", url, "--mib", str(size >> 20)]
        environment = os.environ | {"LAKESHORE_HOME": f"{folder}/home", "PYTHONPATH": str(ROOT)}
        said = subprocess.run(
            [*command, "--folder", folder], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(said.stdout)


def table(url: str, size: int, repeat: int) -> None:
    """Print what was measured at one place."""
    people = [HERE, THERE] if "://" in url else [HERE]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    if "://" in url:  # a server that is new makes its files first
        measured(THERE, "up", url, size // 4)
    for number in range(repeat):
        for way in ("up", "down"):
            for who in people if number % 2 == 0 else reversed(people):
                found.setdefault((who, way), []).append(measured(who, way, url, size))
    print(f"{size >> 20} MiB, {url if '://' in url else 'a folder'}, medians of {repeat}")
    for way in ("up", "down"):
        rates: dict[str, float] = {}
        for who in people:
            rates[who] = statistics.median(each["MiB/s"] for each in found[who, way])
            memory = statistics.median(each["peak MiB"] for each in found[who, way])
            print(f"  {way:5}{who:14}{rates[who]:8.0f} MiB/s   peak {memory:5.0f} MiB")
        if len(people) == 2:
            print(f"  {way:5}{rates[HERE] / rates[THERE]:.2f} x of the library alone")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--url", default="")
    parser.add_argument("--one", nargs=2, metavar=("WHO", "WAY"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    size = given.mib << 20
    if given.one:
        who, way = given.one
        print(json.dumps(one(who, way, given.url, given.folder, size)))
        return
    if given.url:
        table(given.url, size, given.repeat)
        return
    place = Path(tempfile.mkdtemp(prefix="lakeshore-bench-"))
    cache = Path.home() / ".cache" / "lakeshore-tests" / "seaweedfs"
    environment = os.environ | {"S3_ENVIRONMENT": str(cache)}
    try:
        table(str(place / "files"), size, given.repeat)
        said = subprocess.run(
            [SCRIPT, "start", place / "s3"], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        for line in said.stdout.splitlines():
            name, _, os.environ[name] = line.partition("=")
        table(f"s3://{os.environ['S3_BUCKET']}/bench", size, given.repeat)
    finally:
        subprocess.run([SCRIPT, "stop", place / "s3"], check=False)
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
