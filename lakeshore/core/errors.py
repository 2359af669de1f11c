"""Every failure Lakeshore foresees, each with a sentence that says what to do.

Refusals by a plane carry a `code` in the manner of HTTP, which the command line prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class LakeshoreError(Exception):
    """Base of every failure Lakeshore foresees. A wrong argument stays a `ValueError`."""


class Refused(LakeshoreError):
    """A plane said no. Nothing was changed. `code` is an HTTP-like number."""

    code: ClassVar[int] = 400
    fields: ClassVar[tuple[str, ...]] = ()  # attributes that travel beside the message

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        for name in self.fields:
            setattr(self, name, fields.get(name))

    def __reduce__(self) -> tuple[Any, ...]:
        return (rebuild, (type(self).__name__, str(self), self.details()))

    def details(self) -> dict[str, Any]:
        """The fields that travel beside the message."""
        return {name: getattr(self, name) for name in self.fields}


class NotFound(Refused):
    """No such invocation, queue, worker, topic or provider in this namespace."""

    code = 404


class Expired(NotFound):
    """The invocation is not kept any more, or never was: its id is as old as pruned ones."""

    code = 410


class Conflict(Refused):
    """The thing is in a state that does not allow this."""

    code = 409


class KeyConflict(Conflict):
    """The same `_key` was submitted with another function or other arguments.

    `id` is the invocation that holds the key.
    """

    fields: ClassVar[tuple[str, ...]] = ("id",)
    id: str


class QueueClosed(Conflict):
    """The queue is draining or archived and admits nothing."""


class QueueFull(Refused):
    """The queue's admission rule turned the submit away; try again after `retry_after` seconds.

    `retry_after` is None where nothing is known about when room comes.
    """

    code = 429
    fields: ClassVar[tuple[str, ...]] = ("retry_after",)
    retry_after: float | None


class Unauthorized(Refused):
    """No token, or one that the head does not know (any more)."""

    code = 401


class Forbidden(Refused):
    """The token's role or namespace does not allow this."""

    code = 403


class BadRequest(Refused):
    """The request itself can't be right, whatever the plane's state."""


class StoreFailed(Refused):
    """The plane can't write its store just now (a full disk, say); nothing was accepted."""

    code = 507


class OutcomeUnknown(Refused):
    """The connection broke after a request was sent and before its answer came."""

    code = 504


class Unreachable(Refused):
    """The head of a plane can't be reached, or does not answer; nothing was sent."""

    code = 503


class VersionMismatch(Refused):
    """The two ends speak different versions of the protocol; the message says which to upgrade."""

    code = 426


class Busy(Refused):
    """The head takes no more connections just now; come back after `retry_after` seconds."""

    code = 503
    fields: ClassVar[tuple[str, ...]] = ("retry_after",)
    retry_after: float | None


class InternalError(Refused):
    """A bug in Lakeshore met this request. It is not resent, and its outcome is unknown."""

    code = 500


class PlaneFailed(Refused):
    """The plane ended on a bug while this call waited; the message names the real error."""

    code = 500


class PlaneClosed(Refused):
    """The plane was closed while this call waited, or before it."""

    code = 503


class PayloadTooLarge(LakeshoreError, ValueError):
    """A value is larger than the payload limit; nothing was sent."""


class FramingError(LakeshoreError):
    """What came over a link is not what a Lakeshore sends; the link is of no more use."""


class CannotListen(LakeshoreError):
    """An address can't be listened on; the message says why and what to do."""


class WouldDeadlock(LakeshoreError, RuntimeError):
    """A blocking verb was called where it would stop the very loop that answers it."""


class ForkedPlane(LakeshoreError, RuntimeError):
    """A `:memory:` plane was used in a forked child, where it does not exist."""


class StoreError(LakeshoreError):
    """A store can't be opened; the message says why and what to do."""


class StoreLocked(StoreError):
    """Another process holds this store. `pid` is its process id, where known."""

    def __init__(self, message: str, pid: int | None = None) -> None:
        super().__init__(message, pid)
        self.pid = pid
        self.final = False  # waiting does not help

    def __str__(self) -> str:
        return str(self.args[0])


class StoreCorrupt(StoreError):
    """The file is not a Lakeshore store, or is damaged."""


class StoreTooNew(StoreError):
    """The file was written by a newer Lakeshore."""


class StoreServed(StoreError):
    """The store belongs to `lakeshore serve`, which alone may host it."""


class IllegalMove(LakeshoreError):
    """An invocation or a queue was asked for a move its state does not allow."""

    def __init__(self, state: str, move: str, subject: str = "an invocation") -> None:
        super().__init__(state, move, subject)
        self.state: str = state
        self.move: str = move
        self.subject: str = subject

    def __str__(self) -> str:
        return (
            f"cannot {self.move} {self.subject} that is {self.state}: someone moved it first; "
            "read it again and drop this move"
        )


class SubmitErrors(LakeshoreError):
    """Some items of a `submit_many` were refused; the others stand.

    `ids` has one entry per item (None where refused), `errors` maps an item's index to its error.
    """

    def __init__(self, ids: list[str | None], errors: dict[int, Exception]) -> None:
        super().__init__(ids, errors)
        self.ids: list[str | None] = ids
        self.errors: dict[int, Exception] = errors

    def __str__(self) -> str:
        index, error = next(iter(self.errors.items()))
        return (
            f"{len(self.errors)} of {len(self.ids)} items were refused, the first (item {index}) "
            f"with {type(error).__name__}: {error}; the rest are accepted: see .ids and .errors"
        )


