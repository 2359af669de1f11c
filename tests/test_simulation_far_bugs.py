"""Bugs between processes, planted here and never in the product: lost links, leases, heads that follow
each other. Each must be caught, by the promise that it breaks, within so many seeds."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from lakeshore.core import line as lines
from lakeshore.core import messages as m
from lakeshore.core import presence
from lakeshore.core.bond import Bond
from lakeshore.core.client import Client, _Following
from lakeshore.core.credit import Meter
from lakeshore.core.door import Door
from lakeshore.core.engine import Engine
from lakeshore.core.errors import StoreLocked
from lakeshore.core.intake import Intake
from lakeshore.core.leases import Leases
from lakeshore.core.member import Member
from lakeshore.core.notes import Farewell
from lakeshore.core.opening import Opening
from lakeshore.core.presence import Presence
from lakeshore.core.rows import Committed
from lakeshore.core.topics import Topic
from lakeshore.core.worker import Worker
from lakeshore.testing.simulation import Broken, Simulation

Plant = Callable[[pytest.MonkeyPatch], None]


class Planted:
    """One bug: how it is planted, in which kind of program, by which promises, within how many seeds."""

    def __init__(self, plant: Plant, profile: str, within: int, *promises: str) -> None:
        self.plant, self.profile, self.within, self.promises = plant, profile, within, promises


def patched(owner: type[Any], name: str, instead: Any) -> Plant:
    """Something is another."""
    return lambda patch: patch.setattr(owner, name, instead)


def without(owner: type[Any], name: str) -> Plant:
    """A method does nothing."""
    return patched(owner, name, lambda self, *args, **named: None)


# programs


def new_each_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Client, "_again", lambda self, message, *, ticket=False: message)


def posts_unnumbered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Client, "_numbered", lambda self, message: message)


def posts_remembered_late(patch: pytest.MonkeyPatch) -> None:
    def add(self: Topic, post: m.Post, peer: Any) -> None:
        self.pending[object()] = (post, peer)

    patch.setattr(Topic, "add", add)


def stream_from_its_beginning(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Following, "again", lambda self: self.message)
    patch.setattr(Client, "_chunk", lambda self, message: self._streams[message.req].sink(message))


def stream_one_further(patch: pytest.MonkeyPatch) -> None:
    again = _Following.again

    def beyond(self: Any) -> Any:
        message = again(self)
        return msgspec.structs.replace(message, since=message.since + (message.since > 0))

    patch.setattr(_Following, "again", beyond)


def credit_never_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Meter, "give", lambda self, req: None)


def client_ignores_credit(patch: pytest.MonkeyPatch) -> None:
    queue = Client._queue

    def at_once(self: Client, message: Any) -> None:
        if self._linked:
            self._send(message)
        else:
            queue(self, message)

    patch.setattr(Client, "_queue", at_once)


def drop_behind_the_next(patch: pytest.MonkeyPatch) -> None:
    def drop(self: Client, req: int, id: bytes = b"") -> None:
        if self._waiting.pop(req, None) is not None:
            unsent = req in self._unsent or req in self._waits_unsent
            self._forget(req)
            if not unsent:
                self.link.send(m.Drop(req, id))

    patch.setattr(Client, "drop", drop)


def place_lost_with_the_link(patch: pytest.MonkeyPatch) -> None:
    wait = Intake._wait

    def behind_the_others(self: Intake, message: m.Submit, peer: Any) -> bool:
        number = self._numbers.get((id(peer), message.req))
        if number is not None:
            self._waiting.discard(number, self._take(number).priority)
        return wait(self, message, peer)

    patch.setattr(Intake, "_wait", behind_the_others)


def revoked_and_still_here(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Door, "revoke", lambda self, token: None)


def unsure_of_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(m.Submit, "resent", False)


# workers


def lost_with_its_link(patch: pytest.MonkeyPatch) -> None:
    def parted(self: Presence, message: Any, sender: Any) -> None:
        if not self.member.gone and message.wire is self.line.wire:
            self.member.leave("its connection broke", lost=True)

    patch.setattr(Presence, "on_parted", parted)


def half_a_lease(patch: pytest.MonkeyPatch) -> None:
    make = Leases.__init__
    patch.setattr(Leases, "__init__", lambda self, engine, lease: make(self, engine, lease / 2))


def beats_unheard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Presence, "beat", lambda self: None)


def deaf_time_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leases, "silence", lambda self, since: max(self.engine.now - since, 0.0))


def deaf_time_counted_at_first(patch: pytest.MonkeyPatch) -> None:
    def silence(self: Leases, since: float) -> float:
        gone = sum(seconds for until, seconds in self._absences if until > since)
        return max(self.engine.now - since - gone, 0.0)

    patch.setattr(Leases, "silence", silence)


def never_overdue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(presence, "AWAY", 1e9)
    patch.setattr(Leases, "silence", lambda self, since: 0.0)


def old_link_counts(patch: pytest.MonkeyPatch) -> None:
    def parted(self: Presence, message: Any, sender: Any) -> None:
        member = self.member
        if not member.gone:
            self.line.turn_to(None)
            member.away, self._parted_at = True, self.engine.now
            member.take_back_unsent()
            self._look()

    patch.setattr(Presence, "on_parted", parted)


def ends_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "reports", lambda self: [])


def frames_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bond, "keep", lambda self, message: None)


def holds_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bond, "_held", lambda self: ())


def lost_grant_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lines.Line, "has_sent", lambda self, id, attempt: False)


def restart_loses_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Opening, "_adopt_workers", lambda self: {})


def adopted_and_run_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "adopt", lambda self, queue, id, attempt: None)


def begun_while_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Member, "credit", property(lambda self: 0 if self.draining or self.gone else 2))


def removal_that_lets_go_on(patch: pytest.MonkeyPatch) -> None:
    def removal(self: Member, message: Any, sender: Any) -> None:
        self.draining, self.dismissal = True, message.reason
        self.engine.tell(self, Farewell(message.reason))

    patch.setattr(Member, "_on_removal", removal)


# heads


def superseded_and_unaware(patch: pytest.MonkeyPatch) -> None:
    settle = Engine._settle

    def deaf(self: Engine, result: Any) -> None:
        settle(self, Committed() if isinstance(result, StoreLocked) else result)

    patch.setattr(Engine, "_settle", deaf)


def superseded_and_trying(patch: pytest.MonkeyPatch) -> None:
    settle = Engine._settle

    def deaf(self: Engine, result: Any) -> None:
        if isinstance(result, StoreLocked):
            self.ended = True
            self._superseded()
            for outlet, message in self._flying_held:
                outlet.deliver(message)
        else:
            settle(self, result)

    patch.setattr(Engine, "_settle", deaf)


def near_taken_for_far(patch: pytest.MonkeyPatch) -> None:
    flush = Member.flush

    def as_leased(self: Member) -> None:
        hello = self.hello
        self.hello = msgspec.structs.replace(hello, near=False)
        flush(self)
        self.hello = hello

    patch.setattr(Member, "flush", as_leased)


SURE = "what does no harm twice is asked again"
FRAMES = "no frame is missed or doubled"
ONCE = "a post is stored once"
CUT = "who does no harm is not cut"
AT_ONCE = "what happens reaches who waits for it at once"
LOST = "a loss needs a lost worker"
HOLDS = "what runs is at a worker"

BUGS: dict[str, Planted] = {
    "a submit sent again as if for the first time": Planted(
        new_each_time, "far", 200, "what is sent again", "a submit is refused"
    ),
    "a submit that is not sent again": Planted(unsure_of_everything, "far", 50, SURE),
    "a post sent again without its number": Planted(posts_unnumbered, "far", 100, ONCE),
    "a post forgotten until it is stored": Planted(posts_remembered_late, "far", 300, ONCE),
    "a stream taken up at its beginning": Planted(stream_from_its_beginning, "readers", 100, FRAMES),
    "a stream taken up one frame further": Planted(
        stream_one_further, "readers", 100, FRAMES, "a gap is only", AT_ONCE, "a reader is"
    ),
    "credit that never comes back": Planted(
        credit_never_back, "credit", 50, CUT, "credit comes back", AT_ONCE
    ),
    "a client that looks at no credit": Planted(client_ignores_credit, "credit", 50, CUT),
    "a place in the line given before it is free": Planted(drop_behind_the_next, "credit", 300, CUT),
    "a place lost with the link": Planted(
        place_lost_with_the_link, "turns", 500, "who waits for room", AT_ONCE
    ),
    "a token removed and its link left open": Planted(
        revoked_and_still_here, "shut", 100, "who was shut out"
    ),
    "a worker lost with its link": Planted(lost_with_its_link, "leases", 100, LOST),
    "half a lease": Planted(half_a_lease, "leases", 300, LOST),
    "beats that nobody hears": Planted(beats_unheard, "leases", 100, LOST),
    "time counted in which the head was stopped": Planted(deaf_time_counted, "leases", 500, LOST),
    "time counted until the head has looked": Planted(deaf_time_counted_at_first, "leases", 1000, LOST),
    "a lease that never ends": Planted(never_overdue, "leases", 100, HOLDS, "each invocation"),
    "the end of an old link taken for the end of a new one": Planted(
        old_link_counts, "leases", 300, LOST, AT_ONCE, "no work waits"
    ),
    "an end that is said once": Planted(ends_not_repeated, "leases", 300, HOLDS, AT_ONCE),
    "frames that are sent once": Planted(frames_not_repeated, "leases", 300, "every frame", HOLDS, AT_ONCE),
    "a worker that comes back with nothing": Planted(
        holds_nothing, "leases", 100, "an attempt returns", "a body runs again"
    ),
    "a lost grant that stays granted": Planted(lost_grant_kept, "leases", 100, HOLDS, "an attempt returns"),
    "a restart that takes all workers for dead": Planted(
        restart_loses_all, "adoption", 100, LOST, "an attempt returns"
    ),
    "a restart that forgets what they hold": Planted(adopted_and_run_again, "adoption", 100, HOLDS),
    "work for one who is away": Planted(begun_while_away, "leases", 300, "credit", HOLDS, "an attempt"),
    "a removed worker whose work goes on": Planted(
        removal_that_lets_go_on, "leases", 500, "an attempt returns", "a body runs again"
    ),
    "a superseded head that takes its commits for done": Planted(
        superseded_and_unaware, "takeover", 100, "waits for its commit", "a claim is stored"
    ),
    "a superseded head that lets go what waited": Planted(
        superseded_and_trying, "takeover", 100, "waits for its commit", "a claim is stored", "superseded"
    ),
    "a worker in the head's own process taken for another's": Planted(
        near_taken_for_far, "adoption", 300, HOLDS, "an attempt"
    ),
}


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    log = logging.getLogger("lakeshore")
    log.disabled = True
    gc.disable()  # worlds are let go of by hand
    yield
    gc.enable()
    log.disabled = False


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    bug.plant(monkeypatch)
    seed, error = 0, None
    while error is None and seed < bug.within:
        simulation = Simulation(seed, profile=bug.profile)
        try:
            simulation.run()
        except Exception as caught:
            error = caught
        simulation.world.forget()
        seed += 1
    print(f"{name}: {seed} seeds, {error}")
    assert isinstance(error, Broken), f"{name}: not caught in {bug.within} seeds ({error!r})"
    assert any(promise in error.promise for promise in bug.promises), error
