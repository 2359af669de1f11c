"""A failing program, made short: steps are left out for as long as the same promise breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .facts import Broken
from .program import Step
from .run import Simulation


def failure(seed: int, profile: str, program: Sequence[Step]) -> BaseException | None:
    """What a program fails with, or None."""
    try:
        Simulation(seed, profile=profile, program=program).run()
    except Exception as error:
        return error
    return None


def kind(error: BaseException | None) -> str:
    """What two failures have in common: the promise, or the type of a bug."""
    return error.promise if isinstance(error, Broken) else type(error).__name__


def shrink(seed: int, profile: str, program: Sequence[Step], error: BaseException) -> list[Step]:
    """The shortest part of a failing program that was found to fail in the same way.

    Source: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
    28(2), 2002; here in its greedy form, repeated until no single step can go.
    """
    wanted = kind(error)
    return _reduce(list(program), lambda part: kind(failure(seed, profile, part)) == wanted)


def _reduce(program: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    size = max(1, len(program) // 2)
    while True:
        before, at = len(program), 0
        while at < len(program):
            part = program[:at] + program[at + size :]
            if fails(part):
                program = part
            else:
                at += size
        if size == 1 and len(program) == before:
            return program
        size = max(1, size // 2)
