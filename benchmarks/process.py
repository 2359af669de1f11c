"""What a process costs: its start, its memory, its imports; and the blocking face of one thread."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time

from bodies import nothing
from setting import SLOTS, Figures, Setting, Watch, resident

import lakeshore as dls

MB = 1e6
IMPORTS = {
    "import ms": "import lakeshore",
    "with Dispatch ms": "import lakeshore; lakeshore.Dispatch",
    "with all names ms": "from lakeshore import *",
}


def dispatch(setting: Setting) -> Figures:
    """Serial submits of the blocking face, from one thread, nobody working."""
    with dls.Dispatch(setting.address, sync=setting.sync, backend=setting.loop) as q:
        for _ in range(20):
            q.submit(nothing)
        watch = Watch()
        for _ in range(setting.n):
            q.submit(nothing)
        return watch.figures(setting.n, "submits/s")


def worker_process(setting: Setting) -> Figures:
    """A process that opens a file and works: from its start to the first job done, and its memory after n."""

    def elsewhere(queued: int) -> Figures:
        with dls.Dispatch(setting.address, sync=setting.sync, backend=setting.loop) as q:
            q.submit_many(nothing, [{}] * queued)
        command = [
            sys.executable,
            __file__,
            setting.loop,
            setting.address,
            setting.sync,
            str(time.monotonic()),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    first = elsewhere(1)
    after = elsewhere(setting.n)
    return {"start s": first["s"], "MB": after["MB"], "peak MB": after["peak MB"]}


def work(loop: str, address: str, sync: str, spawned: float) -> Figures:
    """What that process does."""
    with dls.Dispatch(address, backend=loop, sync=sync) as q:  # type: ignore[arg-type]
        dls.run_worker(q, once=True)
        started = time.monotonic() - spawned  # one clock for all processes of a machine
        dls.run_worker(q, drain=True, slots=SLOTS)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {"s": started, "MB": resident() / MB, "peak MB": peak / MB}


def imports(setting: Setting) -> Figures:
    """What importing adds to a bare Python, in turn with it."""
    times: dict[str, list[float]] = {}
    for _ in range(setting.n):
        for name, code in {"bare": "pass", **IMPORTS}.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.setdefault(name, []).append((time.perf_counter() - start) * 1e3)
    bare = statistics.median(times.pop("bare"))
    return {name: statistics.median(taken) - bare for name, taken in times.items()}


if __name__ == "__main__":
    print(json.dumps(work(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))))
