"""A client in another process, whose links break at any moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from lakeshore.core import messages as m
from lakeshore.core.credit import Limits
from lakeshore.core.door import Door, hash_of
from lakeshore.core.errors import Refused
from lakeshore.core.settings import declare
from lakeshore.core.values import unpack
from lakeshore.testing.hand import HandClient, HandPlane

TOKEN = "lks_machine"


class Cable:
    """A link that the test moves message by message, and can break."""

    def __init__(self) -> None:
        self.to_head: deque[Any] = deque()
        self.to_client: deque[Any] = deque()
        self.cut = False
        self.near, self.far = _End(self, self.to_head), _End(self, self.to_client)


class _End:
    def __init__(self, cable: Cable, out: deque[Any]) -> None:
        self._cable, self._out = cable, out

    def send(self, message: Any, /) -> None:
        if not self._cable.cut:
            self._out.append(message)

    def close(self) -> None:
        self._cable.cut = True


class Outside:
    """A head with a door, and one client that comes in through it.

    Args:
        breaks: after how many messages, in both directions together, the link breaks.
        restarts: the head's process is killed then, too.
    """

    def __init__(self, breaks: int = -1, *, restarts: bool = False, limits: Limits | None = None) -> None:
        self.plane = HandPlane(seed=1)
        self.breaks, self.restarts, self.limits = breaks, restarts, limits
        self.moved = 0
        self.ended: list[m.Sorry] = []
        self.session = b"s" * 16
        self.client = HandClient(self.plane, _Nothing(), _Nothing())  # pyright: ignore[reportArgumentType]
        core = self.client.client
        core.unlinked()
        core._publisher = b"p" * 16
        core._now = lambda: self.plane.clock.now
        self.cable: Cable | None = None
        self.door = self._door()
        self.link()

    def _door(self) -> Door:
        return Door(
            self.plane.head,
            version="1",
            identity=b"h" * 16,
            payload_limit=1 << 20,
            machine=hash_of(TOKEN),
            limits=self.limits,
        )

    def knock(self, **fields: Any) -> m.Knock:
        return m.Knock(
            **{"protocol": m.PROTOCOL, "version": "1", "session": self.session, "token": TOKEN} | fields
        )

    def link(self) -> m.Welcome:
        cable = self.cable = Cable()
        self.hang_up: Callable[[m.Sorry], None] = lambda why: (self.ended.append(why), cable.far.close())  # type: ignore[func-returns-value]
        welcome, self.guest = self.door.knock(self.knock(), cable.far, self.hang_up, trusted=False)
        limits = Limits(welcome.requests, welcome.room, welcome.waits)
        self.client.client.relinked(cable.near, limits)
        return welcome

    def unlink(self) -> None:
        cable, self.cable = self.cable, None
        assert cable is not None
        cable.cut = True
        self.client.client.unlinked()
        self.door.left(self.guest, self.hang_up)

    def run(self) -> None:
        """Let everything happen, the break among it."""
        while True:
            self.plane.settle()
            cable = self.cable
            assert cable is not None
            if cable.to_head:
                self.guest.receive(cable.to_head.popleft())
            elif cable.to_client:
                self.client.client.receive(cable.to_client.popleft())
            else:
                return
            self.moved += 1
            if self.moved == self.breaks:
                self.unlink()
                if self.restarts:
                    self.plane.clients.clear()
                    self.plane.crash()
                    self.door = self._door()
                self.plane.settle()
                self.link()

    def answer(self, req: int) -> Any:
        self.run()
        return self.client.answers[req][-1] if self.client.answers[req] else None


class _Nothing:
    receive: Any = None

    def send(self, message: Any, /) -> None:
        raise AssertionError("it has no link")

    def close(self) -> None:
        pass


def story(outside: Outside) -> list[Any]:
    """What a program asks and is told, in a queue that has room for two."""
    client, told = outside.client, []

    def ask(kind: type[Any], *fields: Any) -> Any:
        return outside.answer(client.ask(kind, *fields))

    outside.plane.client().ask(m.AddQueue, "narrow", declare({"max_depth": 2, "on_full": "block"}))
    outside.plane.settle()
    first, req = client.start("f", args=(1,), queue="narrow", key="k")
    told.append(outside.answer(req).id == first)
    ids, many = client.submit_many(3, queue="narrow")
    told.append(outside.answer(many))  # None: it has room for one
    other, blocked = client.start("f", args=(2,), queue="narrow")
    told.append(outside.answer(blocked))
    waiting = client.ask(m.Wait, first)
    outside.run()
    worker = outside.plane.worker(queues=("narrow",), slots=10, labels={})
    outside.run()
    worker.finish(first, 41)
    told.append(unpack(outside.answer(waiting).result))
    told += [len(outside.answer(many).results), outside.answer(blocked).id == other]
    for id in ids:
        outside.run()
        worker.finish(id, None)
    told.append(outside.answer(client.ask(m.Wait, ids[2])).state)
    again = client.ask(m.Retry, first, outside.plane.new_id())
    new = outside.answer(again).id
    told.append(ask(m.Get, new).rows[0][0].call.retry_of == first)
    killing = client.ask(m.Kill, new, True)
    outside.run()
    worker.stop(new)
    told.append(type(outside.answer(killing)).__name__)
    told += [outside.answer(client.post("news", value)).value for value in "abc"]
    stream = client.follow_topic("news")
    outside.run()
    told += [outside.answer(client.post("news", value)).value for value in "de"]
    outside.run()
    told.append([value for _, _, value in client.arrived(stream)])
    jobs = ask(m.ListJobs).rows
    told.append(sorted((str(row.state), row.record.attempt) for row, _ in jobs))
    return told


EXPECTED = [
    True, None, None, 41, 3, True, "succeeded", True, "Answer", 0, 1, 2, 3, 4, list("abcde"),
    [("killed", 1), ("running", 1), *[("succeeded", 1)] * 4],
]  # fmt: skip


def quiet_story(outside: Outside) -> list[Any]:
    """The same without bodies, which would be lost with the head's own process."""
    client, told = outside.client, []

    def ask(kind: type[Any], *fields: Any) -> Any:
        return outside.answer(client.ask(kind, *fields))

    first, req = client.start("f", key="k")
    told.append(outside.answer(req).id == first)
    ids, many = client.submit_many(3, keys=["", "a", "b"])
    told.append([each.id for each in outside.answer(many).results] == ids)
    waiting = client.ask(m.Wait, first)
    told.append(type(ask(m.Kill, first)).__name__)
    told.append(outside.answer(waiting).state)
    new = outside.plane.new_id()
    told.append(outside.answer(client.ask(m.Retry, first, new)).id == new)
    told += [outside.answer(client.post("news", value)).value for value in "abc"]
    stream = client.follow_topic("news")
    outside.run()
    burst = [client.post("news", value) for value in "defg"]
    told += [outside.answer(each).value for each in burst]
    outside.run()
    told.append([value for _, _, value in client.arrived(stream)])
    told.append(sorted(str(row.state) for row, _ in ask(m.ListJobs).rows))
    return told


