"""`apply`: a plane becomes what a file says, and what it does not name is left alone."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli import Done
from terminal import at_terminal

import lakeshore as dls
from lakeshore.cli import main
from lakeshore.sdk.manifest import Change, Edit, apply, apply_async, parse

WHOLE = """\
providers:
  my-gpu-provider: {kind: slurm, partition: gpu, gres: "gpu:1", max: 32}
queues:
  training-h100:
    kind: priority
    description: h100 prod
    state: paused
    providerRef: my-gpu-provider
    admission: {max_depth: 1000, on_full: reject, rate_limit: 100/s, deadline_cutoff_s: 3600, max_bytes: null}
    retention: 604800
    elasticity: {kind: pool_with_threshold, min: 2, max: 16, threshold: 0.7, cooldown_s: 60}
    daemonTemplate: {instance_type: p4d.24xlarge, image_id: null, runner: process, slots: 1, setup: []}
  eval:
"""
QUEUE = "queues:\n  a: "


def told(changes: list[Change]) -> list[str]:
    return [str(change) for change in changes]


def applied(q: dls.Dispatch, text: str, **options: Any) -> list[str]:
    return told(apply(q, parse(text), **options))


ADDED = [
    "provider my-gpu-provider: {}added{} (slurm, max 32, partition gpu, gres gpu:1)",
    "queue training-h100: {}added{} (priority, description 'h100 prod', retention 604800, provider "
    "my-gpu-provider, elasticity {{kind pool_with_threshold, min 2, max 16, threshold 0.7, cooldown_s 60}}, "
    "max_depth 1000, on_full reject, rate_limit 100/s, deadline_cutoff_s 3600, daemonTemplate.instance_type "
    "p4d.24xlarge, daemonTemplate.runner process, daemonTemplate.slots 1, daemonTemplate.setup [], state "
    "paused)",
    "queue eval: {}added{} (fifo)",
]


def test_a_plane_becomes_what_the_file_says(q: dls.Dispatch) -> None:
    wanted = [line.format("", "").replace("added", "would add") for line in ADDED]
    assert applied(q, WHOLE, dry_run=True) == wanted
    assert [queue.name for queue in q.queues.ls()] == ["default"]
    assert q.providers.list() == []
    assert applied(q, WHOLE) == [line.format("", "") for line in ADDED]
    provider, queue = q.providers.show("my-gpu-provider"), q.queues.show("training-h100")
    assert (provider.kind, provider.max, provider.config) == (
        "slurm",
        32,
        {"partition": "gpu", "gres": "gpu:1"},
    )
    assert (queue.kind, queue.description, queue.state) == ("priority", "h100 prod", "paused")
    assert (queue.provider_ref, queue.retention) == ("my-gpu-provider", 604800)
    assert queue.admission == {
        "max_depth": 1000,
        "on_full": "reject",
        "rate_limit": 100.0,
        "deadline_cutoff_s": 3600.0,
        "max_running": None,
        "max_bytes": None,
    }
    rule = {"kind": "pool_with_threshold", "min": 2, "max": 16, "threshold": 0.7, "cooldown_s": 60.0}
    assert queue.elasticity == rule
    assert queue.daemon_template == {
        "instance_type": "p4d.24xlarge",
        "runner": "process",
        "slots": 1,
        "setup": [],
    }
    for dry_run in (False, True):
        again = apply(q, parse(WHOLE), dry_run=dry_run)
        assert [change.outcome for change in again] == ["unchanged"] * 3
        assert told(again)[2] == "queue eval: unchanged"
    assert q.queues.show("training-h100") == queue


def test_a_change_says_what_was_and_what_is(q: dls.Dispatch) -> None:
    apply(q, parse(WHOLE))
    text = WHOLE.replace("max_depth: 1000", "max_depth: 2000").replace("h100 prod", "''")
    text = text.replace("threshold: 0.7, cooldown_s: 60", "threshold: null, cooldown_s: 30")
    text = text.replace("runner: process, slots: 1", "runner: null, slots: 2").replace(
        "partition: gpu", "partition: big"
    )
    edits = (
        "description 'h100 prod' → '', max_depth 1000 → 2000, elasticity.threshold 0.7 → none, "
        "elasticity.cooldown_s 60 → 30, daemonTemplate.runner process → none, daemonTemplate.slots 1 → 2"
    )
    planned, done = apply(q, parse(text), dry_run=True), apply(q, parse(text))
    assert told(planned) == [
        "provider my-gpu-provider: would change partition gpu → big",
        f"queue training-h100: would change {edits}",
        "queue eval: unchanged",
    ]
    assert [change.edits for change in planned] == [change.edits for change in done]
    assert [change.outcome for change in done] == ["done", "done", "unchanged"]
    assert Edit("max_depth", 1000, 2000) in done[1].edits
    queue = q.queues.show("training-h100")
    assert queue.elasticity == {"kind": "pool_with_threshold", "min": 2, "max": 16, "cooldown_s": 30.0}
    assert queue.daemon_template == {"instance_type": "p4d.24xlarge", "slots": 2, "setup": []}
    assert {change.outcome for change in apply(q, parse(text))} == {"unchanged"}


def test_what_the_file_does_not_name_is_left_alone(q: dls.Dispatch) -> None:
    q.queues.add(
        "a",
        description="mine",
        max_depth=5,
        max_running=2,
        elasticity="pool_with_threshold",
        min=1,
        template={"slots": 3, "spot": True},
    )
    q.queues.add("b")
    q.queues.pause("b")
    rule = "{kind: pool_with_threshold, max: 9}"
    text = f"{{admission: {{max_depth: 6}}, elasticity: {rule}, daemonTemplate: {{slots: 4}}}}"
    apply(q, parse(QUEUE + text))
    queue = q.queues.show("a")
    assert (queue.description, queue.admission["max_depth"], queue.admission["max_running"]) == ("mine", 6, 2)
    assert queue.elasticity == {"kind": "pool_with_threshold", "min": 1, "max": 9}
    assert queue.daemon_template == {"slots": 4, "spot": True}
    assert q.queues.show("b").state == "paused"


def test_null_takes_away(q: dls.Dispatch) -> None:
    apply(q, parse(WHOLE))
    text = "{providerRef: null, elasticity: null, daemonTemplate: null, retention: null"
    text += ", admission: {max_depth: null}}"
    line = applied(q, "queues:\n  training-h100: " + text)[0]
    assert "provider my-gpu-provider → none" in line
    queue = q.queues.show("training-h100")
    assert (queue.provider_ref, queue.elasticity, queue.daemon_template, queue.retention) == (None,) * 4
    assert (queue.admission["max_depth"], queue.admission["rate_limit"]) == (None, 100.0)
    assert applied(q, "queues:\n  training-h100: " + text) == ["queue training-h100: unchanged"]
    assert applied(q, "providers: {my-gpu-provider: {kind: slurm, max: null, gres: null}}") == [
        "provider my-gpu-provider: max 32 → none, gres gpu:1 → none"
    ]
    assert q.providers.show("my-gpu-provider").config == {"partition": "gpu"}


def test_another_kind_of_elasticity_replaces_all_of_it(q: dls.Dispatch) -> None:
    q.queues.add("a", elasticity="pool_with_threshold", min=1, max=4, threshold=0.5)
    (line,) = applied(q, QUEUE + "{elasticity: {kind: max_count, max: 8}}")
    before = "{kind pool_with_threshold, min 1, max 4, threshold 0.5}"
    assert line == f"queue a: elasticity {before} → {{kind max_count, max 8}}"
    assert q.queues.show("a").elasticity == {"kind": "max_count", "max": 8}
    with pytest.raises(TypeError, match="does not take 'elasticity'"):  # it is for apply alone
        q.queues.patch("a", elasticity={"kind": "fixed"})  # type: ignore[call-arg]


STATES = {
    "active": lambda queues: None,
    "paused": lambda queues: queues.pause("a"),
    "draining": lambda queues: queues.drain("a"),
    "archived": lambda queues: queues.archive("a"),
}


@pytest.mark.parametrize("before", STATES)
def test_a_queue_gets_from_any_state_to_any(before: str) -> None:
    with dls.Dispatch(":memory:") as q:
        q.queues.add("a")
        bring: Callable[[Any], object] = STATES[before]
        for after in STATES:
            bring(q.queues)
            text = QUEUE + f"{{state: {after}}}"
            expected = "unchanged" if before == after else f"state {before} → {after}"
            assert applied(q, text) == [f"queue a: {expected}"]
            assert q.queues.show("a").state == after
            apply(q, parse(QUEUE + "{state: active}"))


def test_one_failure_does_not_stop_the_others(q: dls.Dispatch) -> None:
    q.queues.add("a", kind="filo")
    q.queues.add("b", kind="boltzmann", seed=1)
    q.submit(len, "x")
    dls.udf(len, queue="b").submit("x")
    q.providers.add("p", kind="ssh")
    text = """\
