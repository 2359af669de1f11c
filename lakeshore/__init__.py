"""Lakeshore: a task queue whose submit returns a durable id.

`import dreamlake.lakeshore as dls` and `import lakeshore as dls` are the same module. Everything
listed in `__all__` is public; each name is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.errors import BadRequest as BadRequest
    from .core.errors import Busy as Busy
    from .core.errors import Conflict as Conflict
    from .core.errors import Expired as Expired
    from .core.errors import Forbidden as Forbidden
    from .core.errors import ForkedPlane as ForkedPlane
    from .core.errors import Gap as Gap
    from .core.errors import InternalError as InternalError
    from .core.errors import InvocationFailed as InvocationFailed
    from .core.errors import InvocationKilled as InvocationKilled
    from .core.errors import InvocationTimeout as InvocationTimeout
    from .core.errors import KeyConflict as KeyConflict
    from .core.errors import KeyNotFound as KeyNotFound
    from .core.errors import KeysNotReturned as KeysNotReturned
    from .core.errors import LakeshoreError as LakeshoreError
    from .core.errors import MissingExtra as MissingExtra
    from .core.errors import NotFound as NotFound
    from .core.errors import OutcomeUnknown as OutcomeUnknown
    from .core.errors import OutOfMemory as OutOfMemory
    from .core.errors import PayloadTooLarge as PayloadTooLarge
    from .core.errors import PlaneClosed as PlaneClosed
    from .core.errors import PlaneFailed as PlaneFailed
    from .core.errors import ProcessDied as ProcessDied
    from .core.errors import QueueClosed as QueueClosed
    from .core.errors import QueueFull as QueueFull
    from .core.errors import Refused as Refused
    from .core.errors import Retry as Retry
    from .core.errors import StorageFailed as StorageFailed
    from .core.errors import StoreCorrupt as StoreCorrupt
    from .core.errors import StoreError as StoreError
    from .core.errors import StoreFailed as StoreFailed
    from .core.errors import StoreLocked as StoreLocked
    from .core.errors import StoreServed as StoreServed
    from .core.errors import StoreTooNew as StoreTooNew
    from .core.errors import StreamRestarted as StreamRestarted
    from .core.errors import SubmitErrors as SubmitErrors
    from .core.errors import Unauthorized as Unauthorized
    from .core.errors import Unreachable as Unreachable
    from .core.errors import Unsuccessful as Unsuccessful
    from .core.errors import VersionMismatch as VersionMismatch
    from .core.errors import WouldDeadlock as WouldDeadlock
    from .core.rows import Failure as Failure
    from .core.states import QueueState as QueueState
    from .core.states import State as State
    from .core.values import MalformedValue as MalformedValue
    from .core.values import Record as Record
    from .sdk.agroups import AsyncTopic as AsyncTopic
    from .sdk.aio import AsyncDispatch as AsyncDispatch
    from .sdk.dispatch import Dispatch as Dispatch
    from .sdk.groups import Topic as Topic
    from .sdk.loglines import AsyncLog as AsyncLog
    from .sdk.loglines import Log as Log
    from .sdk.loglines import LogLine as LogLine
    from .sdk.processes.options import Processes as Processes
    from .sdk.records import Attempt as Attempt
    from .sdk.records import Event as Event
    from .sdk.records import Invocation as Invocation
    from .sdk.records import NewToken as NewToken
    from .sdk.records import PlaneStatus as PlaneStatus
    from .sdk.records import Progress as Progress
    from .sdk.records import ProviderInfo as ProviderInfo
    from .sdk.records import QueueInfo as QueueInfo
    from .sdk.records import QueueStats as QueueStats
    from .sdk.records import Removed as Removed
    from .sdk.records import TokenInfo as TokenInfo
    from .sdk.records import TopicInfo as TopicInfo
    from .sdk.records import WorkerInfo as WorkerInfo
    from .sdk.run import run as run
    from .sdk.scope import scope as scope
    from .sdk.streams import AsyncStream as AsyncStream
    from .sdk.streams import Frame as Frame
    from .sdk.streams import Stream as Stream
    from .sdk.udf import UDF as UDF
    from .sdk.udf import udf as udf
    from .sdk.worker import Hooks as Hooks
    from .sdk.worker import arun_worker as arun_worker
    from .sdk.worker import run_worker as run_worker

_WHERE = {
    "core.errors": """
        BadRequest Busy Conflict Expired Forbidden ForkedPlane Gap InternalError InvocationFailed
        InvocationKilled InvocationTimeout KeyConflict KeyNotFound KeysNotReturned LakeshoreError
        MissingExtra NotFound OutOfMemory OutcomeUnknown PayloadTooLarge PlaneClosed PlaneFailed
        ProcessDied QueueClosed QueueFull Refused Retry StorageFailed StoreCorrupt StoreError
        StoreFailed StoreLocked StoreServed StoreTooNew StreamRestarted SubmitErrors Unauthorized
        Unreachable Unsuccessful VersionMismatch WouldDeadlock""",
    "core.rows": "Failure",
    "core.states": "QueueState State",
    "core.values": "MalformedValue Record",
    "sdk.agroups": "AsyncTopic",
    "sdk.aio": "AsyncDispatch",
    "sdk.dispatch": "Dispatch",
    "sdk.groups": "Topic",
    "sdk.loglines": "AsyncLog Log LogLine",
    "sdk.processes.options": "Processes",
    "sdk.records": """Attempt Event Invocation NewToken PlaneStatus Progress ProviderInfo QueueInfo QueueStats
        Removed TokenInfo TopicInfo WorkerInfo""",
    "sdk.run": "run",
    "sdk.scope": "scope",
    "sdk.streams": "AsyncStream Frame Stream",
    "sdk.udf": "UDF udf",
    "sdk.worker": "Hooks arun_worker run_worker",
}
_HOME = {name: module for module, names in _WHERE.items() for name in names.split()}

__all__ = [
    "UDF",
    "AsyncDispatch",
    "AsyncLog",
    "AsyncStream",
    "AsyncTopic",
    "Attempt",
    "BadRequest",
    "Busy",
    "Conflict",
    "Dispatch",
    "Event",
    "Expired",
    "Failure",
    "Forbidden",
    "ForkedPlane",
    "Frame",
    "Gap",
    "Hooks",
    "InternalError",
    "Invocation",
    "InvocationFailed",
    "InvocationKilled",
    "InvocationTimeout",
    "KeyConflict",
    "KeyNotFound",
    "KeysNotReturned",
    "LakeshoreError",
    "Log",
    "LogLine",
    "MalformedValue",
    "MissingExtra",
    "NewToken",
    "NotFound",
    "OutOfMemory",
    "OutcomeUnknown",
    "PayloadTooLarge",
    "PlaneClosed",
    "PlaneFailed",
    "PlaneStatus",
    "ProcessDied",
    "Processes",
    "Progress",
    "ProviderInfo",
    "QueueClosed",
    "QueueFull",
    "QueueInfo",
    "QueueState",
    "QueueStats",
    "Record",
    "Refused",
    "Removed",
    "Retry",
    "State",
    "StorageFailed",
    "StoreCorrupt",
    "StoreError",
    "StoreFailed",
    "StoreLocked",
    "StoreServed",
    "StoreTooNew",
    "Stream",
    "StreamRestarted",
    "SubmitErrors",
    "TokenInfo",
    "Topic",
    "TopicInfo",
    "Unauthorized",
    "Unreachable",
    "Unsuccessful",
    "VersionMismatch",
    "WorkerInfo",
    "WouldDeadlock",
    "arun_worker",
    "run",
    "run_worker",
    "scope",
    "udf",
]


if not TYPE_CHECKING:  # a checker that knew of it would take every misspelt name for a good one

    def __getattr__(name: str) -> Any:
        try:
            home = _HOME[name]
        except KeyError:
            raise AttributeError(f"module 'lakeshore' has no attribute {name!r}") from None
        value = getattr(importlib.import_module(f"lakeshore.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
