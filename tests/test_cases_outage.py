"""How long each call waits for a head that is away: by hand, and with sessions in virtual time."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from crowd import CALL, LEASE, Program, crowd, until

from lakeshore.core import messages as m
from lakeshore.core.backend import current_backend
from lakeshore.core.client import Client
from lakeshore.core.credit import Limits
from lakeshore.core.errors import Unreachable
from lakeshore.sdk import beating
from lakeshore.sdk.beating import Beater
from lakeshore.sdk.session import OUTAGE, Session, There
from lakeshore.sdk.waiting import wait

ID, NEW = b"i" * 16, b"n" * 16


@pytest.fixture
def anyio_backend(virtual: object) -> object:
    return virtual


class Caller:
    """A client whose clock and links the test has in its hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.client = Client(now=lambda: self.now, publisher=b"p" * 16)
        self.sent: list[Any] = []
        self.answers: dict[str, list[Any]] = {}
        self.relink()

    def relink(self) -> None:
        self.sent = []
        self.client.relinked(self, Limits())

    def send(self, message: Any, /) -> None:
        self.sent.append(message)

    def close(self) -> None: ...

    def ask(self, name: str, kind: Any, *fields: Any) -> None:
        found = self.answers[name] = []
        self.client.ask(kind(self.client.number(), *fields), found.append)

    def ask_everything(self) -> None:
        self.ask("submit", m.Submit, ID, "default", CALL)
        self.ask("get", m.Get, ID)
        self.ask("kill", m.Kill, ID)
        self.ask("retry", m.Retry, ID, NEW)
        self.ask("post", m.Post, "news", 0.0, b"\xc0")
        self.ask("list", m.ListQueues)
        self.ask("wait", m.Wait, ID)
        self.ask("add", m.AddQueue, "q", {})
        self.ask("cancel", m.BulkCancel)
        found = self.answers["stream"] = []
        self.client.open(m.Follow(self.client.number(), ID, 0, 1000), found.append)

    def pass_time(self, seconds: float) -> None:
        """A session looks while there is no link."""
        self.now += seconds
        self.client.expire(self.now - OUTAGE, "for a minute")

    def said(self) -> dict[str, str]:
        """What was refused, and how."""
        last = {name: answers[-1] for name, answers in self.answers.items() if answers}
        return {name: answer.kind for name, answer in last.items() if type(answer) is m.Refusal}


RESENT = ("submit", "get", "kill", "retry", "post", "list")
ADMINISTRATION = ("add", "cancel")


def test_what_never_left_is_unreachable_after_a_minute() -> None:
    caller = Caller()
    caller.client.unlinked()
    caller.now = 1000.0  # it was away long before anybody asked
    caller.ask_everything()
    caller.pass_time(OUTAGE - 1)
    assert caller.said() == {}
    caller.pass_time(1)
    assert caller.said() == dict.fromkeys((*RESENT, *ADMINISTRATION), "Unreachable")
    assert "nothing was sent" in caller.answers["add"][0].message
    caller.pass_time(100_000)
    caller.relink()
    assert [type(message) for message in caller.sent] == [m.Wait, m.Follow]
    assert all(len(answers) <= 1 for answers in caller.answers.values())


def test_what_may_have_been_done_is_unknown_and_administration_at_once() -> None:
    caller = Caller()
    caller.ask_everything()
    caller.now = 500.0  # it took its time, and then the link broke
    caller.client.unlinked()
    assert caller.said() == dict.fromkeys(ADMINISTRATION, "OutcomeUnknown")
    caller.pass_time(OUTAGE - 1)
    assert len(caller.said()) == 2
    caller.pass_time(1)
    assert caller.said() == dict.fromkeys((*RESENT, *ADMINISTRATION), "OutcomeUnknown")
    caller.relink()
    assert [type(message) for message in caller.sent] == [m.Wait, m.Follow]


def test_a_short_outage_is_not_noticed_but_by_administration() -> None:
    caller = Caller()
    caller.ask_everything()
    caller.client.unlinked()
    caller.pass_time(OUTAGE - 1)
    caller.relink()
    kinds = [m.Submit, m.Get, m.Kill, m.Retry, m.Post, m.ListQueues, m.Wait, m.Follow]
    assert [type(message) for message in caller.sent] == kinds
    assert [message.again for message in caller.sent if type(message) in (m.Submit, m.Retry)] == [True] * 2
    assert caller.said() == dict.fromkeys(ADMINISTRATION, "OutcomeUnknown")


@pytest.mark.parametrize("asked", ["before", "between"])
def test_a_head_that_lets_in_and_says_nothing_ends_no_outage(asked: str) -> None:
    caller = Caller()
    if asked == "before":
        caller.ask_everything()
    caller.client.unlinked()
    if asked == "between":
        caller.ask_everything()
    for _ in range(3):
        caller.pass_time(OUTAGE / 4)
        caller.relink()  # and nothing comes
        caller.client.unlinked()
    assert not {*RESENT} & {*caller.said()}
    caller.pass_time(OUTAGE / 4)
    assert {name: kind for name, kind in caller.said().items() if name in RESENT} == dict.fromkeys(
        RESENT, "OutcomeUnknown"
    )
    assert {*caller.said()} == {*RESENT, *ADMINISTRATION}
    assert caller.client.wants  # the wait and the stream go on