providers: {p: {kind: local}}
queues:
  a: {kind: fifo, description: x}
  b: {seed: 2}
  c: {providerRef: nope}
  d: {description: there}
"""
    seen: list[Change] = []
    changes = apply(q, parse(text), told=seen.append)
    assert seen == changes
    assert [change.outcome for change in changes] == ["failed"] * 4 + ["done"]
    lines = told(changes)
    assert lines[0].startswith(
        "provider p: its kind is ssh, and the file says local: a provider keeps its kind"
    )
    assert lines[1] == (
        "queue a: its kind is filo, and the file says fifo: a queue keeps its kind; `lakeshore queues drain "
        "a`, then `lakeshore queues rm a`, and apply again"
    )
    assert lines[2].startswith(
        "queue b: 409 Conflict: temperature and seed can be changed while nothing is qu"
    )
    assert lines[3].startswith("queue c: 404 NotFound: no provider 'nope'")
    assert lines[4] == "queue d: added (fifo, description there)"
    assert q.queues.show("a").description == ""
    dry = applied(q, text, dry_run=True)
    assert dry[3] == "queue c: no provider 'nope', here or in the file: add it first"


def test_the_default_queue_is_as_any_other(q: dls.Dispatch) -> None:
    lines = applied(q, "queues: {default: {admission: {max_running: 2}}}")
    assert lines == ["queue default: max_running none → 2"]
    (line,) = applied(q, "queues: {default: {kind: filo}}")
    assert line == "queue default: the default queue is fifo, and stays it: name another queue"


def test_a_file_for_another_namespace_is_refused(q: dls.Dispatch) -> None:
    with pytest.raises(
        ValueError, match=r"lakeshore\.yaml is for the namespace 'prod', and this connection is to "
    ):
        apply(q, parse("namespace: prod\nqueues: {a: }"))
    assert applied(q, "namespace: default\nqueues: {a: }") == ["queue a: added (fifo)"]


def test_once_the_plane_is_gone_nothing_more_is_tried() -> None:
    with dls.Dispatch(":memory:") as q:
        changes = apply(q, parse("queues: {a: , b: , c: }"), told=lambda change: q.close())
    assert [change.outcome for change in changes] == ["done", "failed", "failed"]
    assert "503 PlaneClosed" in str(changes[1].error)
    assert str(changes[2].error).startswith("not tried: 503 PlaneClosed")


@pytest.mark.anyio
async def test_with_coroutines(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        text = WHOLE.replace("  eval:", "  eval: {kind: fifo}\n  bad: {providerRef: nope}")
        first = await apply_async(q, parse(text))
        assert told(first)[:3] == [line.format("", "") for line in ADDED]
        again = await apply_async(q, parse(text))
        assert [change.outcome for change in again] == ["unchanged"] * 3 + ["failed"]
        with pytest.raises(ValueError, match="is for the namespace"):
            await apply_async(q, parse("namespace: prod"))


# the command


@pytest.fixture
def lakeshore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Done]:
    """Runs the command line in `tmp_path`, over a file in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LAKESHORE_URL", str(tmp_path / "plane.db"))

    def run(*words: str, text: str = "") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        status, printed = main(words), capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return run


