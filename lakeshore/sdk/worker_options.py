"""What a worker is asked to be, checked."""

from __future__ import annotations

import importlib
import os
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from lakeshore.core.settings import check_name
from lakeshore.core.worker import CLEANUP

from .checks import LONGEST, finite, flag, sound, whole
from .processes.options import Processes, chosen, dealt, slots_of
from .run import Run

_MOST_SLOTS = 1_000_000


class Hooks(Struct, frozen=True):
    """What a worker calls besides bodies. Each may be a function or a coroutine function
    (`on_run_setup` a plain function where bodies run on threads).

    Args:
        on_host_setup: once, before the first claim; if it raises, the worker ends with that error.
        on_run_setup: before each body, in its context, with `dls.run`; if it raises, that
            invocation fails. Where that runs in a process of its own, it is called there.
        on_shutdown: once, when draining ends.
    """

    on_host_setup: Callable[[], Any] | None = None
    on_run_setup: Callable[[Run], Any] | None = None
    on_shutdown: Callable[[], Any] | None = None


class Event(Protocol):
    """A `threading.Event`, or an event of the worker's own loop."""

    def is_set(self) -> bool:
        """Whether it is set."""
        ...

    def wait(self) -> Any:
        """Wait until it is."""
        ...


class WorkerOptions:
    """Checked arguments of `run_worker`. Raises: ValueError, TypeError."""

    def __init__(
        self,
        queues: Sequence[str],
        once: bool,
        drain: bool,
        slots: int | None,
        runner: str | Processes,
        name: str | None,
        labels: Mapping[str, str] | None,
        allow_pickle: bool,
        trust: Sequence[str],
        strict_source: bool,
        root: str | os.PathLike[str] | None,
        grace: float,
        hooks: Hooks | None,
        capture: bool = True,
    ) -> None:
        if isinstance(queues, str | bytes) or not isinstance(queues, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"queues={queues!r}: pass a list of names")
        for flagged, value in (("once", once), ("drain", drain), ("allow_pickle", allow_pickle)):
            flag(flagged, value)
        flag("capture", capture)
        self.runner, self.processes = chosen(runner)
        if slots is not None:
            whole("slots", slots, 1, _MOST_SLOTS)
        self.slots = slots_of(slots, self.processes)
        dealt(self.processes.gpus)
        if isinstance(trust, str | bytes):
            raise TypeError(f"trust={trust!r}: pass a list of module names")
        flag("strict_source", strict_source)
        if not 0 <= finite("grace", grace) <= LONGEST:
            raise ValueError(f"grace={grace!r}: choose seconds, 0 to {LONGEST:g}")
        if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"name={name!r}: pass a string")
        if hooks is not None and not isinstance(hooks, Hooks):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"hooks={hooks!r}: pass Hooks(...)")
        self.queues = tuple(check_name(queue) for queue in queues)
        self.once, self.drain = once, drain
        self.name = sound("name", name or f"{socket.gethostname()}-{os.getpid()}")
        self.labels = _labels(labels)
        self.allow_pickle, self.grace = allow_pickle, float(grace)
        self.root = os.fspath(root) if root is not None else None
        self.hooks, self.capture = hooks or Hooks(), capture
        self.trust, self.strict_source = tuple(trust), strict_source
        self.daemon, self.packages = False, dict[str, str]()  # what else it says of itself
        self.cleanup = CLEANUP  # seconds that a stopped body in a process may go on
        self.hooks_name = self.log_format = ""  # of a daemon: where its hooks are from, and how it logs
        self.beats = True  # a thread of this process says that it lives; a daemon's parent does that for it


def load_hooks(name: str) -> Hooks | None:
    """The hooks that `daemon start --hooks` names. Raises: ValueError, TypeError; what importing raises."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise  # it is what the module itself imports
        raise ValueError(f"--hooks {name}: there is no module {error.name} to import here") from None
    if not hasattr(loaded, attribute):
        raise ValueError(f"--hooks {name}: {module} has no {attribute}")
    found = getattr(loaded, attribute)
    if not isinstance(found, Hooks):
        raise TypeError(f"--hooks {name} is {found!r}: name a dls.Hooks(...)")
    return found


def _labels(labels: Any) -> dict[str, str]:
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise TypeError(f"labels={labels!r}: pass a dict of strings")
    for key, value in labels.items():  # pyright: ignore[reportUnknownVariableType]
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"labels: pass strings as names and values, not {key!r}: {value!r}")
        sound("labels", key + value)
    return dict(labels)  # pyright: ignore[reportUnknownArgumentType]
