"""`lakeshore queues`, `pause` and `resume`."""

from typing import Any

import pytest
from cli import Shell, q, serving, sh

import lakeshore as dls

__all__ = ["q", "sh"]  # fixtures
HEADS = ["NAME", "KIND", "STATE", "MEMBERS", "PROVIDER", "ELASTICITY", "DESCRIPTION"]


def test_add_takes_a_name_and_defaults_to_fifo(sh: Shell, q: dls.Dispatch) -> None:
    assert sh.done("queues add training-h100").out == "queue training-h100 added\n"
    queue = q.queues.show("training-h100")
    assert (queue.kind, queue.description, queue.provider_ref, queue.elasticity) == ("fifo", "", None, None)
    assert queue.admission["on_full"] == "reject"
    assert queue.daemon_template is None


@pytest.mark.parametrize("kind", ["fifo", "priority", "boltzmann", "filo"])
def test_add_every_kind(sh: Shell, kind: str) -> None:
    row = sh.done("queues add a --kind", kind, "--json").json
    assert (row["name"], row["kind"], row["state"]) == ("a", kind, "active")


def test_add_with_everything(sh: Shell, q: dls.Dispatch) -> None:
    q.providers.add("my-gpu-provider", kind="local")
    row = sh.done(
        "queues add big --kind priority --provider my-gpu-provider --elasticity pool-with-threshold --min 2 "
        "--max 16 --threshold 0.7 --instance-type p4d.24xlarge --image-id ami-1 --runner process "
        "--max-depth 1000 --on-full block --description 'two words' --json"
    ).json
    assert row["elasticity"] == {"kind": "pool_with_threshold", "min": 2, "max": 16, "threshold": 0.7}
    template = {"instance_type": "p4d.24xlarge", "image_id": "ami-1", "runner": "process"}
    assert row["daemonTemplate"] == template
    assert (row["admission"]["max_depth"], row["admission"]["on_full"]) == (1000, "block")
    assert (row["providerRef"], row["description"]) == ("my-gpu-provider", "two words")
    shown = sh.done("queues ls").out.splitlines()[1]
    wide = shown.split("  ")
    assert [cell.strip() for cell in wide if cell] == [
        *("big", "priority", "active", "0", "my-gpu-provider"),
        "pool-with-threshold min=2 max=16 threshold=0.7",
        "two words",
    ]


@pytest.mark.parametrize(
    ("kind", "bounds"),
    [
        ("fixed", "--min 1"),
        ("fully-elastic", "--max 3"),
        ("pool-with-threshold", ""),
        ("max-count", "--max 2"),
    ],
)
def test_elasticities_have_hyphens_here_and_underscores_in_rows(sh: Shell, kind: str, bounds: str) -> None:
    found = sh("queues add a --elasticity", kind, *bounds.split(), "--json")
    assert found.status == 0
    assert found.json["elasticity"]["kind"] == kind.replace("-", "_")
    assert "provider" in found.err  # the remark that nothing is launched without one


@pytest.mark.parametrize("kind", ["fully_elastic", "pool_with_threshold", "max_count"])
def test_underscores_are_wrong_and_told_so(sh: Shell, kind: str) -> None:
    line = sh.wrong("queues add a --elasticity", kind)
    assert "lakeshore.yaml" in line
    assert kind.replace("_", "-") in line


def test_bounds_without_an_elasticity(sh: Shell) -> None:
    for flag in ("--min 1", "--max 1", "--threshold 0.5"):
        assert "--elasticity" in sh.wrong("queues add a", *flag.split())
    sh.done("queues add a")
    for flag in ("--min 1", "--max 1", "--threshold 0.5"):
        assert sh.refused("queues patch a", *flag.split()).startswith("409 Conflict: ")


def test_add_refuses_a_name_that_exists_and_an_unknown_provider(sh: Shell) -> None:
    sh.done("queues add a")
    assert sh.refused("queues add a").startswith("409 Conflict: ")
    assert sh.refused("queues add default").startswith("409 Conflict: ")
    assert sh.refused("queues add b --provider nobody").startswith("404 NotFound: ")


def test_ls_hides_archived_queues_unless_asked(sh: Shell) -> None:
    for name in ("a", "b", "c", "d"):
        sh.done("queues add", name)
    sh.done("queues archive b")
    sh.done("queues drain c")
    sh.done("pause d")
    head, *rows = sh.done("queues ls").rows
    assert head == HEADS
    assert [row[0] for row in rows] == ["a", "c", "d", "default"]
    for state, name in {"archived": "b", "draining": "c", "paused": "d"}.items():
        assert [row["name"] for row in sh.done("queues ls --state", state, "--json").json] == [name]
    assert [row[0] for row in sh.done("queues ls --state active").rows[1:]] == ["a", "default"]


def test_members_counts_workers_that_name_the_queue(sh: Shell, q: dls.Dispatch) -> None:
    for name in ("a", "b"):
        sh.done("queues add", name)
    with serving(q, "a", name="w"):
        row = sh.done("queues show a --json").json
        assert [(row["members"], [worker["name"] for worker in row["workers"]])] == [(1, ["w"])]
        members = {row["name"]: row["members"] for row in sh.done("queues ls --json").json}
        assert members == {"a": 1, "b": 0, "default": 0}
        assert " w " in sh.done("queues show a").out


def test_show_by_name_and_by_id(sh: Shell) -> None:
    row = sh.done("queues add a --json").json
    assert sh.done("queues ls --json").json[0] == row
    assert "workers" not in row
    assert sh.done("queues show", row["id"], "--json").json == {**row, "workers": []}
    shown = dict(line.split(maxsplit=1) for line in sh.done("queues show a").out.splitlines())
    assert (shown["name"], shown["providerRef"], shown["admission"]) == ("a", "-", "on_full=reject")


