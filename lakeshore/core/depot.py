"""Where the files of a namespace are by key, and which of its large values are objects there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from .actor import Actor
from .away import Away, away_in, folder_of
from .engine import Engine
from .messages import Answer, SetStorage, ShowStorage
from .notes import Strays
from .rows import Loaded, MetaRow, ObjectRow, WantedObjects

if TYPE_CHECKING:
    from .space import Space

_NAME = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}")
_META = "storage of "  # what the row is called, before the namespace


class Depot(Actor):
    """Args:
    given: where the host keeps the files of namespaces that say nothing else; empty: nowhere, and
        each worker has them under its own root.
    """

    def __init__(self, engine: Engine, space: Space, given: str) -> None:
        super().__init__(engine)
        self._space, self._given = space, given
        self.own: str = ""
        self.storage = given  # of queues that have none of their own; empty for none
        self.handlers |= {SetStorage: self._on_set, ShowStorage: self._on_show, Strays: self._on_strays}

    @property
    def places(self) -> set[str]:
        """Every storage of the namespace."""
        queues = {queue.settings.storage for queue in self._space.queues.values() if queue.settings.storage}
        return queues | ({self.storage} if self.storage else set())

    @property
    def folder(self) -> str:
        """The folder for large values, in whatever storage."""
        return folder_of(self._space.office.plane, self._space.name)

    def restore(self, loaded: Loaded) -> None:
        """Take back what was set."""
        name = _META + self._space.name
        self._take(next((row.value for row in loaded.meta if row.name == name), ""))

    def _take(self, own: str) -> None:
        self.own = own
        self.storage = own or self._given

    def flush(self) -> None:
        self.engine.batch.put(MetaRow(_META + self._space.name, self.own or None))

    # large values

    def refuses(self, data: bytes) -> str:
        """Why packed arguments can't be a reference to a large value; empty for a sound one, and for none."""
        try:
            away = away_in(data)
        except msgspec.MsgspecError as error:
            return f"its arguments are a reference that can't be read: {error}"
        if away is None or (self._ours(away) and away.place in self.places):
            return ""
        return (
            f"its arguments are at {away.name!r} in {away.place}, which is no place for large values here: "
            "the storage was changed meanwhile, say; submit it again"
        )

    def row(self, id: bytes, data: bytes) -> ObjectRow | None:
        """What is to be stored about packed data of an invocation, if it is a reference."""
        try:
            away = away_in(data)
        except msgspec.MsgspecError:
            return None
        if away is None or not self._ours(away):
            return None
        return ObjectRow(self._space.name, id, away.place, away.name)

    def _ours(self, away: Away) -> bool:
        folder, _, name = away.name.rpartition("/")
        return folder == self.folder and _NAME.fullmatch(name) is not None

    def _on_strays(self, message: Strays, sender: Any) -> None:
        """Objects were found that are old enough to be known: those that nothing has are in vain."""

        def known(wanted: frozenset[str] | BaseException) -> None:
            if not isinstance(wanted, BaseException):
                gone = tuple((message.place, name) for name in message.names if name not in wanted)
                if gone:
                    self.engine.unwanted(gone)

        self.engine.read(self, WantedObjects(self._space.name, message.names), known)

    # what is asked

    def _on_set(self, message: SetStorage, peer: Any) -> None:
        self._take(message.storage or "")
        self.engine.touch(self)
        self._answer(message.req, peer, self.storage)

    def _on_show(self, message: ShowStorage, peer: Any) -> None:
        queue = self._space.queues.get(message.queue)
        own = queue.settings.storage if queue is not None else None
        self._answer(message.req, peer, own or self.storage)

    def _answer(self, req: int, peer: Any, storage: str) -> None:
        told = {"storage": storage, "own": self.own or None, "folder": self.folder}
        self.engine.emit(peer, Answer(req, told))
