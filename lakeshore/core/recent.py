"""The newest outcomes of a namespace, kept for those who ask just after the end. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .messages import Outcome

_HALF = 512  # outcomes of a generation
LARGEST = 1024  # bytes of a result that is kept here; a larger one is read from the store, as is an error


class Recent:
    """The last 512 to 1,024 outcomes, in two generations: when the young one is full the old one goes.

    So a wait that comes after the end, as most of a `submit_many` do, reads nothing from the disk.
    """

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        self._young: dict[bytes, Outcome] = {}
        self._old: dict[bytes, Outcome] = {}

    def add(self, outcome: Outcome) -> None:
        """Keep a stored outcome, unless it is a large one."""
        if outcome.error is not None or (outcome.result is not None and len(outcome.result) > LARGEST):
            return
        self._young[outcome.id] = outcome
        if len(self._young) >= _HALF:
            self._old, self._young = self._young, {}

    def answer(self, id: bytes, req: int) -> Outcome | None:
        """The answer to a wait, where it is known here."""
        known = self._young.get(id) or self._old.get(id)
        if known is None:
            return None
        return Outcome(req, id, known.state, known.attempt, known.result, known.error, known.reason)

    def forget(self, ids: Iterable[bytes]) -> None:
        """These were pruned."""
        for id in ids:
            self._young.pop(id, None)
            self._old.pop(id, None)
