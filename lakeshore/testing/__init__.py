"""For tests: a clock that jumps, stores and links that fail, a plane driven by hand, conformance
suites for other people's stores, and a pytest plugin."""

from .clock import virtual_backend as virtual_backend
from .clock import virtual_loop as virtual_loop
