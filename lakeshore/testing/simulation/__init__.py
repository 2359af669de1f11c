"""A whole plane in one thread and without a loop, from a seed, beside a model of what it promises.

    Simulation(seed=7).run()

raises `Broken` where a promise does not hold. `python -m lakeshore.testing.simulate` runs many.
"""

from __future__ import annotations

from .facts import Broken
from .run import Simulation

__all__ = ["Broken", "Simulation"]
