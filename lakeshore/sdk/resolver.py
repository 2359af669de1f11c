"""Where a worker finds the body of a grant."""

from __future__ import annotations

import importlib
import logging
import pickle
from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from lakeshore.core.bodies import PICKLES
from lakeshore.core.messages import Grant
from lakeshore.core.rows import Function
from lakeshore.core.worker import Lacking, Unresolved

from .functions import PYTHON, source_hash, walk
from .udf import UDF

log = logging.getLogger("lakeshore")

# by content hash: the same for every worker of the process, for as long as one of them keeps it
_unpickled: WeakValueDictionary[bytes, Any] = WeakValueDictionary()


class Resolver:
    """Finds the body of a grant: the submitter's own object, else by reference, else by value.

    Args:
        known: bodies of this process by their local name.
        allow_pickle: whether bodies may come as pickles.
        trust: modules, with all that is below them, of which every function may be run; of others only
            what is a udf.
        strict_source: refuse a body whose source differs from the submitter's, instead of a warning.
    """

    def __init__(
        self,
        known: Mapping[str, UDF[..., Any]],
        *,
        allow_pickle: bool,
        trust: tuple[str, ...] = (),
        strict_source: bool = False,
    ) -> None:
        self._known, self._allow_pickle = known, allow_pickle
        self._trust, self._strict = trust, strict_source
        self._found: dict[str, Any] = {}  # by reference
        self._kept: dict[bytes, Any] = {}  # by content hash, used last at the end: a pickle, then its body
        self._warned: set[str] = set()

    def __call__(self, grant: Grant) -> Any:
        """The body, or raise `Unresolved`."""
        function = grant.call.options.function
        body = self._known.get(function.local)
        if body is not None:
            return body
        if function.ref:
            body = self._found.get(function.ref)
            if body is None:
                body = self._found[function.ref] = self._imported(function)
            return body
        if not function.value:
            raise Unresolved(
                f"{function.name} lived only in the process that submitted it: define it at the top of a "
                "module that workers can import"
            )
        return self._unpickle(function, grant.function)

    def keep(self, grant: Grant) -> None:
        """A pickle comes along once, and may be needed only later; the head knows how many are kept, and
        counts as they are sent."""
        hash = grant.call.options.function.value
        kept = self._kept.pop(hash, None) or grant.function
        if kept is not None:
            self._note(hash, kept)

    def _note(self, hash: bytes, kept: Any) -> None:
        self._kept[hash] = kept
        if len(self._kept) > 2 * PICKLES:
            del self._kept[next(iter(self._kept))]

    def _imported(self, function: Function) -> Any:
        module, _, qualname = function.ref.partition(":")
        try:
            found = walk(importlib.import_module(module), qualname)
        except BaseException as error:  # a module may even call sys.exit
            raise Unresolved(
                f"{function.ref} can't be imported here ({type(error).__name__}: {error})"
            ) from error
        body = self._body(found, module, function)
        self._compare(body, function)
        return body

    def _body(self, found: Any, module: str, function: Function) -> Any:
        if isinstance(found, UDF):
            return found  # pyright: ignore[reportUnknownVariableType]
        if not any(f"{module}.".startswith(f"{name}.") for name in self._trust):
            raise Unresolved(
                f"{function.ref} is not a @udf here: put the decorator back, or let this worker trust its "
                f"module (--trust {module})"
            )
        try:
            return UDF(found)
        except TypeError as error:
            raise Unresolved(f"{function.ref} is nothing that can be run: {error}") from error

    def _compare(self, body: UDF[..., Any], function: Function) -> None:
        """A worker runs its own source, which may be another than the submitter's."""
        here = source_hash(body.fn)
        if not function.source or here == function.source:
            return
        if self._strict:
            raise Unresolved(
                f"the source of {function.ref} differs from what its submitter had, and this worker takes "
                "only the same (strict_source): install the same version on both"
            )
        if here and function.ref not in self._warned:
            self._warned.add(function.ref)
            log.warning(
                "the source of %s differs from what its submitter had: this worker runs its own", function.ref
            )

    def _unpickle(self, function: Function, data: bytes | None) -> Any:
        if not self._allow_pickle:
            raise Unresolved(f"{function.name} comes as a pickle, and this worker takes none (allow_pickle)")
        if function.python not in ("", PYTHON):
            raise Unresolved(
                f"{function.name} was pickled by Python {function.python}, and this worker runs {PYTHON}: "
                "run both with the same, or define it at the top of a module that workers can import"
            )
        kept = self._kept.get(function.value) or data
        if not isinstance(kept, bytes | None):
            return kept
        body = _unpickled.get(function.value)
        if body is None:
            if kept is None:
                raise Lacking(f"the pickle of {function.name} is not in the store any more")
            try:
                body = _unpickled[function.value] = pickle.loads(kept)
            except BaseException as error:
                raise Unresolved(
                    f"{function.name} can't be unpickled here ({type(error).__name__}: {error})"
                ) from error
        self._note(function.value, body)
        return body
