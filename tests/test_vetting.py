"""What a head refuses of what comes from outside, and that it says why in one sentence."""

from __future__ import annotations

import hashlib
import math
from random import Random
from typing import Any

import pytest
from msgspec import msgpack
from msgspec.structs import replace
from wire_values import MESSAGES

from lakeshore.core import framing
from lakeshore.core import messages as m
from lakeshore.core.failures import describe
from lakeshore.core.logbook import LONGEST, pack_line
from lakeshore.core.rows import Call, Failure, Function, FunctionRow, Options
from lakeshore.core.settings import declare
from lakeshore.core.values import pack
from lakeshore.core.vetting import CHECKS, HEADS_ALONE, vet

LIMIT = 1 << 20
ID, HUGE, NAN, INF = b"i" * 16, 1 << 63, math.nan, math.inf

OPTIONS = Options(Function("f", "here:f"), "sync")
CALL = Call(OPTIONS, b"\x92\x90\x80")
SUBMIT = m.Submit(1, ID, "default", CALL)
BODY = FunctionRow(hashlib.blake2b(b"pickle", digest_size=16).digest(), b"pickle")
BY_VALUE = replace(CALL, options=replace(OPTIONS, function=Function("f", value=BODY.hash)))
ENDED = m.Ended(ID, 1, "succeed", b"\x01")
FAILED = m.Ended(ID, 1, "fail", error=Failure("ValueError", "no"), retryable=True, after=5.0, seconds=0.1)
HELLO = m.Hello(ID, "w", "host", 7, ("default",), False, 4)
HELD = m.Held(ID, 1)
FRAMES = m.Frames(ID, 1, 0, 2, b"data")
LINE = (1.0, "stdout", "info", "text")


def logged(*lines: tuple[float, str, str, str], count: int = 0) -> m.Logged:
    return m.Logged(ID, 1, 0, count or len(lines), msgpack.encode(lines))


LOGGED = logged(LINE, LINE)
PROGRESSED = m.Progressed(ID, 1, m.Progress(1, 2.5, 1.0, "text"))
KNOCK = m.Knock(1, "1.0", ID)
FOLLOW, TOPIC = m.Follow(1, ID, 0, 10), m.FollowTopic(1, "t", 0, 10)
LOGS = m.FollowLogs(1, ID, 0, 10)
POST = m.Post(1, "t", 1.0, pack({"a": 1}))
ADD = m.AddQueue(1, "q", declare({"kind": "priority", "max_depth": 3, "rate_limit": "5/s", "retention": 60}))
LIST = m.ListJobs(1)


def many(*items: m.Submit, req: int = 1) -> m.SubmitMany:
    return m.SubmitMany(req, items)


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


def caused(depth: int) -> Failure:
    return Failure("E", "m", cause=caused(depth - 1) if depth else None)


def options(**changes: Any) -> m.Submit:
    return replace(SUBMIT, call=replace(CALL, options=replace(OPTIONS, **changes)))


def call(**changes: Any) -> m.Submit:
    return replace(SUBMIT, call=replace(CALL, **changes))


