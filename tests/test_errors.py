"""Errors say what happened, keep it across a pickle, and one-line summaries name the real cause."""

from __future__ import annotations

import pickle

import pytest

from lakeshore.core import errors
from lakeshore.core.rows import Failure


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errors.QueueFull("full", retry_after=2.5), "full"),
        (errors.NotFound("no such job"), "no such job"),
        (errors.StoreLocked("held by process 7", 7), "held by process 7"),
        (errors.Gap(3, 10), "no frame 3: the stream goes on at 10 (older ones were pruned)"),
        (errors.Gap(9, 4), "no frame 9: the stream goes on at 4 (nothing is beyond it yet)"),
        (errors.StreamRestarted(2), "attempt 2 began anew after values of an earlier one were given"),
        (
            errors.SubmitErrors(["01A", None], {1: ValueError("odd")}),
            "1 of 2 items were refused, the first (item 1) with ValueError: odd; the rest are accepted",
        ),
        (errors.InvocationKilled("killed", id="01A", attempt=1), "killed"),
        (
            errors.InvocationFailed(
                "no", id="01A", attempt=2, type="builtins.ValueError", traceback="line 1", notes=("hint",)
            ),
            "builtins.ValueError: no\nhint\n\nThe traceback in the worker (attempt 2):\nline 1",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_says_the_same_after_a_pickle(error: Exception, says: str) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert str(error).startswith(says)
    assert {name: str(value) for name, value in vars(back).items()} == {
        name: str(value) for name, value in vars(error).items()
    }


def test_a_group_of_errors_is_headed_by_its_first() -> None:
    one, two = Failure("ValueError", "odd"), Failure("KeyError", "k")
    assert Failure("ExceptionGroup", "several", leaves=(one,)).headline == "ValueError: odd"
    assert Failure("ExceptionGroup", "several", leaves=(one, two)).headline == "ValueError: odd (and 1 more)"
    assert Failure("KeyboardInterrupt", "").headline == "KeyboardInterrupt"
