"""An exception as data: `describe` never raises, whatever the exception's own methods do."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .rows import Failure

_MESSAGE, _TRACEBACK = 16 << 10, 64 << 10  # most bytes of the exception itself
_INNER_MESSAGE, _INNER_TRACEBACK = 4 << 10, 8 << 10  # and of each cause and leaf
_CAUSES, _LEAVES, _NOTES = 16, 64, 64
_ALL_NOTES, _INNER_ALL_NOTES = 64 << 10, 8 << 10  # bytes of all notes of one exception
_VISITS = 1024  # how many members of groups are looked at
_NURSERIES = ("unhandled errors in a TaskGroup", "Exceptions from Trio nursery")  # each loop's words


def describe(exc: BaseException, *, skip_frames: int = 0) -> Failure:
    """An exception as data that can be stored and sent.

    Args:
        exc: what was raised.
        skip_frames: how many outermost traceback entries are ours and left out, so that the first
            is the user's own.

    Returns: type as `module.qualname`, message (at most 16 KiB), notes (at most 64 KiB in all), the
        formatted traceback with its causes (at most 64 KiB, cut in the middle with a mark, as is the
        message), the cause or, unless suppressed, the context, and so on (at most 16), and the leaves
        of an exception group (at most 64). Causes and leaves are shorter: 4 KiB and 8 KiB. All text can
        be encoded as UTF-8.
    Raises: nothing.
    """
    trace = _ask(lambda: exc.__traceback__)
    for _ in range(skip_frames):
        trace = trace.tb_next if isinstance(trace, TracebackType) else None
    chain = [exc, *_causes(exc)]
    cause: Failure | None = None
    for link in reversed(chain[1:]):
        cause = _short(link, cause)
    return Failure(
        type=_type_name(exc),
        message=_cut(_message(exc), _MESSAGE),
        traceback=_cut(_format(exc, trace, chain=True), _TRACEBACK),
        notes=_notes(exc, _MESSAGE, _ALL_NOTES),
        cause=cause,
        leaves=tuple(_short(leaf, None) for leaf in _leaves(exc)),
    )


def _short(exc: BaseException, cause: Failure | None) -> Failure:
    trace = _ask(lambda: exc.__traceback__)
    return Failure(
        type=_type_name(exc),
        message=_cut(_message(exc), _INNER_MESSAGE),
        traceback=_cut(_format(exc, trace, chain=False), _INNER_TRACEBACK),
        notes=_notes(exc, _INNER_MESSAGE, _INNER_ALL_NOTES),
        cause=cause,
    )


def _ask(question: Callable[[], Any]) -> Any:
    """The answer, or None where the exception's own code fails, in whatever way."""
    try:
        return question()
    except BaseException:  # even a SystemExit: it is raised by a bad __str__, not by anyone who means us
        return None


def _type_name(exc: BaseException) -> str:
    kind = type(exc)
    module = _ask(lambda: type.__dict__["__module__"].__get__(kind))
    name = type.__dict__["__qualname__"].__get__(kind)
    return _cut(f"{module}.{name}" if isinstance(module, str) else name, 1 << 10)


def _text(value: object) -> str:
    text = _ask(lambda: "".join(["", str(value)]))  # a plain str, whatever __str__ gave
    return text if text is not None else f"<unprintable {_plain_name(value)}>"


def _message(exc: BaseException) -> str:
    """Its text; of a task group's errors, the same on every event loop."""
    text = _text(exc)
    if isinstance(exc, BaseExceptionGroup):
        for words in _NURSERIES:
            if text.startswith(words):
                return "errors in a task group" + text[len(words) :]
    return text


def _plain_name(value: object) -> str:
    return type.__dict__["__name__"].__get__(type(value))


def _notes(exc: BaseException, limit: int, room: int) -> tuple[str, ...]:
    notes = _ask(lambda: exc.__notes__)
    several = issubclass(type(notes), list | tuple)
    listed = _ask(lambda: list(notes[:_NOTES])) if several else [] if notes is None else [notes]
    kept: list[str] = []
    for note in listed or ():
        text = _cut(_text(note), limit)
        room -= len(text.encode())
        if room < 0:
            kept.append("… more notes were left out …")
            break
        kept.append(text)
    return tuple(kept)


def _format(exc: BaseException, trace: TracebackType | None, *, chain: bool) -> str:
    whole = _ask(lambda: "".join(traceback.format_exception(type(exc), exc, trace, chain=chain)))
    if whole is not None:
        return whole
    frames = _ask(lambda: "".join(traceback.format_tb(trace))) or ""
    head = "Traceback (most recent call last):\n" if frames else ""
    return f"{head}{frames}{_type_name(exc)}: {_text(exc)}\n"


def _causes(exc: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    seen = {id(exc)}
    while len(found) < _CAUSES:
        now = found[-1] if found else exc
        cause = _ask(lambda now=now: now.__cause__)
        if cause is None and not _ask(lambda now=now: now.__suppress_context__):
            cause = _ask(lambda now=now: now.__context__)
        if not isinstance(cause, BaseException) or id(cause) in seen:
            break
        seen.add(id(cause))
        found.append(cause)
    return found


def _leaves(exc: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    if not isinstance(exc, BaseExceptionGroup):
        return found
    todo: list[Any] = [exc]
    for _ in range(_VISITS):
        if not todo or len(found) == _LEAVES:
            break
        item = todo.pop()
        if issubclass(type(item), BaseExceptionGroup):
            members = _ask(lambda item=item: list(item.exceptions[:_VISITS]))
            todo.extend(reversed(members or []))
        elif issubclass(type(item), BaseException):
            found.append(item)
    return found


def _cut(text: str, limit: int) -> str:
    """`text` as it can be encoded, at most `limit` bytes, and a mark where its middle was."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    half = limit // 2 - 32  # room for the mark
    start, end = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{start}\n… {len(data) - 2 * half} bytes cut …\n{end}"
