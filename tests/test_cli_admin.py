"""`lakeshore workers`, `providers`, `topics`, `tokens` and `status`."""

import json
import re

import pytest
from cli import NO_SUCH, Shell, q, serving, sh
from planes import PATIENCE

import lakeshore as dls

__all__ = ["q", "sh"]  # fixtures


def test_workers_list_and_show(sh: Shell, q: dls.Dispatch) -> None:
    assert sh.done("workers list --json").json == []
    q.queues.add("a")
    with serving(q, "a", name="w", slots=2, labels={"zone": "b"}):
        row = sh.done("workers list --json").json[0]
        fields = {"id", "name", "host", "pid", "queues", "slots", "busy", "state", "provider", "startedAt"}
        assert fields | {"lastSeenAt", "labels", "versions"} <= row.keys()
        assert (row["name"], row["queues"], row["slots"], row["state"]) == ("w", ["a"], 2, "ready")
        for named in ("w", row["id"]):
            assert sh.done(f"workers show {named} --json").json["id"] == row["id"]
        head, cells = sh.done("workers list").rows
        assert dict(zip(head, cells, strict=True))["BUSY"] == "0/2"
    assert sh.done("workers list --json").json == []
    assert [w["state"] for w in sh.done("workers list --ended --json").json] == ["ended"]


def test_workers_drain_and_remove(sh: Shell, q: dls.Dispatch) -> None:
    with serving(q, name="first") as first:
        assert sh.done("workers drain first").out == "worker first drains\n"
        assert first.result(PATIENCE) == 1
    with serving(q, name="second") as second:
        assert sh.done("workers remove second").out == "worker second removed\n"
        assert second.result(PATIENCE) == 1
    for verb in ("show", "drain", "remove"):
        for named in ("nobody", NO_SUCH):
            assert sh.refused(f"workers {verb} {named}").startswith("404 NotFound: ")


def test_providers(sh: Shell, q: dls.Dispatch) -> None:
    assert sh.done("providers add here --kind local").out == "provider here added\n"
    settings = "--set partition=gpu --set gres=gpu:1 --set nodes=2 --max 32"
    row = sh.done(f"providers add my-gpu-provider --kind slurm {settings} --json").json
    assert row["config"] == {"partition": "gpu", "gres": "gpu:1", "nodes": 2}
    assert (row["kind"], row["max"]) == ("slurm", 32)
    assert {"id", "name", "kind", "config", "state"} <= row.keys()
    for named in ("my-gpu-provider", row["id"]):
        assert sh.done(f"providers show {named} --json").json == row
    assert [row[0] for row in sh.done("providers list").rows] == ["NAME", "here", "my-gpu-provider"]
    patched = sh.done("providers patch my-gpu-provider --max 64 --set nodes=null --set x=1 --json").json
    assert (patched["max"], patched["config"]) == (64, {"partition": "gpu", "gres": "gpu:1", "x": 1})
    assert sh.refused("providers add here --kind local").startswith("409 Conflict: ")
    assert sh.refused("providers check here").startswith("501 NotImplemented: ")
    sh.done("queues add a --provider here")
    assert sh.refused("providers remove here").startswith("409 Conflict: ")
    sh.done("queues patch a --provider", "")
    assert sh.done("providers remove here").out == "provider here removed\n"
    for line in ("show here", "remove here", "patch here --max 1", "check here"):
        assert sh.refused(f"providers {line}").startswith("404 NotFound: ")


def test_topics(sh: Shell, q: dls.Dispatch) -> None:
    topic = q.topic("news")
    for value in ("a", 2, None):
        topic.post(value)
    assert sh.done("topics read news --no-wait").out == "a\n2\nNone\n"
    assert sh.done("topics read news --no-wait --since 3").out == ""
    assert sh.refused("topics read nothing").startswith("404 NotFound: no topic")
    topic.close()
    lines = [json.loads(line) for line in sh.done("topics read news --since 1 --json").out.splitlines()]
    assert [(line["seq"], line["value"]) for line in lines] == [(1, 2), (2, None)]
    head, cells = sh.done("topics list").rows
    assert dict(zip(head, cells, strict=True))["CLOSED"] == "yes"
    assert sh.done("topics list --json").json[0].keys() == {"name", "frames", "bytes", "closed"}
    assert sh.done("topics remove news").out == "topic news removed\n"
    assert sh.refused("topics remove news").startswith("404 NotFound: ")


def test_tokens(sh: Shell, q: dls.Dispatch) -> None:
    made = sh("tokens create --role submit --name ci")
    assert made.status == 0
    assert re.fullmatch(r"lks_\S+\n", made.out)
    assert "only time" in made.err
    row = sh.done("tokens create --namespace research --role admin --json").json
    assert (row["namespace"], row["role"]) == ("research", "admin")
    assert row["token"].startswith("lks_")
    listed = {token["id"]: token for token in sh.done("tokens list --json").json}
    assert {"id", "namespace", "role", "createdAt", "lastUsedAt"} <= listed[row["id"]].keys()
    assert "token" not in listed[row["id"]]
    assert {token["namespace"] for token in listed.values()} == {"default", "research"}
    assert made.out.strip() not in sh.done("tokens list").out
    assert [token["name"] for token in sh.done("tokens list --namespace default --json").json] == ["ci"]
    assert "revoked" in sh.done("tokens remove ci").out
    assert sh.done("tokens remove", row["id"], "--json").json["id"] == row["id"]
    assert sh.done("tokens list --json").json == []
    for named in ("ci", NO_SUCH):
        assert sh.refused(f"tokens remove {named}").startswith("404 NotFound: ")


@pytest.mark.parametrize("role", ["submit", "read", "work", "admin"])
def test_every_role(sh: Shell, role: str) -> None:
    assert sh.done(f"tokens create --role {role} --json").json["role"] == role


def test_status(sh: Shell, q: dls.Dispatch) -> None:
    dls.udf(_nothing).submit(_dispatch=q)
    found = sh.done("status --json").json
    assert (found["queued"], found["running"], found["workers"]) == (1, 0, 0)
    shown = dict(line.split(maxsplit=1) for line in sh.done("status").out.splitlines())
    assert (shown["queued"], shown["plane"]) == ("1", found["plane"])


def _nothing() -> None:
    pass
