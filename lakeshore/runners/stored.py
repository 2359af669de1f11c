"""What a body leaves in storages: its files by key, and its large values. All of it blocks, for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import anyio
from msgspec import Raw, structs

from lakeshore.core.backend import Backend
from lakeshore.core.bodies import Job
from lakeshore.core.errors import KeysNotReturned, StorageFailed
from lakeshore.core.messages import Ended, GaveBack
from lakeshore.core.values import pack_frame, unpack_call

from .shared import Shared

Answer = tuple[bool, Any]  # whether a call has returned, and what; else what it raised


def fetch(job: Job, shared: Shared) -> None:
    """Get arguments that are in a storage. Raises: StorageFailed, MalformedValue."""
    away, values = job.away, shared.worker.values
    if away is None:
        return
    if values is None:
        raise StorageFailed(away.name, away.place, "this worker has no storages")
    job.args, job.kwargs = unpack_call(values.get(away), types=job.body.types)
    job.away = None


def stow(job: Job, shared: Shared, report: Ended | GaveBack) -> Ended | GaveBack:
    """A report whose large result is in the storage."""
    if type(report) is not Ended or report.result is None or not job.is_large(len(report.result)):
        return report
    try:
        return structs.replace(report, result=_put(job, shared, report.result))
    except StorageFailed as error:
        return job.failed(error, report.seconds)


def stow_frame(job: Job, shared: Shared, ready: Any) -> tuple[Raw, int, bytes]:
    """A large frame in the storage: the reference ready to be packed, its size, and itself."""
    reference = _put(job, shared, pack_frame(ready))
    return Raw(reference), len(reference), reference


def _put(job: Job, shared: Shared, data: bytes) -> bytes:
    values, running = shared.worker.values, job.running
    if values is None:
        raise StorageFailed("a large value", running.storage, "this worker has no storages")
    return values.put(data, running.storage, running.folder)


def complete(job: Job, shared: Shared, value: Any) -> Any:
    """On a thread: publish what a body has written, and give its result, or raise why it fails."""
    files = job.running.files
    if files is None:
        return value
    generator = job.body.kind in ("generator", "async_generator")
    try:
        return files.complete(value, lambda: _cleared(job, shared), generator=generator)
    except KeysNotReturned as error:
        job.refused = error  # it would do the same again
        raise


def publish(job: Job, shared: Shared, value: Any) -> None:
    """On a thread: publish what a yielded value names, before it leaves."""
    files = job.running.files
    if files is not None:
        try:
            files.publish(value, lambda: _cleared(job, shared))
        finally:
            with suppress(RuntimeError):  # the loop has ended
                shared.backend.post(lambda: shared.worker.published(job))


def discard(job: Job) -> None:
    """On a thread: a body is over, and what it has not published goes."""
    if job.running.files is not None:
        job.running.files.discard()


def _cleared(job: Job, shared: Shared) -> bool:
    """Whether the head says that this attempt is the current one; waits for its word."""
    told, answers = threading.Event(), list[bool]()

    def tell(answer: bool) -> None:
        answers.append(answer)
        told.set()

    try:
        shared.backend.post(lambda: shared.worker.clearing.ask(job, tell))
    except RuntimeError:  # the loop has ended
        return False
    told.wait()
    return answers[0]


async def aside(backend: Backend, call: Callable[[], Any]) -> Any:
    """Run a call on a thread of its own. Where the wait is cancelled it goes on."""
    parker = backend.parker()
    _on_thread(backend, call, parker.set)
    return _found(await parker.wait())


async def published(job: Job, shared: Shared, call: Callable[[], Any]) -> Any:
    """As `aside`. A worker that is cancelled while the files of a job move to their keys first lets them
    get there: they would overwrite those of the next attempt."""
    first, again = shared.backend.parker(), shared.backend.parker()

    def tell(answer: Answer) -> None:
        first.set(answer)
        again.set(answer)

    _on_thread(shared.backend, call, tell)
    try:
        return _found(await first.wait())
    except anyio.get_cancelled_exc_class():
        if not job.publishing or job.why:
            raise
        with anyio.move_on_after(shared.cleanup, shield=True):
            return _found(await again.wait())
        raise


def _on_thread(backend: Backend, call: Callable[[], Any], tell: Callable[[Answer], None]) -> None:
    def work() -> None:
        try:
            answer = (True, call())
        except BaseException as error:
            answer = (False, error)
        with suppress(RuntimeError):  # the loop has ended
            backend.post(lambda: tell(answer))

    run = copy_context().run
    threading.Thread(target=run, args=(work,), name="lakeshore files", daemon=True).start()


def _found(answer: Answer) -> Any:
    fine, found = answer
    if fine:
        return found
    raise found
