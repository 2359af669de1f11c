"""What clients are told must be on the disk, and true."""

from __future__ import annotations

from lakeshore.core import messages as m
from lakeshore.core.ids import text_of
from lakeshore.core.rows import InvocationRow
from lakeshore.core.values import unpack

from .asked import Asked
from .commits import Model
from .facts import TERMINAL, Broken


class Answers:
    """Looks at what leaves the head for clients.

    Attributes:
        told: how an invocation ended, as somebody was told.
        acknowledged: what was accepted, and is on the disk for as long as it is kept.
        waiting: requests that wait for room, in the order in which they were told so.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.told: dict[bytes, tuple[str, int]] = {}
        self.acknowledged: set[bytes] = set()
        self.waiting: list[Asked] = []
        self.trouble = False  # the store has failed since the last time all was well
        self._count = 0

    def give_up(self, asked: Asked) -> None:
        """Nobody waits for this any more."""
        if asked in self.waiting:
            self.waiting.remove(asked)
        asked.state = "gone"

    def done(self, asked: Asked, kind: str) -> None:
        asked.given += 1
        if asked in self.waiting:
            self.waiting.remove(asked)
        asked.state = "done" if asked.state != "gone" else "gone"
        if asked.expected is not None and kind not in asked.expected:
            raise Broken("admission", f"{asked.kind} {asked.message!r} got {kind}, not {asked.expected}")

    # submits

    def accepted(self, asked: Asked, message: m.Accepted) -> None:
        self.done(asked, "known" if message.known else "accepted")
        if asked.kind == "retry":
            self._retried(asked, message)
        else:
            self._taken(asked, asked.message, message)

    def _taken(self, asked: Asked, call: m.Submit, message: m.Accepted) -> None:
        row = self.row(message.id, "an acknowledgement waits for its commit")
        key = call.call.key
        self.acknowledged.add(message.id)
        if row is None:
            return
        if not message.known:
            if message.id != call.id:
                raise Broken("a submit is answered with its own id", text_of(message.id))
            held_by = self.model.disk.rows.get(asked.holder or b"")
            if held_by is not None and held_by.queue == row.queue:
                raise Broken("one key, one invocation", f"{key!r} was held by {text_of(held_by.id)}")
            return
        if not key or row.call.key != key:
            raise Broken("one key, one invocation", f"{key!r} is not of {text_of(message.id)}")
        held = self.model.disk.keys.get((row.queue, key))
        if held is not None and held[0] == message.id and message.same != (held[1] == call.digest):
            raise Broken("the same key with other arguments is told", key)
        if not message.same and call.strict:
            raise Broken("a strict key refuses other arguments", key)

    def _retried(self, asked: Asked, message: m.Accepted) -> None:
        row = self.row(message.id, "an acknowledgement waits for its commit")
        self.acknowledged.add(message.id)
        if row is not None and row.call.retry_of != asked.id:
            raise Broken("a retry names what it repeats", text_of(message.id))

    def many(self, asked: Asked, message: m.SubmittedMany) -> None:
        if asked.client.far:
            by_id = {item.id: item for item in asked.message.items}
            results = [each for each in message.results if getattr(each, "id", b"") in by_id]
            items = [by_id[each.id] for each in results if isinstance(each, m.Accepted)]
            asked.got = list(by_id).index(message.first) + len(message.results)
        else:
            items = asked.message.items[asked.got : asked.got + len(message.results)]
            results = list(message.results)
            asked.got += len(items)
        for item, result in zip(items, results, strict=True):
            if isinstance(result, m.Accepted):
                self._taken(asked, item, result)
            else:
                self._turned_down(asked, item, result)
        if message.blocked:
            self._waits(asked)
        else:
            short = not asked.client.far and asked.got != len(asked.message.items)
            if short and asked.state != "gone":
                raise Broken("each item of a submit_many is answered", f"{asked.got}")
            self.done(asked, "many")

    def blocked(self, asked: Asked, message: m.Blocked) -> None:
        if asked.expected is not None and "blocked" not in asked.expected:
            raise Broken("admission", f"{asked.message!r} was blocked, not {asked.expected}")
        asked.expected = None
        self._waits(asked)

    def _waits(self, asked: Asked) -> None:
        if asked in self.waiting and asked.state == "blocked":
            return  # it asks again, in its old place
        self._count += 1
        asked.number = self._count
        asked.turned = self.model.now()
        if asked.state != "gone":
            asked.state = "blocked"
            self.waiting.append(asked)

    def turn(self, asked: Asked, message: m.Turn) -> None:
        if asked.state == "gone":
            return
        if asked.unsure:
            if asked in self.waiting:
                self.waiting.remove(asked)
            asked.state, asked.turned = "turn", self.model.now()
            return
        if asked.state != "blocked":
            raise Broken("a turn is given once", f"{asked.message!r}")
        name, key = _call(asked).queue, _call(asked).call.key
        id = self.model.disk.names.get(name, b"")
        queue = self.model.disk.queues.get(id)
        joins = bool(key) and (id, key) in self.model.disk.keys  # it needs no room any more
        by_priority = queue is not None and queue.settings["kind"] == "priority"

        def rank(other: Asked) -> tuple[float, int]:
            return (-_call(other).priority if by_priority else 0.0), other.number

        for other in self.waiting:
            before = _call(other).queue == name and rank(other) < rank(asked)
            if before and other.state == "blocked" and not (joins or other.unsure or other.client.away):
                raise Broken("who waits for room is let in by turns", f"{name}")
        self.waiting.remove(asked)
        asked.state, asked.turned = "turn", self.model.now()

    # refusals

    def refused(self, asked: Asked, message: m.Refusal) -> None:
        if asked.kind == "submit":
            self.done(asked, message.kind)
            self._turned_down(asked, asked.message, message)
        elif asked.kind == "many":
            self.done(asked, message.kind)
        else:
            self.done(asked, message.kind)
            self._denied(asked, message)

    def _turned_down(self, asked: Asked, call: m.Submit, message: m.Refusal) -> None:
        model, kind = self.model, message.kind
        if kind not in ("QueueFull", "QueueClosed", "StoreFailed", "KeyConflict", "Conflict"):
            raise Broken("a submit is refused for a reason", f"{message}")
        if kind == "StoreFailed" and not self.trouble:
            raise Broken("a submit is refused for a reason", f"{message}")
        if kind == "Conflict" and (call.again or asked.again):
            raise Broken("what is sent again is answered with what is stored", text_of(call.id))
        if kind == "KeyConflict" and not call.strict:
            raise Broken("a submit is refused for a reason", f"{message}")
        if kind in ("QueueFull", "QueueClosed") and asked.holder is not None:
            held = asked.holder in model.disk.rows and call.queue not in model.cancelled
            if held and asked.kind == "submit":
                raise Broken("a key is answered whatever state its queue is in", f"{message}")
        if (
            call.id in model.disk.rows
            and kind != "Conflict"
            and not (call.again or asked.again)
            and call.id not in self.acknowledged
        ):
            raise Broken("what was refused is not there", text_of(call.id))

    def _denied(self, asked: Asked, message: m.Refusal) -> None:
        model = self.model
        if message.kind in ("NotFound", "Expired") and asked.id:
            if asked.there is not None and asked.id in model.disk.rows and asked.kind != "retry":
                raise Broken("what is kept is found", f"{asked.kind} of {text_of(asked.id)}: {message.kind}")
            if (message.kind == "Expired") and asked.id > model.disk.newest_pruned:
                raise Broken("only what was pruned has expired", text_of(asked.id))
        if message.kind == "StoreFailed" and not self.trouble:
            raise Broken("the store is named only where it failed", f"{message}")
        row = model.disk.rows.get(asked.id)
        if asked.kind == "kill" and message.kind == "Conflict" and row is not None:
            waited = row.state == "queued" and asked.there == ("queued", row.record.attempt)
            if row.state == "killed" or waited:
                raise Broken("what is queued can be killed", f"{text_of(asked.id)}: {message}")

    # answers

    def row(self, id: bytes, promise: str) -> InvocationRow | None:
        """The row of what is told of; None where it was pruned meanwhile."""
        row = self.model.disk.rows.get(id)
        if row is None and id > self.model.disk.newest_pruned:
            raise Broken(promise, text_of(id))
        return row

    def outcome(self, asked: Asked, message: m.Outcome) -> None:
        self.done(asked, "outcome")
        self.ended(asked.id, message)
        report = self.model.ended.get((asked.id, message.attempt))
        if message.state == "succeeded" and report is not None and message.result != report[1].result:
            raise Broken("a result is what the body returned", text_of(asked.id))

    def ended(self, id: bytes, message: m.Outcome) -> None:
        row = self.row(id, "a result waits for its commit")
        if row is not None and (row.state, row.record.attempt) != (message.state, message.attempt):
            raise Broken(
                "a result waits for its commit", f"{text_of(id)} is {row.state}, not {message.state}"
            )
        told = self.told.setdefault(id, (message.state, message.attempt))
        if told != (message.state, message.attempt):
            raise Broken("one terminal state, once", f"{text_of(id)} was {told} and is {message.state}")

    def described(self, asked: Asked, message: m.Described) -> None:
        self.done(asked, "described")
        for row, _ in message.rows:
            disk = self.row(row.id, "an answer waits for its commit")
            if disk is None:
                continue
            if row.record.attempt > disk.record.attempt:
                raise Broken("an answer waits for its commit", text_of(row.id))
            if row.state in TERMINAL and row.state != disk.state:
                raise Broken("an answer waits for its commit", text_of(row.id))

    def answer(self, asked: Asked, message: m.Answer) -> None:
        self.done(asked, "answer")
        if asked.kind == "kill":
            row = self.row(asked.id, "a kill waits for its commit")
            if row is not None and row.state != "killed":
                raise Broken("a kill waits for its commit", f"{text_of(asked.id)} is {row.state}")
        elif asked.kind == "post":
            self._posted(asked, message)
        elif asked.kind == "queue":
            self._queue(asked, message)

    def _posted(self, asked: Asked, message: m.Answer) -> None:
        disk = self.model.disk
        id = disk.topic_ids.get(asked.message.name)
        if asked.number != self.model.removals[asked.message.name]:
            return
        if id is None or message.value < disk.frames[id].first:
            return  # it was removed or trimmed since
        if message.value >= disk.frames[id].next:
            raise Broken("an acknowledgement waits for its commit", f"post {message.value}")
        if disk.value(id, message.value) != unpack(asked.message.data):
            raise Broken("a post is answered with its own number", f"post {message.value}")

    def _queue(self, asked: Asked, message: m.Answer) -> None:
        disk, name = self.model.disk, asked.message.name
        id = disk.names.get(name)
        if isinstance(asked.message, m.RemoveQueue):
            for row in disk.live.keys() if asked.there else ():
                if disk.rows[row].queue == asked.there and disk.rows[row].state == "queued":
                    raise Broken("a removed queue takes and gives nothing", name)
        elif id is None and name not in self.model.cancelled:
            raise Broken("an acknowledgement waits for its commit", f"{type(asked.message).__name__} {name}")


def _call(asked: Asked) -> m.Submit:
    """The submit whose turn it is."""
    message = asked.message
    return message if isinstance(message, m.Submit) else message.items[min(asked.got, len(message.items) - 1)]
