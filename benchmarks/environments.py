"""What the peers need: an environment of their own each, made once and kept; a Redis for a run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS, REDIS = HERE / "peers", HERE.parent / "tests" / "services" / "redis.sh"
NEWER = {"ardiq": (3, 12)}  # the oldest Python it takes, where that is newer than ours


class Absent(Exception):
    """A peer can't be measured here, and why."""


def python_of(peer: str, cache: Path) -> str:
    """The interpreter of the peer's environment."""
    base, requirements = interpreter(NEWER.get(peer, (3, 11))), PEERS / f"{peer}.txt"
    stamp = hashlib.sha256(requirements.read_bytes() + base.encode()).hexdigest()[:12]
    folder = cache / f"{peer}-{stamp}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        print(f"making an environment for {peer} in {folder}", file=sys.stderr)
        _run(base, "-m", "venv", str(folder))
        _run(str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "-r", str(requirements))
        (folder / "ready").touch()
    return str(folder / "bin" / "python")


def interpreter(least: tuple[int, int]) -> str:
    """Our own Python where it is new enough, else one of the machine's: PEER_PYTHON, on PATH, pyenv's."""
    if sys.version_info >= least:
        return os.path.realpath(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    named = [os.environ.get("PEER_PYTHON"), *(shutil.which(f"python3.{minor}") for minor in range(12, 16))]
    kept = [str(path) for path in sorted(pyenv.glob("versions/3.*/bin/python"))]
    check = f"import sys; sys.exit(sys.version_info < {least})"
    for found in filter(None, [*named, *kept]):
        if subprocess.run([found, "-c", check], capture_output=True, check=False).returncode == 0:
            return found
    raise Absent("needs Python {}.{}: name one with PEER_PYTHON".format(*least))


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """An empty Redis on loopback that keeps nothing on disk; its URL."""
    started = subprocess.run([REDIS, "start", folder], capture_output=True, text=True, check=False)
    if started.returncode != 0:
        raise Absent(started.stderr.strip())
    try:
        yield started.stdout.strip().partition("=")[2]
    finally:
        subprocess.run([REDIS, "stop", folder], check=True)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Absent(f"{' '.join(command)} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
