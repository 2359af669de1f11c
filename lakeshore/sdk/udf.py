"""`@udf`: a function that can run here, or be submitted to run somewhere else."""

from __future__ import annotations

import functools
import inspect
import typing
import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from lakeshore.core.bodies import KINDS
from lakeshore.core.rows import Function, FunctionRow, Options
from lakeshore.core.settings import check_name

from . import forks, functions
from .checks import finite, sound
from .choices import By, Runner
from .in_place import run_in_place

if TYPE_CHECKING:
    from .face import Face

P = ParamSpec("P")
R = TypeVar("R")

RetryOn = type[BaseException] | tuple[type[BaseException], ...] | Callable[[BaseException], bool]
Moment = float | timedelta | datetime


class UDF(Generic[P, R]):
    """A body with its options. Made by `udf`; `kind` says which of the four it is.

    Attributes:
        fn: the function itself.
        kind: "sync", "generator", "async" or "async_generator".
        name: for display.
        queue: where a submit goes; None is the default queue.
        types: its annotations, by which values that carry a class find it.
    """

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        queue: str | None = None,
        timeout: float | None = None,
        retries: int = 0,
        retry_delay: float = 1.0,
        retry_cap: float = 300.0,
        retry_on: RetryOn = Exception,
        priority: float = 0.0,
        name: str | None = None,
        by: By = "auto",
        runner: Runner | None = None,
    ) -> None:
        self.kind: str = body_kind(fn)
        self.fn = fn
        self.queue: str | None = check_name(queue) if queue is not None else None
        self.timeout: float | None = _seconds("timeout", timeout)
        self.retries: int = _count("retries", retries)
        self.retry_delay: float = _positive("retry_delay", retry_delay)
        self.retry_cap: float = _positive("retry_cap", retry_cap)
        if self.retry_cap < self.retry_delay:
            raise ValueError(f"retry_cap={retry_cap} is below retry_delay={retry_delay}: raise the cap")
        self.retry_on: RetryOn = _retry_on(retry_on)
        self.priority: float = finite("priority", priority)
        if by not in ("auto", "ref", "value"):
            raise ValueError(f"by={by!r}: a body travels by auto, ref or value")
        if runner not in (None, "inline", "process"):
            raise ValueError(f"runner={runner!r}: a body runs inline or in a process of its own (process)")
        self.by, self.runner = by, runner
        if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"name={name!r}: a name is a string")
        self.name: str = sound("name", name or _display_name(fn))
        self._signature = _signature_of(fn)
        self._simple = _simple_parameters(self._signature, self.name)
        self.takes_some: bool = self._simple is None or bool(self._simple[1])  # can't be called as f()
        self._local, self._forks = functions.local_name(), forks.count
        self.known_in: Any = None  # where workers of this process find it, as of its last submit
        self._options: dict[tuple[float | None, bool], Options] = {}
        self._stored: FunctionRow | None = None
        functools.update_wrapper(self, fn, updated=())

    @functools.cached_property
    def types(self) -> tuple[Any, ...]:
        """What its annotations name."""
        try:
            hints = typing.get_type_hints(_plain(self.fn))
        except Exception:  # an annotation that can't be evaluated names nothing
            return ()
        return tuple(hints.values())

    @functools.cached_property
    def result_types(self) -> tuple[Any, ...]:
        """What it says it returns or yields."""
        try:
            hint = typing.get_type_hints(_plain(self.fn)).get("return")
        except Exception:
            return ()
        return () if hint is None else (hint,)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run in place; with `queue=` submit, and give the same shape back.

        Inside its own body it runs in place too, so recursion submits nothing.
        """
        running = running_here()
        if self.queue is None or (running is not None and running.body is self):
            return run_in_place(self, args, kwargs)
        from .calls import call_through

        return call_through(self, args, kwargs)

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run in place, whatever the queue."""
        return run_in_place(self, args, kwargs)

    @overload
    def submit(self, *args: P.args, **kwargs: P.kwargs) -> str: ...
    @overload
    def submit(self, *args: Any, _key: str | None, **kwargs: Any) -> str: ...
    @overload
    def submit(self, *args: Any, _strict_key: bool, **kwargs: Any) -> str: ...
    @overload
    def submit(self, *args: Any, _priority: float | None, **kwargs: Any) -> str: ...
    @overload
    def submit(self, *args: Any, _delay: Moment | None, **kwargs: Any) -> str: ...
    @overload
    def submit(self, *args: Any, _deadline: Moment | None, **kwargs: Any) -> str: ...
    @overload
    def submit(self, *args: Any, _timeout: float | None, **kwargs: Any) -> str: ...
    @overload
    def submit(self, *args: Any, _dispatch: Face | None, **kwargs: Any) -> str: ...
    def submit(self, *args: Any, **kwargs: Any) -> str:
        """Submit a call and return its id, a ULID of 26 characters.

        Underscored names are Lakeshore's, all others the body's: `_key` (the same key gives the same
        id), `_strict_key` (KeyConflict where the arguments differ), `_priority`, `_delay` and
        `_deadline` (seconds from now, a timedelta, or an aware datetime), `_timeout` (seconds),
        `_dispatch` (the plane).

        Raises: TypeError for arguments the body does not take or that can't travel, ValueError for
            an option that makes no sense, QueueFull, QueueClosed, NotFound, KeyConflict, StoreFailed.
        """
        face = _given(kwargs.pop("_dispatch")) if "_dispatch" in kwargs else _face()
        return face.submit_blocking(self, args, kwargs)

    @overload
    async def asubmit(self, *args: P.args, **kwargs: P.kwargs) -> str: ...
    @overload
    async def asubmit(self, *args: Any, _key: str | None, **kwargs: Any) -> str: ...
    @overload
    async def asubmit(self, *args: Any, _strict_key: bool, **kwargs: Any) -> str: ...
    @overload
    async def asubmit(self, *args: Any, _priority: float | None, **kwargs: Any) -> str: ...
    @overload
    async def asubmit(self, *args: Any, _delay: Moment | None, **kwargs: Any) -> str: ...
    @overload
    async def asubmit(self, *args: Any, _deadline: Moment | None, **kwargs: Any) -> str: ...
    @overload
    async def asubmit(self, *args: Any, _timeout: float | None, **kwargs: Any) -> str: ...
    @overload
    async def asubmit(self, *args: Any, _dispatch: Face | None, **kwargs: Any) -> str: ...
    async def asubmit(self, *args: Any, **kwargs: Any) -> str:
        """`submit` inside an event loop."""
        face = _given(kwargs.pop("_dispatch")) if "_dispatch" in kwargs else _face()
        return await face.submit_async(self, args, kwargs)

    def submit_many(self, items: Iterable[Any], *, _dispatch: Face | None = None) -> list[str]:
        """Submit many calls; they travel in parts, one commit a part.

        Args:
            items: each a dict (keyword arguments, underscored options too), a tuple (positional
                arguments), or else one argument.

        Returns: one id an item, in order.
        Raises: SubmitErrors where some were refused; the others stand.
        """
        return _given(_dispatch).submit_many_blocking(self, items)

    async def asubmit_many(self, items: Iterable[Any], *, _dispatch: Face | None = None) -> list[str]:
        """`submit_many` inside an event loop."""
        return await _given(_dispatch).submit_many_async(self, items)

    def __get__(self, instance: object, owner: type | None = None) -> UDF[P, R]:
        """A udf in a class body is a static function."""
        return self

    def __repr__(self) -> str:
        return f"<udf {self.name} ({self.kind})>"

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: getattr(self, name) for name in _OPTION_NAMES}
        return (_rebuild, (self.fn, options))

    # what the rest of the package needs

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise the TypeError that calling the body with these would raise."""
        simple = self._simple
        if simple is not None:
            names, required, most = simple
            if len(args) <= most:
                given = len(args)
                for name in kwargs:
                    if names.get(name, -1) < given:
                        break
                else:
                    if given + len(kwargs) == len(names) or required <= {*kwargs, *list(names)[:given]}:
                        return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}; its signature is {self.name}{self._signature}") from None

    def bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments that fit, in the one order that equal calls share."""
        found = self._signature.bind(*args, **kwargs)
        return found.args, dict(sorted(found.kwargs.items()))

    def wants_retry(self, error: BaseException) -> bool:
        """Whether `retry_on` names this error."""
        retry_on = self.retry_on
        if isinstance(retry_on, tuple) or inspect.isclass(retry_on):
            return isinstance(error, retry_on)
        return bool(retry_on(error))

    def options(self, timeout: float | None, durable: bool) -> Options:
        """What a worker needs to know, shared by all calls with this timeout."""
        options = self._options.get((timeout, durable))
        if options is None or self._forks != forks.count:
            if self._forks != forks.count:
                self._forks, self._local, self.known_in = forks.count, functions.local_name(), None
                self._options.clear()
            if len(self._options) >= _KEPT_OPTIONS:  # a timeout of its own at each call
                self._options.clear()
            options = self._options[timeout, durable] = Options(
                self._function(durable),
                self.kind,
                timeout,
                self.retries,
                self.retry_delay,
                self.retry_cap,
                self.runner or "",
            )
            options.keep(self)
        return options

    def stored(self) -> FunctionRow | None:
        """Its pickle, where it travels by value."""
        return self._stored

    @property
    def local_name(self) -> str:
        """What names this very object inside this process."""
        return self._local

    def _function(self, durable: bool) -> Function:
        if not durable:
            return Function(self.name, self._local)
        source = functions.source_hash(_plain(self.fn))
        ref = functions.reference(self) if self.by != "value" else ""
        if ref:
            return Function(self.name, self._local, ref, b"", source)
        if self.by == "ref":
            raise TypeError(
                f"{self.name} can't travel by reference: define it at the top of an importable module, "
                'under its own name and with the decorator, or use by="auto"'
            )
        if self._stored is None:
            self._stored = functions.pickled(self)
        return Function(self.name, self._local, "", self._stored.hash, source, functions.PYTHON)


