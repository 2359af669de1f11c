"""What was decided about the queues of a namespace, and what was done: written down, and listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from .engine import Engine, store_failed
from .ids import text_of
from .intake import refusal
from .messages import Answer, QueueEvents
from .rows import EventRow, ListEvents

if TYPE_CHECKING:
    from .queue import Queue
    from .space import Space

_MOST = 200  # events in one answer
_SETTINGS = ("providerRef", "elasticity", "daemonTemplate", "description", "temperature", "seed", "retention")


class Ledger:
    """The book of one namespace; runs in its space's turns."""

    def __init__(self, engine: Engine, space: Space) -> None:
        self.engine, self.space = engine, space
        space.handlers |= {QueueEvents: self.on_events}

    def note(
        self, queue: Queue, kind: str, *, did: dict[str, Any], why: str, signals: dict[str, Any] | None = None
    ) -> None:
        """Write down one event of a queue, with the next commit."""
        data = {
            "at": self.engine.at,
            "kind": kind,
            "count": 1,
            "signals": signals or {},
            "want": None,
            "did": did,
            "why": why,
            "memoryBefore": None,
            "memoryAfter": None,
        }
        self.engine.batch.put(EventRow(self.space.name, queue.id, self.engine.new_id(), data))

    def added(self, queue: Queue) -> None:
        """A queue was made because somebody asked for it."""
        self.note(queue, "config_changed", did={"added": queue.name}, why=f"queue {queue.name!r} was added")

    def patched(self, queue: Queue, before: dict[str, Any]) -> None:
        """A queue was described so `before`; writes nothing where nothing changed."""
        old, new = _flat(before), _flat(queue.describe())
        changed = [name for name in new if new[name] != old[name]]
        if changed:
            did = {name: {"before": old[name], "after": new[name]} for name in changed}
            parts = [f"{name} from {_word(old[name])} to {_word(new[name])}" for name in changed]
            self.note(queue, "config_changed", did=did, why=f"an operator changed {', '.join(parts)}")

    def shifted(self, queue: Queue, before: str, move: str) -> None:
        """A queue was in the state `before`."""
        did = {"before": str(before), "after": queue.state.value}
        why = f"an operator asked for {move}: the queue was {before} and is {queue.state.value}"
        self.note(queue, "state_changed", did=did, why=why)

    def on_events(self, message: QueueEvents, peer: Any) -> None:
        queue = self.space.find(message.name)
        if queue is None:
            self.engine.emit(peer, refusal(message.req, self.space.no_queue(message.name)))
            return
        name, limit = queue.name, max(1, min(message.limit, _MOST))

        def answer(rows: list[EventRow] | BaseException) -> None:
            if isinstance(rows, BaseException):
                self.engine.send(peer, refusal(message.req, store_failed(rows)))
            else:
                events = [{"id": text_of(row.id), "queue": name, **row.data} for row in rows]
                self.engine.send(peer, Answer(message.req, events))

        self.engine.read(self.space, ListEvents(self.space.name, queue.id, limit, message.verbose), answer)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {**{name: row[name] for name in _SETTINGS}, **row["admission"]}


def _word(value: Any) -> str:
    """A setting as people read it."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        return " ".join(f"{name}={_word(part)}" for name, part in fields.items()) or "nothing"
    return "nothing" if value in (None, "", [], ()) else str(value)