SOUND = [
    SUBMIT,
    replace(SUBMIT, call=BY_VALUE, function=BODY, priority=-1e300, delay=0.0, deadline=1e11, digest=ID),
    call(args=b"x" * LIMIT, key="k" * 1000, parent=ID, retry_of=ID, prefix="a/b"),
    options(timeout=1e300, retries=HUGE - 1, retry_delay=1.0, retry_cap=1.0),
    many(SUBMIT),
    many(*[SUBMIT] * 1000),
    *[kind(HUGE - 1, ID) for kind in (m.Wait, m.Get, m.Why, m.Kill)],
    m.Retry(1, ID, ID),
    FOLLOW,
    replace(FOLLOW, since=-1, credit=0, room=HUGE - 1),
    LOGS,
    replace(LOGS, since=-1, follow=True),
    TOPIC,
    m.Credit(1, 0),
    m.Drop(1),
    m.Drop(1, ID),
    POST,
    replace(POST, publisher=ID, number=1, settled=1),
    m.CloseTopic(1, "é" * 200),
    m.RemoveTopic(1, "t"),
    *[kind(1) for kind in (m.ListTopics, m.ListWorkers, m.Status, m.ListProviders, m.ListTokens)],
    ADD,
    m.AddQueue(1, "q", declare({"kind": "boltzmann", "elasticity": "fixed", "min": 2, "template": {"a": 1}})),
    m.PatchQueue(1, "q", {"max": 3, "on_full": "block", "template": {"a": [1, {"b": None}]}, "provider": ""}),
    m.ShiftQueue(1, "0" * 26, "drain"),
    *[kind(1, "q") for kind in (m.ShowQueue, m.RemoveQueue, m.QueueStats, m.QueueEvents, m.BulkCancel)],
    m.BulkCancel(1),
    m.ListQueues(1, ("active", "archived")),
    LIST,
    replace(LIST, queue="q", states=("queued",), worker=ID, limit=200, offset=HUGE - 1, before=ID),
    m.PruneJobs(1),
    m.PruneJobs(1, 0.0),
    *[kind(1, "n") for kind in (m.ShowWorker, m.DrainWorker, m.RemoveWorker, m.RemoveToken)],
    *[kind(1, "n") for kind in (m.ShowProvider, m.RemoveProvider)],
    m.CreateToken(1, b"h" * 32, "submit"),
    m.AddProvider(1, "p", "local", {"a": 1}, 3),
    m.PatchProvider(1, "p", {"max": None}),
    HELLO,
    replace(HELLO, labels={"a": "b"}, versions={"python": "3.11"}, limit=1, leased=True, held=(HELD,)),
    m.Began(ID, 1, 7),
    m.Publish(ID, 1),
    m.ShowStorage(1),
    m.SetStorage(1, "s3://bucket"),
    m.Kept(ID, 1),
    FRAMES,
    LOGGED,
    replace(LOGGED, index=HUGE - 4),
    logged((253402300799.0, "s" * 200, "l" * 200, "x" * LONGEST), (0.0, "", "", "")),
    m.Logged(ID, 1, 0, 1, b"\xdd\0\0\0\1" + pack_line(1.0, "s" * 999, "l" * 999, "\udcff" * LONGEST)),
    PROGRESSED,
    m.Progressed(ID, 1, m.Progress(HUGE - 1, None, 0.0, "é" * 300)),
    ENDED,
    FAILED,
    m.Ended(ID, 1, "kill", reason="killed", seconds=1.0),
    m.Ended(ID, 1, "expire", error=Failure("E", "m")),
    m.GaveBack(ID, 1, "drained"),
    m.Drain(),
    m.Bye(),
    m.Beat(ID),
    m.Died(ID, "killed by signal 9"),
    KNOCK,
    replace(KNOCK, purpose="daemon", worker=ID, namespace="n", token="t", host="h", pid=3),
    m.Ping(),
    m.Pong(),
    m.Exec(1, "w", ("ls", ""), 1),
    m.Minding(ID),
    m.Output(0, 2, b"x"),
    m.Exited(0, -9),
]

