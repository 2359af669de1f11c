"""Which plane, as whom: addresses, and where the namespace, the token and the certificates come from."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakeshore.core.errors import StoreError
from lakeshore.sdk import address, credentials
from lakeshore.sdk.address import find_ca, find_token, namespace_of, resolve
from lakeshore.sdk.credentials import CredentialsError, Login

TOKEN, OTHER = "lks_" + "a" * 40, "lks_" + "b" * 40
FAR, NEAR, SAFE = "tcp://head:7420", "tcp://127.0.0.1:7420", "tls://head:7420"


@pytest.fixture(autouse=True)
def home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and nothing in the environment."""
    monkeypatch.chdir(tmp_path)
    return home


@pytest.mark.parametrize(
    ("given", "full"),
    [
        (":memory:", ":memory:"),
        ("tcp://head", "tcp://head:7420"),
        ("TCP://Head.Example:99/", "tcp://head.example:99"),
        ("tls://10.0.0.7:65535", "tls://10.0.0.7:65535"),
        ("tcp://[::1]", "tcp://[::1]:7420"),
        ("tls://[FE80::1]:8", "tls://[fe80::1]:8"),
        ("tcp://a_b-c.d:1", "tcp://a_b-c.d:1"),
        ("unix:///run/x.sock", "unix:///run/x.sock"),
    ],
)
def test_addresses_in_full(given: str, full: str) -> None:
    assert resolve(given) == full
    assert resolve(full) == full


