"""Kinds of seeds: how long a program is, and what happens in it how often."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from lakeshore.core.credit import Limits

from .program import ALIASES, MAKERS, Step

_WORK = {
    "submit": 20, "end": 22, "give": 12, "hire": 5, "lose": 2, "drain": 1, "interrupt": 1, "leave": 1,
    "kill": 4, "wait": 4, "get": 2, "retry": 2, "drop": 3, "follow": 4, "consume": 3, "advance": 5,
}  # fmt: skip
_STORE = {"hold": 3, "commit": 6, "release": 4, "fail": 1, "hold_reads": 1, "read": 2, "release_reads": 2}
_LINKS = {"slow": 3, "deliver": 5, "fast": 4, "cut": 2, "arrive": 2, "notice": 2, "again": 3, "resume": 3}
_HEAD = {"stall": 2, "turn": 8, "go": 2, "crash": 1, "jump": 1}
_ADMIN = {
    "add_queue": 3,
    "patch": 2,
    "shift": 3,
    "remove": 1,
    "bulk": 1,
    "prune": 1,
    "why": 1,
    "list_jobs": 1,
}
_FAR = {"sever": 10, "half": 1, "dial": 5}
_AWAY = {
    "hire_far": 8, "sever_worker": 7, "half_worker": 1, "sever_beats": 2, "mute": 2, "freeze": 2, "thaw": 3,
    "die": 3, "drain_far": 1, "remove_far": 1, "deaf": 1, "dial": 4, "end": 24, "give": 14, "hire": 2,
}  # fmt: skip
_TOPICS = {"post": 8, "follow_topic": 4, "close_topic": 1, "remove_topic": 1}


class Profile(NamedTuple):
    """One kind of seeds.

    Attributes:
        steps: at least and at most how many.
        weights: how often each step comes.
        first: steps that a program begins with.
        options: of the plane.
    """

    steps: tuple[int, int]
    weights: dict[str, int]
    first: tuple[tuple[str, dict[str, Any]], ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


PROFILES: dict[str, Profile] = {
    "tiny": Profile((5, 30), _WORK | _STORE | _HEAD | _LINKS),
    "store": Profile((40, 90), _WORK | _STORE | _HEAD | {"many": 3, "repeat": 2}),
    "links": Profile((40, 90), _WORK | _LINKS | {"hold": 1, "release": 3, "many": 2, "crash": 1}),
    "keys": Profile(
        (30, 80),
        {**_WORK, "submit": 40, "many": 6, "retry": 6, "kill": 6, "again": 3, "cut": 2, "prune": 3}
        | _STORE
        | {"crash": 2, "shift": 2, "turn": 3, "stall": 1, "go": 2},
    ),
    "full": Profile(
        (40, 90),
        {**_WORK, "submit": 40, "many": 4, "drop": 10, "patch": 2, "shift": 1, "cut": 2, "notice": 2}
        | {"hold": 2, "commit": 4, "release": 4, "slow": 2, "deliver": 3, "fast": 4, "crash": 1},
        (
            ("patch", {"max_depth": 2, "on_full": "block", "queue": "default"}),
            ("add_queue", {"max_depth": 1, "queue": "a", "kind": "priority"}),
        ),
    ),
    "queues": Profile(
        (50, 110),
        _WORK | {k: 2 * v for k, v in _ADMIN.items()} | {"hold": 2, "commit": 2, "release": 4, "crash": 1},
    ),
    "streams": Profile(
        (40, 100),
        {
            **_WORK,
            **_LINKS,
            **_STORE,
            "give": 40,
            "follow": 12,
            "consume": 12,
            "resume": 6,
            "crash": 1,
            "repeat": 3,
        },
    ),
    "orders": Profile(
        (40, 90),
        {"submit": 40, "many": 5, "end": 24, "hire": 6, "lose": 2, "leave": 1, "kill": 3, "advance": 3}
        | {"hold": 2, "commit": 4, "release": 3, "crash": 1, "stall": 1, "turn": 5, "go": 2, "drain": 1},
        (
            ("add_queue", {"queue": "a", "kind": "filo"}),
            ("add_queue", {"queue": "b", "kind": "priority"}),
            ("add_queue", {"queue": "c", "kind": "boltzmann", "temperature": 0.0}),
            ("hire", {"slots": 1, "queues": "a"}),
            ("hire", {"slots": 1, "queues": "b c"}),
        ),
    ),
    "stale": Profile(
        (30, 70),
        {"flaky": 10, "hire": 3, "end": 20, "give": 8, "repeat": 14, "lose": 1, "drain": 1, "wait": 2}
        | {"follow": 2, "slow": 2, "deliver": 2, "fast": 3, "hold": 2, "commit": 3, "release": 3}
        | {"advance": 4, "kill": 2, "stall": 1, "turn": 3, "go": 2},
    ),
    "resends": Profile(
        (30, 70),
        {"submit": 20, "again": 14, "slow": 8, "deliver": 5, "fast": 2, "cut": 8, "arrive": 8, "notice": 4}
        | {"hold": 3, "commit": 4, "release": 3, "hold_reads": 2, "read": 3, "release_reads": 2, "end": 12}
        | {"hire": 4, "crash": 3, "many": 2, "advance": 2, "wait": 2, "drop": 2, "prune": 1},
    ),
    "losses": Profile(
        (30, 70),
        {"submit": 8, "hire": 14, "lose": 14, "drain": 2, "leave": 2, "interrupt": 2, "end": 6, "give": 6}
        | {"follow": 2, "kill": 2, "slow": 2, "fast": 3, "hold": 2, "commit": 2, "release": 3, "crash": 2}
        | {"wait": 2, "advance": 3, "repeat": 4},
    ),
    "trim": Profile(
        (40, 100),
        {**_WORK, "give": 40, "follow": 12, "consume": 12, "resume": 8, "hold_reads": 3, "read": 4}
        | {"release_reads": 3, "hold": 1, "commit": 2, "release": 2, "crash": 1, "slow": 2, "fast": 3}
        | {"post": 10, "follow_topic": 5},
        options=(("journal_bytes", 80),),
    ),
    "topics": Profile(
        (40, 90), _TOPICS | _STORE | _LINKS | {"consume": 8, "advance": 2, "crash": 1, "drop": 2}
    ),
    "far": Profile(
        (30, 80),
        _WORK
        | _FAR
        | {"hold": 2, "commit": 4, "release": 3, "slow": 2, "deliver": 4, "fast": 4, "cut": 1}
        | {
            "arrive": 3,
            "notice": 3,
            "crash": 1,
            "many": 3,
            "post": 4,
            "follow_topic": 2,
            "stall": 1,
            "turn": 4,
        }
        | {"go": 1, "hold_reads": 1, "read": 2, "release_reads": 1},
        options=(("far", (0, 1, 2)),),
    ),
    "credit": Profile(
        (30, 80),
        {**_WORK, "submit": 30, "wait": 12, "kill": 6, "drop": 6}
        | _FAR
        | {"many": 6, "post": 6, "follow_topic": 2, "hold": 2, "commit": 4, "release": 3, "crash": 1}
        | {"slow": 2, "deliver": 3, "fast": 3, "arrive": 2, "notice": 2},
        options=(("far", (0, 1, 2)), ("limits", Limits(requests=3, bytes=5000, waits=4))),
    ),
    "turns": Profile(
        (30, 80),
        {**_WORK, "submit": 40, "many": 6, "drop": 6, "kill": 6}
        | _FAR
        | {"patch": 2, "shift": 1, "hold": 2, "commit": 4, "release": 4, "slow": 2, "deliver": 3, "fast": 4}
        | {"crash": 1, "arrive": 3, "notice": 3},
        (
            ("patch", {"max_depth": 2, "on_full": "block", "queue": "default"}),
            ("add_queue", {"max_depth": 1, "queue": "a", "kind": "priority", "on_full": "block"}),
        ),
        options=(("far", (1, 2)),),
    ),
    "readers": Profile(
        (40, 90),
        {"submit": 8, "give": 30, "end": 6, "hire": 4, "follow": 10, "consume": 14, "post": 12, "wait": 2}
        | {"follow_topic": 6, "close_topic": 1, "remove_topic": 1, "drop": 2, "advance": 3}
        | _FAR
        | {"hold": 2, "commit": 4, "release": 3, "slow": 2, "deliver": 3, "fast": 3, "crash": 1, "arrive": 2}
        | {"notice": 2, "hold_reads": 1, "read": 2, "release_reads": 1},
        options=(("far", (0, 1, 2)), ("journal_bytes", 400)),
    ),
    "leases": Profile(
        (30, 80),
        _WORK
        | _AWAY
        | {"hold": 2, "commit": 3, "release": 3, "slow": 2, "deliver": 4, "fast": 4, "repeat": 2}
        | {"arrive": 3, "notice": 3, "advance": 14},
    ),
    "adoption": Profile(
        (30, 80),
        _WORK
        | _AWAY
        | {
            "hold": 2,
            "commit": 3,
            "release": 3,
            "slow": 2,
            "deliver": 4,
            "fast": 4,
            "crash": 6,
            "hire_near": 2,
        }
        | {"arrive": 3, "notice": 3, "advance": 14, "sever": 2, "dial": 4},
        options=(("far", (1,)),),
    ),
    "takeover": Profile(
        (30, 80),
        _WORK
        | _AWAY
        | _FAR
        | {"takeover": 5, "see": 5, "hire_near": 5, "hold": 2, "commit": 3, "release": 3}
        | {"slow": 1, "deliver": 2, "fast": 2, "crash": 1, "arrive": 2, "notice": 2, "post": 3, "many": 2},
        options=(("far", (1, 2)),),
    ),
    "shut": Profile(
        (20, 60),
        _WORK
        | _FAR
        | {"revoke": 3, "many": 2, "post": 3, "hold": 2, "commit": 3, "release": 3, "slow": 2}
        | {"deliver": 3, "fast": 3, "crash": 1, "arrive": 2, "notice": 2},
        options=(("far", (0, 1, 2)), ("tokens", True)),
    ),
    "power": Profile((30, 80), _WORK | _STORE | _HEAD | {"power": 3, "again": 2, "many": 2}),
    "long": Profile((200, 300), _WORK | _STORE | _LINKS | _HEAD | _ADMIN | _TOPICS),
}
_SHARES = {
    "tiny": 8, "store": 3, "links": 3, "keys": 3, "full": 3, "queues": 2, "streams": 2, "topics": 1,
    "trim": 2, "losses": 1, "stale": 2, "resends": 2, "orders": 2, "power": 1, "long": 1,
}  # fmt: skip
_FAR_SHARES = {
    "far": 3, "credit": 2, "turns": 2, "readers": 2, "leases": 4, "adoption": 3, "takeover": 3, "shut": 1,
}  # fmt: skip
_DEFAULTS: dict[str, Any] = {"retention": 120.0, "journal_bytes": 1 << 20}


def write(seed: int, profile: str | None = None, steps: int | None = None) -> tuple[str, list[Step]]:
    """The program of a seed: its profile, and its steps."""
    chance = random.Random(seed)
    shares = _FAR_SHARES if seed % 3 == 2 else _SHARES
    drawn = chance.choices(list(shares), list(shares.values()))[0]
    chosen = profile or drawn
    kind = PROFILES[chosen]
    count = chance.randint(*kind.steps) if steps is None else steps
    names = chance.choices(list(kind.weights), list(kind.weights.values()), k=count)
    program = [
        *kind.first,
        ("hire", MAKERS["hire"](chance)),
        *((ALIASES.get(n, n), MAKERS[n](chance)) for n in names),
    ]
    return chosen, [Step(number, *step) for number, step in enumerate(program, 1)]


def options(profile: str) -> dict[str, Any]:
    """What the plane of a profile is made with."""
    return _DEFAULTS | dict(PROFILES[profile].options)
