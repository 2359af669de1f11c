"""For tests: a clock that jumps, stores and links that fail, a plane driven by hand or from a seed,
conformance suites for other people's stores, and a pytest plugin."""

from typing import TYPE_CHECKING, Any

from .clock import virtual_backend as virtual_backend
from .clock import virtual_loop as virtual_loop

if TYPE_CHECKING:
    from .simulation import Broken as Broken
    from .simulation import Simulation as Simulation


def __getattr__(name: str) -> Any:
    if name in ("Broken", "Simulation"):  # only who simulates imports a whole plane
        from . import simulation

        return getattr(simulation, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
