"""lakeshore.yaml: what it may hold, and the sentence, path and line for what it may not."""

from __future__ import annotations

import io
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from lakeshore.sdk.manifest import Manifest, ManifestError, load, parse, schema_text

WHOLE = """\
namespace: default                       # lakeshore.yaml, whole
storage: s3://bucket/prefix
providers:
  my-gpu-provider: {kind: slurm, partition: gpu, gres: "gpu:1", max: 32}
queues:
  training-h100:
    kind: priority
    description: h100 prod
    state: active
    providerRef: my-gpu-provider          # null: a plain queue
    admission: {max_depth: 1000, on_full: reject, rate_limit: 100/s, deadline_cutoff_s: 3600,
                max_running: null, max_bytes: null}
    retention: 604800                     # temperature and seed for boltzmann; storage to override
    elasticity: {kind: pool_with_threshold, min: 2, max: 16, threshold: 0.7, cooldown_s: 60}
    daemonTemplate: {instance_type: p4d.24xlarge, image_id: null, runner: process, slots: 1,
                     idle_timeout_s: 120, launch_timeout_s: 600, setup: [], labels: {}}
"""
QUEUE = "queues:\n  a:\n    "


def wrong(text: str) -> str:
    """What is said of a file."""
    with pytest.raises(ManifestError) as caught:
        parse(text, "f.yaml")
    return str(caught.value)


def test_the_whole_format() -> None:
    manifest = parse(WHOLE)
    assert (manifest.namespace, manifest.storage) == ("default", "s3://bucket/prefix")
    provider = manifest.providers["my-gpu-provider"]
    assert (provider.kind, provider.max, provider.config) == (
        "slurm",
        32,
        {"partition": "gpu", "gres": "gpu:1"},
    )
    queue: Any = manifest.queues["training-h100"]
    assert (queue.kind, queue.state, queue.provider_ref, queue.retention) == (
        "priority",
        "active",
        "my-gpu-provider",
        604800,
    )
    assert (queue.admission.max_depth, queue.admission.rate_limit, queue.admission.max_bytes) == (
        1000,
        "100/s",
        None,
    )
    assert (queue.elasticity.kind, queue.elasticity.cooldown_s) == ("pool_with_threshold", 60)
    assert (queue.daemon_template["slots"], queue.daemon_template["labels"]) == (1, {})
    assert (queue.temperature, queue.seed, queue.storage) == (UNSET, UNSET, UNSET)
    assert manifest.notes == ()


