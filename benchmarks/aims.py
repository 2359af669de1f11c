"""The table: what is measured where, what is aimed at, and whose figure it is set beside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

PYTHON_REDIS, RUST = ("arq", "saq", "taskiq"), ("ardiq",)
REDIS = (*PYTHON_REDIS, *RUST, "huey_redis")
ALL = (*REDIS, "huey")
LOOPS = ("asyncio", "trio")


class Beside(NamedTuple):
    """The best of some peers in the same measurement, and how many times as good ours should be."""

    peers: tuple[str, ...]
    measurement: str
    figure: str
    aim: float | None


@dataclass(frozen=True)
class Row:
    """One line. Aims are per loop, or one for both; `least`: more is better."""

    what: str
    name: str
    store: str
    figure: str
    aims: tuple[float | None, float | None] = (None, None)
    least: bool = True
    beside: tuple[Beside, ...] = field(default=())
    loops: tuple[str, ...] = LOOPS

    def aim(self, loop: str) -> float | None:
        """What is aimed at on this loop."""
        return self.aims[LOOPS.index(loop)]

    def met(self, loop: str, value: float) -> bool:
        """Whether this value reaches the aim, or there is none."""
        aim = self.aim(loop)
        return aim is None or (value >= aim if self.least else value <= aim)


def rows() -> list[Row]:
    """Every line of the table."""
    return [*_flow(), *_size(), *_process(), *_between(), *_many()]


def _both(aim: float) -> tuple[float, float]:
    return aim, aim


def _flow() -> list[Row]:
    jobs = (
        Beside(PYTHON_REDIS, "jobs", "jobs/s", 10),
        Beside(RUST, "jobs", "jobs/s", 2),
        Beside(("huey",), "jobs", "jobs/s", None),
    )
    bulk = (Beside(("dask",), "submits", "submits/s", 2), Beside(ALL, "submits", "submits/s", None))
    alone = (Beside(ALL, "serial", "p50 us", 4),)
    return [
        Row("jobs/s, own submit and result each: memory", "jobs", "memory", "jobs/s", (50e3, 40e3)),
        Row("… file, sync=normal", "jobs", "normal", "jobs/s", _both(15e3), beside=jobs),
        Row("… file, sync=full", "jobs", "full", "jobs/s", _both(12e3)),
        Row("submit_many(100), jobs/s end to end: memory", "many", "memory", "jobs/s"),
        Row("… file, sync=normal", "many", "normal", "jobs/s", (35e3, 30e3)),
        Row("bulk submits/s: memory", "submits", "memory", "submits/s"),
        Row("… file, sync=normal", "submits", "normal", "submits/s", _both(150e3), beside=bulk),
        Row("serial submit → result, p50 µs: memory", "serial", "memory", "p50 us", (60, 80), least=False),
        Row("… file, sync=normal", "serial", "normal", "p50 us", _both(350), least=False, beside=alone),
        Row("… p99 µs", "serial", "normal", "p99 us", _both(3000), least=False),
        Row("sync bodies, jobs/s: file", "sync_jobs", "normal", "jobs/s", _both(15e3)),
        Row("frames/s to one consumer: memory", "frames", "memory", "frames/s", _both(300e3)),
        Row("… file", "frames", "normal", "frames/s", _both(100e3)),
        Row("first frame, p50 µs: memory", "first_frame", "memory", "p50 us", _both(1000), least=False),
        Row("… file", "first_frame", "normal", "p50 us", _both(1000), least=False),
        Row("1,000 naps of 0.1 s on 100 slots, s: memory", "naps", "memory", "s", _both(1.05), least=False),
        Row("… file", "naps", "normal", "s", _both(1.05), least=False),
    ]


def _size() -> list[Row]:
    drained = [
        Row(f"drain rate, {kind}: all queued ÷ 1,000 queued", f"drain_{kind}", "memory", "ratio", _both(0.8))
        for kind in ("fifo", "filo", "priority", "boltzmann")
    ]
    return [
        Row("bytes of memory per queued job: memory", "bytes", "memory", "bytes", _both(500), least=False),
        Row("… file, opened again", "reopen", "normal", "bytes", _both(500), least=False),
        *drained,
        Row("open a file with all of them queued, s", "reopen", "normal", "s", _both(5), least=False),
        Row("jobs list, newest 50, filtered, ms", "listing", "normal", "worst ms", _both(5), least=False),
    ]


def _process() -> list[Row]:
    name, alone = "worker_process", ("asyncio",)
    return [
        Row("worker process: MB after 10,000 jobs", name, "normal", "MB", (35, None), least=False),
        Row("… start to first job done, s", name, "normal", "start s", (0.35, None), least=False),
        Row(
            "import over bare Python, ms",
            "imports",
            "memory",
            "import ms",
            (50, None),
            False,
            loops=alone,
        ),
        Row(
            "… and all public names",
            "imports",
            "memory",
            "with all names ms",
            least=False,
            loops=alone,
        ),
        Row("Dispatch, serial submits/s of a thread: file", "dispatch", "normal", "submits/s", _both(10e3)),
    ]


def _between() -> list[Row]:
    """Head, program and worker are processes of their own, or two of them one."""
    jobs = (Beside(ALL, "jobs", "jobs/s", 2),)
    alone = (Beside(REDIS, "serial", "p50 us", 1), Beside(REDIS, "serial", "p50 us", 2))
    shared, least = "shared_serial", False
    return [
        Row("three processes, TCP: jobs/s", "remote_jobs", "normal", "jobs/s", (15e3, 12e3), beside=jobs),
        Row(
            "… serial submit → result, p50 µs", "remote_serial", "normal", "p50 us", least=least, beside=alone
        ),
        Row("… p99 µs", "remote_serial", "normal", "p99 us", least=least),
        Row("… bulk submits/s of one client", "remote_submits", "normal", "submits/s", _both(40e3)),
        Row("… frames/s of one stream", "remote_frames", "normal", "frames/s", _both(100e3)),
        Row("two that share a path: serial p50 µs", shared, "normal", "p50 us", _both(500), least),
        Row("… where the worker hosts it", shared, "normal", "worker hosts p50 us", _both(500), least),
    ]


def _many() -> list[Row]:
    """Daemons, many of them, and a host that dies."""
    least = False
    return [
        Row("daemon, idle: MB of parent and child", "daemon", "normal", "MB", _both(50), least),
        Row("… start to first job done, s", "daemon", "normal", "start s", _both(0.5), least),
        Row("… with a process for each slot: MB of all three", "daemon", "normal", "process MB", least=least),
        Row("… start to first job done, s", "daemon", "normal", "process start s", least=least),
        Row(
            "a body in a process of its own, more p50 µs",
            "processes",
            "memory",
            "async more us",
            _both(1000),
            least,
        ),
        Row("… a synchronous one", "processes", "memory", "sync more us", _both(1000), least),
        Row("… jobs/s with one slot", "processes", "memory", "process async jobs/s"),
        Row("… MB of such a process", "processes", "memory", "child MB", least=least),
        Row("… start of one and its first job, s", "processes", "memory", "start s", least=least),
        Row("n idle daemons and n idle clients: MB of the head", "idle", "normal", "MB", _both(250), least),
        Row("… its share of a core, %", "idle", "normal", "CPU %", _both(5), least),
        Row("… serial p50 of others, × as without them", "idle", "normal", "x p50", _both(1.5), least),
        Row("takeover with n live, s: the next caller hosts", "takeover", "normal", "s", _both(1), least),
        Row("… with a worker there", "takeover", "normal", "worker s", _both(1), least),
    ]
