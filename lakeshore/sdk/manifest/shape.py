"""What a lakeshore.yaml holds. Whatever it does not name is `UNSET`, and left as it is."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from lakeshore.sdk.choices import Elasticity as ElasticityKind
from lakeshore.sdk.choices import Kind, OnFull, ProviderKind

T = TypeVar("T")

Maybe: TypeAlias = T | UnsetType
State = Literal["active", "paused", "draining", "archived"]
Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class Admission(Struct, frozen=True, forbid_unknown_fields=True):
    """What a queue lets in. null is no limit."""

    max_depth: Annotated[Maybe[Count | None], Meta(description="how many may be queued")] = UNSET
    on_full: Annotated[Maybe[OnFull], Meta(description="refuse a submit, or let it wait")] = UNSET
    rate_limit: Annotated[
        Maybe[float | str | None], Meta(description="submits per second, or 100/s, 30/m, 5/h")
    ] = UNSET
    deadline_cutoff_s: Annotated[Maybe[float | None], Meta(description="longest wait, seconds")] = UNSET
    max_running: Annotated[Maybe[Count | None], Meta(description="how many may run at once")] = UNSET
    max_bytes: Annotated[Maybe[Count | None], Meta(description="bytes of arguments queued")] = UNSET


class Elasticity(Struct, frozen=True, forbid_unknown_fields=True):
    """How many workers a queue's provider is asked for. Kinds are spelt with underscores."""

    kind: ElasticityKind
    min: Annotated[Maybe[Size | None], Meta(description="fewest workers")] = UNSET
    max: Annotated[Maybe[Size | None], Meta(description="most workers")] = UNSET
    threshold: Annotated[
        Maybe[Annotated[float, Meta(ge=0, le=1)] | None], Meta(description="share of a pool to keep busy")
    ] = UNSET
    cooldown_s: Annotated[Maybe[Seconds | None], Meta(description="seconds before a pool shrinks")] = UNSET


class DaemonTemplate(Struct, frozen=True):
    """How a provider starts a worker. Other fields are the provider's own."""

    instance_type: Maybe[str | None] = UNSET
    image_id: Maybe[str | None] = UNSET
    runner: Maybe[Literal["inline", "process"] | None] = UNSET
    slots: Annotated[Maybe[Count | None], Meta(description="bodies at once")] = UNSET
    idle_timeout_s: Maybe[Seconds | None] = UNSET
    launch_timeout_s: Maybe[Seconds | None] = UNSET
    setup: Annotated[Maybe[list[str] | None], Meta(description="commands to run before the worker")] = UNSET
    labels: Maybe[dict[str, str] | None] = UNSET


class Queue(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One queue. A queue that is there keeps its kind."""

    kind: Maybe[Kind] = UNSET
    description: Maybe[str] = UNSET
    state: Maybe[State] = UNSET
    provider_ref: Annotated[
        Maybe[str | None], Meta(description="who launches its workers; null: a plain queue")
    ] = UNSET
    admission: Maybe[Admission] = UNSET
    retention: Annotated[
        Maybe[Seconds | None], Meta(description="seconds that ended invocations are kept; null: the plane's")
    ] = UNSET
    temperature: Annotated[Maybe[Seconds], Meta(description="of a boltzmann queue")] = UNSET
    seed: Annotated[Maybe[int | None], Meta(description="of a boltzmann queue")] = UNSET
    storage: Annotated[Maybe[str | None], Meta(description="where its bulk data is")] = UNSET
    elasticity: Maybe[Elasticity | None] = UNSET
    daemon_template: Maybe[dict[str, Any] | None] = UNSET


class Provider(Struct, frozen=True):
    """Who launches workers. Whatever else it holds is `config`, and depends on its kind."""

    kind: ProviderKind
    max: Annotated[Maybe[Size | None], Meta(description="most workers in all")] = UNSET
    config: dict[str, Any] = {}


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole lakeshore.yaml. `notes` are sentences for whoever applies it."""

    namespace: Maybe[str] = UNSET
    storage: Annotated[Maybe[str | None], Meta(description="where bulk data is: a folder or a URL")] = UNSET
    providers: dict[str, Provider] = {}
    queues: dict[str, Queue] = {}
    file: str = ""
    notes: tuple[str, ...] = ()
