"""Bodies that are called here, and reading outside of bodies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from filing import events as events
from filing import (
    found,
)
from filing import q as q
from filing import store as store

import lakeshore as dls


def test_outside_of_bodies(store: Path) -> None:
    (store / "a").write_text("x")
    assert dls.run.read("a").read_text() == "x"
    with pytest.raises(dls.KeyNotFound, match=r"nothing under 'b' in .*store"):
        dls.run.read("b")
    with pytest.raises(RuntimeError, match="inside a udf"):
        dls.run.write("a")
    assert not dls.run


def test_a_place_of_its_own(store: Path) -> None:
    @dls.udf(queue="mine")
    def body() -> Any:
        assert dls.run
        return (
            dls.run.id,
            dls.run.attempt,
            dls.run.queue,
            dls.run.namespace,
            dls.run.prefix,
            dls.run.cancelled,
        )

    with dls.scope("p"):
        id, *rest = body.local()
    assert len(id) == 26
    assert rest == [1, "mine", "default", "p", False]
    assert body.local()[0] != id


def test_generators_in_place_keep_what_is_theirs(store: Path) -> None:
    @dls.udf
    def body(name: str) -> Iterator[str]:
        for number in range(2):
            dls.run.write(f"{name}{number}").write_text(dls.run.prefix)
            yield f"{name}{number}"

    with dls.scope("one"):
        one = body("a")
    with dls.scope("two"):
        two = body("b")
    assert [next(one), next(two), next(two), next(one)] == ["a0", "b0", "b1", "a1"]
    assert not dls.run  # between two steps no body runs here
    assert found(store) == {"one/a0": "one", "one/a1": "one", "two/b0": "two", "two/b1": "two"}


def test_scopes_in_a_generator_in_place_are_its_own(store: Path, backend: str) -> None:
    seen: list[str] = []

    @dls.udf
    def body() -> Iterator[str]:
        with dls.scope("inner"):
            yield dls.run.prefix
            yield dls.run.prefix

    @dls.udf
    async def later() -> AsyncIterator[str]:
        try:
            with dls.scope("inner"):
                yield dls.run.prefix
                yield dls.run.prefix
        finally:
            seen.append(dls.run.id)

    with dls.scope("outer"):
        running: Any = body()
        assert next(running) == "outer/inner"
        assert dls.run.prefix == "outer"
    assert next(running) == "outer/inner"
    running.close()
    assert dls.run.prefix == ""

    async def main() -> None:
        with dls.scope("outer"):
            running: Any = later()
            assert await anext(running) == "outer/inner"
            assert dls.run.prefix == "outer"
        assert await anext(running) == "outer/inner"
        await running.aclose()
        assert dls.run.prefix == ""

    anyio.run(main, backend=backend)
    assert len(seen) == 1


def test_a_generator_in_place_takes_what_is_sent_and_thrown(store: Path) -> None:
    log: list[Any] = []

    @dls.udf
    def body() -> Iterator[Any]:
        try:
            log.append((yield "a"))
            yield "b"
        except KeyError:
            log.append("thrown")
            yield "c"
        finally:
            log.append("closed")

    running: Any = body()
    assert next(running) == "a"
    assert running.send("sent") == "b"
    assert running.throw(KeyError) == "c"
    running.close()
    assert log == ["sent", "thrown", "closed"]


def test_an_async_generator_in_place_takes_what_is_sent_and_thrown(store: Path, backend: str) -> None:
    log: list[Any] = []

    @dls.udf
    async def body() -> AsyncIterator[Any]:
        try:
            log.append((yield "a"))
            yield "b"
        except KeyError:
            log.append("thrown")
            yield "c"
        finally:
            log.append("closed")

    async def main() -> None:
        running: Any = body()
        assert await anext(running) == "a"
        assert await running.asend("sent") == "b"
        assert await running.athrow(KeyError) == "c"
        await running.aclose()

    anyio.run(main, backend=backend)
    assert log == ["sent", "thrown", "closed"]
