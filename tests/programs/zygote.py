"""A warm process that forks one child for each line it reads, so that a child costs milliseconds.

It has no thread, no loop and no plane. A line is the JSON of what a child is to do; what the child
writes goes to the same output, and ends with a line ["end", status].
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any

import anyio

from . import broken, user
from .bodies import say


def _child(spec: dict[str, Any]) -> None:
    status = 1
    try:
        os.close(0)
        broken.apply(spec)
        anyio.run(user.main, spec, backend=spec["backend"])
        status = 0
    except BaseException:
        say("error", traceback.format_exc())
    finally:
        os._exit(status)


def _warm(backend: str) -> None:
    """Import what a plane needs, by opening one in memory."""
    anyio.run(user.warm, backend=backend)


def main(backend: str) -> None:
    """Serve until the input ends."""
    warnings.simplefilter("ignore")
    _warm(backend)
    pid = 0
    for line in sys.stdin:
        if pid:
            os.waitpid(pid, 0)  # only now: until then its number was nobody else's to be killed by
        pid = os.fork()
        if not pid:
            _child(json.loads(line))
        say("pid", pid)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended
        os.write(1, b"\n")  # ends a line that the child was cut off in
        say("end", -ended.si_status if ended.si_code == os.CLD_KILLED else ended.si_status)


if __name__ == "__main__":
    main(sys.argv[1])