def test_patch(sh: Shell, q: dls.Dispatch) -> None:
    q.providers.add("here", kind="local")
    added = "queues add a --elasticity fully-elastic --min 1 --max 4 --provider here"
    sh.done(added)
    sh.done("queues patch a --description", "h100 prod")
    row = sh.done("queues patch a --max 32 --threshold 0.6 --min 0 --json").json
    assert row["elasticity"] == {"kind": "fully_elastic", "min": 0, "max": 32, "threshold": 0.6}
    row = sh.done("queues patch a --max-depth 2000 --on-full block --json").json
    assert (row["admission"]["max_depth"], row["admission"]["on_full"]) == (2000, "block")
    assert (row["description"], row["providerRef"]) == ("h100 prod", "here")
    assert sh.done("queues patch a --provider", "", "--json").json["providerRef"] is None
    assert sh.done("queues patch a --description", "", "--json").json["description"] == ""
    assert sh.refused("queues patch a --provider nobody").startswith("404 NotFound: ")
    assert "nothing to change" in sh.wrong("queues patch a")


@pytest.mark.parametrize("flag", ["--kind", "--elasticity", "--name", "--runner"])
def test_patch_has_no_other_flags(sh: Shell, flag: str) -> None:
    sh.done("queues add a")
    assert flag in sh.wrong("queues patch a", flag, "fifo")


def test_moves_between_states(sh: Shell) -> None:
    sh.done("queues add a")
    for words, state in [
        ("pause", "paused"),
        ("resume", "active"),
        ("queues drain", "draining"),
        ("queues unarchive", "active"),
        ("queues archive", "archived"),
        ("queues unarchive", "active"),
    ]:
        assert sh.done(words, "a").out == f"queue a is {state}\n"
        assert sh.done(words, "a", "--json").json["state"] == state  # again is no error
    sh.done("queues archive a")
    for words in ("pause", "resume", "queues drain"):
        assert sh.refused(words, "a").startswith("409 Conflict: ")


def test_rm(sh: Shell, q: dls.Dispatch) -> None:
    row = sh.done("queues add a --json").json
    assert sh.done("queues rm", row["id"]).out == "queue a removed\n"
    assert sh.refused("queues rm a").startswith("404 NotFound: ")
    assert sh.refused("queues rm default").startswith("409 Conflict: ")


def test_rm_of_a_queue_with_workers_needs_force_and_names_them(sh: Shell, q: dls.Dispatch) -> None:
    for name in ("a", "b"):
        sh.done("queues add", name)
    with serving(q, "a", name="only-a"), serving(q, "b", "a", name="both"):
        assert sh.refused("queues rm a").startswith("409 Conflict: ")
        first, second = sh.done("queues rm a --force").out.splitlines()
        assert first == "queue a removed"
        assert "only-a" in second
        assert "default queue" in second
        assert [(w.name, w.queues) for w in q.workers.list()] == [("only-a", ()), ("both", ("b",))]
        removed = sh.done("queues rm b --force --json").json
        assert (removed["name"], len(removed["nowServingDefault"])) == ("b", 1)


@pytest.mark.parametrize("words", ["show", "drain", "archive", "unarchive", "events", "stats", "rm"])
def test_a_queue_that_does_not_exist(sh: Shell, words: str) -> None:
    assert sh.refused("queues", words, "nope").startswith("404 NotFound: ")


def test_events_are_the_newest_and_capped(sh: Shell, q: dls.Dispatch) -> None:
    sh.done("queues add a")
    for number in range(60):
        q.queues.patch("a", description=str(number))
    sh.done("queues drain a")
    found = sh.done("queues events a --json").json
    assert len(found) == 50
    assert [event["kind"] for event in found[:2]] == ["state_changed", "config_changed"]
    assert {"id", "queue", "at", "kind", "count", "signals", "want", "did", "why"} <= found[0].keys()
    assert {"memoryBefore", "memoryAfter"} <= found[0].keys()
    assert len(sh.done("queues events a --limit 3 --json").json) == 3
    assert sh.done("queues events a --limit 1").rows[1][1] == "state_changed"
    capped = sh("queues events a --verbose --limit 1000 --json")
    assert (capped.status, capped.err) == (0, "--limit 1000 is capped at 200\n")
    assert len(capped.json) == len(sh.done("queues events a --verbose --limit", 200, "--json").json)
    sh.wrong("queues events a --limit 0")


def test_stats(sh: Shell, q: dls.Dispatch) -> None:
    sh.done("queues add a")
    dls.udf(_nothing, queue="a").submit(_dispatch=q)
    found = sh.done("queues stats a --json").json
    assert (found["daemons"], found["utilization"], found["pending"], found["running"]) == (0, 0.0, 1, 0)
    assert {"oldestWaitS", "blocked", "actions"} <= found.keys()
    shown: dict[str, Any] = dict(line.split() for line in sh.done("queues stats a").out.splitlines())
    assert (shown["pending"], shown["actions"]) == ("1", "-")


def _nothing() -> None:
    pass


@pytest.mark.parametrize(
    ("verb", "meant"), [("list", "ls"), ("remove", "rm"), ("delete", "rm"), ("lst", "ls")]
)
def test_verbs_of_other_groups_are_guessed(sh: Shell, verb: str, meant: str) -> None:
    assert f'Did you mean "{meant}"?' in sh.wrong("queues", verb)


@pytest.mark.parametrize("name", ["Eval", "-a", "a_b", "a b", "", "ä", "a\n", "."])
def test_names(sh: Shell, name: str) -> None:
    for words in ("queues add", "queues show", "queues rm", "pause"):
        sh.wrong(words, "--", name)