@pytest.mark.parametrize("text", ["queues:", "queues: {}\nproviders:", "namespace: x", "{}", "queues: {a: }"])
def test_what_is_left_empty(text: str) -> None:
    manifest = parse(text)
    assert manifest.providers == {}
    assert list(manifest.queues) == (["a"] if "a:" in text else [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml: is empty: write queues: or providers: in it"),
        ("# only this", "f.yaml: is empty"),
        ("- a", "f.yaml:1: expected `queues:` or `providers:` at its beginning, found a list"),
        (
            "\nqueus: {}",
            "f.yaml:2: queus: no such key (did you mean 'queues'?): it may have namespace, storage",
        ),
        ("queues: 3", "f.yaml:1: queues: expected a mapping (`name: value`), found 3"),
        ("queues:\n  a: 3", "f.yaml:2: queues.a: expected a mapping (`name: value`), found 3"),
        ("queues:\n  A_b: {}", "f.yaml:2: queues.A_b: 'A_b' is not a queue name: use lower-case letters"),
        (
            QUEUE + "kind: lifo",
            "f.yaml:3: queues.a.kind: 'lifo' is not accepted: write one of fifo, priority, ",
        ),
        (
            QUEUE + "kind: [x]",
            "f.yaml:3: queues.a.kind: expected one of fifo, priority, boltzmann, filo, found a l",
        ),
        (
            QUEUE + "max_depth: 3",
            "queues.a.max_depth: no such key here (it belongs in admission): it may have",
        ),
        (QUEUE + "provider_ref: x", "queues.a.provider_ref: no such key (did you mean 'providerRef'?)"),
        (QUEUE + "providerRef: 7", "queues.a.providerRef: expected text in quotes or null, found 7"),
        (QUEUE + "description: true", "queues.a.description: expected text in quotes, found true"),
        (
            QUEUE + "state: stopped",
            "queues.a.state: 'stopped' is not accepted: write one of active, paused, ",
        ),
        (
            QUEUE + "retention: -1",
            "f.yaml:3: queues.a.retention: -1 is out of range: write a number, at least 0",
        ),
        (
            QUEUE + "temperature: .inf",
            "queues.a.temperature: temperature=inf: choose a number from 0 to 1e+12",
        ),
        (QUEUE + "admission: null", "queues.a.admission: expected a mapping (`name: value`), found null"),
        (
            QUEUE + "admission:\n      maxDepth: 3",
            "f.yaml:4: queues.a.admission.maxDepth: no such key (did you mean ",
        ),
        (
            QUEUE + "admission:\n      max_depth: '3'",
            "f.yaml:4: queues.a.admission.max_depth: expected a whole number",
        ),
        (
            QUEUE + "admission: {max_depth: 0}",
            "queues.a.admission.max_depth: 0 is out of range: write a whole nu",
        ),
        (
            QUEUE + "admission:\n      on_full: no",
            "queues.a.admission.on_full: 'no' is not accepted: write one of reject",
        ),
        (
            QUEUE + "admission: {rate_limit: 5/d}",
            "queues.a.admission.rate_limit: rate_limit='5/d': give a number per",
        ),
        (
            QUEUE + "admission: {max_bytes: 99999999999999999999}",
            "max_bytes: choose a number below 2**63, or null for",
        ),
        (QUEUE + "seed: 99999999999999999999", "queues.a.seed: choose a number from -2**63 to 2**63 - 1"),
        (
            QUEUE + "elasticity: fixed",
            "queues.a.elasticity: expected a mapping (`name: value`) or null, found 'fixed'",
        ),
        (
            QUEUE + "elasticity: {min: 2}",
            "queues.a.elasticity: it needs kind: one of fixed, fully_elastic, pool_with",
        ),
        (
            QUEUE + "elasticity: {kind: fixed, min: 5, max: 2}",
            "queues.a.elasticity.min: min=5 is above max=2",
        ),
        (
            QUEUE + "elasticity: {kind: fixed, threshold: 2}",
            "threshold: 2 is out of range: write a number, at most 1",
        ),
        (
            QUEUE + "elasticity: {kind: fixed, cooldown: 3}",
            "elasticity.cooldown: no such key (did you mean 'cooldown_s'",
        ),
        (
            QUEUE + "daemonTemplate: {instanceType: x}",
            "queues.a.daemonTemplate.instanceType: no such key: write instan",
        ),
        (
            QUEUE + "daemonTemplate: {setup: [a, 1]}",
            "queues.a.daemonTemplate.setup[1]: expected text in quotes, found 1",
        ),
        (
            QUEUE + "daemonTemplate: {labels: {a: 1}}",
            "daemonTemplate.labels: expected text for each name in it: put nu",
        ),
        (
            QUEUE + "daemonTemplate: {x: 99999999999999999999}",
            "queues.a.daemonTemplate.x: a store can't keep it: use text",
        ),
        (QUEUE + "storage: 3", "queues.a.storage: expected text in quotes or null, found 3"),
        (
            "storage: http://x",
            "storage: http:// is no storage that is known: write a folder's path, s3://bucket/prefix",
        ),
        ("storage: []", "storage: expected a folder or a URL such as s3://bucket/prefix, found a list"),
        (
            "providers:\n  p: {max: 3}",
            "f.yaml:2: providers.p: it needs kind: one of local, ssh, slurm, kubernetes",
        ),
        (
            "providers:\n  p: {kind: local, max: -3}",
            "f.yaml:2: providers.p.max: -3 is out of range: write a whole",
        ),
        (
            "providers:\n  p: {kind: locl}",
            "f.yaml:2: providers.p.kind: 'locl' is not accepted: write one of local, ssh",
        ),
        ("providers:\n  p:", "f.yaml:2: providers.p: expected a mapping with its kind, found null"),
        ("providers:\n  P: {kind: local}", "f.yaml:2: providers.P: 'P' is not a provider name"),
        ("namespace: 3", "f.yaml:1: namespace: expected text in quotes, found 3"),
        ("namespace: ''", "f.yaml:1: namespace: '' is not a namespace: choose 1 to 200 characters"),
    ],
)
def test_what_is_wrong_says_where_and_what_to_write(text: str, said: str) -> None:
    assert said in wrong(text)
    assert "\n" not in wrong(text)


@pytest.mark.parametrize("kind", ["fully-elastic", "pool-with-threshold", "max-count"])
def test_the_spelling_of_the_command_line_is_refused(kind: str) -> None:
    text = WHOLE.replace("pool_with_threshold", kind)
    assert wrong(text) == (
        f"f.yaml:14: queues.training-h100.elasticity.kind: '{kind}' is not accepted in a file: write "
        f"{kind.replace('-', '_')} (of fixed, fully_elastic, pool_with_threshold, max_count)"
    )


