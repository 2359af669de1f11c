"""Arguments, results and frames as bytes: msgpack with extension types, so what packs unpacks equal.

Nothing is imported because data says so (NumPy, torch and PIL apart, when a value of theirs arrives),
and no constructor runs (the `__post_init__` of a known Struct apart). `extensions` has the types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from msgspec import MsgspecError, Raw, msgpack

from .errors import LakeshoreError, MissingExtra
from .extensions.annotations import classes_in
from .extensions.leaves import ATOMS, HIGH, LOW, CannotTravel, class_of, name_of
from .extensions.reading import built, decode, decode_frames, marks_seen
from .extensions.records import Classes, Record
from .extensions.writing import ready, ready_fields, refuse

__all__ = [
    "NO_ARGUMENTS",
    "MalformedValue",
    "Record",
    "pack",
    "pack_call",
    "pack_frame",
    "pack_frames",
    "pack_prepared_frames",
    "prepare",
    "prepared_size",
    "unpack",
    "unpack_call",
    "unpack_frames",
]

_CALL = (list, list, dict)
_NAMES = frozenset({str})
_SURE = ATOMS - {int, str}  # msgspec takes any of these; an int may be too large, a str too odd
_MALFORMED = (
    "these bytes are not a packed value ({}): they were damaged on the way, or written by something else"
)
_NO_CLASSES: Classes = {}
_encode: Callable[[object], bytes] = msgpack.Encoder().encode
NO_ARGUMENTS = b"\x92\x90\x80"  # what `pack_call` gives for f(): an empty list and an empty map


class MalformedValue(LakeshoreError, ValueError):
    """Bytes that are not a packed value, whatever is wrong with them. Nothing in them was run."""


def pack(value: object, *, path: str = "value") -> bytes:
    """Pack a value into msgpack.

    Args:
        value: None, bool, int, float, str, bytes, bytearray, list, tuple, set, frozenset, dict,
            OrderedDict, range, slice, complex, Decimal, UUID, paths, dates and times, Enums,
            dataclasses, named tuples, `msgspec.Struct`s, `Record`s, NumPy arrays and scalars, torch
            tensors (of any device; they come back on the CPU) and PIL images (what `Image.open` gave
            comes back as a plain `Image`; of its `info`, what is plain). Exactly these types: a
            subclass would not come back as itself. At most 200 levels deep.
        path: what errors call the value.

    Returns: msgpack, to be read by `unpack`.
    Raises: TypeError naming the path to the part that can't travel, and what to do.
    """
    try:
        return _encode(value if class_of(value) in ATOMS else ready(value, 0, ATOMS))
    except (OverflowError, UnicodeEncodeError):
        return _pack_carefully(value, path)
    except (CannotTravel, RecursionError) as error:
        refuse(error, path)


def unpack(data: bytes, *, types: Iterable[Any] = ()) -> Any:
    """Read what `pack` wrote.

    Args:
        data: bytes of `pack`.
        types: annotations (`Cfg`, `list[Cfg]`, `Cfg | None`): the classes they mention are built
            even where they are not imported under their own name.

    Returns: an equal value of the same type; a `Record` for an object of an unknown class.
    Raises: MalformedValue; MissingExtra where NumPy, torch or PIL is needed and not installed.
    """
    try:
        if len(data) == 1:  # None, a flag, a small number
            return decode(data)
        before = next(marks_seen)
        tree = decode(data)
        if next(marks_seen) - before == 1:
            return tree
        return built(tree, classes_in(types) if types else _NO_CLASSES)
    except Exception as error:
        _reject(error)


def pack_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Pack the arguments of a call.

    Args:
        args: the positional ones.
        kwargs: the others, by name.

    Returns: msgpack, to be read by `unpack_call`.
    Raises: TypeError naming the path, such as `args[0].x` or `kwargs.cfg`, as for `pack`.
    """
    try:
        if ATOMS.issuperset(map(type, args)) and ATOMS.issuperset(map(type, kwargs.values())):
            return _encode((args, kwargs))
        return _encode((ready(list(args), 0, ATOMS), ready_fields(kwargs, 0, ATOMS)))
    except (OverflowError, UnicodeEncodeError, CannotTravel, RecursionError):
        pass  # again, one by one, with the right names
    first = [prepare(value, f"args[{i}]") for i, value in enumerate(args)]
    try:
        return _encode((first, {name: prepare(value, f"kwargs.{name}") for name, value in kwargs.items()}))
    except UnicodeEncodeError:
        raise TypeError("the name of a keyword argument is not valid text: rename it") from None


