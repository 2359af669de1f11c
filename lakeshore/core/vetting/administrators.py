"""What administrators send, and who lists things."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from lakeshore.core import messages as m
from lakeshore.core.roles import ROLES
from lakeshore.core.settings import check_patch, declare, settings_of
from lakeshore.core.states import QueueMove, QueueState, State
from lakeshore.core.storages import check_storage

from . import values as v

_PAGE = 200  # rows of one answer


def _req(message: Any, limit: int) -> str:
    return v.whole("req", message.req)


def _add_queue(message: m.AddQueue, limit: int) -> str:
    wrong = v.whole("req", message.req) or v.queue(message.name) or v.plain("settings", message.settings)
    return wrong or _checked(lambda: _settings(message.settings))


def _patch_queue(message: m.PatchQueue, limit: int) -> str:
    wrong = _queue_request(message, limit) or v.plain("changes", message.changes)
    return wrong or _checked(lambda: check_patch(message.changes, elasticity=True))


def _settings(data: dict[str, Any]) -> None:
    """Settings as they are stored, looked at as those that a user gives."""
    settings = settings_of(data)
    declare({**asdict(settings), **asdict(settings.admission)})


def _checked(check: Callable[[], object]) -> str:
    try:
        check()
    except (TypeError, ValueError) as error:
        return v.sentence(error) or "these settings can't be read"
    return ""


def _queue_request(message: Any, limit: int) -> str:
    return v.whole("req", message.req) or v.queue_or_id(message.name)


def _shift_queue(message: m.ShiftQueue, limit: int) -> str:
    return _queue_request(message, limit) or v.one_of("move", message.move, tuple(QueueMove))


def _queue_events(message: m.QueueEvents, limit: int) -> str:
    return _queue_request(message, limit) or v.whole("limit", message.limit, 1, _PAGE)


def _list_queues(message: m.ListQueues, limit: int) -> str:
    return v.whole("req", message.req) or v.all_of(message.states, tuple(QueueState))


def _list_jobs(message: m.ListJobs, limit: int) -> str:
    return (
        v.whole("req", message.req)
        or v.queue_or_id(message.queue)
        or v.all_of(message.states, tuple(State))
        or v.whole("limit", message.limit, 1, _PAGE)
        or v.whole("offset", message.offset)
        or ("" if message.worker is None else v.an_id("worker", message.worker))
        or v.text("worker_name", message.worker_name)
        or ("" if message.before is None else v.an_id("before", message.before))
    )


def _bulk_cancel(message: m.BulkCancel, limit: int) -> str:
    return v.whole("req", message.req) or v.queue_or_id(message.queue)


def _prune(message: m.PruneJobs, limit: int) -> str:
    return v.whole("req", message.req) or v.seconds("older_than", message.older_than)


def _named(message: Any, limit: int) -> str:
    return v.whole("req", message.req) or v.text("name", message.name, v.NAME, 1)


def _create_token(message: m.CreateToken, limit: int) -> str:
    return (
        v.whole("req", message.req)
        or v.size("hash", message.hash, 32, 32)
        or v.one_of("token_role", message.token_role, ROLES)
        or v.namespace(message.namespace)
        or v.text("name", message.name, v.LABEL)
    )


def _list_tokens(message: m.ListTokens, limit: int) -> str:
    return v.whole("req", message.req) or v.namespace(message.namespace)


def _add_provider(message: m.AddProvider, limit: int) -> str:
    return (
        _named(message, limit)
        or v.text("kind", message.kind, v.NAME, 1)
        or v.plain("config", message.config)
        or ("" if message.max is None else v.whole("max", message.max))
    )


def _show_storage(message: m.ShowStorage, limit: int) -> str:
    return v.whole("req", message.req) or ("" if not message.queue else v.queue(message.queue))


def _set_storage(message: m.SetStorage, limit: int) -> str:
    wrong = _req(message, limit)
    if wrong or message.storage is None:
        return wrong
    return v.text("storage", message.storage, v.TEXT, 1) or _checked(lambda: check_storage(message.storage))


def _patch_provider(message: m.PatchProvider, limit: int) -> str:
    return _named(message, limit) or v.plain("changes", message.changes)


CHECKS: dict[type, Callable[[Any, int], str]] = {
    m.AddQueue: _add_queue,
    m.ListQueues: _list_queues,
    m.ShowQueue: _queue_request,
    m.PatchQueue: _patch_queue,
    m.ShiftQueue: _shift_queue,
    m.RemoveQueue: _queue_request,
    m.QueueStats: _queue_request,
    m.QueueEvents: _queue_events,
    m.ListJobs: _list_jobs,
    m.BulkCancel: _bulk_cancel,
    m.PruneJobs: _prune,
    m.ListTopics: _req,
    m.ListWorkers: _req,
    m.ShowWorker: _named,
    m.DrainWorker: _named,
    m.RemoveWorker: _named,
    m.Status: _req,
    m.CreateToken: _create_token,
    m.ListTokens: _list_tokens,
    m.RemoveToken: _named,
    m.AddProvider: _add_provider,
    m.ListProviders: _req,
    m.ShowProvider: _named,
    m.PatchProvider: _patch_provider,
    m.RemoveProvider: _named,
    m.ShowStorage: _show_storage,
    m.SetStorage: _set_storage,
}
