"""Addresses, who listens at them, and how they are dialled; what goes wrong is one clear line."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from wires import SCHEMES, Place, listening, running

from lakeshore.core.errors import CannotListen, Unreachable
from lakeshore.testing.conformance.link import Heard, small
from lakeshore.transports import listener as listeners
from lakeshore.transports import places
from lakeshore.transports.address import Address, parse
from lakeshore.transports.dialing import dial
from lakeshore.transports.listener import Listener
from lakeshore.transports.places import LONGEST, unix_place
from lakeshore.transports.tls import server_context


def nobody(link: Any) -> None:
    raise AssertionError("somebody came in")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


# addresses


@pytest.mark.parametrize(
    ("text", "address", "again"),
    [
        ("tcp://h:1", Address("tcp", "h", 1), "tcp://h:1"),
        ("tcp://h", Address("tcp", "h", 7420), "tcp://h:7420"),
        ("tls://lake.example.org/", Address("tls", "lake.example.org", 7420), "tls://lake.example.org:7420"),
        ("tcp://[::1]:65535", Address("tcp", "::1", 65535), "tcp://[::1]:65535"),
        ("tls://[fe80::1]", Address("tls", "fe80::1", 7420), "tls://[fe80::1]:7420"),
        ("unix:///run/x.sock", Address("unix", path="/run/x.sock"), "unix:///run/x.sock"),
        (
            "unix://x.sock",
            Address("unix", path=os.path.abspath("x.sock")),
            f"unix://{os.path.abspath('x.sock')}",
        ),
    ],
)
def test_an_address(text: str, address: Address, again: str) -> None:
    assert parse(text) == address
    assert str(address) == again
    assert parse(again) == address


@pytest.mark.parametrize(
    "text",
    [
        *["", "h:1", "http://h", "TCP://h", "tcp://", "tcp://:1", "tcp://h:", "tcp://h:x", "tcp://h:1:2"],
        *[
            "tcp://::1",
            "tcp://h:65536",
            "tcp://h/x",
            "tcp://u@h:1",
            "tcp://a b",
            "tls://[::1",
            "tls://[::1]x",
        ],
        *["unix://", "unix:///a\0b"],
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|socket|port"):
        parse(text)


# the place of a socket


def test_a_socket_lies_beside_its_store(tmp_path: Path) -> None:
    assert unix_place("/a/plane.db") == "/a/plane.db.sock"
    longest = "/" + "x" * (LONGEST - 6)
    assert unix_place(longest) == f"{longest}.sock"


@pytest.mark.parametrize("given", [True, False])
def test_a_long_path_has_its_socket_in_the_users_runtime_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "nowhere"))
    folder = Path("/tmp", f"lakeshore-{os.getuid()}")
    if given:
        short = Path("/tmp", f"lks-{os.getpid()}")
        short.mkdir()
        folder = short / "lakeshore"
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    long = "/" + "é" * 100
    try:
        place = Path(unix_place(long))
        assert place.parent == folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert place == Path(unix_place(long)) != Path(unix_place(long + "x"))
        assert len(os.fsencode(place)) <= LONGEST
    finally:
        if given:
            folder.rmdir()
            folder.parent.rmdir()


@pytest.mark.parametrize("what", ["symlink", "mode", "file", "owner"])
def test_a_runtime_folder_that_others_may_write_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    short = Path("/tmp", f"lks-{os.getpid()}")
    short.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    folder = short / "lakeshore"
    if what == "symlink":
        (tmp_path / "x").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "x")
    elif what == "file":
        folder.touch()
    else:
        folder.mkdir(mode=0o700)
    if what == "mode":
        folder.chmod(0o750)
    if what == "owner":
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    try:
        with pytest.raises(CannotListen, match=r"not a folder of yours alone|can't be made"):
            unix_place("/" + "x" * 200)
    finally:
        folder.rmdir() if folder.is_dir() and not folder.is_symlink() else folder.unlink()
        short.rmdir()


# listening


@pytest.mark.anyio
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_many_come_at_once(scheme: str, tmp_path: Path) -> None:
    place = Place(scheme, tmp_path)
    async with running() as backend, listening(place, backend) as (listener, links):
        dialled: list[Any] = []

        async def come() -> None:
            dialled.append(await dial(listener.address, backend, ca=place.ca, timeout=20))

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(come)
        heard = [Heard(link) for link in dialled]
        with anyio.fail_after(20):
            while len(links) < 100:
                await anyio.lowlevel.checkpoint()
        for link in links:
            Heard(link)
            link.send(small(1))
        for each in heard:
            await each.until(messages=1)
        for link in dialled:
            link.abort()


@pytest.mark.anyio
async def test_a_name_is_listened_on_at_all_its_addresses() -> None:
    found = {each[4][0] for each in socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)}
    async with running() as backend:
        listener = Listener("tcp://localhost:0", backend, lambda link: link.abort())
        for host in found:
            (await dial(Address("tcp", str(host), listener.address.port), backend)).abort()
        await listener.aclose()


@pytest.mark.anyio
async def test_what_listens_already_is_named() -> None:
    async with running() as backend:
        listener = Listener("tcp://127.0.0.1:0", backend, nobody)
        with pytest.raises(CannotListen, match=rf"another process listens on {listener.address}: stop it"):
            Listener(listener.address, backend, nobody)
        await listener.aclose()
        with pytest.raises(CannotListen, match=r"tcp://192\.0\.2\.1:7420 can't be listened on"):
            Listener("tcp://192.0.2.1", backend, nobody)
        with pytest.raises(ValueError, match="needs a certificate"):
            Listener("tls://127.0.0.1:0", backend, nobody)


@pytest.mark.anyio
async def test_no_descriptors_left_is_said_once_and_passes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "_PAUSE", 0.01)
    async with running() as backend:
        accepted = backend.parker()
        listener = Listener("tcp://127.0.0.1:0", backend, accepted.set)
        (sock,) = listener._socks
        accept, failures = sock.accept, [errno.EMFILE, errno.ECONNABORTED, errno.ENFILE]

        def failing() -> Any:
            if failures:
                raise OSError(failures[0], os.strerror(failures.pop(0)))
            return accept()

        sock.accept = failing  # pyright: ignore[reportAttributeAccessIssue]
        link = await dial(listener.address, backend)
        (await accepted.wait()).abort()
        link.abort()
        assert failures == []
        (record,) = caplog.records
        assert "accepts nobody for the moment (Too many open files)" in record.message
        await listener.aclose()


@pytest.mark.anyio
async def test_a_socket_is_its_users_alone_and_goes_with_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "made" / "s"
    async with running() as backend:
        listener = Listener(f"unix://{path}", backend, nobody)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await listener.aclose()
        assert not path.exists()
        await listener.aclose()


@pytest.mark.anyio
async def test_a_stale_socket_is_replaced_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with running() as backend:
        first = Listener(f"unix://{path}", backend, nobody)
        with pytest.raises(CannotListen, match="another process listens on unix://"):
            Listener(f"unix://{path}", backend, nobody)
        second = Listener(f"unix://{path}", backend, lambda link: link.abort(), replace=True)
        await first.aclose()  # leaves its successor's file alone
        (await dial(f"unix://{path}", backend)).abort()
        await second.aclose()


@pytest.mark.anyio
async def test_where_no_socket_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    async with running() as backend:
        with pytest.raises(CannotListen, match="is there and is no socket"):
            Listener(f"unix://{tmp_path / 'file'}", backend, nobody)
        assert (tmp_path / "file").read_text() == "precious"
        with pytest.raises(CannotListen, match="can't be listened on"):
            Listener(f"unix://{tmp_path / 'file' / 's'}", backend, nobody)
        with pytest.raises(ValueError, match="is longer than 107 bytes"):
            Listener(f"unix:///{'x' * 107}", backend, nobody)


@pytest.mark.anyio
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not say who is there")
async def test_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as backend:
        listener = Listener(f"unix://{tmp_path / 's'}", backend, nobody)
        monkeypatch.setattr(listeners, "peer_uid", lambda sock: (places.peer_uid(sock) or 0) + 1)
        link = await dial(listener.address, backend)
        heard = Heard(link)
        await heard.until(closed=1)
        assert [record.message for record in caplog.records] == [
            f"{listener.address} refused a process of another user (uid {os.geteuid() + 1})"
        ]
        await listener.aclose()


@pytest.mark.anyio
async def test_who_is_there(tmp_path: Path) -> None:
    async with running() as backend:
        for scheme, peer in (("tcp", "tcp://127.0.0.1:"), ("unix", f"process {os.getpid()}")):
            async with listening(Place(scheme, tmp_path), backend) as (listener, links):
                link = await dial(listener.address, backend)
                with anyio.fail_after(20):
                    while not links:
                        await anyio.lowlevel.checkpoint()
                assert links[0].peer.startswith(peer)
                assert link.peer == str(listener.address)
                link.abort()


# dialling


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("tcp://127.0.0.1:{port}", "nothing listens at tcp://127.0.0.1:{port}: start a head there"),
        ("tls://127.0.0.1:{port}", "nothing listens at tls://127.0.0.1:{port}: start a head there"),
        ("unix://{folder}/none", "nothing listens at unix://{folder}/none: start a head there"),
        ("unix://{folder}/stale", "nothing listens at unix://{folder}/stale: start a head there"),
        ("tcp://no-such-host.invalid", "tcp://no-such-host.invalid:7420: no machine is called"),
        ("unix:///{long}", "unix:///{long} can't be reached (its path is longer than 107 bytes)"),
    ],
)
async def test_nobody_is_there(tmp_path: Path, address: str, why: str) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "stale"))
    names = {"port": free_port(), "folder": tmp_path, "long": "x" * 200}
    async with running() as backend:
        with pytest.raises(Unreachable) as caught:
            await dial(address.format(**names), backend)
        assert why.format(**names) in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize("scheme", ["tls", "unix"])
async def test_one_who_does_not_answer(tmp_path: Path, scheme: str) -> None:
    """A socket that listens, of a process that does nothing more."""
    family = socket.AF_UNIX if scheme == "unix" else socket.AF_INET
    with socket.socket(family) as silent, socket.socket(family) as other:
        silent.bind(str(tmp_path / "s") if scheme == "unix" else ("127.0.0.1", 0))
        silent.listen(0)
        address = f"unix://{tmp_path / 's'}"
        if scheme == "unix":
            other.connect(str(tmp_path / "s"))  # its queue is full now
        else:
            address = f"tls://127.0.0.1:{silent.getsockname()[1]}"
        async with running() as backend:
            with pytest.raises(Unreachable, match=r"did not answer"):
                await dial(address, backend, timeout=0.05)


@pytest.mark.anyio
async def test_where_one_address_of_a_name_does_not_work_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as backend:
        listener = Listener("tcp://127.0.0.1:0", backend, lambda link: link.abort())
        port = listener.address.port

        async def resolve(*args: Any, **options: Any) -> list[Any]:
            wrong = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", port, 0, 0))] * 2
            return [*wrong, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

        monkeypatch.setattr(anyio, "getaddrinfo", resolve)
        (await dial(f"tcp://somewhere:{port}", backend)).abort()
        await listener.aclose()


# TLS


@pytest.mark.anyio
async def test_certificates_are_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place, stranger = Place("tls", tmp_path), tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))
    async with running() as backend, listening(place, backend) as (listener, links):
        with pytest.raises(Unreachable, match=r"is not trusted \(.*\): pass its CA as ca= or LAKESHORE_CA"):
            await dial(listener.address, backend)
        with pytest.raises(Unreachable, match=r"is not trusted \(.*\): pass its CA as ca= or LAKESHORE_CA"):
            await dial(listener.address, backend, ca=stranger)
        with pytest.raises(
            Unreachable, match=r"not trusted \(Hostname mismatch.*the name that it was made for"
        ):
            await dial(Address("tls", "localhost", listener.address.port), backend, ca=place.ca)
        with pytest.raises(Unreachable, match=r"can't be read \(No such file"):
            await dial(listener.address, backend, ca=tmp_path / "none.pem")
        assert links == []


@pytest.mark.anyio
async def test_plain_and_tls_do_not_mix(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place("tls", tmp_path)
    async with running() as backend, listening(place, backend) as (listener, links):
        link = await dial(Address("tcp", "127.0.0.1", listener.address.port), backend)
        heard = Heard(link)
        link.send(small(1))
        await heard.until(closed=1)
        assert links == []
        assert "answers in TLS: use a tls:// address" in link.lost_reason
        (record,) = caplog.records
        assert "it does not speak TLS: a client of this port needs a tls:// address" in record.message

        async with listening(Place("tcp", tmp_path), backend) as (plain, links):
            reasons: list[str] = []

            def on_link(link: Any) -> None:
                link.closed = lambda: reasons.append(link.lost_reason)
                link.receive = nobody

            plain._on_link = on_link
            with pytest.raises(Unreachable, match=r"does not speak TLS, or gave up: is it a tcp://"):
                await dial(Address("tls", "127.0.0.1", plain.address.port), backend, ca=place.ca)
            assert "begins with TLS" in reasons[0]


@pytest.mark.anyio
async def test_who_does_not_shake_hands_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "SECONDS", 0.05)
    place = Place("tls", tmp_path)
    async with running() as backend, listening(place, backend) as (listener, links):
        async with await anyio.connect_tcp("127.0.0.1", listener.address.port) as silent:
            with pytest.raises(anyio.EndOfStream):
                await silent.receive()
        async with await anyio.connect_tcp("127.0.0.1", listener.address.port):
            pass
        with anyio.fail_after(20):
            while len(caplog.records) < 2:
                await anyio.lowlevel.checkpoint()
        said = [record.message.rpartition(": ")[2] for record in caplog.records]
        assert said == ["it took too long", "closed during the handshake"]
        monkeypatch.setattr(listeners, "SECONDS", 100)
        async with await anyio.connect_tcp("127.0.0.1", listener.address.port) as silent:
            while not listener._shaking:
                await anyio.lowlevel.checkpoint()
            await listener.aclose()
            with pytest.raises(anyio.EndOfStream):
                await silent.receive()
        assert links == []


def test_a_certificate_that_can_not_be_used(tmp_path: Path) -> None:
    Place("tls", tmp_path)
    with pytest.raises(CannotListen, match=r"none can't be used \(No such file"):
        server_context(tmp_path / "cert.pem", tmp_path / "none")
    with pytest.raises(CannotListen, match="name a certificate and its unencrypted key as PEM files"):
        server_context(tmp_path / "key.pem", tmp_path / "cert.pem")
