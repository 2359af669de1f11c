"""What several tests of the public layer use."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import lakeshore as dls

T = TypeVar("T")
PATIENCE = 20.0  # seconds after which a test that waits for something has failed


@contextmanager
def working(q: Any, **options: Any) -> Iterator["Future[int]"]:
    """A worker of `q` on a thread, drained at the end."""
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(dls.run_worker, q, stop=stop, **options)
        try:
            yield future
        finally:
            stop.set()
            future.result(PATIENCE)


@contextmanager
def elsewhere(call: Callable[..., T], *args: Any, **kwargs: Any) -> Iterator["Future[T]"]:
    """A call on a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call, *args, **kwargs)


def python(code: str, folder: Path, *args: object, timeout: float = 30, **environment: str) -> str:
    """Run a script file in a process of its own; what it printed."""
    script = folder / f"script_{len(list(folder.glob('script_*')))}.py"
    script.write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, str(script), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=folder,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