QUIET = [
    True, True, "Answer", "killed", True, 0, 1, 2, 3, 4, 5, 6, list("abcdefg"), ["killed"] + ["queued"] * 4
]  # fmt: skip


def test_the_stories_themselves() -> None:
    for tell, expected, breaks in ((story, EXPECTED, BREAKS), (quiet_story, QUIET, QUIET_BREAKS)):
        outside = Outside()
        assert tell(outside) == expected
        assert outside.moved == len(breaks)


BREAKS, QUIET_BREAKS = range(1, 44), range(1, 35)


@pytest.mark.parametrize("breaks", BREAKS)
def test_a_link_that_breaks_after_any_message_changes_nothing(breaks: int) -> None:
    assert story(Outside(breaks)) == EXPECTED


@pytest.mark.parametrize("breaks", QUIET_BREAKS)
def test_a_head_that_restarts_after_any_message_changes_nothing(breaks: int) -> None:
    assert quiet_story(Outside(breaks, restarts=True)) == QUIET


# credit


def test_a_client_sends_no_more_than_its_credit_and_the_rest_later() -> None:
    outside = Outside(limits=Limits(requests=4, bytes=1 << 20, waits=2))
    reqs = [outside.client.start("f")[1] for _ in range(50)]
    assert outside.cable is not None
    assert len(outside.cable.to_head) == 4
    assert all(isinstance(outside.answer(req), m.Accepted) for req in reqs)
    first = outside.answer(reqs[0]).id
    waits = [outside.client.ask(m.Wait, first) for _ in range(5)]
    outside.run()
    assert isinstance(outside.answer(outside.client.ask(m.Kill, first)), m.Answer)
    assert {outside.answer(req).state for req in waits} == {"killed"}
    assert outside.ended == []


def test_large_requests_count_by_their_bytes_and_one_of_any_size_is_let_through() -> None:
    outside = Outside(limits=Limits(requests=100, bytes=10_000, waits=2))
    reqs = [outside.client.start("f", args=("x" * size,))[1] for size in (50_000, 4000, 4000, 4000)]
    assert outside.cable is not None
    assert len(outside.cable.to_head) == 1
    assert all(isinstance(outside.answer(req), m.Accepted) for req in reqs)