def test_the_command(tmp_path: Path, lakeshore: Callable[..., Done]) -> None:
    (tmp_path / "l.yaml").write_text("storage: s3://b\nqueues:\n  a: {kind: filo}\n  b: {description: x}\n")
    dry = lakeshore("apply", "-f", "l.yaml", "--dry-run")
    assert (dry.status, dry.out) == (
        0,
        "would change storage none → s3://b\n"
        "queue a: would add (filo)\nqueue b: would add (fifo, description x)\n1 to change, 2 to add\n",
    )
    done = lakeshore("apply", "--file", "-", text="queues: {a: {kind: filo}, b: {description: x}}")
    assert done.out == "queue a: added (filo)\nqueue b: added (fifo, description x)\n2 added\n"
    told = "storage none → s3://b\n1 changed, 2 unchanged\n"
    assert lakeshore("apply", "-f", "l.yaml").out == told
    assert lakeshore("apply", "-f", "l.yaml").out == "3 unchanged\n"
    (tmp_path / "l.yaml").write_text("namespace: other\nqueues:\n  a: {kind: fifo}\n  b: {providerRef: p}\n")
    failed = lakeshore("apply", "-f", "l.yaml", "--json")
    assert failed.status == 1
    assert [(change["name"], change["outcome"]) for change in failed.json] == [
        ("a", "done"),
        ("b", "failed"),
    ]
    assert failed.err.splitlines()[0].startswith("queue b: 404 NotFound: no provider 'p'")
    assert failed.err.splitlines()[1] == "1 of 2 failed; the rest stands"
    wrong = lakeshore("apply", "-f", "l.yaml", "--namespace", "mine")
    assert wrong.status == 2
    assert "is for the namespace other, and --namespace says mine" in wrong.err
    (tmp_path / "l.yaml").write_text("queues:\n  a: {kind: lifo}\n  b: {x: 1}\n")
    wrong = lakeshore("apply", "-f", "l.yaml")
    assert wrong.status == 2
    assert ["l.yaml:2: queues.a.kind" in wrong.err, "l.yaml:3: queues.b.x" in wrong.err] == [True, True]
    assert "Traceback" not in wrong.err


def test_the_schema_from_the_command(lakeshore: Callable[..., Done]) -> None:
    published = Path(__file__).parents[1] / "docs" / "lakeshore.schema.json"
    assert lakeshore("config", "schema").out == published.read_text()


def test_the_command_at_a_terminal(tmp_path: Path) -> None:
    """A bar while it goes on, away again at its end."""
    (tmp_path / "l.yaml").write_text("queues: {a: , b: }")
    status, shown = at_terminal(
        *("apply", "-f", str(tmp_path / "l.yaml")),
        environment={"LAKESHORE_HOME": str(tmp_path), "LAKESHORE_URL": str(tmp_path / "plane.db")},
    )
    assert status == 0
    assert "100%" in shown
    assert "queue a: added (fifo)" in shown.rpartition("100%")[2]
    assert "2 added" in shown