UNSOUND: list[tuple[Any, str]] = [  # and what the sentence names
    (replace(SUBMIT, req=-1), "req"),
    (replace(SUBMIT, req=HUGE), "req"),
    (replace(SUBMIT, id=b"short"), "id"),
    (replace(SUBMIT, queue="Not-A-Name"), "queue name"),
    (replace(SUBMIT, queue="0" * 26 + "A"), "queue name"),
    (replace(SUBMIT, queue="q" * 2000), "queue"),
    (replace(SUBMIT, priority=NAN), "priority"),
    (replace(SUBMIT, priority=-INF), "priority"),
    (replace(SUBMIT, digest=b"d" * 65), "digest"),
    (replace(SUBMIT, delay=-1.0), "delay"),
    (replace(SUBMIT, delay=1e12), "delay"),
    (replace(SUBMIT, deadline=NAN), "deadline"),
    (replace(SUBMIT, function=BODY), "function"),
    (replace(SUBMIT, call=BY_VALUE, function=replace(BODY, data=b"another")), "hash"),
    (replace(SUBMIT, call=BY_VALUE, function=replace(BODY, data=b"")), "function"),
    (call(args=None), "args"),
    (call(args=b"x" * (LIMIT + 1)), "payload limit"),
    (call(key="k" * 70_000), "key"),
    (call(parent=b"p"), "parent"),
    (call(retry_of=b""), "retry_of"),
    (options(kind="lambda"), "kind"),
    (options(runner="threads"), "runner"),
    (options(timeout=0.0), "timeout"),
    (options(timeout=NAN), "timeout"),
    (options(retries=-1), "retries"),
    (options(retries=HUGE), "retries"),
    (options(retry_delay=2.0, retry_cap=1.0), "retry_delay"),
    (options(retry_cap=INF), "retry_cap"),
    (options(function=Function("f")), "local, ref or value"),
    (options(function=Function("f", value=b"v")), "function.value"),
    (options(function=Function("f" * 5000, "here:f")), "names"),
    (many(), "items"),
    (many(*[SUBMIT] * 1001), "items"),
    (many(SUBMIT, replace(SUBMIT, queue="other")), "item 1"),
    (many(SUBMIT, req=2), "item 0"),
    (many(SUBMIT, replace(SUBMIT, id=b"")), "item 1: id"),
    (m.Wait(1, b""), "id"),
    (m.Get(-1, ID), "req"),
    (m.Retry(1, ID, b"n"), "new_id"),
    (replace(FOLLOW, since=-2), "since"),
    (replace(FOLLOW, credit=-1), "credit"),
    (replace(FOLLOW, room=-1), "room"),
    (replace(TOPIC, name=""), "topic"),
    (replace(TOPIC, name="a\0b"), "topic"),
    (m.CloseTopic(1, "t" * 201), "topic"),
    (m.Credit(1, -1), "frames"),
    (m.Credit(1, 1, -1), "size"),
    (m.Drop(1, b"x"), "id"),
    (replace(POST, at=INF), "at"),
    (replace(POST, data=b""), "data"),
    (replace(POST, data=b"\x01\x02"), "data"),
    (replace(POST, data=b"\x91" * 100_000), "data"),
    (replace(POST, data=b"\xc4\x00" + b"x" * LIMIT), "data"),
    (replace(POST, publisher=b"p"), "publisher"),
    (replace(POST, number=-1), "number"),
    (m.AddQueue(1, "Q", {}), "queue name"),
    (replace(ADD, settings={"kind": "lifo"}), "kind"),
    (replace(ADD, settings={"temperature": NAN}), "temperature"),
    (replace(ADD, settings={"seed": HUGE}), "settings"),
    (replace(ADD, settings={"retention": -1.0}), "retention"),
    (replace(ADD, settings={"admission": {"max_depth": 0}}), "max_depth"),
    (replace(ADD, settings={"admission": {"on_full": "drop"}}), "on_full"),
    (replace(ADD, settings={"admission": {"rate_limit": 0.0}}), "rate_limit"),
    (replace(ADD, settings={"elasticity": {"kind": "none"}}), "elasticity"),
    (replace(ADD, settings={"elasticity": {"kind": "fixed", "min": 2, "max": 1}}), "min"),
    (replace(ADD, settings={"template": {"deep": nested(40)}}), "deep"),
    (replace(ADD, settings={"template": {"large": ["x" * 1000] * 2000}}), "bytes"),
    (replace(ADD, settings={"template": {"keys": {1: 2}}}), "key"),
    (replace(ADD, settings={"template": {"size": 1 << 64}}), "settings"),
    (replace(ADD, settings={"template": {"set": {1}}}), "set"),
    (m.PatchQueue(1, "q", {"kind": "fifo"}), "kind"),
    (m.PatchQueue(1, "q", {"max_depth": "many"}), "max_depth"),
    (m.PatchQueue(1, "q", {"rate_limit": "x" * 10_000}), "rate_limit"),
    (m.ShiftQueue(1, "q", "explode"), "move"),
    (m.ShowQueue(1, ""), "queue name"),
    (m.QueueEvents(1, "q", 0), "limit"),
    (m.BulkCancel(1, "Q"), "queue name"),
    (m.ListQueues(1, ("open",)), "state"),
    (m.ListQueues(1, ("active",) * 100), "states"),
    (replace(LIST, states=("done",)), "state"),
    (replace(LIST, limit=0), "limit"),
    (replace(LIST, limit=201), "limit"),
    (replace(LIST, offset=-1), "offset"),
    (replace(LIST, worker=b""), "worker"),
    (replace(LIST, before=b"x"), "before"),
    (m.PruneJobs(1, NAN), "older_than"),
    (m.ShowWorker(1, ""), "name"),
    (m.CreateToken(1, b"h", "read"), "hash"),
    (m.CreateToken(1, b"h" * 32, "root"), "token_role"),
    (m.CreateToken(1, b"h" * 32, "read", "n\0"), "namespace"),
    (m.ListTokens(1, "n" * 201), "namespace"),
    (m.AddProvider(1, "p", "", {}), "kind"),
    (m.AddProvider(1, "p", "local", {"a": nested(40)}), "config"),
    (m.AddProvider(1, "p", "local", {}, -1), "max"),
    (m.PatchProvider(1, "p", {"a": HUGE}), "changes"),
    (replace(HELLO, worker=b""), "worker"),
    (replace(HELLO, slots=0), "slots"),
    (replace(HELLO, slots=1_000_001), "slots"),
    (replace(HELLO, limit=-1), "limit"),
    (replace(HELLO, pid=-1), "pid"),
    (replace(HELLO, name="n" * 1001), "name"),
    (replace(HELLO, host="h" * 1001), "host"),
    (replace(HELLO, queues=("q", "Q")), "queue name"),
    (replace(HELLO, queues=("q",) * 10_001), "queues"),
    (replace(HELLO, labels={"a": "b" * 5000}), "labels"),
    (replace(HELLO, versions={str(n): "" for n in range(1001)}), "versions"),
    (replace(HELLO, held=(HELD,) * 97), "held"),
    (replace(HELLO, held=(m.Held(b"", 1),)), "held: id"),
    (replace(HELLO, held=(m.Held(ID, 1, index=-1),)), "held: index"),
    (m.Began(b"", 1), "id"),
    (m.Began(ID, 1, -1), "pid"),
    (m.Publish(b"x", 1), "id"),
    (replace(FRAMES, away=(b"x", b"y", b"z")), "away"),
    (replace(FRAMES, away=(bytes(9000),)), "away"),
    (m.ShowStorage(1, "No"), "queue"),
    (m.SetStorage(1, "nowhere"), "storage"),
    (m.SetStorage(1, ""), "storage"),
    (m.Kept(ID, HUGE), "attempt"),
    (replace(LOGS, id=b"short"), "id"),
    (replace(LOGS, since=-2), "since"),
    (replace(LOGS, credit=-1), "credit"),
    (replace(LOGS, room=-1), "room"),
    (replace(LOGGED, count=0), "count"),
    (replace(LOGGED, count=999), "count"),
    (replace(LOGGED, count=1), "count"),
    (replace(LOGGED, data=b"data"), "no log lines"),
    (logged((253402300800.0, "log", "info", "text")), "seconds since 1970"),
    (logged(LINE, (NAN, "log", "info", "text")), "seconds since 1970"),
    (logged((1.0, "log", "info", "x" * (LONGEST + 200))), "a line has more"),
    (logged((1.0, "s" * 201, "info", "")), "a line has more"),
    (logged((1.0, "log", "i" * 201, "")), "a line has more"),
    (replace(LOGGED, index=-1), "index"),
    (replace(LOGGED, index=HUGE - 2), "index"),
    (replace(LOGGED, id=b""), "id"),
    (replace(LOGGED, attempt=-1), "attempt"),
    (replace(LOGGED, data=b"x" * ((1 << 20) + 1)), "data"),
    (replace(PROGRESSED, id=b""), "id"),
    *[
        (replace(PROGRESSED, progress=progress), named)
        for progress, named in (
            (m.Progress(-1, 2, 0.0), "progress"),
            (m.Progress(NAN, 2, 0.0), "progress"),
            (m.Progress(1, INF, 0.0), "progress"),
            (m.Progress(1, -1, 0.0), "progress"),
            (m.Progress(1, 2, NAN), "at"),
            (m.Progress(1, 2, 1e300), "at"),
            (m.Progress(1, 2, -1.0), "at"),
            (m.Progress(1, 2, 0.0, "x" * 301), "text"),
        )
    ],
    (replace(FRAMES, count=0), "count"),
    (replace(FRAMES, count=5), "count"),
    (replace(FRAMES, index=-1), "index"),
    (replace(FRAMES, data=b"x" * (2 * LIMIT + 1)), "payload limit"),
    (replace(ENDED, attempt=-1), "attempt"),
    (replace(ENDED, move="explode"), "move"),
    (replace(ENDED, move="claim"), "move"),
    (replace(ENDED, result=None), "result"),
    (replace(ENDED, result=b"x" * (LIMIT + 1)), "payload limit"),
    (replace(ENDED, error=Failure("E", "m")), "error"),
    (replace(ENDED, move="kill"), "result"),
    (replace(ENDED, seconds=NAN), "seconds"),
    (replace(ENDED, reason="r" * (2 << 20)), "reason"),
    (replace(FAILED, error=None), "error"),
    (replace(FAILED, after=-1.0), "after"),
    (replace(FAILED, error=Failure("E", "m" * (3 << 20))), "error"),
    (replace(FAILED, error=Failure("E", "m", notes=("",) * 300_000)), "error"),
    (replace(FAILED, error=Failure("E", "m", leaves=(Failure("E", ""),) * 300)), "error"),
    (replace(FAILED, error=caused(40)), "error"),
    (m.GaveBack(ID, 1, "r" * (2 << 20)), "reason"),
    (m.Beat(b""), "worker"),
    (m.Died(ID, "r" * 70_000), "reason"),
    (replace(KNOCK, session=b""), "session"),
    (replace(KNOCK, purpose="door"), "purpose"),
    (replace(KNOCK, namespace="n" * 201), "namespace"),
    (replace(KNOCK, token="t" * 1001), "token"),
    (replace(KNOCK, worker=b"w"), "worker"),
    (replace(KNOCK, version="v" * 201), "version"),
    (replace(KNOCK, protocol=-1), "protocol"),
    (m.Exec(1, "w", (), 1), "command"),
    (m.Exec(1, "w", ("ls", "\0"), 1), "command"),
    (m.Exec(1, "w", ("ls",), 0), "credit"),
    (m.Minding(b""), "worker"),
    (m.Output(0, 3, b"x"), "stream"),
    (m.Output(0, 1, b""), "data"),
    (m.Exited(0, 1 << 20), "status"),
    (m.Exited(0, 0, "e" * 70_000), "error"),
]


