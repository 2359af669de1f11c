"""Seeds of the simulation, and what it says of one that fails."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.engine import Engine
from lakeshore.testing import Broken, Simulation, simulate
from lakeshore.testing.simulation.profiles import PROFILES, write
from lakeshore.testing.simulation.program import ALIASES, MAKERS, Step
from lakeshore.testing.simulation.shrink import failure, kind, shrink

SEEDS, PART = 2000, 100


@pytest.fixture(autouse=True)
def fast() -> Iterator[None]:
    """Without the log of what fails on purpose, and without looking for garbage in between."""
    log = logging.getLogger("lakeshore")
    log.disabled = True
    gc.disable()
    yield
    gc.enable()
    log.disabled = False


@pytest.mark.parametrize("first", range(0, SEEDS, PART))
def test_every_promise_holds_from_every_seed(first: int, capsys: pytest.CaptureFixture[str]) -> None:
    failed = simulate.main(["--start", str(first), "--seeds", str(PART), "--quiet"])
    assert not failed, capsys.readouterr().out


@pytest.mark.parametrize("profile", PROFILES)
def test_every_kind_of_program(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    failed = simulate.main(["--start", "7000", "--seeds", "10", "--quiet", "--profile", profile])
    assert not failed, capsys.readouterr().out


def test_every_step_comes_in_some_kind_of_program() -> None:
    used = {name for profile in PROFILES.values() for name in profile.weights}
    assert used == set(MAKERS)


def test_a_step_that_has_nothing_to_act_on_does_nothing() -> None:
    for number, name in enumerate(sorted(MAKERS), 1):
        step = Step(number, ALIASES.get(name, name), MAKERS[name](Random(number)))
        Simulation(1, profile="tiny", program=[step]).run()


def test_a_seed_runs_the_same_each_time() -> None:
    first, second = Simulation(11, profile="long"), Simulation(11, profile="long")
    first.run()
    second.run()
    assert first.program == second.program
    assert first.world.model.disk.commits == second.world.model.disk.commits
    assert list(first.world.model.disk.rows) == list(second.world.model.disk.rows)
    assert first.world.model.granted == second.world.model.granted


def acknowledge_early(patch: pytest.MonkeyPatch) -> None:
    emit = Engine.emit

    def early(self: Engine, outlet: Any, message: object) -> None:
        (self.send if isinstance(message, m.Accepted) else emit.__get__(self))(outlet, message)

    patch.setattr(Engine, "emit", early)


def test_a_failing_program_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    acknowledge_early(monkeypatch)
    name, program = write(3, "long")
    error = failure(3, name, program)
    assert isinstance(error, Broken)
    short = shrink(3, name, program, error)
    assert [step.name for step in short][-1] in ("submit", "many")
    assert len(short) < 5
    assert kind(failure(3, name, short)) == error.promise
    assert all(step in program for step in short)


def test_a_failing_seed_is_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    acknowledge_early(monkeypatch)
    assert simulate.main(["--seeds", "50", "--profile", "store", "--steps", "30"]) == 1
    said = capsys.readouterr().out
    assert "an acknowledgement waits for its commit" in said
    assert (
        "again: python -m lakeshore.testing.simulate --start 0 --seeds 1 --profile store --steps 30" in said
    )
    assert "shrunk to " in said
    assert "1 seeds" in said


def test_a_bug_of_the_plane_is_a_failure_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Engine, actor: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(Engine, "touch", broken)
    assert simulate.main(["--seeds", "1", "--no-shrink"]) == 1
    said = capsys.readouterr().out
    assert "ZeroDivisionError: planted" in said
    assert "Traceback" not in said or "shrunk" not in said


def test_the_command_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--seeds", "1000", "--profile", "tiny", "--steps", "0"]) == 0
    said = capsys.readouterr().out
    assert "1000 seeds, " in said
    assert ", 0 failed, " in said


def test_steps_are_printed_as_calls() -> None:
    assert str(Step(3, "submit", {"client": 1, "key": "k"})) == "submit(client=1, key='k')"
