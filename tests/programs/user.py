"""A program that says what an earlier one left behind, then works until it is killed.

Everything it says is evidence for `ledger.Ledger`: ["try", number, what…] before a verb is called,
["ok", number, answer…] after it returned, and what a plane told when it was asked.
"""

from __future__ import annotations

import logging
import random
from itertools import count
from typing import Any

import anyio

import lakeshore as dls

from . import bodies, broken
from .bodies import say

OPERATIONS = 25  # of each of the users
PAGE, NEWEST = 200, 15
THERE = 5.0  # seconds in which a plane must give what it has


async def warm() -> None:
    """Import all that is imported late."""
    import lakeshore.store.lock
    import lakeshore.store.sqlite  # noqa: F401

    async with dls.AsyncDispatch(":memory:") as q:
        await q.submit(bodies.counting, 0, 1)
        await dls.arun_worker(q, drain=True)


async def main(spec: dict[str, Any]) -> None:
    """One round."""
    bodies.TOKEN[0] = f"{spec['round']}"
    logging.getLogger("lakeshore").addHandler(_Said())
    async with dls.AsyncDispatch(spec["path"], sync=spec["sync"]) as q:
        say("opened")
        await _look(q, spec)
        say("working")
        bodies.voice.left = spec["kill"].get("acknowledgement", 0)
        broken.STATEMENTS[0] = spec["kill"].get("statement", broken.STATEMENTS[0])
        async with anyio.create_task_group() as tasks:
            if spec["last"]:
                await dls.arun_worker(q, slots=4, drain=True)
                await q.jobs.bulk_cancel()
                await _look(q, spec, everything=True)
            else:
                tasks.start_soon(_serve, q)
                await _work(q, spec)
                say("done")
                await anyio.sleep(3600)
        say("complete")


async def _serve(q: dls.AsyncDispatch) -> None:
    await dls.arun_worker(q, slots=4)


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say("log", record.levelname, record.getMessage())


# What an earlier program left


async def _look(q: dls.AsyncDispatch, spec: dict[str, Any], *, everything: bool = False) -> None:
    say("looking")
    bodies.voice.hold()
    ended: list[Any] = []
    for offset in count(0, PAGE):
        page = await q.jobs.list(limit=PAGE, offset=offset)
        for job in page:
            _say_row(job)
        ended += [job for job in page if job.ended_at is not None]
        if len(page) < PAGE:
            break
    bodies.voice.flush()
    say("listed", [queue.name for queue in await q.queues.ls()])
    for job in ended[: None if everything else NEWEST]:
        await _result(q, job.id)
        if "counting" in job.function:
            await _read(q, job.id, 0)
    for inv in () if everything else spec["results"]:
        await _result(q, inv)
    for inv, until in () if everything else spec["frames"]:
        await _read(q, inv, 0, until)
    for name, until in spec["topics"]:
        await _read_topic(q, name, until)
    bodies.voice.let_go()
    say("looked")


def _say_row(job: dls.Invocation) -> None:
    attempts = [(attempt.number, attempt.outcome) for attempt in job.attempts]
    ended = None if job.ended_at is None else job.ended_at.isoformat()
    say("row", job.id, job.state, job.key, job.function, ended, job.attempt, job.error, attempts)


async def _result(q: dls.AsyncDispatch, inv: str) -> None:
    try:
        value = await q.result(inv)
    except dls.InvocationFailed as error:
        say("result", inv, "failed", [error.type, error.message, error.attempt])
    except dls.InvocationKilled:
        say("result", inv, "killed", None)
    except dls.InvocationTimeout:
        say("result", inv, "timeout", None)
    except dls.NotFound:
        say("gone", inv)
    else:
        say("result", inv, "succeeded", value)


async def _read(q: dls.AsyncDispatch, inv: str, since: int, until: int | None = None) -> None:
    """Frames from `since` on, to the end or up to number `until`, which are there already."""
    if since == until:
        return
    say("reader", inv, since)
    try:
        async with q.stream(inv, since=since) as stream:
            with anyio.move_on_after(1e9 if until is None else THERE):
                async for frame in stream:
                    say("frame", inv, frame.seq, frame.attempt, frame.value)
                    if frame.seq + 1 == until:
                        say("left", inv)
                        return
    except dls.Unsuccessful:
        pass
    except dls.NotFound:
        say("gone", inv)
        return
    except dls.Gap as gap:
        say("gap", inv, gap.since, gap.first)
        return
    say("cut" if until else "read", inv)