def test_everything_wrong_is_told_at_once_in_the_order_of_the_file() -> None:
    text = "queues:\n  b: {kind: x}\n  a: {kinds: fifo, state: 1}\nnamespaces: y\n"
    lines = wrong(text).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["f.yaml:2", "f.yaml:3", "f.yaml:3", "f.yaml:4"]


MANY = """
queues:
  a:
    kind: bolzmann
    max_depth: 3
    admission: {max_depth: 0, on_full: shout, rate_limit: abc}
    elasticity: {kind: pool-with-threshold, min: -1}
    daemonTemplate: {slots: 0, setup: [1, x, 2], labels: {a: 1}}
    storage: nope://x
  b:
    admission: {rate_limit: abc, deadline_cutoff_s: -4}
  c: {elasticity: {min: 3, cooldown_s: -1}}
providers:
  p: {kind: nah, max: -1}
  q: {max: x}
"""


def test_everything_wrong_with_one_queue_or_provider_is_told_at_once() -> None:
    """Each with its own line, and nothing that only follows from another."""
    with pytest.raises(ManifestError) as caught:
        parse(MANY, "f.yaml")
    assert [(problem.line, problem.path) for problem in caught.value.problems] == [
        (4, "queues.a.kind"),
        (5, "queues.a.max_depth"),
        (6, "queues.a.admission.max_depth"),
        (6, "queues.a.admission.on_full"),
        (7, "queues.a.elasticity.kind"),
        (7, "queues.a.elasticity.min"),
        (8, "queues.a.daemonTemplate.slots"),
        (8, "queues.a.daemonTemplate.setup[0]"),
        (8, "queues.a.daemonTemplate.setup[2]"),
        (8, "queues.a.daemonTemplate.labels"),
        (9, "queues.a.storage"),
        (11, "queues.b.admission.deadline_cutoff_s"),
        (11, "queues.b.admission.rate_limit"),
        (12, "queues.c.elasticity.cooldown_s"),
        (12, "queues.c.elasticity"),
        (14, "providers.p.kind"),
        (14, "providers.p.max"),
        (15, "providers.q.max"),
        (15, "providers.q"),
    ]


def test_a_problem_has_its_parts() -> None:
    with pytest.raises(ManifestError) as caught:
        parse(QUEUE + "kind: lifo", "f.yaml")
    (problem,) = caught.value.problems
    assert (caught.value.file, problem.line, problem.path) == ("f.yaml", 3, "queues.a.kind")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("queues:\n\ta: {}", "f.yaml:2: a tab: YAML is indented with spaces"),
        ("queues: {a: {}, a: {}}", "f.yaml:1: queues.a: it is here twice, first in line 1"),
        ("queues: {}\n---\nqueues: {}", "f.yaml:3: a second document begins here: put everything in one"),
        ("queues: {a: ", "f.yaml:1: not valid YAML: while parsing a flow node"),
        ("queues: *x", "f.yaml:1: not valid YAML: found undefined alias 'x'"),
        ("queues: &x [*x]", "f.yaml:1: queues[0]: an alias to what it is part of"),
        ("queues: &x {<<: *x}", "f.yaml:1: queues: an alias to what it is part of"),
        ("queues: {<<: 3}", "f.yaml:1: queues: `<<` takes a mapping, or a list of them"),
        (
            "queues: !!python/object:os.system x",
            "queues: the tag !!python/object:os.system: plain values have none",
        ),
        ("queues: !set {a: }", "f.yaml:1: queues: the tag !set: plain mappings and lists have none"),
        ("queues: !!int x", "f.yaml:1: queues: 'x' is no int"),
        ("namespace: " + "9" * 5000, "f.yaml:1: namespace: a number of more digits than anything here has"),
        ("[a]: 3", "f.yaml:1: a key that is no plain text"),
        ("namespace: x\nstorage: \x07", "f.yaml:2: a character that YAML can't hold (U+0007): remove it"),
        ("[" * 1000, "f.yaml: it is nested too deeply"),
    ],
)
def test_what_is_no_yaml_of_ours(text: str, said: str) -> None:
    assert said in wrong(text)


def test_aliases_that_repeat_each_other_are_cut_short() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    assert "too much: a file may have 100,000 values" in wrong("\n".join(rows))


def test_scalars_are_those_of_yaml_1_2() -> None:
    text = (
        "providers: {p: {kind: slurm, time: 10:30:00, a: no, b: 2024-01-01, c: 1e3, d: 0x10, e: ~, f: 0o17}}"
    )
    config = parse(text).providers["p"].config
    assert config == {
        "time": "10:30:00",
        "a": "no",
        "b": "2024-01-01",
        "c": 1000.0,
        "d": 16,
        "e": None,
        "f": 15,
    }


