"""What processes of bodies are asked to be, checked."""

from __future__ import annotations

import os
from typing import Any

from msgspec import Struct

from lakeshore.runners.processes.limits import Limits
from lakeshore.sdk.checks import LONGEST, finite, whole

_LEAST = 16 << 20  # bytes; less than any Python takes
_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
RUNNERS = ("inline", "process")


class Processes(Struct, frozen=True):
    """How bodies run in processes of their own: `run_worker(q, runner=Processes(memory=2 << 30))`.

    Args:
        memory: bytes that a process may take, with all that it starts; a body that takes more fails with
            `OutOfMemory`. None: as much as there is.
        recycle_jobs: after so many bodies a process is replaced; 1: each body has a fresh one.
        recycle_age: and after so many seconds, between two bodies.
        recycle_memory: and where it has more bytes than that after a body.
        gpus: so many GPUs are dealt out, one to a slot, by CUDA_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES or
            ROCR_VISIBLE_DEVICES where that is what is set).

    Raises: ValueError, TypeError.
    """

    memory: int | None = None
    recycle_jobs: int | None = None
    recycle_age: float | None = None
    recycle_memory: int | None = None
    gpus: int = 0

    def __post_init__(self) -> None:
        for name, least in (("memory", _LEAST), ("recycle_jobs", 1), ("recycle_memory", _LEAST)):
            value: Any = getattr(self, name)
            if value is not None:
                whole(name, value, least, 1 << 62)
        if self.recycle_age is not None and not 0 < finite("recycle_age", self.recycle_age) <= LONGEST:
            raise ValueError(f"recycle_age={self.recycle_age!r}: choose seconds above 0")
        whole("gpus", self.gpus, 0, 1024)


def limits_of(processes: Processes, slots: int, cleanup: float, capture: bool) -> Limits:
    """What that comes to on this machine. Raises ValueError where there are not so many GPUs."""
    variable, devices = dealt(processes.gpus)
    return Limits(
        slots,
        processes.memory or 0,
        processes.recycle_jobs or 0,
        processes.recycle_age or 0.0,
        processes.recycle_memory or 0,
        devices,
        variable,
        cleanup,
        capture,
    )


def dealt(gpus: int) -> tuple[str, tuple[str, ...]]:
    """Which variable names GPUs here, and one entry of it for each slot. Raises ValueError."""
    variable = next((name for name in _VARIABLES if os.environ.get(name)), _VARIABLES[0])
    given = [entry.strip() for entry in os.environ.get(variable, "").split(",") if entry.strip()]
    if given and gpus > len(given):
        raise ValueError(
            f"gpus={gpus}: {variable} is {os.environ[variable]!r}, which names {len(given)}: "
            "name more, or use less"
        )
    return variable, tuple(given[:gpus] if given else map(str, range(gpus)))


def slots_of(slots: int | None, processes: Processes | None) -> int:
    """How many bodies at once: one, or as many as there are GPUs. Raises ValueError where both are said."""
    gpus = 0 if processes is None else processes.gpus
    if not gpus:
        return 1 if slots is None else slots
    if slots is not None and slots != gpus:
        raise ValueError(f"slots={slots!r} and gpus={gpus}: each slot has one GPU, so leave slots out")
    return gpus


def chosen(runner: Any) -> tuple[str, Processes]:
    """The default runner of a worker, and how bodies run in processes. Raises ValueError, TypeError."""
    if isinstance(runner, Processes):
        return "process", runner
    if isinstance(runner, str) and runner in RUNNERS:
        return runner, Processes()
    raise ValueError(f"runner={runner!r}: choose inline or process, or pass Processes(...)")