def unpack_call(data: bytes, *, types: Iterable[Any] = ()) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Read what `pack_call` wrote; arguments and errors as for `unpack`.

    Returns: the positional arguments and the others by name.
    """
    if data == NO_ARGUMENTS:
        return (), {}
    call: Any = unpack(data, types=types)
    try:
        args, kwargs = call
        if (type(call), type(args), type(kwargs)) == _CALL and _NAMES.issuperset(map(type, kwargs)):
            return tuple(args), kwargs
    except (TypeError, ValueError):  # not a pair
        pass
    raise MalformedValue(_MALFORMED.format("not the arguments of a call"))


def prepare(value: Any, path: str = "value") -> object:
    """Check one stream frame and make it ready for `pack_prepared_frames`.

    It is a snapshot: when the body changes a list after yielding it, the frame stays.

    Returns: an opaque object; `prepared_size` gives its size.
    Raises: TypeError as for `pack`.
    """
    kind = class_of(value)
    if kind in _SURE:
        return value
    if kind is int:
        if LOW <= value < HIGH:
            return value
    elif kind is str and value.isascii():
        return value
    return Raw(pack(value, path=path))


def prepared_size(prepared: object) -> int:
    """How many bytes a prepared frame takes, at most 9 too many."""
    if isinstance(prepared, (str, bytes)):
        return len(prepared) + 9
    return memoryview(prepared).nbytes if isinstance(prepared, Raw) else 9


def pack_frame(prepared: object) -> bytes:
    """One prepared frame by itself, to be read by `unpack`."""
    return _encode(prepared)


def pack_prepared_frames(times: Sequence[float], prepared: Sequence[object]) -> bytes:
    """A chunk of stream frames.

    Args:
        times: seconds since 1970, one for each frame.
        prepared: what `prepare` gave for each.

    Returns: msgpack, to be read by `unpack_frames`.
    """
    return _encode((times, prepared))


def pack_frames(times: Sequence[float], values: Sequence[object], *, first: int = 0) -> bytes:
    """`prepare` and pack a chunk of frames at once.

    Args:
        times: seconds since 1970, one for each frame.
        values: the yielded values.
        first: the number of the first, for errors.

    Returns: msgpack, to be read by `unpack_frames`.
    Raises: TypeError naming the path, such as `yield[7].x`, as for `pack`.
    """
    try:
        if ATOMS.issuperset(map(type, values)):
            return _encode((times, values))
        return _encode((times, ready(list(values), 0, ATOMS)))
    except (OverflowError, UnicodeEncodeError, CannotTravel, RecursionError):
        pass  # again, one by one, with the right names
    return _encode((times, [prepare(value, f"yield[{i}]") for i, value in enumerate(values, first)]))


def unpack_frames(data: bytes, *, types: Iterable[Any] = ()) -> tuple[list[float], list[Any]]:
    """Read a chunk of frames; arguments and errors as for `unpack`.

    Returns: times in seconds since 1970 and values, two lists of equal length.
    """
    try:
        before = next(marks_seen)
        values: Any
        times, values = decode_frames(data)
        if next(marks_seen) - before != 1:
            values = built(values, classes_in(types) if types else _NO_CLASSES)
        if class_of(values) is not list or len(times) != len(values):
            raise ValueError("frames without their times")
        return times, values
    except Exception as error:
        _reject(error)


def _pack_carefully(value: object, path: str) -> bytes:
    try:
        return _encode(ready(value, 0, _SURE))
    except (CannotTravel, RecursionError) as error:
        refuse(error, path)


def _reject(error: Exception) -> NoReturn:
    if isinstance(error, (MissingExtra, MemoryError)):
        raise error
    detail = str(error) if isinstance(error, MsgspecError) else name_of(type(error))
    raise MalformedValue(_MALFORMED.format(detail)) from error
