"""How to test your own bodies: `pytest examples/pytest_example.py`.

The plugin comes with Lakeshore, so there is nothing to configure. `lakeshore_dispatch` is a fresh
plane in memory for each test; nothing runs until the test says so.
"""

from collections.abc import Iterator

import pytest

import dreamlake.lakeshore as dls

calls: list[str] = []


@dls.udf(retries=2, retry_delay=0.001, retry_on=ConnectionError)
def fetch(url: str) -> str:
    """Stands for your own body: fails once, then works."""
    calls.append(url)
    if len(calls) == 1:
        raise ConnectionError("try again")
    return f"the page at {url}"


@dls.udf
def countdown(start: int) -> Iterator[int]:
    """Yields, and returns something else."""
    yield from range(start, 0, -1)
    return "lift-off"


@pytest.fixture(autouse=True)
def no_calls() -> None:
    """Every test begins afresh."""
    calls.clear()


def test_a_body_is_a_function_still() -> None:
    """A plain call runs in place, without a plane."""
    assert list(countdown(2)) == [2, 1]


def test_it_is_tried_again(lakeshore_dispatch: dls.Dispatch) -> None:
    """`once=True` runs exactly one invocation to its end, retries included."""
    inv = fetch.submit("https://example.org")
    assert dls.run_worker(lakeshore_dispatch, once=True) == 1
    assert lakeshore_dispatch.result(inv) == "the page at https://example.org"
    assert [attempt.outcome for attempt in lakeshore_dispatch.get(inv).attempts] == ["failed", "succeeded"]


def test_an_error_arrives_as_it_was_raised(lakeshore_dispatch: dls.Dispatch) -> None:
    """The record of the error names its type; the rest of the queue is untouched."""
    inv = lakeshore_dispatch.submit(lambda: 1 / 0)
    dls.run_worker(lakeshore_dispatch, once=True)
    with pytest.raises(dls.InvocationFailed, match="division by zero") as caught:
        lakeshore_dispatch.result(inv)
    assert caught.value.type == "builtins.ZeroDivisionError"


def test_a_stream(lakeshore_dispatch: dls.Dispatch) -> None:
    """Values are in the stream, the return value is the result."""
    inv = countdown.submit(3)
    dls.run_worker(lakeshore_dispatch, drain=True)
    assert list(lakeshore_dispatch.stream(inv).values()) == [3, 2, 1]
    assert lakeshore_dispatch.result(inv) == "lift-off"
