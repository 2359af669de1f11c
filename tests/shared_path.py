"""Processes that share a path, for tests: each says what it does on its standard output.

python tests/shared_path.py ROLE PATH BACKEND [ARGUMENT…]
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import lakeshore as dls

FOLDER = Path(__file__).parent


@dls.udf
def double(x: int) -> int:
    return 2 * x


@dls.udf
def same(value: Any) -> Any:
    return value


@dls.udf
def count(n: int) -> Any:
    yield from range(n)


@dls.udf
def meet(folder: str, name: str) -> str:
    """Say that it runs, and end when told so."""
    (Path(folder) / f"{name}.began").touch()
    with open(Path(folder) / f"{name}.gate") as gate:  # a pipe: waits until somebody writes
        return gate.read()


@dls.udf
def parent(x: int) -> str:
    """Submit a child to wherever this came from."""
    return double.submit(x)


def say(*words: object) -> None:
    print(*words, flush=True)


def main(role: str, path: str, backend: Any, *more: str) -> None:
    """Play a role until standard input ends or the process is killed."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    sys.modules["shared_path"] = sys.modules["__main__"]
    with dls.Dispatch(path, backend=backend) as q:
        q.status()
        say("ready", os.getpid())
        if role == "worker":
            dls.run_worker(q, slots=int(more[0]) if more else 4)
        elif role == "open":
            threading.Event().wait()
        elif role == "submit":
            many, key = int(more[0]), more[1] if len(more) > 1 else None
            for number in range(many):
                options: dict[str, Any] = {"_key": f"{key}-{number}"} if key else {}
                say(double.submit(number, **options))
            say("done")
            threading.Event().wait()


def _leave_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    sys.path.insert(0, str(FOLDER))
    main(*sys.argv[1:])
