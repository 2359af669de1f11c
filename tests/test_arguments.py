"""What is no address, no namespace, no prefix, and what a face and a udf look like."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest

import lakeshore as dls
from lakeshore.core.keys import join
from lakeshore.core.messages import Outcome
from lakeshore.sdk.address import namespace_of, resolve
from lakeshore.sdk.outcomes import value_of
from lakeshore.sdk.udf import as_udf
from lakeshore.transports.memory import thread_pair

if TYPE_CHECKING:
    from nowhere import Nothing  # pyright: ignore[reportMissingImports]


def test_an_address_is_no_bytes() -> None:
    address: Any = b"plane.db"
    with pytest.raises(TypeError, match="an address is a string or a path, not bytes"):
        resolve(address)


def test_a_namespace_is_a_string_of_some_characters() -> None:
    number: Any = 7
    with pytest.raises(TypeError, match="a namespace is a string, not int"):
        namespace_of(number)
    for name in ("", "a\0b", "x" * 201):
        with pytest.raises(ValueError, match="is not a namespace: choose 1 to 200 characters"):
            namespace_of(name)


def test_a_face_shows_its_address_and_whether_it_is_closed() -> None:
    with dls.Dispatch(":memory:", namespace="n") as q:
        assert repr(q) == "<Dispatch ':memory:' namespace='n'>"
    assert repr(q) == "<Dispatch ':memory:' namespace='n' closed>"
    assert repr(dls.AsyncDispatch(":memory:")) == "<AsyncDispatch ':memory:' namespace='default'>"


@pytest.mark.parametrize(
    ("prefix", "error", "why"),
    [
        (7, TypeError, "a prefix is a string, not int"),
        ("/a", ValueError, "is no prefix: use a relative path with forward slashes"),
        ("a\\b", ValueError, "is no prefix: use a relative path with forward slashes"),
        ("a//b", ValueError, "is no prefix: it has an empty part"),
        ("../..", ValueError, "climbs out of the root"),
    ],
)
def test_what_is_no_prefix(prefix: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        join("around", prefix, "prefix")


def test_a_failure_without_an_error_says_why() -> None:
    outcome = Outcome(0, b"\0" * 16, "failed", 3, None, None, "its workers were lost")
    with pytest.raises(dls.InvocationFailed, match="its workers were lost") as caught:
        value_of(outcome)
    assert caught.value.attempt == 3


def test_a_message_before_the_link_is_connected_is_a_bug() -> None:
    calls: list[Any] = []
    ours, theirs = thread_pair(calls.append, calls.append)
    ours.send("early")
    with pytest.raises(RuntimeError, match="a message before the link was connected: 'early'"):
        calls[0]()
    assert theirs is not ours


@dls.udf
def unclear(x: Nothing) -> Nothing:
    return x


def test_annotations_that_cannot_be_read_name_nothing(q: dls.Dispatch) -> None:
    assert (unclear.types, unclear.result_types) == ((), ())
    inv = q.submit(unclear, 7)
    assert dls.run_worker(q, drain=True) == 1
    assert q.result(inv) == 7


class Holder:
    @dls.udf
    def double(x: int) -> int:  # pyright: ignore[reportGeneralTypeIssues, reportSelfClsParameterName]
        return 2 * x


def test_a_udf_in_a_class_is_a_static_function() -> None:
    instance: Any = Holder()
    assert instance.double is Holder.double
    assert instance.double(21) == 42


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: int) -> int:
        return 3 * x


class Slotted:
    __slots__ = ()

    def __call__(self, x: int) -> int:
        return 4 * x


def test_callables_that_cannot_be_kept_by_weakly(q: dls.Dispatch) -> None:
    invs = [q.submit(Unhashable(), 2), q.submit(Slotted(), 2)]
    gc.collect()
    assert dls.run_worker(q, drain=True) == 2
    assert [q.result(inv) for inv in invs] == [6, 8]
    assert as_udf(as_udf(Slotted())).kind == "sync"
