"""A head that others reach by TCP: who comes in, what they may do, and what nobody can do to it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli import Done, process
from head_process import PATIENCE, Head
from planes import elsewhere

import lakeshore as dls
from lakeshore.cli import main
from lakeshore.core import messages as m
from lakeshore.core.ids import parse
from lakeshore.sdk import credentials, knocking
from lakeshore.transports.blocking import BlockingLink

SESSION = b"s" * 16


@dls.udf
def double(x: Any) -> Any:
    return 2 * x


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def head(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    """One head for all of this."""
    with Head(tmp_path_factory.mktemp("head") / "home", backend=request.param) as head:
        yield head
        assert head.end() == 0
        assert not [record for record in head.records() if "exception" in record]


@pytest.fixture(autouse=True)
def at_home(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test is on the head's machine, and has its home."""
    for name in [name for name in os.environ if name.startswith("LAKESHORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(head.home))


@pytest.fixture
def abroad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test is a user whom the head does not know."""
    monkeypatch.setenv("LAKESHORE_HOME", str(tmp_path / "abroad"))
    return tmp_path / "abroad"


@pytest.fixture
def owner(head: Head) -> Iterator[dls.Dispatch]:
    """The machine's own client."""
    with dls.Dispatch(head.url) as q:
        yield q


class Guest:
    """A link of which the test writes every message."""

    def __init__(self, head: Head, token: str, **knock: Any) -> None:
        self.link = BlockingLink(head.url, timeout=PATIENCE)
        fields = {"protocol": m.PROTOCOL, "version": "1.2.3", "session": os.urandom(16), "token": token}
        self.link.send(m.Knock(**fields | knock))
        self.first = self.next()

    def next(self) -> Any:
        """The next message."""
        message = self.link.receive(PATIENCE)
        assert message is not None
        return message

    def ask(self, message: Any) -> Any:
        """Send one, and take one."""
        self.link.send(message)
        return self.next()

    def is_let_go(self) -> None:
        """The head closes this link."""
        with closing(self.link), pytest.raises((EOFError, ConnectionError)):
            self.link.receive(PATIENCE)


def token(head: Head, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Made with the command, which prints it once."""
    assert main(["--url", head.url, "tokens", "create", *options]) == 0
    out, err = capsys.readouterr()
    assert "only time" in err
    made = out.strip()
    assert main(["--url", head.url, "tokens", "list", "--json"]) == 0
    assert made not in capsys.readouterr().out
    return made


def machine(head: Head) -> str:
    return credentials.machine_token(head.home)


def answers(head: Head) -> dls.PlaneStatus:
    """The head does what it is there for."""
    with dls.Dispatch(head.url) as q:
        inv = double.submit(21, _dispatch=q)
        assert dls.run_worker(q, once=True) == 1
        assert q.result(inv) == 42
        return q.status()


# tokens


def test_each_role_over_tcp(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    made = {
        role: token(head, capsys, "--namespace", "team", "--role", role)
        for role in ("read", "submit", "work")
    }
    faces = {role: dls.Dispatch(head.url, namespace="team", token=text) for role, text in made.items()}
    try:
        inv = double.submit(21, _dispatch=faces["submit"])
        assert str(faces["read"].get(inv).state) == "queued"
        for face in (faces["read"], faces["work"]):
            with pytest.raises(dls.Forbidden, match="role"):
                double.submit(1, _dispatch=face)
        with pytest.raises(dls.Forbidden, match="takes admin"):
            faces["submit"].queues.add("q")
        with pytest.raises(dls.Forbidden, match="tokens create --role work"):
            dls.run_worker(faces["submit"], once=True)
        assert dls.run_worker(faces["work"], once=True) == 1
        assert [faces[role].result(inv) for role in made] == [42, 42, 42]
    finally:
        for face in faces.values():
            face.close()


@pytest.mark.usefixtures("abroad")
def test_without_a_token_and_with_a_wrong_one(head: Head) -> None:
    for given, says in ((None, "lakeshore login"), ("lks_wrong", "does not know this token")):
        with pytest.raises(dls.Unauthorized, match=says), dls.Dispatch(head.url, token=given) as q:
            q.queues.ls()
    home = Path(os.environ["LAKESHORE_HOME"])
    done: Done = process(home, "--url", head.url, "queues", "ls")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("401 Unauthorized: this head asks for a token")
    assert done.err.count("\n") == 1
    assert head.told("asks for a token")


def test_for_another_namespace(head: Head, capsys: pytest.CaptureFixture[str]) -> None:
    text = token(head, capsys, "--namespace", "here", "--role", "admin")
    with (
        pytest.raises(dls.Forbidden, match="'here', not for 'there'"),
        dls.Dispatch(head.url, namespace="there", token=text) as q,
    ):
        q.queues.ls()
    with dls.Dispatch(head.url, namespace="here", token=text) as q:
        inv = double.submit(1, _dispatch=q)
        assert [queue.name for queue in q.queues.ls()] == ["default"]
        with pytest.raises(dls.Forbidden, match="owner of the whole plane"):
            q.providers.add("p", kind="local")
        with pytest.raises(dls.Forbidden):
            q.tokens.create("read", namespace="there")
    with dls.Dispatch(head.url, namespace="there") as q, pytest.raises(dls.NotFound):
        q.get(inv)


def test_one_that_is_revoked_while_it_waits(
    head: Head, owner: dls.Dispatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = token(head, capsys, "--role", "submit", "--name", "waits")
    guest = Guest(head, text)
    with dls.Dispatch(head.url, token=text) as q:
        inv = double.submit(1, _dispatch=q)
        guest.link.send(m.Wait(1, parse(inv)))
        assert isinstance(guest.ask(m.Status(2)), m.Answer)  # and so its wait has come, too
        with elsewhere(q.result, inv) as waiting, elsewhere(list, q.stream(inv)) as reading:
            assert main(["--url", head.url, "tokens", "remove", "waits"]) == 0
            for future in (waiting, reading):
                with pytest.raises(dls.Unauthorized, match="removed"):
                    future.result(PATIENCE)
        with pytest.raises(dls.Unauthorized):
            q.get(inv)
    sorry = guest.next()
    assert (sorry.kind, sorry.retry_after) == ("Unauthorized", None)
    guest.is_let_go()
    guest = Guest(head, text)
    assert guest.first.kind == "Unauthorized"
    guest.is_let_go()
    owner.kill(inv)


def test_a_worker_whose_token_is_revoked_ends(
    head: Head, owner: dls.Dispatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = token(head, capsys, "--role", "work", "--name", "works")
    with dls.Dispatch(head.url, token=text) as q, elsewhere(dls.run_worker, q) as working:
        assert owner.result(double.submit(21, _dispatch=owner)) == 42
        owner.tokens.remove("works")
        with pytest.raises(dls.Unauthorized, match="removed"):
            working.result(PATIENCE)


# strangers


@pytest.mark.parametrize(("protocol", "older"), [(m.PROTOCOL + 1, "head"), (m.PROTOCOL - 1, "other end")])
def test_another_version(head: Head, protocol: int, older: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knocking, "PROTOCOL", protocol)
    monkeypatch.setattr(knocking, "package_version", lambda: "9.8.7")
    with pytest.raises(dls.VersionMismatch) as raised, dls.Dispatch(head.url) as q:
        q.queues.ls()
    text = str(raised.value)
    assert f"(protocol {m.PROTOCOL})" in text
    assert f"9.8.7 (protocol {protocol}): upgrade the {older}" in text
    assert head.told("upgrade the")


GARBAGE = {
    "HTTP": b"GET / HTTP/1.1\r\nHost: head\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "four gigabytes": b"\xff\xff\xff\xff\x00" + b"x" * 100_000,
    "no message": b"\x00\x00\x00\x05\x00\xc1\xc1\xc1\xc1",
    "a large message of a stranger": (b"\x00\x00\x20\x01\x01" + bytes(8192)) * 8,
    "noise": bytes(range(256)) * 100,
}


def test_garbage_on_the_port(head: Head) -> None:
    host, port = head.url.removeprefix("tcp://").split(":")
    for data in GARBAGE.values():
        with socket.create_connection((host, int(port)), PATIENCE) as sock:
            sock.settimeout(PATIENCE)
            try:
                sock.sendall(data)
                assert sock.recv(1) == b""
            except ConnectionError:
                pass
    with socket.create_connection((host, int(port)), PATIENCE) as sock:
        sock.sendall(b"\x00\x00\x01\x00\x00\x91")  # and never the rest
    answers(head)
    assert "was let go" in head.told("was let go")
    assert len([record for record in head.records() if "was let go" in record["message"]]) == 1


def test_one_that_overdraws_its_credit(head: Head, owner: dls.Dispatch) -> None:
    inv = owner.submit(double, 1, _delay=3600)
    guest = Guest(head, machine(head), host="spender", pid=77)
    limit = guest.first.waits
    guest.link.send(*[m.Wait(number, parse(inv)) for number in range(limit + 1)])
    sorry = guest.next()
    assert (sorry.kind, "credit" in sorry.message) == ("BadRequest", True)
    guest.is_let_go()
    assert "credit" in head.told("spender")
    assert len([record for record in head.records() if "spender" in record["message"]]) == 1
    owner.kill(inv)
    answers(head)


def test_a_thousand_connections_that_come_and_go(head: Head) -> None:
    host, port = head.url.removeprefix("tcp://").split(":")

    def some(count: int) -> None:
        socks = [socket.create_connection((host, int(port)), PATIENCE) for _ in range(count)]
        for sock in socks:
            sock.close()
        for _ in range(count // 5):
            guest = Guest(head, machine(head))
            assert isinstance(guest.first, m.Welcome)
            guest.link.close()

    def open_files(least: int) -> int:
        """How many it has open, once those that have gone are forgotten."""
        folder, until = f"/proc/{head.pid}/fd", time.monotonic() + PATIENCE
        while len(os.listdir(folder)) > least and time.monotonic() < until:
            answers(head)
        return len(os.listdir(folder))

    answers(head)
    before = len(os.listdir(f"/proc/{head.pid}/fd"))
    some(200)
    assert open_files(before) <= before
    memory = head.memory()
    for _ in range(5):
        some(200)
    assert open_files(before) <= before
    assert head.memory() - memory < 16 << 20
