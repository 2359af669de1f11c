from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeshore.core.admission import Admission, TokenBucket, admission, parse_rate, verdict


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        (None, None),
        (5, 5.0),
        (0.25, 0.25),
        ("100/s", 100.0),
        ("30/m", 0.5),
        ("36/h", 0.01),
        ("2.5", 2.5),
        (" 1e3 / s ", 1000.0),
        (".5/s", 0.5),
    ],
)
def test_rates(text: float | str | None, rate: float | None) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "wrong",
    [0, -1, inf, nan, 10**400, True, [], b"1/s"],
)
def test_wrong_numbers_name_the_spellings(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"rate_limit=.*100/s, 30/m or 5/h"):
        parse_rate(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "s",
        "/s",
        ".",
        "1.2.3",
        "-1/s",
        "0/s",
        "inf/s",
        "nan",
        "1e999/s",
        "5e-324/h",
        "10/d",
        "10/sec",
        "10 per s",
        "1_0",
        "10/S",
    ],
)
def test_wrong_texts_name_the_spellings(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"rate_limit=.*100/s, 30/m or 5/h"):
        parse_rate(wrong)


# ---- the bucket


def test_a_bucket_holds_one_second_and_at_least_one_token() -> None:
    bucket = TokenBucket(5)
    assert [bucket.take(100.0) for _ in range(6)] == [True] * 5 + [False]
    assert bucket.wait(100.0) == pytest.approx(0.2)
    assert [bucket.take(1000.0) for _ in range(6)] == [True] * 5 + [False]
    slow = TokenBucket(0.5)
    assert (slow.take(0.0), slow.take(0.0), slow.wait(0.0)) == (True, False, 2.0)
    assert (slow.wait(1.5), slow.take(1.9), slow.take(2.0)) == (0.5, False, True)
    wide = TokenBucket(1, burst=3)
    assert [wide.take(0.0) for _ in range(4)] == [True, True, True, False]


def test_what_is_given_back_can_be_taken_once() -> None:
    bucket = TokenBucket(1)
    bucket.give_back()  # full already
    assert [bucket.take(0.0), bucket.take(0.0)] == [True, False]
    bucket.give_back()
    assert [bucket.wait(0.0), bucket.take(0.0), bucket.take(0.0)] == [0.0, True, False]


def test_a_clock_that_jumps_back_costs_nothing_and_gives_nothing() -> None:
    bucket = TokenBucket(1, burst=2)
    assert bucket.take(1000.0)
    assert bucket.take(10.0)  # the second token is still there
    assert not bucket.take(10.0)
    assert bucket.wait(10.0) == 1.0
    assert bucket.take(11.0)
    assert not bucket.take(5.0)
    assert not bucket.take(5.5)
    assert bucket.take(6.0)


@given(
    rate=st.floats(1e-6, 1e7),
    start=st.floats(0, 2e9),
    steps=st.lists(st.floats(0, 100), max_size=20),
)
@settings(deadline=None, derandomize=True, database=None)
def test_waiting_as_told_always_gets_a_token(rate: float, start: float, steps: list[float]) -> None:
    bucket, now = TokenBucket(rate, burst=1), start
    for step in steps:
        now += step / rate
        if bucket.take(now):
            wait = bucket.wait(now)
            assert wait > 0
            assert now + wait > now
        else:
            now += bucket.wait(now)
            assert bucket.take(now)


@given(rate=st.floats(0.1, 100), steps=st.lists(st.floats(0, 3), min_size=1, max_size=60))
@settings(deadline=None, derandomize=True, database=None)
def test_never_more_than_the_burst_and_the_rate(rate: float, steps: list[float]) -> None:
    bucket, now, taken = TokenBucket(rate), 0.0, 0
    for step in steps:
        now += step
        while bucket.take(now):
            taken += 1
        assert taken <= max(1, rate) + rate * now + 1e-6


@pytest.mark.parametrize("rate", [0, -1, inf, nan])
def test_a_bucket_needs_a_rate(rate: float) -> None:
    with pytest.raises(ValueError, match="rate="):
        TokenBucket(rate)


@pytest.mark.parametrize("burst", [0, 0.5, inf, nan])
def test_a_bucket_needs_room_for_a_token(burst: float) -> None:
    with pytest.raises(ValueError, match="burst="):
        TokenBucket(1, burst=burst)


# ---- the rule


def test_a_rule_is_checked_and_normal() -> None:
    assert admission() == Admission()
    rule = admission(max_depth=1, on_full="block", rate_limit="30/m", deadline_cutoff_s=60)
    assert rule == Admission(1, "block", 0.5, 60.0, None, None)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("max_depth", 0, "max_depth=0: give a whole number from 1, or null for no limit; drain the queue"),
        ("max_depth", -1, "max_depth=-1: give"),
        ("max_depth", 1.0, "whole number"),
        ("max_depth", nan, "whole number"),
        ("max_depth", True, "whole number"),
        ("max_depth", "10", "max_depth='10'"),
        ("max_running", 0, "pause the queue"),
        ("max_bytes", 0, "max_bytes=0"),
        ("deadline_cutoff_s", 0, "seconds above 0"),
        ("deadline_cutoff_s", nan, "seconds above 0"),
        ("deadline_cutoff_s", inf, "seconds above 0"),
        ("deadline_cutoff_s", "60", "seconds above 0"),
        ("rate_limit", "fast", "rate_limit='fast'"),
        ("on_full", "drop", "on_full='drop': choose reject or block"),
        ("on_full", None, "choose reject or block"),
        ("on_full", [], "choose reject or block"),
    ],
)
def test_a_wrong_rule_says_what_to_give(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        admission(**{field: value})


# ---- the verdict


def ask(rule: Admission, bucket: TokenBucket | None = None, **given: Any) -> str:
    return verdict(
        rule, **{"depth": 0, "reserved": 0, "bytes": 0, "size": 0, "bucket": bucket, "now": 0.0} | given
    )


def test_no_limits_let_everything_in() -> None:
    assert ask(admission(), depth=10**9, bytes=10**15, size=10**12) == ""


def test_each_limit_names_itself() -> None:
    rule = admission(max_depth=10, max_bytes=100, rate_limit=1)
    bucket = TokenBucket(1)
    assert ask(rule, bucket, depth=10) == "max_depth"
    assert ask(rule, bucket, depth=7, reserved=3) == "max_depth"
    assert ask(rule, bucket, bytes=60, size=41) == "max_bytes"
    assert ask(rule, bucket, depth=10, size=101) == "size"  # before the others: waiting can't help
    assert ask(rule, bucket, depth=9, bytes=60, size=40) == ""  # refusals took no token
    assert ask(rule, bucket) == "rate_limit"
    assert ask(rule, bucket, now=1.0) == ""
