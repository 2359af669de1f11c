"""Grants as a child can use them: its functions are named by reference or come as a pickle, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import structs

from lakeshore.core.bodies import PICKLES
from lakeshore.core.messages import Grant
from lakeshore.core.rows import Function, Options

from .wire import Run


class Portable(NamedTuple):
    """A function of this process as others find it, and its pickle where it has no reference."""

    function: Function
    data: bytes | None


class Grants:
    """Args:
    portable: a function by its local name, where that is this process's own; raises TypeError where it
        can't be pickled.
    """

    def __init__(self, portable: Callable[[str], Portable | None]) -> None:
        self._portable = portable
        self._own: dict[str, tuple[Options, Options, bytes | None]] = {}  # by local name
        self._pickles: dict[bytes, bytes] = {}  # used last at the end

    def keep(self, grant: Grant) -> None:
        """A pickle comes along once, and may be needed only later, by more than one child."""
        hash = grant.call.options.function.value
        data = grant.function or self._pickles.pop(hash, None)
        if data is not None:
            self._pickles[hash] = data
            if len(self._pickles) > 2 * PICKLES:
                del self._pickles[next(iter(self._pickles))]

    def run(self, grant: Grant, known: dict[bytes, None]) -> Run:
        """What to send to a child that has the pickles `known`, which is brought up to date.

        Raises: TypeError for a function of this process that can't be pickled.
        """
        options, data, trusted = self._options(grant)
        hash = options.function.value
        if hash:
            data = None if hash in known else data or self._pickles.get(hash)
            _use(known, hash)
        call = grant.call
        if options is not call.options:
            call = structs.replace(call, options=options)
        return Run(structs.replace(grant, call=call, function=data), trusted)

    def _options(self, grant: Grant) -> tuple[Options, bytes | None, bool]:
        given = grant.call.options
        name = given.function.local
        if not name:
            return given, None, False
        found = self._own.get(name)
        if found is not None and found[0] is given:
            return found[1], found[2], True
        portable = self._portable(name)
        if portable is None:
            return given, None, False
        options = structs.replace(given, function=portable.function)
        if len(self._own) > PICKLES:
            self._own.clear()
        self._own[name] = given, options, portable.data
        return options, portable.data, True


def _use(known: dict[bytes, None], hash: bytes) -> None:
    known.pop(hash, None)
    known[hash] = None
    if len(known) > PICKLES:
        del known[next(iter(known))]