_KEPT_OPTIONS = 64
_OPTION_NAMES = (
    "queue",
    "timeout",
    "retries",
    "retry_delay",
    "retry_cap",
    "retry_on",
    "priority",
    "name",
    "by",
    "runner",
)


def _rebuild(fn: Callable[..., Any], options: dict[str, Any]) -> UDF[..., Any]:
    return UDF(fn, **options)


@overload
def udf(
    fn: Callable[P, R],
    /,
    *,
    queue: str | None = None,
    timeout: float | None = None,
    retries: int = 0,
    retry_delay: float = 1.0,
    retry_cap: float = 300.0,
    retry_on: RetryOn = Exception,
    priority: float = 0.0,
    name: str | None = None,
    by: By = "auto",
    runner: Runner | None = None,
) -> UDF[P, R]: ...
@overload
def udf(
    *,
    queue: str | None = None,
    timeout: float | None = None,
    retries: int = 0,
    retry_delay: float = 1.0,
    retry_cap: float = 300.0,
    retry_on: RetryOn = Exception,
    priority: float = 0.0,
    name: str | None = None,
    by: By = "auto",
    runner: Runner | None = None,
) -> Callable[[Callable[P, R]], UDF[P, R]]: ...
def udf(fn: Any = None, /, **options: Any) -> Any:
    """Make a function submittable: `@udf`, `@udf(retries=3)` or `udf(fn, queue="q")`.

    One decorator for four kinds of body: a function, a generator, a coroutine function, an
    asynchronous generator. `inspect` decides once, here.

    Args:
        queue: where submits go; a plain call submits too then, and gives the same shape back.
        timeout: seconds a body may run.
        retries: how many more attempts a body that raises gets.
        retry_delay, retry_cap: the exponential backoff between them, seconds, with full jitter.
        retry_on: exception types, or a predicate of the exception.
        priority: in a queue of kind priority or boltzmann.
        name: for display.
        by: how the body travels to other processes: "ref", "value", or "auto".
        runner: "process": in a process of its own, whatever the worker does with others; "inline": in the
            worker's; None: as the worker was started.

    Raises: TypeError for a class or what can't be called, ValueError for a wrong option.
    """
    if fn is not None:
        return UDF(fn, **options)

    def decorate(function: Callable[..., Any]) -> UDF[..., Any]:
        return UDF(function, **options)

    return decorate


