"""Messages as a liar may send them: the right types, and any values."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
from msgspec import inspect

from lakeshore.core import framing
from lakeshore.core.ids import IdMaker
from lakeshore.core.rows import Failure
from lakeshore.core.values import pack, pack_call

_id = IdMaker(lambda: 1_700_000_000_000, lambda size: b"\7" * size)
IDS = [_id() for _ in range(12)]
WORKERS = [_id() for _ in range(3)]
QUEUES = ["default", "full", "priority", "drawn", "gone"]
TOPICS = ["news", "closed", "other"]
LIMIT = 4096  # payload, bytes

Make = Callable[[random.Random], Any]


def _one(*values: Any) -> Make:
    return lambda chance: chance.choice(values)


def _between(least: int, most: int) -> Make:
    return lambda chance: chance.randint(least, most)


def _some(**fields: Make) -> Make:
    return lambda chance: {name: make(chance) for name, make in fields.items() if chance.random() < 0.4}


def _tuple(make: Make) -> Make:
    return lambda chance: tuple(make(chance) for _ in range(chance.choice((0, 1, 1, 2))))


def _rarely(make: Make) -> Make:
    return lambda chance: make(chance) if chance.random() < 0.2 else None


def _plain(chance: random.Random, depth: int = 3) -> Any:
    kind = chance.randrange(8 if depth else 6)
    if kind == 6:
        return [_plain(chance, depth - 1) for _ in range(2)]
    if kind == 7:
        return {name: _plain(chance, depth - 1) for name in ("a", "b")}
    return chance.choice((None, True, (1 << 64) - 1, 0.5, "text", b"bytes"))


_ADMISSION = {
    "max_depth": _one(None, 0, 1, 2, -1, 1 << 62, (1 << 64) - 1),
    "on_full": _one("reject", "block", "block", "drop"),
    "rate_limit": _one(None, 1.0, 5e-324, 1e300, 0.0, float("nan")),
    "deadline_cutoff_s": _one(None, 1.0, 1e300, 0.0, float("inf")),
    "max_running": _one(None, 0, 1, (1 << 64) - 1),
    "max_bytes": _one(None, 0, 1, 10_000),
}
_ELASTIC = {
    "min": _one(None, 0, 1, 3, -1, 1 << 40),
    "max": _one(None, 0, 2, (1 << 64) - 1),
    "threshold": _one(None, 0.0, 0.5, 2.0, float("nan")),
}
_SETTINGS = {
    "kind": _one("fifo", "filo", "priority", "boltzmann", "lifo", ""),
    "temperature": _one(1.0, 0.0, 1e-300, 1e12, 1e300, -1.0, float("nan")),
    "seed": _one(None, 1, -(1 << 63), (1 << 64) - 1),
    "description": _one("", "text"),
    "provider": _one(None, "", "mine"),
    "template": _one(None, {"slots": 1}, {"x": [{"y": b"z"}]}),
    "retention": _one(None, 0.0, 1e11, 1e300, -1.0, float("nan")),
}
_ELSEWHERE = {
    **{(kind, "name"): _one(*TOPICS) for kind in ("Post", "CloseTopic", "FollowTopic", "RemoveTopic")},
    ("Submit", "function"): _one(None),
}
_LIKELY: dict[str, Make] = {  # by the name of a field: what makes sense there
    "req": _between(0, 12),
    "id": _one(*IDS),
    "new_id": _one(*IDS),
    "before": _rarely(_one(*IDS)),
    "worker": _one(*WORKERS),
    "attempt": _one(1, 1, 1, 2, 3),
    "queue": _one(*QUEUES),
    "name": _one(*QUEUES),
    "queues": _tuple(_one(*QUEUES)),
    "args": _one(pack_call((1,), {}), pack_call((b"x" * 2000,), {})),
    "data": _one(pack(1), pack("text"), b"\x92\x01\x02"),
    "result": _one(None, pack(1), pack(b"x" * 2000)),
    "error": lambda chance: None if chance.random() < 0.5 else maker(Failure)(chance),
    "at": _one(1e9),
    "move": _one(
        "succeed", "succeed", "fail", "kill", "expire", "drain", "pause", "resume", "archive", "unarchive"
    ),
    "states": _tuple(_one("queued", "killed", "active", "none")),
    "settings": _some(
        **_SETTINGS,
        admission=_some(**_ADMISSION),
        elasticity=_some(kind=_one("fixed", "max_count", "none"), **_ELASTIC),
        unknown=_plain,
    ),
    "changes": _some(
        **_SETTINGS, **_ADMISSION, **_ELASTIC, elasticity=_rarely(_plain), other=_rarely(_plain)
    ),
    "config": _some(key=_plain),
    "kind": _one("sync", "generator"),
    "retries": _between(0, 2),
    "retry_delay": _one(1.0),
    "retry_cap": _one(2.0),
    "timeout": _one(None, 1.0),
    "priority": _one(0.0, 1.0, -5.0),
    "delay": _one(None, None, 0.0, 5.0),
    "deadline": _one(None, None, 0.0, 5.0),
    "key": _one("", "", "one", "two"),
    "digest": _one(b"", b"d" * 16),
    "local": _one("hand:f"),
    "value": _one(b""),
    "parent": _one(None),
    "retry_of": _one(None),
    "slots": _between(1, 4),
    "count": _one(1, 1, 2),
    "index": _one(0, 0, 1, 2, 3),
    "credit": _one(0, 1, 100),
    "frames": _one(0, 1, 100),
    "room": _one(1, 1 << 20),
    "since": _between(-1, 3),
    "limit": _one(1, 50),
    "offset": _between(0, 3),
    "older_than": _one(None, 0.0, 60.0),
    "publisher": _one(b"", IDS[0]),
    "number": _between(0, 3),
    "settled": _between(0, 3),
    "hash": _one(b"h" * 32, b"h" * 16),
    "token_role": _one("read", "admin", "root"),
    "after": _one(None, 0.0, 5.0),
    "seconds": _one(0.0, 0.1),
    "cause": _one(None),
    "leaves": _one(()),
}
_WILD: dict[type, Make] = {
    inspect.BoolType: _one(False, True),
    inspect.IntType: _one(0, 1, 3, -1, -(1 << 63), 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1),
    inspect.FloatType: _one(
        0.0, 0.5, 60.0, -1.0, 1e11, 1e300, -1e300, 5e-324, float("inf"), -float("inf"), float("nan")
    ),
    inspect.StrType: _one("", "x", "a name", "\0", "é" * 300, "A" * 26, "0" * 26, *QUEUES, *TOPICS),
    inspect.BytesType: _one(
        b"", b"\0", b"\xff" * 16, b"\0" * 16, b"x" * 17, b"x" * 2000, b"x" * (LIMIT + 1), b"\xc1", *IDS
    ),
    inspect.NoneType: _one(None),
    inspect.AnyType: _plain,
}


def _of(kind: Any) -> Make:
    if type(kind) in _WILD:
        return _WILD[type(kind)]
    if isinstance(kind, inspect.UnionType):
        several = [_of(each) for each in kind.types]
        return lambda chance: chance.choice(several)(chance)
    if isinstance(kind, inspect.VarTupleType):
        return _tuple(lambda chance: _of(kind.item_type)(chance))
    if isinstance(kind, inspect.TupleType):
        parts = [_of(each) for each in kind.item_types]
        return lambda chance: tuple(part(chance) for part in parts)
    if isinstance(kind, inspect.EnumType):
        return _one(*kind.cls)
    if isinstance(kind, inspect.DictType):
        return _some(a=_of(kind.value_type), b=_of(kind.value_type))
    assert isinstance(kind, inspect.StructType), kind
    return lambda chance: maker(kind.cls)(chance)


def _likely(name: str, hint: Any) -> Make | None:
    """What makes sense in a field of that name, if it has the type that most of that name have."""
    make = _LIKELY.get(name)
    try:
        for seed in range(20 if make is not None else 0):
            msgspec.convert(make(random.Random(seed)), hint)  # pyright: ignore[reportOptionalCall]
    except msgspec.ValidationError:
        return None
    return make


def maker(kind: type[msgspec.Struct]) -> Make:
    """Makes messages of a class: nearly all fields make sense, each may be anything of its type."""
    if kind.__name__ not in MAKERS:
        info: Any = inspect.type_info(kind)
        hints = get_type_hints(kind)
        fields = {
            field.name: (_likely(field.name, hints[field.name]), _of(field.type)) for field in info.fields
        }
        for (owner, name), likely in _ELSEWHERE.items():
            if owner == kind.__name__:
                fields[name] = (likely, fields[name][1])

        def make(chance: random.Random) -> Any:
            odd = chance.choice([None, None, *fields])
            values = {
                name: (wild if name == odd or likely is None else likely)(chance)
                for name, (likely, wild) in fields.items()
            }
            return kind(**values)

        MAKERS[kind.__name__] = make
    return MAKERS[kind.__name__]


MAKERS: dict[str, Make] = {}
MESSAGES = {kind: maker(kind) for kind in framing.MESSAGES if kind not in framing.CONTROLS}


def message(kind: type[msgspec.Struct], seed: int) -> Any:
    """A message of a class as a head gets it."""
    made = MESSAGES[kind](random.Random(seed))
    if hasattr(made, "items") and made.items and random.Random(seed).random() < 0.7:
        queue = made.items[0].queue
        items = tuple(msgspec.structs.replace(item, req=made.req, queue=queue) for item in made.items)
        made = msgspec.structs.replace(made, items=items)
    return decoded(made)


def decoded(made: Any) -> Any:
    """The same after its way over a link."""
    return framing.Decoder().feed(b"".join(framing.encode([made])))[0]
