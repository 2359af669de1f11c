"""Who may ask what, message by message: roles and namespaces, at a door without a loop."""

from __future__ import annotations

from typing import Any

import pytest
from test_vetting import CALL, SOUND

from lakeshore.core import framing
from lakeshore.core import messages as m
from lakeshore.core.door import Door, hash_of
from lakeshore.core.errors import Forbidden, Refused
from lakeshore.core.reception import Reception
from lakeshore.core.vetting import HEADS_ALONE
from lakeshore.testing.hand import HandPlane

READ = {
    *(m.Wait, m.Get, m.Why, m.Follow, m.FollowLogs, m.FollowTopic, m.Credit, m.Drop, m.Status),
    *(m.ListTopics, m.ListQueues, m.ShowQueue, m.QueueStats, m.QueueEvents),
    *(m.ListJobs, m.ListWorkers, m.ShowWorker, m.ShowStorage),
}
SUBMIT = {m.Submit, m.SubmitMany, m.Kill, m.Retry, m.BulkCancel, m.Post, m.CloseTopic}
CHILDREN = {m.Submit, m.SubmitMany, m.Post, m.CloseTopic}  # what bodies do
WORK = {
    *(m.Hello, m.Ended, m.Frames, m.Logged, m.Progressed, m.Began, m.Kept, m.GaveBack, m.Drain, m.Bye),
    *(m.Publish, m.Beat, m.Died, m.Minding, m.Output, m.Exited),
}
ADMIN = {
    *(m.AddQueue, m.PatchQueue, m.ShiftQueue, m.RemoveQueue, m.RemoveTopic, m.PruneJobs),
    *(m.DrainWorker, m.RemoveWorker, m.CreateToken, m.ListTokens, m.RemoveToken),
    *(m.ListProviders, m.ShowProvider, m.Exec, m.SetStorage),
}
PLANE = {m.AddProvider, m.PatchProvider, m.RemoveProvider}
ALLOWED = {
    "read": READ,
    "submit": READ | SUBMIT,
    "work": READ | WORK | {m.Post, m.CloseTopic},  # and submits of children, below
    "admin": READ | SUBMIT | WORK | ADMIN,
    "plane": READ | SUBMIT | WORK | ADMIN | PLANE,
}
MACHINE = "lks_machine"
PARENT = b"p" * 16


class Wire:
    """A link of which the test plays the other end."""

    lost_reason, peer, limit = "", "tcp://h:1", framing.MESSAGE_LIMIT

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.over = ""
        self.receive: Any = None
        self.closed: Any = None
        self.on_full = self.on_drained = self.enter = self.leave = lambda: None
        self.flush_later: Any = None

    def send(self, message: Any, /) -> None:
        self.sent.append(message)

    def close(self) -> None:
        self.over = "closed"

    def abort(self, reason: str) -> None:
        self.over = reason


class Entrance:
    """A head by hand, and the tokens that open it."""

    def __init__(self) -> None:
        self.plane = HandPlane(local=False)
        door = Door(
            self.plane.head, version="1", identity=PARENT, payload_limit=1 << 20, machine=hash_of(MACHINE)
        )
        self.door, self.reception = door, Reception(door, self.plane.clock)  # pyright: ignore[reportArgumentType]
        self.count = 0

    def token(self, role: str, namespace: str = "default") -> str:
        if role == "plane":
            return MACHINE
        text = f"lks_{role}_{namespace}"
        client = self.plane.client(namespace)
        client.answer(client.ask(m.CreateToken, hash_of(text), role))
        return text

    def come(self, token: str, **fields: Any) -> Wire:
        wire = Wire()
        self.count += 1
        self.reception.came(wire, trusted=False)
        session = self.count.to_bytes(16, "big")
        wire.receive(m.Knock(m.PROTOCOL, "1", session, token=token, **fields))
        self.plane.settle()
        return wire

    def say(self, wire: Wire, message: Any) -> list[Any]:
        """What comes back for one message."""
        before = len(wire.sent)
        wire.receive(message)
        self.plane.settle()
        return wire.sent[before:]


def sample(kind: type) -> Any:
    return next(message for message in SOUND if type(message) is kind)


def refused(answers: list[Any]) -> bool:
    """Whether that is the no of a role: to a request an answer, else the end of the link."""
    return any(
        isinstance(each, m.Refusal | m.Sorry)
        and ("role" in each.message or "owner of the whole plane" in each.message)
        for each in answers
    )


def test_every_message_that_a_head_takes_has_its_place_here() -> None:
    taken = set(framing.MESSAGES) - HEADS_ALONE - {m.Knock, m.Ping, m.Pong}
    assert taken == READ | SUBMIT | WORK | ADMIN | PLANE


