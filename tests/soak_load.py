"""A day of mixed work, from a seed: who submits, waits, gives up, administrates, and works."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import soak_bodies as b
from anyio.abc import TaskGroup

import lakeshore as dls

STANDING = ("default", "narrow", "urgent", "hot", "newest")
GAVE_UP = "gave up at a full queue"
WORKERS = 4  # at a time
ACTIONS = {  # how often each is done, of 100
    "submit": 60, "fail": 5, "time_out": 2, "kill_queued": 0.5, "kill_running": 0.5, "many": 2, "full": 4,
    "key": 3, "delay": 4, "retry": 1, "by_value": 1, "abandon_stream": 4, "read_stream": 3, "topic": 4,
    "follow": 2, "queue": 2, "look": 4, "worker_leaves": 1,
}  # fmt: skip


class Load:
    """Keeps a plane busy; `end` ends all that it began.

    Attributes:
        done: what happened, by name, so that a test can say that all of it did.
    """

    def __init__(self, q: dls.AsyncDispatch, tasks: TaskGroup, seed: int, gap: float) -> None:
        self.q, self.tasks, self.gap = q, tasks, gap
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.open = False
        self._ids: list[str] = []  # some of the newest
        self._queues: list[str] = []
        self._topics: list[str] = []
        self._number = 0
        self._busy = 0
        self._stops: list[anyio.Event] = []
        self._scopes: list[anyio.CancelScope] = []

    async def set_up(self) -> None:
        """The queues that stay, and every body once."""
        add = self.q.queues.add
        await add("narrow", max_depth=3, on_full="block", max_running=1)
        await add("urgent", kind="priority", retention=600.0)
        await add("hot", kind="boltzmann", temperature=2.0, rate_limit="50/s", on_full="block")
        await add("newest", kind="filo", deadline_cutoff_s=900.0)
        for body in (*_BODIES, *_STANDING.values()):
            for timeout in (body.timeout, 900.0):
                await self.q.kill(await body.asubmit(_timeout=timeout, _dispatch=self.q))

    async def work(self, seconds: float) -> None:
        """Some hours of work."""
        end = anyio.current_time() + seconds
        if not self.open:
            self.open = True
            for _ in range(WORKERS):
                self._spawn(self._work)
        while anyio.current_time() < end:
            await anyio.sleep(self.random.expovariate(1 / self.gap))
            self._spawn(self._pick())

    async def end(self, wait: float) -> None:
        """Nothing new; what was begun ends, is removed or given up. Then `wait`, for it to be pruned."""
        await anyio.sleep(1800)  # the longest body, delay or wait
        await self.q.jobs.bulk_cancel()
        for topic in await self.q.topics.list():
            await self.q.topics.remove(topic.name)
        self._topics.clear()
        self._ids.clear()
        self.open = False
        for stop in self._stops:
            stop.set()
        await anyio.sleep(wait)
        assert self._busy == 0, f"{self._busy} tasks did not end"
        assert not self._queues

    def _spawn(self, call: Callable[[], Awaitable[None]]) -> None:
        async def counted() -> None:
            self._busy += 1
            try:
                await call()
            except (dls.LakeshoreError, TimeoutError) as error:
                self.done[type(error).__name__] += 1
            finally:
                self._busy -= 1

        self.tasks.start_soon(counted)

    def _pick(self) -> Callable[[], Awaitable[None]]:
        (name,) = self.random.choices(list(ACTIONS), list(ACTIONS.values()))
        self.done[name] += 1
        return getattr(self, f"_{name}")

    def _any_queue(self) -> str:
        return self.random.choice((*STANDING, *self._queues))

    async def _start(self, body: dls.UDF[..., Any], *args: Any, **options: Any) -> str:
        """Submit where there may be no room for a while."""
        with anyio.move_on_after(self.random.uniform(1, 600)):
            inv = await body.asubmit(*args, _dispatch=self.q, _priority=self.random.gauss(0, 3), **options)
            self._ids = [*self._ids[-20:], inv]
            return inv
        raise TimeoutError("no room")

    # jobs

    async def _submit(self) -> None:
        dice, rng = self.random.random(), self.random
        payload = rng.choice((b"", b"x" * b.LARGE))
        calls: tuple[tuple[dls.UDF[..., Any], tuple[Any, ...]], ...] = (
            (b.nap, (rng.uniform(0, 60), payload)),
            (b.add, (1, payload)),
            (b.count, (rng.randint(0, 200),)),
            (b.tick, (rng.randint(0, 8), rng.uniform(0, 10))),
            (b.parent, (2,)),
        )
        body, args = rng.choice(calls)
        inv = await self._start(_to(body, self._any_queue()), *args)
        if dice < 0.3:
            await self.q.result(inv, timeout=rng.uniform(0, 200))
        elif dice < 0.4:
            with anyio.move_on_after(rng.uniform(0, 20)):
                await self.q.result(inv)

    async def _fail(self) -> None:
        body, args = self.random.choice(
            ((b.fail, (self.random.uniform(0, 9),)), (b.fail_once, ()), (b.break_off, ()))
        )
        inv = await self._start(_to(body, self._any_queue()), *args)
        await self.q.result(inv, timeout=300)

    async def _time_out(self) -> None:
        body = self.random.choice((b.stuck, b.stuck_thread, b.stuck_stream))
        await self.q.result(await self._start(_to(body, "default")), timeout=300)

    async def _kill_queued(self) -> None:
        inv = await self._start(b.nap, 1.0, _delay=60.0)
        await anyio.sleep(self.random.uniform(0, 50))
        await self.q.kill(inv)
        await self.q.result(inv)

    async def _kill_running(self) -> None:
        inv = await self._start(self.random.choice((_to(b.nap, "default"), _to(b.tick, "urgent"))), 500, b"")
        await anyio.sleep(self.random.uniform(0, 90))
        with anyio.move_on_after(self.random.uniform(0, 1000)):
            await self.q.kill(inv, running=True)

    async def _many(self) -> None:
        items = [{"seconds": self.random.uniform(0, 2), "_deadline": 600} for _ in range(30)]
        with anyio.move_on_after(self.random.uniform(1, 200)):
            await _to(b.nap, self._any_queue()).asubmit_many(items)

    async def _full(self) -> None:
        """A submitter that waits at a full queue, and may give up."""
        with anyio.move_on_after(self.random.uniform(0, 60)) as scope:
            for _ in range(8):
                await _to(b.nap, "narrow").asubmit(self.random.uniform(5, 40), _dispatch=self.q)
        self.done[GAVE_UP] += scope.cancelled_caught

    async def _key(self) -> None:
        self._number += 1
        for number in (self._number, self._number, self._number - 3):
            await self._start(b.add, number, b"", _key=f"key-{number}")

    async def _delay(self) -> None:
        body = _to(self.random.choice((b.add, b.nap)), self._any_queue())
        await self._start(body, 1, b"", _delay=self.random.uniform(0, 1200), _deadline=1500, _timeout=900)

    async def _retry(self) -> None:
        await self.q.retry(self.random.choice(self._ids))

    async def _by_value(self) -> None:
        self._number += 1
        body = b.made_anew(self._number)
        inv = await self._start(body, 1)
        assert await self.q.result(inv, timeout=300) == self._number + 1

    # streams and topics

    async def _abandon_stream(self) -> None:
        inv = await self._start(_to(b.tick, "default"), 30, 1.0)
        with anyio.move_on_after(self.random.uniform(0, 60)):
            async with self.q.stream(inv) as stream:
                async for frame in stream:
                    if frame.seq == self.random.randint(0, 100):
                        return

    async def _read_stream(self) -> None:
        inv = await self._start(_to(b.count, "default"), 50)
        with anyio.fail_after(600):
            assert [frame.seq async for frame in self.q.stream(inv)] == list(range(50))
            assert [frame.seq async for frame in self.q.stream(inv, since=10)] == list(range(10, 50))

    async def _topic(self) -> None:
        dice = self.random.random()
        if dice < 0.2 or not self._topics:
            self._number += 1
            self._topics.append(f"topic-{self._number}")
        name = self.random.choice(self._topics)
        topic = self.q.topic(name)
        for _ in range(5):
            await topic.post(b"x" * self.random.choice((1, b.LARGE)))
        if dice > 0.9:
            self._topics.remove(name)
            await topic.close()
        elif dice > 0.8:
            self._topics.remove(name)
            await self.q.topics.remove(name)

    async def _follow(self) -> None:
        """Read along a topic, perhaps one that never gets a value; never to its end."""
        name = self.random.choice((*self._topics, f"nothing-{self.random.random()}"))
        since = 0
        with anyio.move_on_after(self.random.uniform(0, 300)):
            try:
                async for _ in self.q.topic(name).stream():
                    pass
            except dls.Gap as gap:  # older values were pruned
                since = gap.first
            async for _ in self.q.topic(name).stream(since=since):
                pass

    # administration

    async def _queue(self) -> None:
        """A queue's whole life."""
        self._number += 1
        name, queues, rng = f"queue-{self._number}", self.q.queues, self.random
        await queues.add(name, kind=rng.choice(("fifo", "filo", "priority", "boltzmann")))
        self._queues.append(name)
        for _ in range(5):
            await self._start(_to(b.nap, name), rng.uniform(0, 30))
        await queues.patch(name, max_running=2, retention=rng.choice((None, 300.0)))
        await queues.pause(name)
        await anyio.sleep(rng.uniform(0, 60))
        await queues.resume(name)
        if rng.random() < 0.5:
            await queues.drain(name)
        if rng.random() < 0.5:
            await queues.archive(name)
            await anyio.sleep(rng.uniform(0, 60))
            await queues.unarchive(name)
        await anyio.sleep(rng.uniform(0, 60))
        self._queues.remove(name)
        await queues.rm(name, force=True)

    async def _look(self) -> None:
        q, rng = self.q, self.random
        inv = rng.choice(self._ids)
        await q.jobs.list(state=rng.choice((None, "failed", "queued")), queue=rng.choice((None, "urgent")))
        await q.queues.stats(rng.choice(STANDING))
        await q.workers.list(ended=True)
        await q.topics.list()
        await q.jobs.why(inv)
        await q.get(inv)

    # workers

    async def _work(self) -> None:
        """A worker, and another when it is gone."""
        while self.open:
            stop, scope = anyio.Event(), anyio.CancelScope()
            self._stops, self._scopes = [*self._stops, stop], [*self._scopes, scope]
            queues = self.random.choice(((), (), STANDING, ("default", "urgent")))
            with scope:
                await dls.arun_worker(
                    self.q, slots=self.random.randint(1, 6), queues=queues, stop=stop, grace=60
                )
            self._stops.remove(stop)
            self._scopes.remove(scope)

    async def _worker_leaves(self) -> None:
        """One drains, or is torn away from what it runs; or one comes for a single job."""
        dice = self.random.random()
        if dice < 0.4:
            self.random.choice(self._stops).set()
        elif dice < 0.8:
            self.random.choice(self._scopes).cancel()
        else:
            await dls.arun_worker(self.q, once=self.random.random() < 0.5, drain=True)


def _to(body: dls.UDF[..., Any], queue: str) -> dls.UDF[..., Any]:
    """The same body for another queue."""
    return _STANDING.get((body, queue)) or _for_queue(body, queue)


def _for_queue(body: dls.UDF[..., Any], queue: str) -> dls.UDF[..., Any]:
    return dls.udf(
        body.fn, queue=queue, timeout=body.timeout, retries=body.retries, retry_delay=body.retry_delay
    )


_BODIES = [body for body in vars(b).values() if isinstance(body, dls.UDF)]
_STANDING = {(body, queue): _for_queue(body, queue) for body in _BODIES for queue in STANDING}