def test_a_head_that_has_said_anything_is_waited_for_anew() -> None:
    caller = Caller()
    caller.ask_everything()
    caller.client.unlinked()
    caller.pass_time(OUTAGE - 1)
    caller.relink()
    (get,) = (message for message in caller.sent if type(message) is m.Get)
    caller.client.receive(m.Answer(get.req, "yes"))
    caller.client.unlinked()
    caller.pass_time(OUTAGE - 1)
    assert "submit" not in caller.said()
    caller.pass_time(1)
    assert caller.said()["submit"] == "OutcomeUnknown"


# sessions


@pytest.mark.anyio
async def test_calls_end_after_a_minute_and_waits_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with crowd(monkeypatch, workers=1, programs=1) as everybody:
        (program,), server = everybody.programs, everybody.server
        program.submit()
        await until(lambda: len(program.answers) == 1)
        inv = program.submitted[0]
        ended: list[Any] = []
        program.client.ask(m.Wait(program.client.number(), inv), ended.append)
        await anyio.sleep(1.0)
        await server.die()
        await anyio.sleep(100.0)
        program.submit()  # long after the outage has begun
        asked = anyio.current_time()
        await until(lambda: len(program.answers) == 2)
        assert program.answers[1].kind == "Unreachable"
        assert OUTAGE <= anyio.current_time() - asked <= OUTAGE + 11.0  # the longest pause between looks
        await anyio.sleep(600.0)
        await server.begin()
        await everybody.all_linked()
        assert ended == []
        program.client.ask(m.Kill(program.client.number(), inv, True), program.answers.append)
        await anyio.sleep(LEASE)
        assert everybody.workers[0].started
        (job,) = everybody.workers[0].cancelled
        assert job.id == inv


async def failing(patience: float | None, within: float) -> tuple[list[BaseException | None], float]:
    """A session that has nobody to link to."""
    backend, ready = current_backend(), list[BaseException | None]()
    began = anyio.current_time()

    async def way() -> There:
        raise Unreachable("nothing listens there")

    program = Program(backend)
    session = Session(backend, program.party, way=way, knock=program.knock, patience=patience)
    session.when_ready(ready.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(backend.serve)
        with anyio.move_on_after(within):
            await session.run()
        tasks.cancel_scope.cancel()
    return ready, anyio.current_time() - began


@pytest.mark.anyio
async def test_a_first_connection_fails_when_its_patience_is_over() -> None:
    ready, took = await failing(5.0, 1000.0)
    assert [type(error) for error in ready] == [Unreachable]
    assert took == pytest.approx(5.0)
    ready, took = await failing(0.0, 1000.0)
    assert [type(error) for error in ready] == [Unreachable]
    assert took == pytest.approx(0.0)
    ready, took = await failing(None, 100_000.0)
    assert (ready, took) == ([], pytest.approx(100_000.0))


# waits between tries


def test_the_span_grows_and_is_never_shorter_than_a_try_that_said_nothing() -> None:
    def most(**more: float) -> list[float]:
        return [max(wait(tries, 0.1, 10.0, **more) for _ in range(2000)) for tries in (0, 3, 60)]

    assert most() == pytest.approx([0.1, 0.8, 10.0], rel=0.05)
    assert most(took=5.0) == pytest.approx([5.0, 5.0, 10.0], rel=0.05)
    assert most(took=50.0) == pytest.approx([10.0] * 3, rel=0.05)
    assert min(wait(0, 0.1, 10.0, hint=3.0) for _ in range(2000)) == pytest.approx(3.0, abs=0.01)
    assert max(wait(0, 0.1, 10.0, hint=3.0) for _ in range(2000)) == pytest.approx(3.1, abs=0.01)


class Stopped(threading.Event):
    """Notes what somebody would wait, and ends it after some waits."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.waits: list[float] = []
        self._count = count

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        if len(self.waits) == self._count:
            self.set()
        return self.is_set()


def beats_of(monkeypatch: pytest.MonkeyPatch, answers: list[Any], count: int) -> list[float]:
    """What a thread that beats waits before each further try, from a head that answers so."""

    class Link:
        def __init__(self, address: str, ca: str | None) -> None:
            if not answers:
                raise Unreachable("nothing listens there")

        def send(self, *messages: Any) -> None: ...

        def receive(self, timeout: float | None) -> Any:
            return answers.pop(0)

        def close(self) -> None: ...

    monkeypatch.setattr(beating, "BlockingLink", Link)
    beater = Beater(b"w" * 16, "", "", None)
    stopped = beater._stopped = Stopped(count)
    beater.point("tcp://head:1", 6.0)
    assert beater._thread is not None
    beater._thread.join()
    return stopped.waits


def test_beats_come_back_as_slowly_as_everybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = [beats_of(monkeypatch, [], 9) for _ in range(40)]
    most = [max(waits) for waits in zip(*tries, strict=True)]
    assert most[0] <= 0.1
    assert 2.5 < max(most) <= 5.0
    busy = m.Sorry("Busy", "too many", {}, 7.0)
    first, second = beats_of(monkeypatch, [busy], 2)
    assert 7.0 <= first <= 7.1
    assert second <= 0.2
