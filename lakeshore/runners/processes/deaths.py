"""What the end of a process means for the job that it had."""

from __future__ import annotations

import signal

from lakeshore.core.bodies import Job
from lakeshore.core.messages import Ended, GaveBack
from lakeshore.core.rows import Failure
from lakeshore.runners.shared import stopped

from .kernel import how, signal_name
from .process import Process
from .wire import WANTS_DIED, WANTS_MEMORY

FROM_OUTSIDE = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
_DIED, _MEMORY = "lakeshore.ProcessDied", "lakeshore.OutOfMemory"


def report(job: Job, process: Process, seconds: float, out_of_memory: bool, limit: int) -> Ended | GaveBack:
    """How a job ended whose process did.

    Args:
        process: it has ended.
        seconds: how long its body ran.
        out_of_memory: the kernel has killed somebody for memory meanwhile.
        limit: bytes that a process may take; 0: there is no limit.
    """
    status = process.status or 0
    if job.why:
        return stopped(job, seconds)
    if process.used:
        said = f"memory limit: used {process.used:,} of {limit:,} bytes"
        return _failed(job, process, _MEMORY, said, seconds)
    if process.fault:
        return _failed(job, process, _DIED, process.fault, seconds)
    if status == -signal.SIGKILL and out_of_memory:
        said = f"out of memory: its process {process.pid} was killed by SIGKILL"
        return _failed(job, process, _MEMORY, said, seconds)
    if status in FROM_OUTSIDE:
        reason = f"its process {process.pid} was ended by {signal_name(-status)} from outside"
        return job.stopped("kill", seconds, reason)
    return _failed(job, process, _DIED, f"the process of the body {how(status)}", seconds)


def unloadable(job: Job, process: Process) -> Ended:
    """Process after process ended before the body began: while its function was loaded, that is."""
    said = f"the process {how(process.status or 0)} while it loaded {job.grant.call.options.function.name}"
    return _failed(job, process, _DIED, said, 0.0)


def _failed(job: Job, process: Process, kind: str, said: str, seconds: float) -> Ended:
    wanted = process.retries & (WANTS_MEMORY if kind == _MEMORY else WANTS_DIED)
    error = Failure(kind, said)
    return Ended(job.id, job.attempt, "fail", error=error, retryable=bool(wanted), seconds=seconds)
