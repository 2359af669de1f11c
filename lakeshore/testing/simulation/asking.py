"""What programs may do in one step."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from lakeshore.core import messages as m
from lakeshore.core.rows import Call, Function, FunctionRow, Options
from lakeshore.core.values import pack_call

from .asked import Asked, SimClient
from .world import World

_PICKLED = {name: (blake2b(name.encode(), digest_size=16).digest(), name.encode()) for name in "vw"}


class Asking:
    """Steps about invocations."""

    def __init__(self, world: World) -> None:
        self.world = world

    # asking

    def ask(self, client: SimClient, kind: str, message: Any, id: bytes = b"") -> Asked:
        """A client asks."""
        world = self.world
        asked = Asked(client, kind, message, id, world.model.now())
        row = world.model.disk.rows.get(id)
        if row is not None:
            frames = world.model.disk.frames.get(id)
            extent = (0, 0) if frames is None else (frames.first, frames.next)
            asked.there = (
                (row.state, row.record.attempt, *extent)
                if kind == "follow"
                else (row.state, row.record.attempt)
            )
        client.asked[message.req] = asked
        self._send(client, asked)
        return asked

    def _send(self, client: SimClient, asked: Asked) -> None:
        message = asked.message
        answers: list[Any] = []
        client.hand.answers[message.req] = answers

        def reply(answer: Any) -> None:
            answers.append(answer)
            client.replied(asked, answer)

        if asked.kind in ("follow", "topic"):
            client.hand.client.open(message, reply)
        else:
            client.hand.client.ask(message, reply)

    def _call(self, step: dict[str, Any]) -> tuple[Call, bytes, FunctionRow | None]:
        name = step.get("fn", "f")
        value, data = _PICKLED.get(name, (b"", b""))
        options = Options(
            Function(name, "" if value else f"sim:{name}", value=value),
            "generator",
            step.get("timeout"),
            step.get("retries", 0),
            step.get("retry_delay", 1.0),
            300.0,
        )
        args = pack_call(("x" * step.get("size", 1),), {})
        function = FunctionRow(value, data) if value else None
        digest = name.encode() + bytes([step.get("size", 1) % 256])
        return Call(options, args, key=step.get("key", "")), digest, function

    def _submit(self, client: SimClient, step: dict[str, Any], req: int) -> m.Submit:
        call, digest, function = self._call(step)
        id = self.world.plane.new_id()
        self.world.ids.append(id)
        return m.Submit(
            req,
            id,
            step.get("queue", "default"),
            call,
            step.get("priority", 0.0),
            digest if call.key else b"",
            step.get("strict", False),
            step.get("delay"),
            step.get("deadline"),
            function=function,
        )

    def _holder(self, queue: str, key: str) -> bytes | None:
        disk = self.world.model.disk
        held = disk.keys.get((disk.names.get(queue, b""), key)) if key else None
        return None if held is None else held[0]

    def submit(self, client: int = 0, **step: Any) -> None:
        """Submit one."""
        program = self.world.client(client)
        calm = self.world.quiet
        message = self._submit(program, step, program.hand.client.number())
        holder = self._holder(message.queue, message.call.key)
        expected = self._expected(message, holder) if calm else None
        asked = Asked(program, "submit", message, message.id, self.world.model.now())
        asked.holder, asked.expected = holder, expected
        program.asked[message.req] = asked
        self._send(program, asked)

    def _expected(self, message: m.Submit, holder: bytes | None) -> tuple[str, ...] | None:
        """How a plane at rest must answer a submit."""
        model = self.world.model
        if holder is not None:
            other = model.disk.keys[model.disk.names[message.queue], message.call.key][1] != message.digest
            return ("KeyConflict",) if other and message.strict else ("known",)
        queue = model.disk.queues.get(model.disk.names.get(message.queue, b""))
        if queue is None:
            return ("accepted",)
        if queue.state not in ("active", "paused"):
            return ("QueueClosed",)
        rule = model.admission(queue.id)
        if rule["rate_limit"] or rule["max_bytes"] or self.world.leaving.waiting:
            return None
        if rule["max_depth"] is None or len(model.disk.queued[queue.id]) < rule["max_depth"]:
            return ("accepted",)
        return ("QueueFull",) if rule["on_full"] == "reject" else ("blocked",)

    def many(self, client: int = 0, count: int = 3, keys: str = "", **step: Any) -> None:
        """Submit several at once."""
        program = self.world.client(client)
        req = program.hand.client.number()
        items = [self._submit(program, {**step, "key": keys[n : n + 1].strip()}, req) for n in range(count)]
        self.ask(program, "many", m.SubmitMany(req, tuple(items)))

    def again(self, client: int = 0, which: int = 0) -> None:
        """Send a submit again whose answer was lost."""
        world = self.world
        if not world.unanswered:
            return
        program = world.client(client)
        index = which % len(world.unanswered)
        lost = world.unanswered[index]
        del world.unanswered[index]
        message = msgspec.structs.replace(lost, req=program.hand.client.number(), again=True, ticket=False)
        self.ask(program, "submit", message, message.id)

    def job_id(self, job: int) -> bytes:
        """One of the newest invocations."""
        ids = self.world.ids
        return ids[-1 - job % min(len(ids), 40)] if ids else b"\0" * 16

    def wait(self, client: int = 0, job: int = 0) -> None:
        """Wait for a result."""
        program, id = self.world.client(client), self.job_id(job)
        self.ask(program, "wait", m.Wait(program.hand.client.number(), id), id)

    def get(self, client: int = 0, job: int = 0) -> None:
        """Look at one."""
        program, id = self.world.client(client), self.job_id(job)
        self.ask(program, "get", m.Get(program.hand.client.number(), id), id)

    def why(self, client: int = 0, job: int = 0) -> None:
        """Ask why it is where it is."""
        program, id = self.world.client(client), self.job_id(job)
        self.ask(program, "why", m.Why(program.hand.client.number(), id), id)

    def kill(self, client: int = 0, job: int = 0, running: bool = False) -> None:
        """Kill one."""
        program, id = self.world.client(client), self.job_id(job)
        self.ask(program, "kill", m.Kill(program.hand.client.number(), id, running), id)

    def retry(self, client: int = 0, job: int = 0) -> None:
        """Submit one anew that has ended."""
        program, id, new = self.world.client(client), self.job_id(job), self.world.plane.new_id()
        self.world.ids.append(new)
        self.ask(program, "retry", m.Retry(program.hand.client.number(), id, new), id)

    def list_jobs(self, client: int = 0, queue: str | None = None) -> None:
        """List what there is."""
        program = self.world.client(client)
        queue = queue if queue in self.world.model.disk.names else None
        self.ask(program, "list", m.ListJobs(program.hand.client.number(), queue))

    def drop(self, client: int = 0, which: int = 0) -> None:
        """Wait no more, for one of those that are open."""
        program = self.world.client(client)
        open_ = [a for a in program.asked.values() if a.state in ("open", "blocked", "turn")]
        if not open_:
            return
        asked = open_[which % len(open_)]
        if asked in self.world.leaving.waiting:
            self.world.leaving.waiting.remove(asked)
        asked.state = "gone"
        req = asked.message.req
        if asked.kind in ("follow", "topic"):
            program.hand.client.close_stream(req, asked.id)
        else:
            program.hand.client.drop(req, asked.id)
