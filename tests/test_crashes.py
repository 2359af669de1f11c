"""SIGKILL at any moment loses nothing that was acknowledged, and leaves nothing half done.

Each round a program opens one and the same file, says what it finds in it, submits, runs, streams,
and is killed. What it says is checked against what every round before it was told. The programs are
in `programs`; `python -m programs.crashes` runs as many rounds as wanted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from programs.crashes import Rounds, Zygote
from programs.ledger import Ledger

ROUNDS = 50  # with each `sync`, so 100 on each loop
SEED = 1


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    """Forks the programs of one loop."""
    with Zygote(request.param) as zygote:
        yield zygote


@pytest.mark.parametrize("sync", ["normal", "full"])
def test_a_killed_process_loses_nothing_that_was_acknowledged(
    zygote: Zygote, tmp_path: Path, sync: str
) -> None:
    rounds = Rounds(zygote, tmp_path, SEED, sync)
    rounds.run(ROUNDS)
    ledger = rounds.ledger
    assert not ledger.findings, rounds.report()
    assert ledger.phases["complete"] == 1  # the last one drained the queues, and all was looked at
    assert ledger.phases["end"] == ROUNDS
    assert ledger.results.keys() == ledger.ends.keys() == ledger.invocations.keys()
    assert {state for state, _ in ledger.results.values()} >= {"succeeded", "failed"}
    assert any(ledger.frames.values())


@pytest.mark.parametrize(
    ("fault", "plan"), [("early", "at an acknowledgement"), ("pieces", "at a statement")]
)
def test_a_plane_with_a_fault_is_found_out(zygote: Zygote, tmp_path: Path, fault: str, plan: str) -> None:
    for seed in range(3):  # where the kills fall is up to the machine: each seed finds most of the time
        folder = tmp_path / str(seed)
        folder.mkdir()
        rounds = Rounds(zygote, folder, seed, "normal", fault, [plan])
        rounds.run(ROUNDS)
        if rounds.ledger.findings:
            break
    said = rounds.report()
    assert rounds.ledger.findings, f"{fault} was not found"
    assert f"round {rounds.number} of seed {seed}:" in said
    assert f"--seed {seed} --rounds {rounds.number}" in said


def taken(*evidence: Any) -> Ledger:
    """A ledger that was told this; "crash" ends a round."""
    ledger = Ledger()
    for line in evidence:
        if line == "crash":
            ledger.end_round()
        else:
            ledger.take(json.dumps(line).encode())
    return ledger


def row(inv: str, state: str, **more: Any) -> list[Any]:
    ended = 5.0 if state in ("succeeded", "failed", "killed", "timeout") else None
    attempts = [[1, state]] if ended else []
    given = {"key": None, "body": "m.plain", "ended": ended, "attempt": len(attempts), "attempts": attempts}
    given |= more
    return [
        "row", inv, state, given["key"], given["body"], given["ended"], given["attempt"], None,
        given["attempts"],
    ]  # fmt: skip


SUBMITTED = [["try", 1, "submit", "plain", 1, "k", [1]], ["ok", 1, "A"]]
DONE = ["result", "A", "succeeded", [1, "t", 1, 0]]
FRAMES = [
    ["reader", "A", 0],
    ["frame", "A", 0, 1, [1, "t", 1, 2, 0]],
    ["frame", "A", 1, 1, [1, "t", 1, 2, 1]],
]
ENDED = ["result", "A", "succeeded", [1, "t", 1, 2]]
KILLED = [["try", 2, "kill", "A"], ["ok", 2]]
POSTED = [["try", 3, "post", "T"], ["ok", 3, 0]]


def test_what_agrees_is_no_finding() -> None:
    ledger = taken(
        *SUBMITTED, *FRAMES, *POSTED, ["start", "A", 1], ENDED, "crash",
        ["looking"], row("A", "succeeded", key="k"), ["listed", []], ENDED, *FRAMES, ["read", "A"],
        ["topic reader", "T"], ["topic frame", "T", 0, 3], ["log", "WARNING", "x"],
    )  # fmt: skip
    assert ledger.findings == []
    ledger.take(b'["result", "A", "fai')  # the line of a process that was killed
    assert ledger.findings == []
    cut = taken(
        ["try", 1, "submit", "plain", 2, None, None], "crash", ["looking"], row("B", "queued"), ["listed", []]
    )
    assert cut.findings == []  # submits that were cut off may be there
    assert taken(*SUBMITTED, *FRAMES).end_round() == [("A", 2)]


@pytest.mark.parametrize(
    ("evidence", "finding"),
    [
        ([*SUBMITTED, "crash", ["looking"], ["listed", []]], "A was acknowledged and is not listed"),
        ([["looking"], row("B", "queued"), ["listed", []]], "1 invocations are there that 0"),
        ([*SUBMITTED, ["try", 2, "submit", "plain", 1, "k", [1]], ["ok", 2, "B"]], "key k gave A, then B"),
        ([*SUBMITTED, ["try", 2, "submit", "plain", 1, None, None], ["ok", 2, "A"]], "given to two submits"),
        ([*SUBMITTED, row("B", "queued", key="k")], "key k is of A and of B"),
        ([row("A", "queued"), row("A", "queued")], "listed twice"),
        ([row("A", "queued", body="")], "record of A is not whole"),
        ([row("A", "succeeded", ended=None)], "record of A is not whole"),
        ([row("A", "killed", attempts=[[1, "killed"], [2, "killed"]], attempt=2)], "its attempts ended"),
        ([row("A", "queued", attempts=[[1, "succeeded"]], attempt=1)], "its attempts ended"),
        ([row("A", "queued", attempts=[[1, "lost"], [1, "lost"]], attempt=1)], "numbered"),
        ([row("A", "running", attempts=[[n, "lost"] for n in range(1, 5)], attempt=4)], "lost 4 workers"),
        ([DONE, ["result", "A", "succeeded", [1, "u", 2, 0]]], "A ended with"),
        ([DONE, ["result", "A", "failed", None]], "A was succeeded, then failed"),
        ([DONE, row("A", "queued")], "A had ended and is queued"),
        ([row("A", "failed"), "crash", row("A", "failed", ended=6.0)], "the end of A was"),
        ([["start", "A", 1], ["start", "A", 1]], "attempt 1 of A began twice"),
        ([DONE, ["start", "A", 2]], "A ran again after its end"),
        ([*KILLED, row("A", "succeeded")], "A was killed, then succeeded"),
        ([*KILLED, row("A", "queued")], "A had ended and is queued"),
        ([*FRAMES[:2], FRAMES[1]], "frame 0 of A came where 1 was next"),
        ([FRAMES[0], FRAMES[2]], "frame 1 of A came where 0 was next"),
        ([*FRAMES[:2], "crash", FRAMES[0], ["frame", "A", 0, 1, [1, "u", 1, 2, 0]]], "frame 0 of A was"),
        ([*FRAMES[:2], ["frame", "A", 1, 1, [1, "t", 1, 3, 2]]], "frame 1 of A, attempt 1, is"),
        ([*FRAMES, "crash", ["reader", "A", 1], ["read", "A"]], "ended at 1, 2 frames were delivered"),
        ([DONE, *FRAMES[:2], ["read", "A"]], "A succeeded with 1 of 2 frames"),
        ([*FRAMES[:2], ["read", "A"], "crash", ["reader", "A", 1], FRAMES[2]], "came after its end was read"),
        ([FRAMES[0], ["cut", "A"]], "A had 0 frames and has 0"),
        ([["gap", "A", 0, 5]], "had a gap up to 5"),
        ([["gone", "A"]], "A was acknowledged and is gone"),
        ([*POSTED, ["topic reader", "T"], ["topic cut", "T", 1]], "topic T had 1 frames and has 0"),
        ([*POSTED, ["topic reader", "T"], ["topic frame", "T", 0, 4]], "which nobody posted"),
        ([*POSTED, ["try", 4, "post", "T"], ["ok", 4, 0]], "frame 0 of topic T was 3, then 4"),
        ([["topic reader", "T"], ["topic frame", "T", 1, 3]], "came where 0 was next"),
        ([["try", 4, "queue", "q"], ["ok", 4, "q"], ["listed", ["default"]]], "queues {'q'} were"),
        ([["error", "Traceback"]], "the program failed: Traceback"),
        ([["log", "CRITICAL", "the plane ended on a bug"]], "logged: the plane ended"),
        ([["stuck"]], "the program is stuck"),
    ],
)  # fmt: skip
def test_what_disagrees_is_a_finding(evidence: list[Any], finding: str) -> None:
    findings = taken(*evidence).findings
    assert any(finding in found for found in findings), findings