def test_paths_are_absolute(tmp_path: Path) -> None:
    assert resolve("plane.db") == resolve(Path("plane.db")) == str(tmp_path.resolve() / "plane.db")
    assert resolve("unix://x.sock") == f"unix://{tmp_path / 'x.sock'}"
    assert resolve("./head:7420") == str(tmp_path.resolve() / "head:7420")
    assert resolve("~/x.db") == os.path.realpath(Path.home() / "x.db")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "an empty address"),
        ("a\0b", "an empty address"),
        (
            "http://head:80",
            "http:// is not spoken here: write tcp://host:7420, tls://host:7420, unix:///path, or",
        ),
        ("redis://x", "redis:// is not spoken here"),
        ("file:///tmp/x.db", "a file is named by its path alone: write /tmp/x.db"),
        ("tcp://", "'tcp://' names no host: write tcp://host:7420"),
        ("tcp://:7420", "names no host"),
        ("tcp://[]:1", "is no host: write a name or a number"),
        ("tcp://a b", "'a b' is no host"),
        ("tcp://[head]:1", "is no host"),
        ("tcp://head:", "'' is no port: write a number from 1 to 65535"),
        ("tcp://head:x", "'x' is no port"),
        ("tcp://head:0", "'0' is no port"),
        ("tcp://head:65536", "'65536' is no port"),
        ("tcp://head:999999999999", "is no port"),
        ("tcp://::1:7420", "an IPv6 address stands in brackets, as in tcp://[::1]:7420"),
        ("tcp://head:1/queue", "is no address: write tcp://host:7420, and nothing after it"),
        ("tcp://head:1?x=1", "leave out '?' and what follows it"),
        ("tls://head#x", "leave out '#' and what follows it"),
        ("unix://", "names no socket"),
        ("tcp:/head:1", "lacks two slashes: write tcp://head:1"),
        ("tls:head", "lacks two slashes: write tls://head"),
        ("head:7420", "is a host and a port: write tcp://head:7420, or ./head:7420 for a file"),
        ("[::1]:7420", "is a host and a port: write tcp://[::1]:7420"),
    ],
)
def test_what_is_no_address_says_what_would_be(given: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        resolve(given)
    assert said in str(caught.value)


def test_a_password_in_an_address_is_not_repeated() -> None:
    with pytest.raises(
        ValueError, match="holds no user or password: pass token=, or set LAKESHORE_TOKEN"
    ) as caught:
        resolve("tcp://me:hunter2@head:1")
    assert "hunter2" not in str(caught.value)


def test_without_an_address(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = home / socket.gethostname() / "plane.db"
    assert resolve(None) == str(own)
    assert [folder.stat().st_mode & 0o777 for folder in (home, own.parent)] == [0o700, 0o700]
    assert address.address_found(None).source == "default"
    credentials.save(SAFE, Login(TOKEN))
    assert address.address_found(None) == (SAFE, "saved login")
    monkeypatch.setenv("LAKESHORE_URL", " tcp://other \n")
    assert address.address_found(None) == ("tcp://other:7420", "LAKESHORE_URL")
    assert address.address_found("tcp://third") == ("tcp://third:7420", "argument")
    monkeypatch.setenv("LAKESHORE_URL", "")
    assert resolve(None) == SAFE
    monkeypatch.setenv("LAKESHORE_HOME", "/proc/no/such")
    with pytest.raises(
        StoreError, match=r"/proc/no/such/.* can't be made .*: set LAKESHORE_HOME to a folder"
    ):
        resolve(None)


def test_the_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    assert namespace_of(None) == "default"
    credentials.save(SAFE, Login(TOKEN, namespace="theirs"))
    assert (namespace_of(None, SAFE), namespace_of(None, FAR), namespace_of(None)) == (
        "theirs",
        "default",
        "default",
    )
    monkeypatch.setenv("LAKESHORE_NAMESPACE", "mine")
    assert address.namespace_found(None, SAFE) == ("mine", "LAKESHORE_NAMESPACE")
    assert address.namespace_found("ours", SAFE) == ("ours", "argument")


def test_the_token(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [find_token(url) for url in (FAR, NEAR, SAFE, "/x.db", ":memory:")] == [None] * 5
    own = credentials.machine_token()
    local = [NEAR, "tls://localhost:1", "tcp://[::1]:7", "tcp://127.9.9.9:1", "tcp://[::ffff:127.0.0.1]:1"]
    assert [find_token(url) for url in local] == [own] * 5
    for url in (SAFE, "tls://localhost.example:1", "tls://8.8.8.8:1", "unix:///x", "/x.db"):
        assert find_token(url) is None, url
    credentials.save(SAFE, Login(TOKEN))
    credentials.save(NEAR, Login(TOKEN))
    assert [find_token(SAFE), find_token(NEAR), find_token("tls://other:7420")] == [TOKEN, TOKEN, None]
    monkeypatch.setenv("LAKESHORE_TOKEN", f"{OTHER}\n")
    assert address.token_found(SAFE) == (OTHER, "LAKESHORE_TOKEN")
    assert find_token("unix:///x") == OTHER
    assert find_token("/x.db") is None
    assert find_token(SAFE, TOKEN) == TOKEN
    for wrong in ("", "a b", "ä", "x" * 1001, "lks_\x1b"):
        with pytest.raises(ValueError, match="this is no token: one begins with lks_") as caught:
            find_token(SAFE, wrong)
        assert not wrong or wrong not in str(caught.value)
    monkeypatch.setenv("LAKESHORE_TOKEN", "a b")
    with pytest.raises(ValueError, match="LAKESHORE_TOKEN: this is no token"):
        find_token(SAFE)


def test_no_token_crosses_a_network_in_the_clear_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = (
        "plain TCP to another machine, where anyone on the way can read the token: use tls://head:7420, or"
    )
    assert find_token(FAR) is None  # there is nothing to send
    with pytest.raises(ValueError, match=refused):
        find_token(FAR, TOKEN)
    assert find_token(NEAR, TOKEN) == find_token("unix:///x", TOKEN) == TOKEN
    monkeypatch.setenv("LAKESHORE_INSECURE", "1")
    assert find_token(FAR, TOKEN) == TOKEN
    monkeypatch.setenv("LAKESHORE_INSECURE", "0")
    credentials.save("tcp://other:7420", Login(TOKEN, insecure=True))
    credentials.save(FAR, Login(TOKEN))
    with pytest.raises(ValueError, match="plain TCP"):
        find_token(FAR)
    assert find_token("tcp://other:7420") == TOKEN


def test_the_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / name for name in ("saved.pem", "environment.pem", "given.pem")]
    for path in files:
        path.touch()
    saved, environment, given = map(str, files)
    assert find_ca(SAFE) is None
    credentials.save(SAFE, Login(TOKEN, ca=saved))
    assert (find_ca(SAFE), find_ca("tls://other:7420"), find_ca(NEAR)) == (saved, None, None)
    monkeypatch.setenv("LAKESHORE_CA", "environment.pem")
    assert (find_ca(SAFE), find_ca(NEAR)) == (environment, None)
    assert address.ca_found(SAFE, "given.pem") == (given, "argument")
    monkeypatch.setenv("LAKESHORE_CA", "nowhere.pem")
    with pytest.raises(
        ValueError, match=r"nowhere\.pem \(from LAKESHORE_CA\) is no file: name one with certif"
    ):
        find_ca(SAFE)


# the files


def test_logins_are_kept_by_url_in_a_private_file(home: Path) -> None:
    os.umask(before := os.umask(0))
    credentials.save(SAFE, Login(TOKEN, "a"))
    credentials.save(FAR, Login(OTHER, insecure=True))
    path = home / "credentials.json"
    assert [path.stat().st_mode & 0o777, home.stat().st_mode & 0o777] == [0o600, 0o700]
    assert sorted(found.name for found in home.iterdir()) == ["credentials.json", "credentials.lock"]
    saved = credentials.saved()
    assert (saved.last, saved.logins[SAFE], saved.logins[FAR].insecure) == (FAR, Login(TOKEN, "a"), True)
    assert credentials.forget("tls://other:7420") == []
    assert credentials.forget(FAR) == [FAR]
    assert (credentials.saved().last, list(credentials.saved().logins)) == ("", [SAFE])
    assert credentials.forget() == [SAFE]
    assert credentials.saved().logins == {}
    assert os.umask(before) == before


@pytest.mark.parametrize("which", ["credentials.json", "token"])
def test_a_file_that_others_can_read_is_refused(home: Path, which: str) -> None:
    credentials.save(NEAR, Login(TOKEN))
    credentials.forget(NEAR)
    credentials.machine_token()
    path = home / which if which == "credentials.json" else home / socket.gethostname() / which
    path.chmod(0o640)
    with pytest.raises(CredentialsError, match=f"{which} can be read by other users: `chmod 600"):
        find_token(NEAR)
    path.chmod(0o600)
    path.write_bytes(b"\xff{")
    with pytest.raises(CredentialsError, match=r"is damaged|holds no token"):
        find_token(NEAR)
    path.unlink()
    path.mkdir()
    with pytest.raises(CredentialsError, match=r"can't be read \(Is a directory\)|is no plain file"):
        find_token(NEAR)
    path.rmdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(CredentialsError, match="is no plain file: remove it"):
        find_token(NEAR)


def test_another_users_file_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    credentials.save(SAFE, Login(TOKEN))
    if os.geteuid() == 0:
        os.chown(home / "credentials.json", 12345, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(CredentialsError, match="belongs to another user"):
        credentials.saved()


def test_a_home_that_can_not_be_written() -> None:
    os.environ["LAKESHORE_HOME"] = "/proc/no"  # the fixture puts it back
    for call in (lambda: credentials.save(SAFE, Login(TOKEN)), credentials.machine_token):
        with pytest.raises(CredentialsError, match="set LAKESHORE_HOME to a folder you may"):
            call()


def test_the_machine_token_is_made_once(home: Path, tmp_path: Path) -> None:
    made = together(lambda: credentials.machine_token(home))
    assert len(set(made)) == 1
    assert made[0].startswith("lks_")
    assert len(made[0]) > 40
    folder = home / socket.gethostname()
    assert [(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()] == [("token", 0o600)]
    assert credentials.machine_token() == credentials.found_machine_token() == made[0]
    assert credentials.machine_token(tmp_path / "elsewhere") != made[0]


def test_logins_at_the_same_time_are_all_kept() -> None:
    urls = iter([f"tls://head{number}:7420" for number in range(8)])
    together(lambda: credentials.save(next(urls), Login(TOKEN)))
    assert len(credentials.saved().logins) == 8


def together(call: Callable[[], object]) -> list[str]:
    """What eight threads get that call it at once."""
    gate, found = threading.Barrier(8), list[str]()

    def run() -> None:
        gate.wait(60)
        found.append(str(call()))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_what_is_shown_of_a_token() -> None:
    token = credentials.new_token()
    assert credentials.hint(token) == f"lks_…{token[-4:]}"
    assert credentials.hint("short") == "lks_…"