@pytest.mark.parametrize("role", ALLOWED)
def test_what_a_role_may_send(role: str) -> None:
    entrance = Entrance()
    token = entrance.token(role)
    for kind in READ | SUBMIT | WORK | ADMIN | PLANE:
        wire = entrance.come(token)
        assert wire.sent[0].role == role
        answers = entrance.say(wire, sample(kind))
        assert refused(answers) == (kind not in ALLOWED[role]), (kind, answers)
        for answer in answers:
            if refused([answer]):
                wanted = "Forbidden" if issubclass(kind, m.Request) else "BadRequest"
                assert answer.kind == wanted
                assert kind in PLANE or f"role {role}" in answer.message


def test_a_worker_s_token_submits_children_only() -> None:
    entrance = Entrance()
    wire = entrance.come(entrance.token("work"))
    orphan = m.Call(CALL.options, CALL.args, parent=PARENT)
    (answer,) = entrance.say(wire, m.Submit(1, b"a" * 16, "default", orphan))
    assert answer.kind == "Forbidden"  # nothing of that id runs
    running = entrance.plane.client().submit("f")
    child = m.Call(CALL.options, CALL.args, parent=running)
    (answer,) = entrance.say(wire, m.Submit(1, b"a" * 16, "default", child))
    assert answer.kind == "Forbidden"  # nor that yet
    entrance.plane.worker()
    entrance.plane.settle()
    (answer,) = entrance.say(wire, m.Submit(1, b"a" * 16, "default", child))
    assert isinstance(answer, m.Accepted)
    items = (m.Submit(2, b"b" * 16, "default", child), m.Submit(2, b"c" * 16, "default", CALL))
    (answer,) = entrance.say(wire, m.SubmitMany(2, items[:1]))
    assert isinstance(answer, m.SubmittedMany)
    (answer,) = entrance.say(wire, m.SubmitMany(2, items))
    assert (answer.kind, "submit" in answer.message) == ("Forbidden", True)


@pytest.mark.parametrize("purpose", ["worker", "beat", "daemon"])
def test_whoever_works_needs_a_worker_s_token(purpose: str) -> None:
    entrance = Entrance()
    for role in ALLOWED:
        wire = entrance.come(entrance.token(role), purpose=purpose)
        if role in ("work", "admin", "plane"):
            assert isinstance(wire.sent[0], m.Welcome)
        else:
            (answer,) = wire.sent
            assert (answer.kind, wire.over) == ("Forbidden", "closed")
            assert "tokens create --role work" in answer.message


