from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore.core.retry import ceiling, delay


def test_the_ceiling_doubles_to_the_cap() -> None:
    assert [ceiling(k, base=1, cap=10) for k in range(6)] == [1, 2, 4, 8, 10, 10]
    assert ceiling(0, base=0, cap=0) == 0
    assert ceiling(10**9, base=0, cap=300) == 0
    assert ceiling(10**9, base=1e-300, cap=300) == 300
    assert ceiling(10**9, base=1e300, cap=1e308) == 1e308


@settings(deadline=None, derandomize=True, database=None)
@given(
    retry=st.integers(0, 2000),
    base=st.floats(0, 1e6),
    more=st.floats(0, 1e6),
    uniform=st.floats(0, 1),
)
def test_a_delay_is_below_a_ceiling_that_never_falls(
    retry: int, base: float, more: float, uniform: float
) -> None:
    cap = base + more
    top = ceiling(retry, base=base, cap=cap)
    assert base <= top <= ceiling(retry + 1, base=base, cap=cap) <= cap
    assert 0 <= delay(retry, base=base, cap=cap, uniform=uniform) <= top


def test_the_jitter_is_full() -> None:
    assert [delay(3, base=1, cap=300, uniform=u) for u in (0, 0.25, 1)] == [0, 2, 8]


@pytest.mark.parametrize(("base", "cap"), [(-1, 1), (2, 1), (1, inf), (nan, 1), (1, nan), (inf, inf)])
def test_wrong_bounds(base: float, cap: float) -> None:
    with pytest.raises(ValueError, match=r"base=.*, cap="):
        ceiling(0, base=base, cap=cap)


def test_wrong_numbers() -> None:
    with pytest.raises(ValueError, match="the first retry is 0"):
        ceiling(-1, base=1, cap=2)
    for uniform in (-0.1, 1.1, nan):
        with pytest.raises(ValueError, match="uniform="):
            delay(0, base=1, cap=2, uniform=uniform)
