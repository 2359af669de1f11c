"""What clients send: submits, questions, streams and topics."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from lakeshore.core import messages as m
from lakeshore.core.rows import Call, FunctionRow, Options

from . import values as v

KINDS = ("sync", "generator", "async", "async_generator")  # of bodies
RUNNERS = ("", "inline", "process")

_HASH = 16  # bytes, of a pickled body's BLAKE2b
_ITEMS = 1000  # of one `SubmitMany`
_KNOWN = 256

_sound: dict[int, Options] = {}  # by identity: decoders give equal ones as the same object
_well_formed = msgspec.msgpack.Decoder(Raw).decode


def _options(options: Options) -> str:
    function, delay, cap = options.function, options.retry_delay, options.retry_cap
    if not (0 <= delay <= cap <= v.HUGE):
        return f"retry_delay is {delay} and retry_cap {cap}: send finite seconds, the cap at least the delay"
    timeout = options.timeout
    if timeout is not None and not 0 < timeout <= v.HUGE:
        return f"timeout is {timeout}: send seconds above 0"
    if not (function.local or function.ref or function.value):
        return "a function is named by local, ref or value, and this one by none"
    if function.value and len(function.value) != _HASH:
        return f"function.value has {len(function.value)} bytes: a hash has {_HASH}"
    if len(function.name) + len(function.local) + len(function.ref) + len(function.source) > 4 * v.NAME:
        return f"the names of a function take more than {4 * v.NAME} characters"
    if options.kind not in KINDS:
        return v.one_of("kind", options.kind, KINDS)
    if options.runner not in RUNNERS:
        return v.one_of("runner", options.runner, RUNNERS)
    if not 0 <= options.retries < v.LARGEST:
        return v.whole("retries", options.retries)
    if len(_sound) >= _KNOWN:
        _sound.clear()
    _sound[id(options)] = options
    return ""


def _call(call: Call, limit: int) -> str:
    args = call.args
    if not args:
        return "args are missing"
    if len(args) > limit:
        return f"args take {len(args)} bytes, above the payload limit of {limit}"
    if len(call.key) + len(call.prefix) > v.TEXT:
        return f"key and prefix take more than {v.TEXT} characters"
    if call.parent is not None and len(call.parent) != v.ID:
        return v.an_id("parent", call.parent)
    if call.retry_of is not None and len(call.retry_of) != v.ID:
        return v.an_id("retry_of", call.retry_of)
    options = call.options
    return "" if _sound.get(id(options)) is options else _options(options)


def _function(row: FunctionRow, named: bytes, limit: int) -> str:
    if row.hash != named:
        return "function is another than the one that the call names"
    if wrong := v.size("function", row.data, limit, 1):
        return wrong
    true = hashlib.blake2b(row.data, digest_size=_HASH).digest()
    return "" if row.hash == true else "function.hash is not the hash of its data"


def _submit(message: m.Submit, limit: int) -> str:
    if len(message.id) != v.ID:
        return v.an_id("id", message.id)
    if not 0 <= message.req < v.LARGEST:
        return v.whole("req", message.req)
    if not -v.HUGE <= message.priority <= v.HUGE:
        return v.finite("priority", message.priority)
    if len(message.digest) > 64:
        return v.size("digest", message.digest, 64)
    if wrong := v.queue(message.queue) or _call(message.call, limit):
        return wrong
    if message.delay is not None and (wrong := v.seconds("delay", message.delay)):
        return wrong
    if message.deadline is not None and (wrong := v.seconds("deadline", message.deadline)):
        return wrong
    if message.function is None:
        return ""
    return _function(message.function, message.call.options.function.value, limit)


def _submit_many(message: m.SubmitMany, limit: int) -> str:
    items = message.items
    if not 1 <= len(items) <= _ITEMS:
        return f"items are {len(items)}: send 1 to {_ITEMS}"
    req, queue = message.req, items[0].queue
    for number, item in enumerate(items):
        if item.req != req or item.queue != queue:
            return f"item {number} has another req or queue than the rest"
        if wrong := _submit(item, limit):
            return f"item {number}: {wrong}"
    return ""


def _wait(message: Any, limit: int) -> str:
    return v.an_id("id", message.id) or v.whole("req", message.req)


def _retry(message: m.Retry, limit: int) -> str:
    return _wait(message, limit) or v.an_id("new_id", message.new_id)


def _room(message: m.Follow | m.FollowLogs | m.FollowTopic) -> str:
    return (
        v.whole("req", message.req)
        or v.whole("since", message.since, -1)
        or v.whole("credit", message.credit)
        or v.whole("room", message.room)
    )


def _follow(message: m.Follow | m.FollowLogs, limit: int) -> str:
    return v.an_id("id", message.id) or _room(message)


def _follow_topic(message: m.FollowTopic, limit: int) -> str:
    return v.topic(message.name) or _room(message)


def _credit(message: m.Credit, limit: int) -> str:
    return v.whole("req", message.req) or v.whole("frames", message.frames) or v.whole("size", message.size)


def _drop(message: m.Drop, limit: int) -> str:
    return v.maybe_id("id", message.id) or v.whole("req", message.req)


def _post(message: m.Post, limit: int) -> str:
    wrong = (
        _topic_request(message, limit)
        or v.finite("at", message.at)
        or v.size("data", message.data, limit, 1)
        or v.maybe_id("publisher", message.publisher)
        or v.whole("number", message.number)
        or v.whole("settled", message.settled)
    )
    if wrong:
        return wrong
    try:
        _well_formed(message.data)  # it is packed together with what others post
    except (msgspec.MsgspecError, RecursionError) as error:
        return f"data is not one packed value: {error}"
    return ""


def _topic_request(message: Any, limit: int) -> str:
    return v.topic(message.name) or v.whole("req", message.req)


CHECKS: dict[type, Callable[[Any, int], str]] = {
    m.Submit: _submit,
    m.SubmitMany: _submit_many,
    m.Wait: _wait,
    m.Get: _wait,
    m.Why: _wait,
    m.Kill: _wait,
    m.Retry: _retry,
    m.Follow: _follow,
    m.FollowLogs: _follow,
    m.FollowTopic: _follow_topic,
    m.Credit: _credit,
    m.Drop: _drop,
    m.Post: _post,
    m.CloseTopic: _topic_request,
    m.RemoveTopic: _topic_request,
}