class Unsuccessful(LakeshoreError):
    """Base of what `result` raises for an invocation that ended without success.

    `id` names the invocation, `attempt` is the attempt that ended it (0 if none began).
    """

    def __init__(self, message: str, *, id: str = "", attempt: int = 0, **more: Any) -> None:
        super().__init__(message)
        self.message: str = message
        self.id: str = id
        self.attempt: int = attempt
        for name, value in more.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unsuccessful, (type(self), dict(self.__dict__)))


class InvocationFailed(Unsuccessful):
    """The body raised, or what it gave could not travel, or its workers were lost.

    `type` is the exception's `module.qualname`, `message` its text, `traceback` the formatted
    traceback (empty where there is none), `notes` its notes, `failure` the whole error as data.
    """

    type: str = ""
    traceback: str = ""
    notes: tuple[str, ...] = ()
    failure: Any = None

    def __str__(self) -> str:
        text = f"{self.type}: {self.message}" if self.type else self.message
        lines = [self.failure.headline if self.failure is not None else text, *self.notes]
        if self.traceback:
            lines += ["", f"The traceback in the worker (attempt {self.attempt}):", self.traceback]
        return "\n".join(lines).rstrip()


class InvocationKilled(Unsuccessful):
    """The invocation was killed; `message` says by what."""


class InvocationTimeout(Unsuccessful):
    """The invocation ran, or waited, longer than it was allowed to."""


class Gap(LakeshoreError):
    """Frames that were asked for are not there: pruned, or beyond the end of what was written.

    `first` is the sequence number to go on from; iterate `q.stream(inv, since=gap.first)`.
    """

    def __init__(self, since: int, first: int) -> None:
        super().__init__(since, first)
        self.since: int = since
        self.first: int = first

    def __str__(self) -> str:
        why = "older ones were pruned" if self.first > self.since else "nothing is beyond it yet"
        return f"no frame {self.since}: the stream goes on at {self.first} ({why})"


class StreamRestarted(LakeshoreError):
    """An attempt was replaced by `attempt` after `.values()` had given some of its values."""

    def __init__(self, attempt: int) -> None:
        super().__init__(attempt)
        self.attempt = attempt

    def __str__(self) -> str:
        return (
            f"attempt {self.attempt} began anew after values of an earlier one were given: drop "
            'those and go on iterating, or pass restarts="keep" to take both'
        )


class Retry(LakeshoreError):
    """Raise it in a body to ask for another attempt, `after` seconds from now if given."""

    def __init__(self, after: float | None = None, message: str = "the body asked for a retry") -> None:
        super().__init__(after, message)
        self.after: float | None = after
        self.message: str = message

    def __str__(self) -> str:
        return self.message


class KeyNotFound(LakeshoreError):
    """There is no file under a key. `storage` is where it was looked for."""

    def __init__(self, key: str, storage: str) -> None:
        super().__init__(key, storage)
        self.key: str = key
        self.storage: str = storage

    def __str__(self) -> str:
        return (
            f"there is nothing under {self.key!r} in {self.storage}: check the key and the scope it was "
            "written in; what a body writes is there once it has ended, or yielded the key"
        )


class StorageFailed(LakeshoreError):
    """A storage could not do what it was asked, and trying again did not help. `key` is what it was
    about, `reason` what the storage said."""

    def __init__(self, key: str, storage: str, reason: str) -> None:
        super().__init__(key, storage, reason)
        self.key: str = key
        self.storage: str = storage
        self.reason: str = reason

    def __str__(self) -> str:
        where = f"{self.key!r} in {self.storage}" if self.key else self.storage  # none: it is about all of it
        return f"{where}: {self.reason}"


class KeysNotReturned(LakeshoreError):
    """A body wrote under `keys` and neither returned nor yielded them, so nobody could find them."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(keys)
        self.keys: tuple[str, ...] = keys

    def __str__(self) -> str:
        names = ", ".join(repr(key) for key in self.keys[:5])
        more = f" and {len(self.keys) - 5} more" if len(self.keys) > 5 else ""
        return (
            f"written and not returned: {names}{more}. Return or yield every key that run.write was given "
            "(the key, not the path; in a str, list, tuple or dict), so that whoever reads the result finds "
            "the file"
        )


class Overtaken(LakeshoreError):
    """The attempt is over, or another has taken its place: what it wrote is not published."""


class ProcessDied(LakeshoreError):
    """The process that a body ran in ended before the body did: `exit_code` says how, or `signal` (a
    number) what ended it."""

    def __init__(self, message: str, exit_code: int | None = None, signal: int | None = None) -> None:
        super().__init__(message, exit_code, signal)
        self.exit_code: int | None = exit_code
        self.signal: int | None = signal

    def __str__(self) -> str:
        return str(self.args[0])


class OutOfMemory(ProcessDied):
    """That process was ended as it took more memory than it may, or than there is."""


class MissingExtra(LakeshoreError, ImportError):
    """An optional package is needed and not installed; the message names the extra."""


def rebuild(kind: str, message: str, details: Mapping[str, Any]) -> Refused:
    """The refusal called `kind`, as it was before it travelled; an unknown kind is a `Refused`."""
    known = _refusals().get(kind, Refused)
    return known(message, **details)


def _refusals(base: type[Refused] = Refused) -> dict[str, type[Refused]]:
    found = {base.__name__: base}
    for child in base.__subclasses__():
        found |= _refusals(child)
    return found


def _unsuccessful(cls: type[Unsuccessful], fields: dict[str, Any]) -> Unsuccessful:
    error = cls(fields["message"])
    error.__dict__.update(fields)
    return error
