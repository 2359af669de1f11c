"""A body that runs in place: what `dls.run` is then, and its files, by the rules that a worker has."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

import anyio

from lakeshore.core.plane import new_id
from lakeshore.core.ports import Files
from lakeshore.core.running import CURRENT, PLACE
from lakeshore.core.settings import DEFAULT

from .scope import Scope, apart, scope_here

if TYPE_CHECKING:
    from .udf import UDF


class InPlace:
    """One call in place. It has an id of its own, which no plane knows."""

    attempt = 1
    namespace = "default"
    cancelled = False

    def __init__(self, body: UDF[..., Any], scope: Scope) -> None:
        self.body, self.prefix, self.root = body, scope.prefix, scope.root
        self.storage = (scope.root or "") if scope.anchored else ""
        self.queue: str = body.queue or DEFAULT
        self.files: Files | None = None
        self.scope: Scope | None = None  # that it has left open between two steps
        self.over = False
        self.notes: Any = None
        self._id = b""

    @property
    def id(self) -> bytes:
        """Made when it is first asked for."""
        if not self._id:
            self._id = new_id()
        return self._id

    def publish(self, value: Any) -> None:
        """Let be seen what a yielded value names."""
        if self.files is not None:
            self.files.publish(value, _always)

    def complete(self, value: Any, *, generator: bool = False) -> Any:
        """The body has returned: its result."""
        if self.files is None:
            return value
        return self.files.complete(value, _always, generator=generator)

    def discard(self) -> None:
        """It is over."""
        self.over = True
        if self.files is not None:
            self.files.discard()


_TIDYING = 5.0  # seconds


def _always() -> bool:
    return True


def run_in_place(udf: UDF[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a body here. Inside of another body it is part of that one, as any function."""
    if CURRENT.get() is not None or PLACE.get() is not None:
        return udf.fn(*args, **kwargs)
    return _KINDS[udf.kind](udf, args, kwargs)


def _place(udf: UDF[..., Any]) -> InPlace:
    return InPlace(udf, scope_here())


def _sync(udf: UDF[..., Any], args: Any, kwargs: Any) -> Any:
    place = _place(udf)
    try:
        with apart(place):
            value = udf.fn(*args, **kwargs)
        return place.complete(value)
    finally:
        place.discard()


def _async(udf: UDF[..., Any], args: Any, kwargs: Any) -> Coroutine[Any, Any, Any]:
    return _awaited(udf, _place(udf), args, kwargs)


async def _awaited(udf: UDF[..., Any], place: InPlace, args: Any, kwargs: Any) -> Any:
    try:
        with apart(place):
            value = await udf.fn(*args, **kwargs)
        return await _aside(lambda: place.complete(value)) if place.files is not None else value
    finally:
        await _discard(place)


def _generator(udf: UDF[..., Any], args: Any, kwargs: Any) -> Generator[Any, Any, Any]:
    place = _place(udf)
    return _iterated(place, _here(place, lambda: udf.fn(*args, **kwargs)))


def _iterated(place: InPlace, values: Any) -> Generator[Any, Any, Any]:
    step: Callable[[], Any] = values.__next__
    try:
        while True:
            try:
                value = _here(place, step)
            except StopIteration as stop:
                return place.complete(stop.value, generator=True)
            place.publish(value)
            step = yield from _asked(values, value)
    finally:
        if hasattr(values, "close"):
            _here(place, values.close)
        place.discard()


def _asked(values: Any, value: Any) -> Generator[Any, Any, Callable[[], Any]]:
    """Yield a value; what to do next is what the reader wants."""
    try:
        sent = yield value
    except GeneratorExit:
        raise
    except BaseException as error:
        thrown = error
        if not hasattr(values, "throw"):
            raise
        return lambda: values.throw(thrown)
    return values.__next__ if sent is None else lambda: values.send(sent)


def _async_generator(udf: UDF[..., Any], args: Any, kwargs: Any) -> AsyncGenerator[Any, Any]:
    place = _place(udf)
    return _async_iterated(place, _here(place, lambda: udf.fn(*args, **kwargs)))


async def _async_iterated(place: InPlace, values: Any) -> AsyncGenerator[Any, Any]:
    step: Callable[[], Any] = values.__anext__
    try:
        while True:
            try:
                with apart(place):
                    value = await step()
            except StopAsyncIteration:
                await _aside(lambda: place.complete(None, generator=True))
                return
            if place.files is not None:
                await _aside(lambda value=value: place.publish(value))
            try:
                sent = yield value
            except GeneratorExit:
                raise
            except BaseException as error:
                if not hasattr(values, "athrow"):
                    raise
                step = _throwing(values, error)
            else:
                step = values.__anext__ if sent is None else _sending(values, sent)
    finally:
        if hasattr(values, "aclose"):
            with apart(place):
                await values.aclose()
        await _discard(place)


def _throwing(values: Any, error: BaseException) -> Callable[[], Any]:
    return lambda: values.athrow(error)


def _sending(values: Any, sent: Any) -> Callable[[], Any]:
    return lambda: values.asend(sent)


def _here(place: InPlace, step: Callable[[], Any]) -> Any:
    with apart(place):
        return step()


async def _discard(place: InPlace) -> None:
    """On a thread: there may be much to delete. Whoever is cancelled waits for it, but not for long."""
    place.over = True
    if place.files is not None:
        with anyio.CancelScope(shield=True) as scope:
            scope.deadline = anyio.current_time() + _TIDYING
            await anyio.to_thread.run_sync(place.discard, abandon_on_cancel=True)


async def _aside(call: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(call)


_KINDS: dict[str, Callable[..., Any]] = {
    "sync": _sync,
    "async": _async,
    "generator": _generator,
    "async_generator": _async_generator,
}
