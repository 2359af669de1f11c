"""Bugs of every kind that the simulation is there for, planted here and never in the product: each must
be caught, by the promise that it breaks, within so many seeds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from lakeshore.core import admission, handout, intake, journal, orders, queue, reports, retry
from lakeshore.core import messages as m
from lakeshore.core.archive import Archive
from lakeshore.core.backlog import Backlog
from lakeshore.core.engine import Engine
from lakeshore.core.entry import Entry
from lakeshore.core.handout import Handout
from lakeshore.core.intake import Intake
from lakeshore.core.journal import Journal
from lakeshore.core.kills import Kills
from lakeshore.core.member import Member
from lakeshore.core.notes import Took
from lakeshore.core.queue import Queue
from lakeshore.core.reports import Reports
from lakeshore.core.rows import Batch, ChunkRow, Committed, GetKey, LiveRow, LoadLive
from lakeshore.core.states import QueueState
from lakeshore.store.memory import MemoryStore
from lakeshore.testing.simulation import Broken, Simulation

Plant = Callable[[pytest.MonkeyPatch], None]


class Planted:
    """One bug: how it is planted, by which promises it may be caught, and within how many seeds."""

    def __init__(self, plant: Plant, within: int, *promises: str) -> None:
        self.plant, self.within, self.promises = plant, within, promises


def at_once(*kinds: type[Any]) -> Plant:
    """Messages of some kinds leave before what they tell is stored."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        emit = Engine.emit

        def early(self: Engine, outlet: Any, message: Any) -> None:
            (self.send if isinstance(message, kinds) else emit.__get__(self))(outlet, message)

        patch.setattr(Engine, "emit", early)

    return plant


def without(owner: type[Any], name: str) -> Plant:
    """A method does nothing."""
    return lambda patch: patch.setattr(owner, name, lambda self, *args, **named: None)


def constant(module: Any, name: str, value: object) -> Plant:
    """A constant is another."""
    return lambda patch: patch.setattr(module, name, value)


def stale_attempt(patch: pytest.MonkeyPatch) -> None:
    ended = Member._on_ended

    def on_ended(self: Member, message: m.Ended, sender: object) -> None:
        held = self.grants.get(message.id)
        ended(self, message if held is None else msgspec.structs.replace(message, attempt=held[1]), sender)

    patch.setattr(Member, "_on_ended", on_ended)


def frame_after_end(patch: pytest.MonkeyPatch) -> None:
    report, journals = Member._on_report, dict[bytes, Journal]()

    def on_report(self: Member, message: m.Frames, sender: object) -> None:
        report(self, message, sender)
        if isinstance(message, m.Frames):
            entry, found = self.space.live.get(message.id), journals.get(message.id)
            if entry is not None and entry.journal is not None:
                journals[message.id] = entry.journal
            elif entry is None and found is not None and found.host.engine is self.engine:
                found.append(found.attempt, found.index, message.count, message.data)

    patch.setattr(Member, "_on_report", on_report)


def key_freed_at_the_end(patch: pytest.MonkeyPatch) -> None:
    read = Engine.read

    def forgetful(self: Engine, actor: Any, query: Any, then: Callable[[Any], None]) -> None:
        read(self, actor, query, (lambda answer: then(None)) if isinstance(query, GetKey) else then)

    patch.setattr(Engine, "read", forgetful)


def slot_leaked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Intake, "drop", lambda self, message, peer: None)


def granted_twice(patch: pytest.MonkeyPatch) -> None:
    took = Member._on_took

    def on_took(self: Member, message: Took, sender: Queue) -> None:
        took(self, message, sender)
        for grant in message.grants:
            self.engine.emit(self.wire, grant)

    patch.setattr(Member, "_on_took", on_took)


def live_row_pruned(patch: pytest.MonkeyPatch) -> None:
    commit = MemoryStore.commit

    def too_much(self: MemoryStore, batch: Batch, done: Callable[[Any], None]) -> None:
        live: list[LiveRow] = []
        self.read(LoadLive(), live.extend)

        def answered(result: Committed | BaseException) -> None:
            assert isinstance(result, Committed)
            pruned = [
                msgspec.structs.replace(step, ids=(*step.ids, live[0].row.id))
                for step in result.pruned
                if live
            ]
            done(msgspec.structs.replace(result, pruned=tuple(pruned) or result.pruned))

        commit(self, batch, answered)

    patch.setattr(MemoryStore, "commit", too_much)


def retention(times: float) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        make = Archive.__init__

        def init(self: Archive, engine: Engine, space: Any, seconds: float) -> None:
            make(self, engine, space, seconds * times)

        patch.setattr(Archive, "__init__", init)

    return plant


def other_order(kind: str, instead: type[Any]) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        def make(name: str, **named: Any) -> orders.Order:
            return instead() if name == kind else orders.make_order(name, **named)

        patch.setattr(queue, "make_order", make)

    return plant


