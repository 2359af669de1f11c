"""Providers: rows of the plane that queues name."""

from pathlib import Path
from typing import Any

import pytest

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.testing.hand import HandPlane

KINDS = ("local", "ssh", "slurm", "kubernetes", "ec2", "command")


@pytest.mark.parametrize("kind", KINDS)
def test_a_provider_of_each_kind(kind: Any) -> None:
    with dls.Dispatch(":memory:") as q:
        added = q.providers.add("gpu", kind=kind, config={"partition": "a", "deep": {"n": [1]}}, max=3)
        assert (added.name, added.kind, added.max, added.state) == ("gpu", kind, 3, "unchecked")
        assert added.config == {"partition": "a", "deep": {"n": [1]}}
        assert q.providers.show("gpu") == q.providers.show(added.id) == added
        assert q.providers.list() == [added]


def test_its_life(q: dls.Dispatch) -> None:
    for name in ("b", "a"):
        q.providers.add(name, kind="local")
    assert [provider.name for provider in q.providers.list()] == ["a", "b"]
    with pytest.raises(dls.Conflict, match=r"exists already.*providers patch a"):
        q.providers.add("a", kind="ssh")
    assert q.providers.patch("a", max=7).max == 7
    changed = q.providers.patch("a", config={"x": 1})
    assert (changed.config, changed.max, changed.kind) == ({"x": 1}, 7, "local")
    assert q.providers.patch("a", max=None).max is None
    assert q.providers.remove("a").name == "a"
    with pytest.raises(dls.NotFound, match=r"no provider 'a'.*lakeshore providers add a --kind"):
        q.providers.show("a")
    with pytest.raises(dls.NotFound, match="did you mean 'b'"):
        q.providers.patch("bb", max=1)


def test_they_are_of_the_plane_and_stored(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        kept = q.providers.add("gpu", kind="slurm", config={"gres": "gpu:1"})
        q.providers.add("gone", kind="local")
        q.providers.remove("gone")
        q.queues.add("q1", provider="gpu")
    with dls.Dispatch(path, backend=backend, namespace="other") as q:
        assert q.providers.list() == [kept]
        with pytest.raises(dls.Conflict, match=r"q1 \(namespace default\)"):
            q.providers.remove("gpu")


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda q: q.providers.add("Bad name", kind="local"), ValueError, "not a provider name"),
        (lambda q: q.providers.add("a", kind="modal"), ValueError, "local, ssh, slurm, kubernetes"),
        (lambda q: q.providers.add("a", kind="local", max=-1), ValueError, "max"),
        (lambda q: q.providers.add("a", kind="local", max=True), TypeError, "max"),
        (lambda q: q.providers.add("a", kind="local", config=[1]), TypeError, "config"),
        (lambda q: q.providers.add("a", kind="local", config={1: 2}), TypeError, "config"),
        (lambda q: q.providers.add("a", kind="local", config={"x": object()}), ValueError, "can't be stored"),
        (lambda q: q.providers.patch("a"), TypeError, "given nothing"),
        (lambda q: q.providers.patch("a", kind="ssh"), TypeError, "kind"),
        (lambda q: q.providers.show(""), dls.NotFound, "name or id"),
        (lambda q: q.providers.show(7), TypeError, "string"),
    ],
)
def test_wrong_arguments(call: Any, error: type[Exception], match: str) -> None:
    with dls.Dispatch(":memory:") as q, pytest.raises(error, match=match):
        call(q)


@pytest.mark.parametrize(
    "fields",
    [("A", "local"), ("a", "modal"), ("a", "local", {}, -1)],
)
def test_what_a_peer_sends_is_checked_too(fields: tuple[Any, ...]) -> None:
    plane = HandPlane()
    client = plane.client()
    answer = client.answer(client.ask(m.AddProvider, *fields))
    assert answer.kind == "BadRequest"
    assert client.answer(client.ask(m.ListProviders)).value == []


def test_a_queue_names_one_by_name_or_id(q: dls.Dispatch) -> None:
    gpu, cpu = q.providers.add("gpu", kind="local"), q.providers.add("cpu", kind="local")
    assert q.queues.add("a", provider="gpu").provider_ref == "gpu"
    assert q.queues.add("b", provider=cpu.id).provider_ref == "cpu"
    for call in (lambda: q.queues.add("c", provider="tpu"), lambda: q.queues.patch("a", provider="tpu")):
        with pytest.raises(dls.NotFound, match=r"no provider 'tpu'.*did you mean '.pu'"):
            call()
    assert q.queues.patch("a", provider=cpu.id).provider_ref == "cpu"
    assert q.providers.remove(gpu.id) == gpu
    with pytest.raises(dls.Conflict, match=r"a \(namespace default\), b \(namespace default\)"):
        q.providers.remove("cpu")
    assert q.queues.patch("a", provider="").provider_ref is None
    assert q.queues.patch("b", provider=None).provider_ref is None
    q.providers.remove("cpu")


@pytest.mark.anyio
async def test_as_coroutines(address: str) -> None:
    async with dls.AsyncDispatch(address) as q:
        added = await q.providers.add("gpu", kind="ec2", config={"region": "eu"}, max=1)
        assert await q.providers.list() == [added] == [await q.providers.show(added.id)]
        assert (await q.providers.patch("gpu", max=2)).max == 2
        await q.providers.remove("gpu")
        assert await q.providers.list() == []
