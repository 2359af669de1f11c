"""A plain call of a udf that has a queue: submit, and give the shape of the body back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from typing import TYPE_CHECKING, Any

from .current import current_face
from .outcomes import value_of, value_of_async
from .streams import AsyncStream, Stream
from .verbs import known, result

if TYPE_CHECKING:
    from .face import Face
    from .udf import UDF


def call_through(udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Value, awaitable, iterator or async iterator over the values; waits without limit."""
    face = current_face()
    if udf.kind == "sync":
        return _value(face, udf, face.submit_blocking(udf, args, kwargs))
    if udf.kind == "async":
        return _awaited(face, udf, args, kwargs)
    if udf.kind == "generator":
        return _iterated(face, udf, face.submit_blocking(udf, args, kwargs))
    return _async_iterated(face, udf, args, kwargs)


def _value(face: Face, udf: UDF[..., Any], inv: str) -> Any:
    verb = result(inv)
    connection = face.connection()
    answer = connection.call_blocking(verb.make(connection.number()), id=verb.id)
    return value_of(answer, udf.result_types)


async def _awaited(face: Face, udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    verb = result(await face.submit_async(udf, args, kwargs))
    connection = face.connection()
    answer = await connection.call(verb.make(connection.number()), verb.id)
    return await value_of_async(answer, udf.result_types)


def _iterated(face: Face, udf: UDF[..., Any], inv: str) -> Generator[Any, None, Any]:
    with Stream[Any](face.connection(), known(inv), 0, udf.result_types) as stream:
        yield from stream.values()
    return _value(face, udf, inv)  # for `x = yield from f()`, as of the generator itself


async def _async_iterated(
    face: Face, udf: UDF[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> AsyncIterator[Any]:
    inv = await face.submit_async(udf, args, kwargs)
    async with AsyncStream[Any](face.connection(), known(inv), 0, udf.result_types) as stream:
        async for value in stream.values():
            yield value
