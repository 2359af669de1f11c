"""Every block of the page "CLI examples: queues and jobs", through a real shell, in the page's order.

Each block has a fresh namespace of one head, and in it the queues, the provider, the worker and the jobs
that it presupposes.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli import LAKESHORE, Done, environment
from planes import PATIENCE, working

import lakeshore as dls

PROVIDER = "my-gpu-provider"  # belongs to the plane, not to a namespace


class Gate:
    """Where a body says that it began, and waits for leave to go on."""

    began, go = threading.Event(), threading.Event()


@dls.udf
def evaluate(x: int) -> int:
    return x + 1


@dls.udf
def held() -> None:
    Gate.began.set()
    Gate.go.wait(PATIENCE)


@dataclass
class Head:
    """A head that commands reach at `url`, with the token that is in `home`."""

    url: str
    home: Path

    def plane(self, namespace: str) -> dls.Dispatch:
        """A namespace of it."""
        return dls.Dispatch(self.url, namespace=namespace)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """One head for the whole page, and its provider."""
    folder = tmp_path_factory.mktemp("page")
    command = [*LAKESHORE, "serve", "--store", str(folder / "plane.db"), "--listen", "tcp://127.0.0.1:0"]
    env = environment(folder / "home")
    with (
        subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as serving,
        pytest.MonkeyPatch.context() as patch,
    ):
        try:
            assert serving.stderr is not None
            said = serving.stderr.readline()
            url = re.search(r"tcp://127\.0\.0\.1:\d+", said)
            assert url is not None, said + serving.stderr.read()
            patch.setenv("LAKESHORE_HOME", str(folder / "home"))
            found = Head(url[0], folder / "home")
            with found.plane("default") as q:
                q.providers.add(PROVIDER, kind="local")
            yield found
        finally:
            serving.terminate()
            serving.communicate(timeout=PATIENCE)
    assert serving.returncode == 0


Variables = dict[str, str]


@contextmanager
def nothing(q: dls.Dispatch) -> Generator[Variables]:
    """A fresh namespace."""
    yield {}


def unasked(q: dls.Dispatch, done: Done) -> None:
    """All is said by the exit status."""


@dataclass
class Block:
    """One block of the page: what it presupposes (and the variables it names) and what comes of it."""

    script: str
    before: Callable[[dls.Dispatch], AbstractContextManager[Variables]] = nothing
    after: Callable[[dls.Dispatch, Done], None] = unasked


@contextmanager
def queues(q: dls.Dispatch) -> Generator[Variables]:
    """The two queues of the page."""
    elastic = {"elasticity": "pool_with_threshold", "min": 2, "max": 16, "threshold": 0.7}
    q.queues.add("training-h100", kind="priority", provider=PROVIDER, max_depth=1000, **elastic)  # type: ignore[arg-type]
    q.queues.add("eval", kind="priority", description="evaluation, urgent first")
    yield {}


@contextmanager
def changed(q: dls.Dispatch) -> Generator[Variables]:
    """Queues, of which one was changed."""
    with queues(q):
        q.queues.patch("training-h100", description="h100 prod")
        yield {}


@contextmanager
def bound(q: dls.Dispatch) -> Generator[Variables]:
    """Queues, and a worker that serves eval alone."""
    with queues(q), working(q, queues=["eval"], name="evaluator"):
        q.result(dls.udf(evaluate.fn, queue="eval").submit(1, _dispatch=q), timeout=PATIENCE)
        yield {}


@contextmanager
def jobs(q: dls.Dispatch) -> Generator[Variables]:
    """Queues and 26 jobs: 2 that ended, 1 that runs, all three on one worker, and 23 queued ones."""
    Gate.began, Gate.go = threading.Event(), threading.Event()
    with queues(q), working(q, queues=["default"], name="trainer"):
        for x in range(2):
            q.result(evaluate.submit(x, _dispatch=q), timeout=PATIENCE)
        held.submit(_dispatch=q)
        assert Gate.began.wait(PATIENCE)
        for x in range(20):
            evaluate.submit(x, _dispatch=q)
        for x in range(3):
            dls.udf(evaluate.fn, queue="training-h100").submit(x, _dispatch=q)
        try:
            yield {"D": q.workers.list()[0].id}
        finally:
            Gate.go.set()


def two_are_added(q: dls.Dispatch, done: Done) -> None:
    found = {queue.name: (queue.kind, queue.description) for queue in q.queues.ls()}
    assert found["training-h100"] == ("fifo", "")
    assert found["eval"] == ("priority", "evaluation, urgent first")


def an_elastic_one_is_added(q: dls.Dispatch, done: Done) -> None:
    queue = q.queues.show("training-h100")
    assert (queue.kind, queue.provider_ref) == ("priority", PROVIDER)
    assert queue.elasticity == {"kind": "pool_with_threshold", "min": 2, "max": 16, "threshold": 0.7}
    assert queue.daemon_template == {"instance_type": "p4d.24xlarge"}
    assert (queue.admission["max_depth"], queue.admission["on_full"]) == (1000, "reject")


def they_are_listed(q: dls.Dispatch, done: Done) -> None:
    lines = done.out.splitlines()
    names = ["default", "eval", "training-h100"]
    assert lines[0].split() == ["NAME", "KIND", "STATE", "MEMBERS", "PROVIDER", "ELASTICITY", "DESCRIPTION"]
    assert [sorted(line.split()[0] for line in part) for part in (lines[1:4], lines[5:8])] == [names] * 2
    assert sorted(lines[8:]) == names


def it_is_shown(q: dls.Dispatch, done: Done) -> None:
    text, _, document = done.out.strip().rpartition("\n")
    assert re.search(r"^name +training-h100$", text, re.MULTILINE)
    assert (json.loads(document)["name"], json.loads(document)["workers"]) == ("training-h100", [])


def it_is_patched(q: dls.Dispatch, done: Done) -> None:
    queue = q.queues.show("training-h100")
    assert queue.elasticity == {"kind": "pool_with_threshold", "min": 2, "max": 32, "threshold": 0.6}
    assert (queue.description, queue.provider_ref) == ("h100 prod", None)
    assert (queue.admission["max_depth"], queue.admission["on_full"]) == (2000, "block")


def states_are_moved(q: dls.Dispatch, done: Done) -> None:
    assert [q.queues.show(name).state for name in ("training-h100", "eval")] == ["draining", "active"]


def it_is_removed(q: dls.Dispatch, done: Done) -> None:
    with pytest.raises(dls.NotFound):
        q.queues.show("eval")


def its_worker_is_unbound(q: dls.Dispatch, done: Done) -> None:
    it_is_removed(q, done)
    worker = q.workers.list()[0]
    assert (worker.name, worker.queues) == ("evaluator", ())
    assert "evaluator" in done.out.splitlines()[1]


def decisions_are_listed(q: dls.Dispatch, done: Done) -> None:
    first, second, document = done.out.split("AT ")[1], done.out.split("AT ")[2], done.out.splitlines()[-1]
    assert "config_changed" in first
    assert "config_changed" in second
    assert json.loads(document)[0]["kind"] == "config_changed"


def signals_are_shown(q: dls.Dispatch, done: Done) -> None:
    document = json.loads(done.out.splitlines()[-1])
    assert (document["daemons"], document["utilization"], document["pending"]) == (0, 0.0, 3)
    assert re.search(r"^pending +3$", done.out, re.MULTILINE)


def all_are_listed(q: dls.Dispatch, done: Done) -> None:
    ids = [job.id for job in q.jobs.list(limit=200)]
    heads = [number for number, line in enumerate(done.out.splitlines()) if line.startswith("ID ")]
    shown = [line.split()[0] for line in done.out.splitlines()]
    assert heads == [0, 27]
    assert (shown[1:27], shown[28:]) == (ids, ids[20:26])


def some_are_listed(q: dls.Dispatch, done: Done) -> None:
    text, _, objects = done.out.partition("{")
    states = [line.split()[1] for line in text.splitlines()]
    assert states == ["STATE", *["queued"] * 23, "running", "STATE", "running", *["succeeded"] * 2]
    last = json.loads(f"[{('{' + objects).replace('}', '},').strip().rstrip(',')}]")
    assert [job.keys() for job in last] == [{"id", "state", "worker"}] * 26
    worker = q.workers.list()[0].id
    assert {job["worker"] for job in last if job["state"] != "queued"} == {worker}


def the_newest_is_shown(q: dls.Dispatch, done: Done) -> None:
    assert re.search(rf"^id +{q.jobs.list(limit=1)[0].id}$", done.out, re.MULTILINE)


def the_newest_is_killed(q: dls.Dispatch, done: Done) -> None:
    newest, other = q.jobs.list(limit=2)
    assert (newest.state, other.state) == ("killed", "queued")
    assert done.out.splitlines()[-1] == f"job {newest.id} killed"


def all_are_cancelled(q: dls.Dispatch, done: Done) -> None:
    assert q.jobs.list(state="queued") == []
    assert done.out.splitlines() == ["23 cancelled", "0 cancelled", '{"cancelled":0}']


SHOW = """
JOB=$(lakeshore jobs list --json | jq -r '.[0].id // empty')
lakeshore jobs show "$JOB"
"""
BLOCKS = {
    "queues add": Block(
        """