def one_more_running(patch: pytest.MonkeyPatch) -> None:
    take = Handout.on_take

    def on_take(self: Handout, message: Any, member: Member) -> None:
        settings = self.queue.settings
        rule = settings.admission
        if rule.max_running is not None:
            more = msgspec.structs.replace(rule, max_running=rule.max_running + 1)
            self.queue.settings = msgspec.structs.replace(settings, admission=more)
        take(self, message, member)
        self.queue.settings = settings

    patch.setattr(Handout, "on_take", on_take)


def one_more_queued(patch: pytest.MonkeyPatch) -> None:
    def verdict(rule: Any, *, depth: int, **others: Any) -> Any:
        return admission.verdict(rule, depth=max(0, depth - 1), **others)

    patch.setattr(intake, "verdict", verdict)


def gap_passed_over(patch: pytest.MonkeyPatch) -> None:
    follow = Journal.follow

    def on(self: Journal, peer: Any, req: int, since: int, credit: int, room: int, **more: Any) -> None:
        follow(self, peer, req, max(since, self.first_seq), credit, room, **more)

    patch.setattr(Journal, "follow", on)


def taken_for_new(patch: pytest.MonkeyPatch) -> None:
    submit = Intake.submit

    def new(self: Intake, message: m.Submit, peer: Any) -> None:
        submit(self, msgspec.structs.replace(message, again=False), peer)

    patch.setattr(Intake, "submit", new)


def frame_shown_early(patch: pytest.MonkeyPatch) -> None:
    emit = Engine.emit

    def early(self: Engine, outlet: Any, message: Any) -> None:
        emit(self, outlet, message)
        if isinstance(message, ChunkRow):
            outlet.stored(message)

    patch.setattr(Engine, "emit", early)


def restart_missing(patch: pytest.MonkeyPatch) -> None:
    def row(*fields: Any) -> ChunkRow:
        space, owner, queue, seq, count, attempt, data = fields
        return ChunkRow(space, owner, queue, seq, count, min(attempt, 1), data)

    patch.setattr(journal, "ChunkRow", row)


def end_before_last_frame(patch: pytest.MonkeyPatch) -> None:
    def finish(self: Journal, outcome: Any) -> None:
        self.end = outcome
        self.stored(None)

    patch.setattr(Journal, "finish", finish)


def frame_skipped(patch: pytest.MonkeyPatch) -> None:
    show = Journal._show

    def skip(self: Journal, follower: Any, row: ChunkRow) -> None:
        if row.attempt > 1 and follower.cursor == row.seq and row.seq % 3 == 2:
            follower.cursor += row.count
        else:
            show(self, follower, row)

    patch.setattr(Journal, "_show", skip)


def credit_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(journal.Follower, "ready", property(lambda self: not self.reading))


def place_lost(patch: pytest.MonkeyPatch) -> None:
    requeue = Queue.requeue

    def at_the_end(self: Queue, entry: Entry, *args: Any, **named: Any) -> None:
        self._place += 1
        entry.place = self._place
        requeue(self, entry, *args, **named)

    patch.setattr(Queue, "requeue", at_the_end)


def long_delay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(queue, "delay", lambda *args, **named: 1.0 + 2.0 * retry.delay(*args, **named))


def failed_commit_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    def failed(self: Engine, error: BaseException) -> None:
        self._settle(Committed())

    patch.setattr(Engine, "_commit_failed", failed)


def credit_overdrawn(patch: pytest.MonkeyPatch) -> None:
    credit = Member.credit.fget
    assert credit is not None
    patch.setattr(Member, "credit", property(lambda self: credit(self) + 1))


def kill_that_only_says_so(patch: pytest.MonkeyPatch) -> None:
    def on_kill(self: Kills, message: m.Kill, peer: Any) -> None:
        self.engine.emit(peer, m.Answer(message.req))

    patch.setattr(Kills, "on_kill", on_kill)


def retry_once_more(patch: pytest.MonkeyPatch) -> None:
    ended = Reports.on_ended

    def on_ended(self: Reports, message: m.Ended, member: Member) -> None:
        entry = self.queue.running.get(message.id)
        if entry is not None and message.move == "fail" and entry.attempt == message.attempt:
            self.queue.retry_later(entry, message)
        else:
            ended(self, message, member)

    patch.setattr(Reports, "on_ended", on_ended)


LEAVES = "waits for its commit"
ONE_KEY = "one key, one invocation"
ORDER = "the order of a queue"
AT_ONCE = "what happens reaches who waits for it at once"
ROOM = "no work waits while a worker has room"

