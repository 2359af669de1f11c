"""Where a worker finds bodies that came as pickles, and that it keeps no more than it must."""

from __future__ import annotations

import hashlib
from typing import Any

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import pytest

import lakeshore as dls
from lakeshore.core.bodies import PICKLES
from lakeshore.core.messages import Grant
from lakeshore.core.rows import Call, Function, Options
from lakeshore.core.worker import Unresolved
from lakeshore.sdk.resolver import Resolver


def grant(number: int, *, pickle: bool, local: str = "elsewhere") -> Grant:
    data: bytes = cloudpickle.dumps(dls.udf(lambda x: x + number))  # pyright: ignore[reportUnknownMemberType]
    hash = hashlib.blake2b(number.to_bytes(4, "big"), digest_size=16).digest()
    call = Call(Options(Function(f"f{number}", local, "", hash)))
    return Grant(b"i" * 16, 1, "default", "default", call, b"", data if pickle else None)


def test_a_pickle_is_kept_until_it_is_needed() -> None:
    body: Any = dls.udf(lambda x: x)
    found = Resolver({"here": body}, allow_pickle=True)
    assert found(grant(5, pickle=True, local="here")) is body
    assert found(grant(5, pickle=False)).local(1) == 6


def test_workers_of_one_process_share_a_body() -> None:
    one, two = Resolver({}, allow_pickle=True), Resolver({}, allow_pickle=True)
    first = one(grant(7, pickle=True))
    assert two(grant(7, pickle=True)) is first is one(grant(7, pickle=False))


def test_as_many_are_kept_as_the_head_may_count_on_and_twice_as_many_at_the_most() -> None:
    found = Resolver({}, allow_pickle=True)
    for number in range(3 * PICKLES):
        found(grant(number, pickle=True))
        found(grant(0, pickle=False))  # used all the time
    for number in range(2 * PICKLES + 1, 3 * PICKLES):
        assert found(grant(number, pickle=False)).local(1) == number + 1
    with pytest.raises(Unresolved, match="not in the store any more"):
        found(grant(1, pickle=False))
    assert len(found._kept) == 2 * PICKLES  # pyright: ignore[reportPrivateUsage]