def test_anchors_and_merges() -> None:
    text = """\
queues:
  a: &base
    kind: priority
    admission: {max_depth: 3, on_full: block}
  b:
    <<: *base
    kind: filo
  c:
    <<: [{description: mine}, *base]
"""
    queues: Any = parse(text).queues
    assert (queues["b"].kind, queues["b"].admission.max_depth) == ("filo", 3)
    assert (queues["c"].kind, queues["c"].description) == ("priority", "mine")
    said = wrong(text.replace("max_depth: 3", "max_depth: x"))
    assert [line.partition(": expected")[0] for line in said.splitlines()] == [
        f"f.yaml:4: queues.{name}.admission.max_depth" for name in "abc"
    ]


def test_a_template_keeps_what_only_its_provider_knows() -> None:
    manifest = parse(QUEUE + "daemonTemplate: {spot: true, slot: 2}")
    assert manifest.queues["a"].daemon_template == {"spot": True, "slot": 2}
    assert manifest.notes == ("queues.a.daemonTemplate.slot is left to the provider (did you mean 'slots'?)",)


def test_a_file_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lakeshore.yaml"
    path.write_text("\ufeffqueues: {a: }")
    assert list(load(path).queues) == ["a"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"queues: {b: }")))
    assert list(load("-").queues) == ["b"]
    path.write_bytes(b"queues:\n  \xff: x")
    for where, said in [
        (path, f"{path}:2: is not UTF-8 text"),
        (tmp_path, f"{tmp_path}: can't be read: Is a directory"),
        (tmp_path / "no", f"{tmp_path / 'no'}: can't be read: No such file or directory"),
        (Path("/dev/zero"), "/dev/zero: is longer than 4 MiB"),
    ]:
        with pytest.raises(ManifestError) as caught:
            load(where)
        assert str(caught.value).startswith(said)


def test_whatever_happens_to_a_file_there_is_a_sentence_for_it() -> None:
    chance = random.Random(7)
    signs = [*"{}[]:,-#&*!|>'\"%@\t\n 0x~", "<<: ", "null", "\x00", "\ud800"]
    outcomes = set[str]()
    for _ in range(150):
        text = list(WHOLE)
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(text))
            text[place : place + chance.randint(0, 2)] = chance.choice(signs)
        try:
            outcomes.add(type(parse("".join(text))).__name__)
        except ManifestError as error:
            outcomes.add("a sentence" if str(error).strip() else "nothing")
            outcomes.add(type(error).__name__)
    assert outcomes == {Manifest.__name__, ManifestError.__name__, "a sentence"}


def test_the_example_of_the_docs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    manifest, whole = parse(example), parse(WHOLE)
    assert manifest.queues["training-h100"] == whole.queues["training-h100"]
    assert (manifest.providers, manifest.notes) == (whole.providers, whole.notes)
    assert list(manifest.queues) == ["training-h100", "draws", "eval"]


def test_the_published_schema_is_current() -> None:
    published = Path(__file__).parents[1] / "docs" / "lakeshore.schema.json"
    assert published.read_text() == schema_text(), "run: lakeshore config schema > docs/lakeshore.schema.json"


def test_the_schema_says_what_the_reader_does() -> None:
    schema = json.loads(schema_text())
    parts = schema["$defs"]
    assert set(schema["properties"]) == {"namespace", "storage", "providers", "queues"}
    assert schema["additionalProperties"] is False
    assert set(parts["Elasticity"]["properties"]["kind"]["enum"]) == {
        "fixed",
        "fully_elastic",
        "pool_with_threshold",
        "max_count",
    }
    assert parts["Queue"]["additionalProperties"] is False
    assert "additionalProperties" not in parts["Provider"]  # free settings
    assert "config" not in parts["Provider"]["properties"]
    refs = {found["$ref"] for found in _objects(schema) if "$ref" in found}
    assert refs == {f"#/$defs/{name}" for name in parts}  # none is missing, none unused


def _objects(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return [found for item in value for found in _objects(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(found for item in value.values() for found in _objects(item))]


def test_a_relative_storage_is_in_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lakeshore.yaml"
    file.write_text("storage: all\nqueues:\n  a: {storage: own}\n  b: {storage: file:///x}\n")
    manifest = load(file)
    assert manifest.storage == str(tmp_path / "all")
    assert [manifest.queues[name].storage for name in "ab"] == [str(tmp_path / "own"), "/x"]
