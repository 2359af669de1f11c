"""Where a worker finds bodies that came as pickles, and that it keeps no more than it must."""

from __future__ import annotations

import hashlib
from typing import Any

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import msgspec
import pytest

import lakeshore as dls
from lakeshore.core.bodies import PICKLES
from lakeshore.core.messages import Grant
from lakeshore.core.rows import Call, Function, Options
from lakeshore.core.worker import Lacking, Unresolved
from lakeshore.sdk.functions import PYTHON, source_hash
from lakeshore.sdk.resolver import Resolver


def grant(number: int, *, pickle: bool, local: str = "elsewhere") -> Grant:
    data: bytes = cloudpickle.dumps(dls.udf(lambda x: x + number))  # pyright: ignore[reportUnknownMemberType]
    hash = hashlib.blake2b(number.to_bytes(4, "big"), digest_size=16).digest()
    call = Call(Options(Function(f"f{number}", local, "", hash)))
    return Grant(b"i" * 16, 1, "default", "default", call, b"", data if pickle else None)


class Found(Resolver):
    """As a worker uses it: it keeps what comes, and resolves what begins."""

    def __call__(self, grant: Grant) -> Any:
        self.keep(grant)
        return super().__call__(grant)


def test_a_pickle_is_kept_until_it_is_needed() -> None:
    body: Any = dls.udf(lambda x: x)
    found = Found({"here": body}, allow_pickle=True)
    assert found(grant(5, pickle=True, local="here")) is body
    assert found(grant(5, pickle=False)).local(1) == 6


def test_a_pickle_is_kept_where_its_grant_never_began() -> None:
    found = Found({}, allow_pickle=True)
    found.keep(grant(5, pickle=True))
    assert found(grant(5, pickle=False)).local(1) == 6


def test_workers_of_one_process_share_a_body() -> None:
    one, two = Found({}, allow_pickle=True), Found({}, allow_pickle=True)
    first = one(grant(7, pickle=True))
    assert two(grant(7, pickle=True)) is first is one(grant(7, pickle=False))


def test_as_many_are_kept_as_the_head_may_count_on_and_twice_as_many_at_the_most() -> None:
    found = Found({}, allow_pickle=True)
    for number in range(3 * PICKLES):
        found(grant(number, pickle=True))
        found(grant(0, pickle=False))  # used all the time
    for number in range(2 * PICKLES + 1, 3 * PICKLES):
        assert found(grant(number, pickle=False)).local(1) == number + 1
    with pytest.raises(Unresolved, match="not in the store any more"):
        found(grant(1, pickle=False))
    assert len(found._kept) == 2 * PICKLES  # pyright: ignore[reportPrivateUsage]


def by_reference(module: str, qualname: str, source: bytes | str = b"") -> Grant:
    function = Function(qualname, "elsewhere", f"{module}:{qualname}", b"")
    if source:
        function = msgspec.structs.replace(function, source=source)
    return Grant(b"i" * 16, 1, "default", "default", Call(Options(function)), b"", None)


@dls.udf
def known(x: int) -> int:
    return x


def test_a_reference_to_what_is_no_udf_is_not_run() -> None:
    found = Resolver({}, allow_pickle=True)
    with pytest.raises(Unresolved, match="os:system is not a @udf here: put the decorator back"):
        found(by_reference("os", "system"))
    with pytest.raises(Unresolved, match="can't be imported here"):
        found(by_reference("no.such.module", "f"))


def test_another_source_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    found = Resolver({}, allow_pickle=True)
    for _ in range(2):
        assert found(by_reference(__name__, "known", "another")) is known
    (record,) = caplog.records
    assert "differs from what its submitter had" in record.getMessage()


def test_a_worker_that_takes_no_pickles() -> None:
    with pytest.raises(Unresolved, match="comes as a pickle, and this worker takes none"):
        Resolver({}, allow_pickle=False)(grant(3, pickle=True))


def test_a_pickle_that_cannot_be_read() -> None:
    damaged = msgspec.structs.replace(grant(100_003, pickle=True), function=b"no pickle")
    with pytest.raises(Unresolved, match="f100003 can't be unpickled here"):
        Resolver({}, allow_pickle=True)(damaged)


def test_what_begins_long_after_it_came_is_found_and_nothing_grows() -> None:
    found = Resolver({}, allow_pickle=True)
    waiting = [grant(number, pickle=True) for number in range(3)]
    for each in waiting:
        found.keep(each)
    for number in range(10, 10 + 2 * PICKLES):
        found.keep(grant(number, pickle=True))
    assert [found(each).local(1) for each in waiting] == [1, 2, 3]
    assert len(found._kept) == 2 * PICKLES  # pyright: ignore[reportPrivateUsage]


def plain(x: int) -> int:
    return 2 * x


def test_a_reference_to_what_is_no_udf_runs_only_where_its_module_is_trusted() -> None:
    found = Resolver({}, allow_pickle=False)
    with pytest.raises(Unresolved, match=r"--trust \S*test_resolver"):
        found(by_reference(__name__, "plain"))
    with pytest.raises(Unresolved, match="not a @udf"):
        found(by_reference("os", "system"))
    for trusted in (__name__, __name__.partition(".")[0]):
        body = Resolver({}, allow_pickle=False, trust=(trusted,))(by_reference(__name__, "plain"))
        assert (body.kind, body.local(2)) == ("sync", 4)
    assert found(by_reference(__name__, "known")) is known


def test_trust_covers_what_is_below_a_module_and_nothing_beside_it() -> None:
    below = Resolver({}, allow_pickle=False, trust=("os",))
    assert below(by_reference("os.path", "basename")).local("a/b") == "b"
    with pytest.raises(Unresolved, match="not a @udf"):
        Resolver({}, allow_pickle=False, trust=("o", "os.pat"))(by_reference("os.path", "basename"))


@pytest.mark.parametrize("name", ["sep", "PathLike"])
def test_trust_makes_no_body_of_what_is_none(name: str) -> None:
    with pytest.raises(Unresolved, match="nothing that can be run"):
        Resolver({}, allow_pickle=False, trust=("os",))(by_reference("os", name))


def test_strict_workers_refuse_another_source() -> None:
    strict = Resolver({}, allow_pickle=False, strict_source=True)
    with pytest.raises(Unresolved, match="differs from what its submitter had"):
        strict(by_reference(__name__, "known", source=b"another!"))
    assert strict(by_reference(__name__, "known", source=source_hash(known.fn))) is known
    assert strict(by_reference(__name__, "known")) is known  # its submitter knew no source


def test_a_pickle_of_another_python_is_refused_by_name() -> None:
    first = grant(3, pickle=True)
    function = msgspec.structs.replace(first.call.options.function, python="2.7")
    other = msgspec.structs.replace(first, call=Call(Options(function)))
    with pytest.raises(Unresolved, match=r"pickled by Python 2\.7, and this worker runs 3\."):
        Resolver({}, allow_pickle=True)(other)
    mine = msgspec.structs.replace(function, python=PYTHON)
    assert (
        Resolver({}, allow_pickle=True)(msgspec.structs.replace(first, call=Call(Options(mine)))).local(1)
        == 4
    )


def test_a_pickle_that_did_not_come_can_be_asked_for() -> None:
    with pytest.raises(Lacking):
        Resolver({}, allow_pickle=True)(grant(4, pickle=False))