class TestAnotherNamespace:
    """All that one namespace has, and an admin of another one."""

    def open(self) -> None:
        self.entrance = Entrance()
        theirs = self.theirs = self.entrance.plane.client("theirs")
        ask = theirs.ask
        theirs.answer(ask(m.AddQueue, "secret", {}))
        self.done = theirs.submit("f", queue="secret")
        theirs.answer(theirs.kill(self.done))
        self.inv = theirs.submit("f", queue="secret", key="k")
        theirs.answer(theirs.post("news", "ours"))
        theirs.answer(ask(m.CreateToken, b"t" * 32, "read", "", "token"))
        self.worker = self.entrance.plane.worker(
            namespace="theirs", name="their worker", leased=True, queues=("default",)
        )
        self.running = theirs.submit("g")
        self.entrance.plane.settle()
        self.wire = self.entrance.come(self.entrance.token("admin", "ours"))
        self.attempt = theirs.record(self.running).attempt

    def say(self, message: Any) -> list[Any]:
        return self.entrance.say(self.wire, message)

    def test_nothing_of_it_is_found(self) -> None:
        self.open()
        by_id = [kind(1, self.inv) for kind in (m.Wait, m.Get, m.Why, m.Kill)]
        by_id += [
            m.Retry(1, self.done, PARENT),
            m.Follow(1, self.inv, 0, 9),
            m.FollowLogs(1, self.inv, 0, 9),
            m.Kill(1, self.running, True),
        ]
        queues = [m.PatchQueue(1, "secret", {"description": "mine"}), m.ShiftQueue(1, "secret", "drain")]
        queues += [kind(1, "secret") for kind in (m.ShowQueue, m.RemoveQueue, m.QueueStats, m.QueueEvents)]
        queues += [m.BulkCancel(1, "secret"), m.ListJobs(1, "secret"), m.Submit(1, PARENT, "secret", CALL)]
        names = [kind(1, "their worker") for kind in (m.ShowWorker, m.DrainWorker, m.RemoveWorker)]
        names += [m.RemoveTopic(1, "news"), m.RemoveToken(1, "token")]
        for message in (*by_id, *queues, *names):
            (answer,) = self.say(message)
            assert (type(answer), answer.kind) == (m.Refusal, "NotFound"), message
            assert "did you mean" not in answer.message
        self.is_untouched()

    def test_nothing_of_it_is_listed(self) -> None:
        self.open()
        for message in (m.ListTopics(1), m.ListWorkers(1, True)):
            assert self.say(message)[0].value == []
        assert [row["name"] for row in self.say(m.ListQueues(1))[0].value] == ["default"]
        assert self.say(m.ListJobs(1))[0].rows == ()
        assert {row["namespace"] for row in self.say(m.ListTokens(1))[0].value} == {"ours"}
        assert self.say(m.FollowTopic(1, "news", 0, 9)) == []  # a topic of ours that nobody posted to
        status = self.say(m.Status(2))[0].value
        assert (status["queued"], status["running"], status["namespaces"]) == (0, 0, 1)

    def test_nothing_of_it_is_reached_by_what_names_nothing(self) -> None:
        self.open()
        self.say(m.BulkCancel(1))
        self.say(m.PruneJobs(2, 0.0))
        self.is_untouched()

    def test_no_token_of_it_can_be_made_or_seen(self) -> None:
        self.open()
        for message in (m.CreateToken(1, b"x" * 32, "admin", "theirs"), m.ListTokens(1, "theirs")):
            (answer,) = self.say(message)
            assert answer.kind == "Forbidden"

    def test_no_work_of_it_can_be_ended_and_no_worker_spoken_for(self) -> None:
        self.open()
        id, hello = self.running, self.worker.worker.hello
        for message in (
            m.Beat(hello.worker),
            m.Died(hello.worker, "we said so"),
            m.Began(id, self.attempt),
            m.Frames(id, self.attempt, 0, 1, b"\x01"),
            m.Logged(id, self.attempt, 0, 1, b"\x01"),
            m.Publish(id, self.attempt),
            m.Progressed(id, self.attempt, m.Progress(1, 2, 0.0)),
            m.Ended(id, self.attempt, "succeed", b"\x01"),
            m.GaveBack(id, self.attempt, "given"),
            m.Hello(
                PARENT, "w", "h", 1, ("default",), False, 1, leased=True, held=(m.Held(id, self.attempt),)
            ),
            m.Ended(id, self.attempt, "succeed", b"\x01"),
            m.GaveBack(id, self.attempt, "given"),
        ):
            answers = self.say(message)
            if isinstance(message, m.Beat):
                assert answers == [m.Beaten(hello.worker, False)]
        self.is_untouched()

    def test_the_door_of_it_stays_shut(self) -> None:
        self.open()
        wire = self.entrance.come("lks_admin_ours", namespace="theirs")
        (answer,) = wire.sent
        assert answer.kind == "Forbidden"
        assert "'ours'" in answer.message
        assert "'theirs'" in answer.message

    def is_untouched(self) -> None:
        theirs = self.theirs
        assert theirs.state(self.inv) == "queued"
        assert theirs.state(self.done) == "killed"
        assert theirs.state(self.running) == "running"
        shown = theirs.answer(theirs.ask(m.ShowQueue, "secret")).value
        assert (shown["state"], shown["description"]) == ("active", "")
        assert len(theirs.answer(theirs.ask(m.ListTopics)).value) == 1
        assert len(theirs.answer(theirs.ask(m.ListTokens, "theirs")).value) == 1
        (worker,) = theirs.answer(theirs.ask(m.ListWorkers)).value
        assert worker["state"] == "ready"


def test_one_that_never_knocks_is_let_go(caplog: pytest.LogCaptureFixture) -> None:
    entrance = Entrance()
    wire = Wire()
    entrance.reception.came(wire, trusted=False)
    entrance.plane.advance(9.9)
    assert wire.over == ""
    entrance.plane.advance(0.2)
    assert "said nothing" in wire.over


def test_one_that_does_not_begin_with_a_knock_is_told(caplog: pytest.LogCaptureFixture) -> None:
    entrance = Entrance()
    wire = Wire()
    entrance.reception.came(wire, trusted=False)
    wire.receive(m.Status(1))
    entrance.plane.settle()
    (answer,) = wire.sent
    assert (answer.kind, wire.over) == ("Forbidden", "closed")
    entrance.plane.advance(20)
    assert wire.over == "closed"


def test_one_that_is_not_let_in_yet_may_send_little() -> None:
    entrance = Entrance()
    wire = Wire()
    entrance.reception.came(wire, trusted=False)
    assert wire.limit < 1 << 20
    wire.receive(m.Knock(m.PROTOCOL, "1", PARENT, token=MACHINE))
    assert wire.limit == framing.MESSAGE_LIMIT


def test_who_knocks_while_the_plane_ends_is_told_to_come_back() -> None:
    entrance = Entrance()
    inside = entrance.come(MACHINE)
    entrance.door.leaving = True
    assert entrance.say(inside, m.Status(1)) == []  # it is asked again after the restart
    with pytest.raises(Refused) as raised:
        entrance.door.knock(m.Knock(m.PROTOCOL, "1", PARENT), Wire(), print, trusted=True)
    assert not isinstance(raised.value, Forbidden)
    assert raised.value.details()["retry_after"] > 0
