"""A path whose host is killed: how long until the next call is answered by another process."""

from __future__ import annotations

import json
import statistics
import time

from cast import Cast, cast
from setting import Figures, Setting

ROUNDS = 5


def takeover(setting: Setting) -> Figures:
    """Kill the host of n live invocations; a program calls at once. Alone, then with a worker there."""
    rounds = min(ROUNDS, setting.n)
    with cast(setting) as players:
        times = {
            "s": [_round(players, setting, working=False) for _ in range(rounds)],
            "worker s": [_round(players, setting, working=True) for _ in range(rounds)],
        }
    figures = {name: statistics.median(taken) for name, taken in times.items()}
    return figures | {f"worst {name}": max(taken) for name, taken in times.items()}


def _round(players: Cast, setting: Setting, *, working: bool) -> float:
    given = (setting.loop, setting.address, setting.sync)
    host = players.play("hold", *given, setting.n)
    host.until("ready")
    caller = players.play("call", *given)
    caller.until("ready")
    others = [players.worker(setting.address, 1)] if working else []
    killed = time.monotonic()  # one clock for all processes of a machine
    host.kill()
    caller.tell("call")
    answer = json.loads(caller.until("{"))
    if answer["pid"] == host.pid or answer["queued"] != setting.n:
        raise AssertionError(f"the wrong plane answered: {answer}")
    for player in (*others, caller):
        player.kill()
    return answer["at"] - killed