BUGS: dict[str, Planted] = {
    "a submit acknowledged before its commit": Planted(at_once(m.Accepted), 20, LEAVES),
    "a result told before its commit": Planted(at_once(m.Outcome), 100, LEAVES),
    "a frame shown before its commit": Planted(frame_shown_early, 200, LEAVES, "a gap is only"),
    "a grant sent before its claim is stored": Planted(at_once(m.Grant), 20, "a claim is stored"),
    "an end confirmed before its commit": Planted(at_once(m.EndedAck), 20, LEAVES),
    "frames confirmed before their commit": Planted(at_once(m.FramesAck), 50, LEAVES),
    "a post or a kill answered before its commit": Planted(at_once(m.Answer), 50, LEAVES),
    "a body told to stop before the kill is stored": Planted(at_once(m.Stop), 200, LEAVES),
    "a failed commit taken for done": Planted(failed_commit_taken_for_done, 100, LEAVES),
    "a stale attempt accepted": Planted(stale_attempt, 1000, "only the current attempt is heard"),
    "a frame after the end": Planted(frame_after_end, 1000, "nothing follows an end"),
    "a key freed when its invocation ends": Planted(key_freed_at_the_end, 200, ONE_KEY, "a submit is"),
    "a place leaked by a cancelled submitter": Planted(slot_leaked, 300, AT_ONCE),
    "who waits for room is not let in": Planted(without(Intake, "let_in"), 100, AT_ONCE),
    "a wakeup lost where work comes in": Planted(without(Handout, "call"), 20, ROOM, AT_ONCE),
    "a wakeup lost where max_running falls": Planted(without(Queue, "_after_running"), 500, ROOM),
    "a grant sent twice": Planted(granted_twice, 20, "an attempt is granted once"),
    "a live row pruned": Planted(live_row_pruned, 300, "only what has ended is pruned"),
    "a row pruned too early": Planted(retention(0.1), 300, "nothing is pruned before its retention"),
    "a row never pruned": Planted(retention(10.0), 20, "what is past its retention goes"),
    "newest first where oldest was due": Planted(
        other_order("fifo", orders.Filo), 50, "the order of a queue"
    ),
    "oldest first where newest was due": Planted(
        other_order("filo", orders.Fifo), 500, "the order of a queue"
    ),
    "priority ignored": Planted(other_order("priority", orders.Fifo), 500, ORDER),
    "what comes back is put last": Planted(place_lost, 50, "what returns keeps its place"),
    "one more runs than max_running": Planted(one_more_running, 500, "max_running"),
    "one more is queued than max_depth": Planted(one_more_queued, 100, "max_depth", "admission"),
    "an archived queue admits": Planted(
        constant(intake, "ADMITS", frozenset(QueueState)), 500, "a draining or archived", "admission"
    ),
    "a paused queue hands out": Planted(
        constant(handout, "HANDS_OUT", frozenset(QueueState)), 1000, "a paused or archived queue"
    ),
    "a worker granted more than its credit": Planted(credit_overdrawn, 20, "a worker is granted no more"),
    "a gap passed over in silence": Planted(gap_passed_over, 300, "no frame is missed"),
    "a submit sent again and taken for a new one": Planted(taken_for_new, 300, "what is sent again"),
    "RESTART missing": Planted(restart_missing, 500, "frames are what the body gave"),
    "an end before the last frame": Planted(end_before_last_frame, 100, "every frame", LEAVES),
    "a frame skipped": Planted(frame_skipped, 1000, "no frame is missed or doubled", "every frame", AT_ONCE),
    "a reader's credit ignored": Planted(credit_ignored, 500, "a reader is sent no more"),
    "an end that is told to nobody": Planted(without(Journal, "finish"), 50, AT_ONCE),
    "a delay longer than asked for": Planted(long_delay, 100, "a retry comes within its delay"),
    "one more retry than asked for": Planted(retry_once_more, 20, "no more retries"),
    "a deadline that is forgotten": Planted(without(Backlog, "_expire"), 50, AT_ONCE, "nothing begins after"),
    "a backstop before the timeout": Planted(constant(reports, "BACKSTOP", -3.0), 300, "only what ran too"),
    "no backstop": Planted(constant(reports, "BACKSTOP", 1e9), 500, "a timeout has a backstop"),
    "a lost invocation tried for ever": Planted(
        constant(queue, "MAX_LOSSES", 9), 1000, "what was lost three"
    ),
    "a lost invocation left alone": Planted(without(Queue, "orphaned"), 50, "what runs is at a worker"),
    "a kill that only says so": Planted(kill_that_only_says_so, 50, "a kill waits"),
    "what has ended stays in memory": Planted(without(Queue, "_on_settle"), 20, "memory has what lives"),
}


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    log = logging.getLogger("lakeshore")
    log.disabled = True
    yield
    log.disabled = False


def seeds_until_caught(within: int) -> tuple[int, BaseException | None]:
    """How many seeds it took, and what was broken; a bug may also end the plane itself."""
    for seed in [seed for seed in range(2 * within) if seed % 3 != 2][:within]:  # all in one process
        try:
            Simulation(seed).run()
        except Exception as error:
            return seed + 1, error
    return within, None


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    bug = BUGS[name]
    bug.plant(monkeypatch)
    seeds, error = seeds_until_caught(bug.within)
    record_property("seeds", seeds)
    print(f"{name}: {seeds} seeds, {error}")
    assert isinstance(error, Broken), f"{name}: not caught in {bug.within} seeds ({error!r})"
    assert any(promise in error.promise for promise in bug.promises), error
