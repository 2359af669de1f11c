"""What the other processes of a measurement do: `player.py ROLE LOOP ADDRESS SYNC [MORE…]`.

Each ends when its standard input does, so that none outlives who started it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from bodies import nothing

import lakeshore as dls


def head(loop: str, path: str, sync: str) -> None:
    """`lakeshore serve`, on a free port; it logs where."""
    from lakeshore.cli import main

    threading.Thread(target=_leave_with_parent, daemon=True).start()
    words = f"serve --listen tcp://127.0.0.1:0 --auto-create --log-format json --backend {loop} --sync {sync}"
    sys.exit(main([*words.split(), "--store", path]))


def work(loop: Any, address: str, sync: Any, slots: str) -> None:
    """Work until the end."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with dls.Dispatch(address, backend=loop, sync=sync) as q:
        q.status()
        say("ready")
        dls.run_worker(q, slots=int(slots))


def hold(loop: Any, path: str, sync: Any, n: str) -> None:
    """Host a path with n live invocations that nobody may run."""
    with dls.Dispatch(path, backend=loop, sync=sync) as q:
        if not any(queue.name == "held" for queue in q.queues.ls()):
            q.queues.add("held")
            q.queues.pause("held")
            q.submit_many(dls.udf(nothing.fn, queue="held"), [{}] * int(n))
        say("ready")
        _leave_with_parent()


def call(loop: Any, path: str, sync: Any) -> None:
    """Ask for the status of the plane whenever a line comes; say when it was answered, and by whom."""
    with dls.Dispatch(path, backend=loop, sync=sync) as q:
        q.status()
        say("ready")
        for _ in sys.stdin:
            status = q.status()
            say(json.dumps({"at": time.monotonic(), "pid": status.pid, "queued": status.queued}))


def say(text: str) -> None:
    """A line for who listens."""
    print(text, flush=True)


def _leave_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


ROLES = {"head": head, "work": work, "hold": hold, "call": call}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
