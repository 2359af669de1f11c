"""Tokens: made once, kept as a hash, looked up at the door, revoked."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

import lakeshore as dls
from lakeshore.core import messages as m
from lakeshore.core.ids import parse
from lakeshore.testing.hand import HandPlane


def hash_of(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def test_a_token_is_shown_once(q: dls.Dispatch) -> None:
    made = q.tokens.create("submit", name="laptop")
    prefix, secret = made.token[:4], made.token[4:]
    assert (prefix, len(secret)) == ("lks_", 43)
    assert secret.replace("-", "").replace("_", "").isalnum()
    assert secret not in repr(made) + str(q.tokens.list())
    (listed,) = q.tokens.list()
    assert (listed.id, listed.name, listed.namespace, listed.role) == (made.id, "laptop", "default", "submit")
    assert listed.created_at == made.created_at
    assert listed.last_used_at is None
    assert q.tokens.create("submit").token != made.token


def test_only_a_hash_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path) as q:
        token = q.tokens.create("admin").token
    data = path.read_bytes()
    assert hash_of(token) in data
    assert token.encode() not in data
    assert token[4:].encode() not in data


def test_it_makes_its_namespace(tmp_path: Path, backend: Any) -> None:
    path = tmp_path / "plane.db"
    with dls.Dispatch(path, backend=backend) as q:
        assert q.status().namespaces == 1
        made = q.tokens.create("work", namespace="team")
        assert q.status().namespaces == 2
    with dls.Dispatch(path, backend=backend) as q:
        assert q.status().namespaces == 2
        assert [token.id for token in q.tokens.list()] == [made.id] == [t.id for t in q.tokens.list("team")]
        assert q.tokens.list("default") == []


def test_removing(q: dls.Dispatch) -> None:
    first, second, third = (q.tokens.create("read", name=name) for name in ("twice", "twice", "once"))
    with pytest.raises(dls.Conflict, match=f"{first.id}, {second.id}"):
        q.tokens.remove("twice")
    assert q.tokens.remove(first.id.lower()).id == first.id
    assert q.tokens.remove("once").id == third.id
    assert q.tokens.remove("twice").id == second.id
    with pytest.raises(dls.NotFound, match="lakeshore tokens list"):
        q.tokens.remove(first.id)
    assert q.tokens.list() == []


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda q: q.tokens.create("owner"), ValueError, "submit, read, work, admin"),
        (lambda q: q.tokens.create("read", namespace=""), ValueError, "namespace"),
        (lambda q: q.tokens.create("read", name="x" * 201), ValueError, "200"),
        (lambda q: q.tokens.create("read", name="\ud800"), ValueError, "Unicode"),
        (lambda q: q.tokens.remove(""), dls.NotFound, "name or id"),
    ],
)
def test_wrong_arguments(call: Any, error: type[Exception], match: str) -> None:
    with dls.Dispatch(":memory:") as q, pytest.raises(error, match=match):
        call(q)


@pytest.mark.anyio
async def test_as_coroutines(address: str) -> None:
    async with dls.AsyncDispatch(address, namespace="mine") as q:
        made = await q.tokens.create("admin")
        assert [token.namespace for token in await q.tokens.list()] == ["mine"]
        await q.tokens.remove(made.id)
        assert await q.tokens.list() == []


# at the head


def create(client: Any, text: str, role: str = "read", namespace: str = "", name: str = "") -> Any:
    return client.answer(client.ask(m.CreateToken, hash_of(text), role, namespace, name))


def test_the_door_looks_them_up() -> None:
    plane = HandPlane()
    client = plane.client("team")
    made = create(client, "text", "work").value
    row = plane.head.office.token(hash_of("text"))
    assert row is not None
    assert (row.id, row.namespace, row.role) == (parse(made["id"]), "team", "work")
    assert plane.head.office.token(hash_of("other")) is None
    assert plane.head.known_namespaces() == {"team"}
    plane.crash()
    assert plane.head.known_namespaces() == {"team"}
    again = plane.head.office.token(hash_of("text"))
    assert again is not None
    assert again.id == row.id


def test_its_use_is_noted_once_a_minute() -> None:
    plane = HandPlane()
    create(plane.client(), "text")
    plane.settle()
    notes: list[float | None] = []

    def watch(batch: Any) -> None:
        notes.extend(row.last_used_at for row in batch.admin.values())

    plane.store.watch = watch
    start = plane.clock.wall
    for _ in range(6):  # at 0, 25 … 125 s
        for _ in range(3):
            assert plane.head.office.token(hash_of("text")) is not None
        plane.settle()
        plane.advance(25)
    assert notes == [start, start + 75]
    row = plane.head.office.token(hash_of("text"))
    assert row is not None
    assert row.last_used_at == start + 75


def test_a_clock_that_jumped_back_is_noted() -> None:
    plane = HandPlane()
    create(plane.client(), "text")
    plane.head.office.token(hash_of("text"))
    plane.settle()
    plane.clock.wall -= 3600
    plane.head.office.token(hash_of("text"))
    plane.settle()
    row = plane.head.office.token(hash_of("text"))
    assert row is not None
    assert row.last_used_at == plane.clock.wall


def test_whoever_uses_a_removed_one_is_cut_off_once_that_is_stored() -> None:
    plane = HandPlane()
    client = plane.client()
    made = create(client, "text").value
    cut: list[bytes] = []
    plane.head.office.on_removed = cut.append
    plane.store.hold = True
    client.ask(m.RemoveToken, made["id"])
    plane.settle()
    assert plane.head.office.token(hash_of("text")) is None  # nobody comes in with it any more
    assert cut == []
    plane.store.release()
    plane.settle()
    assert cut == [parse(made["id"])]


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ((b"short", "read"), "BadRequest"),
        ((b"h" * 32, "plane"), "BadRequest"),
        ((b"h" * 32, "read", "\0"), "BadRequest"),
        ((b"h" * 32, "read", "", "x" * 300), "BadRequest"),
    ],
)
def test_what_a_peer_sends_is_checked(fields: tuple[Any, ...], kind: str) -> None:
    client = HandPlane().client()
    assert client.answer(client.ask(m.CreateToken, *fields)).kind == kind


def test_the_same_token_twice_is_refused() -> None:
    client = HandPlane().client()
    create(client, "text")
    assert create(client, "text").kind == "Conflict"


class Insider:
    """A peer whose token is of one namespace."""

    def __init__(self, plane: HandPlane, namespace: str) -> None:
        self.space, self.role = plane.head.space(namespace), "admin"
        self.plane, self.answers = plane, list[Any]()
        self.deliver = self.answers.append

    def ask(self, message: Any) -> Any:
        self.plane.engine.tell(self.plane.head.office, message, self)
        self.plane.settle()
        return self.answers[-1]


def test_an_admin_of_a_namespace_sees_no_other() -> None:
    plane = HandPlane()
    foreign = create(plane.client("other"), "theirs", name="theirs").value
    insider = Insider(plane, "mine")
    made = insider.ask(m.CreateToken(1, hash_of("mine"), "read")).value
    assert made["namespace"] == "mine"
    assert [row["id"] for row in insider.ask(m.ListTokens(2)).value] == [made["id"]]
    assert insider.ask(m.ListTokens(3, "other")).kind == "Forbidden"
    assert insider.ask(m.CreateToken(4, hash_of("x"), "read", "other")).kind == "Forbidden"
    for name in (foreign["id"], "theirs"):
        answer = insider.ask(m.RemoveToken(5, name))
        assert answer.kind == "NotFound"
        assert "did you mean" not in answer.message
    assert insider.ask(m.Status(6)).value["namespaces"] == 1
