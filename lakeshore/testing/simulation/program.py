"""Programs: lists of steps, written from a seed before anything runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

from .steps import QUEUES


class Step(NamedTuple):
    """One step: which number it had in its program, its name and its arguments."""

    number: int
    name: str
    args: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.args.items())})"


Maker = Callable[[random.Random], dict[str, Any]]


def _submit(r: random.Random) -> dict[str, Any]:
    step: dict[str, Any] = {"client": r.randrange(3), "queue": r.choice(QUEUES[: r.choice((1, 2, 4))])}
    if r.random() < 0.3:
        step["fn"] = r.choice("ggvw")
    if r.random() < 0.35:
        step["key"] = r.choice("klm")
        step["strict"] = r.random() < 0.2
    if r.random() < 0.5:
        step["priority"] = float(r.randint(0, 2))
    if r.random() < 0.15:
        step["delay"] = r.choice((0.0, 1.0, 50.0))
    if r.random() < 0.15:
        step["deadline"] = r.choice((5.0, 100.0))
    if r.random() < 0.3:
        step |= {"retries": r.randint(1, 2), "retry_delay": r.choice((0.0, 3.0))}
    if r.random() < 0.15:
        step["timeout"] = 4.0
    if r.random() < 0.15:
        step["size"] = 2000
    return step


def _flaky(r: random.Random) -> dict[str, Any]:
    """Soon tried again."""
    step = {"client": r.randrange(3), "queue": "default", "retries": 2, "retry_delay": 0.0}
    return step | ({"timeout": 4.0} if r.random() < 0.2 else {})


def _many(r: random.Random) -> dict[str, Any]:
    step = _submit(r)
    step.pop("key", None)
    count = r.randint(1, 5)
    keys = "".join(r.choice("   kl") for _ in range(count)) if r.random() < 0.4 else ""
    return step | {"count": count, "keys": keys}


def _job(r: random.Random) -> dict[str, Any]:
    return {"client": r.randrange(3), "job": int(r.expovariate(0.3))}


def _kill(r: random.Random) -> dict[str, Any]:
    return _job(r) | {"running": r.random() < 0.5}


def _follow(r: random.Random) -> dict[str, Any]:
    return _job(r) | {"since": r.choice((0, 0, 0, 1, 5)), "credit": r.choice((1, 5, 1000))}


def _client(r: random.Random) -> dict[str, Any]:
    return {"client": r.randrange(3), "which": r.randrange(8)}


def _settings(r: random.Random) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if r.random() < 0.5:
        settings["max_depth"] = r.choice((1, 2, 4))
        settings["on_full"] = r.choice(("reject", "block", "block"))
    if r.random() < 0.3:
        settings["max_running"] = r.choice((1, 2))
    if r.random() < 0.15:
        settings["rate_limit"] = r.choice((1.0, 3.0))
    return settings


def _add(r: random.Random) -> dict[str, Any]:
    step: dict[str, Any] = {"client": r.randrange(3), "queue": r.choice(QUEUES[1:])}
    step["kind"] = r.choice(("fifo", "filo", "priority", "priority", "boltzmann"))
    if step["kind"] == "boltzmann":
        step["temperature"] = r.choice((0.0, 1.0))
    if r.random() < 0.2:
        step["deadline_cutoff_s"] = r.choice((2.0, 30.0))
    if r.random() < 0.2:
        step["retention"] = r.choice((20.0, 1000.0))
    return step | _settings(r)


def _patch(r: random.Random) -> dict[str, Any]:
    changes = _settings(r) or {"max_depth": None, "max_running": None}
    return {"client": r.randrange(3), "queue": r.choice(QUEUES)} | changes


def _shift(r: random.Random) -> dict[str, Any]:
    moves = ("pause", "resume", "resume", "drain", "archive", "unarchive", "unarchive")
    return {"client": r.randrange(3), "queue": r.choice(QUEUES), "move": r.choice(moves)}


def _remove(r: random.Random) -> dict[str, Any]:
    return {"client": r.randrange(3), "queue": r.choice(QUEUES), "force": r.random() < 0.8}


def _bulk(r: random.Random) -> dict[str, Any]:
    return {"client": r.randrange(3), "queue": r.choice((None, "default"))}


def _prune(r: random.Random) -> dict[str, Any]:
    return {"client": r.randrange(3), "older_than": r.choice((None, 0.0, 10.0))}


def _hire(r: random.Random) -> dict[str, Any]:
    step: dict[str, Any] = {"slots": r.randint(1, 3)}
    if r.random() < 0.4:
        step["queues"] = " ".join(sorted(set(r.choices(QUEUES, k=r.randint(1, 2)))))
    if r.random() < 0.2:
        step["unknown"] = "g"
    if r.random() < 0.15:
        step["quiet"] = True
    elif r.random() < 0.1:
        step |= {"slots": 1, "quiet": True, "limit": 1}
    return step


def _which(r: random.Random) -> dict[str, Any]:
    return {"which": r.randrange(8)}


def _end(r: random.Random) -> dict[str, Any]:
    how = r.choice(("finish", "finish", "fail", "fail", "refuse", "anyway"))
    return {"which": r.randrange(8), "how": how} | ({"size": 3000} if r.random() < 0.1 else {})


def _sever(r: random.Random) -> dict[str, Any]:
    step = {"up": r.choice((0, 0, 1, 2, 9)), "down": r.choice((0, 0, 1, 2, 9)), "noticed": r.random() < 0.5}
    return step | {"back": r.choice((0.0, 0.0, 0.5, 4.0, 12.0, 45.0))}


def _hire_far(r: random.Random) -> dict[str, Any]:
    step = {"slots": r.randint(1, 3), "late": r.choice((0.0, 0.0, 10.0, 20.0))}
    return step | {"queues": r.choice(("", "", "default", "a default")), "unknown": r.choice(("", "", "g"))}


def _topic(r: random.Random) -> dict[str, Any]:
    return {"client": r.randrange(3), "topic": r.randrange(2)}


def _number(name: str, *choices: Any) -> Maker:
    return lambda r: {name: r.choice(choices)}


def _nothing(r: random.Random) -> dict[str, Any]:
    return {}


ALIASES = {"flaky": "submit"}  # makers of steps that have another name
MAKERS: dict[str, Maker] = {
    "submit": _submit,
    "flaky": _flaky,
    "many": _many,
    "again": _client,
    "wait": _job,
    "get": _job,
    "why": _job,
    "kill": _kill,
    "retry": _job,
    "list_jobs": lambda r: {"client": r.randrange(3), "queue": r.choice((None, "a"))},
    "drop": _client,
    "follow": _follow,
    "resume": lambda r: _client(r) | {"credit": r.choice((1, 1000))},
    "consume": lambda r: _client(r) | {"frames": r.randint(1, 9)},
    "post": lambda r: _topic(r) | {"count": r.randint(1, 3)},
    "follow_topic": lambda r: _topic(r) | {"since": r.choice((0, 0, 2)), "credit": r.choice((1, 1000))},
    "close_topic": _topic,
    "remove_topic": _topic,
    "add_queue": _add,
    "patch": _patch,
    "shift": _shift,
    "remove": _remove,
    "bulk": _bulk,
    "prune": _prune,
    "hire": _hire,
    "lose": _which,
    "drain": _which,
    "interrupt": _which,
    "leave": _which,
    "give": lambda r: _which(r) | {"count": r.choice((1, 1, 2, 3))},
    "end": _end,
    "repeat": lambda r: _which(r) | {"report": r.randrange(30)},
    "hold": _nothing,
    "commit": _number("count", 1, 1, 2),
    "release": _nothing,
    "fail": _number("count", 1, 2, 4),
    "hold_reads": _nothing,
    "read": _number("count", 1, 1, 2),
    "release_reads": _nothing,
    "slow": lambda r: {"link": r.randrange(16)},
    "deliver": lambda r: {"link": r.randrange(16), "count": r.choice((1, 1, 2))},
    "fast": lambda r: {"link": r.randrange(16)},
    "cut": lambda r: {"client": r.randrange(3), "noticed": r.random() < 0.5},
    "arrive": lambda r: {"ghost": r.randrange(3), "count": r.choice((1, 2))},
    "notice": lambda r: {"ghost": r.randrange(3)},
    "sever": lambda r: {"client": r.randrange(3), "slowly": r.random() < 0.3} | _sever(r),
    "half": lambda r: {"client": r.randrange(3)},
    "dial": lambda r: {"way": r.randrange(4)},
    "revoke": lambda r: {"client": r.randrange(3)},
    "hire_far": _hire_far,
    "hire_near": lambda r: {"slots": r.randint(1, 2)},
    "sever_worker": lambda r: _which(r) | _sever(r),
    "half_worker": _which,
    "sever_beats": lambda r: _which(r) | {"back": r.choice((0.0, 5.0, 25.0))},
    "mute": lambda r: _which(r) | {"beats": r.random() < 0.6},
    "freeze": _which,
    "thaw": _which,
    "die": lambda r: _which(r) | {"told": r.random() < 0.5, "noticed": r.random() < 0.6},
    "drain_far": lambda r: _which(r) | {"client": r.randrange(3)},
    "remove_far": lambda r: _which(r) | {"client": r.randrange(3)},
    "deaf": _number("seconds", 0.5, 5.0, 40.0, 300.0),
    "takeover": _nothing,
    "see": _nothing,
    "stall": _nothing,
    "turn": _number("limit", 1, 1, 2, 5),
    "go": _nothing,
    "advance": _number("seconds", 0.01, 0.5, 4.0, 4.0, 20.0),
    "jump": _number("seconds", -5000.0, -1.0, 5000.0),
    "crash": lambda r: {"stored": r.random() < 0.5},
    "power": _number("commits", 1, 1, 2, 5),
}