def body_kind(fn: Any) -> str:
    """Which of the four kinds a function is.

    Sees through `functools.partial`, `functools.wraps` and objects with `__call__`.
    Raises: TypeError for what can't be a body.
    """
    if isinstance(fn, UDF):
        raise TypeError(f"{fn!r} is a udf already: pass udf(f.fn, ...) to give it other options")
    if isinstance(fn, type):
        raise TypeError(f"{fn.__name__} is a class: pass a function, or an object with __call__")
    if not callable(fn):
        raise TypeError(f"a {type(fn).__name__} can't be called: pass a function")
    seen: Any = fn
    while True:
        for kind, test in _TESTS:
            if test(seen):
                return kind
        if isinstance(seen, functools.partial):
            seen = seen.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        elif hasattr(seen, "__wrapped__"):
            seen = seen.__wrapped__
        elif inspect.ismethod(seen):
            seen = seen.__func__
        elif not inspect.isroutine(seen) and not isinstance(seen, type):
            seen = type(seen).__call__
        else:
            return "sync"


_TESTS: tuple[tuple[str, Callable[[Any], bool]], ...] = (
    ("async_generator", inspect.isasyncgenfunction),
    ("async", inspect.iscoroutinefunction),
    ("generator", inspect.isgeneratorfunction),
)
assert {kind for kind, _ in _TESTS} < set(KINDS)


