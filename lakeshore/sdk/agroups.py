"""The same groups of verbs as in `groups`, as coroutines."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from . import verbs
from .choices import Elasticity, Kind, OnFull, QueueChanges
from .records import Event, Invocation, QueueInfo, QueueStats, Removed, TopicInfo, WorkerInfo
from .streams import AsyncStream

if TYPE_CHECKING:
    from .aio import AsyncDispatch


class AsyncTopic:
    """A journal that many post to and many read. Made by `AsyncDispatch.topic`."""

    def __init__(self, face: AsyncDispatch, name: str) -> None:
        self._face, self.name = face, name

    async def post(self, value: Any) -> int:
        """Append one value; returns its number, from 0. Raises Conflict after `close`."""
        return await self._face.run(verbs.post(self.name, time.time(), self._face.packed(value)))

    def stream(self, since: int = 0) -> AsyncStream[Any]:
        """Values from number `since` on, live until somebody closes the topic."""
        return AsyncStream(self._face.connection(), self.name, since, ())

    async def close(self) -> None:
        """Write END, for all publishers."""
        await self._face.run(verbs.close_topic(self.name))


class AsyncQueues:
    """Administration of queues."""

    def __init__(self, face: AsyncDispatch) -> None:
        self._face = face

    async def add(
        self,
        name: str,
        *,
        kind: Kind = "fifo",
        temperature: float = 1.0,
        seed: int | None = None,
        description: str = "",
        provider: str | None = None,
        elasticity: Elasticity | None = None,
        min: int | None = None,
        max: int | None = None,
        threshold: float | None = None,
        template: dict[str, Any] | None = None,
        max_depth: int | None = None,
        on_full: OnFull = "reject",
        rate_limit: float | str | None = None,
        deadline_cutoff_s: float | None = None,
        max_running: int | None = None,
        max_bytes: int | None = None,
        retention: float | None = None,
        storage: str | None = None,
    ) -> QueueInfo:
        """Create a queue.

        Args:
            kind: fifo, priority, boltzmann or filo.
            temperature, seed: of a boltzmann queue.
            max_depth: how many may be queued; max_bytes: how many bytes of arguments.
            on_full: reject, or block the submitter until there is room.
            rate_limit: submits per second, or "100/s", "30/m".
            deadline_cutoff_s: seconds an invocation may wait once it is claimable.
            max_running: how many may run at once.
            retention: seconds that its ended invocations are kept.

        Raises: ValueError for a wrong setting, Conflict where the name exists, NotFound for an
            unknown provider.
        """
        given = {key: value for key, value in locals().items() if key not in ("self", "name")}
        return await self._face.run(verbs.add_queue(name, given))

    async def ls(self, *, state: str | Iterable[str] | None = None) -> list[QueueInfo]:
        """All queues but archived ones, or those in the given states."""
        return await self._face.run(verbs.list_queues(state))

    async def show(self, name: str) -> QueueInfo:
        """One queue and its workers."""
        return await self._face.run(verbs.show_queue(name))

    async def patch(self, name: str, **changes: Unpack[QueueChanges]) -> QueueInfo:
        """Change settings: all that `add` takes but name, kind and elasticity."""
        return await self._face.run(verbs.patch_queue(name, {**changes}))

    async def pause(self, name: str) -> QueueInfo:
        """Admit, but hand out nothing."""
        return await self._face.run(verbs.shift_queue(name, "pause"))

    async def resume(self, name: str) -> QueueInfo:
        """End a pause."""
        return await self._face.run(verbs.shift_queue(name, "resume"))

    async def drain(self, name: str) -> QueueInfo:
        """Admit nothing; let what is queued and running finish."""
        return await self._face.run(verbs.shift_queue(name, "drain"))

    async def archive(self, name: str) -> QueueInfo:
        """Admit nothing and hand out nothing; keep the backlog."""
        return await self._face.run(verbs.shift_queue(name, "archive"))

    async def unarchive(self, name: str) -> QueueInfo:
        """Make a draining or archived queue active again."""
        return await self._face.run(verbs.shift_queue(name, "unarchive"))

    async def rm(self, name: str, *, force: bool = False) -> Removed:
        """Delete a queue: what is queued is killed, what runs may finish. Raises Conflict while a live
        worker is bound to it, unless `force` unbinds them."""
        return await self._face.run(verbs.remove_queue(name, force))

    async def stats(self, name: str) -> QueueStats:
        """Its signals now."""
        return await self._face.run(verbs.queue_stats(name))

    async def events(self, name: str, *, limit: int = 50, verbose: bool = False) -> list[Event]:
        """What was decided about it and why, newest first: its changes of settings and of state. With
        `verbose` also when nothing was to be done. `limit` is 1 to 200."""
        return await self._face.run(verbs.queue_events(name, limit, verbose))


class AsyncJobs:
    """Administration of invocations."""

    def __init__(self, face: AsyncDispatch) -> None:
        self._face = face

    async def list(
        self,
        *,
        state: str | Iterable[str] | None = None,
        queue: str | None = None,
        worker: str | None = None,
        limit: int = 50,
        offset: int = 0,
        before: str | None = None,
    ) -> list[Invocation]:
        """Invocations, newest first, older than the id `before`. `queue` and `worker` are names or ids,
        `limit` is 1 to 200. Of several workers of one name it is the one that lives, else the last."""
        return await self._face.run(verbs.list_jobs(state, queue, worker, limit, offset, before))

    async def show(self, inv: str) -> Invocation:
        """One invocation, with every attempt."""
        return await self._face.run(verbs.get(inv))

    async def kill(self, inv: str, *, running: bool = False) -> None:
        """As `AsyncDispatch.kill`."""
        await self._face.run(verbs.kill(inv, running))

    async def retry(self, inv: str) -> str:
        """As `AsyncDispatch.retry`."""
        return await self._face.run(verbs.retry(inv))

    async def why(self, inv: str) -> list[str]:
        """Why an invocation is where it is, in sentences."""
        return await self._face.run(verbs.why(inv))

    async def bulk_cancel(self, queue: str | None = None) -> int:
        """Kill everything queued, in one queue or in all; how many. What runs is untouched."""
        return await self._face.run(verbs.bulk_cancel(queue))

    async def prune(self, older_than: float | timedelta | None = None) -> int:
        """Delete invocations that ended more than `older_than` ago (None: as long ago as each queue's
        retention says); how many."""
        return await self._face.run(verbs.prune(older_than))


class AsyncWorkers:
    """Administration of workers."""

    def __init__(self, face: AsyncDispatch) -> None:
        self._face = face

    async def list(self, *, ended: bool = False) -> list[WorkerInfo]:
        """Live workers of the namespace, and with `ended` those that were."""
        return await self._face.run(verbs.list_workers(ended))

    async def show(self, worker: str) -> WorkerInfo:
        """One worker, by id or name; also one that has ended. Raises NotFound; Conflict naming the ids
        where several that live have the name."""
        return await self._face.run(verbs.show_worker(worker))

    async def drain(self, worker: str) -> WorkerInfo:
        """Have a worker take nothing more, and end once its bodies have ended."""
        return await self._face.run(verbs.drain_worker(worker))

    async def remove(self, worker: str) -> WorkerInfo:
        """End a worker now; what it runs is killed."""
        return await self._face.run(verbs.remove_worker(worker))


class AsyncTopics:
    """Administration of topics."""

    def __init__(self, face: AsyncDispatch) -> None:
        self._face = face

    async def list(self) -> list[TopicInfo]:
        """Every topic of the namespace."""
        return await self._face.run(verbs.list_topics())

    async def remove(self, name: str) -> None:
        """Delete a topic and its values; readers see its end."""
        await self._face.run(verbs.remove_topic(name))