lakeshore queues add training-h100
lakeshore queues add eval --kind priority --description "evaluation, urgent first"
""",
        after=two_are_added,
    ),
    "queues add with an elasticity": Block(
        """
lakeshore queues add training-h100 \\
  --kind priority \\
  --provider my-gpu-provider \\
  --elasticity pool-with-threshold \\
  --min 2 --max 16 --threshold 0.7 \\
  --instance-type p4d.24xlarge \\
  --max-depth 1000 --on-full reject
""",
        after=an_elastic_one_is_added,
    ),
    "queues ls": Block(
        """
lakeshore queues ls
lakeshore queues ls --state active
lakeshore queues ls --json | jq -r '.[].name'
""",
        queues,
        they_are_listed,
    ),
    "queues show": Block(
        """
lakeshore queues show training-h100
lakeshore queues show training-h100 --json
""",
        queues,
        it_is_shown,
    ),
    "queues patch": Block(
        """
lakeshore queues patch training-h100 --description "h100 prod"
lakeshore queues patch training-h100 --max 32 --threshold 0.6
lakeshore queues patch training-h100 --max-depth 2000 --on-full block
lakeshore queues patch training-h100 --provider ""    # clear the provider
""",
        queues,
        it_is_patched,
    ),
    "queues drain": Block(
        """
