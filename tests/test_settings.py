"""What a queue may be told, and the sentence for what it may not."""

from __future__ import annotations

from typing import Any

import pytest

from lakeshore.core.settings import QueueSettings, check_name, check_patch, declare, patched


@pytest.mark.parametrize("name", ["", "-q", "Q", "a b", "q\n", "a_b", "é"])
def test_a_bad_name_is_refused_with_the_pattern(name: str) -> None:
    with pytest.raises(ValueError, match="is not a queue name: use lower-case letters, digits and hyphens"):
        check_name(name)


def test_a_name_that_is_no_string() -> None:
    name: Any = b"q"
    with pytest.raises(TypeError, match="a queue name is a string, not bytes"):
        check_name(name)


@pytest.mark.parametrize(
    ("given", "error", "why"),
    [
        ({"kind": "lifo"}, ValueError, "kind='lifo': a queue is one of .*fifo"),
        ({"seed": "7"}, TypeError, "seed='7': a seed is an int"),
        ({"seed": True}, TypeError, "seed=True: a seed is an int"),
        ({"min": 1}, ValueError, "min say how an elasticity behaves: name one as elasticity="),
    ],
)
def test_a_bad_setting_names_itself_and_what_it_accepts(
    given: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        declare(given)


def test_an_empty_provider_is_none() -> None:
    assert patched(QueueSettings(provider="p"), {"provider": ""}).provider is None
    assert declare({"provider": ""})["provider"] is None


def test_a_patch_of_an_elasticity_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="max belong to an elasticity, and this queue has none"):
        patched(QueueSettings(), {"max": 3})


@pytest.mark.parametrize("name", ["kind", "name", "elasticity", "depth"])
def test_a_patch_of_what_stays_as_it_was(name: str) -> None:
    with pytest.raises(TypeError, match=f"queues.patch does not take '{name}'"):
        check_patch({name: "fifo"})


RULE = {"kind": "pool_with_threshold", "min": 1, "max": 4, "cooldown_s": 30}


def test_an_elasticity_as_a_mapping() -> None:
    assert declare({"elasticity": RULE})["elasticity"] == RULE
    assert declare({"elasticity": {"kind": "fixed"}, "min": 2})["elasticity"] == {"kind": "fixed", "min": 2}
    changes = check_patch({"elasticity": {**RULE, "max": None}}, elasticity=True)
    rule = patched(QueueSettings(), changes).elasticity
    assert rule == {"kind": "pool_with_threshold", "min": 1, "cooldown_s": 30}
    more = patched(QueueSettings(elasticity=rule), {"min": 3}).elasticity
    assert more == {"kind": "pool_with_threshold", "min": 3, "cooldown_s": 30}
    assert patched(QueueSettings(elasticity=rule), {"elasticity": None}).elasticity is None


@pytest.mark.parametrize(
    ("rule", "error", "why"),
    [
        (7, ValueError, "elasticity=7: one of fixed"),
        ({"min": 1}, ValueError, "elasticity=None: one of fixed"),
        ({"kind": "fixed", "most": 1}, ValueError, "elasticity has no 'most': it has kind, min, max, "),
        ({"kind": "fixed", "cooldown_s": -1}, ValueError, "cooldown_s=-1: choose seconds from 0"),
    ],
)
def test_an_elasticity_that_is_none(rule: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        declare({"elasticity": rule})


def test_a_patch_with_an_elasticity_that_is_no_mapping() -> None:
    with pytest.raises(TypeError, match="elasticity='fixed': a mapping with its kind, or None"):
        check_patch({"elasticity": "fixed"}, elasticity=True)