def running_here() -> Any:
    """The attempt whose body runs here, or None."""
    from lakeshore.core.running import CURRENT

    return CURRENT.get()


_wrapped: weakref.WeakKeyDictionary[Any, weakref.ref[UDF[..., Any]]] = weakref.WeakKeyDictionary()


def as_udf(fn: Any) -> UDF[..., Any]:
    """A udf as it is; a plain function wrapped, in the same one while an invocation of it is kept."""
    if isinstance(fn, UDF):
        return fn  # pyright: ignore[reportUnknownVariableType]
    try:
        reference = _wrapped.get(fn)
    except TypeError:  # it can't be hashed
        return UDF(fn)
    found = reference() if reference is not None else None
    if found is None:
        found = UDF(fn)
        try:
            _wrapped[fn] = weakref.ref(found)
        except TypeError:  # it can't be referred to weakly
            return found
    return found


def _seconds(name: str, value: Any) -> float | None:
    return None if value is None else _positive(name, value)


def _positive(name: str, value: Any) -> float:
    if finite(name, value) <= 0:
        raise ValueError(f"{name}={value!r}: choose a number of seconds above 0")
    return float(value)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{name}={value!r}: choose a whole number, 0 or more")
    return value


def _retry_on(value: Any) -> Any:
    types: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]
    if all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in types):
        return value  # pyright: ignore[reportUnknownVariableType]
    if callable(value) and not isinstance(value, type):  # pyright: ignore[reportUnknownArgumentType]
        return value
    raise TypeError(f"retry_on={value!r}: pass exception types, or a function of the exception")


def _plain(fn: Any) -> Any:
    seen = fn
    while isinstance(seen, functools.partial):
        seen = seen.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not inspect.isroutine(seen) and not isinstance(seen, type):
        seen = type(seen).__call__
    return inspect.unwrap(seen)


def _signature_of(fn: Any) -> inspect.Signature:
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):  # some built-in functions don't say what they take
        return inspect.signature(lambda *args, **kwargs: None)  # pyright: ignore[reportUnknownLambdaType]


def _display_name(fn: Any) -> str:
    plain = _plain(fn)
    module, qualname = getattr(plain, "__module__", None), getattr(plain, "__qualname__", None)
    return f"{module}.{qualname}" if module and qualname else type(fn).__qualname__


def _simple_parameters(
    signature: inspect.Signature, name: str
) -> tuple[dict[str, int], frozenset[str], int] | None:
    """Parameter numbers, the required ones and how many may be positional, where none is special."""
    names: dict[str, int] = {}
    required: set[str] = set()
    simple = True
    for number, parameter in enumerate(signature.parameters.values()):
        rest = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if parameter.name.startswith("_") and not rest:
            raise TypeError(
                f"{name} has a parameter {parameter.name!r}: names that begin with an underscore are "
                "Lakeshore's in a submit; rename it"
            )
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            simple = False
        names[parameter.name] = number
        if parameter.default is parameter.empty:
            required.add(parameter.name)
    return (names, frozenset(required), len(names)) if simple else None


def _given(face: Any) -> Face:
    """The plane that a call names, or the current one."""
    if face is None:
        return _face()
    if isinstance(face, type) or not hasattr(face, "submit_blocking"):  # the class imports this module
        raise TypeError(f"_dispatch={face!r}: pass a Dispatch or an AsyncDispatch")
    return face


def _face() -> Face:
    from .current import current_face

    return current_face()
