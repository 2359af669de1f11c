"""What an argument of the public verbs may be, as types: a checker catches what is misspelt."""

from typing import Any, Literal, TypedDict

Loop = Literal["asyncio", "trio"]
Sync = Literal["normal", "full"]
Kind = Literal["fifo", "priority", "boltzmann", "filo"]
OnFull = Literal["reject", "block"]
Elasticity = Literal["fixed", "fully_elastic", "pool_with_threshold", "max_count"]
ProviderKind = Literal["local", "ssh", "slurm", "kubernetes", "ec2", "command"]
Role = Literal["submit", "read", "work", "admin"]
By = Literal["auto", "ref", "value"]
Runner = Literal["inline", "process"]
Restarts = Literal["raise", "keep"]


class QueueChanges(TypedDict, total=False):
    """What `queues.patch` takes; None ends a limit."""

    temperature: float
    seed: int | None
    description: str
    provider: str | None
    min: int | None
    max: int | None
    threshold: float | None
    template: dict[str, Any] | None
    max_depth: int | None
    on_full: OnFull
    rate_limit: float | str | None
    deadline_cutoff_s: float | None
    max_running: int | None
    max_bytes: int | None
    retention: float | None
    storage: str | None


class ProviderChanges(TypedDict, total=False):
    """What `providers.patch` takes."""

    config: dict[str, Any]
    max: int | None
