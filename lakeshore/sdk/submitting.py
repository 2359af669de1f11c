"""From a call in the user's program to the message that submits it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from datetime import datetime, timedelta
from typing import Any, Generic, Self, TypeVar

from msgspec import structs

from lakeshore.core.away import AWAY_BYTES
from lakeshore.core.bodies import check_size
from lakeshore.core.errors import Refused, SubmitErrors
from lakeshore.core.extensions.leaves import class_of
from lakeshore.core.fresh import new_id
from lakeshore.core.ids import text_of
from lakeshore.core.messages import Accepted, Refusal, Submit, SubmitMany
from lakeshore.core.rows import Call
from lakeshore.core.running import CURRENT
from lakeshore.core.settings import DEFAULT
from lakeshore.core.values import NO_ARGUMENTS, pack, pack_call

from .checks import LONGEST, finite, flag, sound
from .connection import error_of
from .scope import scope_here
from .udf import UDF

T = TypeVar("T")
log = logging.getLogger("lakeshore")

_HELD = "key %r is held by %s, submitted with another function or other arguments: %s"
_NOTHING_NEW = "its id was returned, nothing new was submitted"
PART_ITEMS, PART_BYTES = 1000, 1 << 20  # what one part of a submit_many may hold
_OPTIONS = frozenset({"_key", "_strict_key", "_priority", "_delay", "_deadline", "_timeout"})


class Submitter:
    """Builds submits for one plane.

    Args:
        durable: whether bodies must be found again by another process.
        known: where this process's workers find bodies by their local name.
        wall: seconds since 1970.
        payload_limit: bytes the packed arguments of one call may take. Larger ones are put into the
            storage, or refused, by `stow`.
    """

    def __init__(
        self,
        *,
        durable: bool,
        known: MutableMapping[str, UDF[..., Any]],
        wall: Callable[[], float],
        payload_limit: int,
    ) -> None:
        self._durable, self._known = durable, known
        self._wall, self.payload_limit = wall, payload_limit

    def submit(self, udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], req: int) -> Submit:
        """The message of one call, as request number `req`.

        Raises: TypeError, ValueError for what can't be submitted.
        """
        key, strict, priority, delay, deadline, timeout = "", False, udf.priority, None, None, udf.timeout
        for name in kwargs:
            if name[:1] == "_":
                kwargs = dict(kwargs)
                key, strict, priority, delay, deadline, timeout = self._take_options(udf, kwargs)
                break
        packed = NO_ARGUMENTS
        if args or kwargs or udf.takes_some:
            udf.bind(args, kwargs)
            packed = pack_call(args, kwargs)
        options = udf.options(timeout, self._durable)
        if udf.known_in is not self._known:
            self._known[udf.local_name] = udf  # before it is noted: other threads submit it too
            udf.known_in = self._known
        # each time: the store forgets a pickle with the last invocation of it, and keeps one of many
        function = udf.stored() if options.function.value else None
        digest = b""
        if key:
            digest = _digest(udf.name, *udf.bound(args, kwargs))  # f(1) and f(x=1) are the same call
        running = CURRENT.get()
        parent = running.id if running is not None else None
        return Submit(
            req,
            new_id(),
            udf.queue or DEFAULT,
            Call(options, packed, scope_here().prefix, key, parent),
            priority,
            digest,
            strict,
            delay,
            deadline,
            False,
            False,
            function,
        )

    def is_large(self, message: Submit) -> bool:
        """Whether its arguments are to be put into the storage, where there is one."""
        args = message.call.args
        return args is not None and len(args) > min(AWAY_BYTES, self.payload_limit)

    def stow(self, message: Submit, storage: str, folder: str) -> Submit:
        """The message with its large arguments in the storage. Blocks.

        Raises: PayloadTooLarge where there is no storage; StorageFailed.
        """
        args, name = message.call.args or b"", message.call.options.function.name
        if not storage:
            check_size(args, self.payload_limit, f"the arguments of {name}")
            return message
        from lakeshore.storage.values import put_away  # which few programs need

        call = structs.replace(message.call, args=put_away(args, storage, folder))
        return structs.replace(message, call=call)

    def _take_options(self, udf: UDF[..., Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        given = {name: kwargs.pop(name) for name in list(kwargs) if name in _OPTIONS}
        for name in kwargs:
            if name == "_dispatch":
                raise TypeError(
                    "_dispatch names the plane of a whole call: pass it to f.submit or f.submit_many"
                )
            if name.startswith("_"):
                raise TypeError(
                    f"{name!r} is no option of submit: names that begin with an underscore are Lakeshore's, "
                    f"which are {', '.join(sorted(_OPTIONS))} and _dispatch"
                )
        key = given.get("_key")
        if key is not None and not isinstance(key, str):
            raise TypeError(f"_key={key!r}: a key is a string")
        if key is not None and not key:
            raise ValueError("_key is empty: pass a key that names this piece of work, or leave it out")
        if key is not None:
            sound("_key", key)
        priority = given.get("_priority")
        timeout = given.get("_timeout")
        if timeout is not None and finite("_timeout", timeout) <= 0:
            raise ValueError(f"_timeout={timeout!r}: choose a number of seconds above 0")
        return (
            key or "",
            flag("_strict_key", given.get("_strict_key", False)),
            udf.priority if priority is None else finite("_priority", priority),
            self._from_now("_delay", given.get("_delay")),
            self._from_now("_deadline", given.get("_deadline")),
            udf.timeout if timeout is None else float(timeout),
        )

    def _from_now(self, name: str, when: Any) -> float | None:
        if when is None:
            return None
        if isinstance(when, timedelta):
            return max(0.0, self._bounded(name, when, when.total_seconds()))
        if isinstance(when, datetime):
            if when.tzinfo is None:
                raise ValueError(f"{name}={when!r}: give the datetime a time zone")
            return max(0.0, self._bounded(name, when, when.timestamp() - self._wall()))
        if isinstance(when, bool) or not isinstance(when, int | float):
            raise TypeError(f"{name}={when!r}: pass seconds from now, a timedelta, or an aware datetime")
        return max(0.0, self._bounded(name, when, finite(name, when)))

    def _bounded(self, name: str, when: Any, seconds: float) -> float:
        if seconds > LONGEST:
            raise ValueError(f"{name}={when!r}: choose a time within {LONGEST:g} seconds")
        return seconds


def read(message: Submit, answer: Accepted) -> str:
    """The id that an answer to a submit gives."""
    if answer.known and not answer.same:
        log.warning(_HELD, message.call.key, text_of(answer.id), _NOTHING_NEW)
    return text_of(answer.id)


def _digest(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The same for equal calls, in every process."""
    same = pack([_ordered(list(args)), _ordered(kwargs)])
    return hashlib.blake2b(name.encode() + b"\0" + same, digest_size=16).digest()


