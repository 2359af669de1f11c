"""Many simulations, by hand: `python -m lakeshore.testing.simulate --seeds 100000`.

A seed that fails is shrunk, and printed with the promise that broke and the command that runs it again.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from .simulation import Simulation
from .simulation.facts import Broken
from .simulation.profiles import PROFILES
from .simulation.shrink import failure, kind, shrink

_LAST = 12  # steps shown before the one that failed
_COLLECT = 50  # seeds between collections of garbage: planes are cyclic, and short-lived


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds; 1 where one failed."""
    options = _parser().parse_args(arguments)
    counts: Counter[str] = Counter()
    began, failed = time.monotonic(), 0
    with _fast():
        for number, seed in enumerate(range(options.start, options.start + options.seeds), 1):
            failed += _one(seed, options, counts)
            if number % _COLLECT == 0:
                gc.collect()
            if failed >= options.failures:
                break
            if not options.quiet and number % 1000 == 0:
                print(
                    f"{number} seeds, {counts['steps']} steps, {time.monotonic() - began:.0f} s", flush=True
                )
    seconds = time.monotonic() - began
    print(f"{counts['seeds']} seeds, {counts['steps']} steps, {failed} failed, {seconds:.1f} s")
    return 1 if failed else 0


def _count(text: str) -> int:
    """A number of the command line, at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: choose 1 or more")
    return number


def _none_or_more(text: str) -> int:
    """A number of the command line, at least 0."""
    return _count(text) if text.strip() != "0" else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lakeshore.testing.simulate", description=__doc__)
    parser.add_argument("--seeds", type=_count, default=2000, help="how many (2000)")
    parser.add_argument("--start", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--steps", type=_none_or_more, help="steps of each, instead of its own number")
    parser.add_argument("--profile", choices=sorted(PROFILES), help="one kind of programs, instead of all")
    parser.add_argument("--failures", type=_count, default=1, help="stop after so many (1)")
    parser.add_argument("--no-shrink", action="store_true", help="print a failing program as it is")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    return parser


@contextmanager
def _fast() -> Generator[None]:
    """Without the log of what fails on purpose, and without looking for garbage in the middle."""
    log = logging.getLogger("lakeshore")
    disabled, log.disabled = log.disabled, True
    enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # what is here already is not looked at each time
    try:
        yield
    finally:
        log.disabled = disabled
        gc.unfreeze()
        if enabled:
            gc.enable()


def _one(seed: int, options: argparse.Namespace, counts: Counter[str]) -> bool:
    simulation = Simulation(seed, profile=options.profile, steps=options.steps)
    try:
        simulation.run()
    except Exception as error:
        print(explain(simulation, error, options))
        return True
    finally:
        counts["seeds"] += 1
        counts["steps"] += simulation.done
        simulation.world.forget()
    return False


def explain(simulation: Simulation, error: BaseException, options: argparse.Namespace) -> str:
    """What broke, after which steps, how to run it again, and the shortest program found that does it."""
    seed, done = simulation.seed, simulation.done
    command = [f"python -m lakeshore.testing.simulate --start {seed} --seeds 1"]
    if options.profile:
        command.append(f"--profile {options.profile}")
    if options.steps is not None:
        command.append(f"--steps {options.steps}")
    last = simulation.program[max(0, done - _LAST) : done]
    lines = [
        f"seed {seed} ({simulation.profile}) failed: {_text(error)}",
        f"after {done} of {len(simulation.program)} steps, the last of them:",
        *(f"  {step.number:4} {step}" for step in last),
        f"again: {' '.join(command)}",
    ]
    if not options.no_shrink:
        short = shrink(seed, simulation.profile, simulation.program[:done], error)
        again = failure(seed, simulation.profile, short)
        lines += [f"shrunk to {len(short)} steps: {_text(again)}", *(f"  {step}" for step in short)]
    if not isinstance(error, Broken):
        lines += traceback.format_exception(error)[-3:]
    return "\n".join(lines)


def _text(error: BaseException | None) -> str:
    return str(error) if isinstance(error, Broken) else f"{kind(error)}: {error}"


if __name__ == "__main__":
    sys.exit(main())