def test_every_message_is_vetted_or_sent_by_heads_alone() -> None:
    missing = {kind.__name__ for kind in framing.MESSAGES if kind not in CHECKS and kind not in HEADS_ALONE}
    assert not missing, (
        f"{missing} in lakeshore/core/messages.py: give each a check in lakeshore/core/vetting that refuses "
        "every value a handler can't take, or put it into HEADS_ALONE, where only heads send it"
    )
    assert not HEADS_ALONE & CHECKS.keys()
    assert set(framing.MESSAGES) == HEADS_ALONE | CHECKS.keys()


def test_every_check_is_shown_a_sound_and_an_unsound_message() -> None:
    assert {type(sent) for sent in SOUND} == CHECKS.keys()
    empty = {m.Drain, m.Bye, m.Ping, m.Pong}
    alike = {CHECKS[type(sent)] for sent, _ in UNSOUND}
    assert {kind for kind, check in CHECKS.items() if check not in alike} <= {
        *empty,
        *(m.ListTopics, m.ListWorkers, m.Status, m.ListProviders),
    }


@pytest.mark.parametrize("sent", SOUND, ids=lambda sent: type(sent).__name__)
def test_sound_messages_pass(sent: Any) -> None:
    assert vet(sent, LIMIT) == ""


@pytest.mark.parametrize(
    ("sent", "named"), UNSOUND, ids=[f"{type(each).__name__}-{name}" for each, name in UNSOUND]
)
def test_unsound_messages_are_refused_with_a_short_sentence(sent: Any, named: str) -> None:
    said = vet(sent, LIMIT)
    assert named in said
    assert len(said) < 600
    assert "\n" not in said


@pytest.mark.parametrize("kind", sorted(HEADS_ALONE, key=str))
def test_what_only_heads_send_is_refused(kind: type) -> None:
    assert vet(MESSAGES[kind](Random(0)), LIMIT) == f"a head does not take {kind.__name__}"


def test_what_is_no_message_at_all_is_refused() -> None:
    assert "HeadMail" in vet(type("HeadMail", (), {})(), LIMIT)


def test_the_largest_exception_that_a_worker_describes_passes() -> None:
    def loud(text: str) -> Exception:
        error = ValueError(text * 20_000)
        for _ in range(8):
            error.add_note(text * 20_000)
        return error

    error = ExceptionGroup("several", [loud("x") for _ in range(70)])
    for cause in [loud("é") for _ in range(20)]:
        cause.__cause__, error.__cause__ = error.__cause__, cause
    assert vet(replace(FAILED, error=describe(error)), LIMIT) == ""
