"""Everybody loses the head at the same instant, and comes back to it, in virtual time.

A thousand workers and two hundred programs with `LAKESHORE_LONG=1`, a quarter of them and of all rates in CI.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections import Counter

import anyio
import pytest
from crowd import LEASE, Crowd, crowd, until

from lakeshore.core import door
from lakeshore.core import messages as m

pytestmark = pytest.mark.anyio

SCALE = 1 if "LAKESHORE_LONG" in os.environ else 4
WORKERS, PROGRAMS = 1000 // SCALE, 200 // SCALE
PEERS = WORKERS + PROGRAMS
SHARE = 0.15  # of all that may dial in any 100 ms


@pytest.fixture
def anyio_backend(virtual: object) -> object:
    return virtual


def busiest(tries: list[float], since: float) -> int:
    """The most that dialled within 100 ms, from then on."""
    tries = sorted(tries)
    first = bisect_left(tries, since)
    return max(bisect_left(tries, at + 0.1) - number for number, at in enumerate(tries[first:], first))


def row_counts(everybody: Crowd) -> Counter[str]:
    assert everybody.server.plane is not None
    space = everybody.server.plane.head.space("default")
    return Counter(str(entry.state) for entry in space.live.values())


async def everybody_works(everybody: Crowd) -> None:
    """Each worker has one job, which it keeps; each program has had its submits answered."""
    for program in everybody.programs:
        for _ in range(WORKERS // PROGRAMS):
            program.submit()
    await until(lambda: row_counts(everybody)["running"] == WORKERS)
    check_answers(everybody)


def check_answers(everybody: Crowd) -> None:
    """Every submit was answered once, with its own id."""
    for program in everybody.programs:
        assert [answer.id for answer in program.answers if type(answer) is m.Accepted] == program.submitted


async def check_nothing_was_lost(everybody: Crowd) -> None:
    await anyio.sleep(3 * LEASE)  # whoever is lost by then is
    check_answers(everybody)
    submitted = [id for program in everybody.programs for id in program.submitted]
    assert row_counts(everybody) == {"running": WORKERS, "queued": len(submitted) - WORKERS}
    for hand in everybody.workers:
        assert len(hand.started) == 1  # nothing was given to another
        assert hand.started[0][1] == 1
    assert everybody.server.plane is not None
    assert len(everybody.server.plane.head.space("default").live) == len(set(submitted))


def check_log(caplog: pytest.LogCaptureFixture) -> None:
    """A peer says what is wrong, and not each time; so does the head, of all of them."""
    said = Counter(record.getMessage() for record in caplog.records)
    assert sum(said.values()) <= 3 * PEERS
    assert max(said.values(), default=0) <= PEERS
    assert all("trying again" in text for text, count in said.items() if count > 1)


@pytest.mark.parametrize(("hellos", "within"), [(100.0 / SCALE, 30.0), (500.0 / SCALE, 12.0)])
async def test_a_restart(
    hellos: float, within: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with crowd(monkeypatch, WORKERS, PROGRAMS) as everybody:
        await everybody_works(everybody)
        server = everybody.server
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lakeshore"):
            for program in everybody.programs[::2]:
                program.submit()  # it is on its way when the head dies
            await server.die()
            for program in everybody.programs:
                program.submit()
            await anyio.sleep(3.0)
            began = anyio.current_time()
            monkeypatch.setattr(door, "_HELLOS", hellos)
            await server.begin()
            await everybody.all_linked()
            took = anyio.current_time() - began
            check_log(caplog)
        assert took <= within
        assert busiest(server.tries, began) <= PEERS * SHARE
        assert server.early == 0
        assert server.hints or hellos > 100.0 / SCALE
        await check_nothing_was_lost(everybody)
        print(f"back within {took:.1f} s, {busiest(server.tries, began)} dialled within 100 ms")
        print(f"{server.hints.total()} hints, {max(server.hints.values(), default=0)} at most for one")


async def test_a_head_that_is_too_busy_to_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with crowd(monkeypatch, WORKERS, PROGRAMS) as everybody:
        await everybody_works(everybody)
        server = everybody.server
        caplog.clear()
        with caplog.at_level(logging.WARNING, "lakeshore"):
            await server.die()
            died = anyio.current_time()
            server.listen()
            for program in everybody.programs:
                program.submit()
            await anyio.sleep(25.0)
            began = anyio.current_time()
            monkeypatch.setattr(door, "_HELLOS", 500.0 / SCALE)
            await server.begin()
            await everybody.all_linked()
            took = anyio.current_time() - began
            check_log(caplog)
        print(f"back within {took:.1f} s, {busiest(server.tries, died + 1.0)} dialled within 100 ms")
        assert took <= 15.0
        assert busiest(server.tries, died + 1.0) <= PEERS * SHARE
        assert server.early == 0
        await check_nothing_was_lost(everybody)
