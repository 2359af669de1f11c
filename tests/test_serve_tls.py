"""A head with TLS, beside a plain port."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cli import process
from head_process import PATIENCE, Head

import lakeshore as dls
from lakeshore.cli import main


@dls.udf
def double(x: Any) -> Any:
    return 2 * x


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates: of two authorities, the head's for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / f"{name}.pem"))
        if name == "ca":
            made = authority.issue_cert("127.0.0.1")
            made.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
            made.private_key_pem.write_to_path(str(folder / "key.pem"))
    return folder


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def head(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Head]:
    """A head that listens with TLS, without, and at a socket."""
    home = tmp_path_factory.mktemp("head") / "home"
    listen = ("tls://127.0.0.1:0", "tcp://127.0.0.1:0", f"unix://{folder / request.param}")
    options = ("--tls-cert", folder / "cert.pem", "--tls-key", folder / "key.pem")
    with Head(home, *options, backend=request.param, listen=listen) as head:
        yield head
        assert head.end() == 0
        assert not [record for record in head.records() if "exception" in record]


@pytest.fixture(autouse=True)
def at_home(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LAKESHORE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAKESHORE_HOME", str(head.home))


def why_not(url: str, **options: Any) -> str:
    """Why there is no way to a head."""
    with pytest.raises(dls.Unreachable) as raised, dls.Dispatch(url, connect_timeout=0, **options) as q:
        q.queues.ls()
    return str(raised.value)


def test_it_is_one_plane_at_all_its_addresses(
    head: Head, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls, tcp, unix = head.urls
    assert (tls[:6], tcp[:6], unix[:7]) == ("tls://", "tcp://", "unix://")
    with dls.Dispatch(tls, ca=str(folder / "ca.pem")) as q:
        inv = double.submit("x" * 3_000_000, _dispatch=q)
        assert dls.run_worker(q, once=True) == 1
        assert list(q.status().listen) == head.urls
    monkeypatch.setenv("LAKESHORE_CA", str(folder / "ca.pem"))
    for url in head.urls:
        with dls.Dispatch(url) as q:
            assert len(q.result(inv)) == 6_000_000


def test_a_token_over_tls(
    head: Head, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From another machine: a login, once."""
    tls = head.urls[0]
    create = ["tokens", "create", "--namespace", "team", "--role", "submit"]
    assert main(["--url", tls, "--ca", str(folder / "ca.pem"), *create]) == 0
    text = capsys.readouterr().out.strip()
    home = tmp_path / "elsewhere"
    done = process(home, "--url", tls, "--ca", folder / "ca.pem", "queues", "ls")
    assert (done.status, done.err[:16]) == (1, "401 Unauthorized")
    environment = {"LAKESHORE_TOKEN": text, "LAKESHORE_CA": str(folder / "ca.pem")}
    done = process(home, "--url", tls, "--namespace", "team", "queues", "ls", "--json", **environment)
    assert (done.status, [row["name"] for row in done.json]) == (0, ["default"])


def test_a_certificate_that_nobody_vouches_for(head: Head, folder: Path) -> None:
    tls = head.urls[0]
    assert "LAKESHORE_CA" in why_not(tls)
    assert "not trusted" in why_not(tls, ca=str(folder / "other.pem"))
    assert "not trusted" in why_not(tls.replace("127.0.0.1", "localhost"), ca=str(folder / "ca.pem"))


def test_tls_at_the_plain_port_and_the_reverse(head: Head, folder: Path) -> None:
    tls, tcp, _ = head.urls
    assert "tcp://" in why_not(tcp.replace("tcp", "tls", 1), ca=str(folder / "ca.pem"))
    assert "tls://" in why_not(tls.replace("tls", "tcp", 1))
    assert "does not speak TLS" in head.told("does not speak TLS")
    assert "plain tcp:// port" in head.told("plain tcp:// port")


def test_garbage_at_the_tls_port(head: Head, folder: Path) -> None:
    host, port = head.urls[0].removeprefix("tls://").split(":")
    for data in (b"\x16\x03\x01\xff\xff" + bytes(70_000), b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 100):
        with socket.create_connection((host, int(port)), PATIENCE) as sock:
            sock.settimeout(PATIENCE)
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
            except ConnectionError:
                pass
    with dls.Dispatch(head.urls[0], ca=str(folder / "ca.pem")) as q:
        assert q.status().pid == head.pid
