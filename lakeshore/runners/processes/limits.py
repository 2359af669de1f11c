"""What a worker's processes may take, and when they are replaced."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Limits(Struct, frozen=True):
    """Args:
    slots: how many processes work at once.
    memory: bytes that each with its process group may take; 0: as much as there is.
    recycle_jobs, recycle_age, recycle_memory: after so many jobs, seconds, or above so many bytes a
        process is replaced, between two jobs; 0: never for that.
    devices: one for each slot, by what a program sees of them; none: nothing is dealt out.
    variable: the environment variable that says so.
    cleanup: seconds that a stopped body may go on before its process is made to end.
    capture: whether what it writes to its descriptors is noted as its body's.
    """

    slots: int = 1
    memory: int = 0
    recycle_jobs: int = 0
    recycle_age: float = 0.0
    recycle_memory: int = 0
    devices: Sequence[str] = ()
    variable: str = "CUDA_VISIBLE_DEVICES"
    cleanup: float = 5.0
    capture: bool = True