async def _read_topic(q: dls.AsyncDispatch, name: str, frames: int) -> None:
    say("topic reader", name)
    with anyio.move_on_after(THERE):
        async for frame in q.topic(name).stream():
            say("topic frame", name, frame.seq, frame.value)
            if frame.seq + 1 == frames:
                return
    say("topic cut", name, frames)


# What it does itself


async def _work(q: dls.AsyncDispatch, spec: dict[str, Any]) -> None:
    rng = random.Random(spec["seed"])
    numbers = count(spec["round"] * 10_000)
    async with anyio.create_task_group() as tasks:
        for inv, since in spec["readers"]:  # cut off in the middle: they go on
            tasks.start_soon(_read, q, inv, since)
        for first in range(3):
            user = _User(q, random.Random(rng.random()), numbers, spec["keys"])
            tasks.start_soon(user.work, spec["keys"][first : spec["open"] : 3])


class _User:
    """Calls verbs in an order drawn from a seed."""

    def __init__(self, q: dls.AsyncDispatch, rng: random.Random, numbers: Any, keys: list[Any]) -> None:
        self._q, self._rng, self._numbers = q, rng, numbers
        self._keys: list[tuple[str, str, list[Any]]] = [tuple(key) for key in keys]
        self._acts = [self._one] * 5 + [self._many, self._post, self._kill, self._again, self._queue]

    async def work(self, cut_off: list[Any]) -> None:
        for key, name, args in cut_off:
            await self._submit(name, args, key)
        for _ in range(OPERATIONS):
            await self._rng.choice(self._acts)()

    def _call(self) -> tuple[str, list[Any]]:
        rng, uid = self._rng, next(self._numbers)
        return rng.choice(
            [
                ("plain", [uid]),
                ("plain", [uid, b"x" * rng.choice([1_000, 20_000])]),
                ("waiting", [uid, rng.random() * 0.01]),
                ("counting", [uid, rng.randint(0, 20)]),
                ("counting_slowly", [uid, rng.randint(1, 10), rng.random() * 0.005]),
                ("failing", [uid]),
                ("second_time", [uid]),
            ]
        )

    async def _submit(self, name: str, args: list[Any], key: str | None, **options: Any) -> str:
        number = next(self._numbers)
        say("try", number, "submit", name, 1, key, args if key else None)
        inv = await self._q.submit(getattr(bodies, name), *args, _key=key, **options)
        say("ok", number, inv)
        return inv

    async def _one(self) -> None:
        name, args = self._call()
        key = None if isinstance(args[-1], bytes) else self._rng.choice([None, f"key-{args[0]}"])
        inv = await self._submit(name, args, key)
        if key:
            self._keys.append((key, name, args))
        if name.startswith("counting"):
            await _read(self._q, inv, 0)
        elif self._rng.random() < 0.7:
            await _result(self._q, inv)

    async def _many(self) -> None:
        number, calls = next(self._numbers), [(next(self._numbers),) for _ in range(5)]
        say("try", number, "submit", "plain", len(calls), None, None)
        say("ok", number, *await self._q.submit_many(bodies.plain, calls))

    async def _post(self) -> None:
        number, name = next(self._numbers), self._rng.choice(["one", "two"])
        say("try", number, "post", name)
        say("ok", number, await self._q.topic(name).post(number))

    async def _kill(self) -> None:
        if running := self._rng.random() < 0.5:
            inv = await self._submit("endless", [next(self._numbers)], None)
        else:
            inv = await self._submit("plain", [next(self._numbers)], None, _delay=3600)
        number = next(self._numbers)
        say("try", number, "kill", inv)
        try:
            await self._q.kill(inv, running=running)
        except dls.Conflict:  # it timed out before
            await _result(self._q, inv)
        else:
            say("ok", number)

    async def _again(self) -> None:
        if self._keys:
            key, name, args = self._rng.choice(self._keys)
            await self._submit(name, args, key)

    async def _queue(self) -> None:
        number = next(self._numbers)
        say("try", number, "queue", name := f"queue-{number}")
        await self._q.queues.add(name, kind=self._rng.choice(["fifo", "filo", "priority", "boltzmann"]))
        say("ok", number, name)