def test_who_overdraws_is_cut_and_its_head_goes_on() -> None:
    outside = Outside(limits=Limits(requests=4, bytes=1 << 20, waits=2))
    outside.plane.store.hold = True
    for _ in range(5):
        outside.client.start("f")
    core = outside.client.client
    assert outside.cable is not None
    for req in list(core._unsent):
        outside.cable.near.send(core._asked[req])
    while outside.cable.to_head:
        outside.guest.receive(outside.cable.to_head.popleft())
    assert [why.kind for why in outside.ended] == ["BadRequest"]
    assert "credit" in outside.ended[0].message
    assert outside.door.count == 0
    outside.plane.store.hold = False
    assert outside.plane.client().submit("g")


def test_a_full_link_holds_back_what_would_make_it_fuller() -> None:
    outside = Outside()
    ids = [outside.plane.client().submit("f") for _ in range(3)]
    worker = outside.plane.worker(slots=10)
    outside.plane.settle()
    waits = [outside.client.ask(m.Wait, id) for id in ids]
    outside.run()
    outside.guest.hold()
    for id in ids:
        worker.finish(id, "x" * 5000)
    outside.run()
    assert [outside.client.answers[req] for req in waits] == [[], [], []]
    outside.guest.go_on()
    assert [unpack(outside.answer(req).result) for req in waits] == ["x" * 5000] * 3


def test_a_session_that_does_not_come_back_lets_go_of_all_it_asked() -> None:
    outside = Outside()
    _, req = outside.client.start("f")
    id = outside.answer(req).id
    outside.client.ask(m.Wait, id)
    outside.run()
    entry = outside.plane.head.space("default").live[id]
    assert entry.waiters
    outside.unlink()
    assert entry.waiters  # it may come back
    outside.plane.advance(outside.plane.head.lease + 1)
    assert not entry.waiters
    assert outside.link().resumed is False


# who comes in


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"token": ""}, "Unauthorized", "asks for a token"),
        ({"token": "wrong"}, "Unauthorized", "does not know this token"),
        ({"protocol": 0, "version": "0.0.1"}, "VersionMismatch", "0.0.1 (protocol 0): upgrade the other end"),
        ({"protocol": 99}, "VersionMismatch", "upgrade the head"),
        ({"purpose": "guest"}, "Forbidden", "no knock"),
        ({"session": b"short"}, "Forbidden", "no knock"),
    ],
)
def test_who_is_turned_away_is_told_why(fields: dict[str, Any], kind: str, says: str) -> None:
    outside = Outside()
    with pytest.raises(Refused) as raised:
        outside.door.knock(outside.knock(**fields), Cable().far, lambda why: None, trusted=False)
    assert type(raised.value).__name__ == kind
    assert says in str(raised.value)
    assert outside.door.count == 1


def test_too_many_at_once_are_told_when_to_come_back() -> None:
    outside = Outside()
    hints: list[float] = []
    for number in range(1200):
        knock = outside.knock(session=number.to_bytes(16, "big"))
        try:
            outside.door.knock(knock, Cable().far, lambda why: None, trusted=False)
        except Refused as refused:
            hints.append(refused.retry_after)  # type: ignore[attr-defined]
    assert len(hints) > 600
    assert hints == sorted(hints)
    assert hints[-1] > 1.0  # spread over the time that letting them in takes
    outside.plane.advance(hints[-1])
    outside.door.knock(outside.knock(session=b"l" * 16), Cable().far, lambda why: None, trusted=False)


def test_a_session_that_comes_in_twice_has_its_newer_link() -> None:
    outside = Outside()
    old = outside.cable
    assert outside.link().resumed
    assert [why.kind for why in outside.ended] == ["Replaced"]
    assert old is not None
    assert old.cut
    _, req = outside.client.start("f")
    assert isinstance(outside.answer(req), m.Accepted)


def test_sessions_that_went_away_are_bounded_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakeshore.core.door._MOST_PARTED", 3)
    outside = Outside()
    id = outside.plane.client().submit("f")
    for number in range(5):
        hang_up: Callable[[m.Sorry], None] = lambda why: None  # noqa: E731
        knock = outside.knock(session=bytes([number]) * 16)
        _, guest = outside.door.knock(knock, Cable().far, hang_up, trusted=False)
        guest.receive(m.Wait(1, id))
        outside.door.left(guest, hang_up)
    outside.plane.settle()
    assert len(outside.door._parted) == 3
    assert not outside.plane.head.space("default").live[id].waiters  # who comes back asks again


def test_the_end_of_a_former_link_is_seen_after_the_next_came_and_ends_nothing() -> None:
    outside = Outside()
    former = outside.hang_up
    id, _ = outside.client.start("f")
    wait = outside.client.ask(m.Wait, id)
    outside.run()
    outside.link()
    outside.door.left(outside.guest, former)
    assert outside.door.count == 1
    outside.plane.advance(2 * outside.plane.head.lease)  # by when a session without a link is over
    worker = outside.plane.worker()
    outside.plane.settle()
    worker.finish(id, 7)
    assert isinstance(outside.answer(wait), m.Outcome)