def _ordered(value: Any) -> Any:
    """A value with the parts that have no order in one order; of Python's own containers."""
    kind = class_of(value)
    if kind is dict:
        return ["dict", sorted((pack(_ordered(key)), pack(_ordered(part))) for key, part in value.items())]
    if kind is set or kind is frozenset:
        return [kind.__name__, sorted(pack(_ordered(part)) for part in value)]
    if kind is list or kind is tuple:
        return [kind.__name__, [_ordered(part) for part in value]]
    return value


def split(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """An item of a submit_many as arguments: a dict by name, a tuple in order, else one."""
    if isinstance(item, dict):
        return (), item  # pyright: ignore[reportUnknownVariableType]
    return (item, {}) if isinstance(item, tuple) else ((item,), {})  # pyright: ignore[reportUnknownVariableType]


class Ahead(Generic[T]):
    """An iterator whose next item can be made before it is asked for."""

    def __init__(self, items: Iterator[T]) -> None:
        self._items = items
        self._made: list[T] = []
        self._error: Exception | None = None

    def make(self) -> None:
        """Make the next one now. An exception in that is raised when it is asked for."""
        if self._made or self._error is not None:
            return
        try:
            self._made.append(next(self._items))
        except Exception as error:
            self._error = error

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        self.make()
        if self._error is not None:
            raise self._error
        return self._made.pop()


class ManyResults:
    """What became of the items of a submit_many. Its parts go one after another, as request `req`."""

    def __init__(self, req: int) -> None:
        self._req = req
        self.ids: list[str | None] = []
        self.errors: dict[int, Exception] = {}

    def parts(
        self, submitter: Submitter, udf: UDF[..., Any], items: Iterable[Any]
    ) -> Iterator[list[tuple[int, Submit]]]:
        """Messages in parts; an item that can't be submitted is noted and left out.

        Raises: TypeError for what is one call, or no iterable at all.
        """
        kind = type(items).__name__
        if isinstance(items, dict | str | bytes) or not hasattr(items, "__iter__"):
            raise TypeError(
                f"submit_many takes a list of calls, not a {kind}: each item is a dict, a tuple or one "
                "argument; for one call use submit"
            )
        part: list[tuple[int, Submit]] = []
        size = 0
        for item in items:
            index = len(self.ids)
            self.ids.append(None)
            try:
                args, kwargs = split(item)
                message = submitter.submit(udf, args, kwargs, self._req)
            except Exception as error:
                self.errors[index] = error
                continue
            weight = len(message.call.args or b"")
            if len(part) >= PART_ITEMS or (part and size + weight > PART_BYTES):
                yield part
                part, size = [], 0
            part.append((index, message))
            size += weight
        if part:
            yield part

    def stow(
        self, part: list[tuple[int, Submit]], submitter: Submitter, storage: str, folder: str
    ) -> list[tuple[int, Submit]]:
        """A part with its large arguments in the storage; what can't be put there is noted and left out.
        Blocks."""
        stowed: list[tuple[int, Submit]] = []
        for index, message in part:
            try:
                if submitter.is_large(message):
                    message = submitter.stow(message, storage, folder)
                stowed.append((index, message))
            except Exception as error:
                self.errors[index] = error
        return stowed

    def message(self, part: list[tuple[int, Submit]]) -> SubmitMany:
        """The request that submits a part."""
        return SubmitMany(self._req, tuple(message for _, message in part))

    def take(self, part: list[tuple[int, Submit]], results: tuple[Accepted | Refusal, ...]) -> None:
        """Note the answers to a part."""
        held = [
            (message, result)
            for (_, message), result in zip(part, results, strict=False)
            if isinstance(result, Accepted) and result.known and not result.same
        ]
        if len(held) == 1:
            read(*held[0])  # which says so
        elif held:
            (message, first), count = held[0], len(held)
            what = f"so it is with {count} of these {len(part)}, whose holders' ids were returned"
            log.warning(_HELD, message.call.key, text_of(first.id), what)
        for (index, _), result in zip(part, results, strict=False):
            if isinstance(result, Accepted):
                self.ids[index] = text_of(result.id)
            else:
                self.errors[index] = error_of(result)
        for index, _ in part[len(results) :]:  # the queue closed while the rest waited for room
            last = results[-1] if results else None
            self.errors[index] = (
                error_of(last) if isinstance(last, Refusal) else Refused("the rest was not submitted")
            )

    def refused(self, part: list[tuple[int, Submit]], error: Refused) -> None:
        """A part was refused as a whole."""
        self.errors |= dict.fromkeys((index for index, _ in part), error)

    def done(self) -> list[str]:
        """All ids, or `SubmitErrors`."""
        if self.errors:
            raise SubmitErrors(self.ids, self.errors)
        return [id for id in self.ids if id is not None]
