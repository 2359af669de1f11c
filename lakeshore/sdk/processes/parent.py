"""The worker's end: what its children are told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from anyio.abc import TaskGroup

from lakeshore.core.backend import Backend
from lakeshore.core.bodies import Job
from lakeshore.core.errors import LakeshoreError
from lakeshore.core.messages import Grant
from lakeshore.core.rows import Function, FunctionRow
from lakeshore.core.worker import Worker
from lakeshore.runners.choice import Choice
from lakeshore.runners.inline import InlineRunner
from lakeshore.runners.processes.functions import Grants, Portable
from lakeshore.runners.processes.limits import Limits
from lakeshore.runners.processes.runner import ProcessRunner
from lakeshore.runners.processes.wire import Charge
from lakeshore.runners.shared import Setup
from lakeshore.sdk import bulk, functions
from lakeshore.sdk.address import MEMORY
from lakeshore.sdk.face import Face
from lakeshore.sdk.host import Host
from lakeshore.sdk.udf import UDF
from lakeshore.sdk.worker_options import WorkerOptions

from .options import limits_of

_PROGRAM = "lakeshore.sdk.processes.child"


def portable(known: Mapping[str, UDF[..., Any]]) -> Callable[[str], Portable | None]:
    """Functions of this process by their local name, as a child finds them."""

    def found(name: str) -> Portable | None:
        udf = known.get(name)
        if udf is None:
            return None
        made = _made_by_hand(udf.fn)
        reference = functions.reference(udf) if udf.by != "value" and made is None else ""
        if reference:
            return Portable(Function(udf.name, "", reference), None)
        stored = udf.stored() or _by_value(udf, made)
        return Portable(Function(udf.name, "", "", stored.hash, b"", functions.PYTHON), stored.data)

    return found


def _made_by_hand(fn: Any) -> ModuleType | None:
    """The module of a function where nobody else can import it: some program has made it."""
    module = sys.modules.get(getattr(fn, "__module__", None) or "")
    return module if module is not None and getattr(module, "__spec__", None) is None else None


def _by_value(udf: UDF[..., Any], module: ModuleType | None) -> FunctionRow:
    if module is None or module.__name__ == "__main__":
        return functions.pickled(udf)
    from cloudpickle import (  # pyright: ignore[reportMissingTypeStubs]
        register_pickle_by_value,  # pyright: ignore[reportUnknownVariableType]
        unregister_pickle_by_value,  # pyright: ignore[reportUnknownVariableType]
    )

    register_pickle_by_value(module)
    try:
        return functions.pickled(udf)
    finally:
        unregister_pickle_by_value(module)


class Runners(Choice):
    """The runners of one worker.

    Args:
        slots: where slot tasks live.
        setup: what the inline one calls before each body.

    Raises: TypeError where `on_run_setup` would have to be pickled and can't be.
    """

    def __init__(
        self,
        options: WorkerOptions,
        face: Face,
        host: Host,
        backend: Backend,
        slots: TaskGroup,
        setup: Setup | None,
    ) -> None:
        super().__init__(options.runner, {"inline": self._make_inline, "process": self._make_process})
        self._options, self._face, self._host, self._backend = options, face, host, backend
        self._slots, self._setup = slots, setup
        self._worker: Worker
        self._grants = Grants(portable(host.known))
        self._processes: ProcessRunner | None = None
        self._hook = self._pickled_hook() if options.runner == "process" else b""

    def work_for(self, worker: Worker) -> None:
        """Begin."""
        self._worker = worker
        worker.runner = self
        self.open()

    def elsewhere(self, grant: Grant) -> bool:
        """Whether the body of a grant is found in the process that runs it."""
        return self.name(grant) == "process"

    def keeping(self, keep: Callable[[Grant], object]) -> Callable[[Grant], None]:
        """Have pickles kept where they will be needed."""

        def kept(grant: Grant) -> None:
            if self.elsewhere(grant):
                self._grants.keep(grant)
            else:
                keep(grant)

        return kept

    async def aclose(self) -> None:
        """Leave no process behind."""
        if self._processes is not None:
            await self._processes.aclose()

    def _make_inline(self) -> InlineRunner:
        return InlineRunner(self._worker, self._slots, self._backend, setup=self._setup)

    def _make_process(self) -> ProcessRunner:
        options = self._options
        limits = limits_of(options.processes, options.slots, options.cleanup, options.capture)
        made = self._processes = ProcessRunner(
            self._worker, self._backend, limits, self._grants, _PROGRAM, _left
        )
        self._hook = self._hook or self._pickled_hook()
        self._slots.start_soon(self._open, made, limits)
        return made

    def _pickled_hook(self) -> bytes:
        options = self._options
        return b"" if options.hooks_name else _pickled(options.hooks.on_run_setup)

    async def _open(self, made: ProcessRunner, limits: Limits) -> None:
        options, face = self._options, self._face
        address, trouble = face.address, ""
        if address == MEMORY:
            try:
                address = await self._host.on_loop(self._host.share)
            except LakeshoreError as error:
                address, trouble = "", f"a body in a process of its own can't reach its plane: {error}"
        made.open(
            Charge(
                self._backend.name,
                tuple(sys.path),
                self._host.options.payload_limit,
                options.cleanup,
                limits.memory,
                options.root,
                options.allow_pickle,
                options.trust,
                options.strict_source,
                address,
                face.asked_for,
                face.token if face.remote else "",
                (face.ca or "") if face.remote else "",
                trouble,
                options.hooks_name,
                self._hook,
                options.log_format,
            )
        )


def _left(job: Job) -> None:
    """Take away what a body had on its way as its process died."""
    threading.Thread(target=bulk.forget, args=(job.running,), name="lakeshore files", daemon=True).start()


def _pickled(setup: Any) -> bytes:
    if setup is None:
        return b""
    import cloudpickle  # pyright: ignore[reportMissingTypeStubs]  # which few programs need

    try:
        data: bytes = cloudpickle.dumps(setup)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:
        raise TypeError(
            f"on_run_setup can't be sent to the processes of bodies ({error}): define it at the top of a "
            "module that they can import, or take what can't be pickled out of its closure"
        ) from error
    return data