lakeshore queues drain training-h100
lakeshore queues archive eval
lakeshore queues unarchive eval
""",
        queues,
        states_are_moved,
    ),
    # two lines of one block, each a way to remove one queue
    "queues rm": Block("lakeshore queues rm eval", queues, it_is_removed),
    "queues rm with force": Block("lakeshore queues rm eval --force", bound, its_worker_is_unbound),
    "queues events": Block(
        """
lakeshore queues events training-h100
lakeshore queues events training-h100 --verbose --limit 200
lakeshore queues events training-h100 --json
""",
        changed,
        decisions_are_listed,
    ),
    "queues stats": Block(
        """
lakeshore queues stats training-h100
lakeshore queues stats training-h100 --json
""",
        jobs,
        signals_are_shown,
    ),
    "jobs list": Block(
        """
lakeshore jobs list
lakeshore jobs list --limit 20 --offset 20
""",
        jobs,
        all_are_listed,
    ),
    "jobs list with filters": Block(
        """
lakeshore jobs list --state running --state queued
lakeshore jobs list --worker "$D"
lakeshore jobs list --json | jq '.[] | {id, state, worker}'
""",
        jobs,
        some_are_listed,
    ),
    "jobs show": Block(SHOW, jobs, the_newest_is_shown),
    # names the job of the block before it
    "jobs kill": Block(f'{SHOW}\nlakeshore jobs kill "$JOB"', jobs, the_newest_is_killed),
    "jobs bulk-cancel": Block(
        """
lakeshore jobs bulk-cancel
lakeshore jobs bulk-cancel --queue training-h100
lakeshore jobs bulk-cancel --json
""",
        jobs,
        all_are_cancelled,
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name: str, head: Head, tmp_path: Path) -> None:
    block, namespace = BLOCKS[name], name.replace(" ", "-")
    if "jq" in block.script and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    with head.plane(namespace) as q, block.before(q) as variables:
        found = shell(block.script, head, namespace, **variables)
        assert (found.status, found.err) == (0, "")
        block.after(q, found)


def shell(script: str, head: Head, namespace: str, **variables: str) -> Done:
    """Run a script as a user would."""
    programs = Path(sys.executable).parent
    assert (programs / "lakeshore").exists(), "install the checkout anew: scripts/test does"
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    env = environment(
        head.home, PATH=path, LAKESHORE_URL=head.url, LAKESHORE_NAMESPACE=namespace, **variables
    )
    command = ["bash", "-euo", "pipefail", "-c", script]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    return Done(done.returncode, done.stdout, done.stderr)
