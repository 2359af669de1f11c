"""Which plane, as whom: what a program says, else the environment, else a login, else this machine's own.

Each `*_found` gives a value with its source, for `lakeshore config show`; the rest give the value.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from lakeshore.core.errors import LakeshoreError, StoreError
from lakeshore.transports.address import DEFAULT_PORT, SCHEMES, parse

from . import credentials
from .checks import sound

MEMORY = ":memory:"
GIVEN, LOGIN, OWN, DEFAULT = "argument", "saved login", "this machine's own", "default"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_HALF = re.compile(r"(tcp|tls|unix):(?!//)", re.IGNORECASE)
_BARE = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_HOST = re.compile(r"(\[[^\[\]/]*\]|[^:\[\]/]*)(?::([^:/]*))?/?")
_NAME = re.compile(r"[a-z0-9._-]+")
_YES = ("1", "true", "yes", "on")
_allowed: set[str] = set()


class Found(NamedTuple):
    """A value and where it comes from."""

    value: str | None
    source: str


def resolve(address: str | os.PathLike[str] | None) -> str:
    """`:memory:`, an absolute path, or `unix:///path`, `tcp://host:port`, `tls://host:port` in full.

    None means `LAKESHORE_URL`, else what `lakeshore login` saved last, else the local plane
    `LAKESHORE_HOME/<hostname>/plane.db` (`~/.lakeshore` by default).
    Raises: ValueError for what is no address; StoreError, CredentialsError.
    """
    return str(address_found(address).value)


def address_found(address: str | os.PathLike[str] | None) -> Found:
    """The address, as `resolve` gives it, with its source."""
    if address is not None:
        text = os.fspath(address)
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("an address is a string or a path, not bytes")
        return Found(_normal(text), GIVEN)
    if text := _environment("LAKESHORE_URL"):
        return Found(_normal(text), "LAKESHORE_URL")
    if last := credentials.saved().last:
        return Found(last, LOGIN)
    return Found(default_path(), DEFAULT)


def default_path() -> str:
    """The local plane of this machine and user; its folders are made, 0700.

    Raises: StoreError where they can't be.
    """
    try:
        return str(credentials.machine_folder() / "plane.db")
    except OSError as error:
        folder = credentials.home() / socket.gethostname()
        raise StoreError(
            f"{folder} can't be made ({error.strerror}): set LAKESHORE_HOME to a folder you may write to, or "
            "pass an address"
        ) from error


def home_found() -> Found:
    """The folder of logins and local planes, with its source."""
    source = "LAKESHORE_HOME" if os.environ.get("LAKESHORE_HOME") else DEFAULT
    return Found(str(credentials.home()), source)


def namespace_of(namespace: str | None, url: str | None = None) -> str:
    """The namespace named, else `LAKESHORE_NAMESPACE`, else of the login at `url`, else "default".

    Raises: ValueError for what is none.
    """
    return str(namespace_found(namespace, url).value)


def namespace_found(namespace: str | None, url: str | None = None) -> Found:
    """The namespace, with its source."""
    if namespace is not None:
        return Found(_namespace(namespace), GIVEN)
    if name := _environment("LAKESHORE_NAMESPACE"):
        return Found(_namespace(name), "LAKESHORE_NAMESPACE")
    login = login_at(url)
    return Found(login.namespace, LOGIN) if login and login.namespace else Found("default", DEFAULT)


def find_token(url: str, token: str | None = None) -> str | None:
    """What says who we are: the token given, else `LAKESHORE_TOKEN`, else of the login at `url`, else, at a
    loopback address, the one that `lakeshore serve` shares with this machine's clients. None: there is none,
    or `url` is a path, which needs none.

    Args:
        url: as `resolve` gives it.

    Raises: ValueError where it would cross a network in the clear; CredentialsError.
    """
    found = token_found(url, token)
    if found.value is not None:
        check_private(url)
    return found.value


def late_token(url: str) -> str | None:
    """The same, where there was none before: a head that starts after its clients makes this machine's token
    only then. What is in the way is told by that head."""
    with suppress(LakeshoreError, ValueError):
        return find_token(url)
    return None


def token_found(url: str, token: str | None = None) -> Found:
    """The token, with its source, whether or not it may be sent."""
    if token is not None:
        return Found(credentials.check_token(token), GIVEN)
    if "://" not in url:
        return Found(None, DEFAULT)
    if text := _environment("LAKESHORE_TOKEN"):
        try:
            return Found(credentials.check_token(text), "LAKESHORE_TOKEN")
        except ValueError as error:
            raise ValueError(f"LAKESHORE_TOKEN: {error}") from None
    login = login_at(url)
    if login and login.token:
        return Found(login.token, LOGIN)
    if not url.startswith("unix://") and is_loopback(parse(url).host):
        own = credentials.found_machine_token()
        return Found(own, OWN if own else DEFAULT)
    return Found(None, DEFAULT)


def find_ca(url: str, ca: str | None = None) -> str | None:
    """The file of certificates to trust at a `tls://` URL: the one given, else `LAKESHORE_CA`, else of the
    login at `url`. None: what the system trusts.

    Raises: ValueError where it is no file.
    """
    found = ca_found(url, ca)
    if found.value is not None and not os.path.isfile(found.value):
        raise ValueError(
            f"{found.value} (from {found.source}) is no file: name one with certificates to trust, in PEM"
        )
    return found.value


def ca_found(url: str, ca: str | None = None) -> Found:
    """The file of certificates, with its source."""
    found, login = Found(ca, GIVEN), login_at(url)
    if ca is None and not url.startswith("tls://"):
        return Found(None, DEFAULT)
    if ca is None:
        found = Found(_environment("LAKESHORE_CA"), "LAKESHORE_CA")
    if found.value is None:
        found = Found(login.ca, LOGIN) if login and login.ca else Found(None, DEFAULT)
    return (
        found
        if found.value is None
        else Found(os.path.abspath(os.path.expanduser(found.value)), found.source)
    )


def login_at(url: str | None) -> credentials.Login | None:
    """What `lakeshore login` saved for a URL. A path has no logins."""
    return credentials.saved().logins.get(url) if url is not None and "://" in url else None


def check_private(url: str) -> None:
    """Raise ValueError where anyone on the way to a URL could read a token, unless that was asked for."""
    if not url.startswith("tcp://") or url in _allowed or is_loopback(parse(url).host):
        return
    login = login_at(url)
    if (_environment("LAKESHORE_INSECURE") or "").lower() in _YES or (login and login.insecure):
        return
    raise ValueError(
        f"{url} is plain TCP to another machine, where anyone on the way can read the token: use "
        f"{url.replace('tcp', 'tls', 1)}, or set LAKESHORE_INSECURE=1 where the network is yours alone (for "
        "one head: `lakeshore login --insecure`)"
    )


@contextmanager
def plain_allowed(url: str) -> Generator[None]:
    """Inside, a token may be sent to a `tcp://` URL in the clear."""
    _allowed.add(url)
    try:
        yield
    finally:
        _allowed.discard(url)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine itself, by its name or number alone."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        number = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = number.ipv4_mapped if isinstance(number, ipaddress.IPv6Address) else None
    return (mapped or number).is_loopback


def _environment(name: str) -> str | None:
    return os.environ.get(name, "").strip() or None


def _namespace(name: str) -> str:
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a namespace is a string, not {type(name).__name__}")
    if not name or "\0" in name or len(name) > 200:
        raise ValueError(f"{name!r} is not a namespace: choose 1 to 200 characters")
    return sound("a namespace", name)


def _normal(text: str) -> str:
    if text == MEMORY:
        return MEMORY
    if not text or "\0" in text:
        raise ValueError('an empty address: pass ":memory:", a file path or a URL')
    if url := _SCHEME.fullmatch(text):
        return _url(url[1].lower(), url[2])
    if half := _HALF.match(text):
        raise ValueError(
            f"{text!r} lacks two slashes: write {half[1].lower()}://{text[half.end() :].lstrip('/')}"
        )
    if _BARE.fullmatch(text):
        raise ValueError(
            f"{text!r} is a host and a port: write tcp://{text}, or ./{text} for a file of that name"
        )
    return os.path.realpath(Path(text).expanduser())


def _url(scheme: str, rest: str) -> str:
    if scheme == "file":
        raise ValueError(f"a file is named by its path alone: write {rest or '/path/to/plane.db'}")
    if scheme not in SCHEMES:
        raise ValueError(
            f"{scheme}:// is not spoken here: write tcp://host:{DEFAULT_PORT}, tls://host:{DEFAULT_PORT}, "
            "unix:///path, or a file path"
        )
    if scheme == "unix":
        return str(parse(f"unix://{rest}"))
    if "@" in rest:
        raise ValueError(
            f"a {scheme}:// address holds no user or password: pass token=, or set LAKESHORE_TOKEN"
        )
    if sign := next((sign for sign in "?#" if sign in rest), None):
        raise ValueError(f"a {scheme}:// address ends with the port: leave out {sign!r} and what follows it")
    return str(parse(f"{scheme}://{_host_and_port(scheme, rest)}"))


def _host_and_port(scheme: str, rest: str) -> str:
    shape, given = f"{scheme}://host:{DEFAULT_PORT}", f"{scheme}://{rest}"
    match = _HOST.fullmatch(rest)
    if match is None and rest.count(":") > 1 and "[" not in rest:
        raise ValueError(
            f"{given!r}: an IPv6 address stands in brackets, as in {scheme}://[::1]:{DEFAULT_PORT}"
        )
    if match is None:
        raise ValueError(f"{given!r} is no address: write {shape}, and nothing after it")
    host, port = match[1].lower(), match[2]
    if not host:
        raise ValueError(f"{given!r} names no host: write {shape}")
    if not (_is_ipv6(host[1:-1]) if host[0] == "[" else _NAME.fullmatch(host)):
        raise ValueError(f"{given!r}: {host!r} is no host: write a name or a number, as in {shape}")
    if port is not None and not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65535):
        raise ValueError(f"{given!r}: {port!r} is no port: write a number from 1 to 65535, as in {shape}")
    return f"{host}:{port}" if port else host


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True
